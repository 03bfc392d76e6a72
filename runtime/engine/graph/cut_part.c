// cut_part.c - makes the graph of one part, with its layout and its messages.
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/engine/graph/cut_private.h"

// Arrays by value cover the values of the whole graph; the part's graph has the same values until
// they are packed.
struct maker {
    const struct cn_graph *whole;
    const struct cn_layout *layout; // layout of the whole graph
    const struct cn_cut *cut;
    uint32_t index;
    struct cn_cut_part *part;
    struct cn_cut_span *spans; // owned; by root
    uint32_t *holders;         // owned; by tensor of the whole layout
    uint32_t *tensor_of;       // owned; by root of a parameter or its gradient: its tensor
    bool *written;             // owned; by root of a gradient: a node of the part has written it
    uint32_t *map;             // owned; by value: its index in the part, or CN_GRAPH_NONE
    struct cn_node *nodes;     // owned
    size_t node_count;
};

static bool is_of(const struct cn_graph *graph, uint32_t value, enum cn_value_kind kind)
{
    return value != CN_GRAPH_NONE && graph->values[cn_graph_root(graph, value)].kind == kind;
}

uint32_t cn_cut_tensor_at(const struct cn_layout *layout, size_t word)
{
    size_t low = 0, high = layout->tensor_count;

    while (low + 1 < high) {
        size_t middle = low + (high - low) / 2;

        if (layout->tensors[middle].offset <= word)
            low = middle;
        else
            high = middle;
    }
    while (low > 0 && !layout->tensors[low].count)
        low--;
    return (uint32_t)low;
}

// Finds the tensors, and the parts that read each.
static void find_holders(struct maker *maker)
{
    const struct cn_graph *graph = maker->whole;

    for (size_t i = 0; i < graph->value_count; i++)
        if (graph->values[i].kind == CN_VALUE_PARAM)
            maker->tensor_of[i] = cn_cut_tensor_at(maker->layout, graph->values[i].offset);
        else if (graph->values[i].kind == CN_VALUE_GRADIENT)
            maker->tensor_of[i] = cn_cut_tensor_at(maker->layout, graph->values[i].parameter);
    for (size_t i = 0; i < graph->node_count; i++)
        for (int j = 0; j < CN_CALL_INPUTS; j++)
            if (is_of(graph, graph->nodes[i].in[j], CN_VALUE_PARAM))
                maker->holders[maker->tensor_of[cn_graph_root(graph, graph->nodes[i].in[j])]] |=
                    1u << cn_cut_part_of(maker->cut, graph->nodes[i].origin);
    for (size_t t = 0; t < maker->layout->tensor_count; t++)
        if (!maker->holders[t])
            maker->holders[t] = 1;
}

cn_err cn_cut_holders(const struct cn_graph *graph, const struct cn_layout *layout,
                      const struct cn_cut *cut, uint32_t *holders)
{
    struct maker maker = {
        .whole = graph,
        .layout = layout,
        .cut = cut,
        .holders = holders,
        .tensor_of = calloc(graph->value_count + 1, sizeof(*maker.tensor_of)),
    };

    if (!maker.tensor_of)
        return CN_ENOMEM;
    memset(holders, 0, layout->tensor_count * sizeof(*holders));
    find_holders(&maker);
    free(maker.tensor_of);
    return CN_OK;
}

static bool holds(const struct maker *maker, size_t tensor)
{
    return maker->holders[tensor] >> maker->index & 1;
}

// --- nodes ---

static void add_clear(struct maker *maker, uint32_t gradient, uint32_t origin)
{
    struct cn_node fill = cn_graph_node(CN_OP_FILL);

    fill.call.write = CN_WRITE_STEP;
    fill.call.fill.count = maker->whole->values[gradient].words;
    fill.out[0] = gradient;
    fill.origin = origin;
    maker->nodes[maker->node_count++] = fill;
}

