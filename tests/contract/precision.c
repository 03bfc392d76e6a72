// Training with rounded factors, through the trainer, on the GPU that the host plays (cuda_host.h)
// or, with CAIRN_COMPUTE=cuda, a real one.
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "ports/cpu/compute_cpu.h"
#include "runtime/engine/trainer/trainer_state.h"
#include "tests/support/cuda_host.h"
#include "tests/support/kernels_present.h"
#include "tests/unit/net.h"

#define SAMPLES 4
#define STEPS 20
#define WORDS 128
#define WEIGHTS_MAX 1024

struct run {
    double first, last;       // mean loss
    float start[WEIGHTS_MAX]; // weights after the first step
    unsigned dropped;         // steps that changed no weight
    size_t total;
};

static struct cn_diag diag;

static struct message model; // the same numbers for all runs
static const struct cn_compute_ops *gpu;

static int make_model(void **state)
{
    static const struct net net = {"2,8,8",
                                   {"weight w 4,2,3,3", "weight b 4",
                                    "Conv x w b -> c pads=1,1,1,1", "Relu c -> r",
                                    "MaxPool r -> m kernel_shape=2,2 strides=2,2", "Flatten m -> f",
                                    "weight v 3,64", "Gemm f v -> y transB=1"}};

    (void)state;
    gpu = cuda_host_or_real();
    model = net_message(&net);
    return 0;
}

static cn_err open_trainer(const struct cn_compute_ops *compute, enum cn_precision precision,
                           struct cn_onnx **onnx, struct cn_trainer **trainer)
{
    const struct cn_trainer_config config = {.compute = compute,
                                             .threads = 1,
                                             .precision = precision,
                                             .batch = SAMPLES,
                                             .learning_rate = 0.05f};

    cn_diag_init(&diag);
    assert_int_equal(cn_onnx_open(model.bytes, model.size, &diag, onnx), CN_OK);
    return cn_trainer_open(*onnx, &config, &diag, trainer);
}

static void one_step(struct cn_trainer *trainer, const struct cn_batch *batch, struct run *run)
{
    static float before[WEIGHTS_MAX], after[WEIGHTS_MAX];
    struct cn_metrics metrics = {0};

    assert_int_equal(cn_trainer_get_weights(trainer, before), CN_OK);
    assert_int_equal(cn_trainer_accumulate(trainer, batch, &metrics), CN_OK);
    assert_int_equal(cn_trainer_apply(trainer, SAMPLES), CN_OK);
    assert_int_equal(cn_trainer_get_weights(trainer, after), CN_OK);
    run->dropped += memcmp(before, after, run->total * sizeof(float)) == 0;
    run->last = metrics.loss / SAMPLES;
}

static void train(enum cn_precision precision, struct run *run)
{
    static float inputs[SAMPLES * WORDS];
    int32_t labels[SAMPLES] = {0, 1, 2, 0};
    struct cn_batch batch = {.inputs = inputs, .labels = labels, .count = SAMPLES};
    struct cn_trainer *trainer;
    struct cn_onnx *onnx;

    for (int i = 0; i < SAMPLES * WORDS; i++)
        inputs[i] = sinf((float)i * 0.37f) * 3;
    memset(run, 0, sizeof(*run));
    assert_int_equal(open_trainer(gpu, precision, &onnx, &trainer), CN_OK);
    run->total = cn_trainer_layout(trainer)->total;
    assert_true(run->total <= WEIGHTS_MAX);
    for (int step = 0; step < STEPS; step++) {
        one_step(trainer, &batch, run);
        if (step == 0)
            run->first = run->last;
    }
    assert_true(cn_trainer_updates(trainer) == STEPS - run->dropped);
    cn_trainer_close(trainer);
    cn_onnx_close(onnx);
}

static void rounded_factors_learn_the_same_and_are_not_the_same(void **state)
{
    static struct run exact, rounded;

    (void)state;
    train(CN_PRECISION_FLOAT32, &exact);
    assert_int_equal(exact.dropped, 0);
    assert_true(exact.last < 0.5 * exact.first);
    train(CN_PRECISION_BFLOAT16, &rounded);
    assert_int_equal(rounded.dropped, 0);
    assert_true(rounded.first != exact.first);
    assert_true(fabs(rounded.first - exact.first) < 0.02 * exact.first);
    assert_true(rounded.last < 0.5 * rounded.first);
    train(CN_PRECISION_TF32, &rounded);
    assert_int_equal(rounded.dropped, 0);
    assert_true(fabs(rounded.first - exact.first) < 0.002 * exact.first);
    assert_true(rounded.last < 0.5 * rounded.first);
}

