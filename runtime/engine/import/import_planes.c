// Resized planes, extremes over dimensions, normalization of planes and groups of planes.
#include <inttypes.h>
#include <string.h>

#include "runtime/engine/import/import_known.h"

#define EXTENT_MAX (1 << 24) // largest dimension of an image

struct place_name {
    const char *name;
    enum cn_resize_place place;
};

static cn_err read_place(const struct cn_import_node *node, struct cn_resize *op)
{
    static const struct place_name places[] = {
        {"asymmetric", CN_RESIZE_ASYMMETRIC},
        {"half_pixel", CN_RESIZE_HALF_PIXEL},
        {"pytorch_half_pixel", CN_RESIZE_HALF_PIXEL},
        {"align_corners", CN_RESIZE_ALIGN_CORNERS},
    };
    const struct cn_onnx_attribute *mode =
        cn_onnx_attribute_find(node->node, "coordinate_transformation_mode");

    op->place = CN_RESIZE_HALF_PIXEL;
    if (!mode)
        return CN_OK;
    for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++)
        if (cn_text_equal(mode->s, places[i].name)) {
            op->place = places[i].place;
            return CN_OK;
        }
    return cn_import_refuse(node, "coordinate_transformation_mode '%.*s' is not supported",
                            (int)mode->s.size, mode->s.data);
}

static cn_err read_mode(const struct cn_import_node *node, struct cn_resize *op)
{
    const struct cn_onnx_attribute *mode = cn_onnx_attribute_find(node->node, "mode");
    const struct cn_onnx_attribute *nearest = cn_onnx_attribute_find(node->node, "nearest_mode");

    op->kind = CN_RESIZE_NEAREST;
    op->round = !nearest || cn_text_equal(nearest->s, "round_prefer_floor");
    if (mode && cn_text_equal(mode->s, "linear"))
        op->kind = CN_RESIZE_LINEAR;
    else if (mode && !cn_text_equal(mode->s, "nearest"))
        return cn_import_refuse(node, "mode '%.*s'; nearest and linear are supported",
                                (int)mode->s.size, mode->s.data);
    else if (!op->round && !cn_text_equal(nearest->s, "floor"))
        return cn_import_refuse(node, "nearest_mode '%.*s' is not supported", (int)nearest->s.size,
                                nearest->s.data);
    return CN_OK;
}

// Reads output dims and scales from input 2 (scales) or 3 (sizes).
static cn_err read_sizes(const struct cn_import_node *node, uint64_t *dims, double *scales)
{
    const struct cn_value *x = cn_import_value(node, 0), *given;
    size_t input = cn_import_has(node, 3) ? 3 : 2;

    if (!cn_import_has(node, input))
        return cn_import_refuse(node, "neither scales nor sizes are given");
    given = cn_import_value(node, input);
    if (!cn_import_is_known(given) || given->words != x->rank)
        return cn_import_refuse(
            node, "scales or sizes must be known before training, one for each dimension");
    for (uint32_t d = 0; d < x->rank; d++) {
        double number = cn_import_known_float(node->graph, given, d);
        double size = input == 3 ? number : (double)x->dims[d] * number;

        if (!(size >= 1 && (size <= EXTENT_MAX || d == 0)))
            return cn_import_refuse(node, "dimension %u would have %g elements", d, size);
        dims[d] = (uint64_t)size;
        scales[d] = input == 3 ? size / (double)x->dims[d] : number;
    }
    if (dims[0] != x->dims[0] || dims[1] != x->dims[1])
        return cn_import_refuse(node, "only planes are resized, not the batch or channels");
    return CN_OK;
}

