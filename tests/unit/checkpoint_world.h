// checkpoint_world.h - a state, the store that it is saved in, and what is loaded from it.
#pragma once

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "runtime/port/crypto.h"
#include "runtime/port/scratch.h"
#include "runtime/round/checkpoint/checkpoint.h"
#include "tests/support/flaky_store.h"
#include "tests/support/layouts.h"

#define TOTAL 50
#define FRAME_LIMIT 1000

struct fixture {
    struct cn_flaky_store flaky;
    struct cn_store *store;
    struct cn_checkpoint saved, loaded;
    struct cn_diag diag;
};

static inline float *row(uint64_t seed)
{
    float *values = cn_scratch_allocate(TOTAL * sizeof(float));

    cn_test_fill(values, TOTAL, seed, 1);
    return values;
}

static inline void make_state(enum cn_phase phase, struct cn_checkpoint *made)
{
    *made = (struct cn_checkpoint){
        .run = 0x1122334455667788,
        .lineage = 2,
        .loss_scale = {4096, 1999},
        .phase = phase,
        .round = 9,
        .step = 4,
        .updates = 1234,
        .epoch = 77,
        .version = 8,
        .samples = 640,
        .train_loss = 1.5,
        .held_out_loss = 2.25,
        .held_out_correct = 91,
        .held_out_count = 100,
        .resets = 1,
        .total = TOTAL,
        .rule = {.mode = CN_UPDATE_TOPK, .density = 0.03, .value_bits = 2},
        .guard = {.factor = 0.5, .streak = 2},
        .steps = 40,
        .residual_version = 7,
        .cursor = 1ull << 40,
        .micro = {3, 0x1234, [15] = 0xffff},
        .counted = {.round = 8, .own = true},
    };
    memset(made->counted.digest, 4, CN_DIGEST_SIZE);
    memset(made->graph, 1, CN_DIGEST_SIZE);
    memset(made->base_digest, 2, CN_DIGEST_SIZE);
    memset(made->base_parent, 3, CN_DIGEST_SIZE);
    if (phase == CN_PHASE_EMPTY)
        return;
    made->base = row(1);
    made->residual.data = row(2);
    if (phase == CN_PHASE_TRAIN) {
        made->weights = row(3);
        made->optimizer = row(4);
    }
    if (phase != CN_PHASE_SEND)
        return;
    made->next_residual.data = row(5);
    made->change.data = row(6);
    made->frame_size = 333;
    made->frame = malloc(made->frame_size);
    memset(made->frame, 0x5a, made->frame_size);
    cn_crypto_digest(made->frame, made->frame_size, made->frame_digest);
}

static inline int set_up(void **state)
{
    struct fixture *f = calloc(1, sizeof(*f));

    cn_flaky_store_init(&f->flaky);
    f->store = &f->flaky.store;
    cn_diag_init(&f->diag);
    make_state(CN_PHASE_SEND, &f->saved);
    *state = f;
    return 0;
}

static inline int tear_down(void **state)
{
    struct fixture *f = *state;

    assert_int_equal(f->flaky.open_count, 0);
    cn_checkpoint_deinit(&f->saved);
    cn_checkpoint_deinit(&f->loaded);
    cn_flaky_store_deinit(&f->flaky);
    free(f);
    return 0;
}

static inline cn_err load(struct fixture *f)
{
    cn_checkpoint_deinit(&f->loaded);
    cn_diag_init(&f->diag);
    return cn_checkpoint_load(f->store, TOTAL, FRAME_LIMIT, &f->diag, &f->loaded);
}

static inline void save_step(struct fixture *f, uint32_t step)
{
    f->saved.step = step;
    assert_int_equal(cn_checkpoint_save(f->store, &f->saved), CN_OK);
}