// The loss is scaled by 65536 at first, which is beyond float16.
static void a_step_that_overflows_float16_is_dropped_and_the_next_ones_count(void **state)
{
    static struct run exact, rounded;

    (void)state;
    train(CN_PRECISION_FLOAT32, &exact);
    train(CN_PRECISION_FLOAT16, &rounded);
    assert_true(rounded.dropped >= 1 && rounded.dropped < 8);
    assert_true(fabs(rounded.first - exact.first) < 0.002 * exact.first);
    assert_true(rounded.last < 0.5 * rounded.first);
}

// Everything that a checkpoint keeps goes from one trainer to another.
static void move_state(struct cn_trainer *from, struct cn_trainer *to)
{
    static float row[WEIGHTS_MAX];

    assert_int_equal(cn_trainer_get_weights(from, row), CN_OK);
    assert_int_equal(cn_trainer_set_weights(to, row), CN_OK);
    assert_int_equal(cn_trainer_get_optimizer(from, row), CN_OK);
    assert_int_equal(cn_trainer_set_optimizer(to, row), CN_OK);
    cn_trainer_set_loss_scale(to, cn_trainer_loss_scale(from));
}

static void float16_that_is_stopped_at_any_step_goes_on_to_the_bit(void **state)
{
    static float inputs[SAMPLES * WORDS], weights[STEPS][WEIGHTS_MAX], row[WEIGHTS_MAX];
    int32_t labels[SAMPLES] = {0, 1, 2, 0};
    const struct cn_batch batch = {.inputs = inputs, .labels = labels, .count = SAMPLES};
    struct cn_trainer *whole, *parts[2];
    struct cn_onnx *onnx[3];
    struct run run = {0};

    (void)state;
    for (int i = 0; i < SAMPLES * WORDS; i++)
        inputs[i] = sinf((float)i * 0.37f) * 3;
    assert_int_equal(open_trainer(gpu, CN_PRECISION_FLOAT16, &onnx[0], &whole), CN_OK);
    run.total = cn_trainer_layout(whole)->total;
    for (int step = 0; step < STEPS; step++) {
        one_step(whole, &batch, &run);
        assert_int_equal(cn_trainer_get_weights(whole, weights[step]), CN_OK);
    }
    assert_true(run.dropped >= 1);
    assert_true(cn_trainer_loss_scale(whole).factor < 65536);
    cn_trainer_close(whole);
    cn_onnx_close(onnx[0]);
    assert_int_equal(open_trainer(gpu, CN_PRECISION_FLOAT16, &onnx[1], &parts[0]), CN_OK);
    for (int step = 0; step < STEPS; step++) { // a new trainer for each step
        one_step(parts[0], &batch, &run);
        assert_int_equal(cn_trainer_get_weights(parts[0], row), CN_OK);
        assert_memory_equal(row, weights[step], run.total * sizeof(float));
        assert_int_equal(open_trainer(gpu, CN_PRECISION_FLOAT16, &onnx[2], &parts[1]), CN_OK);
        move_state(parts[0], parts[1]);
        cn_trainer_close(parts[0]);
        cn_onnx_close(onnx[1]);
        parts[0] = parts[1];
        onnx[1] = onnx[2];
    }
    cn_trainer_close(parts[0]);
    cn_onnx_close(onnx[1]);
}

static void a_device_that_cannot_round_says_so(void **state)
{
    struct cn_trainer *trainer = NULL;
    struct cn_onnx *onnx;

    (void)state;
    assert_int_equal(open_trainer(&cn_compute_cpu, CN_PRECISION_BFLOAT16, &onnx, &trainer),
                     CN_ENOTSUP);
    assert_non_null(strstr(cn_diag_first(&diag), "wanted compute.precision: float32"));
    cn_onnx_close(onnx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rounded_factors_learn_the_same_and_are_not_the_same),
        cmocka_unit_test(a_step_that_overflows_float16_is_dropped_and_the_next_ones_count),
        cmocka_unit_test(float16_that_is_stopped_at_any_step_goes_on_to_the_bit),
        cmocka_unit_test(a_device_that_cannot_round_says_so),
    };

    return cmocka_run_group_tests(tests, make_model, NULL);
}
