#include "runtime/command/train_speed.h"

#include <stdlib.h>
#include <string.h>

#include "runtime/port/platform.h"

#define WARM_UP 5    // steps before those that are timed
#define STEPS 200    // most steps that are timed
#define TOKENS 65536 // most different whole numbers in a batch

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

// Returns a number below limit. Consecutive i give numbers that lie far apart.
static uint32_t scatter(size_t i, uint64_t limit)
{
    return (uint32_t)((uint32_t)i * 2654435761u >> 8) % (uint32_t)limit;
}

static size_t fill_input(const struct cn_input_shape *shape, uint64_t tokens, size_t first,
                         float *words)
{
    size_t count = 1;

    for (uint32_t i = 0; i < shape->rank; i++)
        count *= shape->dims[i];
    for (size_t i = 0; i < count; i++) {
        int32_t token = (int32_t)scatter(first + i, tokens);

        if (shape->integers)
            memcpy(&words[i], &token, sizeof(token));
        else
            words[i] = (float)scatter(first + i, 1000) / 1000;
    }
    return count;
}

void cn_train_speed_fill(const struct cn_sample_shape *shape, uint32_t count, uint64_t tokens,
                         struct cn_batch *batch)
{
    size_t at = 0;

    batch->count = count;
    for (uint32_t n = 0; n < count; n++)
        for (uint32_t i = 0; i < shape->input_count; i++)
            at += fill_input(&shape->inputs[i], tokens, at, batch->inputs + at);
    if (shape->loss == CN_LOSS_CROSS_ENTROPY)
        for (size_t i = 0; i < count * shape->rows; i++)
            batch->labels[i] = (int32_t)(i % shape->outputs);
    else
        for (size_t i = 0; i < count * shape->outputs; i++)
            batch->targets[i] = (float)(i % 2); // fits binary cross-entropy, too
}

static cn_err one_step(struct cn_trainer *trainer, const struct cn_batch *batch)
{
    struct cn_metrics metrics = {0};
    cn_err err;

    err = cn_trainer_accumulate(trainer, batch, &metrics);
    if (err)
        return err;
    return cn_trainer_apply_weighted(trainer, batch->count, metrics.weight);
}

// Makes a batch of made-up samples. Integer inputs may be indices of rows in a table of unknown
// size. They get values below the number of classes, as in a language model; if a table is too
// small for these, they get 0.
static cn_err make_batch(struct cn_trainer *trainer, uint32_t count, struct cn_batch *batch)
{
    struct cn_metrics metrics = {0};
    struct cn_sample_shape shape;
    cn_err err;

    cn_trainer_sample_shape(trainer, &shape);
    err = cn_batch_init(&shape, count, batch);
    if (err)
        return err;
    cn_train_speed_fill(&shape, count, shape.outputs < TOKENS ? shape.outputs : TOKENS, batch);
    err = cn_trainer_evaluate(trainer, batch, &metrics);
    if (err == CN_ERANGE) {
        cn_train_speed_fill(&shape, count, 1, batch);
        err = CN_OK;
    }
    return err;
}

static cn_err time_steps(struct cn_trainer *trainer, const struct cn_batch *batch,
                         uint64_t limit_us, struct cn_train_speed *speed)
{
    double times[STEPS];
    uint64_t begun = cn_platform_now_us();
    size_t count = 0;
    cn_err err = CN_OK;

    for (int i = 0; i < WARM_UP && !err; i++)
        err = one_step(trainer, batch);
    while (!err && count < STEPS && (!count || cn_platform_now_us() - begun < limit_us)) {
        uint64_t from = cn_platform_now_us();

        err = one_step(trainer, batch);
        times[count++] = (double)(cn_platform_now_us() - from) / 1000;
    }
    if (err)
        return err;
    qsort(times, count, sizeof(times[0]), compare);
    speed->median_ms = times[count / 2];
    speed->best_ms = times[0];
    speed->samples_per_s = batch->count * 1000.0 / speed->median_ms;
    return CN_OK;
}

cn_err cn_train_speed(const struct cn_trainer_config *config, const struct cn_onnx_file *model,
                      uint64_t limit_us, struct cn_diag *diag, struct cn_train_speed *speed)
{
    struct cn_trainer *trainer = NULL;
    struct cn_onnx *onnx = NULL;
    struct cn_batch batch = {0};
    uint64_t begun = cn_platform_now_us();
    cn_err err;

    *speed = (struct cn_train_speed){0};
    err = cn_onnx_open(model->data, model->size, diag, &onnx);
    if (!err)
        err = cn_trainer_open(onnx, config, diag, &trainer);
    if (err)
        goto close;
    cn_onnx_file_forget(model);
    speed->open_ms = (double)(cn_platform_now_us() - begun) / 1000;
    speed->planned = cn_trainer_memory(trainer);
    speed->parameters = cn_trainer_layout(trainer)->total;
    err = make_batch(trainer, config->batch, &batch);
    if (!err)
        err = time_steps(trainer, &batch, limit_us, speed);

close:
    cn_batch_deinit(&batch);
    cn_trainer_close(trainer);
    cn_onnx_close(onnx);
    return err;
}
