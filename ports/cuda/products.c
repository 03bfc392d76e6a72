#include "ports/cuda/products.h"

#include <stdint.h>
#include <string.h>

#include "ports/cuda/packed.h"
#include "runtime/base/log.h"

#define TILE_ROWS 128 // rows and columns of a large tile of the library
#define TILE_COLS 256
#define PART_LEAST 128 // terms of a part of a sum

// Describes a product to cuBLASLt, which is column-major. So its A is our b, its B is our a, and
// rows and columns change places.
struct description {
    cublasLtMatmulDesc_t product;
    cublasLtMatrixLayout_t a, b, c;
    cublasLtMatmulPreference_t wish;
};

static void forget(struct cuda *cuda, struct description *d)
{
    const struct cuda_blas *blas = &cuda->library.blas;

    if (d->wish)
        blas->wish_destroy(d->wish);
    if (d->c)
        blas->matrix_destroy(d->c);
    if (d->b)
        blas->matrix_destroy(d->b);
    if (d->a)
        blas->matrix_destroy(d->a);
    if (d->product)
        blas->product_destroy(d->product);
}

static cublasComputeType_t compute_type(const struct cuda *cuda, const struct cuda_product *p)
{
    if (p->factors != CUDA_R_32F)
        return CUBLAS_COMPUTE_32F;
    switch (cuda->precision) {
    case CN_PRECISION_BFLOAT16:
        return CUBLAS_COMPUTE_32F_FAST_16BF;
    case CN_PRECISION_FLOAT16:
        return CUBLAS_COMPUTE_32F_FAST_16F;
    case CN_PRECISION_TF32:
        return CUBLAS_COMPUTE_32F_FAST_TF32;
    default: // float32 without TF32
        return CUBLAS_COMPUTE_32F;
    }
}

static cublasStatus_t describe_product(struct cuda *cuda, const struct cuda_product *p,
                                       struct description *d)
{
    const struct cuda_blas *blas = &cuda->library.blas;
    cublasOperation_t of_b = p->transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N;
    cublasOperation_t of_a = p->transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N;
    int64_t leading = (int64_t)p->leading_c;
    cublasStatus_t status = blas->product_create(&d->product, compute_type(cuda, p), CUDA_R_32F);

    if (status) {
        d->product = NULL;
        return status;
    }
    status = blas->product_set(d->product, CUBLASLT_MATMUL_DESC_TRANSA, &of_b, sizeof(of_b));
    if (!status)
        status = blas->product_set(d->product, CUBLASLT_MATMUL_DESC_TRANSB, &of_a, sizeof(of_a));
    if (!status)
        status =
            blas->product_set(d->product, CUBLASLT_MATMUL_DESC_EPILOGUE, &p->end, sizeof(p->end));
    if (!status && p->vector)
        status = blas->product_set(d->product, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &p->vector,
                                   sizeof(p->vector));
    if (!status && p->aside)
        status = blas->product_set(d->product, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, &p->aside,
                                   sizeof(p->aside));
    if (!status && p->aside)
        status = blas->product_set(d->product, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, &leading,
                                   sizeof(leading));
    return status;
}

static cublasStatus_t describe_matrix(struct cuda *cuda, cudaDataType type, uint64_t rows,
                                      uint64_t cols, uint64_t leading, uint64_t count,
                                      int64_t stride, cublasLtMatrixLayout_t *layout)
{
    const struct cuda_blas *blas = &cuda->library.blas;
    int32_t batches = (int32_t)count;
    cublasStatus_t status = blas->matrix_create(layout, type, rows, cols, (int64_t)leading);

    if (status) {
        *layout = NULL;
        return status;
    }
    status =
        blas->matrix_set(*layout, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &batches, sizeof(batches));
    if (!status)
        status = blas->matrix_set(*layout, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &stride,
                                  sizeof(stride));
    return status;
}

// Returns the largest power of 2, at most 256, that divides an address, its rows and, for batches,
// the stride, of elements of that size.
static uint32_t alignment_of(const void *pointer, int64_t stride, uint64_t leading, size_t size)
{
    uint64_t bits = (uintptr_t)pointer | (uint64_t)stride * size | leading * size | 256;

    return (uint32_t)(bits & -bits);
}

// Returns the bytes that the library may use after the workspace is aligned.
static size_t room_of(const struct cuda *cuda, const struct cuda_product *p)
{
    return (cuda->product_words - p->taken) * sizeof(float) - CUDA_WORKSPACE_UNIT;
}

