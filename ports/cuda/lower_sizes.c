#include "ports/cuda/lower_sizes.h"

uint64_t cuda_times(uint64_t a, uint64_t b)
{
    uint64_t product;

    return __builtin_mul_overflow(a, b, &product) ? UINT64_MAX : product;
}

uint64_t cuda_product_of(const size_t *dims, uint32_t rank)
{
    uint64_t product = 1;

    for (uint32_t d = 0; d < rank; d++)
        product = cuda_times(product, dims[d]);
    return product;
}

static uint64_t most(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

size_t cuda_gates_of(const struct cn_recurrent *op)
{
    return op->kind == CN_RECURRENT_LSTM ? 4 : op->kind == CN_RECURRENT_GRU ? 3 : 1;
}

static uint64_t matmul_elements(const struct cn_call *call)
{
    const struct cn_matmul *op = &call->matmul;
    uint64_t of_a = cuda_times(op->rows, op->inner);

    return most(of_a, op->inner_batched ? cuda_times(op->inner, op->cols)
                                        : cuda_times(op->rows, op->cols));
}

static uint64_t matmul_shared(const struct cn_call *call)
{
    const struct cn_matmul *op = &call->matmul;

    return op->inner_batched ? cuda_times(op->rows, op->cols) : cuda_times(op->inner, op->cols);
}

static uint64_t products_elements(const struct cn_call *call)
{
    const struct cn_products *op = &call->products;
    uint64_t one = most(cuda_times(op->rows, op->inner),
                        most(cuda_times(op->inner, op->cols), cuda_times(op->rows, op->cols)));

    return cuda_times(one, op->count);
}

static uint64_t window_elements(const struct cn_call *call)
{
    const struct cn_window *w = &call->window;
    uint64_t in = cuda_times(w->channels_in, cuda_times(w->in[0], w->in[1]));
    uint64_t out = cuda_times(w->channels_out, cuda_times(w->out[0], w->out[1]));

    return most(in, out);
}

// Returns the elements of a window with its padding.
static uint64_t pool_shared(const struct cn_call *call)
{
    const struct cn_window *w = &call->window;

    return cuda_times(cuda_times((uint64_t)w->kernel[0] + w->pad[0], w->dilation[0]),
                      cuda_times((uint64_t)w->kernel[1] + w->pad[1], w->dilation[1]));
}

static uint64_t conv_shared(const struct cn_call *call)
{
    const struct cn_window *w = &call->window;
    uint64_t weight = cuda_times(cuda_times(w->channels_out, w->channels_in / w->groups),
                                 cuda_times(w->kernel[0], w->kernel[1]));

    return most(pool_shared(call), weight);
}

static uint64_t bias_elements(const struct cn_call *call)
{
    return cuda_times(call->bias.rows, cuda_times(call->bias.channels, call->bias.inner));
}

static uint64_t map_elements(const struct cn_call *call)
{
    return call->map.count;
}

static uint64_t combine_elements(const struct cn_call *call)
{
    return cuda_product_of(call->combine.dims, call->combine.rank);
}

static uint64_t copy_elements(const struct cn_call *call)
{
    return cuda_product_of(call->copy.dims, call->copy.rank);
}

static uint64_t fill_elements(const struct cn_call *call)
{
    return call->fill.count;
}

static uint64_t extreme_elements(const struct cn_call *call)
{
    return cuda_product_of(call->extreme.dims, call->extreme.rank);
}

static uint64_t softmax_elements(const struct cn_call *call)
{
    return cuda_times(call->softmax.outer, cuda_times(call->softmax.cols, call->softmax.inner));
}

static uint64_t norm_elements(const struct cn_call *call)
{
    return cuda_times(call->norm.rows, call->norm.cols);
}

static uint64_t batch_norm_elements(const struct cn_call *call)
{
    return cuda_times(call->batch_norm.channels, call->batch_norm.inner);
}

static uint64_t dropout_elements(const struct cn_call *call)
{
    return call->dropout.count;
}

static uint64_t gather_elements(const struct cn_call *call)
{
    const struct cn_gather *op = &call->gather;

    return cuda_times(cuda_times(op->outer, op->count), op->inner);
}

// The table. Where each sample has its own, the call that made it has been checked.
static uint64_t gather_shared(const struct cn_call *call)
{
    const struct cn_gather *op = &call->gather;

    return cuda_times(cuda_times(op->outer, op->rows), op->inner);
}

static uint64_t resize_elements(const struct cn_call *call)
{
    const struct cn_resize *op = &call->resize;

    return cuda_times(op->channels,
                      most(cuda_times(op->in[0], op->in[1]), cuda_times(op->out[0], op->out[1])));
}

static uint64_t recurrent_elements(const struct cn_call *call)
{
    const struct cn_recurrent *op = &call->recurrent;

    return cuda_times(cuda_times(op->steps, cuda_gates_of(op) + 1), op->hidden);
}

static uint64_t recurrent_shared(const struct cn_call *call)
{
    const struct cn_recurrent *op = &call->recurrent;

    return cuda_times(cuda_times(cuda_gates_of(op), op->hidden), op->hidden);
}

static uint64_t attention_elements(const struct cn_call *call)
{
    const struct cn_attention *op = &call->attention;

    // Wider heads do not fit into the kernel's registers.
    if (op->width > CN_ATTENTION_WIDTH_MAX || op->v_width > CN_ATTENTION_WIDTH_MAX)
        return UINT64_MAX;
    return cuda_times(op->heads,
                      cuda_times(most(op->q_rows, op->k_rows), most(op->width, op->v_width)));
}

static uint64_t loss_elements(const struct cn_call *call)
{
    return cuda_times(call->loss.outputs, call->loss.rows);
}

typedef uint64_t (*size_of)(const struct cn_call *call);

static const size_of elements[CN_OP_BATCH_COUNT] = {
    [CN_OP_MATMUL] = matmul_elements,
    [CN_OP_PRODUCTS] = products_elements,
    [CN_OP_CONV] = window_elements,
    [CN_OP_CONV_GRAD_INPUT] = window_elements,
    [CN_OP_CONV_GRAD_WEIGHT] = window_elements,
    [CN_OP_BIAS_GRAD] = bias_elements,
    [CN_OP_MAX_POOL] = window_elements,
    [CN_OP_MAX_POOL_GRAD] = window_elements,
    [CN_OP_AVERAGE_POOL] = window_elements,
    [CN_OP_AVERAGE_POOL_GRAD] = window_elements,
    [CN_OP_MAP] = map_elements,
    [CN_OP_MAP_GRAD] = map_elements,
    [CN_OP_COMBINE] = combine_elements,
    [CN_OP_COMBINE_GRAD] = combine_elements,
    [CN_OP_WHERE] = combine_elements,
    [CN_OP_COPY] = copy_elements,
    [CN_OP_FILL] = fill_elements,
    [CN_OP_EXTREME] = extreme_elements,
    [CN_OP_EXTREME_GRAD] = extreme_elements,
    [CN_OP_SOFTMAX] = softmax_elements,
    [CN_OP_SOFTMAX_GRAD] = softmax_elements,
    [CN_OP_NORM] = norm_elements,
    [CN_OP_NORM_GRAD] = norm_elements,
    [CN_OP_NORM_GRAD_AFFINE] = norm_elements,
    [CN_OP_BATCH_NORM] = batch_norm_elements,
    [CN_OP_BATCH_NORM_GRAD] = batch_norm_elements,
    [CN_OP_DROPOUT] = dropout_elements,
    [CN_OP_GATHER] = gather_elements,
    [CN_OP_GATHER_GRAD] = gather_elements,
    [CN_OP_RESIZE] = resize_elements,
    [CN_OP_RESIZE_GRAD] = resize_elements,
    [CN_OP_RECURRENT] = recurrent_elements,
    [CN_OP_RECURRENT_GRAD] = recurrent_elements,
    [CN_OP_ATTENTION] = attention_elements,
    [CN_OP_ATTENTION_GRAD] = attention_elements,
    [CN_OP_CROSS_ENTROPY] = loss_elements,
    [CN_OP_BINARY_ENTROPY] = loss_elements,
    [CN_OP_MSE] = loss_elements,
    [CN_OP_HUBER] = loss_elements,
    [CN_OP_MEAN_LOSS] = loss_elements,
};

static const size_of shared[CN_OP_BATCH_COUNT] = {
    [CN_OP_MATMUL] = matmul_shared,        [CN_OP_CONV] = conv_shared,
    [CN_OP_CONV_GRAD_INPUT] = conv_shared, [CN_OP_CONV_GRAD_WEIGHT] = conv_shared,
    [CN_OP_MAX_POOL] = pool_shared,        [CN_OP_MAX_POOL_GRAD] = pool_shared,
    [CN_OP_AVERAGE_POOL] = pool_shared,    [CN_OP_AVERAGE_POOL_GRAD] = pool_shared,
    [CN_OP_GATHER] = gather_shared,        [CN_OP_GATHER_GRAD] = gather_shared,
    [CN_OP_RECURRENT] = recurrent_shared,  [CN_OP_RECURRENT_GRAD] = recurrent_shared,
};

uint64_t cuda_call_elements(const struct cn_call *call)
{
    return elements[call->op] ? elements[call->op](call) : 0;
}

uint64_t cuda_call_shared(const struct cn_call *call)
{
    return shared[call->op] ? shared[call->op](call) : 0;
}
