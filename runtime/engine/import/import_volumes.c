// Convolution and pooling of volumes, [batch, channels, depth, height, width], expressed by those
// of planes.
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/engine/import/import_emit.h"

#define EXTENT_MAX (1 << 24) // largest dimension
#define TAPS_MAX 4096        // most taps of a filter along depth and height together
#define ATTRIBUTES_MAX 8

enum axis {
    DEPTH,
    HEIGHT,
    WIDTH,
    AXES,
};

// The geometry of one axis of a window.
struct extent {
    int64_t in, out, kernel, stride, dilation, before, after;
};

static cn_err read_numbers(const struct cn_import_node *node, const char *name, size_t count,
                           int64_t lowest, int64_t *numbers)
{
    const struct cn_onnx_attribute *found = cn_onnx_attribute_find(node->node, name);

    for (size_t i = 0; i < count; i++)
        numbers[i] = found && found->count == count ? found->ints[i] : lowest;
    if (found && found->count != count)
        return cn_import_refuse(node, "'%s' has %zu elements, wanted %zu", name, found->count,
                                count);
    for (size_t i = 0; i < count; i++)
        if (numbers[i] < lowest || numbers[i] > EXTENT_MAX)
            return cn_import_refuse(node, "'%s' holds %" PRId64, name, numbers[i]);
    return CN_OK;
}

// Reads the window of a convolution of input 0 by input 1.
static cn_err read_window(const struct cn_import_node *node, struct extent *window)
{
    const struct cn_value *x = cn_import_value(node, 0), *filter = cn_import_value(node, 1);
    const struct cn_onnx_attribute *mode = cn_onnx_attribute_find(node->node, "auto_pad");
    int64_t strides[AXES], dilations[AXES], pads[2 * AXES];
    cn_err err = read_numbers(node, "strides", AXES, 1, strides);

    if (!err)
        err = read_numbers(node, "dilations", AXES, 1, dilations);
    if (!err)
        err = read_numbers(node, "pads", 2 * AXES, 0, pads);
    if (err)
        return err;
    if (mode && !cn_text_equal(mode->s, "NOTSET"))
        return cn_import_refuse(node, "auto_pad '%.*s' is not supported", (int)mode->s.size,
                                mode->s.data);
    for (int i = 0; i < AXES; i++) {
        struct extent *e = &window[i];
        int64_t steps;

        if (x->dims[2 + i] > EXTENT_MAX || filter->dims[2 + i] > EXTENT_MAX)
            return cn_import_refuse(node, "dimension %d is too large", 2 + i);
        *e = (struct extent){.in = (int64_t)x->dims[2 + i],
                             .kernel = (int64_t)filter->dims[2 + i],
                             .stride = strides[i],
                             .dilation = dilations[i],
                             .before = pads[i],
                             .after = pads[AXES + i]};
        steps = e->in + e->before + e->after - (e->kernel - 1) * e->dilation - 1;
        if (steps < 0)
            return cn_import_refuse(node, "the window is larger than dimension %d", 2 + i);
        e->out = steps / e->stride + 1;
    }
    return CN_OK;
}

// Finds the windows [first, end) whose element at this tap lies inside the input.
static void windows_at(const struct extent *e, int64_t tap, int64_t *first, int64_t *end)
{
    int64_t shift = e->before - tap * e->dilation; // window i reads element i * stride - shift

    *first = shift > 0 ? (shift + e->stride - 1) / e->stride : 0;
    *end = shift + e->in > 0 ? (shift + e->in - 1) / e->stride + 1 : 0;
    *end = *end < e->out ? *end : e->out;
}

