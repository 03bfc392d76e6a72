#include "runtime/engine/trainer.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/engine/apply.h"
#include "runtime/engine/autodiff.h"
#include "runtime/engine/import.h"
#include "runtime/engine/passes.h"
#include "runtime/engine/program.h"

struct cn_trainer {
    const struct cn_compute_ops *ops;
    struct cn_compute *device;
    uint32_t batch;
    enum cn_loss loss;
    struct cn_hyper hyper; // without samples and first
    struct cn_layout layout;
    struct cn_sample_shape shape;
    size_t input_words, label_words; // of a sample
    size_t labels;                   // words before the labels in the batch arena
    uint64_t memory;
    bool fresh;  // nothing was accumulated in this step
    bool summed; // the first lane holds the whole gradient
    bool mapped; // the caller may have changed it
    struct cn_compute_program *train, *evaluate, *sum, *apply;
};

void cn_trainer_close(struct cn_trainer *trainer)
{
    if (!trainer)
        return;
    if (trainer->device) {
        trainer->ops->release(trainer->device, trainer->train);
        trainer->ops->release(trainer->device, trainer->evaluate);
        trainer->ops->release(trainer->device, trainer->sum);
        trainer->ops->release(trainer->device, trainer->apply);
        trainer->ops->close(trainer->device);
    }
    cn_layout_deinit(&trainer->layout);
    free(trainer);
}

static cn_err build_graph(const struct cn_onnx *onnx, const struct cn_layout *layout,
                          enum cn_loss loss, struct cn_diag *diag, struct cn_graph *graph)
{
    cn_err err = cn_import(onnx, layout, diag, graph);
    const struct cn_value *output;

    if (err)
        return err;
    output = &graph->values[graph->output];
    if (loss == CN_LOSS_CROSS_ENTROPY && (output->rank != 2 || output->words > INT32_MAX)) {
        cn_diag_add(diag,
                    "cross-entropy needs an output of [batch, classes]; it has rank %u and %zu "
                    "values for each sample",
                    output->rank, output->words);
        return CN_ENOTSUP;
    }
    err = cn_passes_run(graph);
    if (!err)
        err = cn_autodiff_loss(graph, loss);
    return err ? err : cn_autodiff_run(graph);
}

static void describe_sample(struct cn_trainer *trainer, const struct cn_graph *graph)
{
    const struct cn_value *input = &graph->values[graph->input];

    trainer->shape.loss = trainer->loss;
    trainer->shape.rank = input->rank - 1;
    for (uint32_t d = 1; d < input->rank; d++)
        trainer->shape.dims[d - 1] = input->dims[d];
    trainer->shape.outputs = graph->values[graph->output].words;
    trainer->input_words = input->words;
    trainer->label_words = graph->values[graph->labels].words;
}

static cn_err prepare_flat(struct cn_trainer *trainer, const struct cn_graph *graph)
{
    const struct cn_call sum = {.op = CN_OP_SUM_LANES};
    const struct cn_apply_rule rule = {.op = CN_OP_SGD};
    struct cn_call *calls;
    size_t count;
    cn_err err = trainer->ops->prepare(trainer->device, &sum, 1, &trainer->sum);

    if (!err)
        err = cn_apply_build(graph, &rule, &calls, &count);
    if (err)
        return err;
    err = trainer->ops->prepare(trainer->device, calls, count, &trainer->apply);
    free(calls);
    return err;
}

static cn_err prepare(struct cn_trainer *trainer, const struct cn_graph *graph,
                      struct cn_program *program)
{
    const struct cn_compute_ops *ops = trainer->ops;
    cn_err err = ops->prepare(trainer->device, program->calls, program->count, &trainer->train);

    if (err)
        return err;
    cn_program_evaluate(program);
    err = ops->prepare(trainer->device, program->calls, program->loss + 1, &trainer->evaluate);
    if (!err)
        err = prepare_flat(trainer, graph);
    return err;
}

// Host views are short: one copy in or out of an arena.
static cn_err write_arena(struct cn_trainer *trainer, enum cn_arena arena, const float *values,
                          size_t count)
{
    void *host;
    cn_err err = trainer->ops->map(trainer->device, arena, &host);

    if (err)
        return err;
    if (!values)
        memset(host, 0, count * sizeof(*values));
    else if (count)
        memcpy(host, values, count * sizeof(*values));
    return trainer->ops->unmap(trainer->device, arena);
}

static cn_err read_arena(struct cn_trainer *trainer, enum cn_arena arena, float *values)
{
    void *host;
    cn_err err = trainer->ops->map(trainer->device, arena, &host);

    if (err)
        return err;
    memcpy(values, host, trainer->layout.total * sizeof(*values));
    return trainer->ops->unmap(trainer->device, arena);
}

static cn_err check_memory(struct cn_trainer *trainer, const struct cn_program *program,
                           const struct cn_trainer_config *config, struct cn_diag *diag)
{
    cn_err err = cn_program_memory(program, trainer->ops->lanes(trainer->device), &trainer->memory);

    if (!err && config->memory_limit && trainer->memory > config->memory_limit) {
        cn_diag_add(diag,
                    "training this model with a batch of %u needs %llu bytes, the limit is %llu",
                    config->batch, (unsigned long long)trainer->memory,
                    (unsigned long long)config->memory_limit);
        err = CN_ENOMEM;
    }
    return err;
}

