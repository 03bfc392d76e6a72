// Gradients in buckets, on every port: the bits of a whole step, told of while the rest is
// computed.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "runtime/engine/trainer/trainer_buckets.h"
#include "runtime/engine/trainer/trainer_state.h"
#include "runtime/port/platform.h"
#include "tests/contract/compute_trial.h"

#define SAMPLES 12
#define WORDS 64 // of a sample

// What a step told of, in its order.
struct told {
    struct cn_trainer *trainer;
    uint32_t count;
    size_t words, first; // of all, of the first bucket
    float *row;          // the gradients, as each bucket was when it came
    float *after;        // the bucket behind, at that time
};

struct bench {
    struct cn_mapping model;
    struct cn_onnx *onnx;
    struct cn_trainer *trainer;
    float inputs[SAMPLES * WORDS];
    int32_t labels[SAMPLES];
};

static void open_bench(struct bench *bench, const struct cn_compute_ops *ops, uint32_t threads)
{
    struct cn_trainer_config config = {.compute = ops,
                                       .threads = threads,
                                       .batch = SAMPLES,
                                       .loss = CN_LOSS_CROSS_ENTROPY,
                                       .learning_rate = 0.1f,
                                       .momentum = 0.9f};

    assert_int_equal(
        cn_platform_map(CAIRN_TEST_DATA "/digits/digits-cnn.onnx", 1 << 20, &bench->model), CN_OK);
    assert_int_equal(cn_onnx_open(bench->model.data, bench->model.size, NULL, &bench->onnx), CN_OK);
    assert_int_equal(cn_trainer_open(bench->onnx, &config, NULL, &bench->trainer), CN_OK);
    for (size_t i = 0; i < SAMPLES * WORDS; i++)
        bench->inputs[i] = (float)((i * 7919) % 17) / 16;
    for (int i = 0; i < SAMPLES; i++)
        bench->labels[i] = i % 10;
}

static void close_bench(struct bench *bench)
{
    cn_trainer_close(bench->trainer);
    cn_onnx_close(bench->onnx);
    cn_platform_unmap(&bench->model);
}

static struct cn_batch batch_of(struct bench *bench, uint32_t first, uint32_t count)
{
    return (struct cn_batch){.inputs = bench->inputs + (size_t)first * WORDS,
                             .labels = bench->labels + first,
                             .count = count};
}

static void take(void *context, uint32_t bucket, float *data, size_t count)
{
    struct told *told = context;

    assert_int_equal(bucket, told->count);
    assert_int_equal(count, cn_trainer_bucket_words(told->trainer, bucket));
    memcpy(told->row + told->words, data, count * sizeof(*data));
    told->words += count;
    if (bucket == 0)
        told->first = count;
    told->count++;
    if (told->count < cn_trainer_bucket_count(told->trainer))
        memcpy(told->after + told->words, data + count,
               cn_trainer_bucket_words(told->trainer, told->count) * sizeof(*data));
}

// Trains three steps of two micro-batches and returns the weights. words: size of a bucket; 0: no
// buckets. told gets the gradients of the last step.
static float *train(const struct cn_compute_ops *ops, uint32_t threads, size_t words,
                    struct told *told)
{
    static struct bench bench;
    struct cn_trainer_sink sink = {take, told};
    struct cn_metrics metrics = {0};
    float *weights, *lent;
    size_t total;

    open_bench(&bench, ops, threads);
    total = cn_trainer_layout(bench.trainer)->total;
    weights = malloc(total * sizeof(*weights));
    assert_int_equal(cn_trainer_set_buckets(bench.trainer, words ? words : SIZE_MAX), CN_OK);
    for (int step = 0; step < 3; step++) {
        struct cn_batch first = batch_of(&bench, 0, 5), second = batch_of(&bench, 5, 7);

        told->trainer = bench.trainer;
        told->count = 0;
        told->words = 0;
        assert_int_equal(cn_trainer_accumulate(bench.trainer, &first, &metrics), CN_OK);
        assert_int_equal(words ? cn_trainer_accumulate_last(bench.trainer, &second, &metrics, &sink)
                               : cn_trainer_accumulate(bench.trainer, &second, &metrics),
                         CN_OK);
        assert_int_equal(cn_trainer_gradients(bench.trainer, &lent), CN_OK);
        if (words)
            assert_int_equal(told->words, cn_trainer_gradient_words(bench.trainer));
        else
            memcpy(told->row, lent, cn_trainer_gradient_words(bench.trainer) * sizeof(*lent));
        assert_int_equal(cn_trainer_apply(bench.trainer, SAMPLES), CN_OK);
    }
    assert_int_equal(cn_trainer_get_weights(bench.trainer, weights), CN_OK);
    close_bench(&bench);
    return weights;
}

static struct told new_told(void)
{
    return (struct told){.row = calloc(1 << 16, sizeof(float)),
                         .after = calloc(1 << 16, sizeof(float))};
}

static void free_told(struct told *told)
{
    free(told->row);
    free(told->after);
}

static size_t total_words(void)
{
    static struct bench bench;
    size_t words;

    open_bench(&bench, trial_ports[0], 1);
    words = cn_trainer_gradient_words(bench.trainer);
    assert_int_equal(words, cn_trainer_layout(bench.trainer)->total);
    assert_true(words < 1 << 16);
    close_bench(&bench);
    return words;
}

static void buckets_change_no_bit(void **state)
{
    size_t total = total_words();

    (void)state;
    for (size_t p = 0; p < trial_port_count; p++)
        for (uint32_t threads = 1; threads <= 3; threads++) {
            struct told whole = new_told();
            float *wanted = train(trial_ports[p], threads, 0, &whole);

            for (size_t words = 1; words < total; words = words * 16 + 1) {
                struct told told = new_told();
                float *found = train(trial_ports[p], threads, words, &told);

                assert_memory_equal(found, wanted, total * sizeof(*found));
                assert_memory_equal(told.row, whole.row, total * sizeof(*told.row));
                free(found);
                free_told(&told);
            }
            free(wanted);
            free_told(&whole);
        }
}

static void a_bucket_is_told_of_before_the_next_is_complete(void **state)
{
    size_t total = total_words();

    (void)state;
    for (size_t p = 0; p < trial_port_count; p++) {
        struct told told = new_told();

        free(train(trial_ports[p], 1, 4096, &told));
        assert_true(told.count > 1);
        assert_true(memcmp(told.row + told.first, told.after + told.first,
                           (total - told.first) * sizeof(*told.row)) != 0);
        free_told(&told);
    }
}

static void buckets_are_at_least_as_large_as_asked(void **state)
{
    static struct bench bench;
    size_t total = total_words();

    (void)state;
    open_bench(&bench, trial_ports[0], 1);
    for (size_t words = 1; words < 2 * total; words = words * 2) {
        size_t sum = 0;

        assert_int_equal(cn_trainer_set_buckets(bench.trainer, words), CN_OK);
        for (uint32_t i = 0; i < cn_trainer_bucket_count(bench.trainer); i++) {
            assert_true(cn_trainer_bucket_words(bench.trainer, i) >=
                        (words < total ? words : total));
            sum += cn_trainer_bucket_words(bench.trainer, i);
        }
        assert_int_equal(sum, total);
    }
    close_bench(&bench);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(buckets_change_no_bit),
        cmocka_unit_test(a_bucket_is_told_of_before_the_next_is_complete),
        cmocka_unit_test(buckets_are_at_least_as_large_as_asked),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
