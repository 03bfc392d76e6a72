// Turns the engine's batch calls into kernels and into calls of the libraries.
#include <assert.h>
#include <stdint.h>

#include "ports/cuda/convolution.h"
#include "ports/cuda/device.h"
#include "ports/cuda/lower_sizes.h"
#include "ports/cuda/products.h"
#include "runtime/base/log.h"

#define WIDE 512          // least elements of a row for a block to work on it, not a warp
#define PARTS 32          // most partial sums of a long sum
#define PART_ROWS 64      // least rows of a part of a sum over rows
#define PART_NUMBERS 64   // least indices of a part of GATHER_GRAD
#define GATHER_WARPS 4096 // most warps of GATHER_GRAD, if its indices are divided
#define CHANNEL_PART 4096 // elements of a channel for each block that works on it
#define SHORT_SUM 64      // most terms of a sum for one thread
#define MANY_SUMS 4096    // with this many sums or more, one thread computes each
#define WORDS_MAX INT32_MAX

static uint64_t samples_of(const struct cuda_args *a)
{
    return a->call.out[0].stride ? a->samples : 1;
}

static uint64_t most(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

static uint64_t least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

// Returns the number of groups of 32 columns, of which a block adds up one.
static uint64_t groups_of(size_t columns)
{
    return (columns + 31) / 32;
}

// How an op is done.
struct lowering {
    cn_err (*lower)(struct cuda *cuda, struct cuda_args *args);
    size_t (*workspace)(const struct cn_call *call, size_t samples); // returns words; NULL: none
    enum cuda_kernel kernel;                                         // the kernel of lower_elements
};

// Queues an op's kernel with one thread for each element of the result.

static cn_err lower_elements(struct cuda *cuda, struct cuda_args *args);

static cn_err lower_combine_grad(struct cuda *cuda, struct cuda_args *args)
{
    const struct cn_combine *op = &args->call.combine;
    uint64_t all = cuda_product_of(op->dims, op->rank), kept = 1, summed;

    for (uint32_t d = 0; d < op->rank; d++)
        if (op->side ? op->b[d] : op->a[d])
            kept *= op->dims[d];
    summed = kept ? all / kept : 0;
    if (!args->call.out[0].stride && args->call.in[0].stride)
        summed *= args->samples;
    kept *= samples_of(args);
    args->wide = summed > SHORT_SUM && kept < MANY_SUMS;
    return args->wide ? cuda_launch_blocks(cuda, CUDA_KERNEL_combine_grad, args, kept)
                      : cuda_launch_threads(cuda, CUDA_KERNEL_combine_grad, args, kept);
}

static cn_err lower_dropout(struct cuda *cuda, struct cuda_args *args)
{
    uint64_t draws = (args->call.dropout.count + 3) / 4;

    return cuda_launch_threads(cuda, CUDA_KERNEL_dropout, args, draws * samples_of(args));
}

static cn_err lower_extreme(struct cuda *cuda, struct cuda_args *args)
{
    const struct cn_extreme *op = &args->call.extreme;
    uint64_t kept = 1;

    for (uint32_t d = 0; d < op->rank; d++)
        kept *= op->y[d] ? op->dims[d] : 1;
    return cuda_launch_threads(cuda, CUDA_KERNEL_extreme, args, kept * samples_of(args));
}

cn_err cuda_sum_parts(struct cuda *cuda, struct cuda_args *args, size_t count)
{
    args->call.fill = (struct cn_fill){.count = count};
    return cuda_launch_blocks(cuda, CUDA_KERNEL_sum_parts, args,
                              (args->out[1] ? 2 : 1) * groups_of(count));
}

// Adds up partial sums, `count` for each part, for one or two outputs.
static cn_err sum_parts(struct cuda *cuda, const struct cuda_args *args, int outputs, size_t count)
{
    struct cuda_args sum = *args;

    if (args->parts == 1)
        return CN_OK;
    sum.out[1] = outputs > 1 ? args->out[1] : NULL;
    return cuda_sum_parts(cuda, &sum, count);
}

// Chooses the number of parts of a sum over rows, so that there are eight blocks for each
// multiprocessor, if the parts do not become too small. One part needs no workspace.
static void choose_row_parts(const struct cuda *cuda, struct cuda_args *args, uint64_t rows,
                             size_t columns)
{
    uint64_t parts = 8 * cuda->processors / most(groups_of(columns), 1);

    parts = least(least(parts, rows * args->samples / PART_ROWS), PARTS);
    args->parts = parts ? (uint32_t)parts : 1;
}

static cn_err lower_bias_grad(struct cuda *cuda, struct cuda_args *args)
{
    const struct cn_bias *op = &args->call.bias;
    cn_err err;

    if (op->inner > 1)
        return cuda_launch_blocks(cuda, CUDA_KERNEL_bias_grad, args, op->channels);
    choose_row_parts(cuda, args, op->rows, op->channels);
    err = cuda_launch_blocks(cuda, CUDA_KERNEL_bias_grad_rows, args,
                             args->parts * groups_of(op->channels));
    return err ? err : sum_parts(cuda, args, 1, op->channels);
}

static size_t bias_workspace(const struct cn_call *call, size_t samples)
{
    (void)samples;
    return call->bias.inner > 1 ? 0 : PARTS * call->bias.channels;
}

// Queues a kernel that works on rows: a warp takes a row, or a block if the row is long.
static cn_err launch_rows(struct cuda *cuda, enum cuda_kernel kernel, struct cuda_args *args,
                          uint64_t rows, size_t cols)
{
    args->wide = cols >= WIDE;
    return args->wide ? cuda_launch_blocks(cuda, kernel, args, rows)
                      : cuda_launch_threads(cuda, kernel, args, rows * 32);
}

static cn_err lower_softmax(struct cuda *cuda, struct cuda_args *args)
{
    const struct cn_softmax *op = &args->call.softmax;
    enum cuda_kernel kernel =
        args->call.op == CN_OP_SOFTMAX ? CUDA_KERNEL_softmax : CUDA_KERNEL_softmax_grad;

    return launch_rows(cuda, kernel, args, op->outer * op->inner * samples_of(args), op->cols);
}

static cn_err lower_norm(struct cuda *cuda, struct cuda_args *args)
{
    const struct cn_norm *op = &args->call.norm;
    enum cuda_kernel kernel =
        args->call.op == CN_OP_NORM ? CUDA_KERNEL_norm : CUDA_KERNEL_norm_grad;

    return launch_rows(cuda, kernel, args, op->rows * samples_of(args), op->cols);
}

static bool affine_by_rows(const struct cn_norm *op)
{
    return op->groups == 1 && op->inner == 1;
}

static cn_err lower_norm_affine(struct cuda *cuda, struct cuda_args *args)
{
    const struct cn_norm *op = &args->call.norm;
    cn_err err;

    if (!affine_by_rows(op))
        return cuda_launch_blocks(cuda, CUDA_KERNEL_norm_grad_affine, args,
                                  op->groups * (op->cols / op->inner));
    choose_row_parts(cuda, args, op->rows, op->cols);
    err = cuda_launch_blocks(cuda, CUDA_KERNEL_norm_grad_affine_rows, args,
                             args->parts * groups_of(op->cols));
    return err ? err : sum_parts(cuda, args, 2, op->cols);
}

static size_t norm_affine_workspace(const struct cn_call *call, size_t samples)
{
    (void)samples;
    return affine_by_rows(&call->norm) ? 2 * PARTS * call->norm.cols : 0;
}

// Returns the number of parts into which the elements of a channel are divided.
static uint32_t channel_parts(const struct cn_batch_norm *op, size_t samples)
{
    uint64_t parts = cuda_times(op->inner, samples) / CHANNEL_PART;

    return parts < 1 ? 1 : parts > PARTS ? PARTS : (uint32_t)parts;
}

static cn_err lower_batch_norm(struct cuda *cuda, struct cuda_args *args)
{
    const struct cn_batch_norm *op = &args->call.batch_norm;
    bool gradient = args->call.op == CN_OP_BATCH_NORM_GRAD;
    uint64_t teams;
    cn_err err = CN_OK;

    args->parts = channel_parts(op, args->samples);
    args->wide = op->inner * args->samples >= WIDE;
    teams = op->channels * args->parts;
    if (!args->wide)
        teams = (teams * 32 + cuda->threads - 1) / cuda->threads; // a warp each
    if (args->parts > 1 && (gradient || !op->frozen))
        err = cuda_launch_blocks(
            cuda, gradient ? CUDA_KERNEL_batch_norm_grad_parts : CUDA_KERNEL_batch_norm_parts, args,
            teams);
    return err ? err
               : cuda_launch_blocks(cuda,
                                    gradient ? CUDA_KERNEL_batch_norm_grad : CUDA_KERNEL_batch_norm,
                                    args, teams);
}

static size_t batch_norm_workspace(const struct cn_call *call, size_t samples)
{
    uint32_t parts = channel_parts(&call->batch_norm, samples);

    return parts > 1 ? 2 * call->batch_norm.channels * parts : 0;
}

static cn_err lower_pool(struct cuda *cuda, struct cuda_args *args)
{
    const struct cn_window *w = &args->call.window;
    uint64_t planes = (uint64_t)args->samples * w->channels_in;
    uint64_t in = planes * w->in[0] * w->in[1], out = planes * w->out[0] * w->out[1];

    switch (args->call.op) {
    case CN_OP_MAX_POOL:
        return cuda_launch_threads(cuda, CUDA_KERNEL_max_pool, args, out);
    case CN_OP_MAX_POOL_GRAD:
        return cuda_launch_threads(cuda, CUDA_KERNEL_max_pool_grad, args, in);
    case CN_OP_AVERAGE_POOL:
        return cuda_launch_threads(cuda, CUDA_KERNEL_average_pool, args, out);
    default:
        return cuda_launch_threads(cuda, CUDA_KERNEL_average_pool_grad, args, in);
    }
}

static cn_err lower_resize(struct cuda *cuda, struct cuda_args *args)
{
    const struct cn_resize *op = &args->call.resize;
    uint64_t planes = (uint64_t)args->samples * op->channels;

    if (args->call.op == CN_OP_RESIZE)
        return cuda_launch_threads(cuda, CUDA_KERNEL_resize, args,
                                   planes * op->out[0] * op->out[1]);
    return cuda_launch_threads(cuda, CUDA_KERNEL_resize_grad, args, planes * op->in[0] * op->in[1]);
}

// Returns the number of indices of a batch if they all name rows of one table that has more rows
// than that; else 0.
static uint64_t few_numbers(const struct cuda_args *args)
{
    const struct cn_gather *op = &args->call.gather;
    uint64_t numbers = op->count * (args->call.in[0].stride ? args->samples : 1);

    return op->outer == 1 && !args->call.out[0].stride && numbers < op->rows ? numbers : 0;
}

// Returns the number of parts of `numbers` indices, which warps look through beside each other.
static uint32_t gather_parts(const struct cn_gather *op, uint64_t numbers)
{
    uint64_t warps = op->outer * op->rows * CUDA_HIT_STRIPS(op->inner), parts;

    if (op->elements || !warps)
        return 1;
    parts = least(least(numbers / PART_NUMBERS, GATHER_WARPS / warps), PARTS);
    return parts < 4 ? 1 : (uint32_t)parts; // the launch of sum_parts costs as much as some parts
}

// As much as a gradient needs that all samples share: the query does not tell which one it is.
static size_t gather_workspace(const struct cn_call *call, size_t samples)
{
    const struct cn_gather *op = &call->gather;
    uint32_t parts = call->op == CN_OP_GATHER ? 1 : gather_parts(op, op->count * samples);

    return parts == 1 ? 0 : parts * op->outer * op->rows * op->inner;
}

static cn_err lower_gather_grad(struct cuda *cuda, struct cuda_args *args)
{
    const struct cn_gather *op = &args->call.gather;
    uint64_t rows = op->outer * op->rows, strips = CUDA_HIT_STRIPS(op->inner);
    cn_err err;

    if (few_numbers(args)) {
        err = cuda_launch_threads(cuda, CUDA_KERNEL_gather_grad_clear, args, rows * op->inner);
        return err ? err
                   : cuda_launch_threads(cuda, CUDA_KERNEL_gather_grad_hits, args,
                                         few_numbers(args) * strips * 32);
    }
    args->parts = 1;
    if (!args->call.out[0].stride)
        args->parts = gather_parts(op, op->count * (args->call.in[0].stride ? args->samples : 1));
    err = cuda_launch_threads(cuda, CUDA_KERNEL_gather_grad, args,
                              rows * strips * 32 * args->parts * samples_of(args));
    return err ? err : sum_parts(cuda, args, 1, rows * op->inner);
}

static cn_err lower_gather(struct cuda *cuda, struct cuda_args *args)
{
    const struct cn_gather *op = &args->call.gather;
    uint64_t outputs = op->outer * op->count * op->inner * samples_of(args);

    if (args->call.op == CN_OP_GATHER)
        return cuda_launch_threads(
            cuda, op->elements ? CUDA_KERNEL_gather_elements : CUDA_KERNEL_gather, args, outputs);
    if (op->elements)
        return cuda_launch_threads(cuda, CUDA_KERNEL_gather_grad_elements, args,
                                   op->outer * op->rows * op->inner * samples_of(args));
    return lower_gather_grad(cuda, args);
}

// Returns whether a block holds the weight in registers, a row for each thread.
static bool is_held(const struct cuda *cuda, const struct cn_recurrent *op)
{
    return op->hidden <= CUDA_HELD && cuda_gates_of(op) * op->hidden <= cuda->threads;
}

static cn_err lower_recurrent(struct cuda *cuda, struct cuda_args *args)
{
    const struct cn_recurrent *op = &args->call.recurrent;
    cn_err err;

    if (args->call.op == CN_OP_RECURRENT_GRAD) {
        // The kernel computes a gradient of the first state for each sample, never their sum.
        for (int i = 2; i < CN_CALL_OUTPUTS; i++)
            if (args->out[i] && !args->call.out[i].stride && args->samples > 1)
                return CN_ENOTSUP;
        return cuda_launch_blocks(
            cuda, is_held(cuda, op) ? CUDA_KERNEL_recurrent_grad_held : CUDA_KERNEL_recurrent_grad,
            args, args->samples);
    }
    err = cuda_launch_threads(cuda, CUDA_KERNEL_transpose_weight, args,
                              cuda_gates_of(op) * op->hidden * op->hidden);
    return err ? err
               : cuda_launch_blocks(
                     cuda, is_held(cuda, op) ? CUDA_KERNEL_recurrent_held : CUDA_KERNEL_recurrent,
                     args, args->samples);
}

static size_t recurrent_workspace(const struct cn_call *call, size_t samples)
{
    const struct cn_recurrent *op = &call->recurrent;

    if (call->op == CN_OP_RECURRENT_GRAD)
        return 3 * samples * op->hidden;
    return cuda_gates_of(op) * op->hidden * op->hidden + samples * op->hidden;
}

// The variants of a kernel of attention: for rows of at most CUDA_ATTENTION_WIDTH words, in each
// precision, and for wider ones.
struct attention_kernels {
    enum cuda_kernel narrow[CN_PRECISION_TF32 + 1], wide;
};

#define ATTENTION_KERNELS(name)                                                                    \
    {                                                                                              \
        {[CN_PRECISION_FLOAT32] = CUDA_KERNEL_##name,                                              \
         [CN_PRECISION_BFLOAT16] = CUDA_KERNEL_##name##_bfloat16,                                  \
         [CN_PRECISION_FLOAT16] = CUDA_KERNEL_##name##_float16,                                    \
         [CN_PRECISION_TF32] = CUDA_KERNEL_##name},                                                \
            CUDA_KERNEL_##name##_wide,                                                             \
    }

static const struct attention_kernels attention = ATTENTION_KERNELS(attention);
static const struct attention_kernels attention_grad_query =
    ATTENTION_KERNELS(attention_grad_query);
static const struct attention_kernels attention_grad_key = ATTENTION_KERNELS(attention_grad_key);

// Queues a kernel of attention for `rows` rows of each head.
static cn_err launch_attention(struct cuda *cuda, struct cuda_args *args, size_t rows,
                               const struct attention_kernels *kernels)
{
    const struct cn_attention *op = &args->call.attention;
    bool narrow = most(op->width, op->v_width) <= CUDA_ATTENTION_WIDTH;
    size_t side = narrow && cuda_is_short(cuda) ? CUDA_SHORT_ROWS : CUDA_ATTENTION_ROWS;
    uint64_t blocks = (rows + side - 1) / side;

    return cuda_launch_blocks(cuda, narrow ? kernels->narrow[cuda->precision] : kernels->wide, args,
                              blocks * op->heads * args->samples);
}

static cn_err lower_attention(struct cuda *cuda, struct cuda_args *args)
{
    const struct cn_attention *op = &args->call.attention;
    cn_err err;

    if (args->call.op == CN_OP_ATTENTION)
        return launch_attention(cuda, args, op->q_rows, &attention);
    err = launch_attention(cuda, args, op->q_rows, &attention_grad_query);
    return err ? err : launch_attention(cuda, args, op->k_rows, &attention_grad_key);
}

static size_t attention_workspace(const struct cn_call *call, size_t samples)
{
    return samples * call->attention.heads * call->attention.q_rows;
}

static cn_err lower_loss(struct cuda *cuda, struct cuda_args *args)
{
    const struct cn_loss_call *op = &args->call.loss;
    bool entropy = args->call.op == CN_OP_CROSS_ENTROPY;
    uint64_t rows = args->samples * (entropy ? op->rows : CUDA_LOSS_SHARES(op->outputs));
    uint64_t blocks;
    cn_err err;

    args->wide = op->outputs >= WIDE;
    blocks = args->wide ? rows : (rows * 32 + cuda->threads - 1) / cuda->threads;
    blocks = blocks > CUDA_LOSS_BLOCKS ? CUDA_LOSS_BLOCKS : blocks;
    blocks = blocks > cuda->grid ? cuda->grid : blocks;
    args->parts = (uint32_t)blocks;
    err = cuda_launch_blocks(cuda, entropy ? CUDA_KERNEL_cross_entropy : CUDA_KERNEL_mean_loss,
                             args, blocks);
    return err ? err : cuda_launch_blocks(cuda, CUDA_KERNEL_loss_finish, args, 1);
}

static size_t loss_workspace(const struct cn_call *call, size_t samples)
{
    (void)call;
    (void)samples;
    return CUDA_LOSS_BLOCKS * sizeof(struct cuda_loss_part) / sizeof(float);
}

static const struct lowering lowerings[CN_OP_BATCH_COUNT] = {
    [CN_OP_MATMUL] = {cuda_products_matmul},
    [CN_OP_PRODUCTS] = {cuda_products_batch},
    [CN_OP_CONV] = {cuda_conv_run},
    [CN_OP_CONV_GRAD_INPUT] = {cuda_conv_run},
    [CN_OP_CONV_GRAD_WEIGHT] = {cuda_conv_run},
    [CN_OP_BIAS_GRAD] = {lower_bias_grad, bias_workspace},
    [CN_OP_MAX_POOL] = {lower_pool},
    [CN_OP_MAX_POOL_GRAD] = {lower_pool},
    [CN_OP_AVERAGE_POOL] = {lower_pool},
    [CN_OP_AVERAGE_POOL_GRAD] = {lower_pool},
    [CN_OP_MAP] = {lower_elements, NULL, CUDA_KERNEL_map},
    [CN_OP_MAP_GRAD] = {lower_elements, NULL, CUDA_KERNEL_map_grad},
    [CN_OP_COMBINE] = {lower_elements, NULL, CUDA_KERNEL_combine},
    [CN_OP_COMBINE_GRAD] = {lower_combine_grad},
    [CN_OP_WHERE] = {lower_elements, NULL, CUDA_KERNEL_combine},
    [CN_OP_COPY] = {lower_elements, NULL, CUDA_KERNEL_copy},
    [CN_OP_FILL] = {lower_elements, NULL, CUDA_KERNEL_fill},
    [CN_OP_EXTREME] = {lower_extreme},
    [CN_OP_EXTREME_GRAD] = {lower_elements, NULL, CUDA_KERNEL_extreme_grad},
    [CN_OP_SOFTMAX] = {lower_softmax},
    [CN_OP_SOFTMAX_GRAD] = {lower_softmax},
    [CN_OP_NORM] = {lower_norm},
    [CN_OP_NORM_GRAD] = {lower_norm},
    [CN_OP_NORM_GRAD_AFFINE] = {lower_norm_affine, norm_affine_workspace},
    [CN_OP_BATCH_NORM] = {lower_batch_norm, batch_norm_workspace},
    [CN_OP_BATCH_NORM_GRAD] = {lower_batch_norm, batch_norm_workspace},
    [CN_OP_DROPOUT] = {lower_dropout},
    [CN_OP_GATHER] = {lower_gather},
    [CN_OP_GATHER_GRAD] = {lower_gather, gather_workspace},
    [CN_OP_RESIZE] = {lower_resize},
    [CN_OP_RESIZE_GRAD] = {lower_resize},
    [CN_OP_RECURRENT] = {lower_recurrent, recurrent_workspace},
    [CN_OP_RECURRENT_GRAD] = {lower_recurrent, recurrent_workspace},
    [CN_OP_ATTENTION] = {lower_attention},
    [CN_OP_ATTENTION_GRAD] = {lower_attention, attention_workspace},
    [CN_OP_CROSS_ENTROPY] = {lower_loss, loss_workspace},
    [CN_OP_BINARY_ENTROPY] = {lower_loss, loss_workspace},
    [CN_OP_MSE] = {lower_loss, loss_workspace},
    [CN_OP_HUBER] = {lower_loss, loss_workspace},
    [CN_OP_MEAN_LOSS] = {lower_loss, loss_workspace},
};

static cn_err lower_elements(struct cuda *cuda, struct cuda_args *args)
{
    const struct lowering *how = &lowerings[args->call.op];

    return cuda_launch_threads(cuda, how->kernel, args,
                               cuda_call_elements(&args->call) * samples_of(args));
}

cn_err cuda_lower_query(struct cuda *cuda, const struct cn_call *call, size_t samples,
                        size_t *workspace)
{
    const struct lowering *how = &lowerings[call->op];

    *workspace = 0;
    if (call->op >= CN_OP_BATCH_COUNT)
        return CN_OK;
    if (!how->lower || cuda_times(cuda_call_elements(call), samples) > WORDS_MAX ||
        cuda_call_shared(call) > WORDS_MAX) {
        cn_log(CN_LOG_ERROR, "cuda",
               "a layer's input, output or weight has more than %d elements with %zu samples",
               WORDS_MAX, samples);
        return CN_ENOTSUP;
    }
    if (how->lower == cuda_conv_run)
        return cuda_conv_query(cuda, call, (uint32_t)samples, workspace);
    if (call->op == CN_OP_MATMUL || call->op == CN_OP_PRODUCTS)
        *workspace = cuda_products_workspace(cuda, call, samples);
    else if (how->workspace)
        *workspace = how->workspace(call, samples);
    return CN_OK;
}

static float *address(const struct cuda *cuda, const struct cn_operand *operand)
{
    if (operand->arena == CN_ARENA_NONE)
        return NULL;
    return (float *)(uintptr_t)(cuda->arenas[operand->arena].device) + operand->offset;
}

void cuda_args_of(const struct cuda *cuda, const struct cn_call *call, struct cuda_args *args)
{
    *args = (struct cuda_args){
        .call = *call,
        .hyper = (struct cn_hyper *)(uintptr_t)cuda->hyper,
        .state = (struct cuda_state *)(uintptr_t)cuda->state,
        .samples = cuda->samples,
    };
    if (call->write == CN_WRITE_STEP)
        args->call.write = cuda->first ? CN_WRITE_SET : CN_WRITE_ADD;
    if (call->op >= CN_OP_BATCH_COUNT)
        return;
    args->once = true;
    for (int i = 0; i < CN_CALL_INPUTS; i++) {
        args->in[i] = address(cuda, &call->in[i]);
        args->once = args->once && !call->in[i].stride;
    }
    for (int i = 0; i < CN_CALL_OUTPUTS; i++) {
        args->out[i] = address(cuda, &call->out[i]);
        args->once = args->once && !call->out[i].stride;
    }
    if (args->once)
        args->samples = 1;
    args->workspace = address(cuda, &call->workspace);
}

cn_err cuda_lower(struct cuda *cuda, const struct cn_call *call, bool clipped)
{
    struct cuda_args args;

    cuda_args_of(cuda, call, &args);
    args.clipped = clipped;
    if (call->op >= CN_OP_BATCH_COUNT)
        return cuda_lower_flat(cuda, &args);
    return lowerings[call->op].lower ? lowerings[call->op].lower(cuda, &args) : CN_ENOTSUP;
}
