// Trains the recorded models and compares with what PyTorch computed; tests/data/torch/README.md
// says how it was recorded. Tolerances: 2e-5 relative to the largest value for outputs and
// gradients of one batch and to the first five losses, 1e-3 after 20 steps, where roundings have
// grown. Every processor that the tests run on, emulated ones too, has the same losses within
// these.
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "ports/cpu/compute_cpu.h"
#include "runtime/engine/data/npy.h"
#include "runtime/engine/trainer/trainer_buckets.h"
#include "runtime/engine/trainer/trainer_state.h"
#include "tests/support/kernels_present.h"

#define CLOSE_STEPS 5

struct file {
    uint8_t *data;
    size_t size;
};

struct torch_case {
    char name[64];
    enum cn_loss loss;
    unsigned batch, steps;
    float rate, momentum, decay;
    double losses[64];
    struct file model;
    struct cn_onnx *onnx;
    struct cn_trainer *trainer;
    size_t total, input_words, label_words;
    float *inputs, *targets;
    int32_t *labels;
};

static struct file read_file(const char *path)
{
    struct file file = {0};
    FILE *stream = fopen(path, "rb");

    if (!stream)
        fail_msg("cannot open %s", path);
    fseek(stream, 0, SEEK_END);
    file.size = (size_t)ftell(stream);
    rewind(stream);
    file.data = malloc(file.size + 1);
    assert_int_equal(fread(file.data, 1, file.size, stream), file.size);
    fclose(stream);
    return file;
}

// All elements of an .npy file as doubles.
static double *read_array(const char *path, size_t *count)
{
    struct file file = read_file(path);
    struct cn_npy npy;
    double *values;

    assert_int_equal(cn_npy_parse(file.data, file.size, path, NULL, &npy), CN_OK);
    assert_true(npy.count > 0);
    values = calloc(npy.count + 1,
                    sizeof(*values)); // one more: the analyzer reads on past a failed check
    assert_non_null(values);
    for (size_t i = 0; i < npy.count; i++)
        if (npy.kind == CN_NPY_FLOAT) {
            float value;

            memcpy(&value, npy.data + 4 * i, sizeof(value));
            values[i] = (double)value;
        } else {
            values[i] = (double)cn_npy_int(&npy, i);
        }
    *count = npy.count;
    free(file.data);
    return values;
}

static double *read_torch(const struct torch_case *test, const char *what, size_t *count)
{
    char path[512];

    snprintf(path, sizeof(path), "%s/torch/%s-%s.npy", CAIRN_TEST_DATA, test->name, what);
    return read_array(path, count);
}

static void parse_line(struct torch_case *test, char *line)
{
    char loss[32];
    int used;

    assert_int_equal(sscanf(line, "%63s %31s %u %u %f %f %f%n", test->name, loss, &test->batch,
                            &test->steps, &test->rate, &test->momentum, &test->decay, &used),
                     7);
    test->loss = strcmp(loss, "mse") ? CN_LOSS_CROSS_ENTROPY : CN_LOSS_MSE;
    assert_true(test->steps <= 64);
    for (unsigned i = 0; i < test->steps; i++) {
        char *end;

        test->losses[i] = strtod(line + used, &end);
        used = (int)(end - line);
    }
}

// The digit models train on the held-out digits in file order, scaled by 1/16.
static void load_samples(struct torch_case *test)
{
    bool digits = !strncmp(test->name, "digits-", 7);
    size_t wanted = (size_t)test->batch * test->steps;
    size_t input_count, label_count;
    double *inputs, *labels;

    if (digits) {
        inputs = read_array(CAIRN_TEST_DATA "/digits/held-out-images.npy", &input_count);
        labels = read_array(CAIRN_TEST_DATA "/digits/held-out-labels.npy", &label_count);
    } else {
        inputs = read_torch(test, "inputs", &input_count);
        labels = read_torch(test, "labels", &label_count);
    }
    test->inputs = malloc(wanted * test->input_words * sizeof(float));
    test->labels = malloc(wanted * sizeof(int32_t));
    test->targets = malloc(wanted * test->label_words * sizeof(float));
    for (size_t i = 0; i < wanted * test->input_words; i++)
        test->inputs[i] = (float)(digits ? inputs[i % input_count] / 16 : inputs[i % input_count]);
    assert_true(test->loss != CN_LOSS_MSE || label_count >= wanted * test->label_words);
    if (test->loss == CN_LOSS_MSE)
        for (size_t i = 0; i < wanted * test->label_words; i++)
            test->targets[i] = (float)labels[i];
    else
        for (size_t i = 0; i < wanted; i++)
            test->labels[i] = (int32_t)labels[i % label_count];
    free(inputs);
    free(labels);
}

