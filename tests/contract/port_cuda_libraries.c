// What cuBLASLt and cuDNN ask of the port, on their doubles (cuda_host.h), and what it does where
// they have no way.
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "tests/support/cuda_host.h"

#define SAMPLES 3
#define WORDS (1 << 21) // room for an operand

static const struct cn_compute_ops *const ops = &cn_compute_cuda_host;
static enum cn_precision precision; // of the devices that run opens

static void fill(struct cn_compute *device, enum cn_arena arena)
{
    void *host;

    assert_int_equal(ops->map(device, arena, &host), CN_OK);
    for (size_t i = 0; i < WORDS; i++)
        ((float *)host)[i] = 0.125f * (float)((i * 5 + arena) % 17) - 1;
    assert_int_equal(ops->unmap(device, arena), CN_OK);
}

// One call, its operands in the batch and the weights, its result in the outputs. So many words lie
// before the workspace.
static void run(struct cn_call call, size_t before_workspace, float *result, size_t words)
{
    const struct cn_compute_config config = {.threads = 1, .precision = precision};
    const struct cn_hyper hyper = {.samples = SAMPLES, .first = true};
    struct cn_compute_sizes sizes = {
        .words = {
            [CN_ARENA_WEIGHTS] = WORDS, [CN_ARENA_BATCH] = WORDS, [CN_ARENA_OUTPUTS] = WORDS}};
    struct cn_compute_program *program;
    struct cn_compute_result ignored;
    struct cn_compute *device;
    size_t workspace;
    void *host;

    assert_int_equal(ops->open(&config, &device), CN_OK);
    assert_int_equal(ops->query(device, &call, SAMPLES, &workspace), CN_OK);
    call.workspace = (struct cn_operand){.arena = CN_ARENA_ACTIVATIONS, .offset = before_workspace};
    sizes.words[CN_ARENA_ACTIVATIONS] = before_workspace + workspace;
    assert_int_equal(ops->reserve(device, &sizes, SAMPLES), CN_OK);
    assert_int_equal(ops->prepare(device, &call, 1, &program), CN_OK);
    fill(device, CN_ARENA_WEIGHTS);
    fill(device, CN_ARENA_BATCH);
    assert_int_equal(ops->run(device, program, &hyper), CN_OK);
    assert_int_equal(ops->wait(device, &ignored), CN_OK);
    assert_int_equal(ops->map(device, CN_ARENA_OUTPUTS, &host), CN_OK);
    memcpy(result, host, words * sizeof(*result));
    ops->release(device, program);
    ops->close(device);
}

// Compares it with the port's own kernels. done: how many the libraries do of it.
static void run_both(struct cn_call call, size_t before_workspace, size_t words, uint64_t done)
{
    const struct cuda_host_settings settings = cuda_host_settings;
    static float result[WORDS], wanted[WORDS];

    run(call, before_workspace, result, words);
    assert_int_equal(cuda_host_counts.products + cuda_host_counts.convolutions, done);
    cuda_host_settings = (struct cuda_host_settings){.no_blas = true, .no_dnn = true};
    run(call, before_workspace, wanted, words);
    cuda_host_settings = settings;
    for (size_t i = 0; i < words; i++)
        assert_float_equal(result[i], wanted[i],
                           precision == CN_PRECISION_FLOAT32 ? 1e-4f
                                                             : fabsf(wanted[i]) / 128 + 1e-4f);
}

static struct cn_call product(void)
{
    return (struct cn_call){
        .op = CN_OP_MATMUL,
        .matmul = {.rows = 2, .inner = 8, .cols = 8, .alpha = 1, .relu = true},
        .in = {{.arena = CN_ARENA_BATCH, .stride = 16}, {.arena = CN_ARENA_WEIGHTS}},
        .out = {{.arena = CN_ARENA_OUTPUTS, .stride = 16}},
    };
}

static struct cn_call convolution(uint32_t stride, uint32_t pad, uint32_t out)
{
    uint32_t plane = 8 * 8;

    return (struct cn_call){
        .op = CN_OP_CONV,
        .window = {.channels_in = 2,
                   .channels_out = 4,
                   .groups = 1,
                   .in = {8, 8},
                   .out = {out, out},
                   .kernel = {3, 3},
                   .stride = {stride, stride},
                   .pad = {pad, pad},
                   .dilation = {1, 1}},
        .in = {{.arena = CN_ARENA_BATCH, .stride = 2 * plane}, {.arena = CN_ARENA_WEIGHTS}},
        .out = {{.arena = CN_ARENA_OUTPUTS, .stride = (size_t)4 * out * out}},
    };
}

static int start_anew(void **state)
{
    (void)state;
    cuda_host_settings = (struct cuda_host_settings){0};
    cuda_host_counts = (struct cuda_host_counts){0};
    precision = CN_PRECISION_FLOAT32;
    return 0;
}

