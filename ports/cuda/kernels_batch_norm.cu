// Normalization of batches. A team works on a channel, or on a part of a long one; then another
// kernel comes first, which finds the sums of the parts.
#include "ports/cuda/kernel_common.h"

// Elements whose loads are on their way together.
#define MOMENTS_AHEAD 8
#define AHEAD 4

// A channel's elements, counted over all samples, are divided into a->parts parts, so that many
// blocks work on a channel.
struct channel_part {
    uint32_t c, part, first, end;
};

// Returns part number `unit` of all channels, whose elements are those of `samples` samples.
DEVICE struct channel_part channel_part_of(const struct cuda_args *a, uint32_t unit,
                                           uint32_t samples)
{
    uint32_t channels = (uint32_t)a->call.batch_norm.channels;
    uint32_t count = (uint32_t)a->call.batch_norm.inner * samples;
    uint32_t share = (count + a->parts - 1) / a->parts;
    struct channel_part at;

    at.c = unit % channels;
    at.part = unit / channels;
    at.first = at.part * share < count ? at.part * share : count;
    at.end = at.first + share < count ? at.first + share : count;
    return at;
}

// The way of a thread through a part: element i is element r of the channel's plane of sample n.
struct walk {
    uint32_t i, n, r;
};

DEVICE struct walk walk_begin(const struct cuda_args *a, const struct team *team,
                              const struct channel_part *at)
{
    uint32_t inner = (uint32_t)a->call.batch_norm.inner;
    struct walk w;

    w.i = at->first + team->lane;
    w.n = w.i / inner;
    w.r = w.i % inner;
    return w;
}

// Goes on by the width of the team.
DEVICE void walk_on(const struct cuda_args *a, const struct team *team, struct walk *w)
{
    uint32_t inner = (uint32_t)a->call.batch_norm.inner;

    w->i += team->width;
    w->n += team->width / inner;
    w->r += team->width % inner;
    if (w->r >= inner) {
        w->r -= inner;
        w->n++;
    }
}

// Returns the word of an element of channel c.
DEVICE size_t walk_word(const struct cuda_args *a, const struct walk *w, uint32_t c, size_t stride)
{
    return w->n * stride + (size_t)c * a->call.batch_norm.inner + w->r;
}

// Reads the next elements of x; `beyond` stands for those behind the part's end.
DEVICE void read_ahead(const struct cuda_args *a, const struct team *team,
                       const struct channel_part *at, struct walk *w, float beyond,
                       float x[MOMENTS_AHEAD])
{
    UNROLL
    for (uint32_t k = 0; k < MOMENTS_AHEAD; k++) {
        x[k] = w->i < at->end ? a->in[0][walk_word(a, w, at->c, a->call.in[0].stride)] : beyond;
        walk_on(a, team, w);
    }
}

// Finds the mean of a part, and the sum of the squares of the distances to it.
DEVICE void moments_of(const struct cuda_args *a, const struct team *team,
                       const struct channel_part *at, float *mean, float *squares)
{
    float sum = 0, x[MOMENTS_AHEAD];

    for (struct walk w = walk_begin(a, team, at); w.i < at->end;) {
        read_ahead(a, team, at, &w, 0, x);
        UNROLL
        for (uint32_t k = 0; k < MOMENTS_AHEAD; k++)
            sum += x[k];
    }
    *mean = team_sum(team, sum) / (float)(at->end > at->first ? at->end - at->first : 1);
    sum = 0;
    for (struct walk w = walk_begin(a, team, at); w.i < at->end;) {
        read_ahead(a, team, at, &w, *mean, x);
        UNROLL
        for (uint32_t k = 0; k < MOMENTS_AHEAD; k++)
            sum += (x[k] - *mean) * (x[k] - *mean);
    }
    *squares = team_sum(team, sum);
}

// For channels of several parts. The parts of a channel lie side by side in the workspace: all
// means, then all squares.
KERNEL(batch_norm_parts)
{
    uint32_t channels = (uint32_t)a.call.batch_norm.channels, total = channels * a.parts;
    struct team team = team_of(&a);

    for (uint32_t unit = team.first; unit < total; unit += team.step) {
        struct channel_part at = channel_part_of(&a, unit, run_samples(&a));
        float mean, squares;

        moments_of(&a, &team, &at, &mean, &squares);
        if (team.lane == 0) {
            a.workspace[at.c * a.parts + at.part] = mean;
            a.workspace[total + at.c * a.parts + at.part] = squares;
        }
    }
}