static cublasStatus_t describe_wish(struct cuda *cuda, const struct cuda_product *p,
                                    struct description *d)
{
    const struct cuda_blas *blas = &cuda->library.blas;
    uint64_t workspace = room_of(cuda, p);
    // Sums through the workspace, in a fixed order.
    uint32_t reductions = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
    size_t size = p->factors == CUDA_R_32F ? sizeof(float) : sizeof(uint16_t);
    uint32_t of_a = alignment_of(p->a, p->stride_a, p->leading_a, size);
    uint32_t of_b = alignment_of(p->b, p->stride_b, p->leading_b, size);
    uint32_t of_c = alignment_of(p->c, p->stride_c, p->leading_c, sizeof(float));
    uint32_t of_vector = p->vector ? alignment_of(p->vector, 0, 0, sizeof(float)) : of_c;
    uint32_t of_d = of_vector < of_c ? of_vector : of_c;
    const struct {
        cublasLtMatmulPreferenceAttributes_t name;
        const void *value;
        size_t size;
    } wishes[] = {
        {CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace, sizeof(workspace)},
        {CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &reductions, sizeof(reductions)},
        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, &of_b, sizeof(of_b)},
        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, &of_a, sizeof(of_a)},
        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, &of_c, sizeof(of_c)},
        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, &of_d, sizeof(of_d)},
    };
    cublasStatus_t status = blas->wish_create(&d->wish);

    if (status) {
        d->wish = NULL;
        return status;
    }
    for (size_t i = 0; i < sizeof(wishes) / sizeof(wishes[0]) && !status; i++)
        status = blas->wish_set(d->wish, wishes[i].name, wishes[i].value, wishes[i].size);
    return status;
}

static cublasStatus_t describe(struct cuda *cuda, const struct cuda_product *p,
                               struct description *d)
{
    uint64_t b_rows = p->transpose_b ? p->inner : p->cols;
    uint64_t b_cols = p->transpose_b ? p->cols : p->inner;
    uint64_t a_rows = p->transpose_a ? p->rows : p->inner;
    uint64_t a_cols = p->transpose_a ? p->inner : p->rows;
    cublasStatus_t status = describe_product(cuda, p, d);

    if (!status)
        status = describe_matrix(cuda, p->factors, b_rows, b_cols, p->leading_b, p->count,
                                 p->stride_b, &d->a);
    if (!status)
        status = describe_matrix(cuda, p->factors, a_rows, a_cols, p->leading_a, p->count,
                                 p->stride_a, &d->b);
    if (!status)
        status = describe_matrix(cuda, CUDA_R_32F, p->cols, p->rows, p->leading_c, p->count,
                                 p->stride_c, &d->c);
    if (!status)
        status = describe_wish(cuda, p, d);
    return status;
}

// Maps the status of a product. If the library refuses it at this point, nothing was queued, and
// the product is done in another way.
static cn_err outcome_of(cublasStatus_t status)
{
    if (status == CUBLAS_STATUS_SUCCESS)
        return CN_OK;
    if (status == CUBLAS_STATUS_NOT_SUPPORTED || status == CUBLAS_STATUS_INVALID_VALUE ||
        status == CUBLAS_STATUS_ARCH_MISMATCH) {
        cn_log(CN_LOG_WARN, "cuda", "cublasLtMatmul does not take what it proposed (status %d)",
               (int)status);
        return CN_ENOTSUP;
    }
    cn_log(CN_LOG_ERROR, "cuda", "cublasLtMatmul: status %d", (int)status);
    return CN_EIO;
}

cn_err cuda_products_multiply_by(struct cuda *cuda, const struct cuda_product *p, int proposal,
                                 float *workspace)
{
    const struct cuda_blas *blas = &cuda->library.blas;
    struct description d = {0};
    cublasLtMatmulHeuristicResult_t proposals[CUDA_PRODUCT_PROPOSALS], *found;
    int count = 0;
    cublasStatus_t status;

    if (!cuda->blas)
        return CN_ENOTSUP;
    if (proposal < 0 || proposal >= CUDA_PRODUCT_PROPOSALS)
        return CN_ENOTFOUND;
    found = &proposals[proposal];
    memset(proposals, 0, (size_t)(proposal + 1) * sizeof(*proposals));
    status = describe(cuda, p, &d);
    if (!status)
        status = blas->choose(cuda->blas, d.product, d.a, d.b, d.c, d.c, d.wish, proposal + 1,
                              proposals, &count);
    if (status || count <= proposal || found->state || found->workspaceSize > room_of(cuda, p)) {
        forget(cuda, &d);
        return !status && count && count <= proposal ? CN_ENOTFOUND : CN_ENOTSUP;
    }
    status =
        blas->multiply(cuda->blas, d.product, &p->alpha, p->b, d.a, p->a, d.b, &p->beta, p->c, d.c,
                       p->c, d.c, &found->algo, cuda_align_workspace(workspace + p->taken),
                       found->workspaceSize, cuda->stream);
    forget(cuda, &d);
    return outcome_of(status);
}

