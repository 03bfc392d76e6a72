#include "ports/cuda/convolution.h"

#include <assert.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "ports/cuda/dnn_plan.h"
#include "ports/cuda/padding.h"
#include "ports/cuda/pointwise.h"
#include "runtime/base/log.h"

#define WORKSPACE_MAX (256u << 20) // bytes of workspace that a plan may need
#define TILED 16 // least channels, and least places of a plane, to pack a tensor in tiles

// A plan for one shape. The workspace begins with the tensors that are buffered; the library's own
// workspace follows.
struct cuda_conv {
    enum cn_op op;
    struct cn_window window;
    uint32_t samples;
    struct dnn_plan plan; // plan.plan is NULL: the port's kernels do it
    // Offset of a role's buffer in words; SIZE_MAX: the tensor is used where it lies.
    size_t buffer[DNN_ROLES];
    size_t library; // offset of the library's workspace in words
    size_t words;   // size of the whole workspace
    struct cuda_conv *next;
};

// The operand of a call that has each role: x, weight, y.
struct roles {
    int in[DNN_ROLES]; // number of the input; -1: the output
};

static struct roles roles_of(enum cn_op op)
{
    switch (op) {
    case CN_OP_CONV:
        return (struct roles){{0, 1, -1}};
    case CN_OP_CONV_GRAD_INPUT:
        return (struct roles){{-1, 1, 0}};
    default: // CN_OP_CONV_GRAD_WEIGHT
        return (struct roles){{1, -1, 0}};
    }
}

static size_t role_words(const struct cn_window *w, uint32_t samples, int role)
{
    switch (role) {
    case DNN_X:
        return (size_t)samples * w->channels_in * w->in[0] * w->in[1];
    case DNN_WEIGHT:
        return (size_t)w->channels_out * (w->channels_in / w->groups) * w->kernel[0] * w->kernel[1];
    default:
        return (size_t)samples * w->channels_out * w->out[0] * w->out[1];
    }
}

static bool same_window(const struct cn_window *a, const struct cn_window *b)
{
    bool same = a->channels_in == b->channels_in && a->channels_out == b->channels_out &&
                a->groups == b->groups;

    for (int i = 0; i < 2; i++)
        same = same && a->in[i] == b->in[i] && a->out[i] == b->out[i] &&
               a->kernel[i] == b->kernel[i] && a->stride[i] == b->stride[i] &&
               a->pad[i] == b->pad[i] && a->dilation[i] == b->dilation[i];
    return same;
}

// Lays out the workspace. With 16 bits all tensors are packed into buffers. Otherwise only the
// weight has a buffer, for parameters that are not aligned and gradients that are added to.
static void lay_out(struct cuda *cuda, struct cuda_conv *conv)
{
    bool packed = cuda_is_short(cuda);
    size_t words = 0;

    for (int role = 0; role < DNN_ROLES; role++) {
        size_t size = role_words(&conv->window, conv->samples, role);

        conv->buffer[role] = SIZE_MAX;
        if (!packed && role != DNN_WEIGHT)
            continue;
        conv->buffer[role] = words;
        words += cuda_round_words(packed ? (size + 1) / 2 : size);
    }
    conv->library = words;
    conv->words = words + (conv->plan.workspace + CUDA_WORKSPACE_UNIT + 3) / 4;
}

// Finds the plan of a call, or makes and keeps one.
static cn_err find(struct cuda *cuda, const struct cn_call *call, uint32_t samples,
                   struct cuda_conv **found)
{
    struct cuda_conv *conv;

    for (conv = cuda->convs; conv; conv = conv->next)
        if (conv->op == call->op && conv->samples == samples &&
            same_window(&conv->window, &call->window)) {
            *found = conv;
            return CN_OK;
        }
    conv = calloc(1, sizeof(*conv));
    if (!conv)
        return CN_ENOMEM;
    conv->op = call->op;
    conv->window = call->window;
    conv->samples = samples;
    if (cuda->dnn && dnn_plan_open(&cuda->library.dnn, cuda->dnn, call->op, &call->window, samples,
                                   cuda->precision, WORKSPACE_MAX, &conv->plan))
        cn_log(CN_LOG_DEBUG, "cuda", "cuDNN has no plan for a convolution of %u to %u channels",
               call->window.channels_in, call->window.channels_out);
    if (conv->plan.plan)
        lay_out(cuda, conv);
    conv->next = cuda->convs;
    cuda->convs = conv;
    *found = conv;
    return CN_OK;
}

