// Work on whole arenas, word by word, and the kernels that begin a run. The optimizers give the
// bits of the CPU, as the contract requires: each operation is rounded once, in the order that the
// contract states.
#include "ports/cuda/kernels/kernel_common.h"

#define GROUP 256             // numbers of a partial sum: see struct cn_hyper
#define CHUNK 32              // of them that a thread brings to shared memory at a time
#define SCALE_STEPS 2000      // steps without overflow before float16's scale is doubled
#define SCALE_MAX 16777216.0f // largest scale of float16

// Begins every run: stores the hyper-parameters, which come with the launch, and clears results
// that the host has read. In a flat program the optimizer may work again. One thread works.
KERNEL(begin)
{
    struct cuda_state *s = a.state;

    if (thread_index() > 0 || block_index() > 0)
        return;
    *a.hyper = a.next;
    if (a.next.loss_scale.factor > 0) {
        s->scale = a.next.loss_scale.factor;
        s->steps = a.next.loss_scale.steps;
    }
    if (a.read) {
        s->loss = s->weight = s->norm = 0;
        s->correct = 0;
        s->bad = s->outside = s->overflow = 0;
    }
    if (a.flat) {
        s->skip = 0;
        s->squares = 0;
        s->clip = 1;
    }
}

// Repeats the samples of the batch in the places beyond it, so that results computed from them are
// finite where the batch's are. in[0] is the first sample, fill.count its words.
KERNEL(repeat)
{
    uint32_t count = (uint32_t)a.call.fill.count, samples = a.hyper->samples;
    uint32_t missing = samples ? (a.samples - samples) * count : 0;

    for (uint32_t i = first_index(); i < missing; i += index_step()) {
        uint32_t n = samples + i / count;

        a.in[0][(size_t)n * count + i % count] = a.in[0][(size_t)(n % samples) * count + i % count];
    }
}

DEVICE bool is_finite(float value)
{
    return (float_bits(value) & 0x7f800000u) != 0x7f800000u;
}

// SUM_LANES with float16: divides the gradients by the loss's scale, which is exact. in[0] has
// fill.count words.
KERNEL(unscale)
{
    float inverse = 1 / a.state->scale;

    for (uint32_t i = first_index(); i < a.call.fill.count; i += index_step()) {
        float g = a.in[0][i];

        if (!is_finite(g))
            a.state->overflow = 1;
        a.in[0][i] = g * inverse;
    }
}

// Chooses the scale of the next step: half after an overflow, double after SCALE_STEPS without. One
// thread works.
KERNEL(unscale_finish)
{
    struct cuda_state *s = a.state;

    if (thread_index() > 0 || block_index() > 0)
        return;
    if (s->overflow) {
        s->scale = s->scale > 1 ? s->scale / 2 : 1;
        s->steps = 0;
    } else if (++s->steps >= SCALE_STEPS) {
        s->scale = s->scale < SCALE_MAX ? s->scale * 2 : s->scale;
        s->steps = 0;
    }
}

// CHECK: notes a value that is not finite. All threads that write, write the same.
KERNEL(check)
{
    for (uint32_t i = first_index(); i < a.call.fill.count; i += index_step())
        if (!is_finite(a.in[0][i])) {
            a.state->skip = 1;
            a.state->bad = 1;
        }
}

// CLIP, first pass: a thread adds the squares of 256 neighbours. The threads of a block read them
// side by side, through shared memory, 32 neighbours of each thread at a time.
KERNEL(squares)
{
    SHARED float tile[CUDA_THREADS * (CHUNK + 1)];
    const struct cn_range *op = &a.call.range;
    double *sums = (double *)(void *)a.workspace;
    uint32_t count = (uint32_t)op->count, groups = (count + GROUP - 1) / GROUP;

    for (uint32_t base = block_index() * block_size(); base < groups; base += index_step()) {
        double sum = 0;

        for (uint32_t from = 0; from < GROUP; from += CHUNK) {
            for (uint32_t n = thread_index(); n < block_size() * CHUNK; n += block_size()) {
                uint32_t at = (base + n / CHUNK) * GROUP + from + n % CHUNK;

                // A square of 0 leaves a sum as it is.
                tile[n / CHUNK * (CHUNK + 1) + n % CHUNK] =
                    at < count
                        ? exact_multiply(a.in[0][op->gradients + at], a.hyper->gradient_scale)
                        : 0;
            }
            block_sync();
            for (uint32_t k = 0; k < CHUNK; k++) {
                double g = (double)tile[thread_index() * (CHUNK + 1) + k];

                sum = exact_add_double(sum, exact_multiply_double(g, g));
            }
            block_sync();
        }
        if (base + thread_index() < groups)
            sums[base + thread_index()] = sum;
    }
}

// CLIP, later passes: a thread adds 256 of the fill.count sums in in[0] into the workspace.
KERNEL(squares_again)
{
    const double *from = (const double *)(const void *)a.in[0];
    double *sums = (double *)(void *)a.workspace;
    uint32_t count = (uint32_t)a.call.fill.count, groups = (count + GROUP - 1) / GROUP;

    for (uint32_t i = first_index(); i < groups; i += index_step()) {
        uint32_t end = (i + 1) * GROUP < count ? (i + 1) * GROUP : count;
        double sum = 0;

        for (uint32_t j = i * GROUP; j < end; j++)
            sum = exact_add_double(sum, from[j]);
        sums[i] = sum;
    }
}