// Makes the copy for one tap of depth and height: a channel of the planes that the convolution
// reads.
static bool make_piece(const struct extent *window, int64_t channels, int64_t depth_tap,
                       int64_t height_tap, struct cn_copy *copy)
{
    const struct extent *d = &window[DEPTH], *h = &window[HEIGHT];
    const int64_t row = window[WIDTH].in, rows = d->out * h->out;
    int64_t first[2] = {0}, end[2] = {0};

    windows_at(d, depth_tap, &first[0], &end[0]);
    windows_at(h, height_tap, &first[1], &end[1]);
    if (first[0] >= end[0] || first[1] >= end[1])
        return false;
    *copy = (struct cn_copy){.rank = 4, .scale = 1};
    copy->dims[0] = (size_t)channels;
    copy->dims[1] = (size_t)(end[0] - first[0]);
    copy->dims[2] = (size_t)(end[1] - first[1]);
    copy->dims[3] = (size_t)row;
    copy->x[0] = (ptrdiff_t)(d->in * h->in * row);
    copy->x[1] = (ptrdiff_t)(d->stride * h->in * row);
    copy->x[2] = (ptrdiff_t)(h->stride * row);
    copy->y[0] = (ptrdiff_t)(d->kernel * h->kernel * rows * row);
    copy->y[1] = (ptrdiff_t)(h->out * row);
    copy->y[2] = (ptrdiff_t)row;
    copy->x[3] = copy->y[3] = 1;
    copy->x_offset =
        (size_t)(((first[0] * d->stride + depth_tap * d->dilation - d->before) * h->in +
                  first[1] * h->stride + height_tap * h->dilation - h->before) *
                 row);
    copy->y_offset =
        (size_t)(((depth_tap * h->kernel + height_tap) * rows + first[0] * h->out + first[1]) *
                 row);
    return true;
}

// Adds input 0 as planes: one row for each window along depth and height, and one channel for each
// element that the window reads there.
static cn_err emit_rows(struct cn_import_node *node, const struct extent *window, uint32_t *out)
{
    const struct cn_value x = *cn_import_value(node, 0);
    const int64_t taps = window[DEPTH].kernel * window[HEIGHT].kernel;
    const float zero = 0;
    struct cn_value like = x;
    struct cn_import_piece *pieces;
    size_t count = 0;
    cn_err err;

    if (taps < 1 || taps > TAPS_MAX || x.dims[1] > EXTENT_MAX)
        return cn_import_refuse(node, "the filter has too many elements");
    like.rank = 4;
    like.dims[1] = x.dims[1] * (uint64_t)taps;
    like.dims[2] = (uint64_t)(window[DEPTH].out * window[HEIGHT].out);
    like.dims[3] = x.dims[4];
    err = cn_import_countable(node, 3, like.dims + 1);
    if (err)
        return err;
    pieces = calloc((size_t)taps, sizeof(*pieces));
    if (!pieces)
        return CN_ENOMEM;
    for (int64_t tap = 0; tap < taps; tap++) {
        pieces[count].from = node->in[0];
        count += make_piece(window, (int64_t)x.dims[1], tap / window[HEIGHT].kernel,
                            tap % window[HEIGHT].kernel, &pieces[count].copy);
    }
    err = cn_import_assemble(node, &like, &zero, pieces, count, out);
    free(pieces);
    return err;
}

// Adds a view of the same memory under other dims, with the batch first.
static cn_err add_view(struct cn_import_node *node, uint32_t of, uint32_t rank,
                       const uint64_t *dims, uint32_t *out)
{
    struct cn_value view = node->graph->values[of];

    view.rank = rank;
    memcpy(view.dims, dims, rank * sizeof(*dims));
    return cn_graph_add_value(node->graph, &view, out);
}

cn_err cn_import_conv_volume(struct cn_import_node *node)
{
    const struct cn_value filter = *cn_import_value(node, 1);
    const struct cn_onnx_attribute *group = cn_onnx_attribute_find(node->node, "group");
    struct extent window[AXES] = {{0}};
    struct cn_onnx_node source = *node->node;
    struct cn_import_node part = *node;
    cn_err err = CN_OK;

    if (filter.rank != 5 || filter.batched || filter.transposed)
        return cn_import_refuse(node, "the filter must be of rank 5, without samples");
    err = read_window(node, window);
    if (!err)
        err = emit_rows(node, window, &part.in[0]);
    if (!err) {
        uint64_t taps = (uint64_t)(window[DEPTH].kernel * window[HEIGHT].kernel);
        uint64_t dims[] = {filter.dims[0], filter.dims[1] * taps, 1, filter.dims[4]};

        err = add_view(node, node->in[1], 4, dims, &part.in[1]);
    }
    if (!err) {
        const struct extent *w = &window[WIDTH];
        int64_t strides[] = {1, w->stride}, dilations[] = {1, w->dilation};
        int64_t pads[] = {0, w->before, 0, w->after};
        struct cn_onnx_attribute attributes[] = {
            {.name = {"strides", 7}, .ints = strides, .count = 2},
            {.name = {"dilations", 9}, .ints = dilations, .count = 2},
            {.name = {"pads", 4}, .ints = pads, .count = 4},
            {.name = {"group", 5}, .i = group ? group->i : 1},
        };

        source.attributes = attributes;
        source.attribute_count = sizeof(attributes) / sizeof(attributes[0]);
        part.node = &source;
        err = cn_import_conv(&part);
    }
    if (!err) {
        const struct cn_value *y = &node->graph->values[part.out];
        uint64_t dims[] = {y->dims[0], y->dims[1], (uint64_t)window[DEPTH].out,
                           (uint64_t)window[HEIGHT].out, y->dims[3]};

        err = add_view(node, part.out, 5, dims, &node->out);
    }
    return err;
}

