// 3x3 convolution by Winograd's F(2x2, 3x3) (Lavin and Gray, 2015). A tile of 2x2 outputs takes 16
// products for each pair of channels instead of 36. With d a tile of 4x4 inputs, g the taps and o
// the element-wise product,
//
//     y = A' ((G g G') o (B' d B)) A
//
// The element-wise product, summed over the channels, is a product of matrices for each of the 16
// points. All factors are 1 and 1/2, so little precision is lost.
#include <assert.h>

#include "ports/cpu/conv.h"
#include "ports/cpu/curves.h"
#include "ports/cpu/gemm.h"
#include "ports/cpu/plane.h"

#define POINTS 16
#define TAPS 9
#define TILES_WORDS (256 * 1024) // words of the transformed inputs of a chunk of samples
#define TILES_LEAST 64           // least tiles for a transformed weight to be used often enough

// A convolution: forward or, with mirrored taps, the gradient for the input.
struct winograd {
    size_t in, out;       // channels
    size_t height, width; // size of a plane, the same for inputs and outputs
    size_t down, across;  // tiles of a plane: rows and columns of them
    size_t chunk;         // most samples at a time
    size_t room;          // tiles of a chunk, rounded up to whole stripes of TILE_COLS
    struct planes planes; // planes of the samples of this chunk
    size_t tiles;         // tiles of this chunk
    float *plane;         // one channel of all samples of the chunk
    float *stage;         // POINTS x pitch: the transformed tiles of one channel
    // Transformed inputs; transform_inputs and keep_channel define their order.
    float *tiles_in;
};

static size_t stage_pitch(const struct winograd *w)
{
    return w->room + VECTOR;
}

static struct cn_window window_of(const struct winograd *w)
{
    const uint32_t height = (uint32_t)w->height, width = (uint32_t)w->width;

    return (struct cn_window){.channels_in = (uint32_t)w->in,
                              .channels_out = (uint32_t)w->out,
                              .groups = 1,
                              .in = {height, width},
                              .out = {height, width},
                              .kernel = {3, 3},
                              .stride = {1, 1},
                              .pad = {1, 1},
                              .dilation = {1, 1}};
}

// Begins a chunk of `samples` samples.
static void start(struct winograd *w, size_t samples)
{
    const struct cn_window window = window_of(w);

    w->planes = planes_of(&window, samples);
    w->tiles = samples * w->down * w->across;
}

// Plans the chunks. channels is the number of channels whose tiles are kept at a time.
static struct winograd winograd_of(const struct conv *conv, bool mirrored, size_t channels)
{
    const struct cn_window *window = conv->window;
    struct winograd w = {.in = mirrored ? conv->group_out : conv->group_in,
                         .out = mirrored ? conv->group_in : conv->group_out,
                         .height = window->in[0],
                         .width = window->in[1]};
    size_t each, samples;

    w.down = (w.height + 1) / 2;
    w.across = (w.width + 1) / 2;
    each = w.down * w.across;
    samples = TILES_WORDS / (POINTS * channels * each);
    samples = samples * each < TILES_LEAST ? (TILES_LEAST + each - 1) / each : samples;
    w.chunk = least(samples, conv->samples);
    w.room = round_up(w.chunk * each, TILE_COLS);
    start(&w, w.chunk);
    return w;
}

// Places the plane and the stage at the beginning of the workspace.
static void lay_out_stage(struct winograd *w, float *workspace)
{
    w->plane = workspace;
    w->stage = w->plane + round_up(w->planes.channel, VECTOR);
    w->tiles_in = w->stage + POINTS * stage_pitch(w);
}

ALWAYS_INLINE vector load(const float *from)
{
    return *(const vector *)from;
}

// Multiplies by B' along one axis.
ALWAYS_INLINE void transform_input(const vector d[4], vector to[4])
{
    to[0] = d[0] - d[2];
    to[1] = d[1] + d[2];
    to[2] = d[2] - d[1];
    to[3] = d[1] - d[3];
}

