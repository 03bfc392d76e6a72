// How programs become graphs: what a batch of a step costs, and what a cold library does to a
// capture. On a host's GPU (cuda_host.h).
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "tests/support/cuda_host.h"

#define SAMPLES 4
#define WORDS 4096                   // of each arena
#define BATCHES 3                    // of a step
#define WORKSPACE ((size_t)16 << 20) // words

static const struct cn_compute_ops *const ops = &cn_compute_cuda_host;

static void fill(struct cn_compute *device, enum cn_arena arena)
{
    void *host;

    assert_int_equal(ops->map(device, arena, &host), CN_OK);
    for (size_t i = 0; i < WORDS; i++)
        ((float *)host)[i] = 0.125f * (float)((i * 7 + arena) % 19) - 1;
    assert_int_equal(ops->unmap(device, arena), CN_OK);
}

// What the runs of a step left, and what preparing them took.
struct step {
    float gradients[WORDS];
    uint64_t launches, products, convolutions, graph_launches;
};

// Batches of one step, whose operands lie in the batch, with one call. Its gradients hold something
// else before.
static void run_batches(struct cn_call call, int batches, struct step *step)
{
    const struct cn_compute_config config = {.threads = 1};
    struct cn_compute_sizes sizes = {
        .words = {[CN_ARENA_BATCH] = WORDS, [CN_ARENA_GRADIENTS] = WORDS}};
    struct cn_hyper hyper = {.samples = SAMPLES};
    struct cn_compute_program *program;
    struct cn_compute_result result;
    struct cn_compute *device;
    size_t workspace;
    void *host;

    assert_int_equal(ops->open(&config, &device), CN_OK);
    assert_int_equal(ops->query(device, &call, SAMPLES, &workspace), CN_OK);
    assert_true(workspace <= WORKSPACE);
    call.workspace = (struct cn_operand){.arena = CN_ARENA_ACTIVATIONS};
    sizes.words[CN_ARENA_ACTIVATIONS] = WORKSPACE;
    assert_int_equal(ops->reserve(device, &sizes, SAMPLES), CN_OK);
    cuda_host_counts = (struct cuda_host_counts){.allocations = cuda_host_counts.allocations,
                                                 .descriptors = cuda_host_counts.descriptors};
    assert_int_equal(ops->prepare(device, &call, 1, &program), CN_OK);
    step->launches = cuda_host_counts.launches;
    step->products = cuda_host_counts.products;
    step->convolutions = cuda_host_counts.convolutions;
    fill(device, CN_ARENA_GRADIENTS);
    fill(device, CN_ARENA_BATCH);
    for (int batch = 0; batch < batches; batch++) {
        hyper.first = batch == 0;
        assert_int_equal(ops->run(device, program, &hyper), CN_OK);
    }
    assert_int_equal(ops->wait(device, &result), CN_OK);
    step->graph_launches = cuda_host_counts.graph_launches;
    assert_int_equal(ops->map(device, CN_ARENA_GRADIENTS, &host), CN_OK);
    memcpy(step->gradients, host, sizeof(step->gradients));
    assert_int_equal(ops->unmap(device, CN_ARENA_GRADIENTS), CN_OK);
    ops->release(device, program);
    ops->close(device);
    assert_int_equal(cuda_host_counts.allocations, 0);
    assert_int_equal(cuda_host_counts.descriptors, 0);
}

static void run_step(struct cn_call call, struct step *step)
{
    run_batches(call, BATCHES, step);
}

// The gradient of a layer's weight: 8 inputs, 6 outputs.
static struct cn_call weight_gradient(void)
{
    return (struct cn_call){
        .op = CN_OP_MATMUL,
        .write = CN_WRITE_STEP,
        .matmul = {.rows = 8,
                   .inner = 1,
                   .cols = 6,
                   .alpha = 1,
                   .transpose_a = true,
                   .inner_batched = true},
        .in = {{.arena = CN_ARENA_BATCH, .stride = 8},
               {.arena = CN_ARENA_BATCH, .offset = 512, .stride = 6}},
        .out = {{.arena = CN_ARENA_GRADIENTS}},
    };
}

// The gradient of the weight of a 3 x 3 convolution of 2 channels to 4.
static struct cn_call convolution_gradient(size_t place)
{
    return (struct cn_call){
        .op = CN_OP_CONV_GRAD_WEIGHT,
        .write = CN_WRITE_STEP,
        .window = {.channels_in = 2,
                   .channels_out = 4,
                   .groups = 1,
                   .in = {8, 8},
                   .out = {8, 8},
                   .kernel = {3, 3},
                   .stride = {1, 1},
                   .pad = {1, 1},
                   .dilation = {1, 1}},
        .in = {{.arena = CN_ARENA_BATCH, .stride = 256},
               {.arena = CN_ARENA_BATCH, .offset = 2048, .stride = 128}},
        .out = {{.arena = CN_ARENA_GRADIENTS, .offset = place}},
    };
}

