// Matrix products. Operands are read where they lie; only a b whose columns are not contiguous, or
// the ragged right edge of b, is copied, a stripe of TILE_COLS at a time.
#include <string.h>

#include "ports/cpu/kernel.h"
#include "ports/cpu/tile.h"

#define INNER_BLOCK 256 // of a stripe of b: 256 rows stay in the first cache

struct matrix {
    float *data;
    size_t row, col; // strides in words
};

struct product {
    size_t rows, inner, cols;
    struct matrix a, b, c;
    float alpha;
    bool add;
};

// c' = b' a': the same numbers with rows and columns exchanged.
static struct product transposed(const struct product *product)
{
    return (struct product){
        .rows = product->cols,
        .inner = product->inner,
        .cols = product->rows,
        .a = {product->b.data, product->b.col, product->b.row},
        .b = {product->a.data, product->a.col, product->a.row},
        .c = {product->c.data, product->c.col, product->c.row},
        .alpha = product->alpha,
        .add = product->add,
    };
}

// True when exchanging saves copying: b's columns are scattered and a', or the copy of it, is
// better.
static bool better_transposed(const struct product *product)
{
    if (product->b.col == 1)
        return false;
    return product->a.row == 1 || product->rows <= product->cols;
}

static void pack_stripe(const struct matrix *b, size_t inner, size_t cols, float *stripe)
{
    if (cols < TILE_COLS)
        memset(stripe, 0, inner * TILE_COLS * sizeof(*stripe));
    if (b->col == 1) {
        for (size_t k = 0; k < inner; k++)
            memcpy(stripe + k * TILE_COLS, b->data + k * b->row, cols * sizeof(*stripe));
        return;
    }
    for (size_t j = 0; j < cols; j++)
        for (size_t k = 0; k < inner; k++)
            stripe[k * TILE_COLS + j] = b->data[k * b->row + j * b->col];
}

// Writes a tile that was computed aside to where c is scattered, narrow or scaled.
static void store_tile(const struct product *product, const float *tile, float *c, size_t rows,
                       size_t cols, bool add)
{
    for (size_t i = 0; i < rows; i++)
        for (size_t j = 0; j < cols; j++) {
            float *to = c + i * product->c.row + j * product->c.col;
            float value = product->alpha * tile[i * TILE_COLS + j];

            *to = add ? *to + value : value;
        }
}

static void multiply_stripe(const struct product *product, const struct tile *stripe,
                            size_t first_col, size_t cols)
{
    float aside[TILE_ROWS * TILE_COLS] __attribute__((aligned(64)));
    bool direct = cols == TILE_COLS && product->c.col == 1 && product->alpha == 1;
    struct tile tile = *stripe;
    size_t height;

    for (size_t i = 0; i < product->rows; i += height) {
        float *c = product->c.data + i * product->c.row + first_col * product->c.col;

        height = tile_height(product->rows - i);
        tile.a = stripe->a + i * product->a.row;
        tile.c = direct ? c : aside;
        tile.c_row = direct ? product->c.row : TILE_COLS;
        tile.add = direct && stripe->add;
        tile_multiply(&tile, height);
        if (!direct)
            store_tile(product, aside, c, height, cols, stripe->add);
    }
}

static void multiply(const struct product *product, float *stripe)
{
    for (size_t j = 0; j < product->cols; j += TILE_COLS) {
        size_t cols = product->cols - j < TILE_COLS ? product->cols - j : TILE_COLS;
        bool packed = product->b.col != 1 || cols < TILE_COLS;

        for (size_t k = 0; k < product->inner; k += INNER_BLOCK) {
            size_t left = product->inner - k;
            struct matrix b = product->b;
            struct tile tile = {.inner = left < INNER_BLOCK ? left : INNER_BLOCK,
                                .a = product->a.data + k * product->a.col,
                                .a_row = product->a.row,
                                .a_col = product->a.col,
                                .add = product->add || k};

            b.data += k * b.row + j * b.col;
            if (packed)
                pack_stripe(&b, tile.inner, cols, stripe);
            tile.b = packed ? stripe : b.data;
            tile.b_row = packed ? TILE_COLS : b.row;
            multiply_stripe(product, &tile, j, cols);
        }
    }
}

