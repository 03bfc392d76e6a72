#include "runtime/engine/program/recompute.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

// Arrays indexed by value cover the values of the given graph. Values added later are copies.
struct recompute {
    struct cn_graph *graph;
    struct cn_node *backward; // owned: the given nodes after the loss
    size_t backward_count;
    size_t values;
    bool *dropped;           // by root: not kept, as only marked nodes make it
    uint32_t *copy;          // by root: its value in the backward pass
    uint32_t *maker, *other; // lists of the forward nodes that write a value, the last one first;
                             // an entry is node * CN_CALL_OUTPUTS + output; maker: by root, the
                             // first entry; other: by entry, the next one
    bool *marked, *queued;   // by forward node
    uint32_t *queue;         // forward nodes that are to be repeated
    size_t queue_count;
};

const char *cn_recompute_text(enum cn_recompute level)
{
    static const char *const texts[CN_RECOMPUTE_COUNT] = {
        "all activations are kept",
        "cheap activations are computed again",
        "activations between checkpoints are computed again",
    };

    return texts[level];
}

static bool is_cheap(enum cn_op op)
{
    switch (op) {
    case CN_OP_MAP:
    case CN_OP_COMBINE:
    case CN_OP_WHERE:
    case CN_OP_COPY:
    case CN_OP_FILL:
    case CN_OP_SOFTMAX:
    case CN_OP_NORM:
    case CN_OP_BATCH_NORM:
    case CN_OP_DROPOUT:
        return true;
    default:
        return false;
    }
}

static bool is_activation(const struct cn_graph *graph, uint32_t value)
{
    return value != CN_GRAPH_NONE &&
           graph->values[cn_graph_root(graph, value)].kind == CN_VALUE_ACTIVATION;
}

// Small results that a normalization saves are kept.
static size_t dropped_outputs(const struct cn_node *node)
{
    return node->call.op == CN_OP_NORM || node->call.op == CN_OP_BATCH_NORM ? 1 : CN_CALL_OUTPUTS;
}

static void list_makers(struct recompute *r)
{
    const struct cn_graph *graph = r->graph;

    for (size_t i = 0; i < graph->loss; i++)
        for (size_t j = 0; j < CN_CALL_OUTPUTS; j++) {
            uint32_t value = graph->nodes[i].out[j], root;

            if (!is_activation(graph, value))
                continue;
            root = cn_graph_root(graph, value);
            r->other[i * CN_CALL_OUTPUTS + j] = r->maker[root];
            r->maker[root] = (uint32_t)(i * CN_CALL_OUTPUTS + j);
        }
}

static double saved_words(const struct recompute *r, const struct cn_node *node)
{
    return is_activation(r->graph, node->out[0])
               ? (double)r->graph->values[cn_graph_root(r->graph, node->out[0])].words
               : 0;
}

// Fills in crossing[i]: the number of activations made up to node i and read by a forward node
// after it.
static void count_crossing(const struct recompute *r, uint32_t *crossing)
{
    const struct cn_graph *graph = r->graph;

    for (size_t root = 0; root < r->values; root++)
        r->copy[root] = CN_GRAPH_NONE; // here: the last reader
    for (size_t i = 0; i < graph->loss; i++)
        for (int j = 0; j < CN_CALL_INPUTS; j++)
            if (is_activation(graph, graph->nodes[i].in[j]))
                r->copy[cn_graph_root(graph, graph->nodes[i].in[j])] = (uint32_t)i;
    for (size_t root = 0; root < r->values; root++) {
        uint32_t first = CN_GRAPH_NONE;

        for (uint32_t at = r->maker[root]; at != CN_GRAPH_NONE; at = r->other[at])
            first = at / CN_CALL_OUTPUTS; // the list is from the last to the first
        if (r->copy[root] != CN_GRAPH_NONE && first < r->copy[root]) {
            crossing[first]++;
            crossing[r->copy[root]]--;
        }
        r->copy[root] = CN_GRAPH_NONE;
    }
    for (size_t i = 1; i < graph->loss; i++)
        crossing[i] += crossing[i - 1];
}

