#include "runtime/engine/program/program.h"

#include <stdlib.h>
#include <string.h>

#include "runtime/base/bytes.h"
#include "runtime/engine/program/plan.h"

#define NO_BLOCK SIZE_MAX

struct builder {
    const struct cn_graph *graph;
    const struct cn_compute_ops *ops;
    const struct cn_compute *device;
    uint32_t batch;
    uint32_t lane_batch;          // most samples of a lane
    uint32_t slots;               // 0: forward and backward calls are run as one list
    struct cn_plan_block *blocks; // owned: activations, then workspaces
    size_t block_count;
    size_t *block_of;  // owned; by root; NO_BLOCK unless it is an activation
    size_t *workspace; // owned; by node, NO_BLOCK when it needs none
    struct cn_program *program;
};

static cn_err workspace_block(struct builder *builder, size_t node)
{
    struct cn_call call = builder->graph->nodes[node].call;
    size_t words;
    cn_err err;

    for (int i = 0; i < CN_CALL_INPUTS; i++)
        if (builder->graph->nodes[node].in[i] != CN_GRAPH_NONE)
            call.in[i].arena = CN_ARENA_ACTIVATIONS;
    for (int i = 0; i < CN_CALL_OUTPUTS; i++)
        if (builder->graph->nodes[node].out[i] != CN_GRAPH_NONE)
            call.out[i].arena = CN_ARENA_ACTIVATIONS;
    builder->workspace[node] = NO_BLOCK;
    err = builder->ops->query(builder->device, &call, builder->lane_batch, &words);
    if (err || !words)
        return err;
    builder->workspace[node] = builder->block_count;
    builder->blocks[builder->block_count++] =
        (struct cn_plan_block){.words = words, .first = node, .last = node};
    return CN_OK;
}

// Extends the life of a value to a node that reads or writes it; the first one writes.
static cn_err touch(struct builder *builder, uint32_t value, size_t node)
{
    uint32_t root = value == CN_GRAPH_NONE ? value : cn_graph_root(builder->graph, value);
    size_t samples, words;

    if (value == CN_GRAPH_NONE || builder->graph->values[root].kind != CN_VALUE_ACTIVATION)
        return CN_OK;
    if (builder->block_of[root] != NO_BLOCK) {
        builder->blocks[builder->block_of[root]].last = node;
        return CN_OK;
    }
    samples = cn_graph_is_shared(&builder->graph->values[root]) ? 1 : builder->lane_batch;
    if (cn_size_multiply(builder->graph->values[root].words, samples, &words))
        return CN_ENOMEM;
    builder->block_of[root] = builder->block_count;
    builder->blocks[builder->block_count++] =
        (struct cn_plan_block){.words = words, .first = node, .last = node};
    return CN_OK;
}

static bool may_be_in_place(const struct cn_call *call)
{
    const struct cn_combine *op = &call->combine;

    if (call->op == CN_OP_MAP || call->op == CN_OP_MAP_GRAD)
        return true;
    return call->op == CN_OP_COMBINE && op->rank == 1 && op->a[0] == 1;
}

// Lets a node write over its first input when no later node reads that. last[root] is the last node
// that reads it.
static void try_in_place(struct builder *builder, const size_t *last, size_t index)
{
    const struct cn_graph *graph = builder->graph;
    const struct cn_node *node = &graph->nodes[index];
    uint32_t in, out;

    if (!may_be_in_place(&node->call))
        return;
    in = cn_graph_root(graph, node->in[0]);
    out = cn_graph_root(graph, node->out[0]);
    if (builder->block_of[in] == NO_BLOCK || builder->block_of[out] != NO_BLOCK ||
        last[in] != index || graph->values[in].words != graph->values[out].words ||
        cn_graph_is_shared(&graph->values[in]) != cn_graph_is_shared(&graph->values[out]))
        return;
    if (node->in[1] != CN_GRAPH_NONE && cn_graph_root(graph, node->in[1]) == in)
        return;
    builder->block_of[out] = builder->block_of[in];
}

