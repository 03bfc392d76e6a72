// Convolution and its two gradients: chooses between the implementations of conv.h by an estimate
// of the time that each spends in addition to multiplying.
#include "ports/cpu/conv.h"

#include "ports/cpu/plane.h"

static bool is_pointwise(const struct cn_window *w)
{
    return w->kernel[0] == 1 && w->kernel[1] == 1;
}

// Returns the number of junk outputs for each true one.
static float flat_waste(const struct cn_window *w)
{
    struct planes planes = planes_of(w, 1);

    return (float)(planes.rows * planes.pitch) / ((float)w->out[0] * (float)w->out[1]) - 1;
}

// Returns the cost of making the column matrix, as a share of the cost of its products. A product
// costs 1/16 of a cycle; the numbers below are cycles for a word of the matrix.
static float columns_waste(const struct conv *conv, enum cn_op op)
{
    float word = 0.25f + 1.5f / (float)conv->window->out[1];

    if (op == CN_OP_CONV_GRAD_INPUT)
        word *= 2.5f;
    if (op == CN_OP_CONV_GRAD_WEIGHT)
        word += 0.5f;
    return word * 16 / (float)conv->group_out;
}

// Least tiles of a plane for a transformed weight to be used often enough.
#define WINOGRAD_TILES 4
#define WINOGRAD_WEIGHTS (1 << 16) // most words of weights whose transformed sums stay in the cache
#define WINOGRAD_WORDS (1 << 21)   // most words of the transformed planes of a sample

static size_t winograd_tiles(const struct cn_window *w)
{
    return ((size_t)w->in[0] + 1) / 2 * (((size_t)w->in[1] + 1) / 2);
}

// Returns whether Winograd's algorithm can do this convolution, with workspace of acceptable size.
static bool is_winograd(const struct conv *conv, enum cn_op op)
{
    const struct cn_window *w = conv->window;
    size_t tiles = winograd_tiles(w);

    for (int axis = 0; axis < 2; axis++)
        if (w->kernel[axis] != 3 || w->stride[axis] != 1 || w->dilation[axis] != 1 ||
            w->pad[axis] != 1 || w->in[axis] != w->out[axis])
            return false;
    return w->groups == 1 && tiles >= WINOGRAD_TILES &&
           16 * tiles * (conv->group_in + conv->group_out) <= WINOGRAD_WORDS &&
           (op != CN_OP_CONV_GRAD_WEIGHT || conv->group_in * conv->group_out <= WINOGRAD_WEIGHTS);
}

// Returns the cost in addition to the 36 products of a tile, as above; it may be negative. Counts
// 16 products instead of 36, tiles that reach beyond the plane, and for each product its share of
// the transforms of inputs and outputs.
static float winograd_waste(const struct conv *conv, enum cn_op op)
{
    // The sum is over tiles, so both sides are packed once more.
    bool sums = op == CN_OP_CONV_GRAD_WEIGHT;
    const struct cn_window *w = conv->window;
    float products = 16 * (float)winograd_tiles(w) / (9 * (float)w->in[0] * (float)w->in[1]);

    return products * (1 + (sums ? 14.0f : 10.0f) / (float)conv->group_out +
                       (sums ? 14.0f : 8.0f) / (float)conv->group_in) -
           1;
}

// Chooses a way. The number of samples has no influence, so a call is done the same way for every
// batch.
static const struct conv_way *choose(const struct conv *conv, enum cn_op op)
{
    const struct cn_window *w = conv->window;
    bool strided = w->stride[0] > 1 || w->stride[1] > 1;
    float flat, columns;

    if (conv->group_in == 1 && conv->group_out == 1)
        return &conv_depthwise;
    if (is_pointwise(w) || (op == CN_OP_CONV_GRAD_INPUT && strided) ||
        w->pad[0] > (w->kernel[0] - 1) * w->dilation[0] ||
        w->pad[1] > (w->kernel[1] - 1) * w->dilation[1])
        return &conv_columns;
    flat = flat_waste(w);
    // The flat way adds up its sums over vectors at the end, and reads more for each product.
    if (op == CN_OP_CONV_GRAD_WEIGHT)
        flat += 0.15f + 0.6f * VECTOR / (float)conv->y_channel;
    columns = columns_waste(conv, op);
    if (is_winograd(conv, op) && winograd_waste(conv, op) < (flat < columns ? flat : columns))
        return &conv_winograd;
    return flat < columns ? &conv_flat : &conv_columns;
}

static size_t workspace_of(const struct cn_call *call, size_t samples)
{
    struct conv conv = conv_of(&call->window, samples);

    return samples ? choose(&conv, call->op)->workspace(&conv, call->op) : 0;
}

void cpu_conv(const struct cpu_task *task)
{
    struct conv conv = conv_of(&task->call->window, task->samples);

    if (conv.samples)
        choose(&conv, CN_OP_CONV)->forward(&conv, task);
}

void cpu_conv_grad_input(const struct cpu_task *task)
{
    struct conv conv = conv_of(&task->call->window, task->samples);

    if (conv.samples)
        choose(&conv, CN_OP_CONV_GRAD_INPUT)->grad_input(&conv, task);
}

void cpu_conv_grad_weight(const struct cpu_task *task)
{
    struct conv conv = conv_of(&task->call->window, task->samples);

    if (!task->add)
        memset(task->out[0], 0, conv.window->channels_out * conv.taps * sizeof(float));
    if (conv.samples)
        choose(&conv, CN_OP_CONV_GRAD_WEIGHT)->grad_weight(&conv, task);
}

size_t cpu_conv_workspace(const struct cn_call *call, size_t samples)
{
    return workspace_of(call, samples);
}

size_t cpu_conv_grad_input_workspace(const struct cn_call *call, size_t samples)
{
    return workspace_of(call, samples);
}

size_t cpu_conv_grad_weight_workspace(const struct cn_call *call, size_t samples)
{
    return workspace_of(call, samples);
}