// The attributes of a window over two of the three axes. In a list of axes, AXES stands for one
// that is skipped.
struct flat_attributes {
    struct cn_onnx_attribute list[ATTRIBUTES_MAX];
    int64_t numbers[ATTRIBUTES_MAX][4];
    size_t count;
};

static cn_err flatten_attributes(const struct cn_import_node *node, const enum axis axes[2],
                                 struct flat_attributes *flat)
{
    flat->count = 0;
    for (size_t i = 0; i < node->node->attribute_count; i++) {
        struct cn_onnx_attribute *to = &flat->list[flat->count];
        bool pads;

        if (flat->count == ATTRIBUTES_MAX)
            return cn_import_refuse(node, "it has too many attributes");
        *to = node->node->attributes[i];
        pads = cn_text_equal(to->name, "pads");
        flat->count++;
        if (!to->ints)
            continue;
        if (to->count != (pads ? 2 * AXES : AXES))
            return cn_import_refuse(node, "'%.*s' has %zu elements", (int)to->name.size,
                                    to->name.data, to->count);
        for (size_t j = 0; j < (pads ? 4 : 2); j++) {
            enum axis axis = axes[j % 2];

            flat->numbers[i][j] = axis == AXES ? !pads : to->ints[axis + j / 2 * AXES];
        }
        to->ints = flat->numbers[i];
        to->count = pads ? 4 : 2;
    }
    return CN_OK;
}

// Pools input 0, under dims of rank 4, over two of the axes.
static cn_err pool_axes(struct cn_import_node *node, const uint64_t *dims, const enum axis axes[2])
{
    struct flat_attributes flat;
    struct cn_onnx_node source = *node->node;
    struct cn_import_node part = *node;
    cn_err err = flatten_attributes(node, axes, &flat);

    source.attributes = flat.list;
    source.attribute_count = flat.count;
    part.node = &source;
    if (!err)
        err = add_view(node, node->in[0], 4, dims, &part.in[0]);
    if (!err)
        err = cn_import_pool(&part);
    node->in[0] = part.out;
    return err;
}

// Pools over height and width, then over depth. Maxima of maxima are exact, and so are means of
// means, because each row of a window holds the same number of elements.
cn_err cn_import_pool_volume(struct cn_import_node *node)
{
    const struct cn_value x = *cn_import_value(node, 0);
    const enum axis planes[2] = {HEIGHT, WIDTH}, depth[2] = {DEPTH, AXES};
    uint64_t dims[5] = {x.dims[0], x.dims[1] * x.dims[2], x.dims[3], x.dims[4]};
    cn_err err = pool_axes(node, dims, planes);
    struct cn_value y;

    if (err)
        return err;
    y = *cn_import_value(node, 0);
    memcpy(dims, (uint64_t[]){x.dims[0], x.dims[1], x.dims[2], y.dims[2] * y.dims[3]},
           4 * sizeof(*dims));
    err = pool_axes(node, dims, depth);
    if (err)
        return err;
    dims[2] = cn_import_value(node, 0)->dims[2];
    dims[3] = y.dims[2];
    dims[4] = y.dims[3];
    return add_view(node, node->in[0], 5, dims, &node->out);
}
