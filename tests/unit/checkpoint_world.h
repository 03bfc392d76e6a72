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

static inline void expect_row(const float *a, const float *b)
{
    assert_true(!a == !b);
    if (a)
        assert_memory_equal(a, b, TOTAL * sizeof(float));
}

static inline void expect_waiting(const struct cn_row *a, const struct cn_row *b)
{
    assert_true(!a->data == !b->data);
    if (!a->data)
        return;
    assert_int_equal(a->half, b->half);
    assert_memory_equal(a->data, b->data, TOTAL * cn_row_width(a));
}

static inline void expect_same(const struct cn_checkpoint *a, const struct cn_checkpoint *b)
{
    assert_int_equal(a->counter, b->counter);
    assert_int_equal(a->run, b->run);
    assert_int_equal(a->lineage, b->lineage);
    assert_true(a->loss_scale.factor == b->loss_scale.factor);
    assert_int_equal(a->loss_scale.steps, b->loss_scale.steps);
    assert_int_equal(a->phase, b->phase);
    assert_int_equal(a->round, b->round);
    assert_int_equal(a->step, b->step);
    assert_int_equal(a->updates, b->updates);
    assert_int_equal(a->epoch, b->epoch);
    assert_int_equal(a->version, b->version);
    assert_memory_equal(a->graph, b->graph, CN_DIGEST_SIZE);
    assert_memory_equal(a->base_digest, b->base_digest, CN_DIGEST_SIZE);
    assert_memory_equal(a->base_parent, b->base_parent, CN_DIGEST_SIZE);
    assert_int_equal(a->samples, b->samples);
    assert_true(a->train_loss == b->train_loss && a->held_out_loss == b->held_out_loss);
    assert_int_equal(a->held_out_correct, b->held_out_correct);
    assert_int_equal(a->held_out_count, b->held_out_count);
    assert_int_equal(a->resets, b->resets);
    assert_int_equal(a->total, b->total);
    assert_int_equal(a->rule.mode, b->rule.mode);
    assert_int_equal(a->rule.value_bits, b->rule.value_bits);
    assert_true(a->rule.density == b->rule.density && a->guard.factor == b->guard.factor);
    assert_int_equal(a->guard.streak, b->guard.streak);
    assert_int_equal(a->steps, b->steps);
    assert_int_equal(a->residual_version, b->residual_version);
    assert_true(a->cursor == b->cursor);
    assert_memory_equal(a->micro, b->micro, sizeof(a->micro));
    assert_int_equal(a->counted.round, b->counted.round);
    assert_int_equal(a->counted.own, b->counted.own);
    assert_memory_equal(a->counted.digest, b->counted.digest, CN_DIGEST_SIZE);
    expect_row(a->base, b->base);
    expect_row(a->weights, b->weights);
    expect_row(a->optimizer, b->optimizer);
    expect_waiting(&a->residual, &b->residual);
    expect_waiting(&a->next_residual, &b->next_residual);
    expect_waiting(&a->change, &b->change);
    assert_int_equal(a->frame_size, b->frame_size);
    assert_memory_equal(a->frame_digest, b->frame_digest, CN_DIGEST_SIZE);
    if (a->frame_size)
        assert_memory_equal(a->frame, b->frame, a->frame_size);
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