cn_err cn_import_resize(struct cn_import_node *node)
{
    const struct cn_value *x = cn_import_value(node, 0);
    const struct cn_onnx_attribute *mode =
        cn_onnx_attribute_find(node->node, "coordinate_transformation_mode");
    struct cn_node call = cn_graph_node(CN_OP_RESIZE);
    struct cn_resize *op = &call.call.resize;
    uint64_t dims[CN_GRAPH_RANK_MAX] = {0};
    double scales[CN_GRAPH_RANK_MAX] = {0};
    cn_err err;

    if (!x->batched || x->shared || x->rank < 3 || x->rank > 4)
        return cn_import_refuse(node, "the input must be samples of rank 3 or 4");
    err = read_mode(node, op);
    if (!err)
        err = read_place(node, op);
    if (!err)
        err = read_sizes(node, dims, scales);
    if (err)
        return err;
    op->channels = (uint32_t)x->dims[1];
    for (uint32_t i = 0; i < 2; i++) {
        uint32_t d = i + x->rank - 2;
        bool flat = i == 0 && x->rank == 3;

        op->in[i] = flat ? 1 : (uint32_t)x->dims[d];
        op->out[i] = flat ? 1 : (uint32_t)dims[d];
        // PyTorch takes the first element where there is one result. A scale of 1 gives the same.
        op->scale[i] =
            flat || (op->out[i] == 1 && mode && cn_text_equal(mode->s, "pytorch_half_pixel"))
                ? 1
                : (float)scales[d];
    }
    err = cn_import_output(node, x->rank, dims);
    call.in[0] = node->in[0];
    call.out[0] = node->out;
    return err ? err : cn_graph_add_node(node->graph, &call);
}

// Adds the extreme along the marked dims; result has the dims of the output. PyTorch's amax and
// amin share a gradient evenly among equal elements, pooling gives it to the first.
static cn_err emit_extreme(struct cn_import_node *node, enum cn_extreme_kind kind, bool even,
                           const bool *marked, const struct cn_value *result)
{
    const struct cn_value x = *cn_import_value(node, 0);
    struct cn_node call = cn_graph_node(CN_OP_EXTREME);
    struct cn_extreme *op = &call.call.extreme;
    struct cn_value place = *result;
    uint64_t dims[CN_GRAPH_RANK_MAX];
    size_t stride = 1;
    cn_err err;

    if (x.words > INT32_MAX)
        return cn_import_refuse(node, "a sample has too many elements");
    op->kind = kind;
    op->even = even;
    op->rank = x.rank;
    cn_graph_sample_dims(node->graph, &x, dims);
    for (uint32_t d = x.rank; d-- > 0;) {
        op->dims[d] = (size_t)dims[d];
        op->y[d] = marked[d] ? 0 : stride;
        stride *= marked[d] ? 1 : (size_t)dims[d];
    }
    err = cn_import_add(node, result, &node->out);
    place.integers = true;
    if (!err)
        err = cn_import_add(node, &place, &call.out[1]);
    call.in[0] = node->in[0];
    call.out[0] = node->out;
    return err ? err : cn_graph_add_node(node->graph, &call);
}

cn_err cn_import_extreme(struct cn_import_node *node)
{
    const struct cn_value x = *cn_import_value(node, 0);
    bool largest = cn_text_equal(node->node->op, "ReduceMax");
    struct cn_import_reduction reduction;
    cn_err err = cn_import_read_reduction(node, &reduction);

    if (err)
        return err;
    if (reduction.nothing)
        return cn_import_identity(node);
    if (cn_import_is_known(&x) && !x.integers)
        return cn_import_known_reduce(node, reduction.marked, &reduction.result);
    if (cn_graph_is_shared(&x) || x.integers)
        return cn_import_refuse(node, "a reduction of weights by this op is not supported");
    return emit_extreme(node, largest ? CN_EXTREME_MAX : CN_EXTREME_MIN, true, reduction.marked,
                        &reduction.result);
}

cn_err cn_import_global_max_pool(struct cn_import_node *node)
{
    struct cn_value x = *cn_import_value(node, 0), result = x;
    bool marked[CN_GRAPH_RANK_MAX] = {false};

    if (x.rank < 3 || cn_graph_is_shared(&x))
        return cn_import_refuse(node, "the input must be samples of planes");
    for (uint32_t d = 2; d < x.rank; d++) {
        marked[d] = true;
        result.dims[d] = 1;
    }
    return emit_extreme(node, CN_EXTREME_MAX, false, marked, &result);
}

// Checks a scale or bias: it must have count numbers.
static cn_err read_affine(struct cn_import_node *node, size_t input, size_t count, uint32_t *out)
{
    const struct cn_value *value = cn_import_value(node, input);

    if (value->batched || value->words != count)
        return cn_import_refuse(node, "input %zu must have %zu elements", input, count);
    return cn_import_as_floats(node, node->in[input], out);
}

