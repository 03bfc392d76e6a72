// Arithmetic on values that are known when the model is read.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/engine/import/import_known.h"

// Most elements that all known values of a model may have together.
#define KNOWN_MAX ((size_t)1 << 25)
#define FUNCTION_WORK 16 // work of an exponential or similar function, in elements

int64_t cn_import_known_int(const struct cn_graph *graph, const struct cn_value *value, size_t i)
{
    double number;

    if (value->kind == CN_VALUE_SHAPE)
        return graph->numbers[value->offset + i];
    number = (double)graph->constants[value->offset + i];
    if (isnan(number))
        return 0;
    return number >= 0x1p62 ? INT64_MAX : number <= -0x1p62 ? INT64_MIN : (int64_t)number;
}

double cn_import_known_float(const struct cn_graph *graph, const struct cn_value *value, size_t i)
{
    if (value->kind == CN_VALUE_SHAPE)
        return (double)graph->numbers[value->offset + i];
    return (double)graph->constants[value->offset + i];
}

bool cn_import_known_of_batch(const struct cn_graph *graph, const struct cn_value *value)
{
    if (value->kind != CN_VALUE_SHAPE || graph->batch != CN_GRAPH_BATCH)
        return value->of_batch;
    for (size_t i = 0; i < value->words && i < CN_GRAPH_RANK_MAX; i++) {
        int64_t number = graph->numbers[value->offset + i];

        if (number && number % CN_GRAPH_BATCH == 0)
            return true;
    }
    return false;
}

cn_err cn_import_known_room(struct cn_import_node *node, const struct cn_value *like, bool integers,
                            struct cn_value *value)
{
    struct cn_graph *graph = node->graph;
    uint64_t dims[CN_GRAPH_RANK_MAX];
    size_t words = 1;
    cn_err err;

    *value = (struct cn_value){.kind = integers ? CN_VALUE_SHAPE : CN_VALUE_CONST,
                               .rank = like->rank,
                               .batched = like->batched,
                               .batch_axis = like->batch_axis,
                               .batch_repeats = like->batch_repeats,
                               .shared = like->batched,
                               .root = CN_GRAPH_NONE};
    memcpy(value->dims, like->dims, sizeof(value->dims));
    cn_graph_sample_dims(graph, value, dims);
    for (uint32_t d = 0; d < value->rank; d++)
        if (__builtin_mul_overflow(words, dims[d], &words) || words > KNOWN_MAX)
            return cn_import_refuse(node, "the result has too many elements");
    if (words > KNOWN_MAX - (integers ? graph->number_count : graph->constant_count))
        return cn_import_refuse(node, "the model's constants have more than %zu elements",
                                KNOWN_MAX);
    err = cn_import_work(node, words);
    if (err)
        return err;
    value->words = words;
    err = integers ? cn_graph_add_numbers(graph, NULL, words, &value->offset)
                   : cn_graph_add_constants(graph, NULL, words, &value->offset);
    return err;
}

cn_err cn_import_add_known(struct cn_import_node *node, const struct cn_value *like,
                           const int64_t *numbers, const float *floats, uint32_t *out)
{
    struct cn_value value;
    cn_err err = cn_import_known_room(node, like, numbers != NULL, &value);

    if (err)
        return err;
    if (numbers && value.words)
        memcpy(node->graph->numbers + value.offset, numbers, value.words * sizeof(*numbers));
    else if (value.words)
        memcpy(node->graph->constants + value.offset, floats, value.words * sizeof(*floats));
    return cn_import_known_keep(node, &value, out);
}

void cn_import_walk_next(struct cn_import_walk *walk, uint32_t rank, const size_t *dims,
                         const ptrdiff_t *const strides[3])
{
    for (uint32_t d = rank; d-- > 0;) {
        bool more = ++walk->index[d] < dims[d];

        for (int i = 0; i < 3; i++)
            if (strides[i])
                walk->at[i] += strides[i][d] * (more ? 1 : 1 - (ptrdiff_t)dims[d]);
        if (more)
            return;
        walk->index[d] = 0;
    }
}

