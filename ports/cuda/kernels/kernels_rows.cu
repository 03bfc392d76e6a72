// Softmax, normalization of rows, and sums over rows.
#include "ports/cuda/kernels/kernel_common.h"

#define ROWS_AHEAD 8 // rows whose loads are on their way together

// What a block adds up of a matrix: 32 columns, one for each lane, over the rows of one part. Each
// warp takes every step-th row.
struct column_share {
    uint32_t part, column, first, end, step; // rows first, first + step... before end
    bool writes;                             // this thread writes the sum of its column
};

// Returns the share of block number `block`, of column_shares in all.
DEVICE struct column_share column_share_of(const struct cuda_args *a, uint32_t block, uint32_t rows,
                                           uint32_t columns)
{
    uint32_t groups = (columns + CUDA_WARP - 1) / CUDA_WARP;
    uint32_t share = (rows + a->parts - 1) / a->parts, warp = thread_index() / CUDA_WARP;
    struct column_share at;

    at.part = block / groups;
    at.column = block % groups * CUDA_WARP + thread_index() % CUDA_WARP;
    at.first = at.part * share + warp;
    at.end = (at.part + 1) * share < rows ? (at.part + 1) * share : rows;
    at.step = block_size() / CUDA_WARP;
    at.writes = warp == 0 && at.column < columns;
    if (at.column >= columns)
        at.end = 0;
    return at;
}

DEVICE uint32_t column_shares(const struct cuda_args *a, uint32_t columns)
{
    return (columns + CUDA_WARP - 1) / CUDA_WARP * a->parts;
}

// Writes a column's sum over a part to the workspace, where sum_parts finds it, or over all rows to
// output number `out`. The sums of an output follow those of the output before.
DEVICE void put_column(const struct cuda_args *a, const struct column_share *at, uint32_t out,
                       uint32_t columns, float sum)
{
    if (at->writes && a->parts > 1)
        a->workspace[((size_t)out * a->parts + at->part) * columns + at->column] = sum;
    else if (at->writes && a->out[out])
        put(&a->out[out][at->column], sum, adds(a));
}

// Bias gradient of rows of channels.
KERNEL(bias_grad_rows)
{
    uint32_t channels = (uint32_t)a.call.bias.channels;
    uint32_t rows = (uint32_t)a.call.bias.rows * run_samples(&a);

    for (uint32_t block = block_index(); block < column_shares(&a, channels);
         block += grid_size()) {
        struct column_share at = column_share_of(&a, block, rows, channels);
        float sum = 0;

        for (uint32_t r = at.first; r < at.end; r += ROWS_AHEAD * at.step) {
            float x[ROWS_AHEAD];

            UNROLL
            for (uint32_t k = 0; k < ROWS_AHEAD; k++)
                x[k] = r + k * at.step < at.end
                           ? a.in[0][(size_t)(r + k * at.step) * channels + at.column]
                           : 0;
            UNROLL
            for (uint32_t k = 0; k < ROWS_AHEAD; k++)
                sum += x[k];
        }
        put_column(&a, &at, 0, channels, lane_sum(sum) * a.call.bias.scale);
    }
}

// Adds up partial sums: out[i][k] = sum over parts of workspace[i][part][k], for fill.count values
// of k and the one or two outputs that are there.
KERNEL(sum_parts)
{
    uint32_t count = (uint32_t)a.call.fill.count, groups = (count + CUDA_WARP - 1) / CUDA_WARP;
    uint32_t blocks = a.out[1] ? 2 * groups : groups;
    bool add = adds(&a);

    for (uint32_t block = block_index(); block < blocks; block += grid_size()) {
        uint32_t out = block / groups;
        uint32_t k = block % groups * CUDA_WARP + thread_index() % CUDA_WARP;
        const float *parts = a.workspace + (size_t)out * a.parts * count + k;
        float sum = 0;

        for (uint32_t part = thread_index() / CUDA_WARP; k < count && part < a.parts;
             part += block_size() / CUDA_WARP)
            sum += parts[(size_t)part * count];
        sum = lane_sum(sum);
        if (thread_index() < CUDA_WARP && k < count && a.out[out])
            put(&a.out[out][k], sum, add);
    }
}

// A block adds up a channel's planes.
KERNEL(bias_grad)
{
    const struct cn_bias *op = &a.call.bias;
    uint32_t channels = (uint32_t)op->channels, inner = (uint32_t)op->inner;
    uint32_t count = (uint32_t)op->rows * run_samples(&a) * inner;
    bool add = adds(&a);

    for (uint32_t c = block_index(); c < channels; c += grid_size()) {
        float sum = 0;

        for (uint32_t i = thread_index(); i < count; i += block_size())
            sum += a.in[0][((size_t)(i / inner) * channels + c) * inner + i % inner];
        sum = block_sum(sum);
        if (thread_index() == 0)
            put(&a.out[0][c], sum * op->scale, add);
    }
}