// In a step the first node that writes a gradient sets it. For a tensor that a later part holds
// too, that node may lie there. Then the first one of this part takes its role: it sets its only
// output, or clears what it adds to.
static void begin_gradients(struct maker *maker, struct cn_node *node)
{
    const struct cn_graph *graph = maker->whole;
    uint32_t first[CN_CALL_OUTPUTS];
    size_t count = 0, shared = 0;

    for (int j = 0; j < CN_CALL_OUTPUTS; j++) {
        if (node->out[j] == CN_GRAPH_NONE)
            continue;
        shared += cn_graph_is_shared(&graph->values[cn_graph_root(graph, node->out[j])]);
        if (!is_of(graph, node->out[j], CN_VALUE_GRADIENT) ||
            maker->written[cn_graph_root(graph, node->out[j])])
            continue;
        first[count] = cn_graph_root(graph, node->out[j]);
        maker->written[first[count++]] = true;
    }
    if (!count || node->call.write == CN_WRITE_STEP)
        return;
    if (shared == 1 && node->call.op != CN_OP_COPY) {
        node->call.write = CN_WRITE_STEP;
        return;
    }
    for (size_t i = 0; i < count; i++)
        add_clear(maker, first[i], node->origin);
}

static bool is_mine(const struct maker *maker, size_t node)
{
    return cn_cut_part_of(maker->cut, maker->whole->nodes[node].origin) == maker->index;
}

static void add_nodes(struct maker *maker, size_t from, size_t to)
{
    for (size_t i = from; i < to; i++) {
        struct cn_node node = maker->whole->nodes[i];

        if (!is_mine(maker, i))
            continue;
        begin_gradients(maker, &node);
        maker->nodes[maker->node_count++] = node;
    }
}

// Clears the gradients of tensors that the part holds and does not add to. The sum over the holders
// of such a tensor is then the sum of the other parts' gradients.
static void clear_others(struct maker *maker)
{
    const struct cn_graph *graph = maker->whole;
    size_t last = maker->node_count - 1;

    for (uint32_t i = 0; i < graph->value_count; i++)
        if (graph->values[i].kind == CN_VALUE_GRADIENT && graph->values[i].root == i &&
            holds(maker, maker->tensor_of[i]) && !maker->written[i])
            add_clear(maker, i, maker->nodes[last].origin);
}

static void select_nodes(struct maker *maker)
{
    const struct cn_graph *whole = maker->whole;
    size_t forward, before = maker->index ? maker->cut->places[maker->index - 1] : 0;

    add_nodes(maker, 0, whole->loss + 1);
    forward = maker->node_count;
    add_nodes(maker, whole->loss + 1, whole->node_count);
    clear_others(maker);
    for (size_t i = 0; i < maker->node_count; i++)
        maker->nodes[i].origin -= (uint32_t)before;
    maker->part->graph.loss = forward - 1;
}

// --- messages ---

static bool is_in_message(const struct maker *maker, const struct cn_cut_span *span,
                          enum cn_boundary which)
{
    bool before = which == CN_BOUNDARY_INPUTS || which == CN_BOUNDARY_INPUT_GRADIENTS;
    bool gradient = which == CN_BOUNDARY_OUTPUT_GRADIENTS || which == CN_BOUNDARY_INPUT_GRADIENTS;
    uint32_t place = before ? maker->index - 1 : maker->index;

    if (before ? maker->index == 0 : maker->index + 1 == maker->cut->parts)
        return false;
    return span->gradient == gradient && cn_cut_crosses(span, maker->cut->places[place]);
}

static cn_err list_message(struct maker *maker, enum cn_boundary which)
{
    struct cn_cut_message *message = &maker->part->messages[which];
    struct cn_graph *graph = &maker->part->graph;
    size_t count = 0;

    for (size_t i = 0; i < maker->whole->value_count; i++)
        count += is_in_message(maker, &maker->spans[i], which);
    message->values = calloc(count + 1, sizeof(*message->values));
    if (!message->values)
        return CN_ENOMEM;
    for (uint32_t i = 0; i < maker->whole->value_count; i++) {
        if (!is_in_message(maker, &maker->spans[i], which))
            continue;
        message->values[message->count++] = i;
        message->words += graph->values[i].words;
        graph->values[i].kind = CN_VALUE_BOUNDARY;
    }
    return CN_OK;
}