static int start_anew(void **state)
{
    (void)state;
    cuda_host_settings = (struct cuda_host_settings){0};
    cuda_host_counts = (struct cuda_host_counts){0};
    return 0;
}

static void assert_near(const struct step *is, const struct step *wanted)
{
    for (size_t i = 0; i < WORDS; i++)
        assert_float_equal(is->gradients[i], wanted->gradients[i], 1e-3f);
}

// All batches have the same samples, so a step of several is several times a step of one.
static void assert_sum_of_batches(struct cn_call call, size_t first, size_t count)
{
    struct step one, all;

    run_batches(call, 1, &one);
    run_batches(call, BATCHES, &all);
    for (size_t i = first; i < first + count; i++)
        assert_float_equal(all.gradients[i], BATCHES * one.gradients[i], 1e-3f);
}

// Each graph has the two operands filled up, and the product: it sets or adds by itself.
static void a_gradient_by_the_library_is_one_product(void **state)
{
    struct step library, own;

    (void)state;
    run_step(weight_gradient(), &library);
    assert_int_equal(library.products, 2);
    assert_int_equal(library.launches, 2 * 2);
    assert_int_equal(library.graph_launches, BATCHES);
    assert_sum_of_batches(weight_gradient(), 0, 8 * 6);
    cuda_host_settings.no_blas = true;
    run_step(weight_gradient(), &own);
    assert_int_equal(own.products, 0);
    assert_near(&library, &own);
}

// The first batch sets a gradient that lies at a multiple of 16 bytes without a copy. A later one
// adds, and so does the first one of a gradient that lies elsewhere, by a kernel.
static void a_gradient_of_a_convolution_is_copied_where_it_must_be(void **state)
{
    struct step aligned, elsewhere, own;

    (void)state;
    run_step(convolution_gradient(4), &aligned);
    assert_int_equal(aligned.convolutions, 2);
    assert_int_equal(aligned.launches, 2 * 2 + 1);
    assert_sum_of_batches(convolution_gradient(4), 4, (size_t)4 * 2 * 3 * 3);
    run_step(convolution_gradient(5), &elsewhere);
    assert_int_equal(elsewhere.launches, 2 * 2 + 2);
    cuda_host_settings.no_dnn = true;
    run_step(convolution_gradient(4), &own);
    assert_near(&aligned, &own);
    run_step(convolution_gradient(5), &own);
    assert_near(&elsewhere, &own);
}

// The first run goes call by call and warms the library up, so the others are graphs.
static void a_program_is_captured_again_once_the_libraries_are_warm(void **state)
{
    struct step warm, cold, never;

    (void)state;
    run_step(weight_gradient(), &warm);
    cuda_host_settings.cold = true;
    run_step(weight_gradient(), &cold);
    assert_int_equal(cold.graph_launches, BATCHES - 1);
    assert_memory_equal(cold.gradients, warm.gradients, sizeof(warm.gradients));
    cuda_host_settings.no_capture = true;
    run_step(weight_gradient(), &never);
    assert_int_equal(never.graph_launches, 0);
    assert_int_equal(cuda_host_counts.captures, 2); // of prepare and of the first run, no more
    assert_memory_equal(never.gradients, warm.gradients, sizeof(warm.gradients));
}

// The optimizer's state lies in another order than the weights.
static struct cn_call range_call(enum cn_op op, size_t place, float momentum)
{
    size_t state = WORDS - 10 - place;

    return (struct cn_call){.op = op,
                            .range = {.weights = place,
                                      .gradients = place,
                                      .count = 7,
                                      .state_from = place - state,
                                      .momentum = momentum}};
}

// As in a model whose layers are normalized: weights and statistics take turns.
static void the_optimizer_has_a_launch_for_each_kind_of_range(void **state)
{
    const struct cn_compute_config config = {.threads = 1};
    const struct cn_compute_sizes sizes = {.words = {[CN_ARENA_GRADIENTS] = WORDS,
                                                     [CN_ARENA_WEIGHTS] = WORDS,
                                                     [CN_ARENA_OPTIMIZER] = WORDS}};
    struct cn_call calls[21] = {{.op = CN_OP_CHECK}};
    struct cn_compute_program *program;
    struct cn_compute *device;

    (void)state;
    for (size_t i = 1; i < 21; i++)
        calls[i] = range_call(i % 2 ? CN_OP_SGD : CN_OP_STATISTIC, i * 10, i % 2 ? 0 : 0.1f);
    calls[20].range.momentum = 0.25f;
    assert_int_equal(ops->open(&config, &device), CN_OK);
    assert_int_equal(ops->reserve(device, &sizes, SAMPLES), CN_OK);
    cuda_host_counts.launches = 0;
    assert_int_equal(ops->prepare(device, calls, 21, &program), CN_OK);
    assert_int_equal(cuda_host_counts.launches, 1 + 1 + 2); // check, SGD, two momentums
    ops->release(device, program);
    ops->close(device);
    assert_int_equal(cuda_host_counts.allocations, 0);
}

