// Pad: with a number, with the repeated border, with the reflected inside, or with the opposite
// end.
#include <string.h>

#include "runtime/engine/import/import_emit.h"

#define EXTENT_MAX (1 << 24) // largest pad
#define AXES_MAX 4           // most axes that may be padded other than by a number

// A stretch of an axis of the result: `size` elements, the first one at index `to`. They are the
// elements x, x + step, ... of the input.
struct stretch {
    size_t size, to;
    int64_t x, step;
};

enum source {
    FILL,
    EDGE,
    REFLECT,
    WRAP,
};

struct padding {
    enum source source;
    float fill;
    uint32_t rank;
    int64_t before[CN_GRAPH_RANK_MAX], after[CN_GRAPH_RANK_MAX];
    size_t count[CN_GRAPH_RANK_MAX]; // number of stretches of an axis, 1 to 3
    struct stretch stretch[CN_GRAPH_RANK_MAX][3];
};

static cn_err read_mode(struct cn_import_node *node, struct padding *padding)
{
    static const char *const names[] = {"constant", "edge", "reflect", "wrap"};
    const struct cn_onnx_attribute *mode = cn_onnx_attribute_find(node->node, "mode");
    const struct cn_value *value;

    while (mode && padding->source <= WRAP && !cn_text_equal(mode->s, names[padding->source]))
        padding->source++;
    if (padding->source > WRAP)
        return cn_import_refuse(node, "mode '%.*s' is not supported", (int)mode->s.size,
                                mode->s.data);
    padding->fill = cn_import_float(node, "value", 0);
    if (padding->source != FILL || !cn_import_has(node, 2))
        return CN_OK;
    value = cn_import_value(node, 2);
    if (!cn_import_is_known(value) || value->words != 1)
        return cn_import_refuse(node, "the number to pad with must be known before training");
    padding->fill = (float)cn_import_known_float(node->graph, value, 0);
    return CN_OK;
}

static cn_err read_pads(struct cn_import_node *node, struct padding *padding)
{
    const struct cn_value *x = cn_import_value(node, 0);
    int64_t pads[2 * CN_GRAPH_RANK_MAX];
    size_t count;
    cn_err err = cn_import_numbers(node, 1, "pads", pads, 2 * CN_GRAPH_RANK_MAX, &count);

    if (!err)
        err = read_mode(node, padding);
    if (err)
        return err;
    padding->rank = x->rank;
    if (cn_import_has(node, 3))
        return cn_import_refuse(node, "axes are not supported; export with pads for all axes");
    if (count != 2 * (size_t)x->rank)
        return cn_import_refuse(node, "%zu pads for rank %u", count, x->rank);
    for (uint32_t d = 0; d < x->rank; d++) {
        padding->before[d] = pads[d];
        padding->after[d] = pads[d + x->rank];
        if (pads[d] < -EXTENT_MAX || pads[d] > EXTENT_MAX || pads[d + x->rank] < -EXTENT_MAX ||
            pads[d + x->rank] > EXTENT_MAX)
            return cn_import_refuse(node, "a pad is outside -%d to %d", EXTENT_MAX, EXTENT_MAX);
        if (x->batched && d == x->batch_axis && (pads[d] || pads[d + x->rank]))
            return cn_import_refuse(node, "the batch cannot be padded");
    }
    return CN_OK;
}

// Returns the elements that go before or after an axis of this size.
static struct stretch stretch_beside(const struct padding *padding, int64_t size, int64_t count,
                                     bool before)
{
    struct stretch stretch = {.size = (size_t)count, .x = before ? 0 : size - 1}; // EDGE

    if (padding->source == REFLECT) {
        stretch.x = before ? count : size - 2;
        stretch.step = -1;
    } else if (padding->source == WRAP) {
        stretch.x = before ? size - count : 0;
        stretch.step = 1;
    }
    return stretch;
}

// Cuts an axis of the result into stretches. Negative pads remove elements of the input.
static cn_err cut_axis(const struct cn_import_node *node, struct padding *padding, uint32_t d,
                       int64_t size)
{
    int64_t before = padding->before[d], after = padding->after[d];
    int64_t first = before < 0 ? -before : 0, end = after < 0 ? size + after : size;
    struct stretch *stretch = padding->stretch[d];
    size_t count = 0;

    if (end <= first)
        return cn_import_refuse(node, "nothing is left of dimension %u", d);
    if ((padding->source == REFLECT && (before >= size || after >= size)) ||
        (padding->source == WRAP && (before > size || after > size)))
        return cn_import_refuse(node, "a pad is wider than dimension %u", d);
    if (padding->source != FILL && before > 0)
        stretch[count++] = stretch_beside(padding, size, before, true);
    stretch[count++] =
        (struct stretch){(size_t)(end - first), before > 0 ? (size_t)before : 0, first, 1};
    if (padding->source != FILL && after > 0) {
        stretch[count] = stretch_beside(padding, size, after, false);
        stretch[count++].to = (size_t)(before + size);
    }
    padding->count[d] = count;
    return CN_OK;
}