static cn_err load_weights(struct cn_trainer *trainer, const struct cn_onnx *onnx)
{
    void *host;
    cn_err err = trainer->ops->map(trainer->device, CN_ARENA_WEIGHTS, &host);

    if (err)
        return err;
    err = cn_onnx_weights(onnx, &trainer->layout, host);
    return err ? err : trainer->ops->unmap(trainer->device, CN_ARENA_WEIGHTS);
}

static cn_err set_up(struct cn_trainer *trainer, const struct cn_onnx *onnx,
                     const struct cn_trainer_config *config, const struct cn_graph *graph,
                     struct cn_diag *diag)
{
    struct cn_program program;
    cn_err err = cn_program_build(graph, trainer->ops, trainer->device, config->batch,
                                  trainer->layout.total, &program);

    if (err) {
        cn_diag_add(diag, "the device '%s' cannot run this model with a batch of %u",
                    trainer->ops->name, config->batch);
        return err;
    }
    trainer->labels = program.labels;
    err = check_memory(trainer, &program, config, diag);
    if (!err)
        err = trainer->ops->reserve(trainer->device, &program.sizes, config->batch);
    if (!err)
        err = prepare(trainer, graph, &program);
    cn_program_deinit(&program);
    if (!err)
        err = write_arena(trainer, CN_ARENA_CONSTANTS, graph->constants, graph->constant_count);
    return err ? err : load_weights(trainer, onnx);
}

static cn_err open_trainer(struct cn_trainer *trainer, const struct cn_onnx *onnx,
                           const struct cn_trainer_config *config, struct cn_diag *diag)
{
    struct cn_compute_config device = {.threads = config->threads};
    struct cn_graph graph;
    cn_err err;

    if (!config->batch) {
        cn_diag_add(diag, "the batch is 0, wanted at least 1");
        return CN_EINVAL;
    }
    err = cn_onnx_layout(onnx, diag, &trainer->layout);
    if (err)
        return err;
    err = trainer->ops->open(&device, &trainer->device);
    if (err)
        return err;
    cn_graph_init(&graph);
    err = build_graph(onnx, &trainer->layout, config->loss, diag, &graph);
    if (!err) {
        describe_sample(trainer, &graph);
        err = set_up(trainer, onnx, config, &graph, diag);
    }
    cn_graph_deinit(&graph);
    return err;
}

cn_err cn_trainer_open(const struct cn_onnx *onnx, const struct cn_trainer_config *config,
                       struct cn_diag *diag, struct cn_trainer **opened)
{
    struct cn_trainer *trainer = calloc(1, sizeof(*trainer));
    cn_err err;

    if (!trainer)
        return CN_ENOMEM;
    trainer->ops = config->compute;
    trainer->batch = config->batch;
    trainer->loss = config->loss;
    trainer->fresh = true;
    trainer->hyper = (struct cn_hyper){.learning_rate = config->learning_rate,
                                       .momentum = config->momentum,
                                       .weight_decay = config->weight_decay,
                                       .seed = config->seed};
    err = open_trainer(trainer, onnx, config, diag);
    if (err) {
        cn_trainer_close(trainer);
        return err;
    }
    *opened = trainer;
    return CN_OK;
}

const struct cn_layout *cn_trainer_layout(const struct cn_trainer *trainer)
{
    return &trainer->layout;
}

void cn_trainer_sample_shape(const struct cn_trainer *trainer, struct cn_sample_shape *shape)
{
    *shape = trainer->shape;
}

uint64_t cn_trainer_memory(const struct cn_trainer *trainer)
{
    return trainer->memory;
}

cn_err cn_trainer_get_weights(struct cn_trainer *trainer, float *weights)
{
    return read_arena(trainer, CN_ARENA_WEIGHTS, weights);
}

cn_err cn_trainer_set_weights(struct cn_trainer *trainer, const float *weights)
{
    return write_arena(trainer, CN_ARENA_WEIGHTS, weights, trainer->layout.total);
}

cn_err cn_trainer_get_optimizer(struct cn_trainer *trainer, float *state)
{
    return read_arena(trainer, CN_ARENA_OPTIMIZER, state);
}

cn_err cn_trainer_set_optimizer(struct cn_trainer *trainer, const float *state)
{
    return write_arena(trainer, CN_ARENA_OPTIMIZER, state, trainer->layout.total);
}

static cn_err check_labels(const struct cn_trainer *trainer, const struct cn_batch *batch)
{
    if (batch->count > trainer->batch)
        return CN_ERANGE;
    if (trainer->loss != CN_LOSS_CROSS_ENTROPY)
        return CN_OK;
    for (uint32_t i = 0; i < batch->count; i++)
        if (batch->labels[i] < 0 || (uint64_t)batch->labels[i] >= trainer->shape.outputs)
            return CN_ERANGE;
    return CN_OK;
}

