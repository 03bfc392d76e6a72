// Convolution and its two gradients: the choice between the ways of conv.h, by an estimate of what
// each spends beside multiplying.
#include "ports/cpu/conv.h"

#include "ports/cpu/plane.h"

static bool is_pointwise(const struct cn_window *w)
{
    return w->kernel[0] == 1 && w->kernel[1] == 1;
}

// Junk outputs for each true one.
static float flat_waste(const struct cn_window *w)
{
    struct planes planes = planes_of(w, 1);

    return (float)(planes.rows * planes.pitch) / ((float)w->out[0] * (float)w->out[1]) - 1;
}

// Cycles for a word of the column matrix, as a share of those for its products: 1 / 16 each.
static float columns_waste(const struct conv *conv, enum cn_op op)
{
    float word = 0.25f + 1.5f / (float)conv->window->out[1];

    if (op == CN_OP_CONV_GRAD_INPUT)
        word *= 2.5f;
    if (op == CN_OP_CONV_GRAD_WEIGHT)
        word += 0.5f;
    return word * 16 / (float)conv->group_out;
}

// The number of samples has no part in it: a call keeps its way for every batch.
static const struct conv_way *choose(const struct conv *conv, enum cn_op op)
{
    const struct cn_window *w = conv->window;
    bool strided = w->stride[0] > 1 || w->stride[1] > 1;
    float flat;

    if (conv->group_in == 1 && conv->group_out == 1)
        return &conv_depthwise;
    if (is_pointwise(w) || (op == CN_OP_CONV_GRAD_INPUT && strided) ||
        w->pad[0] > (w->kernel[0] - 1) * w->dilation[0] ||
        w->pad[1] > (w->kernel[1] - 1) * w->dilation[1])
        return &conv_columns;
    flat = flat_waste(w);
    // Its sums in vectors are added up at the end, and it reads more for each product.
    if (op == CN_OP_CONV_GRAD_WEIGHT)
        flat += 0.15f + 0.6f * VECTOR / (float)conv->y_channel;
    return flat < columns_waste(conv, op) ? &conv_flat : &conv_columns;
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