static void finish_rows(const struct cn_matmul *op, size_t rows, const float *bias, float *c)
{
    for (size_t i = 0; i < rows; i++, c += op->cols) {
        if (bias && op->bias_scale == 1)
            for (size_t j = 0; j < op->cols; j++)
                c[j] += bias[j];
        else if (bias)
            for (size_t j = 0; j < op->cols; j++)
                c[j] += op->bias_scale * bias[j];
        if (op->relu)
            for (size_t j = 0; j < op->cols; j++)
                c[j] = c[j] < 0 ? 0 : c[j];
    }
}

static struct matrix view(const float *data, size_t rows, size_t cols, bool transpose)
{
    // The kernels only read through a and b.
    return (struct matrix){(float *)(uintptr_t)data, transpose ? 1 : cols, transpose ? rows : 1};
}

void cpu_matmul(const struct cpu_task *task)
{
    const struct cn_matmul *op = &task->call->matmul;
    size_t rows = op->inner_batched ? op->rows : op->rows * task->samples;
    size_t inner = op->inner_batched ? op->inner * task->samples : op->inner;
    struct product product = {
        .rows = rows,
        .inner = inner,
        .cols = op->cols,
        .a = view(task->in[0], rows, inner, op->transpose_a),
        .b = view(task->in[1], inner, op->cols, op->transpose_b),
        .c = {task->out[0], op->cols, 1},
        .alpha = op->alpha,
        .add = task->add,
    };

    if (!inner && !task->add)
        memset(task->out[0], 0, rows * op->cols * sizeof(float));
    if (better_transposed(&product))
        product = transposed(&product);
    multiply(&product, task->workspace);
    if (task->in[2] || op->relu)
        finish_rows(op, rows, task->in[2], task->out[0]);
}

size_t cpu_matmul_workspace(const struct cn_call *call, size_t samples)
{
    (void)call;
    (void)samples;
    return INNER_BLOCK * TILE_COLS;
}

static struct matrix leading_view(const float *data, size_t leading, bool transpose)
{
    return (struct matrix){(float *)(uintptr_t)data, transpose ? 1 : leading,
                           transpose ? leading : 1};
}

static void clear_matrix(const struct product *product)
{
    for (size_t i = 0; i < product->rows; i++)
        memset(product->c.data + i * product->c.row, 0, product->cols * sizeof(float));
}

// A result that all samples share, or that the matrices of a sample do, is a sum.
void cpu_products(const struct cpu_task *task)
{
    const struct cn_products *op = &task->call->products;
    const struct cn_operand *c_of = &task->call->out[0];
    struct product product = {
        .rows = op->rows, .inner = op->inner, .cols = op->cols, .alpha = op->alpha};

    product.c = leading_view(task->out[0], op->leading_c, false);
    for (size_t i = 0; !task->samples && !task->add && i < op->count; i++) {
        product.c.data = task->out[0] + i * op->stride_c;
        clear_matrix(&product);
    }
    for (size_t n = 0; n < task->samples; n++)
        for (size_t i = 0; i < op->count; i++) {
            struct product one = product;

            one.a = leading_view(task->in[0] + n * task->call->in[0].stride + i * op->stride_a,
                                 op->leading_a, op->transpose_a);
            one.b = leading_view(task->in[1] + n * task->call->in[1].stride + i * op->stride_b,
                                 op->leading_b, op->transpose_b);
            one.c.data = task->out[0] + n * c_of->stride + i * op->stride_c;
            one.add = task->add || (n && !c_of->stride) || (i && !op->stride_c);
            if (better_transposed(&one))
                one = transposed(&one);
            multiply(&one, task->workspace);
        }
}

size_t cpu_products_workspace(const struct cn_call *call, size_t samples)
{
    (void)call;
    (void)samples;
    return INNER_BLOCK * TILE_COLS;
}
