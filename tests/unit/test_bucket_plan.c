#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
// cmocka.h needs the four above.
#include <cmocka.h>

#include "runtime/engine/program/bucket_plan.h"

#define LAYERS 12
#define WORDS ((size_t)20000) // of a layer: a bucket each
#define LOSS LAYERS
#define CALLS (2 * LAYERS + 1)

// A chain of layers: call i reads weight i; the loss; then, from the last layer to the first, a
// call that reads the weight and writes its gradient. A tensor at the end is not trained.
struct chain {
    struct cn_tensor_info tensors[LAYERS + 1];
    struct cn_layout layout;
    size_t places[LAYERS + 1], ends[LAYERS];
    struct cn_gradient_order order;
    struct cn_call calls[CALLS];
    struct cn_program program;
    struct cn_bucket_plan plan;
};

static void set_up(struct chain *chain)
{
    memset(chain, 0, sizeof(*chain));
    for (size_t i = 0; i <= LAYERS; i++) {
        chain->tensors[i].offset = i * WORDS;
        chain->tensors[i].count = WORDS;
        chain->places[i] = i < LAYERS ? (LAYERS - 1 - i) * WORDS : SIZE_MAX;
    }
    for (size_t i = 0; i < LAYERS; i++) {
        struct cn_call *forward = &chain->calls[i], *backward = &chain->calls[CALLS - 1 - i];

        forward->op = backward->op = CN_OP_MATMUL;
        forward->in[1] = backward->in[1] =
            (struct cn_operand){.arena = CN_ARENA_WEIGHTS, .offset = i * WORDS};
        forward->in[2] = (struct cn_operand){.arena = CN_ARENA_WEIGHTS, .offset = LAYERS * WORDS};
        backward->out[0] =
            (struct cn_operand){.arena = CN_ARENA_GRADIENTS, .offset = chain->places[i]};
        chain->ends[i] = (i + 1) * WORDS;
    }
    chain->calls[LOSS].op = CN_OP_MSE;
    chain->layout = (struct cn_layout){chain->tensors, LAYERS + 1, (LAYERS + 1) * WORDS};
    chain->order = (struct cn_gradient_order){chain->places, chain->ends, LAYERS};
    chain->program = (struct cn_program){.calls = chain->calls, .count = CALLS, .loss = LOSS};
}

static void make_as(struct chain *chain, enum cn_stage stage, bool apart)
{
    assert_int_equal(cn_bucket_plan_make(&chain->order, &chain->layout, stage, apart,
                                         &chain->program, &chain->plan),
                     CN_OK);
}

static void make(struct chain *chain, enum cn_stage stage)
{
    make_as(chain, stage, false);
}

static bool overlap(size_t a, size_t b)
{
    return a < b + WORDS && b < a + WORDS;
}

static void segments_end_where_buckets_are_complete(void **state)
{
    struct chain chain;

    (void)state;
    set_up(&chain);
    make(&chain, CN_STAGE_GRADIENTS);
    assert_int_equal(chain.plan.count, LAYERS);
    assert_int_equal(chain.plan.forward, 1);
    assert_int_equal(chain.plan.segments, 1 + LAYERS);
    assert_int_equal(chain.plan.ends[chain.plan.segments - 1], CALLS);
    for (uint32_t b = 0; b < LAYERS; b++)
        assert_int_equal(chain.plan.ends[chain.plan.buckets[b].segment], LOSS + 2 + b);
    cn_bucket_plan_deinit(&chain.plan);
}

static void a_gradient_keeps_its_slot_until_the_segment_after_is_done(void **state)
{
    struct chain chain;

    (void)state;
    set_up(&chain);
    make(&chain, CN_STAGE_GRADIENTS);
    for (uint32_t b = 0; b + 1 < LAYERS; b++)
        assert_false(overlap(chain.plan.buckets[b].slot, chain.plan.buckets[b + 1].slot));
    assert_true(chain.program.sizes.words[CN_ARENA_GRADIENTS] <= 3 * WORDS);
    for (size_t i = 0; i < LAYERS; i++)
        assert_int_equal(chain.calls[LOSS + 1 + i].out[0].offset, chain.plan.buckets[i].slot);
    cn_bucket_plan_deinit(&chain.plan);
}

static void weights_are_there_for_every_call_that_reads_them(void **state)
{
    struct chain chain;
    const struct cn_bucket_plan *plan = &chain.plan;

    (void)state;
    set_up(&chain);
    make(&chain, CN_STAGE_WEIGHTS);
    for (size_t i = 0, segment = 0; i < CALLS; i++) {
        size_t layer = i < LOSS ? i : CALLS - 1 - i, f = 0;

        segment += plan->ends[segment] <= i;
        if (i == LOSS)
            continue;
        while (plan->fetches[f].bucket != LAYERS - 1 - layer || plan->fetches[f].first > segment ||
               plan->fetches[f].last < segment)
            assert_true(++f < plan->fetch_count);
        assert_int_equal(chain.calls[i].in[1].offset, plan->fetches[f].slot);
        assert_true(plan->fetches[f].begin < segment || segment == 0);
    }
    cn_bucket_plan_deinit(&chain.plan);
}