static void a_workspace_begins_where_the_library_wants_it(void **state)
{
    (void)state;
    for (size_t before = 0; before < 64; before += 16) {
        start_anew(NULL);
        cuda_host_settings.greedy = true;
        run_both(product(), before, SAMPLES * 16, 1);
        start_anew(NULL);
        run_both(convolution(1, 1, 8), before, SAMPLES * 4 * 64, 1);
    }
}

// Of stride 2 from an even plane the last row of pads is not reached: still both ends are equal.
// Where they cannot be, x is made larger.
static void a_convolution_has_equal_pads(void **state)
{
    (void)state;
    run_both(convolution(2, 1, 4), 0, SAMPLES * 4 * 16, 1);
    start_anew(NULL);
    run_both(convolution(1, 0, 6), 0, SAMPLES * 4 * 36, 1);
    start_anew(NULL);
    run_both(convolution(1, 2, 8), 0, SAMPLES * 4 * 64, 1); // no pad at the end
    start_anew(NULL);
    run_both(convolution(1, 0, 8), 0, SAMPLES * 4 * 64, 1); // two at the end only
    start_anew(NULL);
    run_both(convolution(1, 0, 4), 0, SAMPLES * 4 * 16, 0); // rows that no window reaches
}

// A convolution of 1 x 1 is a product for each sample, with a stride on the places that are used.
static void a_convolution_of_1_x_1_is_products(void **state)
{
    (void)state;
    for (uint32_t stride = 1; stride <= 2; stride++) {
        struct cn_call call = convolution(stride, 0, 8);

        start_anew(NULL);
        call.window.kernel[0] = call.window.kernel[1] = 1;
        call.window.in[0] = call.window.in[1] = 8 * stride;
        call.in[0].stride = (size_t)2 * 64 * stride * stride;
        run_both(call, 0, SAMPLES * 4 * 64, 1);
        assert_int_equal(cuda_host_counts.convolutions, 0);
    }
}

// A weight's gradient whose sum is long and whose result is one tile.
static void a_long_sum_is_divided(void **state)
{
    const struct cn_call call = {
        .op = CN_OP_MATMUL,
        .matmul = {.rows = 4,
                   .inner = 256,
                   .cols = 6,
                   .alpha = 1,
                   .inner_batched = true,
                   .transpose_a = true},
        .in = {{.arena = CN_ARENA_BATCH, .stride = 1024},
               {.arena = CN_ARENA_WEIGHTS, .stride = 1536}},
        .out = {{.arena = CN_ARENA_OUTPUTS}},
    };

    (void)state;
    cuda_host_settings.processors = 3;
    run_both(call, 0, 24, 1);
    assert_int_equal(cuda_host_counts.matrices, 3);
}

// Factors of a large product of 16 bits are packed. The values are whole in 16 bits and so are the
// sums in float32, so nothing is rounded.
static void a_large_product_is_packed(void **state)
{
    struct cn_call forward = {
        .op = CN_OP_MATMUL,
        .matmul = {.rows = 200, .inner = 130, .cols = 450, .alpha = 1},
        .in = {{.arena = CN_ARENA_BATCH, .stride = 200 * 130}, {.arena = CN_ARENA_WEIGHTS}},
        .out = {{.arena = CN_ARENA_OUTPUTS, .stride = 200 * 450}},
    };
    struct cn_call gradient = {
        .op = CN_OP_MATMUL,
        .matmul = {.rows = 136,
                   .inner = 200,
                   .cols = 1800,
                   .alpha = 1,
                   .inner_batched = true,
                   .transpose_a = true},
        .in = {{.arena = CN_ARENA_BATCH, .stride = 200 * 136},
               {.arena = CN_ARENA_WEIGHTS, .stride = 200 * 1800}},
        .out = {{.arena = CN_ARENA_OUTPUTS}},
    };

    (void)state;
    for (int i = 0; i < 4; i++) {
        start_anew(NULL);
        cuda_host_settings.processors = 1;
        precision = i % 2 ? CN_PRECISION_FLOAT16 : CN_PRECISION_BFLOAT16;
        if (i < 2)
            run_both(forward, 0, SAMPLES * 200 * 450, 1);
        else // in two chunks
            run_both(gradient, 0, 136 * 1800, 2);
        assert_int_equal(cuda_host_counts.packed, i < 2 ? 1 : 2);
    }
    start_anew(NULL);
    cuda_host_settings.processors = 1;
    precision = CN_PRECISION_BFLOAT16;
    forward.matmul.transpose_b = true;
    run_both(forward, 0, SAMPLES * 200 * 450, 1);
    assert_int_equal(cuda_host_counts.packed, 1);
    start_anew(NULL); // rows of the result that are not aligned
    cuda_host_settings.processors = 1;
    precision = CN_PRECISION_BFLOAT16;
    forward.matmul.transpose_b = false;
    forward.matmul.cols = 451;
    forward.out[0].stride = 200 * 451;
    run_both(forward, 0, SAMPLES * 200 * 451, 1);
    assert_int_equal(cuda_host_counts.packed, 1);
    start_anew(NULL); // a result whose rows are no eights, in two chunks
    cuda_host_settings.processors = 1;
    precision = CN_PRECISION_BFLOAT16;
    gradient.matmul.rows = 125;
    gradient.in[0].stride = 200 * 125;
    run_both(gradient, 0, 125 * 1800, 4);
    assert_int_equal(cuda_host_counts.packed, 2);
}

