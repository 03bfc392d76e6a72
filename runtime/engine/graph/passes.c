#include "runtime/engine/graph/passes.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/engine/graph/passes_private.h"

// Counts how often each value's memory is read, also by the loss, which is added later.
static void count_uses(const struct cn_graph *graph, uint32_t *uses)
{
    memset(uses, 0, graph->value_count * sizeof(*uses));
    uses[cn_graph_root(graph, graph->output)]++;
    if (graph->head == CN_HEAD_ENTROPY && graph->head_weights != CN_GRAPH_NONE)
        uses[cn_graph_root(graph, graph->head_weights)]++;
    for (size_t i = 0; i < graph->node_count; i++)
        for (int j = 0; j < CN_CALL_INPUTS; j++)
            if (graph->nodes[i].in[j] != CN_GRAPH_NONE)
                uses[cn_graph_root(graph, graph->nodes[i].in[j])]++;
}

// Returns whether anything reads an output of the node.
static bool is_read(const struct cn_graph *graph, const struct cn_node *node, const uint32_t *uses)
{
    for (int j = 0; j < CN_CALL_OUTPUTS; j++)
        if (node->out[j] != CN_GRAPH_NONE && uses[cn_graph_root(graph, node->out[j])])
            return true;
    return false;
}

static void drop_unused(struct cn_graph *graph, uint32_t *uses)
{
    size_t kept = graph->node_count;

    count_uses(graph, uses);
    // Runs backwards, so that a node is dropped after the last node that reads it.
    for (size_t i = graph->node_count; i-- > 0;) {
        struct cn_node *node = &graph->nodes[i];

        if (is_read(graph, node, uses)) {
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

static void look(struct passes *passes)
{
    const struct cn_graph *graph = passes->graph;

    count_uses(graph, passes->uses);
    for (size_t i = 0; i < graph->value_count; i++)
        passes->maker[i] = CN_GRAPH_NONE;
    for (size_t i = 0; i < graph->node_count; i++)
        passes->maker[cn_graph_root(graph, graph->nodes[i].out[0])] = (uint32_t)i;
}

struct cn_node *cn_passes_sole_maker(const struct passes *passes, uint32_t value)
{
    uint32_t root = cn_graph_root(passes->graph, value);
    struct cn_node *maker;

    if (passes->uses[root] != 1 || passes->maker[root] == CN_GRAPH_NONE)
        return NULL;
    maker = &passes->graph->nodes[passes->maker[root]];
    return maker->out[0] == root ? maker : NULL;
}

void cn_passes_disconnect(struct cn_node *node, uint32_t unread)
{
    for (int j = 0; j < CN_CALL_INPUTS; j++)
        node->in[j] = CN_GRAPH_NONE;
    node->out[0] = unread;
}

void cn_passes_take_over(struct passes *passes, struct cn_node *maker, struct cn_node *node)
{
    uint32_t unread = maker->out[0];

    maker->out[0] = node->out[0];
    passes->maker[cn_graph_root(passes->graph, maker->out[0])] =
        (uint32_t)(maker - passes->graph->nodes);
    cn_passes_disconnect(node, unread);
}

// Returns whether b is a row that repeats for every row of the result: strides 0, ..., 0, 1.
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

static bool is_add(const struct cn_node *node)
{
    return node->call.op == CN_OP_COMBINE && node->call.combine.kind == CN_COMBINE_ADD;
}

// Merges a product with the row of biases added to it.
static void fuse_bias(struct passes *passes, size_t index)
{
    struct cn_graph *graph = passes->graph;
    struct cn_node *node = &graph->nodes[index];
    struct cn_node *maker;

    if (!is_add(node))
        return;
    if (graph->values[node->in[0]].kind == CN_VALUE_PARAM)
        swap_operands(node);
    if (graph->values[node->in[1]].kind != CN_VALUE_PARAM)
        return;
    maker = cn_passes_sole_maker(passes, node->in[0]);
    if (!maker || maker->call.op != CN_OP_MATMUL || maker->in[2] != CN_GRAPH_NONE ||
        maker->call.matmul.relu || !repeats_row(&node->call.combine, maker->call.matmul.cols) ||
        graph->values[maker->out[0]].words != graph->values[node->out[0]].words)
        return;
    maker->in[2] = node->in[1];
    maker->call.matmul.bias_scale = 1;
    cn_passes_take_over(passes, maker, node);
}

// Returns whether element i of a meets element i of b, for each sample.
static bool is_plain(const struct cn_graph *graph, const struct cn_node *node)
{
    const struct cn_combine *op = &node->call.combine;

    return op->rank == 1 && op->a[0] == 1 && op->b[0] == 1 && graph->values[node->in[0]].batched &&
           graph->values[node->in[1]].batched;
}

// Merges normalized + residual. The normalization moves to where the residual has been computed.
static void fuse_residual(struct passes *passes, size_t index)
{
    struct cn_graph *graph = passes->graph;
    struct cn_node *node = &graph->nodes[index];

    if (!is_add(node) || !is_plain(graph, node) || node->in[0] == node->in[1])
        return;
    for (int side = 0; side < 2; side++) {
        struct cn_node *maker = cn_passes_sole_maker(passes, node->in[side]);
        struct cn_node fused;

        if (!maker || maker->call.op != CN_OP_BATCH_NORM || maker->in[5] != CN_GRAPH_NONE ||
            maker->call.batch_norm.relu)
            continue;
        fused = *maker;
        fused.in[5] = node->in[1 - side];
        fused.out[0] = node->out[0];
        cn_passes_disconnect(maker, maker->out[0]);
        *node = fused;
        return;
    }
}

static void fuse_relu(struct passes *passes, size_t index)
{
    struct cn_node *node = &passes->graph->nodes[index];
    struct cn_node *maker;
    bool *relu;

    if (node->call.op != CN_OP_MAP || node->call.map.kind != CN_MAP_RELU)
        return;
    maker = cn_passes_sole_maker(passes, node->in[0]);
    if (!maker)
        return;
    switch (maker->call.op) {
    case CN_OP_MATMUL:
        relu = &maker->call.matmul.relu;
        break;
    case CN_OP_CONV:
        relu = &maker->call.window.relu;
        break;
    case CN_OP_BATCH_NORM:
        relu = &maker->call.batch_norm.relu;
        break;
    default:
        return;
    }
    if (*relu)
        return;
    *relu = true;
    cn_passes_take_over(passes, maker, node);
}

// --- GELU as exporters write it: x / 2 * (1 + f(x)) ---

// Returns the sole maker of value if it is this map with about these numbers, else NULL.
static struct cn_node *map_of(const struct passes *passes, uint32_t value, enum cn_map_kind kind,
                              double alpha, double beta)
{
    struct cn_node *maker = cn_passes_sole_maker(passes, value);

    if (!maker || maker->call.op != CN_OP_MAP || maker->call.map.kind != kind ||
        fabs((double)maker->call.map.alpha - alpha) > 1e-6 ||
        fabs((double)maker->call.map.beta - beta) > 1e-6)
        return NULL;
    return maker;
}

static bool same(const struct passes *passes, uint32_t a, uint32_t b)
{
    return cn_graph_root(passes->graph, a) == cn_graph_root(passes->graph, b);
}

// Returns the sole maker of value if it computes x op other for the given x, else NULL.
static struct cn_node *pair_of(const struct passes *passes, uint32_t value,
                               enum cn_combine_kind kind, uint32_t x, uint32_t *other)
{
    struct cn_node *maker = cn_passes_sole_maker(passes, value);
    int side;

    if (!maker || maker->call.op != CN_OP_COMBINE || maker->call.combine.kind != kind ||
        !is_plain(passes->graph, maker))
        return NULL;
    side = same(passes, maker->in[0], x) ? 0 : 1;
    if (!same(passes, maker->in[side], x))
        return NULL;
    *other = maker->in[1 - side];
    return maker;
}

#define GELU_NODES 9

// The nodes of a GELU that are merged into one.
struct gelu {
    struct cn_node *nodes[GELU_NODES];
    size_t count;
    enum cn_map_kind kind;
};

// Records a node; false when there is none.
static bool keep(struct gelu *gelu, struct cn_node *node)
{
    if (!node || gelu->count == GELU_NODES)
        return false;
    gelu->nodes[gelu->count++] = node;
    return true;
}

#define LAST(gelu) ((gelu)->nodes[(gelu)->count - 1])

// Returns whether value is x ^ 3, made by a power or by products.
static bool is_cube(const struct passes *passes, uint32_t value, uint32_t x, struct gelu *gelu)
{
    struct cn_node *power = map_of(passes, value, CN_MAP_POWER, 3, 0);
    uint32_t square, again;

    if (power)
        return same(passes, power->in[0], x) && keep(gelu, power);
    return keep(gelu, pair_of(passes, value, CN_COMBINE_MUL, x, &square)) &&
           keep(gelu, pair_of(passes, square, CN_COMBINE_MUL, x, &again)) && same(passes, again, x);
}

// Returns whether value is f: erf(x / sqrt(2)) or tanh(sqrt(2 / pi) (x + 0.044715 x^3)).
static bool is_bend(const struct passes *passes, uint32_t value, uint32_t x, struct gelu *gelu)
{
    struct cn_node *erf = map_of(passes, value, CN_MAP_ERF, 0, 0);
    uint32_t cube;

    gelu->kind = CN_MAP_GELU;
    if (erf)
        return keep(gelu, erf) &&
               keep(gelu, map_of(passes, erf->in[0], CN_MAP_SCALE, 0.70710678, 0)) &&
               same(passes, LAST(gelu)->in[0], x);
    gelu->kind = CN_MAP_GELU_TANH;
    return keep(gelu, map_of(passes, value, CN_MAP_TANH, 0, 0)) &&
           keep(gelu, map_of(passes, LAST(gelu)->in[0], CN_MAP_SCALE, 0.79788456, 0)) &&
           keep(gelu, pair_of(passes, LAST(gelu)->in[0], CN_COMBINE_ADD, x, &cube)) &&
           keep(gelu, map_of(passes, cube, CN_MAP_SCALE, 0.044715, 0)) &&
           is_cube(passes, LAST(gelu)->in[0], x, gelu);
}

// Returns whether value is 1 + f.
static bool is_gate(const struct passes *passes, uint32_t value, uint32_t x, struct gelu *gelu)
{
    return keep(gelu, map_of(passes, value, CN_MAP_SCALE, 1, 1)) &&
           is_bend(passes, LAST(gelu)->in[0], x, gelu);
}

// Returns whether node ends a GELU of x. Exporters halve the product or its factor x.
static bool is_gelu(const struct passes *passes, const struct cn_node *node, uint32_t *x,
                    struct gelu *gelu)
{
    const struct cn_node *product = node;
    struct cn_node *half;

    gelu->count = 0;
    if (node->call.op == CN_OP_MAP && node->call.map.kind == CN_MAP_SCALE &&
        node->call.map.alpha == 0.5f && node->call.map.beta == 0) {
        product = cn_passes_sole_maker(passes, node->in[0]);
        if (!keep(gelu, cn_passes_sole_maker(passes, node->in[0])))
            return false;
    }
    if (product->call.op != CN_OP_COMBINE || product->call.combine.kind != CN_COMBINE_MUL ||
        !is_plain(passes->graph, product))
        return false;
    for (int side = 0; side < 2; side++) {
        size_t before = gelu->count;

        *x = product->in[side];
        half = product == node ? map_of(passes, *x, CN_MAP_SCALE, 0.5, 0) : NULL;
        if (half)
            *x = half->in[0];
        if ((product != node || keep(gelu, half)) &&
            is_gate(passes, product->in[1 - side], *x, gelu))
            return true;
        gelu->count = before;
    }
    return false;
}

static void fuse_gelu(struct passes *passes, size_t index)
{
    struct cn_node *node = &passes->graph->nodes[index], fused = cn_graph_node(CN_OP_MAP);
    struct gelu gelu;
    uint32_t x;

    if (!is_gelu(passes, node, &x, &gelu))
        return;
    for (size_t i = 0; i < gelu.count; i++)
        cn_passes_disconnect(gelu.nodes[i], gelu.nodes[i]->out[0]);
    fused.call.map =
        (struct cn_map){.kind = gelu.kind, .count = passes->graph->values[node->out[0]].words};
    fused.in[0] = x;
    fused.out[0] = node->out[0];
    *node = fused;
}

cn_err cn_passes_run(struct cn_graph *graph)
{
    static cn_passes_fn *const fusions[] = {fuse_bias,           fuse_residual,
                                            fuse_relu,           fuse_gelu,
                                            cn_passes_attention, cn_passes_attention_result};
    size_t room = graph->value_count + 2 * graph->node_count + 1;
    struct passes passes = {
        .graph = graph,
        .uses = malloc(room * sizeof(*passes.uses)),
        .maker = malloc(room * sizeof(*passes.maker)),
    };
    cn_err err = CN_ENOMEM;

    if (passes.uses && passes.maker) {
        drop_unused(graph, passes.uses);
        for (size_t f = 0; f < sizeof(fusions) / sizeof(fusions[0]); f++) {
            look(&passes);
            for (size_t i = 0; !passes.err && i < graph->node_count; i++)
                fusions[f](&passes, i);
            drop_unused(graph, passes.uses);
        }
        err = passes.err ? passes.err : cn_graph_drop_constants(graph);
    }
    free(passes.uses);
    free(passes.maker);
    return err;
}
