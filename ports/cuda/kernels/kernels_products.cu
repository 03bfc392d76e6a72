// Matrix products and convolutions without a library: those that the libraries cannot do, or all if
// they are missing. Also the steps before and after a library's work.
#include "ports/cuda/kernels/kernel_common.h"

#define TILE 32
#define PITCH 33 // words from row to row of a tile; avoids bank conflicts
#define OF_THREAD                                                                                  \
    (TILE * TILE / CUDA_TILE_THREADS) // elements of a tile that each thread of products computes

// The product that a block computes. Element (i, k) of a is at i * a_row + k * a_col; likewise for
// b and c.
struct product {
    uint32_t rows, inner, cols;
    size_t a_row, a_col, b_row, b_col, c_row;
    const float *a, *b;
    float *c;
};

// Returns product number i of a PRODUCTS call, counted over all samples.
DEVICE struct product product_of(const struct cuda_args *a, uint32_t i)
{
    const struct cn_products *op = &a->call.products;
    uint32_t n = i / (uint32_t)op->count, at = i % (uint32_t)op->count;
    struct product p;

    p.rows = (uint32_t)op->rows;
    p.inner = (uint32_t)op->inner;
    p.cols = (uint32_t)op->cols;
    p.a = a->in[0] + n * a->call.in[0].stride + at * op->stride_a;
    p.b = a->in[1] + n * a->call.in[1].stride + at * op->stride_b;
    p.c = a->out[0] + n * a->call.out[0].stride + at * op->stride_c;
    p.a_row = op->transpose_a ? 1 : op->leading_a;
    p.a_col = op->transpose_a ? op->leading_a : 1;
    p.b_row = op->transpose_b ? 1 : op->leading_b;
    p.b_col = op->transpose_b ? op->leading_b : 1;
    p.c_row = op->leading_c;
    return p;
}

// Loads a tile of a matrix into shared memory; words beyond the matrix become 0.
DEVICE void load_tile(float *tile, const float *m, uint32_t first, uint32_t count, size_t step,
                      uint32_t from, uint32_t inner, size_t inner_step)
{
    // Neighbouring threads read neighbouring words.
    for (uint32_t i = thread_index(); i < TILE * TILE; i += block_size()) {
        uint32_t row = step == 1 ? i % TILE : i / TILE, k = step == 1 ? i / TILE : i % TILE;
        bool inside = first + row < count && from + k < inner;

        tile[row * PITCH + k] = inside ? m[(first + row) * step + (from + k) * inner_step] : 0;
    }
}

// A block of CUDA_TILE_THREADS threads computes a tile of a result. A result that all samples
// share, or all matrices of a sample, is the sum of their products, in order.
KERNEL(products)
{
    SHARED float left[TILE * PITCH], right[TILE * PITCH];
    const struct cn_products *op = &a.call.products;
    uint32_t across = ((uint32_t)op->cols + TILE - 1) / TILE;
    uint32_t tiles = across * (((uint32_t)op->rows + TILE - 1) / TILE);
    uint32_t summed_samples = a.call.out[0].stride ? 1 : run_samples(&a);
    uint32_t summed_count = op->stride_c ? 1 : (uint32_t)op->count;
    uint32_t results =
        (op->stride_c ? (uint32_t)op->count : 1) * (a.call.out[0].stride ? a.samples : 1);
    bool add = adds(&a);

    for (uint32_t t = block_index(); t < tiles * results; t += grid_size()) {
        uint32_t row = t % tiles / across * TILE, col = t % tiles % across * TILE;
        uint32_t first = t / tiles * summed_count;
        float sum[OF_THREAD] = {0};

        for (uint32_t term = 0; term < summed_samples * summed_count; term++) {
            uint32_t number = first + term % summed_count;
            struct product p = product_of(&a, number + term / summed_count * (uint32_t)op->count);

            for (uint32_t from = 0; from < p.inner; from += TILE) {
                block_sync();
                load_tile(left, p.a, row, p.rows, p.a_row, from, p.inner, p.a_col);
                load_tile(right, p.b, col, p.cols, p.b_col, from, p.inner, p.b_row);
                block_sync();
                for (uint32_t k = 0; k < TILE; k++)
                    for (uint32_t s = 0; s < OF_THREAD; s++) {
                        uint32_t i = s * CUDA_TILE_THREADS + thread_index();

                        sum[s] += left[i / TILE * PITCH + k] * right[i % TILE * PITCH + k];
                    }
            }
        }
        for (uint32_t s = 0; s < OF_THREAD; s++) {
            struct product p = product_of(&a, first);
            uint32_t i = s * CUDA_TILE_THREADS + thread_index();
            uint32_t r = row + i / TILE, c = col + i % TILE;

            if (r < p.rows && c < p.cols)
                put(&p.c[r * p.c_row + c], op->alpha * sum[s], add);
        }
    }
}

