// Merges the nodes that exporters write for attention, softmax(scale * q k' + mask) v, into one
// call. It reads q, k and v where a projection left them, and writes its result where the next
// projection reads it.
//
// The nodes stay as they are in three cases: dropout comes between the softmax and the product, the
// scores are an output too, or the mask depends on the samples.
#include <assert.h>
#include <math.h>
#include <string.h>

#include "runtime/engine/graph/passes_private.h"

// Returns whether each sample has its own floats in this value.
static bool is_samples(const struct cn_graph *graph, uint32_t value)
{
    return graph->values[value].batched && !graph->values[value].shared &&
           !graph->values[value].integers;
}

enum axis { // axes of an operand, whose elements are (head, row, column)
    HEAD,
    ROW,
    COLUMN,
    AXES,
};

// The place of an operand's elements in a value.
struct place {
    uint32_t value;
    size_t offset;
    size_t stride[AXES], extent[AXES];
};

// One dim of a copy, as seen from the side where a walk through the graph comes from.
struct dim {
    size_t count;
    size_t from, to; // stride on the side the walk comes from; stride on the other side
};

// Fills in the dims of a copy that covers the whole value on the side where the walk comes from.
// That side is y when walking to x (to_x), else x. Returns false for other copies.
static bool dims_of(const struct cn_graph *graph, const struct cn_node *node, bool to_x,
                    struct dim *dims)
{
    const struct cn_copy *copy = &node->call.copy;
    uint32_t left = to_x ? node->out[0] : node->in[0];
    size_t covered = 1;
    uint32_t d;

    if (node->call.op != CN_OP_COPY || node->call.write != CN_WRITE_SET || copy->scale != 1 ||
        (to_x ? copy->y_offset : copy->x_offset) || !is_samples(graph, node->in[0]))
        return false;
    for (d = 0; d < copy->rank; d++) {
        if (copy->x[d] < 1 || copy->y[d] < 1)
            return false;
        dims[d] = (struct dim){copy->dims[d], (size_t)(to_x ? copy->y[d] : copy->x[d]),
                               (size_t)(to_x ? copy->x[d] : copy->y[d])};
    }
    // That side is dense if its dims, sorted by stride, continue one another.
    do {
        for (d = 0; d < copy->rank && (dims[d].from != covered || dims[d].count == 1);)
            d++;
        covered *= d < copy->rank ? dims[d].count : 1;
    } while (d < copy->rank);
    return covered == graph->values[left].words;
}

// Moves place to the other side of a copy. Returns false when an axis of it does not stay one dim
// there.
static bool move(const struct dim *dims, uint32_t rank, struct place *place)
{
    size_t last[CN_COMBINE_RANK_MAX], offset = 0; // last: the largest index along a dim
    size_t stride[AXES] = {0};

    for (uint32_t d = 0; d < rank; d++) {
        last[d] = place->offset / dims[d].from % dims[d].count;
        offset += last[d] * dims[d].to;
    }
    for (int axis = 0; axis < AXES; axis++) {
        uint32_t d = 0;

        if (place->extent[axis] == 1)
            continue;
        while (d < rank && (place->stride[axis] % dims[d].from ||
                            place->stride[axis] / dims[d].from >= dims[d].count))
            d++;
        if (d == rank)
            return false;
        stride[axis] = place->stride[axis] / dims[d].from * dims[d].to;
        last[d] += place->stride[axis] / dims[d].from * (place->extent[axis] - 1);
        if (last[d] >= dims[d].count)
            return false;
    }
    place->offset = offset;
    memcpy(place->stride, stride, sizeof(stride));
    return true;
}

// The nodes of an attention that are merged into one.
#define NODES_MAX 16

struct attention {
    struct cn_attention op;
    struct place q, k, v;
    struct cn_node *nodes[NODES_MAX];
    size_t count;
    float scale;          // product of the factors passed so far, which scale the scores
    struct cn_node *mask; // NULL for none
    float mask_scale;
};

static bool keep(struct attention *attention, struct cn_node *node)
{
    if (attention->count == NODES_MAX)
        return false;
    attention->nodes[attention->count++] = node;
    return true;
}

static bool is_scale(const struct cn_node *node)
{
    return node->call.op == CN_OP_MAP && node->call.map.kind == CN_MAP_SCALE &&
           node->call.map.beta == 0;
}

