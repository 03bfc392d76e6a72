// Matrix products of whole batches.
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