// Marks all of the N forward nodes except about sqrt(N), whose results are kept. They are about
// equal numbers of words apart. Each is a node after which no other result made so far is read by a
// forward node, so nothing before it is repeated for later nodes.
static cn_err mark_segments(struct recompute *r)
{
    double total = 0, since = 0, part;
    size_t nodes = r->graph->loss;
    uint32_t *crossing = calloc(nodes + 1, sizeof(*crossing));

    if (!crossing)
        return CN_ENOMEM;
    count_crossing(r, crossing);
    for (size_t i = 0; i < nodes; i++)
        total += saved_words(r, &r->graph->nodes[i]);
    part = total / sqrt((double)nodes);
    for (size_t i = 0; i < nodes; i++) {
        since += saved_words(r, &r->graph->nodes[i]);
        r->marked[i] = since < part || crossing[i] != 1;
        if (!r->marked[i])
            since = 0;
    }
    free(crossing);
    return CN_OK;
}

// Returns whether a node writes what another part of the graph sees. Such a node runs only once.
static bool writes_boundary(const struct cn_graph *graph, const struct cn_node *node)
{
    for (int j = 0; j < CN_CALL_OUTPUTS; j++)
        if (node->out[j] != CN_GRAPH_NONE &&
            graph->values[cn_graph_root(graph, node->out[j])].kind == CN_VALUE_BOUNDARY)
            return true;
    return false;
}

static cn_err mark(struct recompute *r, enum cn_recompute level)
{
    const struct cn_graph *graph = r->graph;

    for (size_t i = 0; i < graph->loss; i++)
        r->marked[i] = is_cheap(graph->nodes[i].call.op);
    if (level == CN_RECOMPUTE_SEGMENTS && mark_segments(r))
        return CN_ENOMEM;
    for (size_t i = 0; i < graph->loss; i++)
        if (writes_boundary(graph, &graph->nodes[i]))
            r->marked[i] = false;
    for (size_t root = 0; root < r->values; root++) {
        uint32_t at = r->maker[root];

        r->dropped[root] = at != CN_GRAPH_NONE;
        for (; at != CN_GRAPH_NONE; at = r->other[at])
            if (!r->marked[at / CN_CALL_OUTPUTS] ||
                at % CN_CALL_OUTPUTS >= dropped_outputs(&graph->nodes[at / CN_CALL_OUTPUTS]))
                r->dropped[root] = false;
    }
    return CN_OK;
}

// Returns the copy to read instead of a value, or the value itself.
static uint32_t replaced(const struct recompute *r, uint32_t value)
{
    uint32_t root;

    if (value == CN_GRAPH_NONE || value >= r->values)
        return value;
    root = cn_graph_root(r->graph, value);
    return root < r->values && r->copy[root] != CN_GRAPH_NONE ? r->copy[root] : value;
}

// Queues the makers of a value that was dropped and not made again yet.
static void want(struct recompute *r, uint32_t value)
{
    uint32_t root;

    if (value == CN_GRAPH_NONE || value >= r->values)
        return;
    root = cn_graph_root(r->graph, value);
    if (root >= r->values || !r->dropped[root] || r->copy[root] != CN_GRAPH_NONE)
        return;
    for (uint32_t at = r->maker[root]; at != CN_GRAPH_NONE; at = r->other[at])
        if (!r->queued[at / CN_CALL_OUTPUTS]) {
            r->queued[at / CN_CALL_OUTPUTS] = true;
            r->queue[r->queue_count++] = at / CN_CALL_OUTPUTS;
        }
}

// Adds a second value like this one, which a repeated node writes.
static cn_err copy_value(struct recompute *r, uint32_t value, uint32_t *copied)
{
    uint32_t root = cn_graph_root(r->graph, value);
    struct cn_value copy = r->graph->values[root];
    cn_err err;

    *copied = r->copy[root];
    if (*copied != CN_GRAPH_NONE)
        return CN_OK;
    copy.root = CN_GRAPH_NONE;
    err = cn_graph_add_value(r->graph, &copy, copied);
    if (!err && r->dropped[root])
        r->copy[root] = *copied;
    return err;
}