static cn_err stage(struct cn_trainer *trainer, const struct cn_batch *batch)
{
    bool classes = trainer->loss == CN_LOSS_CROSS_ENTROPY;
    const void *labels = classes ? (const void *)batch->labels : (const void *)batch->targets;
    void *host;
    cn_err err = check_labels(trainer, batch);

    if (err)
        return err;
    err = trainer->ops->map(trainer->device, CN_ARENA_BATCH, &host);
    if (err)
        return err;
    memcpy(host, batch->inputs, batch->count * trainer->input_words * sizeof(float));
    memcpy((float *)host + trainer->labels, labels,
           batch->count * trainer->label_words * sizeof(float));
    return trainer->ops->unmap(trainer->device, CN_ARENA_BATCH);
}

// Runs a batch and adds to metrics.
static cn_err run_batch(struct cn_trainer *trainer, struct cn_compute_program *program,
                        const struct cn_batch *batch, struct cn_metrics *metrics)
{
    struct cn_compute_result result;
    struct cn_hyper hyper = trainer->hyper;
    cn_err err;

    if (!batch->count)
        return CN_OK;
    err = stage(trainer, batch);
    if (err)
        return err;
    hyper.samples = batch->count;
    hyper.first = trainer->fresh;
    err = trainer->ops->run(trainer->device, program, &hyper);
    if (!err)
        err = trainer->ops->wait(trainer->device, &result);
    if (err)
        return err;
    metrics->loss += result.loss;
    metrics->correct += result.correct;
    metrics->count += batch->count;
    return isfinite(result.loss) ? CN_OK : CN_EDIVERGED;
}

// Takes back what cn_trainer_gradients lent.
static cn_err unmap_gradients(struct cn_trainer *trainer)
{
    if (!trainer->mapped)
        return CN_OK;
    trainer->mapped = false;
    return trainer->ops->unmap(trainer->device, CN_ARENA_GRADIENTS);
}

void cn_trainer_draw(struct cn_trainer *trainer, uint64_t first_sample)
{
    trainer->hyper.first_sample = first_sample;
}

cn_err cn_trainer_accumulate(struct cn_trainer *trainer, const struct cn_batch *batch,
                             struct cn_metrics *metrics)
{
    cn_err err = unmap_gradients(trainer);

    if (!err)
        err = run_batch(trainer, trainer->train, batch, metrics);
    if ((!err || err == CN_EDIVERGED) && batch->count) {
        trainer->fresh = false;
        trainer->summed = false;
    }
    return err;
}

cn_err cn_trainer_evaluate(struct cn_trainer *trainer, const struct cn_batch *batch,
                           struct cn_metrics *metrics)
{
    return run_batch(trainer, trainer->evaluate, batch, metrics);
}

// Brings the whole gradient of the step into the first lane.
static cn_err sum_gradient(struct cn_trainer *trainer)
{
    cn_err err = CN_OK;

    if (trainer->summed)
        return CN_OK;
    if (trainer->fresh)
        err = write_arena(trainer, CN_ARENA_GRADIENTS, NULL, trainer->layout.total);
    else
        err = trainer->ops->run(trainer->device, trainer->sum, &trainer->hyper);
    if (!err)
        trainer->summed = true;
    return err;
}

cn_err cn_trainer_gradients(struct cn_trainer *trainer, float **gradients)
{
    void *host;
    cn_err err = sum_gradient(trainer);

    if (!err)
        err = trainer->ops->map(trainer->device, CN_ARENA_GRADIENTS, &host);
    if (err)
        return err;
    trainer->mapped = true;
    *gradients = host;
    return CN_OK;
}

// Starts a new step. The next accumulate overwrites the gradient, except where a parameter has
// none: there it stays as it is, so what the caller or a failed step left is cleared.
static cn_err start_step(struct cn_trainer *trainer, bool clear)
{
    trainer->fresh = true;
    trainer->summed = false;
    return clear ? write_arena(trainer, CN_ARENA_GRADIENTS, NULL, trainer->layout.total) : CN_OK;
}

cn_err cn_trainer_discard(struct cn_trainer *trainer)
{
    cn_err err = unmap_gradients(trainer);

    return err ? err : start_step(trainer, true);
}

cn_err cn_trainer_apply(struct cn_trainer *trainer, double samples)
{
    struct cn_hyper hyper = trainer->hyper;
    struct cn_compute_result result;
    cn_err err;

    if (!(samples > 0) || !isfinite(samples))
        return CN_EINVAL;
    err = unmap_gradients(trainer);
    if (!err)
        err = sum_gradient(trainer);
    hyper.gradient_scale = (float)(1 / samples);
    hyper.statistic_scale = hyper.gradient_scale;
    if (!err)
        err = trainer->ops->run(trainer->device, trainer->apply, &hyper);
    if (!err)
        err = trainer->ops->wait(trainer->device, &result);
    if (!err)
        err = start_step(trainer, !result.finite);
    if (err)
        return err;
    return result.finite ? CN_OK : CN_EDIVERGED;
}