cn_err cuda_products_multiply(struct cuda *cuda, const struct cuda_product *p, float *workspace)
{
    return cuda_products_multiply_by(cuda, p, 0, workspace);
}

// Queues a call on the port's own kernel: one matrix, or op->count matrices for each sample.
static cn_err own_product(struct cuda *cuda, const struct cuda_args *args,
                          const struct cn_products *op)
{
    struct cuda_args own = *args;
    uint64_t tiles = (op->rows + 31) / 32 * ((op->cols + 31) / 32);

    own.call.products = *op;
    return cuda_launch_blocks(cuda, CUDA_KERNEL_products, &own, tiles * op->count * args->samples);
}

// Adds the bias and applies ReLU after a product, if the call says so.
static cn_err add_bias(struct cuda *cuda, const struct cuda_args *args, uint64_t rows)
{
    const struct cn_matmul *op = &args->call.matmul;
    struct cuda_args bias = *args;

    if (!args->in[2] && !op->relu)
        return CN_OK;
    bias.call.bias =
        (struct cn_bias){.rows = rows, .channels = op->cols, .inner = 1, .scale = op->bias_scale};
    bias.wide = op->relu;
    return cuda_launch_threads(cuda, CUDA_KERNEL_bias_relu, &bias, rows * op->cols);
}

// Returns whether the library can add the bias. It cannot multiply the bias by a factor.
static bool has_plain_bias(const struct cuda_args *args)
{
    return !args->in[2] || args->call.matmul.bias_scale == 1;
}

size_t cuda_products_workspace(const struct cuda *cuda, const struct cn_call *call, size_t samples)
{
    struct cuda_args args = {.call = *call, .samples = (uint32_t)samples};
    struct cuda_product p;

    if (!cuda->blas)
        return 0;
    if (call->op != CN_OP_MATMUL)
        return cuda->product_words;
    p = cuda_products_describe(&args);
    return cuda->product_words + cuda_packed_words(cuda, &p);
}

struct cuda_product cuda_products_describe(const struct cuda_args *args)
{
    const struct cn_matmul *op = &args->call.matmul;
    bool bias = args->in[2] && has_plain_bias(args);
    struct cuda_product p = {
        .rows = op->inner_batched ? op->rows : op->rows * args->samples,
        .inner = op->inner_batched ? op->inner * args->samples : op->inner,
        .cols = op->cols,
        .transpose_a = op->transpose_a,
        .transpose_b = op->transpose_b,
        .alpha = op->alpha,
        .beta = args->call.write == CN_WRITE_SET ? 0 : 1,
        .a = args->in[0],
        .b = args->in[1],
        .vector = bias ? args->in[2] : NULL,
        .end = bias ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_DEFAULT,
        .c = args->out[0],
        .count = 1,
        .apart = op->inner_batched && !op->transpose_a,
    };

    p.leading_a = p.transpose_a ? p.rows : p.inner;
    p.leading_b = p.transpose_b ? p.inner : p.cols;
    p.leading_c = p.cols;
    return p;
}

// Returns into how many equal parts the sum of a product is divided. With float32 the library does
// not divide it. A weight's gradient, whose sum is long and whose tiles are few, would then occupy
// a few multiprocessors only.
static uint64_t parts_of(const struct cuda *cuda, const struct cuda_product *p)
{
    uint64_t tiles =
        (p->rows + TILE_ROWS - 1) / TILE_ROWS * ((p->cols + TILE_COLS - 1) / TILE_COLS);
    uint64_t parts = p->inner / PART_LEAST, room;

    if (cuda->precision != CN_PRECISION_FLOAT32 || p->end != CUBLASLT_EPILOGUE_DEFAULT || !tiles)
        return 1;
    room = cuda->product_words / 2 / (p->rows * p->cols);
    parts = parts < cuda->processors / tiles ? parts : cuda->processors / tiles;
    parts = parts < room ? parts : room;
    while (parts > 1 && p->inner % parts)
        parts--;
    return parts;
}

// Queues a product as several, of parts of the sum, whose results are then added up. CN_ENOTSUP
// when that does not pay or the library cannot do it.
static cn_err multiply_parts(struct cuda *cuda, const struct cuda_args *args,
                             const struct cuda_product *whole)
{
    uint64_t parts = parts_of(cuda, whole), words = whole->rows * whole->cols;
    struct cuda_product p = *whole;
    struct cuda_args sum = *args;
    cn_err err;

    if (parts < 2)
        return CN_ENOTSUP;
    p.inner = whole->inner / parts;
    p.count = parts;
    p.stride_a = (int64_t)(p.inner * (p.transpose_a ? p.leading_a : 1));
    p.stride_b = (int64_t)(p.inner * (p.transpose_b ? 1 : p.leading_b));
    p.stride_c = (int64_t)words;
    p.beta = 0;
    p.c = args->workspace;
    p.taken = cuda_round_words(parts * words);
    err = cuda_products_multiply(cuda, &p, args->workspace);
    if (err)
        return err;
    sum.parts = (uint32_t)parts;
    return cuda_sum_parts(cuda, &sum, words);
}

