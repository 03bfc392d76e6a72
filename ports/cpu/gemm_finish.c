// The steps after the sums of a product: the bias and ReLU.
#include "ports/cpu/gemm.h"

static void finish(const struct cpu_product *product, size_t row, size_t col, size_t rows,
                   size_t cols)
{
    for (size_t i = row; i < row + rows; i++)
        for (size_t j = col; j < col + cols; j++) {
            float *to = product->c.data + i * product->c.row + j * product->c.col;
            float value = *to;

            if (product->bias)
                value += product->bias_scale *
                         product->bias[i * product->bias_row + j * product->bias_col];
            *to = product->relu && value < 0 ? 0 : value;
        }
}

// As finish, for contiguous columns.
static void finish_rows(const struct cpu_product *product, size_t row, size_t col, size_t rows,
                        size_t cols)
{
    for (size_t i = row; i < row + rows; i++) {
        float *c = product->c.data + i * product->c.row + col;
        const float scale = product->bias_scale;

        if (product->bias && product->bias_col) {
            const float *bias = product->bias + col;

            for (size_t j = 0; j < cols; j++)
                c[j] += scale * bias[j];
        } else if (product->bias) {
            float bias = scale * product->bias[i * product->bias_row];

            for (size_t j = 0; j < cols; j++)
                c[j] += bias;
        }
        if (product->relu)
            for (size_t j = 0; j < cols; j++)
                c[j] = c[j] < 0 ? 0 : c[j];
    }
}

void cpu_gemm_finish(const struct cpu_product *product, size_t row, size_t col, size_t rows,
                     size_t cols)
{
    if (!product->bias && !product->relu)
        return;
    if (product->c.col == 1 && product->bias_col <= 1)
        finish_rows(product, row, col, rows, cols);
    else
        finish(product, row, col, rows, cols);
}
