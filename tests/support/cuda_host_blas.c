// A double of cuBLASLt. Matrices are stored by columns, as in the library.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ports/cuda/cuda_library.h"
#include "tests/support/cuda_host.h"
#include "tests/support/cuda_host_short.h"

struct product {
    cublasComputeType_t compute;
    cublasOperation_t of_a, of_b;
    cublasLtEpilogue_t end;
    float *vector; // a bias, or its gradient
    float *aside;  // matrix that takes GELU's arguments
    int64_t leading;
};

struct matrix {
    cudaDataType type;
    uint64_t rows, cols;
    int64_t leading, stride;
    int32_t count;
};

struct wish {
    size_t workspace;
    uint32_t alignment[4]; // of a, b, c, d
};

static void *keep(const void *object, size_t size)
{
    void *kept = malloc(size);

    if (!kept)
        abort();
    memcpy(kept, object, size);
    cuda_host_counts.descriptors++;
    return kept;
}

static void drop(const void *object)
{
    cuda_host_counts.descriptors--;
    free((void *)(uintptr_t)object);
}

size_t cublasLtGetVersion(void)
{
    return CUBLAS_VERSION;
}

cublasStatus_t cublasLtCreate(cublasLtHandle_t *handle)
{
    char dummy = 0;

    *handle = keep(&dummy, 1);
    cuda_host_counts.handles++;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle)
{
    drop(handle);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t *made, cublasComputeType_t compute,
                                        cudaDataType_t scale)
{
    struct product product = {.compute = compute,
                              .of_a = CUBLAS_OP_N,
                              .of_b = CUBLAS_OP_N,
                              .end = CUBLASLT_EPILOGUE_DEFAULT};

    if (scale != CUDA_R_32F)
        return CUBLAS_STATUS_NOT_SUPPORTED;
    *made = keep(&product, sizeof(product));
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t product)
{
    drop(product);
    return CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t take(void *to, size_t wanted, const void *value, size_t size)
{
    if (size != wanted)
        return CUBLAS_STATUS_INVALID_VALUE;
    memcpy(to, value, size);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t made,
                                              cublasLtMatmulDescAttributes_t name,
                                              const void *value, size_t size)
{
    struct product *product = (struct product *)(void *)made;

    switch (name) {
    case CUBLASLT_MATMUL_DESC_TRANSA:
        return take(&product->of_a, sizeof(product->of_a), value, size);
    case CUBLASLT_MATMUL_DESC_TRANSB:
        return take(&product->of_b, sizeof(product->of_b), value, size);
    case CUBLASLT_MATMUL_DESC_EPILOGUE:
        return take(&product->end, sizeof(product->end), value, size);
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER:
        return take(&product->vector, sizeof(product->vector), value, size);
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER:
        return take(&product->aside, sizeof(product->aside), value, size);
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD:
        return take(&product->leading, sizeof(product->leading), value, size);
    default:
        return CUBLAS_STATUS_INVALID_VALUE;
    }
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t *made, cudaDataType type,
                                          uint64_t rows, uint64_t cols, int64_t leading)
{
    struct matrix matrix = {
        .type = type, .rows = rows, .cols = cols, .leading = leading, .count = 1};

    if ((type != CUDA_R_32F && type != CUDA_R_16BF && type != CUDA_R_16F) ||
        leading < (int64_t)rows || !rows || !cols)
        return CUBLAS_STATUS_INVALID_VALUE;
    *made = keep(&matrix, sizeof(matrix));
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t matrix)
{
    drop(matrix);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t made,
                                                cublasLtMatrixLayoutAttribute_t name,
                                                const void *value, size_t size)
{
    struct matrix *matrix = (struct matrix *)(void *)made;

    switch (name) {
    case CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT:
        return take(&matrix->count, sizeof(matrix->count), value, size);
    case CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET:
        return take(&matrix->stride, sizeof(matrix->stride), value, size);
    default:
        return CUBLAS_STATUS_INVALID_VALUE;
    }
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t *made)
{
    struct wish wish = {.alignment = {256, 256, 256, 256}};

    *made = keep(&wish, sizeof(wish));
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t wish)
{
    drop(wish);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t made,
                                                    cublasLtMatmulPreferenceAttributes_t name,
                                                    const void *value, size_t size)
{
    struct wish *wish = (struct wish *)(void *)made;
    uint32_t reductions;

    switch (name) {
    case CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES:
        return take(&wish->workspace, sizeof(wish->workspace), value, size);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES:
        return take(&wish->alignment[0], sizeof(uint32_t), value, size);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES:
        return take(&wish->alignment[1], sizeof(uint32_t), value, size);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES:
        return take(&wish->alignment[2], sizeof(uint32_t), value, size);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES:
        return take(&wish->alignment[3], sizeof(uint32_t), value, size);
    case CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK:
        return take(&reductions, sizeof(reductions), value, size);
    default:
        return CUBLAS_STATUS_INVALID_VALUE;
    }
}

// An algorithm carries the alignments for which it was found, and the size of its workspace.
cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle, cublasLtMatmulDesc_t product,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t made, int wanted,
                                              cublasLtMatmulHeuristicResult_t *results, int *count)
{
    const struct wish *wish = (const struct wish *)(const void *)made;

    (void)handle;
    (void)product;
    (void)a;
    (void)b;
    (void)c;
    (void)d;
    *count = wanted > 0 && !cuda_host_settings.refuse_libraries;
    for (int i = 0; i < 4; i++)
        *count = *count && wish->alignment[i] >= cuda_host_settings.alignment;
    if (!*count)
        return CUBLAS_STATUS_NOT_SUPPORTED;
    memset(results, 0, sizeof(*results));
    results->workspaceSize =
        wish->workspace < 4096 || cuda_host_settings.greedy ? wish->workspace : 4096;
    for (int i = 0; i < 4; i++)
        results->algo.data[i] = wish->alignment[i];
    results->algo.data[4] = results->workspaceSize;
    return CUBLAS_STATUS_SUCCESS;
}