static cn_err list_messages(struct maker *maker)
{
    struct cn_graph *graph = &maker->part->graph;
    cn_err err = CN_OK;

    for (int which = 0; !err && which < CN_BOUNDARY_COUNT; which++)
        err = list_message(maker, (enum cn_boundary)which);
    graph->boundary_words = 0;
    for (size_t i = 0; !err && i < graph->value_count; i++)
        if (graph->values[i].kind == CN_VALUE_BOUNDARY) {
            graph->values[i].offset = graph->boundary_words;
            graph->boundary_words += (graph->values[i].words + CN_ARENA_ALIGNMENT - 1) /
                                     CN_ARENA_ALIGNMENT * CN_ARENA_ALIGNMENT;
        }
    return err;
}

// --- values ---

static void keep(struct maker *maker, uint32_t value)
{
    if (value == CN_GRAPH_NONE)
        return;
    maker->map[value] = 0;
    maker->map[cn_graph_root(maker->whole, value)] = 0;
}

static uint32_t mapped(const struct maker *maker, uint32_t value)
{
    return value == CN_GRAPH_NONE ? value : maker->map[value];
}

static void mark_values(struct maker *maker)
{
    const struct cn_graph *graph = maker->whole;

    memset(maker->map, 0xff, graph->value_count * sizeof(*maker->map)); // CN_GRAPH_NONE
    for (size_t i = 0; i < maker->node_count; i++) {
        for (int j = 0; j < CN_CALL_INPUTS; j++)
            keep(maker, maker->nodes[i].in[j]);
        for (int j = 0; j < CN_CALL_OUTPUTS; j++)
            keep(maker, maker->nodes[i].out[j]);
    }
    for (int which = 0; which < CN_BOUNDARY_COUNT; which++)
        for (size_t i = 0; i < maker->part->messages[which].count; i++)
            keep(maker, maker->part->messages[which].values[i]);
    for (uint32_t i = 0; i < graph->fact_count; i++)
        keep(maker, graph->facts[i].value);
    for (uint32_t i = 0; i < graph->input_count; i++) {
        if (maker->map[graph->inputs[i]] == CN_GRAPH_NONE)
            maker->part->graph.unread_inputs |= 1u << i;
        keep(maker, graph->inputs[i]);
    }
}

// Moves the values that are kept to the front, and numbers them.
static void pack_values(struct maker *maker)
{
    struct cn_graph *graph = &maker->part->graph;
    size_t count = 0;

    for (size_t i = 0; i < graph->value_count; i++)
        if (maker->map[i] != CN_GRAPH_NONE) {
            maker->map[i] = (uint32_t)count;
            graph->values[count++] = graph->values[i];
        }
    graph->value_count = count;
    for (size_t i = 0; i < count; i++)
        graph->values[i].root = maker->map[graph->values[i].root];
}

static void rename_values(struct maker *maker)
{
    struct cn_graph *graph = &maker->part->graph;

    for (size_t i = 0; i < maker->node_count; i++) {
        for (int j = 0; j < CN_CALL_INPUTS; j++)
            maker->nodes[i].in[j] = mapped(maker, maker->nodes[i].in[j]);
        for (int j = 0; j < CN_CALL_OUTPUTS; j++)
            maker->nodes[i].out[j] = mapped(maker, maker->nodes[i].out[j]);
    }
    for (int which = 0; which < CN_BOUNDARY_COUNT; which++)
        for (size_t i = 0; i < maker->part->messages[which].count; i++)
            maker->part->messages[which].values[i] =
                mapped(maker, maker->part->messages[which].values[i]);
    for (uint32_t i = 0; i < graph->input_count; i++)
        graph->inputs[i] = mapped(maker, graph->inputs[i]);
    for (uint32_t i = 0; i < graph->fact_count; i++)
        graph->facts[i].value = mapped(maker, graph->facts[i].value);
    graph->output = mapped(maker, graph->output);
    graph->labels = mapped(maker, graph->labels);
    graph->head = CN_HEAD_NONE; // the loss node, which was added before, has the labels and weights
    graph->head_weights = CN_GRAPH_NONE;
}

// --- the layout ---

static cn_err add_tensor(struct cn_cut_part *part, const struct cn_tensor_info *from)
{
    struct cn_tensor_info *tensor = &part->layout.tensors[part->layout.tensor_count];

    *tensor = *from;
    tensor->name = strdup(from->name);
    if (!tensor->name)
        return CN_ENOMEM;
    tensor->offset = part->layout.total;
    part->layout.total += tensor->count;
    part->layout.tensor_count++;
    return CN_OK;
}

