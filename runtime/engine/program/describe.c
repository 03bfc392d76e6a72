#include "runtime/engine/program/describe.h"

static const char *const names[CN_OP_COUNT] = {
    [CN_OP_MATMUL] = "matrix product",
    [CN_OP_PRODUCTS] = "matrix products",
    [CN_OP_CONV] = "convolution",
    [CN_OP_CONV_GRAD_INPUT] = "convolution, gradient of the input",
    [CN_OP_CONV_GRAD_WEIGHT] = "convolution, gradient of the weight",
    [CN_OP_BIAS_GRAD] = "gradient of a bias",
    [CN_OP_MAX_POOL] = "max pool",
    [CN_OP_MAX_POOL_GRAD] = "max pool, gradient",
    [CN_OP_AVERAGE_POOL] = "average pool",
    [CN_OP_AVERAGE_POOL_GRAD] = "average pool, gradient",
    [CN_OP_MAP] = "map",
    [CN_OP_MAP_GRAD] = "map, gradient",
    [CN_OP_COMBINE] = "combine",
    [CN_OP_COMBINE_GRAD] = "combine, gradient",
    [CN_OP_WHERE] = "where",
    [CN_OP_COPY] = "copy",
    [CN_OP_FILL] = "fill",
    [CN_OP_EXTREME] = "extreme",
    [CN_OP_EXTREME_GRAD] = "extreme, gradient",
    [CN_OP_SOFTMAX] = "softmax",
    [CN_OP_SOFTMAX_GRAD] = "softmax, gradient",
    [CN_OP_NORM] = "normalization",
    [CN_OP_NORM_GRAD] = "normalization, gradient",
    [CN_OP_NORM_GRAD_AFFINE] = "normalization, gradient of the weights",
    [CN_OP_BATCH_NORM] = "batch normalization",
    [CN_OP_BATCH_NORM_GRAD] = "batch normalization, gradient",
    [CN_OP_DROPOUT] = "dropout",
    [CN_OP_GATHER] = "gather",
    [CN_OP_GATHER_GRAD] = "gather, gradient",
    [CN_OP_RESIZE] = "resize",
    [CN_OP_RESIZE_GRAD] = "resize, gradient",
    [CN_OP_RECURRENT] = "recurrent layer",
    [CN_OP_RECURRENT_GRAD] = "recurrent layer, gradient",
    [CN_OP_ATTENTION] = "attention",
    [CN_OP_ATTENTION_GRAD] = "attention, gradient",
    [CN_OP_CROSS_ENTROPY] = "cross-entropy",
    [CN_OP_BINARY_ENTROPY] = "binary cross-entropy",
    [CN_OP_MSE] = "mean squared error",
    [CN_OP_HUBER] = "huber",
    [CN_OP_MEAN_LOSS] = "mean of the output",
    [CN_OP_SUM_LANES] = "sum of the lanes",
    [CN_OP_CHECK] = "check",
    [CN_OP_CLIP] = "clip",
    [CN_OP_SGD] = "sgd",
    [CN_OP_ADAM] = "adam",
    [CN_OP_STATISTIC] = "statistic",
};

const char *cn_describe_op(enum cn_op op)
{
    return op < CN_OP_COUNT && names[op] ? names[op] : "?";
}

static double window_flops(const struct cn_window *w)
{
    double taps = (double)w->kernel[0] * w->kernel[1] * w->channels_in / w->groups;

    return 2 * taps * w->out[0] * w->out[1] * w->channels_out;
}

static double recurrent_flops(const struct cn_recurrent *r)
{
    static const double gates[] = {[CN_RECURRENT_TANH] = 1,
                                   [CN_RECURRENT_RELU] = 1,
                                   [CN_RECURRENT_LSTM] = 4,
                                   [CN_RECURRENT_GRU] = 3};

    return 2 * gates[r->kind] * (double)r->hidden * (double)r->hidden * (double)r->steps;
}

// Counts the operations of both products of attention. Its gradient has five products.
static double attention_flops(const struct cn_attention *a)
{
    return 2 * (double)a->heads * (double)a->q_rows * (double)a->k_rows *
           (double)(a->width + a->v_width);
}

double cn_describe_flops(const struct cn_call *call)
{
    const struct cn_products *p = &call->products;

    switch (call->op) {
    case CN_OP_MATMUL:
        return 2 * (double)call->matmul.rows * (double)call->matmul.inner *
               (double)call->matmul.cols;
    case CN_OP_PRODUCTS:
        return 2 * (double)p->count * (double)p->rows * (double)p->inner * (double)p->cols;
    case CN_OP_CONV:
    case CN_OP_CONV_GRAD_INPUT:
    case CN_OP_CONV_GRAD_WEIGHT:
        return window_flops(&call->window);
    case CN_OP_RECURRENT:
    case CN_OP_RECURRENT_GRAD:
        return recurrent_flops(&call->recurrent);
    case CN_OP_ATTENTION:
        return attention_flops(&call->attention);
    case CN_OP_ATTENTION_GRAD:
        return 2.5 * attention_flops(&call->attention);
    default:
        return 0;
    }
}