// Transforms VECTOR tiles side by side; the first input is at from. Point p goes to to[p * pitch].
ALWAYS_INLINE void transform_tiles(const float *from, size_t row, float *to, size_t pitch)
{
    vector half[4][4], columns[4][4];

#pragma GCC unroll 4
    for (size_t i = 0; i < 4; i++, from += row) {
        vector a = load(from), b = load(from + VECTOR);
        vector c = load(from + 2), d = load(from + 2 + VECTOR);
        const vector inputs[4] = {tile_even(a, b), tile_odd(a, b), tile_even(c, d), tile_odd(c, d)};

        transform_input(inputs, half[i]);
    }
#pragma GCC unroll 4
    for (size_t j = 0; j < 4; j++) {
        const vector inputs[4] = {half[0][j], half[1][j], half[2][j], half[3][j]};

        transform_input(inputs, columns[j]);
    }
#pragma GCC unroll 4
    for (size_t i = 0; i < 4; i++)
#pragma GCC unroll 4
        for (size_t j = 0; j < 4; j++)
            *(vector *)(to + (4 * i + j) * pitch) = columns[j][i];
}

// Clears the tiles beyond the last, because they take part in sums over tiles.
static void clear_rest(const struct winograd *w)
{
    for (size_t p = 0; p < POINTS; p++)
        memset(w->stage + p * stage_pitch(w) + w->tiles, 0,
               (w->room - w->tiles) * sizeof(*w->stage));
}

// Transforms the tiles of one channel of all samples of the chunk into the stage, one after the
// other. Rows of tiles are written in ascending order: each overwrites the words that the row
// before wrote beyond its end.
static void stage_inputs(const struct winograd *w, const float *x, size_t x_sample)
{
    float *to = w->stage;

    plane_copy(&w->planes, w->plane, x, x_sample);
    for (size_t n = 0; n < w->planes.samples; n++)
        for (size_t i = 0; i < w->down; i++, to += w->across)
            for (size_t j = 0; j < w->across; j += VECTOR)
                transform_tiles(w->plane + (n * w->planes.rows + 2 * i) * w->planes.pitch + 2 * j,
                                w->planes.pitch, to + j, stage_pitch(w));
    clear_rest(w);
}

// --- Weights ---

// Loads count neighbouring words, at most 4; the rest are 0.
ALWAYS_INLINE vector4 load_some(const float *from, size_t count)
{
    vector4 value = {0};

    if (count >= 4)
        return *(const vector4 *)from;
    memcpy(&value, from, count * sizeof(*from));
    return value;
}

ALWAYS_INLINE void store_some(float *to, vector4 value, size_t count)
{
    if (count >= 4)
        *(vector4 *)to = value;
    else
        memcpy(to, &value, count * sizeof(*to));
}

// Multiplies by G along one axis.
ALWAYS_INLINE void transform_taps(vector4 a, vector4 b, vector4 c, vector4 to[4])
{
    to[0] = a;
    to[1] = 0.5f * (a + b + c);
    to[2] = 0.5f * (a - b + c);
    to[3] = c;
}

// Transforms the taps of one input channel and height output channels, taps[TAPS][height]. Point p
// goes to to[p * pitch].
static void transform_weight(const float *taps, size_t height, float *to, size_t pitch)
{
    for (size_t i = 0; i < height; i += 4) {
        size_t count = height - i;
        vector4 g[TAPS], half[3][4], points[4];

#pragma GCC unroll 9
        for (size_t t = 0; t < TAPS; t++)
            g[t] = load_some(taps + t * height + i, count);
#pragma GCC unroll 3
        for (size_t j = 0; j < 3; j++)
            transform_taps(g[j], g[3 + j], g[6 + j], half[j]);
#pragma GCC unroll 4
        for (size_t p = 0; p < 4; p++) {
            transform_taps(half[0][p], half[1][p], half[2][p], points);
#pragma GCC unroll 4
            for (size_t j = 0; j < 4; j++)
                store_some(to + (4 * p + j) * pitch + i, points[j], count);
        }
    }
}

// Packs the weights of output channels [o, o + height) tap by tap, then transforms them.
static void transform_weights(const struct winograd *w, const float *weight, bool mirrored,
                              size_t o, size_t height, float *packed, float *to)
{
    size_t taps = TAPS * w->in;

    if (!mirrored)
        tile_transpose(packed, height, weight + o * taps, taps, height, taps);
    // Tap t of dy's channel c for dx's channel o is weight[c][o][TAPS - 1 - t].
    for (size_t k = 0; mirrored && k < taps; k++)
        for (size_t i = 0; i < height; i++)
            packed[k * height + i] =
                weight[(k / TAPS * w->out + o + i) * TAPS + TAPS - 1 - k % TAPS];
    for (size_t c = 0; c < w->in; c++)
        transform_weight(packed + c * TAPS * height, height, to + c * height, w->in * height);
}

// --- Outputs ---

