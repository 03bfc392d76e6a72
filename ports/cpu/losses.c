// Losses and their gradients. The sum over samples is kept in double precision.
#include <math.h>

#include "ports/cpu/kernel.h"

// A row of logits; element c is x[c * step].
struct row {
    const float *x;
    float *gradient; // NULL: not wanted
    size_t step;
    size_t label;
};

// Returns the first of the largest elements.
static size_t first_largest(const struct row *row, size_t outputs)
{
    size_t best = 0;

    for (size_t c = 1; c < outputs; c++)
        if (row->x[c * row->step] > row->x[best * row->step])
            best = c;
    return best;
}

// Returns share_c = w_c t_c, where t is the smoothed target. With it,
//
//     loss = sum_c share_c (log(sum_j exp(x_j - max)) - (x_c - max))
//     d loss / d x_j = softmax_j sum_c share_c - share_j
static float share_of(const struct cn_loss_call *op, const float *weights, size_t label, size_t c)
{
    float target = op->smoothing / (float)op->outputs + (c == label ? 1 - op->smoothing : 0);

    return weights ? weights[c] * target : target;
}

// Adds the loss, weight and hit of one row to result, and writes its gradient.
static void entropy_of_row(const struct cn_loss_call *op, const float *weights,
                           const struct row *row, struct cn_compute_result *result)
{
    size_t best = first_largest(row, op->outputs);
    bool smooth = op->smoothing > 0;
    float weight = weights ? weights[row->label] : 1;
    float max = row->x[best * row->step], sum = 0, loss, shares;

    for (size_t c = 0; c < op->outputs; c++)
        sum += expf(row->x[c * row->step] - max);
    loss = logf(sum) - (row->x[row->label * row->step] - max);
    shares = weight;
    if (smooth) {
        double total = 0, losses = 0;

        for (size_t c = 0; c < op->outputs; c++) {
            float share = share_of(op, weights, row->label, c);

            total += (double)share;
            losses += (double)share * (double)(logf(sum) - (row->x[c * row->step] - max));
        }
        shares = (float)total;
        result->loss += losses;
    } else {
        result->loss += (double)weight * (double)loss;
    }
    result->weight += (double)weight;
    result->correct += weight > 0 && best == row->label;
    for (size_t c = 0; row->gradient && c < op->outputs; c++) {
        float share = smooth ? share_of(op, weights, row->label, c) : c == row->label ? weight : 0;

        row->gradient[c * row->step] = shares * (expf(row->x[c * row->step] - max) / sum) - share;
    }
}

void cpu_cross_entropy(const struct cpu_task *task)
{
    const struct cn_loss_call *op = &task->call->loss;
    const int32_t *labels = (const int32_t *)(const void *)task->in[1];
    size_t step = op->classes_first ? op->rows : 1;

    for (size_t r = 0; r < task->samples * op->rows; r++) {
        size_t sample = r / op->rows * op->rows * op->outputs;
        size_t first = sample + r % op->rows * (op->classes_first ? 1 : op->outputs);
        struct row row = {.x = task->in[0] + first,
                          .gradient = task->out[0] ? task->out[0] + first : NULL,
                          .step = step,
                          .label = (size_t)labels[r]};

        if (labels[r] != op->ignore)
            entropy_of_row(op, task->in[2], &row, task->result);
        for (size_t c = 0; labels[r] == op->ignore && row.gradient && c < op->outputs; c++)
            row.gradient[c * step] = 0;
    }
}

// A loss of one value. Sets slope to its derivative.
typedef float value_loss(float y, float target, const struct cn_loss_call *op, float *slope);

// Adds, for each sample, the mean of a loss over its values, and writes the gradient.
static inline void mean_of_values(const struct cpu_task *task, value_loss *loss)
{
    const struct cn_loss_call op = task->call->loss;

    for (size_t n = 0; n < task->samples; n++) {
        size_t first = n * op.outputs;
        double sum = 0;

        for (size_t i = first; i < first + op.outputs; i++) {
            float slope;

            sum += (double)loss(task->in[0][i], task->in[1] ? task->in[1][i] : 0, &op, &slope);
            if (task->out[0])
                task->out[0][i] = slope / (float)op.outputs;
        }
        task->result->loss += sum / (double)op.outputs;
        task->result->weight += 1;
    }
}

// Computes max(x, 0) - x t + log(1 + exp(-|x|)), which neither overflows nor loses small numbers.
static inline float binary_entropy(float x, float target, const struct cn_loss_call *op,
                                   float *slope)
{
    float small = expf(-fabsf(x));

    (void)op;
    *slope = (x < 0 ? small : 1) / (1 + small) - target;
    return (x < 0 ? 0 : x) - x * target + log1pf(small);
}

// Huber's loss; with delta <= 0, the absolute difference.
static inline float huber(float y, float target, const struct cn_loss_call *op, float *slope)
{
    float d = y - target, size = fabsf(d);

    if (size <= op->delta && op->delta > 0) {
        *slope = d;
        return 0.5f * d * d;
    }
    *slope = d > 0 ? 1 : d < 0 ? -1 : d;
    if (!(op->delta > 0))
        return size;
    *slope *= op->delta;
    return op->delta * (size - 0.5f * op->delta);
}

// Returns the value y itself as the loss.
static inline float itself(float y, float target, const struct cn_loss_call *op, float *slope)
{
    (void)target;
    (void)op;
    *slope = 1;
    return y;
}

void cpu_binary_entropy(const struct cpu_task *task)
{
    mean_of_values(task, binary_entropy);
}

void cpu_huber(const struct cpu_task *task)
{
    mean_of_values(task, huber);
}

void cpu_mean_loss(const struct cpu_task *task)
{
    mean_of_values(task, itself);
}

// Computes loss = mean_j (y_j - t_j)^2 and d loss / d y_j = 2 (y_j - t_j) / outputs.
void cpu_mse(const struct cpu_task *task)
{
    size_t outputs = task->call->loss.outputs;
    float scale = 2 / (float)outputs;

    for (size_t n = 0; n < task->samples; n++) {
        const float *y = task->in[0] + n * outputs;
        const float *target = task->in[1] + n * outputs;
        double sum = 0;

        for (size_t j = 0; j < outputs; j++) {
            float difference = y[j] - target[j];

            sum += (double)difference * (double)difference;
            if (task->out[0])
                task->out[0][n * outputs + j] = scale * difference;
        }
        task->result->loss += sum / (double)outputs;
        task->result->weight += 1;
    }
}
