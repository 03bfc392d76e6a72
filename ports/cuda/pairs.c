// Does two neighbouring calls as one product of cuBLASLt, which can change a result before it is
// written (an epilogue):
//
//     MATMUL, MAP GELU_TANH       GELU, GELU_BIAS; with AUX if GELU's argument is kept
//     MATMUL, MAP_GRAD GELU_TANH  DGELU
//
// The library's GELU is the one by tanh. Three of its epilogues are not used:
//
// - RELU may give 0 for NaN, which would hide that a run diverged. A kernel of the port does it.
// - DRELU wants a mask of bits that the forward call wrote. The engine keeps y instead.
// - BGRADA and BGRADB add up a bias' gradient in the library's order, and only where BIAS_GRAD and
//   MATMUL are neighbours in one program. A bucket may end between them, and buckets must change no
//   bit.
#include <stdint.h>

#include "ports/cuda/products.h"

#define LEADING_UNIT 8 // elements; rows of the epilogue's matrix must be a multiple of it

static bool same_place(const struct cn_operand *a, const struct cn_operand *b)
{
    return a->arena == b->arena && a->offset == b->offset && a->stride == b->stride;
}

// Returns whether writing to one operand may change the other. Without a stride an operand's extent
// is not known.
static bool may_meet(const struct cuda *cuda, const struct cn_operand *a,
                     const struct cn_operand *b)
{
    if (a->arena != b->arena || a->arena == CN_ARENA_NONE)
        return false;
    if (!a->stride || !b->stride)
        return true;
    return a->offset < b->offset + b->stride * cuda->samples &&
           b->offset < a->offset + a->stride * cuda->samples;
}

// Returns whether a call is a product of the samples' rows that only sets its result.
static bool is_layer(const struct cn_call *call)
{
    const struct cn_matmul *op = &call->matmul;

    return call->op == CN_OP_MATMUL && call->write == CN_WRITE_SET && !op->inner_batched &&
           !op->relu && call->out[0].stride == op->rows * op->cols;
}

// Returns whether a call is GELU or its gradient, applied to the product.
static bool is_gelu(const struct cn_call *call, enum cn_op op, const struct cn_call *product)
{
    return call->op == op && call->map.kind == CN_MAP_GELU_TANH &&
           same_place(&call->in[0], &product->out[0]) &&
           call->out[0].stride == product->out[0].stride;
}

// Queues a product and the GELU of its result.
static cn_err pair_gelu(struct cuda *cuda, const struct cn_call *product, const struct cn_call *map)
{
    bool in_place = same_place(&map->in[0], &map->out[0]);
    bool bias = product->in[2].arena != CN_ARENA_NONE;
    struct cuda_args args, of_map;
    struct cuda_product p;

    if ((bias && product->matmul.bias_scale != 1) ||
        may_meet(cuda, &map->out[0], &product->in[0]) ||
        may_meet(cuda, &map->out[0], &product->in[1]) ||
        (!in_place && product->matmul.cols % LEADING_UNIT))
        return CN_ENOTSUP;
    cuda_args_of(cuda, product, &args);
    cuda_args_of(cuda, map, &of_map);
    p = cuda_products_describe(&args);
    p.aside = in_place ? NULL : p.c;
    p.c = of_map.out[0];
    p.end = bias       ? in_place ? CUBLASLT_EPILOGUE_GELU_BIAS : CUBLASLT_EPILOGUE_GELU_AUX_BIAS
            : in_place ? CUBLASLT_EPILOGUE_GELU
                       : CUBLASLT_EPILOGUE_GELU_AUX;
    return cuda_products_multiply(cuda, &p, args.workspace);
}

// Queues a product and GELU's gradient of its result. Only in place: then no other call reads the
// product, and its memory is no input's.
static cn_err pair_gelu_grad(struct cuda *cuda, const struct cn_call *product,
                             const struct cn_call *grad)
{
    struct cuda_args args, of_grad;
    struct cuda_product p;

    if (!same_place(&grad->in[0], &grad->out[0]) || product->in[2].arena != CN_ARENA_NONE ||
        product->matmul.cols % LEADING_UNIT || grad->in[1].stride != grad->out[0].stride)
        return CN_ENOTSUP;
    cuda_args_of(cuda, product, &args);
    cuda_args_of(cuda, grad, &of_grad);
    p = cuda_products_describe(&args);
    p.aside = of_grad.in[1];
    p.end = CUBLASLT_EPILOGUE_DGELU;
    return cuda_products_multiply(cuda, &p, args.workspace);
}

cn_err cuda_products_pair(struct cuda *cuda, const struct cn_call *first,
                          const struct cn_call *second)
{
    if (!cuda->blas)
        return CN_ENOTSUP;
    if (is_layer(first) && is_gelu(second, CN_OP_MAP, first))
        return pair_gelu(cuda, first, second);
    if (is_layer(first) && is_gelu(second, CN_OP_MAP_GRAD, first))
        return pair_gelu_grad(cuda, first, second);
    return CN_ENOTSUP;
}