static size_t count_of(uint32_t rank, const size_t *dims)
{
    size_t count = 1;

    for (uint32_t d = 0; d < rank; d++)
        count *= dims[d];
    return count;
}

void cn_import_known_copy(const struct cn_graph *graph, const struct cn_value *from,
                          const struct cn_copy *copy, struct cn_value *to)
{
    const ptrdiff_t *const strides[3] = {copy->x, copy->y, NULL};
    size_t count = count_of(copy->rank, copy->dims);
    struct cn_import_walk walk = {.at = {(ptrdiff_t)copy->x_offset, (ptrdiff_t)copy->y_offset}};

    for (size_t i = 0; i < count;
         i++, cn_import_walk_next(&walk, copy->rank, copy->dims, strides)) {
        size_t x = (size_t)walk.at[0], y = (size_t)walk.at[1];

        if (to->kind == CN_VALUE_SHAPE)
            graph->numbers[to->offset + y] = cn_import_known_int(graph, from, x);
        else
            graph->constants[to->offset + y] = (float)cn_import_known_float(graph, from, x);
    }
}

cn_err cn_import_known_gather(struct cn_import_node *node, const struct cn_gather *gather,
                              const struct cn_value *index, const struct cn_value *result)
{
    const struct cn_value x = *cn_import_value(node, 0);
    struct cn_copy copy = {.rank = 2,
                           .dims = {gather->outer, gather->inner},
                           .x = {(ptrdiff_t)(gather->rows * gather->inner), 1},
                           .y = {(ptrdiff_t)(index->words * gather->inner), 1}};
    struct cn_value y;
    cn_err err = cn_import_known_room(node, result, x.kind == CN_VALUE_SHAPE, &y);

    for (size_t i = 0; !err && i < index->words; i++) {
        int64_t at = cn_import_known_int(node->graph, index, i);

        copy.x_offset = (size_t)(at < 0 ? at + (int64_t)gather->rows : at) * gather->inner;
        copy.y_offset = i * gather->inner;
        cn_import_known_copy(node->graph, &x, &copy, &y);
    }
    return err ? err : cn_import_known_keep(node, &y, &node->out);
}

static double softplus(double x)
{
    return (x > 0 ? x : 0) + log1p(exp(-fabs(x)));
}

