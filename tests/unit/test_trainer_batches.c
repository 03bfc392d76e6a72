// However samples are cut into batches and batches into threads, the sums over them are the same.
// Tolerance: 1e-5 relative to the largest value, for another order of the same additions.
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "ports/cpu/compute_cpu.h"
#include "runtime/engine/trainer/trainer_buckets.h"
#include "tests/support/kernels_present.h"
#include "tests/unit/net.h"

#define SAMPLES 13
#define WORDS_MAX 96
#define WEIGHTS_MAX 1024
#define TOLERANCE 1e-5

static const struct net nets[] = {
    {"6",
     {"weight w 9,6", "weight b 9", "Gemm x w b -> h transB=1", "Tanh h -> t", "weight v 9,4",
      "MatMul t v -> y"}},
    {"2,7,6",
     {"weight w 5,2,3,3", "weight b 5", "Conv x w b -> c pads=1,1,1,1", "Sigmoid c -> s",
      "AveragePool s -> a kernel_shape=2,2 strides=2,2", "weight u 4,5,2,2", "Conv a u -> d",
      "GlobalAveragePool d -> g", "Flatten g -> y"}},
};

struct sums {
    struct cn_metrics evaluated, trained;
    float gradients[WEIGHTS_MAX];
    size_t total;
};

struct samples {
    float inputs[SAMPLES * WORDS_MAX];
    int32_t labels[SAMPLES];
};

static struct cn_trainer *open_trainer(const struct cn_onnx *onnx, uint32_t batch, uint32_t threads)
{
    struct cn_trainer_config config = {.compute = &cn_compute_cpu,
                                       .threads = threads,
                                       .batch = batch,
                                       .loss = CN_LOSS_CROSS_ENTROPY};
    struct cn_trainer *trainer;
    struct cn_diag diag;

    cn_diag_init(&diag);
    if (cn_trainer_open(onnx, &config, &diag, &trainer))
        fail_msg("%s", cn_diag_first(&diag));
    return trainer;
}

// Goes through the samples in batches; the last one is shorter where they do not divide.
static void run_all(const struct cn_onnx *onnx, struct samples *samples, uint32_t batch,
                    uint32_t threads, struct sums *sums)
{
    struct cn_trainer *trainer = open_trainer(onnx, batch, threads);
    struct cn_sample_shape shape;
    size_t words = 1;
    float *gradients;

    *sums = (struct sums){.total = cn_trainer_layout(trainer)->total};
    assert_true(sums->total <= WEIGHTS_MAX);
    cn_trainer_sample_shape(trainer, &shape);
    for (uint32_t d = 0; d < shape.rank; d++)
        words *= shape.dims[d];
    assert_true(words <= WORDS_MAX);
    for (uint32_t i = 0; i < SAMPLES; i += batch) {
        struct cn_batch part = {.inputs = samples->inputs + i * words,
                                .labels = samples->labels + i,
                                .count = i + batch > SAMPLES ? SAMPLES - i : batch};

        assert_int_equal(cn_trainer_accumulate(trainer, &part, &sums->trained), CN_OK);
        assert_int_equal(cn_trainer_evaluate(trainer, &part, &sums->evaluated), CN_OK);
    }
    assert_int_equal(cn_trainer_gradients(trainer, &gradients), CN_OK);
    memcpy(sums->gradients, gradients, sums->total * sizeof(*gradients));
    cn_trainer_close(trainer);
}

static void check_metrics(const struct cn_metrics *found, const struct cn_metrics *wanted)
{
    assert_int_equal(found->count, SAMPLES);
    assert_int_equal(found->correct, wanted->correct);
    assert_true(fabs(found->loss - wanted->loss) <= TOLERANCE * wanted->loss);
}

static void check_sums(const struct sums *found, const struct sums *wanted, uint32_t batch,
                       uint32_t threads)
{
    double largest = 0, worst = 0;

    check_metrics(&found->evaluated, &wanted->evaluated);
    check_metrics(&found->trained, &wanted->evaluated);
    for (size_t i = 0; i < wanted->total; i++) {
        double difference = (double)found->gradients[i] - (double)wanted->gradients[i];

        largest = fmax(largest, fabs((double)wanted->gradients[i]));
        worst = fmax(worst, fabs(difference));
    }
    assert_true(largest > 0);
    if (!(worst <= TOLERANCE * largest))
        fail_msg("batches of %u, %u threads: off by %g of %g", batch, threads, worst, largest);
}

static void batches_and_threads_do_not_change_the_sums(void **state)
{
    static struct sums alone, sums;
    static struct samples samples;
    struct cn_onnx *onnx;

    (void)state;
    for (size_t i = 0; i < SAMPLES * WORDS_MAX; i++)
        samples.inputs[i] = net_random();
    for (int32_t i = 0; i < SAMPLES; i++)
        samples.labels[i] = i % 4;
    for (size_t n = 0; n < sizeof(nets) / sizeof(nets[0]); n++) {
        struct message model = net_message(&nets[n]);

        assert_int_equal(cn_onnx_open(model.bytes, model.size, NULL, &onnx), CN_OK);
        run_all(onnx, &samples, 1, 1, &alone);
        for (uint32_t batch = 1; batch <= SAMPLES + 1; batch++)
            for (uint32_t threads = 1; threads <= 4; threads++) {
                run_all(onnx, &samples, batch, threads, &sums);
                check_sums(&sums, &alone, batch, threads);
            }
        cn_onnx_close(onnx);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(batches_and_threads_do_not_change_the_sums),
    };

    if (!kernels_present())
        return 77;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
