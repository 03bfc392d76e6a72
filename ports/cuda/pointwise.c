#include "ports/cuda/pointwise.h"

#include "ports/cuda/products.h"

#define PLANE_LEAST 64       // least places of a plane
#define PLANE_LEAST_SHORT 16 // the same with 16 bits, which saves packing
#define PLANE_UNIT 4         // places are a multiple of it, so that rows are aligned to 16 bytes
#define PARTIAL (4u << 20)   // most words of partial sums of a weight's gradient

static size_t plane_in(const struct cn_window *w)
{
    return (size_t)w->in[0] * w->in[1];
}

static size_t plane_out(const struct cn_window *w)
{
    return (size_t)w->out[0] * w->out[1];
}

static bool is_strided(const struct cn_window *w)
{
    return w->stride[0] != 1 || w->stride[1] != 1;
}

bool cuda_pointwise_fits(const struct cuda *cuda, const struct cn_window *w)
{
    size_t least = cuda_is_short(cuda) ? PLANE_LEAST_SHORT : PLANE_LEAST;
    bool plain = w->groups == 1;

    for (int i = 0; i < 2; i++)
        plain = plain && w->kernel[i] == 1 && !w->pad[i] &&
                w->out[i] == (w->in[i] - 1) / w->stride[i] + 1;
    return cuda->blas && plain && plane_out(w) >= least && plane_out(w) % PLANE_UNIT == 0;
}

// Returns the words of x, or of its gradient, at the places that are used; 0: they are used where
// they lie.
static size_t compact_words(const struct cn_window *w, uint32_t samples)
{
    return is_strided(w) ? cuda_round_words(samples * w->channels_in * plane_out(w)) : 0;
}

// Returns how many samples' products are added up apart from each other, to get a weight's
// gradient.
static uint32_t parts_of(const struct cn_window *w, uint32_t samples)
{
    uint64_t parts = PARTIAL / ((uint64_t)w->channels_out * w->channels_in);

    return parts < 1 ? 1 : parts < samples ? (uint32_t)parts : samples;
}

static size_t partial_words(const struct cn_window *w, uint32_t samples)
{
    return cuda_round_words((size_t)parts_of(w, samples) * w->channels_out * w->channels_in);
}

size_t cuda_pointwise_words(const struct cuda *cuda, enum cn_op op, const struct cn_window *w,
                            uint32_t samples)
{
    size_t words = compact_words(w, samples) + cuda->product_words;

    return op == CN_OP_CONV_GRAD_WEIGHT ? words + partial_words(w, samples) : words;
}

// Copies the used places of x beside each other, or what lies beside each other to these places.
static cn_err copy_places(struct cuda *cuda, const struct cuda_args *args, float *from, float *to,
                          bool spread)
{
    const struct cn_window w = args->call.window;
    const ptrdiff_t far[] = {(ptrdiff_t)plane_in(&w), (ptrdiff_t)w.stride[0] * w.in[1],
                             (ptrdiff_t)w.stride[1]};
    const ptrdiff_t near[] = {(ptrdiff_t)plane_out(&w), (ptrdiff_t)w.out[1], 1};
    size_t of_far = w.channels_in * plane_in(&w), of_near = w.channels_in * plane_out(&w);
    struct cuda_args copy = *args;

    copy.in[0] = from;
    copy.out[0] = to;
    copy.call.in[0].stride = spread ? of_near : of_far;
    copy.call.out[0].stride = spread ? of_far : of_near;
    copy.call.write = spread ? args->call.write : CN_WRITE_SET;
    copy.call.copy =
        (struct cn_copy){.rank = 3, .dims = {w.channels_in, w.out[0], w.out[1]}, .scale = 1};
    for (int d = 0; d < 3; d++) {
        copy.call.copy.x[d] = spread ? near[d] : far[d];
        copy.call.copy.y[d] = spread ? far[d] : near[d];
    }
    return cuda_launch_threads(cuda, CUDA_KERNEL_copy, &copy, of_near * args->samples);
}

// Sets the places of x's gradient that no output uses to 0.
static cn_err clear_places(struct cuda *cuda, const struct cuda_args *args)
{
    size_t words = args->call.window.channels_in * plane_in(&args->call.window);
    struct cuda_args fill = *args;

    if (args->call.write != CN_WRITE_SET)
        return CN_OK;
    fill.call.out[0].stride = words;
    fill.call.fill = (struct cn_fill){.count = words};
    return cuda_launch_threads(cuda, CUDA_KERNEL_fill, &fill, words * args->samples);
}