// CLIP, last: adds the range's sum in in[0] to those of other ranges and computes the factor. One
// thread works.
KERNEL(clip)
{
    struct cuda_state *s = a.state;
    float norm, factor;

    if (thread_index() > 0 || block_index() > 0 || s->skip)
        return;
    s->squares = exact_add_double(s->squares, *(const double *)(const void *)a.in[0]);
    s->norm = sqrt(s->squares);
    norm = (float)s->norm;
    factor = exact_divide(a.hyper->clip, exact_add(norm, 1e-6f));
    s->clip = factor < 1 ? factor : 1;
}

// Where an element of an optimizer's launch lies.
struct place {
    size_t weights, gradients, state; // words of the arenas; state: of both moments
};

// Finds element i by the launch's table of ranges, which has a.parts entries and is the workspace.
// *range is the number of the range of an earlier element, or 0.
DEVICE struct place place_of(const struct cuda_args *a, uint32_t i, uint32_t *range)
{
    const struct cuda_range *ranges = (const struct cuda_range *)(const void *)a->workspace;
    uint32_t low = *range, high = a->parts - 1, within;
    struct place place;

    if (i < ranges[low].end)
        high = low;
    while (low < high) {
        uint32_t middle = (low + high) / 2;

        if (i < ranges[middle].end)
            high = middle;
        else
            low = middle + 1;
    }
    *range = low;
    within = i - (low ? ranges[low - 1].end : 0);
    place.weights = (size_t)ranges[low].weights + within;
    place.gradients = (size_t)ranges[low].gradients + within;
    place.state = (size_t)ranges[low].state + within;
    return place;
}

// Returns the number of elements of an optimizer's launch; 0 if the step is skipped.
DEVICE uint32_t update_count(const struct cuda_args *a)
{
    const struct cuda_range *ranges = (const struct cuda_range *)(const void *)a->workspace;

    return a->state->skip ? 0 : ranges[a->parts - 1].end;
}

// Returns the gradient that the optimizers start from. in: gradients, weights, momentum, second
// moment, base; whole arenas.
DEVICE float gradient_of(const struct cuda_args *a, struct place at)
{
    const struct cn_range *op = &a->call.range;
    const struct cn_hyper *h = a->hyper;
    float g = exact_multiply(a->in[0][at.gradients], h->gradient_scale);

    if (a->clipped)
        g = exact_multiply(g, a->state->clip);
    if (op->proximal)
        g = exact_add(g, exact_multiply(h->proximal, exact_subtract(a->in[1][at.weights],
                                                                    a->in[4][at.weights])));
    return g;
}

KERNEL(sgd)
{
    const struct cn_range *op = &a.call.range;
    const struct cn_hyper *h = a.hyper;
    float decay = op->no_decay ? 0 : h->weight_decay;
    uint32_t count = update_count(&a), range = 0;

    for (uint32_t i = first_index(); i < count; i += index_step()) {
        struct place at = place_of(&a, i, &range);
        float *w = &a.in[1][at.weights], *v = &a.in[2][at.state];
        float d = exact_add(gradient_of(&a, at), exact_multiply(decay, *w));
        float velocity = exact_add(exact_multiply(h->momentum, *v), d);

        *v = velocity;
        d = op->nesterov ? exact_add(d, exact_multiply(h->momentum, velocity)) : velocity;
        *w = exact_subtract(*w, exact_multiply(h->learning_rate, d));
    }
}

KERNEL(adam)
{
    const struct cn_range *op = &a.call.range;
    const struct cn_hyper *h = a.hyper;
    float rest1 = exact_subtract(1, op->beta1), rest2 = exact_subtract(1, op->beta2);
    float rate = exact_divide(h->learning_rate, h->correction1);
    float decay = op->no_decay ? 0 : h->weight_decay;
    uint32_t count = update_count(&a), range = 0;

    for (uint32_t i = first_index(); i < count; i += index_step()) {
        struct place place = place_of(&a, i, &range);
        size_t at = place.state;
        float w = a.in[1][place.weights], g = gradient_of(&a, place), m, v, deviation;

        if (op->decoupled)
            w = exact_subtract(w, exact_multiply(exact_multiply(h->learning_rate, decay), w));
        else
            g = exact_add(g, exact_multiply(decay, w));
        m = exact_add(exact_multiply(op->beta1, a.in[2][at]), exact_multiply(rest1, g));
        v = exact_add(exact_multiply(op->beta2, a.in[3][at]),
                      exact_multiply(rest2, exact_multiply(g, g)));
        deviation = exact_add(exact_divide(exact_root(v), h->correction2), op->epsilon);
        a.in[1][place.weights] =
            exact_subtract(w, exact_divide(exact_multiply(rate, m), deviation));
        a.in[2][at] = m;
        a.in[3][at] = v;
    }
}

KERNEL(statistic)
{
    const struct cn_range *op = &a.call.range;
    uint32_t count = update_count(&a), range = 0;

    for (uint32_t i = first_index(); i < count; i += index_step()) {
        struct place at = place_of(&a, i, &range);
        float s = exact_multiply(a.in[0][at.gradients], a.hyper->statistic_scale);
        float *w = &a.in[1][at.weights];

        *w = exact_add(*w, exact_multiply(op->momentum, exact_subtract(s, *w)));
    }
}
