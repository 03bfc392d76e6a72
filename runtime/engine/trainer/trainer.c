#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/engine/program/apply.h"
#include "runtime/engine/program/describe.h"
#include "runtime/engine/program/program.h"
#include "runtime/engine/trainer/trainer_private.h"

void cn_trainer_close(struct cn_trainer *trainer)
{
    if (!trainer)
        return;
    if (trainer->device) {
        cn_trainer_release_buckets(trainer);
        cn_trainer_release_segments(trainer);
        cn_trainer_release_part(trainer);
        trainer->ops->release(trainer->device, trainer->train);
        trainer->ops->release(trainer->device, trainer->evaluate);
        trainer->ops->release(trainer->device, trainer->sum);
        trainer->ops->release(trainer->device, trainer->apply);
        trainer->ops->close(trainer->device);
    }
    cn_layout_deinit(&trainer->layout);
    cn_gradient_order_deinit(&trainer->order);
    cn_batch_facts_deinit(&trainer->facts);
    free(trainer->classes);
    free(trainer->calls);
    free(trainer->flat);
    free(trainer);
}

// Fills in the dims of one sample: all except the batch. Returns their number.
static uint32_t sample_dims(const struct cn_value *value, uint64_t *dims)
{
    uint32_t rank = 0;

    for (uint32_t d = 0; d < value->rank; d++)
        if (d != value->batch_axis)
            dims[rank++] = value->dims[d];
    return rank;
}

static void describe_input(struct cn_trainer *trainer, const struct cn_onnx_value *source,
                           const struct cn_value *value, const struct cn_input_classes *classes,
                           uint32_t index)
{
    struct cn_input_shape *shape = &trainer->shape.inputs[index];

    snprintf(shape->name, sizeof(shape->name), "%.*s", (int)source->name.size, source->name.data);
    shape->integers = value->integers;
    shape->rank = sample_dims(value, shape->dims);
    shape->classes = classes->count;
    shape->ignored = classes->ignore;
    trainer->input_words[index] = value->words;
    trainer->sample_words += value->words;
}

// Notes of an input all of whose values pick rows of a table how many rows there are. Of several
// tables the smallest counts.
static void describe_table(struct cn_trainer *trainer, const struct cn_graph *graph,
                           const struct cn_node *node)
{
    const struct cn_value *index = &graph->values[node->in[1]];
    const struct cn_value *root = &graph->values[index->root];
    struct cn_input_shape *shape;

    if (root->kind != CN_VALUE_INPUT || root->offset >= graph->input_count ||
        index->words != root->words || !root->integers)
        return;
    shape = &trainer->shape.inputs[root->offset];
    if (!shape->table_rows || node->call.gather.rows < shape->table_rows)
        shape->table_rows = node->call.gather.rows;
}

static void describe_sample(struct cn_trainer *trainer, const struct cn_onnx *onnx,
                            const struct cn_graph *graph)
{
    const struct cn_value *input = &graph->values[graph->inputs[0]];

    trainer->shape.loss = trainer->loss;
    trainer->shape.rank = sample_dims(input, trainer->shape.dims);
    trainer->shape.integers = input->integers;
    trainer->shape.outputs = graph->values[graph->output].words;
    trainer->shape.rows = 1;
    if (trainer->loss == CN_LOSS_CROSS_ENTROPY) {
        trainer->shape.outputs = graph->nodes[graph->loss].call.loss.outputs;
        trainer->shape.rows = graph->nodes[graph->loss].call.loss.rows;
    }
    trainer->shape.weighted = trainer->shape.rows > 1 || trainer->rules.weights[0] ||
                              trainer->rules.ignore[0] || graph->head == CN_HEAD_ENTROPY;
    trainer->shape.input_count = graph->input_count;
    for (uint32_t i = 0; i < graph->input_count; i++)
        describe_input(trainer, &onnx->inputs[i], &graph->values[graph->inputs[i]],
                       &graph->classes[i], i);
    for (size_t i = 0; i < graph->node_count; i++)
        if (graph->nodes[i].call.op == CN_OP_GATHER)
            describe_table(trainer, graph, &graph->nodes[i]);
    if (graph->head == CN_HEAD_ENTROPY) {
        const struct cn_loss_call *call = &graph->nodes[graph->loss].call.loss;

        trainer->label_input = 1 + graph->values[graph->head_labels].offset;
        trainer->label_limit = call->outputs;
        trainer->label_ignored = call->ignore;
    }
}