// Walks back through copies to where an operand was made. With scores it also walks through
// factors.
static void trace(const struct passes *passes, struct attention *attention, struct place *place,
                  bool scores)
{
    struct cn_node *maker;

    while (attention->count < NODES_MAX &&
           (maker = cn_passes_sole_maker(passes, place->value)) != NULL) {
        struct dim dims[CN_COMBINE_RANK_MAX];

        if (scores && is_scale(maker) && is_samples(passes->graph, maker->in[0])) {
            attention->scale *= maker->call.map.alpha;
        } else {
            if (!dims_of(passes->graph, maker, true, dims) ||
                !move(dims, maker->call.copy.rank, place))
                return;
            place->offset += maker->call.copy.x_offset;
        }
        keep(attention, maker);
        place->value = maker->in[0];
    }
}

// Returns where an operand of a product lies.
static struct place place_of(const struct cn_node *product, int side)
{
    const struct cn_products *op = &product->call.products;

    if (!side)
        return (struct place){.value = product->in[0],
                              .stride = {op->stride_a, op->leading_a, 1},
                              .extent = {op->count, op->rows, op->inner}};
    return (struct place){.value = product->in[1],
                          .stride = {op->stride_b, op->leading_b, 1},
                          .extent = {op->count, op->inner, op->cols}};
}

static struct place exchanged(struct place place)
{
    size_t stride = place.stride[ROW], extent = place.extent[ROW];

    place.stride[ROW] = place.stride[COLUMN];
    place.extent[ROW] = place.extent[COLUMN];
    place.stride[COLUMN] = stride;
    place.extent[COLUMN] = extent;
    return place;
}

// Returns whether node multiplies matrices of each sample and writes a dense result.
static bool is_product(const struct passes *passes, const struct cn_node *node)
{
    const struct cn_products *op = &node->call.products;

    return node->call.op == CN_OP_PRODUCTS && !op->transpose_a && !op->transpose_b &&
           is_samples(passes->graph, node->in[0]) && is_samples(passes->graph, node->in[1]) &&
           op->leading_c == op->cols && (op->count == 1 || op->stride_c == op->rows * op->cols);
}

// Returns which input of a masking WHERE or ADD holds the scores; -1 when node is no mask.
static int scores_of(const struct passes *passes, const struct cn_node *node)
{
    const struct cn_value *values = passes->graph->values;
    bool add = node->call.op == CN_OP_COMBINE && node->call.combine.kind == CN_COMBINE_ADD;

    if (!add && node->call.op != CN_OP_WHERE)
        return -1;
    if (!add && values[cn_graph_root(passes->graph, node->in[2])].kind != CN_VALUE_CONST)
        return -1;
    for (int side = 0; side < 2; side++)
        if (is_samples(passes->graph, node->in[side]) &&
            values[cn_graph_root(passes->graph, node->in[1 - side])].kind == CN_VALUE_CONST &&
            values[node->in[side]].words == values[node->out[0]].words)
            return side;
    return -1;
}

// Walks from the softmax back to the product that made the scores. Returns NULL when there is none.
static struct cn_node *find_scores(const struct passes *passes, struct attention *attention,
                                   uint32_t value)
{
    struct cn_node *maker;

    while ((maker = cn_passes_sole_maker(passes, value)) && keep(attention, maker)) {
        int side = scores_of(passes, maker);

        if (is_scale(maker)) {
            attention->scale *= maker->call.map.alpha;
            value = maker->in[0];
        } else if (side >= 0 && !attention->mask) {
            attention->mask = maker;
            attention->mask_scale = attention->scale;
            value = maker->in[side];
        } else {
            return is_product(passes, maker) ? maker : NULL;
        }
    }
    return NULL;
}

// --- The mask ---

// Returns the word that element e of the scores reads in an operand with these strides.
static size_t word_of(const struct cn_combine *op, const size_t *strides, size_t e)
{
    size_t word = 0;

    for (uint32_t d = op->rank; d-- > 0; e /= op->dims[d])
        word += e % op->dims[d] * strides[d];
    return word;
}

// Returns whether the operand is the same for every head.
static bool repeats(const struct cn_combine *op, const size_t *strides, size_t words)
{
    size_t inside = 1;

    for (uint32_t d = op->rank; d-- > 0; inside *= op->dims[d])
        if (inside >= words && op->dims[d] > 1 && strides[d])
            return false;
    return inside % words == 0;
}

