#include "runtime/engine/passes.h"

#include <stdlib.h>
#include <string.h>

// How often each value's memory is read, the graph's output included; indexed by root.
static void count_uses(const struct cn_graph *graph, uint32_t *uses)
{
    memset(uses, 0, graph->value_count * sizeof(*uses));
    uses[cn_graph_root(graph, graph->output)]++;
    for (size_t i = 0; i < graph->node_count; i++)
        for (int j = 0; j < CN_CALL_INPUTS; j++)
            if (graph->nodes[i].in[j] != CN_GRAPH_NONE)
                uses[cn_graph_root(graph, graph->nodes[i].in[j])]++;
}

static void drop_unused(struct cn_graph *graph, uint32_t *uses)
{
    size_t kept = graph->node_count;

    count_uses(graph, uses);
    // Backwards, so that a node falls with its last reader. Only out[0] of a forward node is read.
    for (size_t i = graph->node_count; i-- > 0;) {
        struct cn_node *node = &graph->nodes[i];

        if (uses[cn_graph_root(graph, node->out[0])]) {
            graph->nodes[--kept] = *node;
            continue;
        }
        for (int j = 0; j < CN_CALL_INPUTS; j++)
            if (node->in[j] != CN_GRAPH_NONE)
                uses[cn_graph_root(graph, node->in[j])]--;
    }
    graph->node_count -= kept;
    memmove(graph->nodes, graph->nodes + kept, graph->node_count * sizeof(*graph->nodes));
}

// The node whose output is value, when this is its only reader and nothing lies in between.
static struct cn_node *sole_maker(struct cn_graph *graph, const uint32_t *uses, size_t reader,
                                  uint32_t value)
{
    uint32_t root = cn_graph_root(graph, value);

    if (uses[root] != 1)
        return NULL;
    for (size_t i = reader; i-- > 0;)
        if (graph->nodes[i].out[0] == root)
            return &graph->nodes[i];
    return NULL;
}

// Lets maker write what node wrote and leaves node without an output, to be dropped.
static void take_over(struct cn_node *maker, struct cn_node *node)
{
    uint32_t out = node->out[0];

    node->out[0] = maker->out[0];
    maker->out[0] = out;
}

// Numbers of a row that repeats for every row of the result: strides 0, ..., 0, 1.
static bool repeats_row(const struct cn_combine *op, size_t cols)
{
    uint32_t last = op->rank - 1;

    for (uint32_t d = 0; d < last; d++)
        if (op->b[d])
            return false;
    return op->b[last] == 1 && op->dims[last] == cols;
}

static void swap_operands(struct cn_node *node)
{
    struct cn_combine *op = &node->call.combine;
    uint32_t in = node->in[0];
    size_t strides[CN_COMBINE_RANK_MAX];

    node->in[0] = node->in[1];
    node->in[1] = in;
    memcpy(strides, op->a, sizeof(strides));
    memcpy(op->a, op->b, sizeof(strides));
    memcpy(op->b, strides, sizeof(strides));
}

static void fuse_bias(struct cn_graph *graph, const uint32_t *uses, size_t index)
{
    struct cn_node *node = &graph->nodes[index];
    struct cn_node *maker;

    if (node->call.op != CN_OP_COMBINE || node->call.combine.kind != CN_COMBINE_ADD)
        return;
    if (graph->values[node->in[0]].kind == CN_VALUE_PARAM)
        swap_operands(node);
    if (graph->values[node->in[1]].kind != CN_VALUE_PARAM)
        return;
    maker = sole_maker(graph, uses, index, node->in[0]);
    if (!maker || maker->call.op != CN_OP_MATMUL || maker->in[2] != CN_GRAPH_NONE ||
        maker->call.matmul.relu || !repeats_row(&node->call.combine, maker->call.matmul.cols) ||
        graph->values[maker->out[0]].words != graph->values[node->out[0]].words)
        return;
    maker->in[2] = node->in[1];
    maker->call.matmul.bias_scale = 1;
    take_over(maker, node);
}

static void fuse_relu(struct cn_graph *graph, const uint32_t *uses, size_t index)
{
    struct cn_node *node = &graph->nodes[index];
    struct cn_node *maker;

    if (node->call.op != CN_OP_MAP || node->call.map.kind != CN_MAP_RELU)
        return;
    maker = sole_maker(graph, uses, index, node->in[0]);
    if (!maker)
        return;
    if (maker->call.op == CN_OP_MATMUL && !maker->call.matmul.relu)
        maker->call.matmul.relu = true;
    else if (maker->call.op == CN_OP_CONV && !maker->call.window.relu)
        maker->call.window.relu = true;
    else
        return;
    take_over(maker, node);
}

cn_err cn_passes_run(struct cn_graph *graph)
{
    uint32_t *uses = malloc(graph->value_count * sizeof(*uses));

    if (!uses)
        return CN_ENOMEM;
    drop_unused(graph, uses);
    for (size_t i = 0; i < graph->node_count; i++)
        fuse_bias(graph, uses, i);
    drop_unused(graph, uses);
    count_uses(graph, uses);
    for (size_t i = 0; i < graph->node_count; i++)
        fuse_relu(graph, uses, i);
    drop_unused(graph, uses);
    free(uses);
    return CN_OK;
}