static cn_err find_lives(struct builder *builder, size_t *last)
{
    const struct cn_graph *graph = builder->graph;
    cn_err err = CN_OK;

    for (size_t i = 0; i < graph->node_count; i++)
        for (int j = 0; j < CN_CALL_INPUTS; j++)
            if (graph->nodes[i].in[j] != CN_GRAPH_NONE)
                last[cn_graph_root(graph, graph->nodes[i].in[j])] = i;
    for (size_t i = 0; !err && i < graph->node_count; i++) {
        const struct cn_node *node = &graph->nodes[i];

        for (int j = 0; !err && j < CN_CALL_INPUTS; j++)
            err = touch(builder, node->in[j], i);
        if (!err)
            try_in_place(builder, last, i);
        for (int j = 0; !err && j < CN_CALL_OUTPUTS; j++)
            err = touch(builder, node->out[j], i);
        if (!err)
            err = workspace_block(builder, i);
    }
    return err;
}

static struct cn_operand operand_of(const struct builder *builder, uint32_t value)
{
    const struct cn_value *root;
    struct cn_operand operand = {.arena = CN_ARENA_NONE};

    if (value == CN_GRAPH_NONE)
        return operand;
    root = &builder->graph->values[cn_graph_root(builder->graph, value)];
    operand.offset = root->offset;
    operand.stride = cn_graph_is_shared(root) ? 0 : root->words;
    switch (root->kind) {
    case CN_VALUE_INPUT:
        operand.arena = CN_ARENA_BATCH;
        operand.offset = builder->program->inputs[root->offset];
        break;
    case CN_VALUE_LABELS:
        operand.arena = CN_ARENA_BATCH;
        operand.offset = builder->program->labels;
        break;
    case CN_VALUE_PARAM:
        operand.arena = CN_ARENA_WEIGHTS;
        break;
    case CN_VALUE_CONST:
        operand.arena = CN_ARENA_CONSTANTS;
        break;
    case CN_VALUE_GRADIENT:
        operand.arena = CN_ARENA_GRADIENTS;
        break;
    case CN_VALUE_BOUNDARY:
        operand.arena = CN_ARENA_BOUNDARY;
        operand.offset = root->offset * builder->batch;
        break;
    case CN_VALUE_ACTIVATION:
        operand.arena = CN_ARENA_ACTIVATIONS;
        operand.offset = builder->blocks[builder->block_of[root->root]].offset;
        break;
    case CN_VALUE_UNKNOWN:
    case CN_VALUE_UNIFORM:
    case CN_VALUE_NUMBERED:
    case CN_VALUE_SHAPE:
        break;
    }
    return operand;
}

static void resolve(struct builder *builder)
{
    const struct cn_graph *graph = builder->graph;

    for (size_t i = 0; i < graph->node_count; i++) {
        struct cn_call *call = &builder->program->calls[i];

        *call = graph->nodes[i].call;
        for (int j = 0; j < CN_CALL_INPUTS; j++)
            call->in[j] = operand_of(builder, graph->nodes[i].in[j]);
        for (int j = 0; j < CN_CALL_OUTPUTS; j++)
            call->out[j] = operand_of(builder, graph->nodes[i].out[j]);
        if (builder->workspace[i] != NO_BLOCK)
            call->workspace =
                (struct cn_operand){.arena = CN_ARENA_ACTIVATIONS,
                                    .offset = builder->blocks[builder->workspace[i]].offset};
    }
}

// Places the batch arena: a batch of each input after the other, the labels, a row for each fact.
static cn_err plan_batch(struct builder *builder)
{
    const struct cn_graph *graph = builder->graph;
    struct cn_program *program = builder->program;
    size_t end = 0;

    for (uint32_t i = 0; i <= graph->input_count; i++) {
        uint32_t value = i < graph->input_count ? graph->inputs[i] : graph->labels;
        size_t words = 0;

        if (i < graph->input_count)
            program->inputs[i] = end;
        else
            program->labels = end;
        if (value == CN_GRAPH_NONE || (i < graph->input_count && (graph->unread_inputs >> i & 1)))
            continue;
        if (cn_size_multiply(graph->values[value].words, builder->batch, &words) ||
            words > SIZE_MAX / 64)
            return CN_ENOMEM;
        end += i < graph->input_count
                   ? (words + CN_PLAN_ALIGNMENT - 1) / CN_PLAN_ALIGNMENT * CN_PLAN_ALIGNMENT
                   : words;
    }
    for (uint32_t i = 0; i < graph->fact_count; i++) {
        end = (end + CN_PLAN_ALIGNMENT - 1) / CN_PLAN_ALIGNMENT * CN_PLAN_ALIGNMENT;
        program->inputs[CN_GRAPH_INPUT_MAX + i] = end;
        end += graph->values[graph->facts[i].value].words;
    }
    program->sizes.words[CN_ARENA_BATCH] = end;
    return CN_OK;
}