static void open_case(struct torch_case *test, char *line, unsigned threads)
{
    struct cn_trainer_config config = {.compute = &cn_compute_cpu, .threads = threads};
    struct cn_sample_shape shape;
    struct cn_diag diag;
    char path[512];
    cn_err err;

    parse_line(test, line);
    snprintf(path, sizeof(path), "%s/%s/%s.onnx", CAIRN_TEST_DATA,
             strncmp(test->name, "digits-", 7) ? "models" : "digits", test->name);
    test->model = read_file(path);
    cn_diag_init(&diag);
    assert_int_equal(cn_onnx_open(test->model.data, test->model.size, &diag, &test->onnx), CN_OK);
    config.batch = test->batch;
    config.loss = test->loss;
    config.learning_rate = test->rate;
    config.momentum = test->momentum;
    config.weight_decay = test->decay;
    err = cn_trainer_open(test->onnx, &config, &diag, &test->trainer);
    if (err)
        fail_msg("%s: %s", test->name, cn_diag_first(&diag));
    test->total = cn_trainer_layout(test->trainer)->total;
    cn_trainer_sample_shape(test->trainer, &shape);
    test->input_words = 1;
    for (uint32_t d = 0; d < shape.rank; d++)
        test->input_words *= shape.dims[d];
    test->label_words = shape.outputs;
    load_samples(test);
}

static void close_case(struct torch_case *test)
{
    cn_trainer_close(test->trainer);
    cn_onnx_close(test->onnx);
    free(test->model.data);
    free(test->inputs);
    free(test->labels);
    free(test->targets);
}

static struct cn_batch batch_of(const struct torch_case *test, size_t step)
{
    size_t first = step * test->batch;

    return (struct cn_batch){.inputs = test->inputs + first * test->input_words,
                             .labels = test->labels + first,
                             .targets = test->targets + first * test->label_words,
                             .count = test->batch};
}

// The gradients in the order of the layout. PyTorch has none for statistics; ours are compared by
// what they do to the weights.
static float *copy_gradients(const struct torch_case *test)
{
    const struct cn_layout *layout = cn_trainer_layout(test->trainer);
    float *copy = calloc(test->total, sizeof(*copy)), *values;

    assert_non_null(copy);
    assert_int_equal(cn_trainer_gradients(test->trainer, &values), CN_OK);
    for (size_t i = 0; i < layout->tensor_count; i++)
        if (layout->tensors[i].class != CN_TENSOR_STAT)
            memcpy(copy + layout->tensors[i].offset,
                   values + cn_trainer_gradient_place(test->trainer, i),
                   layout->tensors[i].count * sizeof(*copy));
    return copy;
}

// Compares values * scale with the recorded ones, relative to the largest.
static void compare(const struct torch_case *test, const char *what, const float *values,
                    double scale, double tolerance)
{
    size_t count;
    double *expected = read_torch(test, what, &count);
    double largest = 0, worst = 0;

    assert_int_equal(count, test->total);
    for (size_t i = 0; i < count; i++) {
        double error = fabs((double)values[i] * scale - expected[i]);

        largest = fmax(largest, fabs(expected[i]));
        worst = error > worst || isnan(error) ? error : worst;
    }
    free(expected);
    if (!(worst <= tolerance * largest))
        fail_msg("%s %s: off by %g of %g", test->name, what, worst, largest);
}

static void run_case(char *line, unsigned threads)
{
    struct torch_case test = {0};
    float *values, *copy;

    open_case(&test, line, threads);
    for (size_t step = 0; step < test.steps; step++) {
        struct cn_batch batch = batch_of(&test, step);
        struct cn_metrics metrics = {0};

        assert_int_equal(cn_trainer_accumulate(test.trainer, &batch, &metrics), CN_OK);
        if (!(fabs(metrics.loss / test.batch - test.losses[step]) <
              (step < CLOSE_STEPS ? 2e-5 : 1e-3) * test.losses[step]))
            fail_msg("%s: loss %g at step %zu, PyTorch has %g", test.name,
                     metrics.loss / test.batch, step, test.losses[step]);
        if (step == 0) {
            copy = copy_gradients(&test);
            compare(&test, "gradients", copy, 1.0 / test.batch, 2e-5);
            free(copy);
        }
        assert_int_equal(cn_trainer_apply(test.trainer, test.batch), CN_OK);
    }
    values = malloc(test.total * sizeof(*values));
    assert_int_equal(cn_trainer_get_weights(test.trainer, values), CN_OK);
    compare(&test, "weights", values, 1, 1e-3);
    free(values);
    close_case(&test);
}

static void run_all(unsigned threads)
{
    FILE *lines = fopen(CAIRN_TEST_DATA "/torch/expected.txt", "r");
    char line[4096];
    unsigned cases = 0;

    assert_non_null(lines);
    while (fgets(line, sizeof(line), lines)) {
        run_case(line, threads);
        cases++;
    }
    fclose(lines);
    assert_true(cases >= 10);
}

static void one_thread_computes_what_pytorch_computes(void **state)
{
    (void)state;
    run_all(1);
}

static void two_threads_compute_what_pytorch_computes(void **state)
{
    (void)state;
    run_all(2);
}

static void more_threads_than_samples_compute_what_pytorch_computes(void **state)
{
    (void)state;
    run_all(7);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_thread_computes_what_pytorch_computes),
        cmocka_unit_test(two_threads_compute_what_pytorch_computes),
        cmocka_unit_test(more_threads_than_samples_compute_what_pytorch_computes),
    };

    if (!kernels_present())
        return 77;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