// Emits the normalization of op and defines the output. affine is the number of elements that scale
// and bias must have.
static cn_err emit_norm(struct cn_import_node *node, const struct cn_norm *op, size_t affine)
{
    const struct cn_value x = *cn_import_value(node, 0);
    struct cn_node call = cn_graph_node(CN_OP_NORM);
    struct cn_value saved = {.rank = 3, .batched = true, .dims = {node->graph->batch, op->rows, 2}};
    cn_err err;

    call.call.norm = *op;
    call.in[0] = node->in[0];
    err = read_affine(node, 1, affine, &call.in[1]);
    if (!err)
        err = read_affine(node, 2, affine, &call.in[2]);
    if (!err)
        err = cn_import_add(node, &x, &node->out);
    if (!err)
        err = cn_import_add(node, &saved, &call.out[1]);
    call.out[0] = node->out;
    return err ? err : cn_graph_add_node(node->graph, &call);
}

cn_err cn_import_instance_norm(struct cn_import_node *node)
{
    const struct cn_value *x = cn_import_value(node, 0);
    struct cn_norm op = {.epsilon = cn_import_float(node, "epsilon", 1e-5f)};

    if (cn_graph_is_shared(x) || x->rank < 3)
        return cn_import_refuse(node, "the input must be samples of planes");
    op.rows = op.groups = x->dims[1];
    op.cols = op.inner = x->words / x->dims[1];
    return emit_norm(node, &op, op.rows);
}

// Opset 18 has scale and bias for each group, 21 for each channel.
cn_err cn_import_group_norm(struct cn_import_node *node)
{
    const struct cn_value *x = cn_import_value(node, 0);
    int64_t groups = cn_import_int(node, "num_groups", 0);
    struct cn_norm op = {.epsilon = cn_import_float(node, "epsilon", 1e-5f)};
    bool by_group = cn_import_value(node, 1)->words == (uint64_t)groups;

    if (cn_graph_is_shared(x))
        return cn_import_refuse(node, "the input must be samples");
    if (x->rank < 2 || groups < 1 || x->dims[1] % (uint64_t)groups)
        return cn_import_refuse(node, "%" PRId64 " groups of the channels", groups);
    op.rows = op.groups = (size_t)groups;
    op.cols = x->words / (size_t)groups;
    op.inner = by_group ? op.cols : x->words / x->dims[1];
    return emit_norm(node, &op, by_group ? op.rows : x->dims[1]);
}

// Moves channels to places: the channels [C, r, r] of each place (with mode DCR [r, r, C]) become
// r x r places of C channels.
cn_err cn_import_depth_to_space(struct cn_import_node *node)
{
    const struct cn_onnx_attribute *mode = cn_onnx_attribute_find(node->node, "mode");
    const struct cn_value x = *cn_import_value(node, 0);
    bool depth_last = mode && cn_text_equal(mode->s, "CRD");
    uint64_t r = (uint64_t)cn_import_int(node, "blocksize", 0);
    struct cn_value like = x;
    struct cn_import_piece piece = {.from = node->in[0], .copy = {.rank = 5, .scale = 1}};
    struct cn_copy *copy = &piece.copy;
    ptrdiff_t plane, row;

    if (x.rank != 4 || !x.batched || !r || r > 1024 || x.dims[1] % (r * r))
        return cn_import_refuse(node, "the input must be [batch, channels, height, width] with a "
                                      "multiple of blocksize * blocksize channels");
    like.dims[1] = x.dims[1] / (r * r);
    like.dims[2] = x.dims[2] * r;
    like.dims[3] = x.dims[3] * r;
    plane = (ptrdiff_t)(x.dims[2] * x.dims[3]);
    row = (ptrdiff_t)like.dims[3];
    // The dims are channel, row, row within the block, column, column within the block.
    copy->dims[0] = (size_t)like.dims[1];
    copy->dims[1] = (size_t)x.dims[2];
    copy->dims[2] = copy->dims[4] = (size_t)r;
    copy->dims[3] = (size_t)x.dims[3];
    copy->x[0] = depth_last ? plane * (ptrdiff_t)(r * r) : plane;
    copy->x[1] = (ptrdiff_t)x.dims[3];
    copy->x[4] = depth_last ? plane : plane * (ptrdiff_t)like.dims[1];
    copy->x[2] = copy->x[4] * (ptrdiff_t)r;
    copy->x[3] = 1;
    copy->y[0] = row * (ptrdiff_t)like.dims[2];
    copy->y[1] = row * (ptrdiff_t)r;
    copy->y[2] = row;
    copy->y[3] = (ptrdiff_t)r;
    copy->y[4] = 1;
    return cn_import_assemble(node, &like, NULL, &piece, 1, &node->out);
}