cn_err cuda_conv_query(struct cuda *cuda, const struct cn_call *call, uint32_t samples,
                       size_t *workspace)
{
    struct cuda_conv *conv;
    struct cn_call even = *call;
    enum cuda_padding padding = cuda_padding_of(&call->window, &even.window);
    cn_err err;

    *workspace = 0;
    if (cuda->dnn && padding == CUDA_PADDING_OWN)
        return CN_OK;
    if (cuda->dnn && padding == CUDA_PADDING_LARGER) {
        err = cuda_conv_query(cuda, &even, samples, workspace);
        *workspace += cuda_padding_words(&even.window, samples);
        return err;
    }
    if (cuda_pointwise_fits(cuda, &call->window)) {
        *workspace = cuda_pointwise_words(cuda, call->op, &call->window, samples);
        return CN_OK;
    }
    err = find(cuda, call, samples, &conv);
    *workspace = err ? 0 : conv->words;
    return err;
}

// Adds the bias and applies ReLU after a forward convolution, if the call says so.
static cn_err bias_and_relu(struct cuda *cuda, const struct cuda_args *args)
{
    const struct cn_window *w = &args->call.window;
    struct cuda_args bias = *args;
    size_t plane = (size_t)w->out[0] * w->out[1];

    if (args->call.op != CN_OP_CONV || (!args->in[2] && !w->relu))
        return CN_OK;
    bias.wide = w->relu;
    bias.call.bias = (struct cn_bias){
        .rows = args->samples, .channels = w->channels_out, .inner = plane, .scale = 1};
    return cuda_launch_threads(cuda, CUDA_KERNEL_bias_relu, &bias,
                               args->samples * w->channels_out * plane);
}

// Queues the port's own kernels.
static cn_err run_own(struct cuda *cuda, struct cuda_args *args)
{
    const struct cn_window *w = &args->call.window;
    cn_err err;

    if (args->call.op == CN_OP_CONV_GRAD_WEIGHT)
        return cuda_launch_blocks(cuda, CUDA_KERNEL_conv_grad_weight, args,
                                  role_words(w, 1, DNN_WEIGHT));
    if (args->call.op == CN_OP_CONV_GRAD_INPUT)
        return cuda_launch_threads(cuda, CUDA_KERNEL_conv_grad_input, args,
                                   role_words(w, args->samples, DNN_X));
    err = cuda_launch_threads(cuda, CUDA_KERNEL_conv, args, role_words(w, args->samples, DNN_Y));
    return err ? err : bias_and_relu(cuda, args);
}

// Returns the tensor of a role as rows x channels x plane.
static struct cn_bias shape_of(const struct cn_window *w, uint32_t samples, int role)
{
    struct cn_bias shape = {.rows = samples,
                            .channels = role == DNN_X ? w->channels_in : w->channels_out,
                            .inner = role == DNN_X ? (size_t)w->in[0] * w->in[1]
                                                   : (size_t)w->out[0] * w->out[1]};

    if (role == DNN_WEIGHT)
        shape = (struct cn_bias){.rows = w->channels_out,
                                 .channels = w->channels_in / w->groups,
                                 .inner = (size_t)w->kernel[0] * w->kernel[1]};
    return shape;
}

// Returns the tiles of 32 channels and 32 places that a tensor has.
static uint64_t tiles_of(const struct cn_bias *shape)
{
    return (uint64_t)shape->rows * ((shape->channels + 31) / 32) * ((shape->inner + 31) / 32);
}

// Moves a tensor from its place into its buffer, or back.
static cn_err move(struct cuda *cuda, const struct cuda_args *args, int role, float *buffer,
                   bool in)
{
    struct roles roles = roles_of(args->call.op);
    struct cuda_args moved = *args;
    size_t words = role_words(&args->call.window, args->samples, role);
    enum cuda_kernel kernel = in ? CUDA_KERNEL_pack : CUDA_KERNEL_unpack;

    moved.in[0] = in ? args->in[roles.in[role]] : buffer;
    moved.out[0] = in ? buffer : args->out[0];
    moved.call.write = in ? CN_WRITE_SET : args->call.write;
    moved.wide = cuda->precision == CN_PRECISION_FLOAT16;
    if (!cuda_is_short(cuda)) {
        kernel = CUDA_KERNEL_add_words;
        moved.call.fill = (struct cn_fill){.count = words};
    } else {
        moved.call.bias = shape_of(&args->call.window, args->samples, role);
        if (moved.call.bias.channels >= TILED && moved.call.bias.inner >= TILED)
            return cuda_launch_blocks(cuda, in ? CUDA_KERNEL_pack_tiles : CUDA_KERNEL_unpack_tiles,
                                      &moved, tiles_of(&moved.call.bias));
    }
    return cuda_launch_threads(cuda, kernel, &moved, words);
}

