// collective_group.h - a group of ranks as threads of a test, over every collective of this build:
// encrypted pairs, or with CAIRN_COLLECTIVE=nccl in the environment what a group takes when NCCL is
// there, which is a fake library here; and solo for one rank. CAIRN_COLLECTIVE=nccl_gpus: NCCL
// itself, each rank on a GPU of its own, and the encrypted pairs for more ranks than there are
// GPUs.
#pragma once

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
// cmocka.h needs the four above.
#include <cmocka.h>

#include <pthread.h>

#include "runtime/port/collective.h"

#define RANKS_MAX 8
#define COUNT_MAX 65537
#ifndef GROUP_TIMEOUT_MS // more than a sanitizer on a busy machine takes; an emulator needs longer
#define GROUP_TIMEOUT_MS 60000
#endif

extern const struct cn_collective_ops *const group_ops;

// A rank of a test: its own member list, as each board has its own keys.
struct rank {
    struct cn_member members[RANKS_MAX];
    struct cn_collective_config config;
    struct cn_collective *collective;
    const struct cn_set *sets; // that are prepared before body
    uint32_t set_count;
    pthread_t thread;
    void (*body)(struct rank *rank);
    size_t count; // for the body
    float *data;  // room for COUNT_MAX int64
    cn_err err;
    uint32_t lost; // of open
    uint64_t took_ms;
};

struct fixture {
    struct rank ranks[RANKS_MAX];
    uint32_t size;
};

// What all of a group use besides the whole: set before group_run.
void group_use_sets(struct fixture *fixture, const struct cn_set *sets, uint32_t count);

// False where NCCL itself is wanted and there are not two GPUs.
bool group_can_run(void);

void group_set_up(struct fixture *fixture, uint32_t size);
void group_tear_down(struct fixture *fixture);

// Opens, runs the body and closes.
void group_run_rank(struct rank *rank);

// All ranks at once, each in a thread.
void group_run(struct fixture *fixture, void (*body)(struct rank *rank));