// Returns the first word of a row of softmax. The elements of a row lie inner words apart.
DEVICE size_t softmax_row(const struct cn_softmax *op, uint32_t row, size_t stride)
{
    uint32_t inner = (uint32_t)op->inner, outer = (uint32_t)op->outer;
    uint32_t n = row / (outer * inner), rest = row % (outer * inner);

    return n * stride + (size_t)(rest / inner) * op->cols * inner + rest % inner;
}

KERNEL(softmax)
{
    const struct cn_softmax *op = &a.call.softmax;
    struct team team = team_of(&a);
    uint32_t cols = (uint32_t)op->cols;
    uint32_t rows = (uint32_t)(op->outer * op->inner) * output_samples(&a);
    bool add = adds(&a);

    for (uint32_t row = team.first; row < rows; row += team.step) {
        const float *x = a.in[0] + softmax_row(op, row, a.call.in[0].stride);
        float *y = a.out[0] + softmax_row(op, row, a.call.out[0].stride);
        float largest = -INFINITY, sum = 0;

        for (uint32_t c = team.lane; c < cols; c += team.width)
            largest = fmaxf(largest, x[c * op->inner]);
        largest = team_max(&team, largest);
        for (uint32_t c = team.lane; c < cols; c += team.width)
            sum += expf(x[c * op->inner] - largest);
        sum = team_sum(&team, sum);
        for (uint32_t c = team.lane; c < cols; c += team.width) {
            float shifted = x[c * op->inner] - largest;

            put(&y[c * op->inner], op->log ? shifted - logf(sum) : expf(shifted) / sum, add);
        }
    }
}

// dx = y (dy - sum dy y); for the logarithm dx = dy - exp(y) sum dy.
KERNEL(softmax_grad)
{
    const struct cn_softmax *op = &a.call.softmax;
    struct team team = team_of(&a);
    uint32_t cols = (uint32_t)op->cols;
    uint32_t rows = (uint32_t)(op->outer * op->inner) * output_samples(&a);
    bool add = adds(&a);

    for (uint32_t row = team.first; row < rows; row += team.step) {
        const float *dy = a.in[0] + softmax_row(op, row, a.call.in[0].stride);
        const float *y = a.in[1] + softmax_row(op, row, a.call.in[1].stride);
        float *dx = a.out[0] + softmax_row(op, row, a.call.out[0].stride);
        float sum = 0;

        for (uint32_t c = team.lane; c < cols; c += team.width)
            sum += dy[c * op->inner] * (op->log ? 1 : y[c * op->inner]);
        sum = team_sum(&team, sum);
        for (uint32_t c = team.lane; c < cols; c += team.width) {
            size_t i = c * op->inner;

            put(&dx[i], op->log ? dy[i] - expf(y[i]) * sum : y[i] * (dy[i] - sum), add);
        }
    }
}

// A row of NORM: the number of its sample, and of the row in it.
struct norm_row {
    uint32_t n, r;
};

DEVICE struct norm_row norm_row_of(const struct cn_norm *op, uint32_t row)
{
    struct norm_row at;

    at.n = row / (uint32_t)op->rows;
    at.r = row % (uint32_t)op->rows;
    return at;
}

// Returns the index of gamma and beta for element c of row r.
DEVICE uint32_t affine_of(const struct cn_norm *op, uint32_t r, uint32_t c)
{
    uint32_t inner = (uint32_t)op->inner;

    return r % (uint32_t)op->groups * ((uint32_t)op->cols / inner) + c / inner;
}

// saved (out[1]) gets the mean and 1 / deviation of each row, side by side.
KERNEL(norm)
{
    const struct cn_norm *op = &a.call.norm;
    struct team team = team_of(&a);
    uint32_t cols = (uint32_t)op->cols, rows = (uint32_t)op->rows * output_samples(&a);
    bool add = adds(&a);

    for (uint32_t row = team.first; row < rows; row += team.step) {
        struct norm_row at = norm_row_of(op, row);
        const float *x = a.in[0] + at.n * a.call.in[0].stride + (size_t)at.r * cols;
        float *y = a.out[0] + at.n * a.call.out[0].stride + (size_t)at.r * cols;
        float mean = 0, variance = 0, inverse;

        for (uint32_t c = team.lane; c < cols; c += team.width)
            mean += x[c];
        mean = team_sum(&team, mean) / (float)cols;
        for (uint32_t c = team.lane; c < cols; c += team.width)
            variance += (x[c] - mean) * (x[c] - mean);
        variance = team_sum(&team, variance) / (float)cols;
        inverse = 1 / sqrtf(variance + op->epsilon);
        for (uint32_t c = team.lane; c < cols; c += team.width) {
            uint32_t k = affine_of(op, at.r, c);
            float value = (x[c] - mean) * inverse;

            put(&y[c], a.in[1] ? value * a.in[1][k] + a.in[2][k] : value, add);
        }
        if (a.out[1] && team.lane == 0) {
            float *saved = a.out[1] + at.n * a.call.out[1].stride + 2 * (size_t)at.r;

            saved[0] = mean;
            saved[1] = inverse;
        }
    }
}

