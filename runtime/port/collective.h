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
// Errors: CN_EPEER when a member is lost (cn_collective_lost names it), CN_ETIMEOUT when nothing
// moved for the time of the configuration, CN_EAUTH for a wrong key, CN_ECANCELED after cancel.
// Threading: one thread, except cancel.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "runtime/base/error.h"
#include "runtime/base/name.h"
#include "runtime/port/crypto.h"

#define CN_GROUP_MAX 16 // members of a group

// One member as the group knows it.
struct cn_member {
    char name[CN_NAME_SIZE];
    char address[128]; // "host:port"
    uint8_t
        pair_key[CN_KEY_SIZE]; // shared by this board and that member; zero for the board itself
};

// Who takes part in an epoch. rank r is members[ranks[r]].
struct cn_view {
    uint64_t epoch;
    uint32_t size;                // 1 to CN_GROUP_MAX
    uint32_t rank;                // of this board
    uint32_t ranks[CN_GROUP_MAX]; // rank -> index in the profile's member list; ascending
};

struct cn_collective_config {
    const struct cn_member *members; // the profile's list; borrowed until close
    uint32_t member_count;
    struct cn_view view;
    uint32_t open_timeout_ms;
    uint32_t progress_timeout_ms; // without a byte from a peer
    int cancel_fd;                // readable: as cancel, also while open runs; -1 for none
};

struct cn_collective; // a port embeds it as its first member

enum cn_reduce {
    CN_REDUCE_SUM,
    CN_REDUCE_MAX,
};

struct cn_collective_ops {
    const char *name; // as in a profile: "tcp", "nccl"

    // Returns when all members of the view are connected. After an error lost is the index in the
    // member list of the one that did not come, or UINT32_MAX.
    cn_err (*open)(const struct cn_collective_config *config, struct cn_collective **collective,
                   uint32_t *lost);
    void (*close)(struct cn_collective *collective);

    // In place, count floats.
    cn_err (*all_reduce)(struct cn_collective *collective, enum cn_reduce how, float *data,
                         size_t count);

    // size bytes from rank root to all others.
    cn_err (*broadcast)(struct cn_collective *collective, uint32_t root, void *data, size_t size);

    cn_err (*barrier)(struct cn_collective *collective);

    // Makes a running call return CN_ECANCELED soon. Callable from any thread.
    void (*cancel)(struct cn_collective *collective);

    // After CN_EPEER or CN_ETIMEOUT: index in the member list of the member that failed.
    uint32_t (*lost)(const struct cn_collective *collective);
};

struct cn_collective {
    const struct cn_collective_ops *ops;
};
