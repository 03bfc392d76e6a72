#include "runtime/command/train_speed.h"

#include <stdlib.h>

#include "runtime/port/platform.h"

#define WARM_UP 5
#define STEPS 200

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static cn_err make_batch(const struct cn_trainer *trainer, uint32_t count, struct cn_batch *batch)
{
    struct cn_sample_shape shape;
    size_t elements = 1;
    cn_err err;

    cn_trainer_sample_shape(trainer, &shape);
    for (uint32_t i = 0; i < shape.rank; i++)
        elements *= shape.dims[i];
    err = cn_batch_init(&shape, count, batch);
    if (err)
        return err;
    batch->count = count;
    for (size_t i = 0; i < count * elements; i++)
        batch->inputs[i] = (float)(i * 2654435761u % 1000) / 1000;
    for (size_t i = 0; i < count * shape.rows; i++)
        batch->labels[i] = (int32_t)(i % shape.outputs);
    return CN_OK;
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

cn_err cn_train_speed(const struct cn_trainer_config *config, const uint8_t *model, size_t size,
                      uint64_t limit_us, struct cn_diag *diag, struct cn_train_speed *speed)
{
    struct cn_trainer *trainer = NULL;
    struct cn_onnx *onnx = NULL;
    struct cn_batch batch = {0};
    uint64_t begun = cn_platform_now_us();
    cn_err err;

    *speed = (struct cn_train_speed){0};
    err = cn_onnx_open(model, size, diag, &onnx);
    if (!err)
        err = cn_trainer_open(onnx, config, diag, &trainer);
    if (err)
        goto close;
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
