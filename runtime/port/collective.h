// collective.h - what a group needs to reduce gradients: a TCP ring, NCCL or another port.
//
// A collective belongs to one epoch: an ordered list of members that all opened it with the same
// view. All members issue the same calls in the same order. A call returns when its buffer may be
// used; after an error the collective is dead, its buffers hold garbage and only close is allowed:
// the group forms a new epoch.
//
// Every member gets the same bits from all_reduce and broadcast. With the same members the result
// is the same in every run.
//
// Errors: CN_EPEER when a member is lost (lost returns it), CN_ETIMEOUT when no byte moved for
// progress_timeout_ms, CN_EAUTH for a wrong key, CN_ECANCELED after cancel.
// Threading: one thread, except cancel.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "runtime/base/error.h"
#include "runtime/base/member.h"
#include "runtime/base/number.h"

// The members that take part in an epoch. Rank r is members[ranks[r]].
struct cn_view {
    uint64_t epoch;
    uint32_t size;                // 1 to CN_GROUP_MAX
    uint32_t rank;                // rank of this board
    uint32_t ranks[CN_GROUP_MAX]; // rank -> index in the profile's member list; ascending
};

struct cn_set;
struct cn_collective;
struct cn_log_quotas;

struct cn_collective_config {
    const struct cn_member *members; // the profile's list; borrowed until close
    uint32_t member_count;
    const char *listen; // "host:port" to listen on; NULL: this member's address in the list
    struct cn_view view;
    uint32_t open_timeout_ms;     // longest duration of open
    uint32_t progress_timeout_ms; // longest time without a byte from a peer
    int cancel_fd;                // acts as cancel once readable, also while open runs; -1: none
    // An open collective with the same view, borrowed until close. It serves ports that cannot find
    // their peers, or notice the loss of one, by themselves.
    struct cn_collective *control;
    uint32_t device;             // number of this member's GPU, for a port that reduces on one
    struct cn_log_quotas *lines; // limits the log lines about each member; NULL: no limit
    // Bit per member whose path has lost large packets. A port over TCP sets bits and makes the
    // segments to these members smaller. Kept by the caller from epoch to epoch; NULL: not kept.
    uint32_t *lossy_paths;
};

enum cn_reduce {
    CN_REDUCE_SUM,
    CN_REDUCE_AVERAGE, // the sum divided by the number of members; integers round towards zero
    CN_REDUCE_MIN,     // NaN if any value is NaN
    CN_REDUCE_MAX,     // NaN if any value is NaN
};

// A subset of the members of a view, in the order of their ranks. id tells sets apart in messages
// and errors; the whole group has id 0.
struct cn_set {
    uint32_t id;
    uint32_t size;
    uint32_t ranks[CN_GROUP_MAX]; // ranks in the view, ascending
};

// What a call does. The share of a member is the elements [s * count / n, (s + 1) * count / n) of a
// buffer of count elements, where s is the member's place in the set and n the size of the set.
enum cn_collective_kind {
    CN_COLLECTIVE_ALL_REDUCE = 1, // data becomes the reduced values, the same bits on all members
    CN_COLLECTIVE_REDUCE_SCATTER, // own share of data becomes the reduced values, the rest garbage
    CN_COLLECTIVE_ALL_GATHER,     // each share of data is taken from the member that has this share
    CN_COLLECTIVE_BROADCAST,      // data becomes a copy of peer's; count is in bytes
    CN_COLLECTIVE_SEND,           // data goes to peer; count is in bytes and the same at both ends
    CN_COLLECTIVE_RECEIVE,        // data becomes what peer sends; count is in bytes
    CN_COLLECTIVE_BARRIER,        // returns once all members of the set have called it
};

struct cn_collective_call {
    enum cn_collective_kind kind;
    enum cn_reduce how;  // for ALL_REDUCE and REDUCE_SCATTER
    enum cn_number type; // type of the elements of data
    // Number format on the network. CN_FLOAT32, which is 0, leaves the numbers as they are.
    // CN_BFLOAT16 halves the bytes of ALL_REDUCE and REDUCE_SCATTER, for sums of float32 only. Each
    // member rounds its numbers before sending; they are added in float32, and the sums are rounded
    // once.
    enum cn_number wire;
    const struct cn_set *set; // borrowed for the call; NULL for the whole group
    uint32_t peer;            // rank in the view: of the root, receiver or sender
    void *data;               // input and output, aligned to its type
    size_t count;             // elements, or bytes for the kinds above that say so
    // Names the purpose of data (runtime/group/purpose.h); the same on all members.
    uint32_t fingerprint;
};

struct cn_collective_ops {
    const char *name; // as in a profile: "tcp", "nccl"

    // Returns when all members of the view are connected. After an error, lost is the index in the
    // member list of a member that did not connect, or UINT32_MAX.
    cn_err (*open)(const struct cn_collective_config *config, struct cn_collective **collective,
                   uint32_t *lost);
    void (*close)(struct cn_collective *collective);

    // Announces the sets that later calls use, so that a port can connect the members of each. All
    // members of the view call it with the same sets, also members outside of a set. A call on a
    // set that was not announced is allowed but may be slower. Errors are those of run.
    cn_err (*prepare)(struct cn_collective *collective, const struct cn_set *sets, uint32_t count);

    // Runs one call and blocks until it has ended. Every member of the set issues the same calls on
    // the set in the same order; this board is a member of the set. Returns CN_EINVAL for a call
    // that breaks these rules. Returns CN_ECONFLICT, before any data has changed, when another
    // member issues a different call; the log names that call.
    cn_err (*run)(struct cn_collective *collective, const struct cn_collective_call *call);

    // Makes a running call return CN_ECANCELED soon. With gives_up the call ends because another
    // member is lost; the others are told first, so that they do not take this member for lost.
    // Without gives_up this member itself leaves. May be called from any thread.
    void (*cancel)(struct cn_collective *collective, bool gives_up);

    // Returns CN_EPEER when a member has closed, else CN_OK. For use between calls. Does not block.
    cn_err (*check)(struct cn_collective *collective);

    // Returns the index in the member list of the member that failed; all members that name one
    // name the same. Returns UINT32_MAX when the only members that have closed are those that gave
    // up because of another. Call it after CN_EPEER or CN_ETIMEOUT.
    uint32_t (*lost)(const struct cn_collective *collective);
};

// A port embeds it as its first member.
struct cn_collective {
    const struct cn_collective_ops *ops;
    // Why prepare failed in the port and all later calls go to its control instead; NULL: it works.
    const char *gave_up;
};

// Shorthands for calls on the whole group.

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