static bool aligned(const void *pointer)
{
    return (uintptr_t)pointer % DNN_ALIGNMENT == 0;
}

// Returns whether the library may use a tensor where it lies: it must be aligned, and can only be
// set, not added to.
static bool fits(const struct cuda_args *args, const struct roles *roles, int role)
{
    bool out = roles->in[role] < 0;

    return aligned(out ? args->out[0] : args->in[roles->in[role]]) &&
           (!out || args->call.write == CN_WRITE_SET);
}

// Returns whether the plan can be used: each tensor fits where it lies or has a buffer.
static bool usable(const struct cuda_conv *conv, const struct cuda_args *args)
{
    struct roles roles = roles_of(args->call.op);

    if (!conv->plan.plan)
        return false;
    for (int role = 0; role < DNN_ROLES; role++)
        if (conv->buffer[role] == SIZE_MAX && !fits(args, &roles, role))
            return false;
    return true;
}

// Queues the plan, and the moves of the tensors that are buffered.
static cn_err run_plan(struct cuda *cuda, struct cuda_args *args, struct cuda_conv *conv)
{
    struct roles roles = roles_of(args->call.op);
    bool packed = cuda_is_short(cuda);
    bool buffered[DNN_ROLES];
    void *tensors[DNN_ROLES];
    cn_err err = CN_OK;

    for (int role = 0; role < DNN_ROLES && !err; role++) {
        bool out = roles.in[role] < 0;

        buffered[role] = conv->buffer[role] != SIZE_MAX && (packed || !fits(args, &roles, role));
        tensors[role] = buffered[role] ? (void *)(args->workspace + conv->buffer[role])
                                       : (void *)(out ? args->out[0] : args->in[roles.in[role]]);
        if (buffered[role] && !out)
            err = move(cuda, args, role, tensors[role], true);
    }
    if (!err)
        err = dnn_plan_run(&cuda->library.dnn, cuda->dnn, &conv->plan, tensors,
                           cuda_align_workspace(args->workspace + conv->library));
    for (int role = 0; role < DNN_ROLES && !err; role++)
        if (roles.in[role] < 0 && buffered[role])
            err = move(cuda, args, role, tensors[role], false);
    return err ? err : bias_and_relu(cuda, args);
}

// Queues a call whose padding differs at the two ends as the call `even`.
static cn_err run_even(struct cuda *cuda, const struct cuda_args *args,
                       const struct cn_window *even)
{
    struct roles roles = roles_of(args->call.op);
    struct cuda_args larger = *args;
    bool gradient = roles.in[DNN_X] < 0;
    cn_err err = CN_OK;

    larger.call.window = *even;
    larger.workspace += cuda_padding_words(even, args->samples);
    if (gradient) {
        larger.call.write = CN_WRITE_SET;
        larger.out[0] = args->workspace;
    } else {
        larger.in[roles.in[DNN_X]] = args->workspace;
        err = cuda_padding_enlarge(cuda, args, roles.in[DNN_X], even, args->workspace);
    }
    if (!err)
        err = cuda_conv_run(cuda, &larger);
    return err || !gradient ? err : cuda_padding_cut(cuda, args, even, args->workspace);
}

cn_err cuda_conv_run(struct cuda *cuda, struct cuda_args *args)
{
    struct cn_window even;
    enum cuda_padding padding = cuda_padding_of(&args->call.window, &even);
    struct cuda_conv *conv;
    cn_err err;

    // A call that all samples share counts as one sample; no workspace was reserved for its plan.
    if (args->samples != cuda->samples || (cuda->dnn && padding == CUDA_PADDING_OWN))
        return run_own(cuda, args);
    if (cuda->dnn && padding == CUDA_PADDING_LARGER)
        return run_even(cuda, args, &even);
    if (cuda_pointwise_fits(cuda, &args->call.window)) {
        err = cuda_pointwise_run(cuda, args);
        if (!err)
            err = bias_and_relu(cuda, args);
        return err == CN_ENOTSUP ? run_own(cuda, args) : err;
    }
    err = find(cuda, &args->call, args->samples, &conv);
    if (err)
        return err;
    if (!usable(conv, args))
        return run_own(cuda, args);
    err = run_plan(cuda, args, conv);
    return err == CN_ENOTSUP ? run_own(cuda, args) : err;
}

void cuda_conv_release(struct cuda *cuda)
{
    while (cuda->convs) {
        struct cuda_conv *next = cuda->convs->next;

        dnn_plan_close(&cuda->library.dnn, &cuda->convs->plan);
        free(cuda->convs);
        cuda->convs = next;
    }
}