static double map_float(const struct cn_map *op, double x)
{
    const double alpha = (double)op->alpha, beta = (double)op->beta;

    // clang-format off
    switch (op->kind) {
    case CN_MAP_RELU: return x < 0 ? 0 : x;
    case CN_MAP_LEAKY_RELU: return x < 0 ? alpha * x : x;
    case CN_MAP_SIGMOID: return 1 / (1 + exp(-x));
    case CN_MAP_TANH: return tanh(x);
    case CN_MAP_SCALE: return alpha * x + beta;
    case CN_MAP_ELU: return x < 0 ? alpha * expm1(x) : x;
    case CN_MAP_SELU: return beta * (x < 0 ? alpha * expm1(x) : x);
    case CN_MAP_EXP: return exp(x);
    case CN_MAP_SQRT: return sqrt(x);
    case CN_MAP_RECIPROCAL: return 1 / x;
    case CN_MAP_SOFTPLUS: return softplus(x);
    case CN_MAP_CLIP: return x < alpha ? alpha : x > beta ? beta : x;
    case CN_MAP_SIGN: return x > 0 ? 1 : x < 0 ? -1 : x;
    case CN_MAP_NOT: return x == 0;
    case CN_MAP_FLOOR: return floor(x);
    case CN_MAP_CEIL: return ceil(x);
    case CN_MAP_ROUND: return nearbyint(x);
    case CN_MAP_GELU: return x / 2 * (1 + erf(x * M_SQRT1_2));
    case CN_MAP_GELU_TANH:
        return x / 2 * (1 + tanh(sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
    case CN_MAP_SILU: return x / (1 + exp(-x));
    case CN_MAP_HARD_SIGMOID: return fmax(0, fmin(1, alpha * x + beta));
    case CN_MAP_HARD_SWISH: return x * fmax(0, fmin(1, x / 6 + 0.5));
    case CN_MAP_MISH: return x * tanh(softplus(x));
    case CN_MAP_ERF: return erf(x);
    case CN_MAP_LOG: return log(x);
    case CN_MAP_ABS: return fabs(x);
    case CN_MAP_POWER: return pow(x, alpha);
    case CN_MAP_SIN: return sin(x);
    case CN_MAP_COS: return cos(x);
    case CN_MAP_CLAMP: return x < alpha ? fmin(alpha, beta) : x > beta ? beta : x;
    case CN_MAP_FROM_INT:
    case CN_MAP_TO_INT: break; // only the storage of the result differs
    }
    // clang-format on
    return x;
}

static bool map_int(const struct cn_map *op, int64_t x, int64_t *result)
{
    switch (op->kind) {
    case CN_MAP_NOT:
        *result = !x;
        return true;
    case CN_MAP_ABS:
        *result = x < 0 ? -x : x;
        return x != INT64_MIN;
    case CN_MAP_SIGN:
        *result = (x > 0) - (x < 0);
        return true;
    case CN_MAP_SCALE: // negation is a scale of -1
        return op->alpha == -1 && !__builtin_sub_overflow((int64_t)0, x, result);
    case CN_MAP_TO_INT:
        *result = x;
        return true;
    default:
        return false;
    }
}

// Returns whether a map of the integers x gives integers.
static bool map_gives_integers(const struct cn_value *x, const struct cn_map *op)
{
    if (op->kind == CN_MAP_TO_INT || op->kind == CN_MAP_NOT)
        return true;
    return x->kind == CN_VALUE_SHAPE &&
           (op->kind == CN_MAP_ABS || op->kind == CN_MAP_SIGN ||
            (op->kind == CN_MAP_SCALE && op->alpha == -1 && op->beta == 0));
}

cn_err cn_import_known_map(struct cn_import_node *node, const struct cn_map *op, uint32_t in,
                           uint32_t *out)
{
    struct cn_value x = node->graph->values[in], y;
    bool integers = map_gives_integers(&x, op);
    cn_err err = cn_import_known_room(node, &x, integers, &y);

    y.of_batch = !integers && cn_import_known_of_batch(node->graph, &x);
    if (!err && !integers)
        err = cn_import_work(node, FUNCTION_WORK * y.words);
    for (size_t i = 0; !err && i < y.words; i++) {
        const struct cn_graph *graph = node->graph;

        if (!integers)
            graph->constants[y.offset + i] =
                (float)map_float(op, cn_import_known_float(graph, &x, i));
        else if (x.kind == CN_VALUE_CONST && op->kind == CN_MAP_NOT)
            graph->numbers[y.offset + i] = cn_import_known_float(graph, &x, i) == 0;
        else if (!map_int(op, cn_import_known_int(graph, &x, i), &graph->numbers[y.offset + i]))
            err = cn_import_refuse(node, "an integer is out of range");
    }
    return err ? err : cn_import_known_keep(node, &y, out);
}

static double combine_float(enum cn_combine_kind kind, double a, double b)
{
    // clang-format off
    switch (kind) {
    case CN_COMBINE_ADD: return a + b;
    case CN_COMBINE_SUB: return a - b;
    case CN_COMBINE_MUL: return a * b;
    case CN_COMBINE_DIV: return a / b;
    case CN_COMBINE_MIN: return a <= b || isnan(a) ? a : b;
    case CN_COMBINE_MAX: return a >= b || isnan(a) ? a : b;
    case CN_COMBINE_POWER: return pow(a, b);
    case CN_COMBINE_PRELU: return a > 0 ? a : a * b;
    case CN_COMBINE_EQUAL: return a == b;
    case CN_COMBINE_LESS: return a < b;
    case CN_COMBINE_LESS_EQUAL: return a <= b;
    case CN_COMBINE_AND: return a != 0 && b != 0;
    case CN_COMBINE_OR: return a != 0 || b != 0;
    }
    // clang-format on
    return 0;
}

static bool combine_int(enum cn_combine_kind kind, int64_t a, int64_t b, int64_t *result)
{
    switch (kind) {
    case CN_COMBINE_ADD:
        return !__builtin_add_overflow(a, b, result);
    case CN_COMBINE_SUB:
        return !__builtin_sub_overflow(a, b, result);
    case CN_COMBINE_MUL:
        return !__builtin_mul_overflow(a, b, result);
    case CN_COMBINE_DIV:
        if (!b || (b == -1 && a == INT64_MIN))
            return false;
        *result = a / b;
        return true;
    case CN_COMBINE_MIN:
        *result = a < b ? a : b;
        return true;
    case CN_COMBINE_MAX:
        *result = a > b ? a : b;
        return true;
    case CN_COMBINE_POWER:
    case CN_COMBINE_PRELU: {
        double value = combine_float(kind, (double)a, (double)b);

        *result = fabs(value) < 0x1p53 ? (int64_t)value : 0;
        return fabs(value) < 0x1p53;
    }
    case CN_COMBINE_EQUAL: // exact beyond 2^53 too
        *result = a == b;
        return true;
    case CN_COMBINE_LESS:
        *result = a < b;
        return true;
    case CN_COMBINE_LESS_EQUAL:
        *result = a <= b;
        return true;
    default:
        *result = combine_float(kind, a != 0, b != 0) != 0;
        return true;
    }
}

// Computes element i of the result from the operands' elements at these places.
static bool combine_one(const struct cn_graph *graph, const struct cn_combine *op, bool where,
                        const struct cn_value *in, const ptrdiff_t *at, const struct cn_value *c,
                        size_t i)
{
    bool ints = in[0].kind == CN_VALUE_SHAPE && in[1].kind == CN_VALUE_SHAPE;
    int side = where && cn_import_known_float(graph, &in[2], (size_t)at[2]) == 0;
    int64_t *number = c->kind == CN_VALUE_SHAPE ? &graph->numbers[c->offset + i] : NULL;
    size_t a = (size_t)at[0], b = (size_t)at[1];

    if (where && c->kind == CN_VALUE_SHAPE)
        *number = cn_import_known_int(graph, &in[side], (size_t)at[side]);
    else if (where)
        graph->constants[c->offset + i] =
            (float)cn_import_known_float(graph, &in[side], (size_t)at[side]);
    else if (ints)
        return combine_int(op->kind, cn_import_known_int(graph, &in[0], a),
                           cn_import_known_int(graph, &in[1], b), number);
    else if (c->kind == CN_VALUE_SHAPE)
        *number = combine_float(op->kind, cn_import_known_float(graph, &in[0], a),
                                cn_import_known_float(graph, &in[1], b)) != 0;
    else
        graph->constants[c->offset + i] =
            (float)combine_float(op->kind, cn_import_known_float(graph, &in[0], a),
                                 cn_import_known_float(graph, &in[1], b));
    return true;
}

cn_err cn_import_known_combine(struct cn_import_node *node, const struct cn_combine *op, bool where,
                               const uint32_t in[3], const struct cn_value *like, uint32_t *out)
{
    struct cn_graph *graph = node->graph;
    struct cn_value values[3] = {graph->values[in[0]], graph->values[in[1]]}, c;
    const ptrdiff_t *const strides[3] = {(const ptrdiff_t *)op->a, (const ptrdiff_t *)op->b,
                                         where ? (const ptrdiff_t *)op->condition : NULL};
    bool integers = (values[0].kind == CN_VALUE_SHAPE && values[1].kind == CN_VALUE_SHAPE) ||
                    (!where && op->kind >= CN_COMBINE_EQUAL);
    struct cn_import_walk walk = {0};
    cn_err err = cn_import_known_room(node, like, integers, &c);

    if (!err && op->kind == CN_COMBINE_POWER)
        err = cn_import_work(node, FUNCTION_WORK * c.words);
    if (err)
        return err;
    c.of_batch = !integers && (cn_import_known_of_batch(graph, &values[0]) ||
                               cn_import_known_of_batch(graph, &values[1]));
    if (where)
        values[2] = graph->values[in[2]];
    for (size_t i = 0; i < c.words; i++, cn_import_walk_next(&walk, op->rank, op->dims, strides))
        if (!combine_one(graph, op, where, values, walk.at, &c, i))
            return cn_import_refuse(node, "the integers overflow");
    return cn_import_known_keep(node, &c, out);
}