// Runs a program, and returns what it launched.
static uint64_t launches_of(struct cn_compute *device, struct cn_compute_program *program)
{
    const struct cn_hyper hyper = {.samples = SAMPLES, .first = true};
    uint64_t before = cuda_host_counts.launches + cuda_host_counts.graph_launches;

    assert_int_equal(ops->run(device, program, &hyper), CN_OK);
    return cuda_host_counts.launches + cuda_host_counts.graph_launches - before;
}

// What a step launches: for the batch and for the optimizer the hyper-parameters and a graph each,
// and nothing for sums over lanes, of which there is one. Reading results launches nothing.
static void a_step_is_four_launches(void **state)
{
    const struct cn_compute_config config = {.threads = 1};
    const struct cn_compute_sizes sizes = {.words = {[CN_ARENA_BATCH] = WORDS,
                                                     [CN_ARENA_GRADIENTS] = WORDS,
                                                     [CN_ARENA_WEIGHTS] = WORDS,
                                                     [CN_ARENA_OPTIMIZER] = WORDS,
                                                     [CN_ARENA_ACTIVATIONS] = WORKSPACE}};
    const struct cn_call sum = {.op = CN_OP_SUM_LANES};
    const struct cn_call flat[] = {{.op = CN_OP_CHECK}, range_call(CN_OP_SGD, 0, 0)};
    struct cn_call batch = weight_gradient();
    struct cn_compute_program *programs[3];
    struct cn_compute_result result;
    struct cn_compute *device;
    uint64_t before;

    (void)state;
    batch.workspace = (struct cn_operand){.arena = CN_ARENA_ACTIVATIONS};
    assert_int_equal(ops->open(&config, &device), CN_OK);
    assert_int_equal(ops->reserve(device, &sizes, SAMPLES), CN_OK);
    assert_int_equal(ops->prepare(device, &batch, 1, &programs[0]), CN_OK);
    assert_int_equal(ops->prepare(device, &sum, 1, &programs[1]), CN_OK);
    assert_int_equal(ops->prepare(device, flat, 2, &programs[2]), CN_OK);
    fill(device, CN_ARENA_BATCH);
    assert_int_equal(launches_of(device, programs[0]), 2);
    assert_int_equal(launches_of(device, programs[1]), 0);
    assert_int_equal(launches_of(device, programs[2]), 2);
    before = cuda_host_counts.launches;
    assert_int_equal(ops->wait(device, &result), CN_OK);
    assert_int_equal(cuda_host_counts.launches, before);
    for (int i = 0; i < 3; i++)
        ops->release(device, programs[i]);
    ops->close(device);
}

// Results are those of the runs since they were read, also when nothing ran.
static void results_are_read_once(void **state)
{
    const struct cn_compute_config config = {.threads = 1};
    const struct cn_compute_sizes sizes = {.words = {[CN_ARENA_GRADIENTS] = WORDS}};
    const struct cn_call check = {.op = CN_OP_CHECK};
    const struct cn_hyper hyper = {.samples = SAMPLES};
    struct cn_compute_program *program;
    struct cn_compute_result result;
    struct cn_compute *device;
    void *host;

    (void)state;
    assert_int_equal(ops->open(&config, &device), CN_OK);
    assert_int_equal(ops->reserve(device, &sizes, SAMPLES), CN_OK);
    assert_int_equal(ops->prepare(device, &check, 1, &program), CN_OK);
    for (int finite = 0; finite < 2; finite++) {
        assert_int_equal(ops->map(device, CN_ARENA_GRADIENTS, &host), CN_OK);
        ((float *)host)[3] = finite ? 1 : NAN;
        assert_int_equal(ops->unmap(device, CN_ARENA_GRADIENTS), CN_OK);
        assert_int_equal(ops->run(device, program, &hyper), CN_OK);
        assert_int_equal(ops->wait(device, &result), CN_OK);
        assert_int_equal(result.finite, finite);
        assert_int_equal(ops->wait(device, &result), CN_OK);
        assert_true(result.finite);
    }
    ops->release(device, program);
    ops->close(device);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(a_gradient_by_the_library_is_one_product, start_anew),
        cmocka_unit_test_setup(a_gradient_of_a_convolution_is_copied_where_it_must_be, start_anew),
        cmocka_unit_test_setup(a_program_is_captured_again_once_the_libraries_are_warm, start_anew),
        cmocka_unit_test_setup(the_optimizer_has_a_launch_for_each_kind_of_range, start_anew),
        cmocka_unit_test_setup(a_step_is_four_launches, start_anew),
        cmocka_unit_test_setup(results_are_read_once, start_anew),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