// Multiplies by A' along one axis.
ALWAYS_INLINE void transform_output(const vector m[4], vector to[2])
{
    to[0] = m[0] + m[1] + m[2];
    to[1] = m[1] - m[2] - m[3];
}

// Transforms VECTOR tiles of one channel back. Point p is at from[p * pitch]; output (i, j) of each
// tile goes to to[(2 i + j) * room].
ALWAYS_INLINE void finish_tiles(const float *from, size_t pitch, float *to, size_t room)
{
    vector half[4][2], m[4], y[2];

#pragma GCC unroll 4
    for (size_t j = 0; j < 4; j++) {
#pragma GCC unroll 4
        for (size_t i = 0; i < 4; i++)
            m[i] = load(from + (4 * i + j) * pitch);
        transform_output(m, half[j]);
    }
#pragma GCC unroll 2
    for (size_t i = 0; i < 2; i++) {
#pragma GCC unroll 4
        for (size_t j = 0; j < 4; j++)
            m[j] = half[j][i];
        transform_output(m, y);
        *(vector *)(to + 2 * i * room) = y[0];
        *(vector *)(to + (2 * i + 1) * room) = y[1];
    }
}

// Joins a row of outputs from the left and the right outputs of each tile.
static void join_row(const float *left, const float *right, size_t across, float bias, bool relu,
                     float *to)
{
    for (size_t j = 0; j < across; j += VECTOR) {
        vector a = load(left + j) + bias, b = load(right + j) + bias;

        if (relu) {
            a = curve_choose(a < 0, (vector){0}, a);
            b = curve_choose(b < 0, (vector){0}, b);
        }
        *(vector *)(to + 2 * j) = tile_low(a, b);
        *(vector *)(to + 2 * j + VECTOR) = tile_high(a, b);
    }
}

// Writes the outputs of one channel of the chunk. parts holds the outputs of each tile, [4][room].
static void write_planes(const struct winograd *w, const float *parts, float bias, bool relu,
                         float *y, size_t y_sample)
{
    size_t words = w->height * w->width;

    for (size_t n = 0; n < w->planes.samples; n++, y += y_sample) {
        const float *from = parts + n * w->down * w->across;

        // Rows are written in ascending order, as in stage_inputs; the plane has room after it.
        for (size_t i = 0; i < w->height; i++) {
            const float *row = from + i / 2 * w->across + i % 2 * 2 * w->room;

            join_row(row, row + w->room, w->across, bias, relu, w->plane + i * w->width);
        }
        tile_copy(y, w->plane, words);
    }
}

// --- Forward and the gradient for the input ---

// The places of the forward convolution's parts in the workspace.
struct products {
    float *packed;  // TAPS x in x TILE_ROWS weights
    float *weights; // POINTS x in x TILE_ROWS transformed weights
    float *sums;    // POINTS x TILE_ROWS x TILE_COLS
    float *parts;   // TILE_ROWS x 4 x room
};

// Lays out the workspace and returns its size in words.
static size_t lay_out_products(struct winograd *w, float *workspace, struct products *products)
{
    lay_out_stage(w, workspace);
    products->packed = w->tiles_in + POINTS * w->in * w->room;
    products->weights = products->packed + TAPS * w->in * TILE_ROWS;
    products->sums = products->weights + POINTS * w->in * TILE_ROWS;
    products->parts = products->sums + POINTS * TILE_ROWS * TILE_COLS;
    return (size_t)(products->parts - workspace) + TILE_ROWS * 4 * w->room + VECTOR;
}

// Transforms all inputs of the chunk into [stripe][point][channel][TILE_COLS].
static void transform_inputs(const struct winograd *w, const float *x, size_t x_sample)
{
    for (size_t c = 0; c < w->in; c++) {
        stage_inputs(w, x + c * w->height * w->width, x_sample);
        for (size_t s = 0; s < w->room / TILE_COLS; s++)
            for (size_t p = 0; p < POINTS; p++)
                tile_copy(w->tiles_in + ((s * POINTS + p) * w->in + c) * TILE_COLS,
                          w->stage + p * stage_pitch(w) + s * TILE_COLS, TILE_COLS);
    }
}