// With h = (x - mean) inverse and g = dy gamma: dx = inverse (g - mean g - h mean(g h)).
KERNEL(norm_grad)
{
    const struct cn_norm *op = &a.call.norm;
    struct team team = team_of(&a);
    uint32_t cols = (uint32_t)op->cols, rows = (uint32_t)op->rows * output_samples(&a);
    bool add = adds(&a);

    for (uint32_t row = team.first; row < rows; row += team.step) {
        struct norm_row at = norm_row_of(op, row);
        const float *dy = a.in[0] + at.n * a.call.in[0].stride + (size_t)at.r * cols;
        const float *x = a.in[1] + at.n * a.call.in[1].stride + (size_t)at.r * cols;
        const float *saved = a.in[2] + at.n * a.call.in[2].stride + 2 * (size_t)at.r;
        float *dx = a.out[0] + at.n * a.call.out[0].stride + (size_t)at.r * cols;
        float sum = 0, product = 0;

        for (uint32_t c = team.lane; c < cols; c += team.width) {
            float g = dy[c] * (a.in[3] ? a.in[3][affine_of(op, at.r, c)] : 1);

            sum += g;
            product += g * (x[c] - saved[0]) * saved[1];
        }
        sum = team_sum(&team, sum) / (float)cols;
        product = team_sum(&team, product) / (float)cols;
        for (uint32_t c = team.lane; c < cols; c += team.width) {
            float g = dy[c] * (a.in[3] ? a.in[3][affine_of(op, at.r, c)] : 1);
            float h = (x[c] - saved[0]) * saved[1];

            put(&dx[c], saved[1] * (g - sum - h * product), add);
        }
    }
}

// Adds the shares of dgamma and dbeta of element c of a row, which is counted over all samples.
DEVICE void norm_shares(const struct cuda_args *a, uint32_t row, uint32_t c, float *gamma,
                        float *beta)
{
    const struct cn_norm *op = &a->call.norm;
    struct norm_row at = norm_row_of(op, row);
    size_t i = (size_t)at.r * op->cols + c;
    const float *saved = a->in[2] + at.n * a->call.in[2].stride + 2 * (size_t)at.r;
    float dy = a->in[0][at.n * a->call.in[0].stride + i];

    *gamma += dy * (a->in[1][at.n * a->call.in[1].stride + i] - saved[0]) * saved[1];
    *beta += dy;
}

// For groups = inner = 1.
KERNEL(norm_grad_affine_rows)
{
    const struct cn_norm *op = &a.call.norm;
    uint32_t cols = (uint32_t)op->cols, rows = (uint32_t)op->rows * run_samples(&a);

    for (uint32_t block = block_index(); block < column_shares(&a, cols); block += grid_size()) {
        struct column_share at = column_share_of(&a, block, rows, cols);
        float gamma = 0, beta = 0;

        for (uint32_t row = at.first; row < at.end; row += at.step)
            norm_shares(&a, row, at.column, &gamma, &beta);
        put_column(&a, &at, 0, cols, lane_sum(gamma));
        put_column(&a, &at, 1, cols, lane_sum(beta));
    }
}

// A block adds up the gradients of one gamma and one beta, over inner elements of every row of its
// group.
KERNEL(norm_grad_affine)
{
    const struct cn_norm *op = &a.call.norm;
    uint32_t inner = (uint32_t)op->inner, groups = (uint32_t)op->groups;
    uint32_t of_row = (uint32_t)op->cols / inner;
    uint32_t rows = (uint32_t)op->rows / groups * run_samples(&a);
    bool add = adds(&a);

    for (uint32_t k = block_index(); k < groups * of_row; k += grid_size()) {
        float gamma = 0, beta = 0;

        for (uint32_t i = thread_index(); i < rows * inner; i += block_size())
            norm_shares(&a, i / inner * groups + k / of_row, k % of_row * inner + i % inner, &gamma,
                        &beta);
        gamma = block_sum(gamma);
        beta = block_sum(beta);
        if (thread_index() == 0 && a.out[0])
            put(&a.out[0][k], gamma, add);
        if (thread_index() == 0 && a.out[1])
            put(&a.out[1][k], beta, add);
    }
}