struct multiplication {
    struct product product;
    struct matrix a, b, c;
    const void *at_a, *at_b;
    float *at_c;
    float alpha, beta;
    void *workspace;
    size_t size;
};

// Returns an element of matrix number n.
static float element(const struct matrix *m, const void *at, int32_t n, bool transposed,
                     uint64_t row, uint64_t col)
{
    uint64_t place =
        transposed ? col + row * (uint64_t)m->leading : row + col * (uint64_t)m->leading;

    place += (uint64_t)(n * m->stride);
    return m->type == CUDA_R_32F    ? ((const float *)at)[place]
           : m->type == CUDA_R_16BF ? cuda_host_from_bfloat16(((const uint16_t *)at)[place])
                                    : cuda_host_from_float16(((const uint16_t *)at)[place]);
}

// The bits of an epilogue's number: the operations that it is made of.
enum {
    BIAS = 4,
    GELU = 32,
    GELU_GRAD = 64,
    ASIDE = 128,
};

// GELU by tanh, and its derivative.
static float gelu(float x)
{
    return x / 2 * (1 + tanhf(0.7978845608f * (x + 0.044715f * x * x * x)));
}

static float gelu_grad(float x)
{
    float t = tanhf(0.7978845608f * (x + 0.044715f * x * x * x));

    return (1 + t) / 2 + x / 2 * (1 - t * t) * 0.7978845608f * (1 + 3 * 0.044715f * x * x);
}

static float end_product(const struct product *product, float sum, uint64_t row, uint64_t col)
{
    unsigned end = product->end;
    uint64_t at = row + col * (uint64_t)product->leading; // place in the matrix aside

    if (end & BIAS)
        sum += product->vector[row];
    if (end & GELU_GRAD)
        return sum * gelu_grad(product->aside[at]);
    if (end & GELU && end & ASIDE)
        product->aside[at] = sum;
    return end & GELU ? gelu(sum) : sum;
}

static void run_multiplication(const void *context)
{
    const struct multiplication *m = context;
    bool of_a = m->product.of_a == CUBLAS_OP_T, of_b = m->product.of_b == CUBLAS_OP_T;
    uint64_t inner = of_a ? m->a.rows : m->a.cols;

    memset(m->workspace, 0xee, m->size); // the library may write all of it
    for (int32_t n = 0; n < m->c.count; n++)
        for (uint64_t col = 0; col < m->c.cols; col++)
            for (uint64_t row = 0; row < m->c.rows; row++) {
                float *c =
                    m->at_c + n * m->c.stride + (int64_t)(row + col * (uint64_t)m->c.leading);
                float sum = 0;

                for (uint64_t k = 0; k < inner; k++)
                    sum += element(&m->a, m->at_a, n, of_a, row, k) *
                           element(&m->b, m->at_b, n, of_b, k, col);
                sum *= m->alpha;
                if (m->beta != 0)
                    sum += m->beta * *c;
                *c = end_product(&m->product, sum, row, col);
            }
}

