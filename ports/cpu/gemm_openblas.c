// Products of matrices by OpenBLAS, in place of gemm.c (CAIRN_OPENBLAS). Each lane calls it by
// itself, for one thread, so the samples stay split over the lanes as everywhere.
#include <assert.h>
#include <cblas.h>

#include "ports/cpu/gemm.h"
#include "ports/cpu/tile.h"

// A matrix whose rows are not contiguous is the transpose of one whose are.
static bool is_transposed(const struct cpu_matrix *m)
{
    assert(m->row == 1 || m->col == 1);
    return m->col != 1;
}

// Words from one contiguous row to the next. Where there is only one, any that it fits in.
static blasint leading_of(const struct cpu_matrix *m, size_t rows, size_t cols)
{
    size_t step = is_transposed(m) ? m->col : m->row, length = is_transposed(m) ? rows : cols;

    return (blasint)most(most(step, length), 1);
}

void cpu_gemm(const struct cpu_product *product, float *workspace)
{
    const struct cpu_matrix *a = &product->a, *b = &product->b, *c = &product->c;
    bool columns = is_transposed(c); // in which order a contiguous row is a transposed matrix

    (void)workspace;
    cblas_sgemm(columns ? CblasColMajor : CblasRowMajor,
                is_transposed(a) == columns ? CblasNoTrans : CblasTrans,
                is_transposed(b) == columns ? CblasNoTrans : CblasTrans, (blasint)product->rows,
                (blasint)product->cols, (blasint)product->inner, product->alpha, a->data,
                leading_of(a, product->rows, product->inner), b->data,
                leading_of(b, product->inner, product->cols), product->add ? 1 : 0, c->data,
                leading_of(c, product->rows, product->cols));
    cpu_gemm_finish(product, 0, 0, product->rows, product->cols);
}

// It has its own; callers expect some. They ask before the first product.
size_t cpu_gemm_workspace(size_t rows, size_t inner, size_t cols)
{
    openblas_set_num_threads(1);
    (void)rows;
    (void)inner;
    (void)cols;
    return 1;
}
