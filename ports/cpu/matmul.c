// Matrix products: of whole batches, and of independent matrices.
#include <string.h>

#include "ports/cpu/gemm.h"

static struct cpu_matrix view(const float *data, size_t rows, size_t cols, bool transpose)
{
    return cpu_matrix_of(data, transpose ? 1 : cols, transpose ? rows : 1);
}

void cpu_matmul(const struct cpu_task *task)
{
    const struct cn_matmul *op = &task->call->matmul;
    size_t rows = op->inner_batched ? op->rows : op->rows * task->samples;
    size_t inner = op->inner_batched ? op->inner * task->samples : op->inner;
    struct cpu_product product = {
        .rows = rows,
        .inner = inner,
        .cols = op->cols,
        .a = view(task->in[0], rows, inner, op->transpose_a),
        .b = view(task->in[1], inner, op->cols, op->transpose_b),
        .c = {task->out[0], op->cols, 1},
        .alpha = op->alpha,
        .add = task->add,
        .relu = op->relu,
        .bias = task->in[2],
        .bias_col = 1,
        .bias_scale = op->bias_scale,
    };

    cpu_gemm(&product, task->workspace);
}

size_t cpu_matmul_workspace(const struct cn_call *call, size_t samples)
{
    const struct cn_matmul *op = &call->matmul;

    return cpu_gemm_workspace(op->inner_batched ? op->rows : op->rows * samples,
                              op->inner_batched ? op->inner * samples : op->inner, op->cols);
}

// Multiplies independent matrices. A result that all samples share, or all matrices of a sample, is
// the sum of their products.
void cpu_products(const struct cpu_task *task)
{
    const struct cn_products *op = &task->call->products;
    const struct cn_operand *in = task->call->in;
    size_t c_stride = task->call->out[0].stride;
    struct cpu_product product = {
        .rows = op->rows, .inner = op->inner, .cols = op->cols, .alpha = op->alpha};

    // Without samples only a sum over them is written: other words at out belong to another lane.
    for (size_t i = 0; !task->samples && !c_stride && !task->add && i < op->count; i++)
        for (size_t r = 0; r < op->rows; r++)
            memset(task->out[0] + i * op->stride_c + r * op->leading_c, 0,
                   op->cols * sizeof(float));
    for (size_t n = 0; n < task->samples; n++)
        for (size_t i = 0; i < op->count; i++) {
            const float *a = task->in[0] + n * in[0].stride + i * op->stride_a;
            const float *b = task->in[1] + n * in[1].stride + i * op->stride_b;

            product.a = cpu_matrix_of(a, op->transpose_a ? 1 : op->leading_a,
                                      op->transpose_a ? op->leading_a : 1);
            product.b = cpu_matrix_of(b, op->transpose_b ? 1 : op->leading_b,
                                      op->transpose_b ? op->leading_b : 1);
            product.c = (struct cpu_matrix){task->out[0] + n * c_stride + i * op->stride_c,
                                            op->leading_c, 1};
            product.add = task->add || (n && !c_stride) || (i && !op->stride_c);
            cpu_gemm(&product, task->workspace);
        }
}

size_t cpu_products_workspace(const struct cn_call *call, size_t samples)
{
    const struct cn_products *op = &call->products;

    (void)samples;
    return cpu_gemm_workspace(op->rows, op->inner, op->cols);
}