cn_err cuda_products_matmul(struct cuda *cuda, struct cuda_args *args)
{
    struct cuda_product p = cuda_products_describe(args);
    struct cuda_args rest = *args; // the work that is left after the library's
    struct cn_products own = {.count = 1,
                              .rows = p.rows,
                              .inner = p.inner,
                              .cols = p.cols,
                              .transpose_a = p.transpose_a,
                              .transpose_b = p.transpose_b,
                              .alpha = p.alpha,
                              .leading_a = p.leading_a,
                              .leading_b = p.leading_b,
                              .leading_c = p.leading_c};
    struct cuda_args whole = *args;
    cn_err err = multiply_parts(cuda, args, &p);

    if (err == CN_ENOTSUP)
        err = cuda_packed_multiply(cuda, &p, args->workspace);
    if (err == CN_ENOTSUP)
        err = cuda_products_multiply(cuda, &p, args->workspace);
    if (p.vector)
        rest.in[2] = NULL;
    if (err != CN_ENOTSUP)
        return err ? err : add_bias(cuda, &rest, p.rows);
    // One matrix, which does not depend on samples.
    for (int i = 0; i < 2; i++)
        whole.call.in[i].stride = 0;
    whole.call.out[0].stride = 0;
    whole.once = true;
    whole.samples = 1;
    err = own_product(cuda, &whole, &own);
    return err ? err : add_bias(cuda, args, p.rows);
}

// Describes a PRODUCTS call as batches: one of all matrices if they lie evenly, else one of the
// samples for each matrix. Returns false if a result is the sum of several products.
static bool batches_of(const struct cuda_args *args, struct cuda_product *p, size_t *calls,
                       size_t next[3])
{
    const struct cn_products *op = &args->call.products;
    const size_t of_sample[3] = {args->call.in[0].stride, args->call.in[1].stride,
                                 args->call.out[0].stride};
    const size_t of_matrix[3] = {op->stride_a, op->stride_b, op->stride_c};
    bool even = true;

    if ((args->samples > 1 && !of_sample[2]) || (op->count > 1 && !op->stride_c))
        return false;
    for (int i = 0; i < 3; i++)
        even = even &&
               (of_sample[i] == op->count * of_matrix[i] || args->samples == 1 || op->count == 1);
    *calls = even ? 1 : op->count;
    p->count = even ? op->count * args->samples : args->samples;
    for (int i = 0; i < 3; i++)
        next[i] = of_matrix[i];
    p->stride_a = (int64_t)(even && op->count > 1 ? of_matrix[0] : of_sample[0]);
    p->stride_b = (int64_t)(even && op->count > 1 ? of_matrix[1] : of_sample[1]);
    p->stride_c = (int64_t)(even && op->count > 1 ? of_matrix[2] : of_sample[2]);
    return p->count <= INT32_MAX;
}

// Queues matrix number i of each sample on the port's own kernel.
static cn_err own_matrix(struct cuda *cuda, const struct cuda_args *args, size_t i,
                         const size_t next[3])
{
    struct cn_products one = args->call.products;
    struct cuda_args moved = *args;

    one.count = 1;
    moved.in[0] += i * next[0];
    moved.in[1] += i * next[1];
    moved.out[0] += i * next[2];
    return own_product(cuda, &moved, &one);
}

cn_err cuda_products_batch(struct cuda *cuda, struct cuda_args *args)
{
    const struct cn_products *op = &args->call.products;
    struct cuda_product p = {
        .end = CUBLASLT_EPILOGUE_DEFAULT,
        .rows = op->rows,
        .inner = op->inner,
        .cols = op->cols,
        .transpose_a = op->transpose_a,
        .transpose_b = op->transpose_b,
        .alpha = op->alpha,
        .beta = args->call.write == CN_WRITE_ADD ? 1 : 0,
        .a = args->in[0],
        .b = args->in[1],
        .c = args->out[0],
        .leading_a = op->leading_a,
        .leading_b = op->leading_b,
        .leading_c = op->leading_c,
    };
    size_t calls, next[3];
    cn_err err = CN_OK;

    if (!batches_of(args, &p, &calls, next))
        return own_product(cuda, args, op);
    for (size_t i = 0; i < calls && !err; i++) {
        err = cuda_products_multiply(cuda, &p, args->workspace);
        if (err == CN_ENOTSUP)
            err = calls == 1 ? own_product(cuda, args, op) : own_matrix(cuda, args, i, next);
        p.a += next[0];
        p.b += next[1];
        p.c += next[2];
    }
    return err;
}
