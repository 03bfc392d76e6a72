// Convolution as a product with a matrix of columns: its rows are (channel, tap), its columns
// (sample, output). For a pointwise convolution of stride 1 the input is that matrix.
#include <assert.h>

#include "ports/cpu/conv.h"
#include "ports/cpu/gemm.h"
#include "ports/cpu/plane.h"

// Words of the matrix. It should stay in the second-level cache.
#define COLUMNS_WORDS (128 * 1024)
#define COLUMNS_MIN 128 // least columns for each packed weight to be used often enough
#define DIRECT_MIN 192  // least words of a plane for one sample alone to be enough

// A chunk of the samples of a call.
struct columns {
    const struct conv *conv;
    struct planes planes; // planes of the samples of this chunk
    size_t chunk;         // most samples in a chunk
    size_t cols;          // columns of this chunk
    // No copies are needed: the input is the matrix and y the result, one sample at a time.
    bool direct;
    float *matrix, *side; // taps x cols; group_out x cols
    float *plane;         // one channel of the planes
    float *gemm;          // workspace of cpu_gemm
};

static bool is_direct(const struct conv *conv)
{
    const struct cn_window *w = conv->window;

    return conv->kernel == 1 && w->stride[0] == 1 && w->stride[1] == 1 && !w->pad[0] &&
           !w->pad[1] && w->in[0] == w->out[0] && w->in[1] == w->out[1] &&
           conv->y_channel >= DIRECT_MIN;
}

// Returns the number of samples in a chunk.
static size_t chunk_of(const struct conv *conv)
{
    size_t cols = COLUMNS_WORDS / conv->taps, samples;

    if (is_direct(conv))
        return 1;
    cols = cols < COLUMNS_MIN ? COLUMNS_MIN : cols;
    samples = (cols + conv->y_channel - 1) / conv->y_channel;
    return samples < conv->samples ? samples : conv->samples;
}

// Begins the chunk at sample first.
static void start(struct columns *columns, size_t first)
{
    const struct conv *conv = columns->conv;
    size_t left = conv->samples - first;

    columns->planes = planes_of(conv->window, left < columns->chunk ? left : columns->chunk);
    columns->cols = columns->planes.samples * conv->y_channel;
}

static struct columns columns_of(const struct conv *conv, float *workspace)
{
    struct columns columns = {.conv = conv, .chunk = chunk_of(conv), .direct = is_direct(conv)};
    size_t copied = columns.direct ? 0 : 1;

    start(&columns, 0);
    columns.matrix = workspace;
    columns.side = columns.matrix + copied * (conv->taps * columns.cols + VECTOR);
    columns.plane = columns.side + copied * (conv->group_out * columns.cols + VECTOR);
    columns.gemm = columns.plane + copied * (columns.planes.channel + VECTOR);
    return columns;
}

static size_t workspace_words(const struct conv *conv, enum cn_op op)
{
    struct columns columns = columns_of(conv, NULL);
    size_t own = columns.direct ? 0
                                : (conv->taps + conv->group_out) * columns.cols +
                                      columns.planes.channel + 3 * VECTOR;
    size_t out = conv->group_out, taps = conv->taps, cols = columns.cols;

    if (op == CN_OP_CONV)
        return own + cpu_gemm_workspace(out, taps, cols);
    if (op == CN_OP_CONV_GRAD_INPUT)
        return own + cpu_gemm_workspace(taps, out, cols);
    return own + cpu_gemm_workspace(out, cols, taps);
}

// Copies count rows of width words that lie pitch apart. May write up to VECTOR words more.
ALWAYS_INLINE void copy_rows(float *to, const float *from, size_t count, size_t width, size_t pitch)
{
    if (width <= VECTOR) {
        for (size_t r = 0; r < count; r++)
            *(vector *)(to + r * width) = *(const vector *)(from + r * pitch);
        return;
    }
    for (size_t r = 0; r < count; r++)
        for (size_t q = 0; q < width; q += VECTOR)
            *(vector *)(to + r * width + q) = *(const vector *)(from + r * pitch + q);
}

// Makes the matrix. Rows are written in ascending order: each overwrites the words that the row
// before wrote beyond its end.
static void make_columns(const struct columns *columns, const float *x)
{
    const struct conv *conv = columns->conv;
    const struct cn_window *w = conv->window;
    const struct planes *planes = &columns->planes;
    size_t words = planes->rows * planes->pitch;
    float *to = columns->matrix;

    for (size_t c = 0; c < conv->group_in; c++) {
        plane_copy(planes, columns->plane, x + c * conv->x_channel, conv->x_sample);
        for (size_t ky = 0; ky < w->kernel[0]; ky++)
            for (size_t kx = 0; kx < w->kernel[1]; kx++) {
                const float *from = columns->plane + plane_tap(planes, w, ky, kx);

                for (size_t n = 0; n < planes->samples; n++, to += conv->y_channel)
                    copy_rows(to, from + n * words, w->out[0], w->out[1], planes->pitch);
            }
    }
}

static void add_row(float *to, const float *from, size_t count)
{
    size_t i = 0;

    for (; i + VECTOR <= count; i += VECTOR)
        *(vector *)(to + i) += *(const vector *)(from + i);
    for (; i + 4 <= count; i += 4)
        *(vector4 *)(to + i) += *(const vector4 *)(from + i);
    for (; i < count; i++)
        to[i] += from[i];
}

