// cut_inputs.c - which parts read which inputs of a model.
#include "runtime/engine/graph/cut.h"

// Notes that a part reads a value. A fact is computed from the labels in an input.
static void note_read(const struct cn_graph *graph, uint32_t value, uint32_t part,
                      uint32_t readers[CN_GRAPH_INPUT_MAX])
{
    const struct cn_value *root;
    size_t index;

    if (value == CN_GRAPH_NONE)
        return;
    root = &graph->values[cn_graph_root(graph, value)];
    if (root->kind != CN_VALUE_INPUT)
        return;
    index = root->offset;
    if (index >= CN_GRAPH_INPUT_MAX) {
        const struct cn_fact *fact = &graph->facts[index - CN_GRAPH_INPUT_MAX];

        if (fact->kind == CN_FACT_SIZE)
            return;
        index = fact->labels;
    }
    readers[index] |= 1u << part;
}

void cn_cut_inputs(const struct cn_graph *graph, const struct cn_cut *cut,
                   uint32_t readers[CN_GRAPH_INPUT_MAX])
{
    for (size_t i = 0; i < CN_GRAPH_INPUT_MAX; i++)
        readers[i] = 0;
    for (size_t i = 0; i < graph->node_count; i++) {
        const struct cn_node *node = &graph->nodes[i];
        uint32_t part = cn_cut_part_of(cut, node->origin);

        for (int j = 0; j < CN_CALL_INPUTS; j++)
            note_read(graph, node->in[j], part, readers);
    }
}
