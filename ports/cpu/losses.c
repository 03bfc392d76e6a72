// Losses and their gradients. The sum over samples is kept in double precision.
#include <math.h>

#include "ports/cpu/kernel.h"

static size_t first_largest(const float *row, size_t count)
{
    size_t best = 0;

    for (size_t i = 1; i < count; i++)
        if (row[i] > row[best])
            best = i;
    return best;
}

// loss = log(sum_j exp(x_j - max)) - (x_label - max); d loss / d x_j = softmax_j - [j = label].
void cpu_cross_entropy(const struct cpu_task *task)
{
    size_t outputs = task->call->loss.outputs;
    const int32_t *labels = (const int32_t *)(const void *)task->in[1];

    for (size_t n = 0; n < task->samples; n++) {
        const float *x = task->in[0] + n * outputs;
        size_t label = (size_t)labels[n];
        size_t best = first_largest(x, outputs);
        float sum = 0;

        for (size_t j = 0; j < outputs; j++)
            sum += expf(x[j] - x[best]);
        task->result->loss += (double)(logf(sum) - (x[label] - x[best]));
        task->result->correct += best == label;
        if (!task->out[0])
            continue;
        for (size_t j = 0; j < outputs; j++) {
            float probability = expf(x[j] - x[best]) / sum;

            task->out[0][n * outputs + j] = j == label ? probability - 1 : probability;
        }
    }
}

// loss = mean_j (y_j - t_j)^2; d loss / d y_j = 2 (y_j - t_j) / outputs.
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
    }
}