struct mask {
    const struct cn_combine *op;
    const size_t *filled_strides, *chosen_strides;
    const float *filled, *chosen; // numbers of the mask; its condition, NULL for ADD
    bool where_true;              // the mask's numbers apply where the condition holds
};

static struct mask mask_of(const struct cn_graph *graph, const struct cn_node *node, int side)
{
    const struct cn_combine *op = &node->call.combine;
    struct mask mask = {.op = op, .filled_strides = side ? op->a : op->b};

    mask.filled = graph->constants + graph->values[cn_graph_root(graph, node->in[1 - side])].offset;
    if (node->call.op == CN_OP_WHERE) {
        mask.chosen_strides = op->condition;
        mask.chosen = graph->constants + graph->values[cn_graph_root(graph, node->in[2])].offset;
        mask.where_true = side == 1;
    }
    return mask;
}

#define NEVER (-1e30f) // exporters that avoid -inf fill masks with numbers below this

// Sets *added to the number that the mask adds to score e. Returns false when the operand is not a
// mask.
static bool mask_at(const struct mask *mask, size_t e, float *added)
{
    *added = mask->filled[word_of(mask->op, mask->filled_strides, e)];
    if (!mask->chosen)
        return !isnan(*added);
    if ((mask->chosen[word_of(mask->op, mask->chosen_strides, e)] != 0) != mask->where_true)
        *added = 0;
    else if (*added < NEVER)
        *added = -INFINITY;
    else
        return false;
    return true;
}

// Writes a mask of rows x cols and sets *causal. Returns false when it is not a mask or leaves some
// row no column.
static bool fill_mask(const struct mask *mask, float scale, size_t rows, size_t cols, float *to,
                      bool *causal)
{
    *causal = rows == cols;
    if (!repeats(mask->op, mask->filled_strides, rows * cols) ||
        (mask->chosen && !repeats(mask->op, mask->chosen_strides, rows * cols)))
        return false;
    for (size_t i = 0; i < rows; i++) {
        bool left = false;

        for (size_t j = 0; j < cols; j++) {
            float *added = &to[i * cols + j];

            if (!mask_at(mask, i * cols + j, added))
                return false;
            left = left || *added >= NEVER;
            *causal = *causal && (j > i ? *added < NEVER : *added == 0);
            *added = *added == 0 ? 0 : *added * scale;
        }
        if (!left)
            return false;
    }
    return true;
}

// Turns the mask into a constant or marks the attention as causal. Returns false when it is not a
// mask.
static bool take_mask(struct passes *passes, struct attention *attention, uint32_t *value)
{
    struct cn_graph *graph = passes->graph;
    struct cn_attention *op = &attention->op;
    struct cn_value constant = {
        .kind = CN_VALUE_CONST, .rank = 2, .dims = {op->q_rows, op->k_rows}, .root = CN_GRAPH_NONE};
    struct mask mask;
    bool is_mask;

    *value = CN_GRAPH_NONE;
    if (!attention->mask)
        return true;
    if (!(attention->mask_scale > 0))
        return false;
    passes->err = cn_graph_add_constants(graph, NULL, op->q_rows * op->k_rows, &constant.offset);
    if (passes->err)
        return false;
    assert(graph->constants);
    mask = mask_of(graph, attention->mask, scores_of(passes, attention->mask));
    is_mask = fill_mask(&mask, attention->mask_scale, op->q_rows, op->k_rows,
                        graph->constants + constant.offset, &op->causal);
    if (is_mask && !op->causal)
        passes->err = cn_graph_add_value(graph, &constant, value);
    else
        graph->constant_count = constant.offset; // the constant is not needed
    return is_mask && !passes->err;
}

// --- The call ---

static bool is_contiguous(const struct place *place)
{
    return place->extent[COLUMN] == 1 || place->stride[COLUMN] == 1;
}

static struct cn_heads heads_of(const struct place *place)
{
    return (struct cn_heads){place->offset, place->stride[HEAD], place->stride[ROW]};
}