static cn_err make_layout(struct maker *maker)
{
    struct cn_cut_part *part = maker->part;
    size_t room = maker->layout->tensor_count + 1;

    part->layout.tensors = calloc(room, sizeof(*part->layout.tensors));
    part->tensors = calloc(room, sizeof(*part->tensors));
    part->holders = calloc(room, sizeof(*part->holders));
    if (!part->layout.tensors || !part->tensors || !part->holders)
        return CN_ENOMEM;
    for (size_t t = 0; t < maker->layout->tensor_count; t++) {
        if (!holds(maker, t))
            continue;
        part->tensors[part->layout.tensor_count] = t;
        part->holders[part->layout.tensor_count] = maker->holders[t];
        if (add_tensor(part, &maker->layout->tensors[t]))
            return CN_ENOMEM;
    }
    return CN_OK;
}

// Returns the place in the part's row of a word of the whole row.
static size_t moved_word(const struct maker *maker, size_t word)
{
    const struct cn_cut_part *part = maker->part;
    size_t tensor = cn_cut_tensor_at(maker->layout, word), low = 0,
           high = part->layout.tensor_count;

    while (low < high) {
        size_t middle = low + (high - low) / 2;

        if (part->tensors[middle] < tensor)
            low = middle + 1;
        else
            high = middle;
    }
    assert(low < part->layout.tensor_count && part->tensors[low] == tensor);
    return part->layout.tensors[low].offset + (word - maker->layout->tensors[tensor].offset);
}

static void move_parameters(struct maker *maker)
{
    struct cn_graph *graph = &maker->part->graph;

    for (size_t i = 0; i < graph->value_count; i++) {
        struct cn_value *value = &graph->values[i];

        if (value->kind == CN_VALUE_PARAM)
            value->offset = moved_word(maker, value->offset);
        if (value->kind == CN_VALUE_GRADIENT)
            value->offset = value->parameter = moved_word(maker, value->parameter);
    }
}

// --- the part ---

static cn_err make(struct maker *maker)
{
    struct cn_graph *graph = &maker->part->graph;
    cn_err err;

    cn_cut_spans(maker->whole, maker->spans);
    find_holders(maker);
    select_nodes(maker);
    err = list_messages(maker);
    if (!err)
        err = make_layout(maker);
    if (err)
        return err;
    mark_values(maker);
    pack_values(maker);
    rename_values(maker);
    move_parameters(maker);
    free(graph->nodes);
    graph->nodes = maker->nodes;
    graph->node_count = graph->node_capacity = maker->node_count;
    maker->nodes = NULL;
    return cn_graph_drop_constants(graph);
}

cn_err cn_cut_part_make(const struct cn_graph *graph, const struct cn_layout *layout,
                        const struct cn_cut *cut, uint32_t index, struct cn_cut_part *part)
{
    size_t values = graph->value_count + 1;
    struct maker maker = {
        .whole = graph,
        .layout = layout,
        .cut = cut,
        .index = index,
        .part = part,
        .spans = calloc(values, sizeof(*maker.spans)),
        .holders = calloc(layout->tensor_count + 1, sizeof(*maker.holders)),
        .tensor_of = calloc(values, sizeof(*maker.tensor_of)),
        .written = calloc(values, sizeof(*maker.written)),
        .map = calloc(values, sizeof(*maker.map)),
        .nodes = calloc(graph->node_count + values, sizeof(*maker.nodes)),
    };
    cn_err err;

    *part = (struct cn_cut_part){0};
    err = cn_graph_copy(graph, &part->graph);
    if (!err)
        err = maker.spans && maker.holders && maker.tensor_of && maker.written && maker.map &&
                      maker.nodes
                  ? make(&maker)
                  : CN_ENOMEM;
    free(maker.spans);
    free(maker.holders);
    free(maker.tensor_of);
    free(maker.written);
    free(maker.map);
    free(maker.nodes);
    if (err)
        cn_cut_part_deinit(part);
    return err;
}

void cn_cut_part_deinit(struct cn_cut_part *part)
{
    cn_graph_deinit(&part->graph);
    cn_layout_deinit(&part->layout);
    free(part->tensors);
    free(part->holders);
    for (int which = 0; which < CN_BOUNDARY_COUNT; which++)
        free(part->messages[which].values);
    *part = (struct cn_cut_part){0};
}