// Makes room for all slots in an arena that has `shared` words and the words of one slot.
static cn_err add_slots(const struct builder *builder, enum cn_arena arena, size_t shared,
                        size_t words)
{
    struct cn_program *program = builder->program;
    size_t all;

    shared = (shared + CN_PLAN_ALIGNMENT - 1) / CN_PLAN_ALIGNMENT * CN_PLAN_ALIGNMENT;
    words = (words + CN_PLAN_ALIGNMENT - 1) / CN_PLAN_ALIGNMENT * CN_PLAN_ALIGNMENT;
    if (cn_size_multiply(words, builder->slots, &all) || __builtin_add_overflow(all, shared, &all))
        return CN_ENOMEM;
    program->slots[arena] = (struct cn_program_slot){shared, words};
    program->sizes.words[arena] = all;
    return CN_OK;
}

// Places the blocks whose life crosses the end of the forward pass, or with crossing false all
// others, from word `first` on. *words is the memory that they need together.
static cn_err place_blocks(struct builder *builder, bool crossing, size_t first, size_t *words)
{
    size_t loss = builder->graph->loss, count = 0;
    struct cn_plan_block *chosen = calloc(builder->block_count + 1, sizeof(*chosen));
    size_t *at = calloc(builder->block_count + 1, sizeof(*at));
    cn_err err = chosen && at ? CN_OK : CN_ENOMEM;

    for (size_t i = 0; !err && i < builder->block_count; i++)
        if ((builder->blocks[i].first <= loss && builder->blocks[i].last > loss) == crossing) {
            at[count] = i;
            chosen[count++] = builder->blocks[i];
        }
    if (!err)
        err = cn_plan_place(chosen, count, words);
    for (size_t i = 0; !err && i < count; i++)
        builder->blocks[at[i]].offset = first + chosen[i].offset;
    free(chosen);
    free(at);
    return err;
}

// Places what a micro-batch keeps from its forward to its backward calls in a slot. All other
// blocks lie before the slots, and the slots share them: runs do not overlap.
static cn_err plan_slots(struct builder *builder)
{
    struct cn_program *program = builder->program;
    size_t passing = 0, kept = 0, boundary = 0;
    cn_err err = place_blocks(builder, false, 0, &passing);

    passing = (passing + CN_PLAN_ALIGNMENT - 1) / CN_PLAN_ALIGNMENT * CN_PLAN_ALIGNMENT;
    if (!err)
        err = place_blocks(builder, true, passing, &kept);
    if (!err)
        err = add_slots(builder, CN_ARENA_ACTIVATIONS, passing, kept);
    if (!err)
        err = add_slots(builder, CN_ARENA_BATCH, 0, program->sizes.words[CN_ARENA_BATCH]);
    if (!err && cn_size_multiply(builder->graph->boundary_words, builder->batch, &boundary))
        err = CN_ENOMEM;
    return err ? err : add_slots(builder, CN_ARENA_BOUNDARY, 0, boundary);
}

static cn_err build(struct builder *builder, size_t total)
{
    const struct cn_graph *graph = builder->graph;
    struct cn_program *program = builder->program;
    size_t *last = calloc(graph->value_count + 1, sizeof(*last));
    cn_err err = last ? find_lives(builder, last) : CN_ENOMEM;

    free(last);
    if (!err)
        err = plan_batch(builder);
    if (!err)
        err = builder->slots ? plan_slots(builder)
                             : cn_plan_place(builder->blocks, builder->block_count,
                                             &program->sizes.words[CN_ARENA_ACTIVATIONS]);
    if (err)
        return err;
    program->sizes.words[CN_ARENA_WEIGHTS] = total;
    program->sizes.words[CN_ARENA_OPTIMIZER] = total;
    program->sizes.words[CN_ARENA_GRADIENTS] = total;
    program->sizes.words[CN_ARENA_CONSTANTS] = graph->constant_count;
    resolve(builder);
    return CN_OK;
}

