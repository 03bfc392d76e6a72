// Losses and their gradients. Each block adds up its rows in double precision, in their order;
// loss_finish adds up the blocks.
#include "ports/cuda/kernel_common.h"

// Writes the block's sums to the workspace, which has CUDA_LOSS_BLOCKS parts. All lanes of a warp
// must pass the same values.
DEVICE void write_part(const struct cuda_args *a, double loss, double weight, uint32_t correct)
{
    SHARED double losses[CUDA_THREADS / CUDA_WARP], weights[CUDA_THREADS / CUDA_WARP];
    SHARED uint32_t counts[CUDA_THREADS / CUDA_WARP];
    struct cuda_loss_part *parts = (struct cuda_loss_part *)(void *)a->workspace;
    uint32_t warps = a->wide ? 1 : block_size() / CUDA_WARP; // wide: all warps have the same sums
    struct cuda_loss_part sum = {0, 0, 0};

    if (thread_index() % CUDA_WARP == 0) {
        losses[thread_index() / CUDA_WARP] = loss;
        weights[thread_index() / CUDA_WARP] = weight;
        counts[thread_index() / CUDA_WARP] = correct;
    }
    block_sync();
    if (thread_index() > 0)
        return;
    for (uint32_t i = 0; i < warps; i++) {
        sum.loss += losses[i];
        sum.weight += weights[i];
        sum.correct += counts[i];
    }
    parts[block_index()] = sum;
}

// Returns the sum over the threads of a block, in every thread.
DEVICE double block_sum_double(double value)
{
    SHARED double part[CUDA_THREADS / CUDA_WARP];
    double sum = 0;

    value = warp_sum_double(value);
    block_sync(); // an earlier call may still be read
    if (thread_index() % CUDA_WARP == 0)
        part[thread_index() / CUDA_WARP] = value;
    block_sync();
    for (uint32_t i = 0; i < block_size() / CUDA_WARP; i++)
        sum += part[i];
    return sum;
}

// Adds up the sums of a.parts blocks. One block works.
KERNEL(loss_finish)
{
    const struct cuda_loss_part *parts = (const struct cuda_loss_part *)(const void *)a.workspace;
    double loss = 0, weight = 0, correct = 0; // correct is exact below 2^53

    for (uint32_t i = thread_index(); i < a.parts; i += block_size()) {
        loss += parts[i].loss;
        weight += parts[i].weight;
        correct += (double)parts[i].correct;
    }
    loss = block_sum_double(loss);
    weight = block_sum_double(weight);
    correct = block_sum_double(correct);
    if (thread_index() > 0)
        return;
    a.state->loss += loss;
    a.state->weight += weight;
    a.state->correct += (uint64_t)correct;
}

// Returns the first of a row's largest elements, in all threads of the team.
DEVICE uint32_t first_largest(const struct team *team, const float *x, size_t step, uint32_t count)
{
    float largest = -INFINITY, place = (float)count;

    for (uint32_t c = team->lane; c < count; c += team->width)
        largest = fmaxf(largest, x[c * step]);
    largest = team_max(team, largest);
    for (uint32_t c = team->lane; c < count; c += team->width)
        if (x[c * step] == largest) {
            place = (float)c;
            break;
        }
    return (uint32_t)-team_max(team, -place); // exact below 2^24 outputs
}

// Returns a class's share of the target, times its weight.
DEVICE float target_of(const struct cuda_args *a, uint32_t number, int32_t label)
{
    const struct cn_loss_call *op = &a->call.loss;
    float target = op->smoothing / (float)op->outputs;

    if (number == (uint32_t)label)
        target += 1 - op->smoothing;
    return a->in[2] ? target * a->in[2][number] : target;
}

// The sums of losses, weights and correct rows over the rows of a team.
struct entropy_sums {
    double loss, weight;
    uint32_t correct;
};

// Adds a row's loss and writes its gradient. With targets t, weighted by class: loss = -sum_c t_c
// log p_c and d loss / d x = p sum t - t.
DEVICE void entropy_row(const struct cuda_args *a, const struct team *team, uint32_t n, uint32_t r,
                        struct entropy_sums *sums)
{
    const struct cn_loss_call *op = &a->call.loss;
    uint32_t outputs = (uint32_t)op->outputs;
    size_t step = op->classes_first ? op->rows : 1;
    size_t first = op->classes_first ? r : (size_t)r * outputs;
    const float *x = a->in[0] + n * a->call.in[0].stride + first;
    int32_t label = (int32_t)float_bits(a->in[1][n * a->call.in[1].stride + r]);
    bool counts = n < run_samples(a) && label != op->ignore;
    uint32_t best = first_largest(team, x, step, outputs);
    float largest = x[(best < outputs ? best : 0) * step];
    float sum = 0, targets = 0, product = 0;