static cn_err run_forward(struct cuda *cuda, const struct cuda_args *args)
{
    const struct cn_window *w = &args->call.window;
    size_t compact = compact_words(w, args->samples);
    struct cuda_product p = {
        .end = CUBLASLT_EPILOGUE_DEFAULT,
        .rows = w->channels_out,
        .inner = w->channels_in,
        .cols = plane_out(w),
        .alpha = 1,
        .beta = args->call.write == CN_WRITE_SET ? 0 : 1,
        .a = args->in[1],
        .b = compact ? args->workspace : args->in[0],
        .c = args->out[0],
        .leading_a = w->channels_in,
        .leading_b = plane_out(w),
        .leading_c = plane_out(w),
        .count = args->samples,
        .stride_b = (int64_t)(w->channels_in * plane_out(w)),
        .stride_c = (int64_t)(w->channels_out * plane_out(w)),
    };
    cn_err err = compact ? copy_places(cuda, args, args->in[0], args->workspace, false) : CN_OK;

    return err ? err : cuda_products_multiply(cuda, &p, args->workspace + compact);
}

static cn_err run_grad_input(struct cuda *cuda, const struct cuda_args *args)
{
    const struct cn_window *w = &args->call.window;
    size_t compact = compact_words(w, args->samples);
    struct cuda_product p = {
        .end = CUBLASLT_EPILOGUE_DEFAULT,
        .rows = w->channels_in,
        .inner = w->channels_out,
        .cols = plane_out(w),
        .transpose_a = true,
        .alpha = 1,
        .beta = compact || args->call.write == CN_WRITE_SET ? 0 : 1,
        .a = args->in[1],
        .b = args->in[0],
        .c = compact ? args->workspace : args->out[0],
        .leading_a = w->channels_in,
        .leading_b = plane_out(w),
        .leading_c = plane_out(w),
        .count = args->samples,
        .stride_b = (int64_t)(w->channels_out * plane_out(w)),
        .stride_c = (int64_t)(w->channels_in * plane_out(w)),
    };
    cn_err err = cuda_products_multiply(cuda, &p, args->workspace + compact);

    if (err || !compact)
        return err;
    err = clear_places(cuda, args);
    return err ? err : copy_places(cuda, args, args->workspace, args->out[0], true);
}

// The gradient of a weight is the sum of the samples' products. Those of parts_of samples are
// computed at once, each added to those of the samples before; at last the parts are added up.
static cn_err run_grad_weight(struct cuda *cuda, const struct cuda_args *args)
{
    const struct cn_window *w = &args->call.window;
    size_t compact = compact_words(w, args->samples), partial = partial_words(w, args->samples);
    size_t words = (size_t)w->channels_out * w->channels_in;
    struct cuda_args sum = *args;
    struct cuda_product p = {
        .end = CUBLASLT_EPILOGUE_DEFAULT,
        .rows = w->channels_out,
        .inner = plane_out(w),
        .cols = w->channels_in,
        .transpose_b = true,
        .alpha = 1,
        .a = args->in[0],
        .b = compact ? args->workspace : args->in[1],
        .c = args->workspace + compact,
        .leading_a = plane_out(w),
        .leading_b = plane_out(w),
        .leading_c = w->channels_in,
        .count = parts_of(w, args->samples),
        .stride_a = (int64_t)(w->channels_out * plane_out(w)),
        .stride_b = (int64_t)(w->channels_in * plane_out(w)),
        .stride_c = (int64_t)words,
    };
    cn_err err = compact ? copy_places(cuda, args, args->in[1], args->workspace, false) : CN_OK;

    sum.parts = (uint32_t)p.count;
    for (uint32_t n = 0; n < args->samples && !err; n += sum.parts) {
        p.beta = n ? 1 : 0;
        p.count = args->samples - n < sum.parts ? args->samples - n : sum.parts;
        err = cuda_products_multiply(cuda, &p, args->workspace + compact + partial);
        p.a += (size_t)p.stride_a * p.count;
        p.b += (size_t)p.stride_b * p.count;
    }
    if (err)
        return err;
    sum.workspace = args->workspace + compact;
    return cuda_sum_parts(cuda, &sum, words);
}

cn_err cuda_pointwise_run(struct cuda *cuda, const struct cuda_args *args)
{
    switch (args->call.op) {
    case CN_OP_CONV:
        return run_forward(cuda, args);
    case CN_OP_CONV_GRAD_INPUT:
        return run_grad_input(cuda, args);
    default: // CN_OP_CONV_GRAD_WEIGHT
        return run_grad_weight(cuda, args);
    }
}