// Checks an epilogue as the library does (cublasLt.h): its operands are there, and there is no
// batch unless one is described. Only epilogues that the port may use are known; pairs.c says why
// not the others.
static bool can_end(const struct multiplication *m)
{
    static const cublasLtEpilogue_t known[] = {
        CUBLASLT_EPILOGUE_DEFAULT,   CUBLASLT_EPILOGUE_BIAS,     CUBLASLT_EPILOGUE_GELU,
        CUBLASLT_EPILOGUE_GELU_BIAS, CUBLASLT_EPILOGUE_GELU_AUX, CUBLASLT_EPILOGUE_GELU_AUX_BIAS,
        CUBLASLT_EPILOGUE_DGELU};
    const struct product *p = &m->product;
    bool good = false;

    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
        good = good || p->end == known[i];
    if (p->end & BIAS)
        good = good && p->vector;
    if (p->end & ASIDE)
        good = good && p->aside && p->leading % 8 == 0 && p->leading >= (int64_t)m->c.rows &&
               (uintptr_t)p->aside % 16 == 0;
    return good && (m->c.count == 1 || !(p->end & ASIDE));
}

static void count_product(const struct matrix *a, cublasLtEpilogue_t end)
{
    cuda_host_counts.matrices += (uint64_t)a->count;
    cuda_host_counts.packed += a->type != CUDA_R_32F;
    cuda_host_counts.products++;
    cuda_host_counts.gelus += (end & GELU) != 0;
    cuda_host_counts.gelu_grads += (end & GELU_GRAD) != 0;
}

// Checks that shapes match, that addresses have the alignment that was promised, and that the
// workspace is large enough.
static bool fits(const struct multiplication *m, const cublasLtMatmulAlgo_t *algo)
{
    bool of_a = m->product.of_a == CUBLAS_OP_T, of_b = m->product.of_b == CUBLAS_OP_T;
    const void *places[4] = {m->at_a, m->at_b, m->at_c, m->at_c};

    for (int i = 0; i < 4; i++)
        if ((uintptr_t)places[i] % algo->data[i])
            return false;
    if (m->size < algo->data[4] || (uintptr_t)m->workspace % CUDA_HOST_WORKSPACE_UNIT)
        return false;
    return (of_a ? m->a.cols : m->a.rows) == m->c.rows &&
           (of_b ? m->b.rows : m->b.cols) == m->c.cols &&
           (of_a ? m->a.rows : m->a.cols) == (of_b ? m->b.cols : m->b.rows) &&
           m->a.count == m->c.count && m->b.count == m->c.count;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t product,
                              const void *alpha, const void *a, cublasLtMatrixLayout_t of_a,
                              const void *b, cublasLtMatrixLayout_t of_b, const void *beta,
                              const void *c, cublasLtMatrixLayout_t of_c, void *d,
                              cublasLtMatrixLayout_t of_d, const cublasLtMatmulAlgo_t *algo,
                              void *workspace, size_t size, cudaStream_t stream)
{
    struct multiplication m = {
        .product = *(const struct product *)(const void *)product,
        .a = *(const struct matrix *)(const void *)of_a,
        .b = *(const struct matrix *)(const void *)of_b,
        .c = *(const struct matrix *)(const void *)of_c,
        .at_a = a,
        .at_b = b,
        .at_c = d,
        .alpha = *(const float *)alpha,
        .beta = *(const float *)beta,
        .workspace = workspace,
        .size = size,
    };

    (void)handle;
    if (cuda_host_settings.turn_down)
        return CUBLAS_STATUS_NOT_SUPPORTED;
    if (c != d || of_c != of_d || !fits(&m, algo) || !can_end(&m) || (size && !workspace))
        return CUBLAS_STATUS_INVALID_VALUE;
    count_product(&m.a, m.product.end);
    cuda_host_warm((void *)stream);
    cuda_host_submit((void *)stream, run_multiplication, &m, sizeof(m));
    return CUBLAS_STATUS_SUCCESS;
}

void cuda_host_fill_blas(struct cuda_library *library)
{
    library->blas = (struct cuda_blas){CUDA_BLAS_FUNCTIONS(CUDA_HOST_ENTRY)};
}
