#include "runtime/engine/graph/graph.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/bytes.h"

void cn_graph_init(struct cn_graph *graph)
{
    *graph = (struct cn_graph){.output = CN_GRAPH_NONE, .labels = CN_GRAPH_NONE};
}

void cn_graph_deinit(struct cn_graph *graph)
{
    if (!graph)
        return;
    free(graph->values);
    free(graph->nodes);
    free(graph->numbers);
    free(graph->constants);
    cn_graph_init(graph);
}

// Replaces *array, which belongs to the original, by a copy of its count elements.
static cn_err copy_array(void **array, size_t count, size_t size)
{
    const void *from = *array;

    *array = from ? malloc(count * size + 1) : NULL;
    if (from && !*array)
        return CN_ENOMEM;
    if (from && count)
        memcpy(*array, from, count * size);
    return CN_OK;
}

cn_err cn_graph_copy(const struct cn_graph *graph, struct cn_graph *copy)
{
    bool failed;

    *copy = *graph;
    copy->value_capacity = graph->value_count;
    copy->node_capacity = graph->node_count;
    copy->number_capacity = graph->number_count;
    copy->constant_capacity = graph->constant_count;
    failed = copy_array((void **)&copy->values, graph->value_count, sizeof(*graph->values)) != 0;
    failed |= copy_array((void **)&copy->nodes, graph->node_count, sizeof(*graph->nodes)) != 0;
    failed |=
        copy_array((void **)&copy->numbers, graph->number_count, sizeof(*graph->numbers)) != 0;
    failed |= copy_array((void **)&copy->constants, graph->constant_count,
                         sizeof(*graph->constants)) != 0;
    if (failed)
        cn_graph_deinit(copy);
    return failed ? CN_ENOMEM : CN_OK;
}

// Makes room for count more elements of an array. The array exists afterwards even when it is
// empty.
static cn_err grow(void **array, size_t *capacity, size_t used, size_t count, size_t size)
{
    size_t wanted, bytes;
    void *moved;

    if (__builtin_add_overflow(used, count, &wanted))
        return CN_ERANGE;
    if (*array && wanted <= *capacity)
        return CN_OK;
    wanted = wanted < 2 * *capacity ? 2 * *capacity : wanted;
    wanted = wanted < 16 ? 16 : wanted;
    if (cn_size_multiply(wanted, size, &bytes))
        return CN_ERANGE;
    moved = realloc(*array, bytes);
    if (!moved)
        return CN_ENOMEM;
    *array = moved;
    *capacity = wanted;
    return CN_OK;
}

void cn_graph_sample_dims(const struct cn_graph *graph, const struct cn_value *value,
                          uint64_t *dims)
{
    memcpy(dims, value->dims, value->rank * sizeof(*dims));
    if (value->batched)
        dims[value->batch_axis] /= graph->batch;
}

static cn_err count_words(const struct cn_graph *graph, struct cn_value *value)
{
    uint64_t dims[CN_GRAPH_RANK_MAX];
    size_t words = 1;

    cn_graph_sample_dims(graph, value, dims);
    for (uint32_t d = 0; d < value->rank; d++)
        if (cn_size_multiply(words, dims[d], &words))
            return CN_ERANGE;
    // This limit is far above any memory and keeps later sums from overflowing.
    if (words > SIZE_MAX >> 16)
        return CN_ERANGE;
    value->words = words;
    return CN_OK;
}

cn_err cn_graph_add_value(struct cn_graph *graph, const struct cn_value *value, uint32_t *index)
{
    struct cn_value *added;
    cn_err err;

    if (graph->value_count >= CN_GRAPH_NODES_MAX)
        return CN_ERANGE;
    err = grow((void **)&graph->values, &graph->value_capacity, graph->value_count, 1,
               sizeof(*graph->values));
    if (err)
        return err;
    added = &graph->values[graph->value_count];
    *added = *value;
    added->name = NULL;
    added->name_size = 0;
    err = count_words(graph, added);
    if (err)
        return err;
    *index = (uint32_t)graph->value_count++;
    if (added->root == CN_GRAPH_NONE)
        added->root = *index;
    return CN_OK;
}

