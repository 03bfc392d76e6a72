// Losses and their gradients. Each block adds up its rows in double precision, in their order;
// loss_finish adds up the blocks.
#include "ports/cuda/kernels/kernel_common.h"

#define ENTROPY_AHEAD 8 // elements whose loads are on their way together

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

// What a thread, and then the whole team, knows of a row: its largest element and where that is;
// sum exp(x - largest), sum t, and sum t (x - largest) of the targets t.
struct entropy_row {
    float largest;
    uint32_t place;
    float sum, targets, product;
};

// Refers the sums to a larger element.
DEVICE void entropy_raise(struct entropy_row *row, float largest)
{
    float d = row->largest - largest;

    row->sum *= expf(d);
    row->product += row->targets == 0 ? 0 : row->targets * d;
    row->largest = largest;
}

DEVICE void entropy_add(struct entropy_row *row, float x, uint32_t place, float t)
{
    if (x > row->largest) {
        entropy_raise(row, x);
        row->place = place;
    }
    // An element of -inf adds nothing, unless all are.
    row->sum += x == -INFINITY ? 0 : expf(x - row->largest);
    row->targets += t;
    row->product += t == 0 ? 0 : x == -INFINITY ? x : t * (x - row->largest);
}

// Joins what the threads of a team know. Finds the row's largest element, and where the first such
// element is; it is `outputs` where all are -inf or NaN.
DEVICE void entropy_join(const struct team *team, struct entropy_row *row, uint32_t outputs,
                         float *largest, uint32_t *best)
{
    float place;

    *largest = team_max(team, row->largest);
    place = row->largest == *largest && *largest > -INFINITY ? (float)row->place : (float)outputs;
    *best = (uint32_t)-team_max(team, -place); // exact below 2^24 outputs
    if (row->largest > -INFINITY)
        entropy_raise(row, *largest);
    row->sum = team_sum(team, row->sum);
    row->targets = team_sum(team, row->targets);
    row->product = team_sum(team, row->product);
    if (*largest == -INFINITY)
        row->sum = bits_float(0x7fc00000); // NaN
}

// Reads every width-th class from c on.
DEVICE void read_classes(const float *x, size_t step, uint32_t c, uint32_t width, uint32_t outputs,
                         float values[ENTROPY_AHEAD])
{
    UNROLL
    for (uint32_t k = 0; k < ENTROPY_AHEAD; k++)
        values[k] = c + k * width < outputs ? x[(c + k * width) * step] : 0;
}

// Adds a row's loss and writes its gradient. With targets t, weighted by class: loss = -sum_c t_c
// log p_c and d loss / d x = p sum t - t.
DEVICE void count_row(const struct cuda_args *a, const struct team *team, uint32_t n, uint32_t r,
                      struct entropy_sums *sums)
{
    const struct cn_loss_call *op = &a->call.loss;
    uint32_t outputs = (uint32_t)op->outputs;
    size_t step = op->classes_first ? op->rows : 1;
    size_t first = op->classes_first ? r : (size_t)r * outputs;
    const float *x = a->in[0] + n * a->call.in[0].stride + first;
    int32_t label = (int32_t)float_bits(a->in[1][n * a->call.in[1].stride + r]);
    bool counts = n < run_samples(a) && label != op->ignore;
    struct entropy_row row = {-INFINITY, 0, 0, 0, 0};
    float largest;
    uint32_t best;

    if (counts && (label < 0 || (uint32_t)label >= outputs)) {
        a->state->outside = 1;
        counts = false;
    }
    for (uint32_t c = team->lane; c < outputs; c += ENTROPY_AHEAD * team->width) {
        float values[ENTROPY_AHEAD];

        read_classes(x, step, c, team->width, outputs, values);
        UNROLL
        for (uint32_t k = 0; k < ENTROPY_AHEAD; k++)
            if (c + k * team->width < outputs)
                entropy_add(&row, values[k], c + k * team->width,
                            target_of(a, c + k * team->width, label));
    }
    entropy_join(team, &row, outputs, &largest, &best);
    if (counts) {
        float weight = a->in[2] ? a->in[2][label] : 1;

        sums->loss += (double)(row.targets * logf(row.sum) - row.product);
        sums->weight += (double)weight;
        sums->correct += weight != 0 && best == (uint32_t)label;
    }
    for (uint32_t c = team->lane; a->out[0] && c < outputs; c += ENTROPY_AHEAD * team->width) {
        float values[ENTROPY_AHEAD];

        read_classes(x, step, c, team->width, outputs, values);
        UNROLL
        for (uint32_t k = 0; k < ENTROPY_AHEAD; k++) {
            uint32_t at = c + k * team->width;
            float slope = expf(values[k] - largest) / row.sum * row.targets;

            if (at < outputs)
                a->out[0][n * a->call.out[0].stride + first + at * step] =
                    counts ? (slope - target_of(a, at, label)) * a->state->scale : 0;
        }
    }
}

KERNEL(cross_entropy)
{
    uint32_t rows = (uint32_t)a.call.loss.rows;
    struct entropy_sums sums = {0, 0, 0};
    struct team team = team_of(&a);

    for (uint32_t row = team.first; row < rows * a.samples; row += team.step)
        count_row(&a, &team, row / rows, row % rows, &sums);
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
