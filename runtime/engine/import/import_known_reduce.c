// Sums, products and extremes of values that are known when the model is read.
#include <math.h>

#include "runtime/engine/import/import_known.h"

enum kind {
    SUM,
    MEAN,
    PRODUCT,
    LARGEST,
    SMALLEST,
};

// Returns the basic reduction of a node. Other reductions, such as norms, are built from sums.
static enum kind kind_of(const struct cn_onnx_node *node)
{
    static const char *const names[] = {[MEAN] = "ReduceMean",
                                        [PRODUCT] = "ReduceProd",
                                        [LARGEST] = "ReduceMax",
                                        [SMALLEST] = "ReduceMin"};

    for (size_t i = MEAN; i < sizeof(names) / sizeof(names[0]); i++)
        if (cn_text_equal(node->op, names[i]))
            return (enum kind)i;
    return SUM;
}

static double join_floats(enum kind kind, double a, double b)
{
    switch (kind) {
    case SUM:
    case MEAN:
        return a + b;
    case PRODUCT:
        return a * b;
    case LARGEST:
        return isnan(a) || a > b ? a : b;
    default:
        return isnan(a) || a < b ? a : b;
    }
}

static bool join_ints(enum kind kind, int64_t *a, int64_t b)
{
    switch (kind) {
    case SUM:
    case MEAN:
        return !__builtin_add_overflow(*a, b, a);
    case PRODUCT:
        return !__builtin_mul_overflow(*a, b, a);
    case LARGEST:
        *a = *a > b ? *a : b;
        return true;
    default:
        *a = *a < b ? *a : b;
        return true;
    }
}

// Joins element i of x into its place in y. The first element of a place initialises it.
static bool join(const struct cn_graph *graph, enum kind kind, const struct cn_value *x, size_t i,
                 const struct cn_value *y, size_t place, bool first)
{
    size_t at = y->offset + place;

    if (y->kind == CN_VALUE_SHAPE) {
        int64_t number = cn_import_known_int(graph, x, i);

        if (first)
            graph->numbers[at] = number;
        return first || join_ints(kind, &graph->numbers[at], number);
    }
    if (first)
        graph->constants[at] = (float)cn_import_known_float(graph, x, i);
    else
        graph->constants[at] = (float)join_floats(kind, (double)graph->constants[at],
                                                  cn_import_known_float(graph, x, i));
    return true;
}

// Joins all of x into y. The first element of a place has index 0 along all marked dims, so the sum
// of these indices is 0.
static cn_err join_all(struct cn_import_node *node, enum kind kind, const struct cn_value *x,
                       const bool *marked, const struct cn_value *y)
{
    ptrdiff_t places[CN_GRAPH_RANK_MAX], sums[CN_GRAPH_RANK_MAX];
    const ptrdiff_t *const strides[3] = {places, sums};
    struct cn_import_walk walk = {.at = {0}};
    uint64_t sizes[CN_GRAPH_RANK_MAX];
    size_t dims[CN_GRAPH_RANK_MAX];
    ptrdiff_t stride = 1;

    cn_graph_sample_dims(node->graph, x, sizes);
    for (uint32_t d = x->rank; d-- > 0;) {
        dims[d] = (size_t)sizes[d];
        places[d] = marked[d] ? 0 : stride;
        sums[d] = marked[d];
        stride *= marked[d] ? 1 : (ptrdiff_t)dims[d];
    }
    for (size_t i = 0; i < x->words; i++, cn_import_walk_next(&walk, x->rank, dims, strides))
        if (!join(node->graph, kind, x, i, y, (size_t)walk.at[0], !walk.at[1]))
            return cn_import_refuse(node, "the integers overflow");
    return CN_OK;
}

cn_err cn_import_known_reduce(struct cn_import_node *node, const bool *marked,
                              const struct cn_value *result)
{
    const struct cn_value x = *cn_import_value(node, 0);
    enum kind kind = kind_of(node->node);
    struct cn_value y;
    cn_err err = cn_import_known_room(node, result, x.kind == CN_VALUE_SHAPE, &y);

    if (!err)
        err = cn_import_work(node, x.words);
    if (err)
        return err;
    if (!x.words)
        return cn_import_refuse(node, "the input is empty");
    err = join_all(node, kind, &x, marked, &y);
    for (size_t i = 0; !err && kind == MEAN && i < y.words; i++) {
        size_t share = x.words / y.words;

        if (y.kind == CN_VALUE_SHAPE)
            node->graph->numbers[y.offset + i] /= (int64_t)share;
        else
            node->graph->constants[y.offset + i] /= (float)share;
    }
    return err ? err : cn_import_known_keep(node, &y, &node->out);
}

// Only known values can be multiplied: PyTorch multiplies sizes this way.
cn_err cn_import_product(struct cn_import_node *node)
{
    if (!cn_import_is_known(cn_import_value(node, 0)) || cn_import_value(node, 0)->integers)
        return cn_import_refuse(node, "a product of samples or weights is not supported");
    return cn_import_reduce(node);
}
