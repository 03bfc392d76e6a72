// The loops around the micro-kernel. A block of a, BLOCK_ROWS x BLOCK_INNER, is packed tile by tile
// and stays in the second-level cache. A stripe of b, BLOCK_INNER x TILE_COLS, is packed and stays
// in the first-level cache. If a has several blocks, a panel of stripes is packed once for all of
// them. Operands that are used too seldom to pay for packing are read in place.
#include "ports/cpu/gemm.h"

#include <string.h>

#include "ports/cpu/tile.h"

#define BLOCK_INNER 256
#define BLOCK_ROWS 144          // a multiple of every TILE_ROWS
#define PANEL_WORDS (64 * 1024) // words; a panel shares the second-level cache with a block of a

// Returns the same product with rows and columns exchanged: c' = b' a'.
static struct cpu_product transposed(const struct cpu_product *product)
{
    struct cpu_product other = *product;

    other.rows = product->cols;
    other.cols = product->rows;
    other.a = (struct cpu_matrix){product->b.data, product->b.col, product->b.row};
    other.b = (struct cpu_matrix){product->a.data, product->a.col, product->a.row};
    other.c = (struct cpu_matrix){product->c.data, product->c.col, product->c.row};
    other.bias_row = product->bias_col;
    other.bias_col = product->bias_row;
    return other;
}

// Returns whether the exchanged product is better. A product of few rows and many columns fills its
// tiles when it is exchanged, and c should be written along its rows.
static bool better_transposed(const struct cpu_product *product)
{
    if (product->c.col != 1)
        return product->c.row == 1;
    return product->rows < TILE_ROWS && product->cols > 2 * TILE_ROWS && product->b.col != 1;
}

// Packs inner rows of a stripe of b; columns beyond cols become 0.
static void pack_stripe(const struct cpu_matrix *b, size_t inner, size_t cols, float *stripe)
{
    if (cols < TILE_COLS)
        memset(stripe, 0, inner * TILE_COLS * sizeof(*stripe));
    if (b->col == 1 && cols == TILE_COLS)
        for (size_t k = 0; k < inner; k++)
            tile_copy(stripe + k * TILE_COLS, b->data + k * b->row, TILE_COLS);
    else if (b->col == 1)
        for (size_t k = 0; k < inner; k++)
            tile_copy(stripe + k * TILE_COLS, b->data + k * b->row, cols);
    else if (b->row == 1)
        tile_transpose(stripe, TILE_COLS, b->data, b->col, cols, inner);
    else
        for (size_t k = 0; k < inner; k++)
            for (size_t j = 0; j < cols; j++)
                stripe[k * TILE_COLS + j] = b->data[k * b->row + j * b->col];
}

// Packs a tile of a matrix whose columns are contiguous: TILE_ROWS words of each column.
static void copy_tile(const float *from, size_t step, size_t inner, float *to)
{
    for (size_t k = 0; k < inner; k++, from += step, to += TILE_ROWS)
        memcpy(to, from, TILE_ROWS * sizeof(*to));
}

// Packs rows [first, first + height) of a, column by column.
static void pack_tile(const struct cpu_matrix *a, size_t first, size_t height, size_t inner,
                      float *to)
{
    const float *from = a->data + first * a->row;

    if (a->col == 1)
        tile_transpose(to, height, from, a->row, height, inner);
    else if (a->row == 1 && height == TILE_ROWS)
        copy_tile(from, a->col, inner, to);
    else
        for (size_t k = 0; k < inner; k++)
            for (size_t i = 0; i < height; i++)
                to[k * height + i] = from[i * a->row + k * a->col];
}

// Packs a block of a, tile by tile.
static void pack_rows(const struct cpu_matrix *a, size_t rows, size_t inner, float *to)
{
    size_t height;

    for (size_t i = 0; i < rows; i += height, to += height * inner) {
        height = tile_height(rows - i);
        pack_tile(a, i, height, inner, to);
    }
}

// Writes a tile that was computed aside into c. Used when c is scattered, narrow or scaled.
static void store_tile(const struct cpu_product *product, const float *tile, float *c, size_t rows,
                       size_t cols, bool add)
{
    for (size_t i = 0; i < rows; i++)
        for (size_t j = 0; j < cols; j++) {
            float *to = c + i * product->c.row + j * product->c.col;
            float value = product->alpha * tile[i * TILE_COLS + j];

            *to = add ? *to + value : value;
        }
}

// A block of rows of a, and one stripe of b.
struct block {
    size_t row, rows, inner;
    size_t col, cols;
    const float *packed; // tiles of a; NULL: read a
    const float *panel;  // stripes of b; NULL: read b
    struct cpu_matrix a, b;
    bool add, last; // add to c; the sums are final after this block
};

