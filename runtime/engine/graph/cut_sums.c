// cut_sums.c - what the nodes before each place of a graph hold: tensors, and values that are kept.
#include <stdlib.h>
#include <string.h>

#include "runtime/engine/graph/cut_private.h"

// Adds the words of the tensor that value belongs to, unless an earlier node reads that tensor.
static void add_tensor(const struct cn_graph *graph, const struct cn_layout *layout, uint32_t value,
                       bool *seen, size_t *words)
{
    const struct cn_value *root;
    uint32_t tensor;

    if (value == CN_GRAPH_NONE)
        return;
    root = &graph->values[cn_graph_root(graph, value)];
    if (root->kind != CN_VALUE_PARAM)
        return;
    tensor = cn_cut_tensor_at(layout, root->offset);
    if (seen[tensor])
        return;
    seen[tensor] = true;
    *words += layout->tensors[tensor].count;
}

static void add_tensors(const struct cn_graph *graph, const struct cn_layout *layout, bool *seen,
                        struct cn_cut_sums *sums)
{
    for (size_t i = 0; i <= graph->loss; i++)
        for (int j = 0; j < CN_CALL_INPUTS; j++)
            add_tensor(graph, layout, graph->nodes[i].in[j], seen, &sums[i + 1].parameters);
    for (size_t t = 0; t < layout->tensor_count; t++)
        if (!seen[t]) // the first part holds it
            sums[1].parameters += layout->tensors[t].count;
}

// Adds the words of each gradient after the least origin of the nodes that write it. first has room
// for one number for each value.
static void add_gradients(const struct cn_graph *graph, size_t *first, struct cn_cut_sums *sums)
{
    for (size_t i = 0; i < graph->value_count; i++)
        first[i] = graph->loss;
    for (size_t i = 0; i < graph->node_count; i++)
        for (int j = 0; j < CN_CALL_OUTPUTS; j++) {
            uint32_t out = graph->nodes[i].out[j];

            if (out != CN_GRAPH_NONE && graph->nodes[i].origin < first[cn_graph_root(graph, out)])
                first[cn_graph_root(graph, out)] = graph->nodes[i].origin;
        }
    for (size_t i = 0; i < graph->value_count; i++)
        if (graph->values[i].kind == CN_VALUE_GRADIENT && graph->values[i].root == i)
            sums[first[i] + 1].trained += graph->values[i].words;
}

static void add_kept(const struct cn_graph *graph, const struct cn_cut_span *spans,
                     struct cn_cut_sums *sums)
{
    for (size_t i = 0; i < graph->value_count; i++)
        if (spans[i].used && !spans[i].gradient && spans[i].read_back != CN_GRAPH_NONE)
            sums[spans[i].written + 1].kept += graph->values[i].words;
}

cn_err cn_cut_sum(const struct cn_graph *graph, const struct cn_layout *layout,
                  struct cn_cut_sums **sums)
{
    struct cn_cut_span *spans = calloc(graph->value_count + 1, sizeof(*spans));
    size_t *first = calloc(graph->value_count + 1, sizeof(*first));
    bool *seen = calloc(layout->tensor_count + 1, sizeof(*seen));
    struct cn_cut_sums *made = calloc(graph->loss + 2, sizeof(*made));
    bool ok = spans && first && seen && made;

    if (ok) {
        cn_cut_spans(graph, spans);
        add_tensors(graph, layout, seen, made);
        add_gradients(graph, first, made);
        add_kept(graph, spans, made);
    }
    for (size_t i = 0; ok && i <= graph->loss; i++) {
        made[i + 1].parameters += made[i].parameters;
        made[i + 1].trained += made[i].trained;
        made[i + 1].kept += made[i].kept;
    }
    free(spans);
    free(first);
    free(seen);
    if (!ok) {
        free(made);
        made = NULL;
    }
    *sums = made;
    return ok ? CN_OK : CN_ENOMEM;
}