// The first layer's before the second's, and none before it is next.
static void weights_travel_in_the_order_in_which_the_forward_pass_needs_them(void **state)
{
    struct chain chain;
    const struct cn_bucket_plan *plan = &chain.plan;
    size_t forward = 0;

    (void)state;
    set_up(&chain);
    make(&chain, CN_STAGE_WEIGHTS);
    for (size_t f = 0; f < plan->fetch_count; f++) {
        if (f)
            assert_true(plan->fetches[f].first >= plan->fetches[f - 1].first);
        assert_true(plan->fetches[f].begin + 1 >= plan->fetches[f].first);
        if (plan->fetches[f].first < plan->forward)
            assert_int_equal(plan->fetches[f].bucket, LAYERS - 1 - forward++);
    }
    assert_int_equal(forward, LAYERS);
    cn_bucket_plan_deinit(&chain.plan);
}

static void slots_of_fetches_that_are_there_together_are_apart(void **state)
{
    struct chain chain;
    const struct cn_bucket_plan *plan = &chain.plan;

    (void)state;
    set_up(&chain);
    make(&chain, CN_STAGE_WEIGHTS);
    for (size_t i = 0; i < plan->fetch_count; i++)
        for (size_t j = 0; j < i; j++)
            if (plan->fetches[i].begin <= plan->fetches[j].last &&
                plan->fetches[j].begin <= plan->fetches[i].last)
                assert_false(overlap(plan->fetches[i].slot, plan->fetches[j].slot));
    // A few buckets, and what is not trained.
    assert_true(chain.program.sizes.words[CN_ARENA_WEIGHTS] <= 6 * WORDS);
    assert_int_equal(plan->resident[LAYERS], 0);
    assert_int_equal(chain.calls[3].in[2].offset, 0);
    cn_bucket_plan_deinit(&chain.plan);
}

static size_t fetches_of(const struct cn_bucket_plan *plan, uint32_t bucket)
{
    size_t count = 0;

    for (size_t i = 0; i < plan->fetch_count; i++)
        count += plan->fetches[i].bucket == bucket;
    return count;
}

static void the_end_of_the_forward_pass_stays_for_the_backward_pass(void **state)
{
    struct chain chain;

    (void)state;
    set_up(&chain);
    make(&chain, CN_STAGE_WEIGHTS);
    assert_int_equal(fetches_of(&chain.plan, 0), 1);          // the last layer
    assert_int_equal(fetches_of(&chain.plan, LAYERS - 1), 2); // the first
    cn_bucket_plan_deinit(&chain.plan);
}

// The passes of other micro-batches run in between, and take the slots.
static void passes_that_run_apart_leave_no_weights_to_each_other(void **state)
{
    struct chain chain;
    const struct cn_bucket_plan *plan = &chain.plan;

    (void)state;
    set_up(&chain);
    make_as(&chain, CN_STAGE_WEIGHTS, true);
    for (uint32_t b = 0; b < LAYERS; b++) {
        assert_int_equal(fetches_of(plan, b), 2);
        assert_true(plan->buckets[b].segment >= plan->forward);
    }
    for (size_t f = 0; f < plan->fetch_count; f++)
        assert_true(plan->fetches[f].last < plan->forward ||
                    plan->fetches[f].begin >= plan->forward);
    cn_bucket_plan_deinit(&chain.plan);
}

static void a_tied_tensor_is_fetched_again_and_its_gradient_waits(void **state)
{
    struct chain chain;
    size_t end = (LAYERS - 1) * WORDS;

    (void)state;
    set_up(&chain);
    // The first layer's weight is that of the last one, too, whose gradient it gets first.
    chain.calls[LAYERS - 1].in[1].offset = chain.calls[LOSS + 1].in[1].offset = 0;
    chain.calls[LOSS + 1].out[0].offset = chain.places[0];
    make(&chain, CN_STAGE_WEIGHTS);
    assert_int_equal(fetches_of(&chain.plan, LAYERS - 1), 3);
    assert_int_equal(chain.plan.buckets[LAYERS - 1].first, end);
    for (uint32_t b = 1; b + 1 < LAYERS; b++)
        assert_false(overlap(chain.plan.buckets[b].slot, chain.plan.buckets[LAYERS - 1].slot));
    cn_bucket_plan_deinit(&chain.plan);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(segments_end_where_buckets_are_complete),
        cmocka_unit_test(a_gradient_keeps_its_slot_until_the_segment_after_is_done),
        cmocka_unit_test(weights_are_there_for_every_call_that_reads_them),
        cmocka_unit_test(weights_travel_in_the_order_in_which_the_forward_pass_needs_them),
        cmocka_unit_test(slots_of_fetches_that_are_there_together_are_apart),
        cmocka_unit_test(the_end_of_the_forward_pass_stays_for_the_backward_pass),
        cmocka_unit_test(passes_that_run_apart_leave_no_weights_to_each_other),
        cmocka_unit_test(a_tied_tensor_is_fetched_again_and_its_gradient_waits),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