static void multiply_stripe(const struct cpu_product *product, const struct block *block)
{
    float aside[TILE_ROWS * TILE_COLS] __attribute__((aligned(64)));
    bool direct = (block->cols == TILE_COLS || block->cols == VECTOR) && product->c.col == 1 &&
                  product->alpha == 1;
    const float *packed = block->packed;
    struct tile tile = {.inner = block->inner,
                        .b = block->b.data,
                        .b_row = block->b.row,
                        .c_row = direct ? product->c.row : TILE_COLS,
                        .narrow = block->cols <= VECTOR,
                        .add = direct && block->add};
    size_t height;

    for (size_t i = 0; i < block->rows; i += height) {
        float *c =
            product->c.data + (block->row + i) * product->c.row + block->col * product->c.col;

        height = tile_height(block->rows - i);
        tile.a = packed ? packed : block->a.data + i * block->a.row;
        tile.a_row = packed ? 1 : block->a.row;
        tile.a_col = packed ? height : block->a.col;
        tile.c = direct ? c : aside;
        tile_multiply(&tile, height);
        if (!direct)
            store_tile(product, aside, c, height, block->cols, block->add);
        packed += packed ? height * block->inner : 0;
    }
    if (block->last) // while the block is still in the cache
        cpu_gemm_finish(product, block->row, block->col, block->rows, block->cols);
}

// Computes columns [first, end) of a block of rows. stripe is room for one stripe of b.
static void multiply_block(const struct cpu_product *product, struct block *block, size_t first,
                           size_t end, float *stripe)
{
    struct cpu_matrix b = block->b;

    for (size_t j = first; j < end; j += TILE_COLS) {
        size_t cols = end - j < TILE_COLS ? end - j : TILE_COLS;
        struct cpu_matrix part = {b.data + j * b.col, b.row, b.col};

        block->col = j;
        block->cols = cols;
        block->b = part;
        if (block->panel) {
            block->b = cpu_matrix_of(block->panel + (j - first) * block->inner, TILE_COLS, 1);
        } else if (b.col != 1 || cols < TILE_COLS || block->rows > 2 * TILE_ROWS) {
            pack_stripe(&part, block->inner, cols, stripe);
            block->b = (struct cpu_matrix){stripe, TILE_COLS, 1};
        }
        multiply_stripe(product, block);
    }
    block->b = b;
}

// Packs columns [first, end) of b, stripe by stripe.
static void pack_panel(const struct cpu_matrix *b, size_t inner, size_t first, size_t end,
                       float *panel)
{
    for (size_t j = first; j < end; j += TILE_COLS, panel += inner * TILE_COLS) {
        struct cpu_matrix part = {b->data + j * b->col, b->row, b->col};

        pack_stripe(&part, inner, end - j < TILE_COLS ? end - j : TILE_COLS, panel);
    }
}

// Writes zeros, the result of a product over nothing, unless it is added.
static void clear(const struct cpu_product *product)
{
    for (size_t i = 0; i < product->rows && !product->add; i++)
        for (size_t j = 0; j < product->cols; j++)
            product->c.data[i * product->c.row + j * product->c.col] = 0;
}

// Returns the words of a packed block of a.
static size_t block_words(size_t rows, size_t inner)
{
    return round_up(least(rows, BLOCK_ROWS), 16) * inner;
}

// Returns the columns of a panel.
static size_t panel_cols(size_t rows, size_t inner, size_t cols)
{
    if (rows <= BLOCK_ROWS)
        return round_up(cols, TILE_COLS);
    return least(PANEL_WORDS / inner / TILE_COLS * TILE_COLS, round_up(cols, TILE_COLS));
}

// Computes all rows of columns [first, end), from rows [k, k + inner) of b.
static void multiply_panel(const struct cpu_product *product, size_t k, size_t inner, size_t first,
                           size_t end, float *workspace)
{
    float *packed = workspace + block_words(product->rows, inner);
    struct cpu_matrix b = product->b;
    bool panel = product->rows > BLOCK_ROWS;

    b.data += k * b.row;
    if (panel)
        pack_panel(&b, inner, first, end, packed);
    for (size_t i = 0; i < product->rows; i += BLOCK_ROWS) {
        struct block block = {.row = i,
                              .rows = least(product->rows - i, BLOCK_ROWS),
                              .inner = inner,
                              .panel = panel ? packed : NULL,
                              .a = product->a,
                              .b = b,
                              .add = product->add || k,
                              .last = k + inner >= product->inner};

        block.a.data += i * block.a.row + k * block.a.col;
        if (product->cols > TILE_COLS) {
            pack_rows(&block.a, block.rows, inner, workspace);
            block.packed = workspace;
        }
        multiply_block(product, &block, first, end, packed);
    }
}

void cpu_gemm(const struct cpu_product *given, float *workspace)
{
    struct cpu_product product = better_transposed(given) ? transposed(given) : *given;

    if (!product.inner) {
        clear(&product);
        cpu_gemm_finish(&product, 0, 0, product.rows, product.cols);
    }
    for (size_t k = 0; k < product.inner; k += BLOCK_INNER) {
        size_t inner = least(product.inner - k, BLOCK_INNER);
        size_t cols = panel_cols(product.rows, inner, product.cols);

        for (size_t j = 0; j < product.cols; j += cols)
            multiply_panel(&product, k, inner, j, least(j + cols, product.cols), workspace);
    }
}

size_t cpu_gemm_workspace(size_t rows, size_t inner, size_t cols)
{
    size_t block = least(inner, BLOCK_INNER), side = rows > cols ? rows : cols;
    size_t panel = side > BLOCK_ROWS ? least(PANEL_WORDS, block * round_up(side, TILE_COLS)) : 0;

    // Counts for either order: rows and columns may be exchanged.
    return block_words(side, block) + (panel > block * TILE_COLS ? panel : block * TILE_COLS);
}