// What all samples share counts once against the limit of an operand.
static void a_large_weight_is_no_reason_to_refuse_many_samples(void **state)
{
    struct cn_call calls[] = {
        {.op = CN_OP_MATMUL, .matmul = {.rows = 1, .inner = 1 << 12, .cols = 1 << 16, .alpha = 1}},
        {.op = CN_OP_AVERAGE_POOL,
         .window = {.channels_in = 2048,
                    .channels_out = 2048,
                    .groups = 1,
                    .in = {7, 7},
                    .out = {1, 1},
                    .kernel = {7, 7},
                    .stride = {1, 1},
                    .dilation = {1, 1}}},
        {.op = CN_OP_GATHER, .gather = {.outer = 1, .rows = 1 << 16, .inner = 1 << 12, .count = 9}},
    };
    const struct cn_compute_config config = {.threads = 1};
    struct cn_compute *device;
    size_t words;

    (void)state;
    assert_int_equal(ops->open(&config, &device), CN_OK);
    for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++)
        assert_int_equal(ops->query(device, &calls[i], 1 << 10, &words), CN_OK);
    calls[0].matmul.rows = 1 << 6; // 2^32 words of results
    assert_int_equal(ops->query(device, &calls[0], 1 << 10, &words), CN_ENOTSUP);
    ops->close(device);
}

static void what_the_library_turns_down_in_the_end_is_done_without_it(void **state)
{
    (void)state;
    cuda_host_settings.turn_down = true;
    run_both(product(), 0, SAMPLES * 16, 0);
    run_both(convolution(1, 1, 8), 0, SAMPLES * 4 * 64, 0);
}

// Two matrices for each sample, of which the library has a way for the first only.
static void a_matrix_without_a_way_does_not_keep_the_others_from_theirs(void **state)
{
    const struct cn_call call = {
        .op = CN_OP_PRODUCTS,
        .products = {.count = 2,
                     .rows = 4,
                     .inner = 4,
                     .cols = 4,
                     .alpha = 1,
                     .leading_a = 4,
                     .leading_b = 4,
                     .leading_c = 4,
                     .stride_a = 16,
                     .stride_b = 17,
                     .stride_c = 16},
        .in = {{.arena = CN_ARENA_BATCH, .stride = 64}, {.arena = CN_ARENA_WEIGHTS, .stride = 64}},
        .out = {{.arena = CN_ARENA_OUTPUTS, .stride = 64}},
    };

    (void)state;
    cuda_host_settings.alignment = 16;
    run_both(call, 0, (SAMPLES - 1) * 64 + 32, 1);
    start_anew(NULL);
    run_both(call, 0, (SAMPLES - 1) * 64 + 32, 2);
}

// Tensors of 16 bits are packed in tiles of 32 channels and 32 places, the last of which are not
// full. The factors are whole in 16 bits, so only the results are rounded: the double cuts
// them.
static void a_16_bit_convolution_of_many_channels_moves_each_value_to_its_place(void **state)
{
    struct cn_call call = convolution(1, 0, 8);

    (void)state;
    call.window.kernel[0] = call.window.kernel[1] = 1;
    call.window.channels_in = 40;
    call.window.channels_out = 36;
    call.window.in[0] = call.window.out[0] = 5;
    call.in[0].stride = (size_t)40 * 40;
    call.out[0].stride = (size_t)36 * 40;
    precision = CN_PRECISION_BFLOAT16;
    run_both(call, 0, (size_t)SAMPLES * 36 * 40, 1);
}

// The plan of a batch is no plan of one sample, which all samples share.
static void a_convolution_that_samples_share_needs_no_plan(void **state)
{
    struct cn_call call = convolution(1, 1, 8);

    (void)state;
    call.in[0].stride = call.out[0].stride = 0;
    run_both(call, 0, 4 * 64, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(a_workspace_begins_where_the_library_wants_it, start_anew),
        cmocka_unit_test_setup(a_convolution_has_equal_pads, start_anew),
        cmocka_unit_test_setup(a_convolution_of_1_x_1_is_products, start_anew),
        cmocka_unit_test_setup(a_long_sum_is_divided, start_anew),
        cmocka_unit_test_setup(a_large_product_is_packed, start_anew),
        cmocka_unit_test_setup(a_large_weight_is_no_reason_to_refuse_many_samples, start_anew),
        cmocka_unit_test_setup(what_the_library_turns_down_in_the_end_is_done_without_it,
                               start_anew),
        cmocka_unit_test_setup(a_matrix_without_a_way_does_not_keep_the_others_from_theirs,
                               start_anew),
        cmocka_unit_test_setup(a_convolution_that_samples_share_needs_no_plan, start_anew),
        cmocka_unit_test_setup(a_16_bit_convolution_of_many_channels_moves_each_value_to_its_place,
                               start_anew),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
