#include "ports/cuda/padding.h"

#include "ports/cuda/dnn_plan.h"

enum cuda_padding cuda_padding_of(const struct cn_window *w, struct cn_window *even)
{
    enum cuda_padding padding = CUDA_PADDING_EQUAL;

    *even = *w;
    for (int i = 0; i < 2; i++) {
        int64_t least = dnn_plan_least_end(w, i), end = least > 0 ? least : 0;

        if (dnn_plan_is_even(w, i))
            continue;
        if (least <= -(int64_t)w->stride[i]) // no padding gives so few outputs
            return CUDA_PADDING_OWN;
        padding = CUDA_PADDING_LARGER;
        even->pad[i] = w->pad[i] < end ? w->pad[i] : (uint32_t)end;
        even->in[i] += w->pad[i] < end ? (uint32_t)end - w->pad[i] : w->pad[i] - (uint32_t)end;
    }
    if ((double)even->in[0] * even->in[1] > 2 * (double)w->in[0] * w->in[1])
        return CUDA_PADDING_OWN;
    return padding;
}

size_t cuda_padding_words(const struct cn_window *even, uint32_t samples)
{
    return cuda_round_words((size_t)samples * even->channels_in * even->in[0] * even->in[1]);
}

// Describes the copy from x to its place in the larger one.
static void describe(const struct cn_window *w, const struct cn_window *even, struct cn_copy *copy)
{
    *copy = (struct cn_copy){.rank = 3,
                             .dims = {w->channels_in, w->in[0], w->in[1]},
                             .x = {(ptrdiff_t)w->in[0] * w->in[1], w->in[1], 1},
                             .y = {(ptrdiff_t)even->in[0] * even->in[1], even->in[1], 1},
                             .scale = 1};
    for (int i = 0; i < 2; i++)
        if (w->pad[i] > even->pad[i])
            copy->y_offset += (size_t)(w->pad[i] - even->pad[i]) * (i ? 1 : even->in[1]);
}

cn_err cuda_padding_enlarge(struct cuda *cuda, const struct cuda_args *args, int in,
                            const struct cn_window *even, float *larger)
{
    const struct cn_window w = args->call.window;
    struct cuda_args copy = *args;
    size_t words = even->channels_in * (size_t)even->in[0] * even->in[1];
    cn_err err;

    copy.call.write = CN_WRITE_SET;
    copy.in[0] = args->in[in];
    copy.out[0] = larger;
    copy.call.in[0].stride = w.channels_in * (size_t)w.in[0] * w.in[1];
    copy.call.out[0].stride = words;
    copy.call.fill = (struct cn_fill){.count = words};
    err = cuda_launch_threads(cuda, CUDA_KERNEL_fill, &copy, words * args->samples);
    if (err)
        return err;
    describe(&w, even, &copy.call.copy);
    return cuda_launch_threads(cuda, CUDA_KERNEL_copy, &copy,
                               copy.call.in[0].stride * args->samples);
}

cn_err cuda_padding_cut(struct cuda *cuda, const struct cuda_args *args,
                        const struct cn_window *even, float *larger)
{
    const struct cn_window w = args->call.window;
    struct cuda_args copy = *args;
    struct cn_copy there;

    describe(&w, even, &there);
    copy.in[0] = larger;
    copy.call.in[0].stride = even->channels_in * (size_t)even->in[0] * even->in[1];
    copy.call.out[0].stride = w.channels_in * (size_t)w.in[0] * w.in[1];
    copy.call.copy = there;
    copy.call.copy.x_offset = there.y_offset;
    copy.call.copy.y_offset = 0;
    for (int d = 0; d < 3; d++) {
        copy.call.copy.x[d] = there.y[d];
        copy.call.copy.y[d] = there.x[d];
    }
    return cuda_launch_threads(cuda, CUDA_KERNEL_copy, &copy,
                               copy.call.out[0].stride * args->samples);
}
