// collective.h - what a group needs to reduce gradients: ring, NCCL or any other way.
//
// A collective belongs to one epoch: an ordered list of members that all opened it with the same
// view. All members issue the same calls in the same order. A call returns when its buffer may be
// used; after an error the collective is dead, its buffers hold garbage and only close is allowed:
// the group forms a new epoch.
//
// Every member gets the same bits from all_reduce and broadcast. With the same members the result
// is the same in every run.
//
// Errors: CN_EPEER when a member is lost (lost names it), CN_ETIMEOUT when nothing
// moved for the time of the configuration, CN_EAUTH for a wrong key, CN_ECANCELED after cancel.
// Threading: one thread, except cancel.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "runtime/base/error.h"
#include "runtime/base/member.h"
#include "runtime/base/number.h"

// Who takes part in an epoch. rank r is members[ranks[r]].
struct cn_view {
    uint64_t epoch;
    uint32_t size;                // 1 to CN_GROUP_MAX
    uint32_t rank;                // of this board
    uint32_t ranks[CN_GROUP_MAX]; // rank -> index in the profile's member list; ascending
};

struct cn_set;
struct cn_collective;

struct cn_collective_config {
    const struct cn_member *members; // the profile's list; borrowed until close
    uint32_t member_count;
    const char *listen; // where this member is called, if not at its address; NULL: there
    struct cn_view view;
    uint32_t open_timeout_ms;
    uint32_t progress_timeout_ms; // without a byte from a peer
    int cancel_fd;                // readable: as cancel, also while open runs; -1 for none
    // For a port that cannot find its peers or notice their loss by itself: a collective that is
    // open with the same view; borrowed until close.
    struct cn_collective *control;
    uint32_t device; // number of this member's GPU, for a port that reduces on one
};

enum cn_reduce {
    CN_REDUCE_SUM,
    CN_REDUCE_AVERAGE, // the sum divided by the members; integers towards zero
    CN_REDUCE_MIN,     // these two keep a value that is not a number
    CN_REDUCE_MAX,
};

// Some of the members of a view, in the order of their ranks. id tells sets apart in messages and
// errors; the whole group is 0.
struct cn_set {
    uint32_t id;
    uint32_t size;
    uint32_t ranks[CN_GROUP_MAX]; // of the view, ascending
};

// Share s of a buffer of count elements over a set of n: [s * count / n, (s + 1) * count / n),
// where s is a member's place in the set.
enum cn_collective_kind {
    CN_COLLECTIVE_ALL_REDUCE = 1, // data: the reduced values, the same bits on all
    CN_COLLECTIVE_REDUCE_SCATTER, // data: own share has the reduced values, the rest is garbage
    CN_COLLECTIVE_ALL_GATHER,     // data: each share comes from its owner
    CN_COLLECTIVE_BROADCAST,      // data: bytes of peer
    CN_COLLECTIVE_SEND,           // data: bytes to peer, who receives as many
    CN_COLLECTIVE_RECEIVE,        // data: bytes from peer
    CN_COLLECTIVE_BARRIER,        // nobody returns before all have called
};

struct cn_collective_call {
    enum cn_collective_kind kind;
    enum cn_reduce how;
    enum cn_number type;
    // ALL_REDUCE and REDUCE_SCATTER, sums of float32 only: CN_BFLOAT16 halves the bytes. Each
    // member's numbers are rounded when they leave it, added in float32, and the sums are rounded
    // once.
    enum cn_number wire;
    const struct cn_set *set; // borrowed for the call; NULL for the whole group
    uint32_t peer;            // rank in the view
    void *data;               // in place, aligned to its type
    size_t count;             // elements, or bytes where said above
    uint32_t fingerprint;     // of what the data is for; all members must give the same
};

struct cn_collective_ops {
    const char *name; // as in a profile: "tcp", "nccl"

    // Returns when all members of the view are connected. After an error lost is the index in the
    // member list of the one that did not come, or UINT32_MAX.
    cn_err (*open)(const struct cn_collective_config *config, struct cn_collective **collective,
                   uint32_t *lost);
    void (*close)(struct cn_collective *collective);

    // Sets that calls will be made on. All members of the view call it alike, those outside of a
    // set too: a port may connect the members of each. A call on a set that was not told is
    // allowed, but may go a slower way. Errors are those of run.
    cn_err (*prepare)(struct cn_collective *collective, const struct cn_set *sets, uint32_t count);

    // Every member of the set issues the same calls on it in the same order; CN_ECONFLICT, before
    // any data has changed, when another member is about to do something else, which the log names.
    // This board is in the set.
    cn_err (*run)(struct cn_collective *collective, const struct cn_collective_call *call);

    // Makes a running call return CN_ECANCELED soon. Callable from any thread.
    void (*cancel)(struct cn_collective *collective);

    // Between calls: CN_EPEER when a member has closed, else CN_OK. Does not wait.
    cn_err (*check)(struct cn_collective *collective);

    // After CN_EPEER or CN_ETIMEOUT: index in the member list of the member that failed, the same
    // on all that name one. UINT32_MAX if only members have closed that gave up because of another.
    uint32_t (*lost)(const struct cn_collective *collective);
};

// A port embeds it as its first member.
struct cn_collective {
    const struct cn_collective_ops *ops;
    const char *gave_up; // why all calls go to its control since a call of prepare; NULL: it works
};

// Calls on the whole group, by name.

static inline cn_err cn_all_reduce(struct cn_collective *collective, enum cn_reduce how,
                                   float *data, size_t count)
{
    const struct cn_collective_call call = {
        .kind = CN_COLLECTIVE_ALL_REDUCE, .how = how, .data = data, .count = count};

    return collective->ops->run(collective, &call);
}

static inline cn_err cn_broadcast(struct cn_collective *collective, uint32_t root, void *data,
                                  size_t size)
{
    const struct cn_collective_call call = {
        .kind = CN_COLLECTIVE_BROADCAST, .peer = root, .data = data, .count = size};

    return collective->ops->run(collective, &call);
}

static inline cn_err cn_barrier(struct cn_collective *collective)
{
    const struct cn_collective_call call = {.kind = CN_COLLECTIVE_BARRIER};

    return collective->ops->run(collective, &call);
}
