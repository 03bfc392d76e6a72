// zoo_steps.c - trains a model on samples in file order and leaves its numbers for agree.py.
//
//   zoo_steps MODEL.onnx SAMPLES.npy LABELS.npy cross-entropy|mse BATCH STEPS RATE MOMENTUM THREADS
//   OUT
//
// Prints "tensor NAME COUNT" for each tensor of the layout and "loss VALUE" for each step; writes
// OUT.gradients (of the first step, the mean over what the loss counts) and OUT.weights (after the
// last), both as float32 in layout order.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ports/cpu/compute_cpu.h"
#include "runtime/engine/data/npy.h"
#include "runtime/engine/trainer/trainer_buckets.h"
#include "runtime/engine/trainer/trainer_state.h"
#include "runtime/port/platform.h"

struct zoo {
    struct cn_diag diag;
    struct cn_mapping model, samples_file, labels_file;
    struct cn_npy samples, labels;
    struct cn_onnx *onnx;
    struct cn_trainer *trainer;
    struct cn_sample_shape shape;
    uint32_t batch, steps;
    const char *out;
};

static void require(struct zoo *zoo, cn_err err, const char *what)
{
    if (!err)
        return;
    for (size_t i = 0; i < zoo->diag.count; i++)
        fprintf(stderr, "%s\n", zoo->diag.lines[i]);
    fprintf(stderr, "%s: %s\n", what, cn_err_text(err));
    exit(1);
}

static void load(struct zoo *zoo, const char *path, struct cn_mapping *file, struct cn_npy *npy)
{
    require(zoo, cn_platform_map(path, SIZE_MAX, file), path);
    require(zoo, cn_npy_parse(file->data, file->size, path, &zoo->diag, npy), path);
}

// count elements from the first one, as the model takes them.
static void *slice(const struct cn_npy *npy, bool integers, size_t first, size_t count)
{
    float *values = malloc(count * sizeof(*values) + 1);

    for (size_t i = 0; values && i < count; i++) {
        size_t at = (first + i) % npy->count;
        int32_t integer = npy->kind == CN_NPY_FLOAT ? 0 : (int32_t)cn_npy_int(npy, at);

        memcpy(&values[i], integers ? (const void *)&integer : npy->data + 4 * at, sizeof(float));
    }
    if (!values)
        exit(1);
    return values;
}

static void write_row(const struct zoo *zoo, const char *what, const float *values)
{
    char path[4096];
    FILE *file;
    size_t count = cn_trainer_layout(zoo->trainer)->total;

    snprintf(path, sizeof(path), "%s.%s", zoo->out, what);
    file = fopen(path, "wb");
    if (!file || fwrite(values, sizeof(*values), count, file) != count || fclose(file)) {
        perror(path);
        exit(1);
    }
}

static void write_gradients(struct zoo *zoo, double weight)
{
    const struct cn_layout *layout = cn_trainer_layout(zoo->trainer);
    float *lent, *mean = calloc(layout->total + 1, sizeof(*mean));

    require(zoo, cn_trainer_gradients(zoo->trainer, &lent), "gradients");
    for (size_t t = 0; mean && t < layout->tensor_count; t++) {
        size_t place = cn_trainer_gradient_place(zoo->trainer, t);

        for (size_t i = 0; place != SIZE_MAX && i < layout->tensors[t].count; i++)
            mean[layout->tensors[t].offset + i] = (float)((double)lent[place + i] / weight);
    }
    write_row(zoo, "gradients", mean);
    free(mean);
}

static void step(struct zoo *zoo, uint32_t number)
{
    size_t inputs = zoo->samples.count / zoo->samples.dims[0] * zoo->batch;
    size_t labels = zoo->labels.count / zoo->labels.dims[0] * zoo->batch;
    bool classes = zoo->labels.kind != CN_NPY_FLOAT;
    struct cn_batch batch = {.count = zoo->batch};
    struct cn_metrics metrics = {0};
    void *target = slice(&zoo->labels, classes, number * labels, labels);

    batch.inputs = slice(&zoo->samples, zoo->shape.integers, number * inputs, inputs);
    batch.labels = classes ? target : NULL;
    batch.targets = classes ? NULL : target;
    require(zoo, cn_trainer_accumulate(zoo->trainer, &batch, &metrics), "step");
    printf("loss %.9g\n", metrics.loss / metrics.weight);
    if (number == 0)
        write_gradients(zoo, metrics.weight);
    require(zoo, cn_trainer_apply(zoo->trainer, metrics.weight), "apply");
    free(batch.inputs);
    free(target);
}

static void open_model(struct zoo *zoo, char **argv)
{
    struct cn_trainer_config config = {.compute = &cn_compute_cpu};
    const struct cn_layout *layout;

    require(zoo, cn_platform_map(argv[1], SIZE_MAX, &zoo->model), argv[1]);
    require(zoo, cn_onnx_open(zoo->model.data, zoo->model.size, &zoo->diag, &zoo->onnx), argv[1]);
    config.loss = strcmp(argv[4], "mse") ? CN_LOSS_CROSS_ENTROPY : CN_LOSS_MSE;
    config.batch = zoo->batch;
    config.learning_rate = strtof(argv[7], NULL);
    config.momentum = strtof(argv[8], NULL);
    config.threads = (uint32_t)atoi(argv[9]);
    require(zoo, cn_trainer_open(zoo->onnx, &config, &zoo->diag, &zoo->trainer), argv[1]);
    cn_trainer_sample_shape(zoo->trainer, &zoo->shape);
    layout = cn_trainer_layout(zoo->trainer);
    for (size_t i = 0; i < layout->tensor_count; i++)
        printf("tensor %s %zu\n", layout->tensors[i].name, layout->tensors[i].count);
}

int main(int argc, char **argv)
{
    static struct zoo zoo;
    float *weights;

    if (argc != 11) {
        fprintf(stderr, "usage: zoo_steps MODEL SAMPLES LABELS LOSS BATCH STEPS RATE MOMENTUM "
                        "THREADS OUT\n");
        return 2;
    }
    cn_diag_init(&zoo.diag);
    zoo.batch = (uint32_t)atoi(argv[5]);
    zoo.steps = (uint32_t)atoi(argv[6]);
    zoo.out = argv[10];
    load(&zoo, argv[2], &zoo.samples_file, &zoo.samples);
    load(&zoo, argv[3], &zoo.labels_file, &zoo.labels);
    open_model(&zoo, argv);
    for (uint32_t i = 0; i < zoo.steps; i++)
        step(&zoo, i);
    weights = malloc(cn_trainer_layout(zoo.trainer)->total * sizeof(*weights) + 1);
    if (!weights)
        return 1;
    require(&zoo, cn_trainer_get_weights(zoo.trainer, weights), "weights");
    write_row(&zoo, "weights", weights);
    free(weights);
    cn_trainer_close(zoo.trainer);
    cn_onnx_close(zoo.onnx);
    cn_platform_unmap(&zoo.model);
    cn_platform_unmap(&zoo.samples_file);
    cn_platform_unmap(&zoo.labels_file);
    return 0;
}