// Repeats a forward node, without the statistics that its first run added to the gradients.
static cn_err repeat(struct recompute *r, uint32_t index)
{
    struct cn_node node = r->graph->nodes[index];
    cn_err err = CN_OK;

    if (node.call.write == CN_WRITE_STEP)
        node.call.write = CN_WRITE_SET;
    for (int j = 0; j < CN_CALL_INPUTS; j++)
        node.in[j] = replaced(r, node.in[j]);
    for (int j = 0; !err && j < CN_CALL_OUTPUTS; j++) {
        if (is_activation(r->graph, node.out[j]))
            err = copy_value(r, node.out[j], &node.out[j]);
        else
            node.out[j] = CN_GRAPH_NONE;
    }
    return err ? err : cn_graph_add_node(r->graph, &node);
}

static int by_index(const void *a, const void *b)
{
    uint32_t left = *(const uint32_t *)a, right = *(const uint32_t *)b;

    return left < right ? -1 : left > right;
}

// Repeats the nodes that make the inputs of a backward node, in forward order.
static cn_err provide(struct recompute *r, const struct cn_node *node)
{
    cn_err err = CN_OK;

    r->queue_count = 0;
    for (int j = 0; j < CN_CALL_INPUTS; j++)
        want(r, node->in[j]);
    for (size_t i = 0; i < r->queue_count; i++)
        for (int j = 0; j < CN_CALL_INPUTS; j++)
            want(r, r->graph->nodes[r->queue[i]].in[j]);
    qsort(r->queue, r->queue_count, sizeof(*r->queue), by_index);
    for (size_t i = 0; !err && i < r->queue_count; i++)
        err = repeat(r, r->queue[i]);
    return err;
}

static cn_err rewrite(struct recompute *r)
{
    cn_err err = CN_OK;

    r->graph->node_count = r->graph->loss + 1;
    for (size_t i = 0; !err && i < r->backward_count; i++) {
        struct cn_node node = r->backward[i];

        err = provide(r, &node);
        for (int j = 0; j < CN_CALL_INPUTS; j++)
            node.in[j] = replaced(r, node.in[j]);
        if (!err)
            err = cn_graph_add_node(r->graph, &node);
    }
    return err;
}

static bool take(struct recompute *r)
{
    struct cn_graph *graph = r->graph;
    size_t outputs = (graph->loss + 1) * CN_CALL_OUTPUTS;

    r->values = graph->value_count;
    r->backward_count = graph->node_count - graph->loss - 1;
    r->backward = malloc((r->backward_count + 1) * sizeof(*r->backward));
    r->dropped = calloc(r->values + 1, sizeof(*r->dropped));
    r->copy = malloc((r->values + 1) * sizeof(*r->copy));
    r->maker = malloc((r->values + 1) * sizeof(*r->maker));
    r->other = malloc(outputs * sizeof(*r->other));
    r->marked = calloc(graph->loss + 1, sizeof(*r->marked));
    r->queued = calloc(graph->loss + 1, sizeof(*r->queued));
    r->queue = malloc((graph->loss + 1) * sizeof(*r->queue));
    if (!r->backward || !r->dropped || !r->copy || !r->maker || !r->other || !r->marked ||
        !r->queued || !r->queue)
        return false;
    memcpy(r->backward, graph->nodes + graph->loss + 1, r->backward_count * sizeof(*r->backward));
    memset(r->copy, 0xff, (r->values + 1) * sizeof(*r->copy)); // CN_GRAPH_NONE
    memset(r->maker, 0xff, (r->values + 1) * sizeof(*r->maker));
    return true;
}

cn_err cn_recompute(struct cn_graph *graph, enum cn_recompute level)
{
    struct recompute r = {.graph = graph};
    cn_err err = CN_ENOMEM;

    if (level == CN_RECOMPUTE_NONE)
        return CN_OK;
    if (take(&r)) {
        list_makers(&r);
        err = mark(&r, level);
        if (!err)
            err = rewrite(&r);
    }
    free(r.backward);
    free(r.dropped);
    free(r.copy);
    free(r.maker);
    free(r.other);
    free(r.marked);
    free(r.queued);
    free(r.queue);
    return err;
}