// After a product or convolution: out[0] = out[0] + scale * in[2], with ReLU if wide. The tensor is
// rows x channels x inner; bias.rows counts all samples. A NaN stays.
KERNEL(bias_relu)
{
    const struct cn_bias *op = &a.call.bias;
    uint32_t channels = (uint32_t)op->channels, inner = (uint32_t)op->inner;
    uint32_t total = (uint32_t)op->rows * channels * inner;

    for (uint32_t i = first_index(); i < total; i += index_step()) {
        float y = a.out[0][i];

        if (a.in[2])
            y += op->scale * a.in[2][i / inner % channels];
        a.out[0][i] = a.wide && y < 0 ? 0 : y; // wide: ReLU
    }
}

// The position of an element in a tensor of n x channels x extent.
struct element {
    uint32_t n, channel, y, x;
};

DEVICE struct element element_of(uint32_t i, uint32_t channels, const uint32_t extent[2])
{
    struct element e;

    e.x = i % extent[1];
    i /= extent[1];
    e.y = i % extent[0];
    i /= extent[0];
    e.channel = i % channels;
    e.n = i / channels;
    return e;
}

// A thread computes one output.
KERNEL(conv)
{
    const struct cn_window *w = &a.call.window;
    uint32_t total = w->channels_out * w->out[0] * w->out[1] * a.samples;
    uint32_t group_in = w->channels_in / w->groups, group_out = w->channels_out / w->groups;
    uint32_t plane = w->in[0] * w->in[1], taps = w->kernel[0] * w->kernel[1];

    for (uint32_t i = first_index(); i < total; i += index_step()) {
        struct element e = element_of(i, w->channels_out, w->out);
        const float *x =
            a.in[0] + ((size_t)e.n * w->channels_in + e.channel / group_out * group_in) * plane;
        const float *weight = a.in[1] + (size_t)e.channel * group_in * taps;
        float sum = 0;

        for (uint32_t ky = 0; ky < w->kernel[0]; ky++)
            for (uint32_t kx = 0; kx < w->kernel[1]; kx++) {
                uint32_t row = e.y * w->stride[0] + ky * w->dilation[0] - w->pad[0];
                uint32_t col = e.x * w->stride[1] + kx * w->dilation[1] - w->pad[1];

                // Positions left of or above the plane wrap around to large numbers.
                if (row >= w->in[0] || col >= w->in[1])
                    continue;
                for (uint32_t c = 0; c < group_in; c++)
                    sum += x[c * plane + row * w->in[1] + col] *
                           weight[c * taps + ky * w->kernel[1] + kx];
            }
        a.out[0][i] = sum;
    }
}

// A thread collects the gradient of one input from all outputs that it went into.
KERNEL(conv_grad_input)
{
    const struct cn_window *w = &a.call.window;
    uint32_t total = w->channels_in * w->in[0] * w->in[1] * a.samples;
    uint32_t group_in = w->channels_in / w->groups, group_out = w->channels_out / w->groups;
    uint32_t plane = w->out[0] * w->out[1], taps = w->kernel[0] * w->kernel[1];
    bool add = adds(&a);

    for (uint32_t i = first_index(); i < total; i += index_step()) {
        struct element e = element_of(i, w->channels_in, w->in);
        uint32_t first = e.channel / group_in * group_out;
        const float *dy = a.in[0] + ((size_t)e.n * w->channels_out + first) * plane;
        const float *weight = a.in[1] + ((size_t)first * group_in + e.channel % group_in) * taps;
        float sum = 0;

        for (uint32_t ky = 0; ky < w->kernel[0]; ky++)
            for (uint32_t kx = 0; kx < w->kernel[1]; kx++) {
                uint32_t row = e.y + w->pad[0] - ky * w->dilation[0];
                uint32_t col = e.x + w->pad[1] - kx * w->dilation[1];

                if (e.y + w->pad[0] < ky * w->dilation[0] ||
                    e.x + w->pad[1] < kx * w->dilation[1] || row % w->stride[0] ||
                    col % w->stride[1] || row / w->stride[0] >= w->out[0] ||
                    col / w->stride[1] >= w->out[1])
                    continue;
                row = row / w->stride[0] * w->out[1] + col / w->stride[1];
                for (uint32_t o = 0; o < group_out; o++)
                    sum += dy[o * plane + row] *
                           weight[(size_t)o * group_in * taps + ky * w->kernel[1] + kx];
            }
        put(&a.out[0][i], sum, add);
    }
}

