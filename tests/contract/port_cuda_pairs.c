// Neighbouring calls that cuBLASLt does in one (ports/cuda/pairs.c), in a model as it is trained:
// that it happens, and that the weights come out as the CPU has them. On a host's GPU
// (cuda_host.h), whose double of the library knows these epilogues; with CAIRN_COMPUTE=cuda on a
// real one, where only the weights are looked at.
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "ports/cpu/compute_cpu.h"
#include "runtime/engine/trainer/trainer_state.h"
#include "tests/support/cuda_host.h"
#include "tests/unit/net.h"

#define SAMPLES 5
#define WORDS 12
#define STEPS 3
#define PASSES 2 // of a step: the first sets gradients, the next adds
#define WEIGHTS_MAX 1024
#define TOLERANCE 1e-5f
#define TOLERANCE_REAL 1e-3f // a GPU's library may take a faster tanh

struct run {
    float weights[WEIGHTS_MAX];
    size_t total;
    float loss;
};

// Two layers around a GELU by tanh; the weights lie in both ways that exporters have.
static const struct net even = {"12",
                                {"weight w 12,24", "weight b 24", "Gemm x w b -> h",
                                 "Gelu h -> g approximate=tanh", "weight v 3,24", "weight c 3",
                                 "Gemm g v c -> y transB=1"}};

// Rows of 23 words are not for the library's second matrix.
static const struct net odd = {"12",
                               {"weight w 12,23", "weight b 23", "Gemm x w b -> h",
                                "Gelu h -> g approximate=tanh", "weight v 3,23", "weight c 3",
                                "Gemm g v c -> y transB=1"}};

static const struct cn_compute_ops *gpu;

static int choose_gpu(void **state)
{
    (void)state;
    gpu = cuda_host_or_real();
    return 0;
}

static bool is_real(void)
{
    return gpu != &cn_compute_cuda_host;
}

static void fill(float *inputs, int32_t *labels)
{
    for (int i = 0; i < SAMPLES * WORDS; i++)
        inputs[i] = sinf((float)i * 0.37f);
    for (int i = 0; i < SAMPLES; i++)
        labels[i] = i % 3;
}

static void train(const struct message *model, const struct cn_compute_ops *compute,
                  enum cn_precision precision, struct run *run)
{
    const struct cn_trainer_config config = {.compute = compute,
                                             .threads = 1,
                                             .precision = precision,
                                             .batch = SAMPLES,
                                             .learning_rate = 0.1f};
    float inputs[SAMPLES * WORDS];
    int32_t labels[SAMPLES];
    struct cn_batch batch = {.inputs = inputs, .labels = labels, .count = SAMPLES};
    struct cn_metrics metrics = {0};
    struct cn_trainer *trainer;
    struct cn_onnx *onnx;

    fill(inputs, labels);
    assert_int_equal(cn_onnx_open(model->bytes, model->size, NULL, &onnx), CN_OK);
    assert_int_equal(cn_trainer_open(onnx, &config, NULL, &trainer), CN_OK);
    run->total = cn_trainer_layout(trainer)->total;
    assert_true(run->total <= WEIGHTS_MAX);
    for (int step = 0; step < STEPS; step++) {
        for (int pass = 0; pass < PASSES; pass++) {
            batch.count = SAMPLES - (uint32_t)pass; // a batch that is not full
            assert_int_equal(cn_trainer_accumulate(trainer, &batch, &metrics), CN_OK);
        }
        assert_int_equal(cn_trainer_apply(trainer, 2 * SAMPLES - 1), CN_OK);
    }
    metrics = (struct cn_metrics){0};
    assert_int_equal(cn_trainer_evaluate(trainer, &batch, &metrics), CN_OK);
    run->loss = (float)metrics.loss;
    assert_int_equal(cn_trainer_get_weights(trainer, run->weights), CN_OK);
    cn_trainer_close(trainer);
    cn_onnx_close(onnx);
}

static void assert_near(const struct run *run, const struct run *wanted)
{
    const float tolerance = is_real() ? TOLERANCE_REAL : TOLERANCE;

    for (size_t i = 0; i < wanted->total; i++)
        assert_float_equal(run->weights[i], wanted->weights[i], tolerance);
    assert_float_equal(run->loss, wanted->loss, tolerance * SAMPLES);
}

static void a_product_and_its_neighbour_are_one_call_of_the_library(void **state)
{
    static const struct cuda_host_settings ways[] = {
        {0}, {.late = true}, {.greedy = true}, {.no_capture = true}};
    struct message model = net_message(&even);
    static struct run wanted, run;

    (void)state;
    train(&model, &cn_compute_cpu, CN_PRECISION_FLOAT32, &wanted);
    for (size_t i = 0; i < sizeof(ways) / sizeof(ways[0]); i++) {
        cuda_host_settings = ways[i];
        cuda_host_counts = (struct cuda_host_counts){0};
        train(&model, gpu, CN_PRECISION_FLOAT32, &run);
        assert_near(&run, &wanted);
        if (is_real())
            return;
        assert_true(cuda_host_counts.gelus >= 2); // of the step, of the evaluation
        assert_true(cuda_host_counts.gelu_grads >= 1);
    }
}

static void what_the_library_cannot_do_in_one_is_done_one_by_one(void **state)
{
    struct message models[] = {net_message(&even), net_message(&odd)};
    static struct run wanted, run;

    (void)state;
    train(&models[0], &cn_compute_cpu, CN_PRECISION_FLOAT32, &wanted);
    for (int without = 0; without < 2; without++) {
        cuda_host_settings =
            (struct cuda_host_settings){.refuse_libraries = !without, .no_blas = without};
        cuda_host_counts = (struct cuda_host_counts){0};
        train(&models[0], gpu, CN_PRECISION_FLOAT32, &run);
        assert_near(&run, &wanted);
        assert_true(cuda_host_counts.products == 0);
    }
    train(&models[1], &cn_compute_cpu, CN_PRECISION_FLOAT32, &wanted);
    cuda_host_settings = (struct cuda_host_settings){0};
    cuda_host_counts = (struct cuda_host_counts){0};
    train(&models[1], gpu, CN_PRECISION_FLOAT32, &run);
    assert_near(&run, &wanted);
    assert_true(cuda_host_counts.gelu_grads == 0);
}

static void with_16_bits_gelu_is_part_of_the_product_as_well(void **state)
{
    struct message model = net_message(&even);
    static struct run run;

    (void)state;
    cuda_host_settings = (struct cuda_host_settings){0};
    cuda_host_counts = (struct cuda_host_counts){0};
    train(&model, gpu, CN_PRECISION_BFLOAT16, &run);
    assert_true(is_real() || cuda_host_counts.gelu_grads >= 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_product_and_its_neighbour_are_one_call_of_the_library),
        cmocka_unit_test(what_the_library_cannot_do_in_one_is_done_one_by_one),
        cmocka_unit_test(with_16_bits_gelu_is_part_of_the_product_as_well),
    };

    return cmocka_run_group_tests(tests, choose_gpu, NULL);
}
