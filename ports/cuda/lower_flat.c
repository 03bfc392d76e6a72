// Turns the engine's flat calls, which go over whole arenas, into kernels. The optimizer's are in
// updates.h.
#include <stdint.h>

#include "ports/cuda/device.h"

static float *arena_of(const struct cuda *cuda, enum cn_arena arena)
{
    return (float *)(uintptr_t)cuda->arenas[arena].device;
}

static cn_err lower_check(struct cuda *cuda, struct cuda_args *args)
{
    size_t words = cuda->arenas[CN_ARENA_GRADIENTS].words;

    args->in[0] = arena_of(cuda, CN_ARENA_GRADIENTS);
    args->call.fill = (struct cn_fill){.count = words};
    return cuda_launch_threads(cuda, CUDA_KERNEL_check, args, words);
}

// Divides a range of gradients by the loss's scale. The scale of the next step depends on all
// gradients, so it is chosen after the last range.
static cn_err lower_unscale(struct cuda *cuda, struct cuda_args *args)
{
    size_t words = cuda->arenas[CN_ARENA_GRADIENTS].words;
    size_t first = args->call.range.gradients;
    size_t count = args->call.range.count ? args->call.range.count : words;
    cn_err err;

    args->in[0] = arena_of(cuda, CN_ARENA_GRADIENTS) + first;
    args->call.fill = (struct cn_fill){.count = count};
    err = cuda_launch_threads(cuda, CUDA_KERNEL_unscale, args, count);
    if (err || first + count < words)
        return err;
    return cuda_launch_blocks(cuda, CUDA_KERNEL_unscale_finish, args, 1);
}

// Adds up squares, 256 neighbours at a time, back and forth between two buffers.
static cn_err lower_clip(struct cuda *cuda, struct cuda_args *args)
{
    size_t count = (args->call.range.count + 255) / 256;
    int at = 0;
    cn_err err;

    if (!count)
        return CN_OK;
    args->in[0] = arena_of(cuda, CN_ARENA_GRADIENTS);
    args->workspace = (float *)(uintptr_t)cuda->squares[0];
    err = cuda_launch_threads(cuda, CUDA_KERNEL_squares, args, count);
    while (!err && count > 1) {
        args->in[0] = (float *)(uintptr_t)cuda->squares[at];
        args->workspace = (float *)(uintptr_t)cuda->squares[!at];
        args->call.fill = (struct cn_fill){.count = count};
        count = (count + 255) / 256;
        at = !at;
        err = cuda_launch_threads(cuda, CUDA_KERNEL_squares_again, args, count);
    }
    args->in[0] = (float *)(uintptr_t)cuda->squares[at];
    return err ? err : cuda_launch_blocks(cuda, CUDA_KERNEL_clip, args, 1);
}

cn_err cuda_lower_flat(struct cuda *cuda, struct cuda_args *args)
{
    switch (args->call.op) {
    case CN_OP_SUM_LANES: // nothing to add: there is one lane
        return cuda->precision == CN_PRECISION_FLOAT16 ? lower_unscale(cuda, args) : CN_OK;
    case CN_OP_CHECK:
        return lower_check(cuda, args);
    case CN_OP_CLIP:
        return lower_clip(cuda, args);
    default:
        return CN_ENOTSUP;
    }
}