// A block adds up the gradient of one weight over the batch.
KERNEL(conv_grad_weight)
{
    const struct cn_window *w = &a.call.window;
    uint32_t group_in = w->channels_in / w->groups, group_out = w->channels_out / w->groups;
    uint32_t in = w->in[0] * w->in[1], out = w->out[0] * w->out[1];
    uint32_t taps = w->kernel[0] * w->kernel[1], total = w->channels_out * group_in * taps;
    bool add = adds(&a);

    for (uint32_t i = block_index(); i < total; i += grid_size()) {
        uint32_t tap = i % taps, c = i / taps % group_in, o = i / taps / group_in;
        uint32_t channel = o / group_out * group_in + c;
        float sum = 0;

        for (uint32_t j = thread_index(); j < out * run_samples(&a); j += block_size()) {
            uint32_t n = j / out, at = j % out;
            uint32_t row =
                at / w->out[1] * w->stride[0] + tap / w->kernel[1] * w->dilation[0] - w->pad[0];
            uint32_t col =
                at % w->out[1] * w->stride[1] + tap % w->kernel[1] * w->dilation[1] - w->pad[1];

            if (row < w->in[0] && col < w->in[1])
                sum += a.in[0][((size_t)n * w->channels_out + o) * out + at] *
                       a.in[1][((size_t)n * w->channels_in + channel) * in + row * w->in[1] + col];
        }
        sum = block_sum(sum);
        if (thread_index() == 0)
            put(&a.out[0][i], sum, add);
    }
}

// Copies products.rows lines of products.cols words, which lie leading_a words apart, to lines that
// lie leading_c words apart. A block copies a line.
KERNEL(copy_lines)
{
    const struct cn_products *op = &a.call.products;

    for (uint32_t line = block_index(); line < (uint32_t)op->rows; line += grid_size())
        for (uint32_t k = thread_index(); k < (uint32_t)op->cols; k += block_size())
            a.out[0][line * op->leading_c + k] = a.in[0][line * op->leading_a + k];
}

// Packs lines of float32 as lines of 16 bits: products.rows lines of products.cols elements,
// leading_a words from each to the next. The packed ones are leading_c elements apart, a multiple
// of 8, and end with zeros; those from number products.inner on are zeros. wide: float16, else
// bfloat16. A thread packs 8 elements.
KERNEL(pack_lines)
{
    const struct cn_products *op = &a.call.products;
    uint32_t cols = (uint32_t)op->cols, groups = (uint32_t)op->leading_c / 8;
    uint64_t total = (uint64_t)op->rows * groups;
    bool fours = op->leading_a % 4 == 0 && (uintptr_t)a.in[0] % 16 == 0;

    for (uint64_t i = first_index(); i < total; i += index_step()) {
        uint32_t line = (uint32_t)(i / groups), first = (uint32_t)(i % groups) * 8;
        uint32_t count = line < (uint32_t)op->inner ? cols : 0;
        const float *from = a.in[0] + line * op->leading_a + first;
        struct four low = {{0, 0, 0, 0}}, high = low, packed;
        float values[8];

        if (fours && first + 8 <= count) {
            low = load_four(from);
            high = load_four(from + 4);
        }
        UNROLL
        for (uint32_t k = 0; k < 8; k++)
            values[k] = fours && first + 8 <= count ? (k < 4 ? low.at[k % 4] : high.at[k % 4])
                        : first + k < count         ? from[k]
                                                    : 0;
        UNROLL
        for (uint32_t k = 0; k < 4; k++) {
            float even = values[2 * k], odd = values[2 * k + 1];

            packed.at[k] = bits_float(a.wide ? to_float16(even) | to_float16(odd) << 16
                                             : to_bfloat16(even) | to_bfloat16(odd) << 16);
        }
        store_four(a.out[0] + (size_t)line * (op->leading_c / 2) + first / 2, packed);
    }
}

// Packs the engine's n x channels x plane of float32 as a library's n x plane x channels of 16
// bits; unpack goes back. bias: rows = n, channels, inner = words of a plane. wide: float16, else
// bfloat16.
KERNEL(pack)
{
    const struct cn_bias *op = &a.call.bias;
    uint32_t channels = (uint32_t)op->channels, inner = (uint32_t)op->inner;
    uint32_t total = (uint32_t)op->rows * channels * inner;
    uint16_t *packed = (uint16_t *)(void *)a.out[0];

    for (uint32_t i = first_index(); i < total; i += index_step()) {
        uint32_t n = i / (channels * inner), at = i / channels % inner, c = i % channels;
        float value = a.in[0][((size_t)n * channels + c) * inner + at];

        packed[i] = (uint16_t)(a.wide ? to_float16(value) : to_bfloat16(value));
    }
}

