#include "runtime/engine/program/gradient_order.h"

#include <stdlib.h>

// A gradient and the last node that writes it.
struct part {
    uint32_t value;
    size_t weights, words;
    size_t finished;
};

static int compare(size_t a, size_t b)
{
    return (a > b) - (a < b);
}

static int by_finish(const void *a, const void *b)
{
    const struct part *first = a, *second = b;
    int order = compare(first->finished, second->finished);

    return order ? order : compare(first->weights, second->weights);
}

static int by_weights(const void *a, const void *b)
{
    return compare(((const struct part *)a)->weights, ((const struct part *)b)->weights);
}

static size_t find_parts(const struct cn_graph *graph, struct part *parts, size_t *part_of)
{
    size_t count = 0;

    for (size_t i = 0; i < graph->value_count; i++)
        if (graph->values[i].kind == CN_VALUE_GRADIENT && graph->values[i].root == i) {
            part_of[i] = count;
            parts[count++] = (struct part){.value = (uint32_t)i,
                                           .weights = graph->values[i].parameter,
                                           .words = graph->values[i].words};
        }
    for (size_t i = 0; i < graph->node_count; i++)
        for (int j = 0; j < CN_CALL_OUTPUTS; j++) {
            uint32_t out = graph->nodes[i].out[j];

            if (out == CN_GRAPH_NONE)
                continue;
            out = cn_graph_root(graph, out);
            if (graph->values[out].kind == CN_VALUE_GRADIENT)
                parts[part_of[out]].finished = i;
        }
    return count;
}

static bool is_any_trained(const struct part *parts, size_t count)
{
    size_t i = 0;

    while (i < count && !parts[i].words)
        i++;
    return i < count;
}

// Returns the number of leading parts that make a granule.
static size_t granule_of(const struct part *parts, size_t count)
{
    size_t words = 0, n = 0;

    while (n < count && words < CN_GRANULE_WORDS)
        words += parts[n++].words;
    return n;
}

static void place(struct cn_graph *graph, struct part *parts, size_t count,
                  struct cn_gradient_order *order)
{
    size_t at = 0, taken;

    qsort(parts, count, sizeof(*parts), by_finish);
    for (size_t i = 0; i < count; i += taken) {
        taken = granule_of(parts + i, count - i);
        qsort(parts + i, taken, sizeof(*parts), by_weights);
        for (size_t j = i; j < i + taken; j++) {
            graph->values[parts[j].value].offset = at;
            at += parts[j].words;
        }
        order->ends[order->granules++] = at;
    }
}

static void note_places(const struct cn_graph *graph, const struct cn_layout *layout,
                        const struct part *parts, size_t count, struct cn_gradient_order *order)
{
    for (size_t t = 0; t < layout->tensor_count; t++) {
        order->places[t] = SIZE_MAX;
        for (size_t i = 0; i < count; i++)
            if (parts[i].weights == layout->tensors[t].offset && parts[i].words)
                order->places[t] = graph->values[parts[i].value].offset;
    }
}

cn_err cn_gradient_order(struct cn_graph *graph, const struct cn_layout *layout,
                         struct cn_gradient_order *order)
{
    struct part *parts = calloc(graph->value_count + 1, sizeof(*parts));
    size_t *part_of = calloc(graph->value_count + 1, sizeof(*part_of));
    cn_err err = CN_ENOMEM;
    size_t count;

    *order = (struct cn_gradient_order){
        .places = calloc(layout->tensor_count + 1, sizeof(*order->places)),
        .ends = calloc(graph->value_count + 1, sizeof(*order->ends)),
    };
    if (parts && part_of && order->places && order->ends) {
        err = CN_OK;
        count = find_parts(graph, parts, part_of);
        if (layout->total > CN_GRANULE_WORDS)
            place(graph, parts, count, order);
        else if (is_any_trained(parts, count))
            order->ends[order->granules++] = layout->total;
        note_places(graph, layout, parts, count, order);
    }
    free(parts);
    free(part_of);
    if (err)
        cn_gradient_order_deinit(order);
    return err;
}

void cn_gradient_order_deinit(struct cn_gradient_order *order)
{
    free(order->places);
    free(order->ends);
    *order = (struct cn_gradient_order){0};
}

size_t cn_gradient_order_words(const struct cn_gradient_order *order)
{
    return order->granules ? order->ends[order->granules - 1] : 0;
}

static size_t granule_at(const struct cn_gradient_order *order, size_t word)
{
    size_t low = 0, high = order->granules;

    while (low < high) {
        size_t middle = low + (high - low) / 2;

        if (order->ends[middle] <= word)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

void cn_gradient_order_finish(const struct cn_gradient_order *order, const struct cn_call *calls,
                              size_t count, size_t *finished)
{
    for (size_t g = 0; g < order->granules; g++)
        finished[g] = 0;
    for (size_t i = 0; i < count; i++)
        for (int j = 0; j < CN_CALL_OUTPUTS; j++)
            if (calls[i].out[j].arena == CN_ARENA_GRADIENTS) {
                size_t g = granule_at(order, calls[i].out[j].offset);

                if (g < order->granules)
                    finished[g] = i + 1;
            }
    for (size_t g = 1; g < order->granules; g++)
        if (finished[g] < finished[g - 1])
            finished[g] = finished[g - 1];
}

uint32_t cn_gradient_order_cut(const struct cn_gradient_order *order, size_t words, uint32_t most,
                               size_t *last)
{
    size_t least = cn_gradient_order_words(order) / most + 1, begin = 0;
    uint32_t count = 0;

    words = words > least ? words : least;
    for (size_t g = 0; g < order->granules; g++)
        if (order->ends[g] - begin >= words) {
            begin = order->ends[g];
            last[count++] = g;
        }
    if (!order->granules)
        return 0;
    if (!count)
        count = 1;
    last[count - 1] = order->granules - 1;
    return count;
}
