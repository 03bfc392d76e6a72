// Matrix products by OpenBLAS, in place of gemm.c (CAIRN_OPENBLAS). Each lane makes its own
// single-threaded calls, so the samples stay divided among the lanes as for other ops.
#include <assert.h>
#include <cblas.h>

#include "ports/cpu/gemm.h"
#include "ports/cpu/tile.h"

// Returns whether the rows are not contiguous: then the matrix is the transpose of one with
// contiguous rows.
static bool is_transposed(const struct cpu_matrix *m)
{
    assert(m->row == 1 || m->col == 1);
    return m->col != 1;
}

// Returns the words from one contiguous row to the next. If there is only one row, any number that
// is large enough.
static blasint leading_of(const struct cpu_matrix *m, size_t rows, size_t cols)
{
    size_t step = is_transposed(m) ? m->col : m->row, length = is_transposed(m) ? rows : cols;

    return (blasint)most(most(step, length), 1);
}

void cpu_gemm(const struct cpu_product *product, float *workspace)
{
    const struct cpu_matrix *a = &product->a, *b = &product->b, *c = &product->c;
    bool columns = is_transposed(c); // the order in which c's contiguous rows are columns

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

// Returns the smallest size that callers accept: OpenBLAS has workspace of its own. Callers ask
// before the first product, so this also limits OpenBLAS to one thread.
size_t cpu_gemm_workspace(size_t rows, size_t inner, size_t cols)
{
    openblas_set_num_threads(1);
    (void)rows;
    (void)inner;
    (void)cols;
    return 1;
}