KERNEL(unpack)
{
    const struct cn_bias *op = &a.call.bias;
    uint32_t channels = (uint32_t)op->channels, inner = (uint32_t)op->inner;
    uint32_t total = (uint32_t)op->rows * channels * inner;
    const uint16_t *packed = (const uint16_t *)(const void *)a.in[0];
    bool add = adds(&a);

    for (uint32_t i = first_index(); i < total; i += index_step()) {
        uint32_t n = i / (channels * inner), c = i / inner % channels, at = i % inner;
        uint32_t word = packed[((size_t)n * inner + at) * channels + c];

        put(&a.out[0][i], a.wide ? from_float16(word) : bits_float(word << 16), add);
    }
}

// Where a tile of TILE channels and TILE places of a plane begins.
struct tile_place {
    uint32_t n, channel, at;
};

DEVICE struct tile_place tile_place_of(const struct cn_bias *op, uint32_t block)
{
    uint32_t across = ((uint32_t)op->inner + TILE - 1) / TILE;
    uint32_t down = ((uint32_t)op->channels + TILE - 1) / TILE;
    struct tile_place place;

    place.n = block / (across * down);
    place.channel = block / across % down * TILE;
    place.at = block % across * TILE;
    return place;
}

DEVICE uint32_t tile_count(const struct cn_bias *op)
{
    return (uint32_t)op->rows * (((uint32_t)op->inner + TILE - 1) / TILE) *
           (((uint32_t)op->channels + TILE - 1) / TILE);
}

// As pack, for many channels and large planes. A block copies a tile to shared memory in the old
// order and writes it in the new order, so that neighbouring threads access neighbouring words both
// times.
KERNEL(pack_tiles)
{
    SHARED float tile[TILE * PITCH];
    const struct cn_bias *op = &a.call.bias;
    uint32_t channels = (uint32_t)op->channels, inner = (uint32_t)op->inner;
    uint16_t *packed = (uint16_t *)(void *)a.out[0];

    for (uint32_t block = block_index(); block < tile_count(op); block += grid_size()) {
        struct tile_place place = tile_place_of(op, block);

        for (uint32_t i = thread_index(); i < TILE * TILE; i += block_size()) {
            uint32_t c = place.channel + i / TILE, at = place.at + i % TILE;

            if (c < channels && at < inner)
                tile[i / TILE * PITCH + i % TILE] =
                    a.in[0][((size_t)place.n * channels + c) * inner + at];
        }
        block_sync();
        for (uint32_t i = thread_index(); i < TILE * TILE; i += block_size()) {
            uint32_t c = place.channel + i % TILE, at = place.at + i / TILE;
            float value = tile[i % TILE * PITCH + i / TILE];

            if (c < channels && at < inner)
                packed[((size_t)place.n * inner + at) * channels + c] =
                    (uint16_t)(a.wide ? to_float16(value) : to_bfloat16(value));
        }
        block_sync();
    }
}

// As unpack; see pack_tiles.
KERNEL(unpack_tiles)
{
    SHARED float tile[TILE * PITCH];
    const struct cn_bias *op = &a.call.bias;
    uint32_t channels = (uint32_t)op->channels, inner = (uint32_t)op->inner;
    const uint16_t *packed = (const uint16_t *)(const void *)a.in[0];
    bool add = adds(&a);

    for (uint32_t block = block_index(); block < tile_count(op); block += grid_size()) {
        struct tile_place place = tile_place_of(op, block);

        for (uint32_t i = thread_index(); i < TILE * TILE; i += block_size()) {
            uint32_t c = place.channel + i % TILE, at = place.at + i / TILE;

            if (c < channels && at < inner) {
                uint32_t word = packed[((size_t)place.n * inner + at) * channels + c];

                tile[i / TILE * PITCH + i % TILE] =
                    a.wide ? from_float16(word) : bits_float(word << 16);
            }
        }
        block_sync();
        for (uint32_t i = thread_index(); i < TILE * TILE; i += block_size()) {
            uint32_t c = place.channel + i / TILE, at = place.at + i % TILE;

            if (c < channels && at < inner)
                put(&a.out[0][((size_t)place.n * channels + c) * inner + at],
                    tile[i % TILE * PITCH + i / TILE], add);
        }
        block_sync();
    }
}

// Moves a library's result to its place: out[0][i] = or += in[0][i], for fill.count words.
KERNEL(add_words)
{
    bool add = adds(&a);

    for (uint32_t i = first_index(); i < a.call.fill.count; i += index_step())
        put(&a.out[0][i], a.in[0][i], add);
}