cn_err cn_graph_add_node(struct cn_graph *graph, const struct cn_node *node)
{
    cn_err err;

    if (graph->node_count >= CN_GRAPH_NODES_MAX)
        return CN_ERANGE;
    err = grow((void **)&graph->nodes, &graph->node_capacity, graph->node_count, 1,
               sizeof(*graph->nodes));
    if (err)
        return err;
    graph->nodes[graph->node_count] = *node;
    graph->nodes[graph->node_count++].origin = graph->origin;
    return CN_OK;
}

struct cn_node cn_graph_node(enum cn_op op)
{
    struct cn_node node = {.call = {.op = op}};

    for (int i = 0; i < CN_CALL_INPUTS; i++)
        node.in[i] = CN_GRAPH_NONE;
    for (int i = 0; i < CN_CALL_OUTPUTS; i++)
        node.out[i] = CN_GRAPH_NONE;
    return node;
}

cn_err cn_graph_add_numbers(struct cn_graph *graph, const int64_t *numbers, size_t count,
                            size_t *first)
{
    cn_err err = grow((void **)&graph->numbers, &graph->number_capacity, graph->number_count, count,
                      sizeof(*numbers));

    if (err)
        return err;
    *first = graph->number_count;
    if (count && numbers)
        memcpy(graph->numbers + *first, numbers, count * sizeof(*numbers));
    else if (count)
        memset(graph->numbers + *first, 0, count * sizeof(*numbers));
    graph->number_count += count;
    return CN_OK;
}

cn_err cn_graph_add_constants(struct cn_graph *graph, const float *constants, size_t count,
                              size_t *first)
{
    cn_err err = grow((void **)&graph->constants, &graph->constant_capacity, graph->constant_count,
                      count, sizeof(*constants));

    if (err)
        return err;
    *first = graph->constant_count;
    if (count && constants)
        memcpy(graph->constants + *first, constants, count * sizeof(*constants));
    else if (count)
        memset(graph->constants + *first, 0, count * sizeof(*constants));
    graph->constant_count += count;
    return CN_OK;
}

// Moves the constant that a node reads to the new pool, once.
static void keep_constant(struct cn_graph *graph, uint32_t value, float *pool, size_t *count,
                          bool *kept)
{
    struct cn_value *root;

    if (value == CN_GRAPH_NONE || kept[cn_graph_root(graph, value)])
        return;
    root = &graph->values[cn_graph_root(graph, value)];
    if (root->kind != CN_VALUE_CONST)
        return;
    memcpy(pool + *count, graph->constants + root->offset, root->words * sizeof(*pool));
    root->offset = *count;
    *count += root->words;
    kept[root->root] = true;
}

cn_err cn_graph_drop_constants(struct cn_graph *graph)
{
    float *pool = malloc((graph->constant_count + 1) * sizeof(*pool));
    bool *kept = calloc(graph->value_count + 1, sizeof(*kept));
    size_t count = 0;

    if (!pool || !kept) {
        free(pool);
        free(kept);
        return CN_ENOMEM;
    }
    for (size_t i = 0; i < graph->node_count; i++)
        for (int j = 0; j < CN_CALL_INPUTS; j++)
            keep_constant(graph, graph->nodes[i].in[j], pool, &count, kept);
    // cn_loss_add adds the loss node, which reads the weights, only later.
    if (graph->head == CN_HEAD_ENTROPY)
        keep_constant(graph, graph->head_weights, pool, &count, kept);
    free(kept);
    free(graph->constants);
    graph->constants = pool;
    graph->constant_capacity = graph->constant_count + 1;
    graph->constant_count = count;
    free(graph->numbers);
    graph->numbers = NULL;
    graph->number_count = graph->number_capacity = 0;
    return CN_OK;
}
