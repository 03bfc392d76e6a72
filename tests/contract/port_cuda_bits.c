// What cuBLASLt may not decide: a NaN stays through a layer's ReLU, and a bias' gradient has the
// same bits wherever a program is cut. On a host's GPU, or with CAIRN_COMPUTE=cuda on a real one.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
// cmocka.h needs the four above.
#include <cmocka.h>

#include <math.h>
#include <string.h>

#include "tests/support/cuda_host.h"

#define ROWS 37
#define IN 16
#define OUT 24

static const struct cn_compute_ops *ops;

// A layer of the batch's samples, and its gradients of bias and weight.
struct scene {
    struct cn_compute *device;
    struct cn_call forward, bias_grad, weight_grad;
};

static struct cn_operand at(enum cn_arena arena, size_t offset, size_t stride)
{
    return (struct cn_operand){.arena = arena, .offset = offset, .stride = stride};
}

// dy lies behind x in the batch; the gradients of bias and weight one behind the other.
static void open_scene(struct scene *scene, bool bias)
{
    const struct cn_compute_config config = {.threads = 1};
    struct cn_compute_sizes sizes = {0};
    struct cn_call *calls[] = {&scene->forward, &scene->bias_grad, &scene->weight_grad};

    memset(scene, 0, sizeof(*scene));
    scene->forward = (struct cn_call){
        .op = CN_OP_MATMUL,
        .matmul = {.rows = 1, .inner = IN, .cols = OUT, .alpha = 1, .relu = true, .bias_scale = 1},
        .in = {at(CN_ARENA_BATCH, 0, IN), at(CN_ARENA_WEIGHTS, 0, 0)},
        .out = {at(CN_ARENA_OUTPUTS, 0, OUT)}};
    if (bias)
        scene->forward.in[2] = at(CN_ARENA_WEIGHTS, (size_t)IN * OUT, 0);
    scene->bias_grad =
        (struct cn_call){.op = CN_OP_BIAS_GRAD,
                         .write = CN_WRITE_STEP,
                         .bias = {.rows = 1, .channels = OUT, .inner = 1, .scale = 1},
                         .in = {at(CN_ARENA_BATCH, (size_t)ROWS * IN, OUT)},
                         .out = {at(CN_ARENA_GRADIENTS, 0, 0)}};
    scene->weight_grad = (struct cn_call){
        .op = CN_OP_MATMUL,
        .write = CN_WRITE_STEP,
        .matmul = {.rows = IN,
                   .inner = 1,
                   .cols = OUT,
                   .alpha = 1,
                   .transpose_a = true,
                   .inner_batched = true},
        .in = {at(CN_ARENA_BATCH, 0, IN), at(CN_ARENA_BATCH, (size_t)ROWS * IN, OUT)},
        .out = {at(CN_ARENA_GRADIENTS, 64, 0)}};
    assert_int_equal(ops->open(&config, &scene->device), CN_OK);
    sizes.words[CN_ARENA_BATCH] = (size_t)ROWS * (IN + OUT);
    sizes.words[CN_ARENA_WEIGHTS] = (size_t)IN * OUT + OUT;
    sizes.words[CN_ARENA_OUTPUTS] = (size_t)ROWS * OUT;
    sizes.words[CN_ARENA_GRADIENTS] = 64 + (size_t)IN * OUT;
    for (int i = 0; i < 3; i++) {
        size_t words = 0;

        assert_int_equal(ops->query(scene->device, calls[i], ROWS, &words), CN_OK);
        calls[i]->workspace = at(CN_ARENA_ACTIVATIONS, sizes.words[CN_ARENA_ACTIVATIONS], 0);
        sizes.words[CN_ARENA_ACTIVATIONS] += (words + 63) / 64 * 64;
    }
    assert_int_equal(ops->reserve(scene->device, &sizes, ROWS), CN_OK);
}

static void run_program(struct scene *scene, const struct cn_call *calls, size_t count)
{
    const struct cn_hyper hyper = {.samples = ROWS, .first = true};
    struct cn_compute_program *program;
    struct cn_compute_result result;

    assert_int_equal(ops->prepare(scene->device, calls, count, &program), CN_OK);
    assert_int_equal(ops->run(scene->device, program, &hyper), CN_OK);
    assert_int_equal(ops->wait(scene->device, &result), CN_OK);
    ops->release(scene->device, program);
}

// Values of both signs and many magnitudes, so that the order of a sum shows in its bits.
static void fill(struct scene *scene, enum cn_arena arena, size_t count)
{
    void *host;

    assert_int_equal(ops->map(scene->device, arena, &host), CN_OK);
    for (size_t i = 0; i < count; i++)
        ((float *)host)[i] = sinf((float)i * 0.7f) * expf(sinf((float)i * 0.3f) * 4);
    assert_int_equal(ops->unmap(scene->device, arena), CN_OK);
}

static void a_nan_stays_through_relu(void **state)
{
    (void)state;
    for (int bias = 0; bias < 2; bias++) {
        struct scene scene;
        void *host;

        open_scene(&scene, bias);
        fill(&scene, CN_ARENA_BATCH, (size_t)ROWS * (IN + OUT));
        fill(&scene, CN_ARENA_WEIGHTS, (size_t)IN * OUT + OUT);
        assert_int_equal(ops->map(scene.device, CN_ARENA_WEIGHTS, &host), CN_OK);
        ((float *)host)[3] = NAN; // of column 3
        assert_int_equal(ops->unmap(scene.device, CN_ARENA_WEIGHTS), CN_OK);
        run_program(&scene, &scene.forward, 1);
        assert_int_equal(ops->map(scene.device, CN_ARENA_OUTPUTS, &host), CN_OK);
        for (size_t i = 0; i < (size_t)ROWS * OUT; i++) {
            assert_int_equal(isnan(((float *)host)[i]) != 0, i % OUT == 3);
            assert_false(((float *)host)[i] < 0);
        }
        assert_int_equal(ops->unmap(scene.device, CN_ARENA_OUTPUTS), CN_OK);
        ops->close(scene.device);
    }
}

static void take_gradients(struct scene *scene, float gradients[64 + IN * OUT])
{
    void *host;

    assert_int_equal(ops->map(scene->device, CN_ARENA_GRADIENTS, &host), CN_OK);
    memcpy(gradients, host, (64 + (size_t)IN * OUT) * sizeof(float));
    assert_int_equal(ops->unmap(scene->device, CN_ARENA_GRADIENTS), CN_OK);
}

// As a bucket cuts a step between the gradients of a bias and of its weight.
static void a_cut_between_bias_and_weight_changes_no_bit(void **state)
{
    static float whole[64 + IN * OUT], cut[64 + IN * OUT];
    struct scene scene;
    struct cn_call both[2];

    (void)state;
    open_scene(&scene, true);
    fill(&scene, CN_ARENA_BATCH, (size_t)ROWS * (IN + OUT));
    both[0] = scene.bias_grad;
    both[1] = scene.weight_grad;
    run_program(&scene, both, 2);
    take_gradients(&scene, whole);
    run_program(&scene, &both[0], 1);
    run_program(&scene, &both[1], 1);
    take_gradients(&scene, cut);
    assert_memory_equal(whole, cut, sizeof(whole));
    ops->close(scene.device);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_nan_stays_through_relu),
        cmocka_unit_test(a_cut_between_bias_and_weight_changes_no_bit),
    };

    ops = cuda_host_or_real();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