// Adds the matrix up over its taps: the sum is dx.
static void sum_columns(const struct columns *columns, float *dx)
{
    const struct conv *conv = columns->conv;
    const struct cn_window *w = conv->window;
    const struct planes *planes = &columns->planes;
    size_t words = planes->rows * planes->pitch;
    const float *from = columns->matrix;

    for (size_t c = 0; c < conv->group_in; c++) {
        memset(columns->plane, 0, planes->channel * sizeof(float));
        for (size_t ky = 0; ky < w->kernel[0]; ky++)
            for (size_t kx = 0; kx < w->kernel[1]; kx++) {
                float *to = columns->plane + plane_tap(planes, w, ky, kx);

                for (size_t n = 0; n < planes->samples; n++, to += words)
                    for (size_t r = 0; r < w->out[0]; r++, from += w->out[1])
                        add_row(to + r * planes->pitch, from, w->out[1]);
            }
        plane_restore(planes, dx + c * conv->x_channel, columns->plane, conv->x_sample);
    }
}

// Copies y: side[o] = channel o of all samples of the chunk.
static void gather_side(const struct columns *columns, const float *y)
{
    const struct conv *conv = columns->conv;
    float *to = columns->side;

    for (size_t o = 0; o < conv->group_out; o++)
        for (size_t n = 0; n < columns->planes.samples; n++, to += conv->y_channel)
            tile_copy(to, y + n * conv->y_sample + o * conv->y_channel, conv->y_channel);
}

// Copies side back into y.
static void scatter_side(const struct columns *columns, float *y)
{
    const struct conv *conv = columns->conv;
    const float *from = columns->side;

    for (size_t o = 0; o < conv->group_out; o++)
        for (size_t n = 0; n < columns->planes.samples; n++, from += conv->y_channel)
            tile_copy(y + n * conv->y_sample + o * conv->y_channel, from, conv->y_channel);
}

static void forward_group(const struct columns *columns, const struct cpu_task *task, size_t n,
                          size_t g)
{
    const struct conv *conv = columns->conv;
    const float *x = task->in[0] + n * conv->x_sample + g * conv->group_in * conv->x_channel;
    float *y = task->out[0] + n * conv->y_sample + g * conv->group_out * conv->y_channel;
    const float *weight = task->in[1] + g * conv->group_out * conv->taps;
    bool whole = columns->planes.samples == 1; // y can be written directly
    struct cpu_product product = {
        .rows = conv->group_out,
        .inner = conv->taps,
        .cols = columns->cols,
        .a = cpu_matrix_of(weight, conv->taps, 1),
        .b = cpu_matrix_of(columns->direct ? x : columns->matrix, columns->cols, 1),
        .c = {whole ? y : columns->side, columns->cols, 1},
        .alpha = 1,
        .relu = conv->window->relu,
        .bias = task->in[2] ? task->in[2] + g * conv->group_out : NULL,
        .bias_row = 1,
        .bias_scale = 1,
    };

    if (!columns->direct)
        make_columns(columns, x);
    cpu_gemm(&product, columns->gemm);
    if (!whole)
        scatter_side(columns, y);
}

static void grad_input_group(const struct columns *columns, const struct cpu_task *task, size_t n,
                             size_t g)
{
    const struct conv *conv = columns->conv;
    const float *dy = task->in[0] + n * conv->y_sample + g * conv->group_out * conv->y_channel;
    float *dx = task->out[0] + n * conv->x_sample + g * conv->group_in * conv->x_channel;
    const float *weight = task->in[1] + g * conv->group_out * conv->taps;
    bool whole = columns->planes.samples == 1;
    struct cpu_product product = {
        .rows = conv->taps,
        .inner = conv->group_out,
        .cols = columns->cols,
        .a = cpu_matrix_of(weight, 1, conv->taps),
        .b = cpu_matrix_of(whole ? dy : columns->side, columns->cols, 1),
        .c = {columns->direct ? dx : columns->matrix, columns->cols, 1},
        .alpha = 1,
    };

    if (!whole)
        gather_side(columns, dy);
    cpu_gemm(&product, columns->gemm);
    if (!columns->direct)
        sum_columns(columns, dx);
}

static void grad_weight_group(const struct columns *columns, const struct cpu_task *task, size_t n,
                              size_t g)
{
    const struct conv *conv = columns->conv;
    const float *dy = task->in[0] + n * conv->y_sample + g * conv->group_out * conv->y_channel;
    const float *x = task->in[1] + n * conv->x_sample + g * conv->group_in * conv->x_channel;
    bool whole = columns->planes.samples == 1;
    struct cpu_product product = {
        .rows = conv->group_out,
        .inner = columns->cols,
        .cols = conv->taps,
        .a = cpu_matrix_of(whole ? dy : columns->side, columns->cols, 1),
        .b = cpu_matrix_of(columns->direct ? x : columns->matrix, 1, columns->cols),
        .c = {task->out[0] + g * conv->group_out * conv->taps, conv->taps, 1},
        .alpha = 1,
        .add = true,
    };

    if (!whole)
        gather_side(columns, dy);
    if (!columns->direct)
        make_columns(columns, x);
    cpu_gemm(&product, columns->gemm);
}

static void for_each_group(const struct conv *conv, const struct cpu_task *task,
                           void (*work)(const struct columns *, const struct cpu_task *, size_t,
                                        size_t))
{
    struct columns columns = columns_of(conv, task->workspace);

    assert(task->workspace);
    for (size_t n = 0; n < conv->samples; n += columns.planes.samples) {
        start(&columns, n);
        for (size_t g = 0; g < conv->window->groups; g++)
            work(&columns, task, n, g);
    }
}

static void forward(const struct conv *conv, const struct cpu_task *task)
{
    for_each_group(conv, task, forward_group);
}

static void grad_input(const struct conv *conv, const struct cpu_task *task)
{
    for_each_group(conv, task, grad_input_group);
}

static void grad_weight(const struct conv *conv, const struct cpu_task *task)
{
    for_each_group(conv, task, grad_weight_group);
}

const struct conv_way conv_columns = {forward, grad_input, grad_weight, workspace_words};