// Joins the parts of a channel, in their order (Chan, Golub and LeVeque 1979).
DEVICE void join_parts(const struct cuda_args *a, uint32_t c, float *mean, float *squares)
{
    uint32_t channels = (uint32_t)a->call.batch_norm.channels;
    const float *means = a->workspace + c * a->parts, *others = means + channels * a->parts;
    float count = 0;

    *mean = *squares = 0;
    for (uint32_t part = 0; part < a->parts; part++) {
        struct channel_part at = channel_part_of(a, part * channels + c, run_samples(a));
        float more = (float)(at.end - at.first), all = count + more, d = means[part] - *mean;

        if (at.end == at.first)
            break;
        *mean += d * (more / all);
        *squares += others[part] + d * d * (count * more / all);
        count = all;
    }
}

// Finds the statistics of a channel, in all threads of the team.
DEVICE void statistics_of(const struct cuda_args *a, const struct team *team, uint32_t c,
                          float *mean, float *variance)
{
    struct channel_part at;

    if (a->call.batch_norm.frozen) {
        *mean = a->in[3][c];
        *variance = a->in[4][c] < 0 ? 0 : a->in[4][c];
        return;
    }
    if (a->parts > 1) {
        join_parts(a, c, mean, variance);
    } else {
        at = channel_part_of(a, c, run_samples(a));
        moments_of(a, team, &at, mean, variance);
    }
    *variance /= (float)((uint32_t)a->call.batch_norm.inner * run_samples(a));
}

// Writes what a channel keeps. saved (out[1]) gets all means, then all 1 / deviation.
DEVICE void keep_statistics(const struct cuda_args *a, uint32_t c, float mean, float variance)
{
    const struct cn_batch_norm *op = &a->call.batch_norm;
    uint32_t samples = run_samples(a), count = (uint32_t)op->inner * samples;

    a->out[1][c] = mean;
    a->out[1][op->channels + c] = 1 / sqrtf(variance + op->epsilon);
    if (a->out[2] && !op->frozen)
        put(&a->out[2][c], mean * (float)samples, adds(a));
    if (a->out[3] && !op->frozen)
        put(&a->out[3][c],
            variance * ((float)count / (float)(count > 1 ? count - 1 : 1)) * (float)samples,
            adds(a));
}

// A team normalizes a part of a channel. It finds the channel's statistics itself: of a channel
// that is one part from x, else from what batch_norm_parts left.
KERNEL(batch_norm)
{
    const struct cn_batch_norm *op = &a.call.batch_norm;
    uint32_t total = (uint32_t)op->channels * a.parts;
    struct team team = team_of(&a);

    for (uint32_t unit = team.first; unit < total; unit += team.step) {
        struct channel_part at = channel_part_of(&a, unit, a.samples);
        struct walk w = walk_begin(&a, &team, &at);
        float mean, variance, inverse, gamma = a.in[1][at.c], beta = a.in[2][at.c];

        statistics_of(&a, &team, at.c, &mean, &variance);
        inverse = 1 / sqrtf(variance + op->epsilon);
        if (at.part == 0 && team.lane == 0)
            keep_statistics(&a, at.c, mean, variance);
        while (w.i < at.end) {
            struct walk place[AHEAD];
            float x[AHEAD], more[AHEAD];

            UNROLL
            for (uint32_t k = 0; k < AHEAD; k++) {
                bool inside = w.i < at.end;

                place[k] = w;
                x[k] = inside ? a.in[0][walk_word(&a, &w, at.c, a.call.in[0].stride)] : 0;
                more[k] = 0;
                if (inside && a.in[5])
                    more[k] = a.in[5][walk_word(&a, &w, at.c, a.call.in[5].stride)];
                walk_on(&a, &team, &w);
            }
            UNROLL
            for (uint32_t k = 0; k < AHEAD; k++) {
                float y = (x[k] - mean) * inverse * gamma + beta + more[k];

                if (op->relu)
                    y = y < 0 ? 0 : y;
                if (place[k].i < at.end)
                    a.out[0][walk_word(&a, &place[k], at.c, a.call.out[0].stride)] = y;
            }
        }
    }
}

// What the gradient reads of an element: dy, or 0 where the rectifier cut y; (x - mean) inverse.
struct norm_element {
    float dy, h;
};

// Reads the next elements; those behind the part's end become 0.
DEVICE void read_elements(const struct cuda_args *a, const struct team *team,
                          const struct channel_part *at, struct walk *w,
                          struct norm_element e[AHEAD])
{
    const struct cn_batch_norm *op = &a->call.batch_norm;
    float mean = a->in[3][at->c], inverse = a->in[3][op->channels + at->c];

