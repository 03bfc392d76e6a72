// Any bytes are a model that trains within the memory limit, or an error.
#include <stdlib.h>

#include "ports/cpu/compute_cpu.h"
#include "runtime/engine/trainer/trainer.h"

#define MEMORY_LIMIT (16u << 20)
// A window over a whole image makes a step take time with the square of the memory.
#define STEP_LIMIT (64u << 10)
#define BATCH 2

static void require(bool condition)
{
    if (!condition)
        abort();
}

static void train_step(struct cn_trainer *trainer)
{
    struct cn_sample_shape shape;
    size_t words = 1;
    struct cn_batch batch = {.count = BATCH};
    struct cn_metrics metrics = {0};
    float *inputs;
    int32_t *labels;
    cn_err err;

    cn_trainer_sample_shape(trainer, &shape);
    for (uint32_t d = 0; d < shape.rank; d++)
        words *= shape.dims[d];
    inputs = calloc(BATCH * words + 1, sizeof(*inputs));
    labels = calloc(BATCH * shape.rows + 1, sizeof(*labels));
    require(inputs != NULL && labels != NULL);
    batch.inputs = inputs;
    batch.labels = labels;
    err = cn_trainer_accumulate(trainer, &batch, &metrics);
    require(err == CN_OK || err == CN_EDIVERGED || err == CN_ERANGE);
    err = cn_trainer_apply(trainer, BATCH);
    require(err == CN_OK || err == CN_EDIVERGED);
    free(inputs);
    free(labels);
}

static void open_and_train(const struct cn_onnx *onnx, struct cn_diag *diag)
{
    struct cn_trainer_config config = {.compute = &cn_compute_cpu,
                                       .threads = 1,
                                       .batch = BATCH,
                                       .loss = CN_LOSS_CROSS_ENTROPY,
                                       .learning_rate = 0.1f,
                                       .momentum = 0.9f,
                                       .memory_limit = MEMORY_LIMIT};
    struct cn_trainer *trainer;

    if (cn_trainer_open(onnx, &config, diag, &trainer)) {
        require(diag->count > 0); // a refusal has a reason
        return;
    }
    require(cn_trainer_memory(trainer) <= MEMORY_LIMIT);
    if (cn_trainer_memory(trainer) <= STEP_LIMIT)
        train_step(trainer);
    cn_trainer_close(trainer);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct cn_onnx *onnx;
    struct cn_layout layout;
    struct cn_diag diag;

    cn_diag_init(&diag);
    if (cn_onnx_open(data, size, &diag, &onnx))
        return 0;
    if (cn_onnx_layout(onnx, &diag, &layout) == CN_OK)
        cn_layout_deinit(&layout);
    cn_diag_init(&diag);
    open_and_train(onnx, &diag);
    cn_onnx_close(onnx);
    return 0;
}