// Notes which inputs and labels the graph of the model or of a part reads: a batch is staged with
// these only.
static void describe_reads(struct cn_trainer *trainer, const struct cn_graph *graph)
{
    for (uint32_t i = 0; i < graph->input_count; i++)
        trainer->input_read[i] = !(graph->unread_inputs >> i & 1);
    if (graph->labels != CN_GRAPH_NONE)
        trainer->label_words = graph->values[graph->labels].words;
}

// Sets a share that fits: without shards everything, else the first part of each bucket.
static cn_err set_first_share(struct cn_trainer *trainer)
{
    struct cn_trainer_piece pieces[CN_TRAINER_BUCKETS];
    size_t first = 0;

    if (trainer->shards == 1) {
        pieces[0] = (struct cn_trainer_piece){0, cn_trainer_gradient_words(trainer)};
        return cn_trainer_set_share(trainer, pieces, 1);
    }
    for (uint32_t b = 0; b < cn_trainer_bucket_count(trainer); b++) {
        size_t words = cn_trainer_bucket_words(trainer, b);

        pieces[b] = (struct cn_trainer_piece){first, words / trainer->shards};
        first += words;
    }
    return cn_trainer_set_share(trainer, pieces, cn_trainer_bucket_count(trainer));
}

static cn_err prepare_flat(struct cn_trainer *trainer, const struct cn_graph *graph)
{
    const struct cn_rules *rules = &trainer->rules;
    const struct cn_apply_rule rule = {
        .op = rules->optimizer == CN_OPTIMIZER_SGD ? CN_OP_SGD : CN_OP_ADAM,
        .numbers = {.nesterov = rules->nesterov,
                    .decoupled = rules->optimizer == CN_OPTIMIZER_ADAMW,
                    .beta1 = cn_schedule_beta1(rules),
                    .beta2 = cn_schedule_beta2(rules),
                    .epsilon = cn_schedule_epsilon(rules),
                    .proximal = rules->proximal > 0},
        .clip = rules->clip > 0,
        .layout = &trainer->layout,
    };
    cn_err err = cn_apply_build(graph, &rule, &trainer->flat, &trainer->flat_count);

    return err ? err : set_first_share(trainer);
}

// Prepares the forward pass; where it ends with the loss, also a copy of the output for the host.
static cn_err prepare_evaluation(struct cn_trainer *trainer, const struct cn_program *program)
{
    const struct cn_call *loss = &program->calls[program->loss];
    size_t words = loss->in[0].stride;
    size_t count = program->loss + 1;
    struct cn_call *calls = calloc(count + 1, sizeof(*calls));
    cn_err err = CN_OK;

    if (!calls)
        return CN_ENOMEM;
    if (trainer->stage == CN_STAGE_WEIGHTS) {
        err = cn_trainer_prepare_forward(trainer, program->calls);
        count = 0; // the forward calls run as segments
    }
    memcpy(calls, program->calls, count * sizeof(*calls));
    if (program->has_loss)
        calls[count++] = (struct cn_call){
            .op = CN_OP_MAP,
            .in = {loss->in[0]},
            .out = {{.arena = CN_ARENA_OUTPUTS, .stride = words}},
            .map = {.kind = CN_MAP_SCALE, .alpha = 1, .count = words},
        };
    if (!err)
        err = trainer->ops->prepare(trainer->device, calls, count, &trainer->evaluate);
    free(calls);
    return err;
}