// Makes one piece for each combination of stretches, one of every axis.
static size_t make_pieces(const struct padding *padding, uint32_t from, const uint64_t *dims,
                          const uint64_t *whole, struct cn_import_piece *pieces)
{
    size_t total = 1;

    for (uint32_t d = 0; d < padding->rank; d++)
        total *= padding->count[d];
    for (size_t p = 0; p < total; p++) {
        struct cn_copy *copy = &pieces[p].copy;
        ptrdiff_t x_stride = 1, y_stride = 1, x_offset = 0, y_offset = 0;
        size_t choice = p;

        *copy = (struct cn_copy){.rank = padding->rank ? padding->rank : 1, .dims = {1}};
        pieces[p].from = from;
        for (uint32_t d = padding->rank; d-- > 0;) {
            const struct stretch *stretch = &padding->stretch[d][choice % padding->count[d]];

            choice /= padding->count[d];
            copy->dims[d] = stretch->size;
            copy->x[d] = (ptrdiff_t)stretch->step * x_stride;
            copy->y[d] = y_stride;
            x_offset += (ptrdiff_t)stretch->x * x_stride;
            y_offset += (ptrdiff_t)stretch->to * y_stride;
            x_stride *= (ptrdiff_t)dims[d];
            y_stride *= (ptrdiff_t)whole[d];
        }
        copy->x_offset = (size_t)x_offset;
        copy->y_offset = (size_t)y_offset;
    }
    return total;
}

static cn_err emit_padding(struct cn_import_node *node, struct padding *padding, uint32_t from,
                           uint32_t *out)
{
    struct cn_value x = node->graph->values[from], result = x;
    struct cn_import_piece pieces[81]; // 3 to the power of AXES_MAX
    uint64_t dims[CN_GRAPH_RANK_MAX], whole[CN_GRAPH_RANK_MAX];
    uint32_t cut = 0;
    size_t count;
    cn_err err;

    result.padded = false;
    for (uint32_t d = 0; d < x.rank; d++) {
        bool batch = x.batched && d == x.batch_axis;

        cn_graph_sample_dims(node->graph, &x, dims);
        err = cut_axis(node, padding, d, (int64_t)dims[d]);
        if (err)
            return err;
        cut += padding->count[d] > 1;
        if (!batch)
            result.dims[d] =
                (uint64_t)((int64_t)x.dims[d] + padding->before[d] + padding->after[d]);
    }
    if (cut > AXES_MAX)
        return cn_import_refuse(node, "%u dimensions are padded; at most %d are supported", cut,
                                AXES_MAX);
    cn_graph_sample_dims(node->graph, &result, whole);
    err = cn_import_countable(node, result.rank, whole);
    if (err)
        return err;
    count = make_pieces(padding, from, dims, whole, pieces);
    return cn_import_assemble(node, &result, padding->source == FILL ? &padding->fill : NULL,
                              pieces, count, out);
}

// Returns whether the zeros need no memory: the window that follows treats zeros around planes of
// images as its own padding.
static bool can_wait(const struct cn_value *x, const struct padding *padding)
{
    if (padding->source != FILL || padding->fill != 0 || x->rank < 3 || x->rank > 4 ||
        !x->batched || x->shared || x->batch_axis)
        return false;
    for (uint32_t d = 0; d < x->rank; d++)
        if (padding->before[d] < 0 || padding->after[d] < 0 ||
            (d < 2 && (padding->before[d] || padding->after[d])))
            return false;
    return true;
}

cn_err cn_import_pad(struct cn_import_node *node)
{
    struct cn_value x = *cn_import_value(node, 0);
    struct padding padding = {0};
    cn_err err = read_pads(node, &padding);

    if (err)
        return err;
    if (!can_wait(&x, &padding))
        return emit_padding(node, &padding, node->in[0], &node->out);
    for (uint32_t d = 2; d < x.rank; d++) {
        uint32_t axis = d + 2 - x.rank;

        x.padded = x.padded || padding.before[d] || padding.after[d];
        x.pad_before[axis] += (uint32_t)padding.before[d];
        x.pad_after[axis] += (uint32_t)padding.after[d];
    }
    return cn_graph_add_value(node->graph, &x, &node->out);
}

cn_err cn_import_make_pads(struct cn_import_node *node, size_t input)
{
    const struct cn_value *x = cn_import_value(node, input);
    struct padding padding = {.rank = x->rank};

    for (uint32_t d = 2; d < x->rank; d++) {
        padding.before[d] = x->pad_before[d + 2 - x->rank];
        padding.after[d] = x->pad_after[d + 2 - x->rank];
    }
    return emit_padding(node, &padding, node->in[input], &node->in[input]);
}
