#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
// cmocka.h needs the four above.
#include <cmocka.h>

#include "runtime/engine/program/call_cost.h"

#define SAMPLES 10

static struct cn_operand apart(size_t stride)
{
    return (struct cn_operand){.arena = CN_ARENA_ACTIVATIONS, .stride = stride};
}

static const struct cn_operand shared = {.arena = CN_ARENA_WEIGHTS};

static void costs(const struct cn_call *call, double flops, double words)
{
    struct cn_call_cost cost = cn_call_cost(call, SAMPLES);

    assert_true(cost.flops == flops);
    assert_true(cost.bytes == 4 * words);
}

// A layer of 3 inputs and 4 outputs: the weight is read once for all samples.
static void a_weight_counts_once(void **state)
{
    struct cn_call call = {
        .op = CN_OP_MATMUL,
        .in = {apart(3), shared, shared},
        .out = {apart(4)},
        .matmul = {.rows = 1, .inner = 3, .cols = 4},
    };

    (void)state;
    costs(&call, 2 * 3 * 4 * SAMPLES, 3 * SAMPLES + 12 + 4 + 4 * SAMPLES);
    call.in[2] = (struct cn_operand){0}; // no bias
    costs(&call, 2 * 3 * 4 * SAMPLES, 3 * SAMPLES + 12 + 4 * SAMPLES);
}

static void a_call_that_adds_counts_its_output_twice(void **state)
{
    struct cn_call call = {
        .op = CN_OP_MAP,
        .write = CN_WRITE_ADD,
        .in = {apart(5)},
        .out = {apart(5)},
        .map = {.count = 5},
    };

    (void)state;
    costs(&call, 0, 3 * 5 * SAMPLES);
    call.write = CN_WRITE_SET;
    costs(&call, 0, 2 * 5 * SAMPLES);
}

// 2 channels of 4 x 4, 3 filters of 3 x 3 without pads: 3 channels of 2 x 2.
static void a_convolution_counts_image_filters_and_result(void **state)
{
    const struct cn_call call = {
        .op = CN_OP_CONV,
        .in = {apart(32), shared},
        .out = {apart(12)},
        .window = {.channels_in = 2,
                   .channels_out = 3,
                   .groups = 1,
                   .in = {4, 4},
                   .out = {2, 2},
                   .kernel = {3, 3},
                   .stride = {1, 1}},
    };

    (void)state;
    costs(&call, 2.0 * 18 * 12 * SAMPLES, 32 * SAMPLES + 54 + 12 * SAMPLES);
}

static void a_gather_counts_the_rows_that_it_takes(void **state)
{
    const struct cn_call call = {
        .op = CN_OP_GATHER,
        .in = {shared, apart(6)},
        .out = {apart(48)},
        .gather = {.outer = 1, .rows = 100000, .inner = 8, .count = 6},
    };

    (void)state;
    costs(&call, 0, 48 + 6 * SAMPLES + 48 * SAMPLES);
}

static void operands_that_repeat_count_once(void **state)
{
    const struct cn_call call = {
        .op = CN_OP_COMBINE,
        .in = {apart(20), apart(4)},
        .out = {apart(20)},
        .combine = {.kind = CN_COMBINE_ADD, .rank = 2, .dims = {5, 4}, .a = {4, 1}, .b = {0, 1}},
    };

    (void)state;
    costs(&call, 0, (20 + 4 + 20) * SAMPLES);
}

static void optimizers_count_their_states(void **state)
{
    struct cn_call call = {.op = CN_OP_ADAM, .range = {.count = 100}};

    (void)state;
    costs(&call, 0, 700);
    call.op = CN_OP_SGD;
    costs(&call, 0, 500);
    call.range.proximal = true;
    costs(&call, 0, 600);
    call.op = CN_OP_CHECK;
    costs(&call, 0, 100);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_weight_counts_once),
        cmocka_unit_test(a_call_that_adds_counts_its_output_twice),
        cmocka_unit_test(a_convolution_counts_image_filters_and_result),
        cmocka_unit_test(a_gather_counts_the_rows_that_it_takes),
        cmocka_unit_test(operands_that_repeat_count_once),
        cmocka_unit_test(optimizers_count_their_states),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
