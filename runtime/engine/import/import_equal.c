#include "runtime/engine/import/import_equal.h"

#include <string.h>

static bool is_large(const struct cn_value *value)
{
    return (value->kind == CN_VALUE_CONST || value->kind == CN_VALUE_SHAPE) &&
           value->words >= CN_IMPORT_EQUAL_WORDS;
}

static const void *elements_of(const struct cn_graph *graph, const struct cn_value *value)
{
    if (value->kind == CN_VALUE_SHAPE)
        return graph->numbers + value->offset;
    return graph->constants + value->offset;
}

static size_t size_of(const struct cn_graph *graph, const struct cn_value *value)
{
    return value->words *
           (value->kind == CN_VALUE_SHAPE ? sizeof(*graph->numbers) : sizeof(*graph->constants));
}

// Returns the number of elements in the value's pool.
static size_t *pool_count(struct cn_graph *graph, const struct cn_value *value)
{
    return value->kind == CN_VALUE_SHAPE ? &graph->number_count : &graph->constant_count;
}

// Hashes 8 bytes at a time: the search must cost little beside the computation of the elements. An
// odd float at the end is left out.
static size_t hash_of(const struct cn_graph *graph, const struct cn_value *value)
{
    const char *elements = elements_of(graph, value);
    size_t size = size_of(graph, value);
    uint64_t hash = size, word;

    for (size_t at = 0; at + sizeof(word) <= size; at += sizeof(word)) {
        memcpy(&word, elements + at, sizeof(word));
        hash = (hash ^ word) * 0x9e3779b97f4a7c15u;
        hash ^= hash >> 32;
    }
    return hash % CN_IMPORT_EQUAL_PLACES;
}

static bool is_equal(const struct cn_graph *graph, const struct cn_value *a,
                     const struct cn_value *b)
{
    return a->kind == b->kind && a->words == b->words && a->integers == b->integers &&
           !memcmp(elements_of(graph, a), elements_of(graph, b), size_of(graph, a));
}

cn_err cn_import_equal_add(struct cn_import_equal *equal, struct cn_graph *graph,
                           const struct cn_value *value, uint32_t *index)
{
    struct cn_value added = *value;
    const struct cn_value *other;
    uint32_t *latest;
    cn_err err;

    if (!is_large(value) || value->offset + value->words != *pool_count(graph, value))
        return cn_graph_add_value(graph, value, index);
    latest = &equal->latest[hash_of(graph, value)];
    other = &graph->values[*latest];
    if (is_equal(graph, other, value)) {
        *pool_count(graph, value) = value->offset;
        added.offset = other->offset;
        added.root = other->root;
        return cn_graph_add_value(graph, &added, index);
    }
    err = cn_graph_add_value(graph, &added, index);
    if (!err)
        *latest = *index;
    return err;
}