// Finds what the product is made of: (softmax of scores) v.
static bool find(const struct passes *passes, struct cn_node *product, struct attention *attention)
{
    const struct cn_products *op = &product->call.products;
    struct cn_node *softmax, *scores;

    *attention = (struct attention){.scale = 1};
    if (!is_product(passes, product) || op->alpha != 1 || op->leading_a != op->inner ||
        (op->count > 1 && op->stride_a != op->rows * op->inner))
        return false;
    softmax = cn_passes_sole_maker(passes, product->in[0]);
    if (!softmax || softmax->call.op != CN_OP_SOFTMAX || softmax->call.softmax.log ||
        softmax->call.softmax.inner != 1 || softmax->call.softmax.cols != op->inner ||
        softmax->call.softmax.outer != op->count * op->rows || !keep(attention, softmax))
        return false;
    scores = find_scores(passes, attention, softmax->in[0]);
    if (!scores || scores->call.products.count != op->count ||
        scores->call.products.rows != op->rows || scores->call.products.cols != op->inner)
        return false;
    attention->scale *= scores->call.products.alpha;
    attention->q = place_of(scores, 0);
    attention->k = exchanged(place_of(scores, 1));
    attention->v = place_of(product, 1);
    trace(passes, attention, &attention->q, true);
    trace(passes, attention, &attention->k, true);
    trace(passes, attention, &attention->v, false);
    return is_contiguous(&attention->q) && is_contiguous(&attention->k) &&
           is_contiguous(&attention->v) && attention->scale > 0;
}

static void fill_call(const struct cn_node *product, struct attention *attention)
{
    const struct cn_products *op = &product->call.products;

    attention->op = (struct cn_attention){
        .heads = op->count,
        .q_rows = op->rows,
        .k_rows = op->inner,
        .width = attention->q.extent[COLUMN],
        .v_width = op->cols,
        .q = heads_of(&attention->q),
        .k = heads_of(&attention->k),
        .v = heads_of(&attention->v),
        .y = {0, op->stride_c, op->leading_c},
        .scale = attention->scale,
    };
}

void cn_passes_attention(struct passes *passes, size_t index)
{
    struct cn_graph *graph = passes->graph;
    struct cn_node *node = &graph->nodes[index], fused = cn_graph_node(CN_OP_ATTENTION);
    struct cn_value saved = {
        .kind = CN_VALUE_ACTIVATION, .rank = 2, .batched = true, .root = CN_GRAPH_NONE};
    struct attention attention;

    if (!find(passes, node, &attention))
        return;
    fill_call(node, &attention);
    if (attention.op.width > CN_ATTENTION_WIDTH_MAX ||
        attention.op.v_width > CN_ATTENTION_WIDTH_MAX ||
        !take_mask(passes, &attention, &fused.in[3]))
        return;
    saved.dims[0] = graph->batch;
    saved.dims[1] = attention.op.heads * attention.op.q_rows;
    passes->err = cn_graph_add_value(graph, &saved, &fused.out[1]);
    for (size_t i = 0; i < attention.count; i++)
        cn_passes_disconnect(attention.nodes[i], attention.nodes[i]->out[0]);
    fused.call.attention = attention.op;
    fused.in[0] = attention.q.value;
    fused.in[1] = attention.k.value;
    fused.in[2] = attention.v.value;
    fused.out[0] = node->out[0];
    *node = fused;
}

// Removes the copy that joins the heads: the call writes its result in that order itself.
void cn_passes_attention_result(struct passes *passes, size_t index)
{
    struct cn_node *node = &passes->graph->nodes[index], *maker;
    struct dim dims[CN_COMBINE_RANK_MAX];
    struct cn_attention *op;
    struct place y;

    if (node->call.op != CN_OP_COPY)
        return;
    maker = cn_passes_sole_maker(passes, node->in[0]);
    if (!maker || maker->call.op != CN_OP_ATTENTION || !dims_of(passes->graph, node, false, dims) ||
        passes->graph->values[node->out[0]].words != passes->graph->values[node->in[0]].words)
        return;
    op = &maker->call.attention;
    y = (struct place){.stride = {op->y.head, op->y.row, 1},
                       .extent = {op->heads, op->q_rows, op->v_width}};
    if (!move(dims, node->call.copy.rank, &y) || !is_contiguous(&y) || node->call.copy.y_offset)
        return;
    op->y = heads_of(&y);
    cn_passes_take_over(passes, maker, node);
}