    if (counts && (label < 0 || (uint32_t)label >= outputs)) {
        a->state->outside = 1;
        counts = false;
    }
    for (uint32_t c = team->lane; c < outputs; c += team->width) {
        float t = target_of(a, c, label);

        sum += expf(x[c * step] - largest);
        targets += t;
        product += t == 0 ? 0 : t * (x[c * step] - largest);
    }
    sum = team_sum(team, sum);
    targets = team_sum(team, targets);
    product = team_sum(team, product);
    if (counts) {
        float weight = a->in[2] ? a->in[2][label] : 1;

        sums->loss += (double)(targets * logf(sum) - product);
        sums->weight += (double)weight;
        sums->correct += weight != 0 && best == (uint32_t)label;
    }
    for (uint32_t c = team->lane; a->out[0] && c < outputs; c += team->width) {
        float p = expf(x[c * step] - largest) / sum;
        float slope = p * targets - target_of(a, c, label);

        a->out[0][n * a->call.out[0].stride + first + c * step] =
            counts ? slope * a->state->scale : 0;
    }
}

KERNEL(cross_entropy)
{
    uint32_t rows = (uint32_t)a.call.loss.rows;
    struct entropy_sums sums = {0, 0, 0};
    struct team team = team_of(&a);

    for (uint32_t row = team.first; row < rows * a.samples; row += team.step)
        entropy_row(&a, &team, row / rows, row % rows, &sums);
    write_part(&a, sums.loss, sums.weight, sums.correct);
}

// Returns an output's loss and sets its slope, before the division by the number of outputs.
DEVICE float output_loss(const struct cuda_args *a, float y, float t, float *slope)
{
    float d = y - t, delta = a->call.loss.delta, size = fabsf(d);

    switch (a->call.op) {
    case CN_OP_BINARY_ENTROPY:
        *slope = 1 / (1 + expf(-y)) - t;
        return fmaxf(y, 0) - y * t + log1pf(expf(-fabsf(y)));
    case CN_OP_MSE:
        *slope = 2 * d;
        return d * d;
    case CN_OP_HUBER:
        if (delta == 0) {
            *slope = d > 0 ? 1.0f : d < 0 ? -1.0f : d;
            return size;
        }
        *slope = size <= delta ? d : d > 0 ? delta : d < 0 ? -delta : d;
        return size <= delta ? 0.5f * d * d : delta * (size - 0.5f * delta);
    default: // CN_OP_MEAN_LOSS
        *slope = 1;
        return y;
    }
}

// Returns the sum over the team, in every thread.
DEVICE double team_sum_double(const struct team *team, double value)
{
    return team->wide ? block_sum_double(value) : warp_sum_double(value);
}

// The loss of a sample is the mean over its outputs; its weight is 1. A team works on a share of a
// sample's outputs.
KERNEL(mean_loss)
{
    uint32_t outputs = (uint32_t)a.call.loss.outputs, shares = CUDA_LOSS_SHARES(outputs);
    uint32_t share = (outputs + shares - 1) / shares;
    struct team team = team_of(&a);
    double loss = 0, weights = 0;

    for (uint32_t row = team.first; row < a.samples * shares; row += team.step) {
        uint32_t n = row / shares, from = row % shares * share;
        uint32_t end = from + share < outputs ? from + share : outputs;
        const float *y = a.in[0] + n * a.call.in[0].stride;
        const float *t = a.in[1] ? a.in[1] + n * a.call.in[1].stride : 0;
        bool counts = n < run_samples(&a);
        double sum = 0;

        for (uint32_t i = from + team.lane; i < end; i += team.width) {
            float slope;

            sum += (double)output_loss(&a, y[i], t ? t[i] : 0, &slope);
            if (a.out[0])
                a.out[0][n * a.call.out[0].stride + i] =
                    counts ? slope / (float)outputs * a.state->scale : 0;
        }
        sum = team_sum_double(&team, sum);
        loss += counts ? sum / (double)outputs : 0;
        weights += counts && from == 0;
    }
    write_part(&a, loss, weights, 0);
}
