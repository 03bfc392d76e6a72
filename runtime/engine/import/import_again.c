#include "runtime/engine/import/import_again.h"

#include <stdlib.h>
#include <string.h>

#include "runtime/engine/import/import_equal.h"

#define TENSOR_MAX 4096 // bytes of an attribute that is compared

void cn_import_again_deinit(struct cn_import_again *again)
{
    free(again->made);
    *again = (struct cn_import_again){0};
}

static bool is_known(const struct cn_value *value)
{
    return value->kind == CN_VALUE_CONST || value->kind == CN_VALUE_SHAPE;
}

static bool has_equal_elements(const struct cn_graph *graph, const struct cn_value *a,
                               const struct cn_value *b)
{
    if (a->offset == b->offset)
        return true;
    if (a->words >= CN_IMPORT_EQUAL_WORDS) // equal ones share their memory
        return false;
    return a->kind == CN_VALUE_SHAPE
               ? !memcmp(graph->numbers + a->offset, graph->numbers + b->offset,
                         a->words * sizeof(*graph->numbers))
               : !memcmp(graph->constants + a->offset, graph->constants + b->offset,
                         a->words * sizeof(*graph->constants));
}

static bool is_same_value(const struct cn_graph *graph, uint32_t one, uint32_t other)
{
    const struct cn_value *a, *b;

    if (one == other || one == CN_GRAPH_NONE || other == CN_GRAPH_NONE)
        return one == other;
    a = &graph->values[one];
    b = &graph->values[other];
    return is_known(a) && a->kind == b->kind && a->rank == b->rank && a->words == b->words &&
           !memcmp(a->dims, b->dims, a->rank * sizeof(*a->dims)) && a->batched == b->batched &&
           a->batch_axis == b->batch_axis && a->batch_repeats == b->batch_repeats &&
           a->shared == b->shared && a->integers == b->integers && a->transposed == b->transposed &&
           !a->padded && !b->padded && a->is_sum == b->is_sum && a->of_batch == b->of_batch &&
           a->over_batch == b->over_batch && has_equal_elements(graph, a, b);
}

// Two NaN are the same.
static bool is_same_number(float a, float b)
{
    uint32_t one, other;

    memcpy(&one, &a, sizeof(one));
    memcpy(&other, &b, sizeof(other));
    return one == other;
}

static bool is_same_tensor(const struct cn_onnx_tensor *a, const struct cn_onnx_tensor *b)
{
    return a->type == b->type && a->rank == b->rank && a->count == b->count && a->raw == b->raw &&
           !memcmp(a->dims, b->dims, a->rank * sizeof(*a->dims)) && a->size == b->size &&
           a->size <= TENSOR_MAX && (!a->size || !memcmp(a->data, b->data, a->size));
}

static bool is_same_list(const struct cn_onnx_attribute *a, const struct cn_onnx_attribute *b)
{
    return a->count == b->count && !a->ints == !b->ints && !a->floats == !b->floats &&
           (!a->ints || !memcmp(a->ints, b->ints, a->count * sizeof(*a->ints))) &&
           (!a->floats || !memcmp(a->floats, b->floats, a->count * sizeof(*a->floats)));
}

// Attributes with branches or lists of texts never count as the same.
static bool is_same_attribute(const struct cn_onnx_attribute *a, const struct cn_onnx_attribute *b)
{
    return cn_text_same(a->name, b->name) && a->type == b->type && is_same_number(a->f, b->f) &&
           a->i == b->i && cn_text_same(a->s, b->s) && is_same_list(a, b) &&
           is_same_tensor(&a->tensor, &b->tensor) && !a->text_count && !b->text_count &&
           !a->branch && !b->branch;
}

static bool is_same_operation(const struct cn_onnx_node *a, const struct cn_onnx_node *b)
{
    if (!cn_text_same(a->op, b->op) || !cn_text_same(a->domain, b->domain) ||
        a->attribute_count != b->attribute_count)
        return false;
    for (size_t i = 0; i < a->attribute_count; i++)
        if (!is_same_attribute(&a->attributes[i], &b->attributes[i]))
            return false;
    return true;
}

static bool is_same(const struct cn_import_made *made, const struct cn_import_node *node)
{
    if (made->in_count != node->in_count || !is_same_operation(made->node, node->node))
        return false;
    for (size_t i = 0; i < made->in_count; i++)
        if (!is_same_value(node->graph, made->in[i], node->in[i]))
            return false;
    return true;
}

// Returns whether there are inputs, all of them known, and one result.
static bool is_candidate(const struct cn_import_node *node)
{
    for (size_t i = 0; i < node->in_count; i++)
        if (cn_import_has(node, i) && !is_known(cn_import_value(node, i)))
            return false;
    return node->in_count && node->node->output_count == 1;
}

cn_err cn_import_again_find(const struct cn_import_again *again, struct cn_import_node *node,
                            bool *found)
{
    struct cn_value value = {0};

    *found = false;
    if (!again->count || !is_candidate(node))
        return CN_OK;
    for (size_t i = 0; i < again->count && !*found; i++) {
        *found = is_same(&again->made[i], node);
        if (*found)
            value = node->graph->values[again->made[i].out];
    }
    if (!*found)
        return CN_OK;
    value.name = NULL;
    value.name_size = 0;
    return cn_graph_add_value(node->graph, &value, &node->out);
}

static bool is_large(const struct cn_import_node *node)
{
    bool large = node->graph->values[node->out].words >= CN_IMPORT_EQUAL_WORDS;

    for (size_t i = 0; i < node->in_count; i++)
        large |= cn_import_has(node, i) && cn_import_value(node, i)->words >= CN_IMPORT_EQUAL_WORDS;
    return large;
}

cn_err cn_import_again_keep(struct cn_import_again *again, const struct cn_import_node *node)
{
    struct cn_import_made *made;

    if (node->out == CN_GRAPH_NONE || !is_candidate(node) || again->count == CN_IMPORT_AGAIN_MAX ||
        !is_known(&node->graph->values[node->out]) || !is_large(node))
        return CN_OK;
    if (!again->made)
        again->made = calloc(CN_IMPORT_AGAIN_MAX, sizeof(*again->made));
    if (!again->made)
        return CN_ENOMEM;
    made = &again->made[again->count++];
    made->node = node->node;
    made->in_count = node->in_count;
    memcpy(made->in, node->in, node->in_count * sizeof(*node->in));
    made->out = node->out;
    return CN_OK;
}