    UNROLL
    for (uint32_t k = 0; k < AHEAD; k++) {
        float x = mean, y = 1;

        e[k].dy = 0;
        if (w->i < at->end) {
            e[k].dy = a->in[0][walk_word(a, w, at->c, a->call.in[0].stride)];
            x = a->in[1][walk_word(a, w, at->c, a->call.in[1].stride)];
            y = op->relu ? a->in[4][walk_word(a, w, at->c, a->call.in[4].stride)] : 1;
        }
        e[k].h = (x - mean) * inverse;
        e[k].dy = y > 0 ? e[k].dy : 0;
        walk_on(a, team, w);
    }
}

// Adds up a part's dy (dbeta) and dy h (dgamma).
DEVICE void add_gradients(const struct cuda_args *a, const struct team *team,
                          const struct channel_part *at, float *beta, float *gamma)
{
    struct norm_element e[AHEAD];

    *beta = *gamma = 0;
    for (struct walk w = walk_begin(a, team, at); w.i < at->end;) {
        read_elements(a, team, at, &w, e);
        UNROLL
        for (uint32_t k = 0; k < AHEAD; k++) {
            *beta += e[k].dy;
            *gamma += e[k].dy * e[k].h;
        }
    }
    *beta = team_sum(team, *beta);
    *gamma = team_sum(team, *gamma);
}

// For channels of several parts. The parts of a channel lie side by side in the workspace: all
// sums for dbeta, then those for dgamma.
KERNEL(batch_norm_grad_parts)
{
    uint32_t channels = (uint32_t)a.call.batch_norm.channels, total = channels * a.parts;
    struct team team = team_of(&a);

    for (uint32_t unit = team.first; unit < total; unit += team.step) {
        struct channel_part at = channel_part_of(&a, unit, run_samples(&a));
        float beta, gamma;

        add_gradients(&a, &team, &at, &beta, &gamma);
        if (team.lane == 0) {
            a.workspace[at.c * a.parts + at.part] = beta;
            a.workspace[total + at.c * a.parts + at.part] = gamma;
        }
    }
}

// Finds the sums of a channel, in all threads of the team.
DEVICE void gradients_of(const struct cuda_args *a, const struct team *team, uint32_t c,
                         float *beta, float *gamma)
{
    uint32_t total = (uint32_t)a->call.batch_norm.channels * a->parts;
    struct channel_part at;

    if (a->parts == 1) {
        at = channel_part_of(a, c, run_samples(a));
        add_gradients(a, team, &at, beta, gamma);
        return;
    }
    *beta = *gamma = 0;
    for (uint32_t part = 0; part < a->parts; part++) {
        *beta += a->workspace[c * a->parts + part];
        *gamma += a->workspace[total + c * a->parts + part];
    }
}

// Writes the gradients of an element. They are 0 for samples beyond the batch.
DEVICE void put_gradients(const struct cuda_args *a, const struct walk *w, uint32_t c, float dx,
                          float dy)
{
    bool inside = w->n < run_samples(a);

    if (a->out[0])
        a->out[0][walk_word(a, w, c, a->call.out[0].stride)] = inside ? dx : 0;
    if (a->out[3])
        a->out[3][walk_word(a, w, c, a->call.out[3].stride)] = inside ? dy : 0;
}

// dx = gamma inverse (dy - mean dy - h mean(dy h)), or gamma inverse dy when frozen. The sums come
// from where batch_norm has its statistics from.
KERNEL(batch_norm_grad)
{
    const struct cn_batch_norm *op = &a.call.batch_norm;
    uint32_t total = (uint32_t)op->channels * a.parts;
    float share = 1 / (float)((uint32_t)op->inner * run_samples(&a));
    struct team team = team_of(&a);

    for (uint32_t unit = team.first; unit < total; unit += team.step) {
        struct channel_part at = channel_part_of(&a, unit, a.samples);
        float beta, gamma, factor = a.in[2][at.c] * a.in[3][op->channels + at.c];
        struct walk w = walk_begin(&a, &team, &at);

        gradients_of(&a, &team, at.c, &beta, &gamma);
        if (at.part == 0 && team.lane == 0 && a.out[1])
            put(&a.out[1][at.c], gamma, adds(&a));
        if (at.part == 0 && team.lane == 0 && a.out[2])
            put(&a.out[2][at.c], beta, adds(&a));
        while ((a.out[0] || a.out[3]) && w.i < at.end) {
            struct norm_element e[AHEAD];
            struct walk place = w;

            read_elements(&a, &team, &at, &w, e);
            UNROLL
            for (uint32_t k = 0; k < AHEAD; k++) {
                float dx = e[k].dy;

                if (!op->frozen)
                    dx -= share * (beta + e[k].h * gamma);
                if (place.i < at.end)
                    put_gradients(&a, &place, at.c, dx * factor, e[k].dy);
                walk_on(&a, &team, &place);
            }
        }
    }
}