// Computes height output channels of all tiles of the chunk.
static void multiply(const struct winograd *w, const struct products *products, size_t height)
{
    for (size_t s = 0; s * TILE_COLS < w->tiles; s++) {
        for (size_t p = 0; p < POINTS; p++) {
            const struct tile tile = {
                .inner = w->in,
                .a = products->weights + p * w->in * height,
                .a_row = 1,
                .a_col = height,
                .b = w->tiles_in + (s * POINTS + p) * w->in * TILE_COLS,
                .b_row = TILE_COLS,
                .c = products->sums + p * TILE_ROWS * TILE_COLS,
                .c_row = TILE_COLS,
            };

            tile_multiply(&tile, height);
        }
        for (size_t i = 0; i < height; i++)
            for (size_t j = 0; j < TILE_COLS; j += VECTOR)
                finish_tiles(products->sums + i * TILE_COLS + j, TILE_ROWS * TILE_COLS,
                             products->parts + 4 * i * w->room + s * TILE_COLS + j, w->room);
    }
}

static void run(const struct conv *conv, const struct cpu_task *task, bool mirrored)
{
    struct winograd w = winograd_of(conv, mirrored, mirrored ? conv->group_out : conv->group_in);
    const float *bias = mirrored ? NULL : task->in[2];
    size_t words = w.height * w.width, height;
    struct products products;

    assert(task->workspace);
    lay_out_products(&w, task->workspace, &products);
    for (size_t n = 0; n < conv->samples; n += w.planes.samples) {
        start(&w, least(conv->samples - n, w.chunk));
        transform_inputs(&w, task->in[0] + n * w.in * words, w.in * words);
        for (size_t o = 0; o < w.out; o += height) {
            height = tile_height(w.out - o);
            transform_weights(&w, task->in[1], mirrored, o, height, products.packed,
                              products.weights);
            multiply(&w, &products, height);
            for (size_t i = 0; i < height; i++)
                write_planes(&w, products.parts + 4 * i * w.room, bias ? bias[o + i] : 0,
                             !mirrored && conv->window->relu,
                             task->out[0] + (n * w.out + o + i) * words, w.out * words);
        }
    }
}

static void forward(const struct conv *conv, const struct cpu_task *task)
{
    run(conv, task, false);
}

static void grad_input(const struct conv *conv, const struct cpu_task *task)
{
    run(conv, task, true);
}

// --- The gradient for the weights: dg = G' (sum over tiles of (A dy A') o (B' d B)) G ---

// The places of the weight gradient's parts in the workspace.
struct sums {
    float *tiles_out; // POINTS x out x room: transformed dy
    float *total;     // POINTS x out x pitch: sums over tiles
    size_t pitch;     // input channels, rounded up to whole vectors
    float *gemm;      // workspace of cpu_gemm
};

// Lays out the workspace and returns its size in words.
static size_t lay_out_sums(struct winograd *w, float *workspace, struct sums *sums)
{
    lay_out_stage(w, workspace);
    sums->pitch = round_up(w->in, VECTOR);
    sums->tiles_out = w->tiles_in + POINTS * w->in * w->room;
    sums->total = sums->tiles_out + POINTS * w->out * w->room;
    sums->gemm = sums->total + POINTS * w->out * sums->pitch;
    return (size_t)(sums->gemm - workspace) + cpu_gemm_workspace(w->out, w->room, w->in);
}

// Multiplies by A along one axis.
ALWAYS_INLINE void spread_output(vector a, vector b, vector to[4])
{
    to[0] = a;
    to[1] = a + b;
    to[2] = a - b;
    to[3] = -b;
}

// Transforms VECTOR tiles of dy side by side.
ALWAYS_INLINE void spread_tiles(const float *from, size_t row, float *to, size_t pitch)
{
    vector a = load(from), b = load(from + VECTOR);
    vector c = load(from + row), d = load(from + row + VECTOR);
    vector left[4], right[4], points[4];

    spread_output(tile_even(a, b), tile_even(c, d), left);
    spread_output(tile_odd(a, b), tile_odd(c, d), right);
#pragma GCC unroll 4
    for (size_t i = 0; i < 4; i++) {
        spread_output(left[i], right[i], points);
#pragma GCC unroll 4
        for (size_t j = 0; j < 4; j++)
            *(vector *)(to + (4 * i + j) * pitch) = points[j];
    }
}

// As stage_inputs, for dy. Outputs beyond an odd plane are zero.
static void stage_outputs(const struct winograd *w, const float *dy, size_t dy_sample)
{
    size_t pitch = 2 * w->across;
    float *to = w->stage, *plane = w->plane;

    for (size_t n = 0; n < w->planes.samples; n++) {
        memset(plane, 0, (2 * w->down * pitch + 2 * VECTOR) * sizeof(*plane));
        for (size_t i = 0; i < w->height; i++)
            tile_copy(plane + i * pitch, dy + n * dy_sample + i * w->width, w->width);
        for (size_t i = 0; i < w->down; i++, to += w->across)
            for (size_t j = 0; j < w->across; j += VECTOR)
                spread_tiles(plane + 2 * i * pitch + 2 * j, pitch, to + j, stage_pitch(w));
    }
    clear_rest(w);
}