cn_err cn_program_build(const struct cn_graph *graph, const struct cn_compute_ops *ops,
                        const struct cn_compute *device, uint32_t batch, uint32_t slots,
                        size_t total, struct cn_program *program)
{
    const struct cn_call *last = &graph->nodes[graph->loss].call;
    uint32_t lanes = ops->lanes(device);
    struct builder builder = {
        .graph = graph,
        .ops = ops,
        .device = device,
        .batch = batch,
        .lane_batch = batch / lanes + (batch % lanes != 0),
        .slots = slots,
        .blocks = calloc(graph->value_count + graph->node_count + 1, sizeof(*builder.blocks)),
        .block_of = malloc((graph->value_count + 1) * sizeof(*builder.block_of)),
        .workspace = malloc((graph->node_count + 1) * sizeof(*builder.workspace)),
        .program = program,
    };
    cn_err err = CN_ENOMEM;

    *program = (struct cn_program){
        .count = graph->node_count,
        .loss = graph->loss,
        .has_loss = last->op >= CN_OP_CROSS_ENTROPY && last->op <= CN_OP_MEAN_LOSS,
    };
    program->calls = calloc(graph->node_count + 1, sizeof(*program->calls));
    if (builder.blocks && builder.block_of && builder.workspace && program->calls) {
        for (size_t i = 0; i < graph->value_count; i++)
            builder.block_of[i] = NO_BLOCK;
        err = build(&builder, total);
    }
    free(builder.blocks);
    free(builder.block_of);
    free(builder.workspace);
    if (err)
        cn_program_deinit(program);
    return err;
}

void cn_program_deinit(struct cn_program *program)
{
    if (!program)
        return;
    free(program->calls);
    *program = (struct cn_program){0};
}

void cn_program_evaluate(struct cn_program *program)
{
    static const struct cn_operand none = {.arena = CN_ARENA_NONE};

    for (size_t i = 0; i <= program->loss; i++) {
        struct cn_call *call = &program->calls[i];

        if (call->op == CN_OP_BATCH_NORM) {
            call->batch_norm.frozen = true;
            call->out[2] = call->out[3] = none;
        } else if (call->op == CN_OP_DROPOUT) {
            call->dropout.rate = 0;
        }
    }
    if (program->has_loss)
        program->calls[program->loss].out[0] = none;
}

static void move(const struct cn_program *program, uint32_t slot, struct cn_operand *operand)
{
    const struct cn_program_slot *in = &program->slots[operand->arena];

    if (operand->arena != CN_ARENA_NONE && operand->offset >= in->first)
        operand->offset += slot * in->words;
}

void cn_program_move(const struct cn_program *program, const struct cn_call *calls, size_t count,
                     uint32_t slot, struct cn_call *moved)
{
    for (size_t i = 0; i < count; i++) {
        moved[i] = calls[i];
        for (int j = 0; j < CN_CALL_INPUTS; j++)
            move(program, slot, &moved[i].in[j]);
        for (int j = 0; j < CN_CALL_OUTPUTS; j++)
            move(program, slot, &moved[i].out[j]);
        move(program, slot, &moved[i].workspace);
    }
}

cn_err cn_program_memory(const struct cn_program *program, uint32_t lanes, uint64_t *bytes)
{
    uint64_t total = 0;

    for (int i = 1; i < CN_ARENA_COUNT; i++) {
        uint64_t copies = i == CN_ARENA_GRADIENTS || i == CN_ARENA_ACTIVATIONS ? lanes : 1;
        uint64_t size;

        if (__builtin_mul_overflow(program->sizes.words[i], copies * sizeof(float), &size) ||
            __builtin_add_overflow(total, size, &total))
            return CN_ENOMEM;
    }
    *bytes = total;
    return CN_OK;
}