static cn_err prepare_training(struct cn_trainer *trainer, const struct cn_graph *graph,
                               const struct cn_program *program)
{
    if (trainer->part.slot_count)
        return cn_trainer_prepare_part(trainer, graph, program);
    if (trainer->stage >= CN_STAGE_GRADIENTS)
        return cn_trainer_prepare_segments(trainer, program);
    return trainer->ops->prepare(trainer->device, program->calls, program->count, &trainer->train);
}

static cn_err prepare(struct cn_trainer *trainer, const struct cn_graph *graph,
                      struct cn_program *program)
{
    cn_err err = prepare_training(trainer, graph, program);

    if (err)
        return err;
    cn_program_evaluate(program);
    err = cn_trainer_prepare_sum(trainer, 0, 0, &trainer->sum);
    if (err)
        return err;
    return prepare_evaluation(trainer, program);
}

cn_err cn_trainer_write(struct cn_trainer *trainer, enum cn_arena arena, const float *values,
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

// Copies the first values of an arena.
static cn_err read_arena(struct cn_trainer *trainer, enum cn_arena arena, float *values,
                         size_t count)
{
    void *host;
    cn_err err = trainer->ops->map(trainer->device, arena, &host);

    if (err)
        return err;
    memcpy(values, host, count * sizeof(*values));
    return trainer->ops->unmap(trainer->device, arena);
}

// Reads a whole row of weights, of which the trainer keeps its share.
static cn_err load_share(struct cn_trainer *trainer, const struct cn_onnx *onnx)
{
    float *row = calloc(trainer->layout.total + 1, sizeof(*row));
    cn_err err = row ? cn_onnx_weights(onnx, &trainer->layout, row) : CN_ENOMEM;

    if (!err)
        err = cn_trainer_set_weights(trainer, row);
    free(row);
    return err;
}

static cn_err load_weights(struct cn_trainer *trainer, const struct cn_onnx *onnx)
{
    void *host;
    cn_err err;

    if (trainer->stage == CN_STAGE_WEIGHTS)
        return load_share(trainer, onnx);
    err = trainer->ops->map(trainer->device, CN_ARENA_WEIGHTS, &host);
    if (!err)
        err = cn_onnx_weights(onnx, &trainer->layout, host);
    return err ? err : trainer->ops->unmap(trainer->device, CN_ARENA_WEIGHTS);
}

static cn_err describe(struct cn_trainer *trainer, const struct cn_program *program)
{
    for (size_t i = 0; i < program->count; i++) {
        double flops = cn_describe_flops(&program->calls[i]);

        trainer->flops[0] += i <= program->loss ? flops : 0;
        trainer->flops[1] += flops;
    }
    trainer->calls = calloc(program->count + 1, sizeof(*trainer->calls));
    if (!trainer->calls)
        return CN_ENOMEM;
    memcpy(trainer->calls, program->calls, program->count * sizeof(*trainer->calls));
    trainer->call_count = program->count;
    trainer->loss_call = program->loss;
    return CN_OK;
}

void cn_trainer_flops(const struct cn_trainer *trainer, double *forward, double *step)
{
    *forward = trainer->flops[0];
    *step = trainer->flops[1];
}

// Returns the values of the largest share: a share has a part of each bucket, rounded up.
static cn_err state_room(const struct cn_trainer *trainer, size_t *room)
{
    const struct cn_gradient_order *order = &trainer->order;
    size_t *last = calloc(order->granules + 1, sizeof(*last)), first = 0;
    uint32_t count;

    *room = 0;
    if (!last)
        return CN_ENOMEM;
    count = cn_gradient_order_cut(order, cn_bucket_plan_words(order), CN_TRAINER_BUCKETS, last);
    for (uint32_t b = 0; b < count; b++) {
        size_t words = order->ends[last[b]] - first;

        *room += words / trainer->shards + (words % trainer->shards > 0);
        first += words;
    }
    free(last);
    return CN_OK;
}

static cn_err set_up(struct cn_trainer *trainer, const struct cn_onnx *onnx,
                     const struct cn_trainer_config *config, const struct cn_graph *graph,
                     struct cn_diag *diag)
{
    struct cn_program program;
    cn_err err;

    err = state_room(trainer, &trainer->state_room);
    if (!err)
        err = cn_trainer_fit(trainer, config, graph, diag, &program);
    if (err)
        return err;
    trainer->gradient_room = program.sizes.words[CN_ARENA_GRADIENTS];
    trainer->labels = program.labels;
    trainer->has_loss = program.has_loss;
    memcpy(trainer->inputs, program.inputs, sizeof(trainer->inputs));
    err = cn_batch_facts_init(graph, program.inputs + CN_GRAPH_INPUT_MAX, &trainer->facts);
    if (!err)
        err = describe(trainer, &program);
    if (!err)
        err = trainer->ops->reserve(trainer->device, &program.sizes, trainer->plan.batch);
    if (!err)
        err = cn_trainer_take_copies(trainer, &program.sizes);
    if (!err)
        err = prepare(trainer, graph, &program);
    cn_program_deinit(&program);
    if (!err)
        err = cn_trainer_set_buckets(trainer, SIZE_MAX);
    if (!err)
        err = prepare_flat(trainer, graph);
    if (!err)
        err =
            cn_trainer_write(trainer, CN_ARENA_CONSTANTS, graph->constants, graph->constant_count);
    return err ? err : load_weights(trainer, onnx);
}

static cn_err count_classes(struct cn_trainer *trainer)
{
    if (trainer->loss != CN_LOSS_CROSS_ENTROPY)
        return CN_OK;
    trainer->classes = calloc(trainer->shape.outputs, sizeof(*trainer->classes));
    return trainer->classes ? CN_OK : CN_ENOMEM;
}

static cn_err open_trainer(struct cn_trainer *trainer, const struct cn_onnx *onnx,
                           const struct cn_trainer_config *config, struct cn_diag *diag)
{
    struct cn_compute_config device = {
        .threads = config->threads, .precision = config->precision, .number = config->device};
    struct cn_graph graph;
    cn_err err;

    if (!config->batch) {
        cn_diag_add(diag, "the batch is 0, wanted at least 1");
        return CN_EINVAL;
    }
    err = trainer->ops->open(&device, &trainer->device);
    if (err == CN_ENOTSUP && config->precision != CN_PRECISION_FLOAT32)
        cn_diag_add(diag, "device %s computes in float32; wanted compute.precision: float32",
                    trainer->ops->name);
    if (err)
        return err;
    err = cn_trainer_import(onnx, trainer->loss, &trainer->rules, diag, &trainer->layout, &graph);
    if (err)
        return err;
    describe_sample(trainer, onnx, &graph);
    if (config->cut)
        err = cn_trainer_take_part(trainer, config, diag, &graph);
    if (!err) {
        describe_reads(trainer, &graph);
        err = cn_gradient_order(&graph, &trainer->layout, &trainer->order);
    }
    if (!err)
        err = set_up(trainer, onnx, config, &graph, diag);
    if (!err) // after the memory limit was checked: there may be any number of classes
        err = count_classes(trainer);
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
    if (config->rules)
        trainer->rules = *config->rules;
    trainer->learning_rate = config->learning_rate;
    trainer->rate_scale = 1;
    trainer->steps = config->steps;
    trainer->shards = config->shards > 1 ? config->shards : 1;
    trainer->stage =
        trainer->shards > 1 && config->stage ? (enum cn_stage)config->stage : CN_STAGE_OPTIMIZER;
    trainer->hyper = (struct cn_hyper){.momentum = config->momentum,
                                       .weight_decay = config->weight_decay,
                                       .proximal = (float)trainer->rules.proximal,
                                       .clip = (float)trainer->rules.clip,
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
    return trainer->plan.bytes;
}

const struct cn_trainer_plan *cn_trainer_plan(const struct cn_trainer *trainer)
{
    return &trainer->plan;
}

cn_err cn_trainer_get_weights(struct cn_trainer *trainer, float *weights)
{
    if (trainer->stage == CN_STAGE_WEIGHTS)
        return cn_trainer_get_own(trainer, weights);
    return read_arena(trainer, CN_ARENA_WEIGHTS, weights, trainer->layout.total);
}

cn_err cn_trainer_set_weights(struct cn_trainer *trainer, const float *weights)
{
    trainer->sharded.lent = NULL;
    if (trainer->stage == CN_STAGE_WEIGHTS)
        return cn_trainer_set_own(trainer, weights);
    return cn_trainer_write(trainer, CN_ARENA_WEIGHTS, weights, trainer->layout.total);
}

cn_err cn_trainer_lend_weights(struct cn_trainer *trainer, const float *weights)
{
    cn_err err = weights ? cn_trainer_set_weights(trainer, weights) : CN_OK;

    trainer->sharded.lent = trainer->stage == CN_STAGE_WEIGHTS ? weights : NULL;
    return err;
}

uint32_t cn_trainer_capability(const struct cn_trainer *trainer)
{
    return trainer->device->capability;
}

bool cn_trainer_has_second(const struct cn_trainer *trainer)
{
    return trainer->rules.optimizer != CN_OPTIMIZER_SGD;
}

cn_err cn_trainer_set_base(struct cn_trainer *trainer, const float *weights)
{
    if (!(trainer->rules.proximal > 0))
        return CN_OK;
    if (trainer->stage < CN_STAGE_WEIGHTS)
        return cn_trainer_write(trainer, CN_ARENA_BASE, weights, trainer->layout.total);
    return cn_trainer_set_shared_base(trainer, weights);
}

// Returns the name of the first tensor in layout order with a number that is not finite, or NULL.
static const char *find_tensor(const struct cn_trainer *trainer, const float *values,
                               bool gradients)
{
    const struct cn_layout *layout = &trainer->layout;

    for (size_t i = 0; i < layout->tensor_count; i++) {
        size_t at = gradients ? trainer->order.places[i] : layout->tensors[i].offset;

        for (size_t j = 0; at != SIZE_MAX && j < layout->tensors[i].count; j++)
            if (!isfinite(values[at + j]))
                return layout->tensors[i].name;
    }
    return NULL;
}

// Looks only at this member's share: no member has the whole gradient, so no tensor is named.
static cn_err find_fault_in_share(struct cn_trainer *trainer, char *text, size_t size)
{
    float *share;
    size_t count, i = 0;
    cn_err err = cn_trainer_share(trainer, &share, &count);

    while (!err && i < count && isfinite(share[i]))
        i++;
    snprintf(text, size, "%s", i < count ? "a gradient of this board's share" : "the loss");
    return err;
}

cn_err cn_trainer_find_fault(struct cn_trainer *trainer, char *text, size_t size)
{
    const char *name;
    float *gradients;
    void *weights;
    cn_err err;

    if (trainer->stage >= CN_STAGE_GRADIENTS)
        return find_fault_in_share(trainer, text, size);
    err = trainer->ops->map(trainer->device, CN_ARENA_WEIGHTS, &weights);
    if (err)
        return err;
    name = find_tensor(trainer, weights, false);
    err = trainer->ops->unmap(trainer->device, CN_ARENA_WEIGHTS);
    snprintf(text, size, name ? "the tensor %s" : "the loss", name);
    if (err || name)
        return err;
    err = cn_trainer_gradients(trainer, &gradients);
    name = err ? NULL : find_tensor(trainer, gradients, true);
    if (name)
        snprintf(text, size, "the gradient of %s", name);
    return err;
}