// Moves a channel from the stage to [point][channel][room].
static void keep_channel(const struct winograd *w, size_t channel, size_t channels, float *to)
{
    for (size_t p = 0; p < POINTS; p++)
        tile_copy(to + (p * channels + channel) * w->room, w->stage + p * stage_pitch(w), w->room);
}

// Adds the products of all tiles of the chunk to total, point by point.
static void add_products(const struct winograd *w, const struct sums *sums, bool add)
{
    for (size_t p = 0; p < POINTS; p++) {
        const struct cpu_product product = {
            .rows = w->out,
            .inner = w->tiles,
            .cols = w->in,
            .a = cpu_matrix_of(sums->tiles_out + p * w->out * w->room, w->room, 1),
            .b = cpu_matrix_of(w->tiles_in + p * w->in * w->room, 1, w->room),
            .c = {sums->total + p * w->out * sums->pitch, sums->pitch, 1},
            .alpha = 1,
            .add = add,
        };

        cpu_gemm(&product, sums->gemm);
    }
}

// Multiplies by G' along one axis.
ALWAYS_INLINE void transform_total(vector a, vector b, vector c, vector d, vector to[3])
{
    to[0] = a + 0.5f * (b + c);
    to[1] = 0.5f * (b - c);
    to[2] = 0.5f * (b + c) + d;
}

// Transforms the sums of count input channels (at most VECTOR) and adds their taps to dw.
static void add_taps(const float *total, size_t point, float *dw, size_t count)
{
    vector half[4][3], taps[3][3];

#pragma GCC unroll 4
    for (size_t j = 0; j < 4; j++)
        transform_total(load(total + j * point), load(total + (4 + j) * point),
                        load(total + (8 + j) * point), load(total + (12 + j) * point), half[j]);
#pragma GCC unroll 3
    for (size_t i = 0; i < 3; i++)
        transform_total(half[0][i], half[1][i], half[2][i], half[3][i], taps[i]);
    for (size_t c = 0; c < count; c++)
        for (size_t t = 0; t < TAPS; t++)
            dw[c * TAPS + t] += taps[t / 3][t % 3][c];
}

static void grad_weight(const struct conv *conv, const struct cpu_task *task)
{
    struct winograd w = winograd_of(conv, false, conv->group_in + conv->group_out);
    size_t words = w.height * w.width;
    struct sums sums;

    assert(task->workspace);
    lay_out_sums(&w, task->workspace, &sums);
    for (size_t n = 0; n < conv->samples; n += w.planes.samples) {
        start(&w, least(conv->samples - n, w.chunk));
        for (size_t c = 0; c < w.in; c++) {
            stage_inputs(&w, task->in[1] + (n * w.in + c) * words, w.in * words);
            keep_channel(&w, c, w.in, w.tiles_in);
        }
        for (size_t o = 0; o < w.out; o++) {
            stage_outputs(&w, task->in[0] + (n * w.out + o) * words, w.out * words);
            keep_channel(&w, o, w.out, sums.tiles_out);
        }
        add_products(&w, &sums, n > 0);
    }
    for (size_t o = 0; o < w.out; o++)
        for (size_t c = 0; c < w.in; c += VECTOR)
            add_taps(sums.total + o * sums.pitch + c, w.out * sums.pitch,
                     task->out[0] + (o * w.in + c) * TAPS, least(w.in - c, VECTOR));
}

static size_t workspace_words(const struct conv *conv, enum cn_op op)
{
    bool mirrored = op == CN_OP_CONV_GRAD_INPUT;
    size_t channels = op == CN_OP_CONV_GRAD_WEIGHT ? conv->group_in + conv->group_out
                      : mirrored                   ? conv->group_out
                                                   : conv->group_in;
    struct winograd w = winograd_of(conv, mirrored, channels);
    struct products products;
    struct sums sums;

    return op == CN_OP_CONV_GRAD_WEIGHT ? lay_out_sums(&w, NULL, &sums)
                                        : lay_out_products(&w, NULL, &products);
}

const struct conv_way conv_winograd = {forward, grad_input, grad_weight, workspace_words};
