// Normalization of batches. A team works on a channel, or on a part of a long one; then another
// kernel comes first, which finds the sums of the parts.
#include "ports/cuda/kernels/kernel_common.h"

// Groups of elements whose loads are on their way together.
#define AHEAD 4

// A channel's elements, counted over all samples, are divided into a->parts parts, so that many
// blocks work on a channel. They are taken in groups of `width` elements: four, or one where planes
// do not consist of fours.
struct channel_part {
    uint32_t c, part;
    uint32_t first, end; // groups
};

// The elements of a group.
struct group {
    float at[4];
};

DEVICE struct group load_group(const float *from, uint32_t width)
{
    struct group group = {{0, 0, 0, 0}};

    if (width == 4) {
        struct four four = load_four(from);

        UNROLL
        for (uint32_t e = 0; e < 4; e++)
            group.at[e] = four.at[e];
    } else {
        group.at[0] = *from;
    }
    return group;
}

DEVICE void store_group(float *to, const struct group *group, uint32_t width)
{
    if (width == 4) {
        struct four four;

        UNROLL
        for (uint32_t e = 0; e < 4; e++)
            four.at[e] = group->at[e];
        store_four(to, four);
    } else {
        *to = group->at[0];
    }
}

// Returns whether an operand of planes can be moved in fours, if it is there.
DEVICE bool has_fours(const float *at, size_t stride)
{
    return !at || ((uintptr_t)at % 16 == 0 && stride % 4 == 0);
}

// Returns whether all operands of a call can be. Both kernels of a call agree.
DEVICE bool by_fours(const struct cuda_args *a)
{
    const struct cn_call *call = &a->call;
    bool fours = call->batch_norm.inner % 4 == 0 && has_fours(a->in[0], call->in[0].stride) &&
                 has_fours(a->out[0], call->out[0].stride);

    if (call->op == CN_OP_BATCH_NORM)
        return fours && has_fours(a->in[5], call->in[5].stride);
    return fours && has_fours(a->in[1], call->in[1].stride) &&
           has_fours(a->in[4], call->in[4].stride) && has_fours(a->out[3], call->out[3].stride);
}

// Returns part number `unit` of all channels, whose elements are those of `samples` samples.
DEVICE struct channel_part channel_part_of(const struct cuda_args *a, uint32_t unit,
                                           uint32_t samples, uint32_t width)
{
    uint32_t channels = (uint32_t)a->call.batch_norm.channels;
    uint32_t count = (uint32_t)a->call.batch_norm.inner / width * samples;
    uint32_t share = (count + a->parts - 1) / a->parts;
    struct channel_part at;

    at.c = unit % channels;
    at.part = unit / channels;
    at.first = at.part * share < count ? at.part * share : count;
    at.end = at.first + share < count ? at.first + share : count;
    return at;
}

// The way of a thread through a part: group i is group r of the channel's plane of sample n.
struct walk {
    uint32_t i, n, r;
};

DEVICE struct walk walk_begin(const struct cuda_args *a, const struct team *team,
                              const struct channel_part *at, uint32_t width)
{
    uint32_t inner = (uint32_t)a->call.batch_norm.inner / width;
    struct walk w;

    w.i = at->first + team->lane;
    w.n = w.i / inner;
    w.r = w.i % inner;
    return w;
}

// Goes on by the width of the team.
DEVICE void walk_on(const struct cuda_args *a, const struct team *team, struct walk *w,
                    uint32_t width)
{
    uint32_t inner = (uint32_t)a->call.batch_norm.inner / width;

    w->i += team->width;
    w->n += team->width / inner;
    w->r += team->width % inner;
    if (w->r >= inner) {
        w->r -= inner;
        w->n++;
    }
}

// Returns the first word of a group of channel c.
DEVICE size_t walk_word(const struct cuda_args *a, const struct walk *w, uint32_t c, size_t stride,
                        uint32_t width)
{
    return w->n * stride + (size_t)c * a->call.batch_norm.inner + (size_t)w->r * width;
}

// Adds up f(x) of a part, where f is x, or with squares the square of x - mean.
DEVICE float sum_of(const struct cuda_args *a, const struct team *team,
                    const struct channel_part *at, uint32_t width, bool squares, float mean)
{
    float sum = 0;

    for (struct walk w = walk_begin(a, team, at, width); w.i < at->end;) {
        struct group x[AHEAD];

        UNROLL
        for (uint32_t k = 0; k < AHEAD; k++) {
            bool inside = w.i < at->end;

            if (inside)
                x[k] = load_group(a->in[0] + walk_word(a, &w, at->c, a->call.in[0].stride, width),
                                  width);
            UNROLL
            for (uint32_t e = 0; e < 4; e++)
                if (!inside)
                    x[k].at[e] = mean;
            walk_on(a, team, &w, width);
        }
        UNROLL
        for (uint32_t k = 0; k < AHEAD; k++) {
            UNROLL
            for (uint32_t e = 0; e < width; e++) {
                float d = x[k].at[e] - mean;

                sum += squares ? d * d : d;
            }
        }
    }
    return team_sum(team, sum);
}

// Finds the mean of a part, and the sum of the squares of the distances to it.
DEVICE void moments_of(const struct cuda_args *a, const struct team *team,
                       const struct channel_part *at, uint32_t width, float *mean, float *squares)
{
    uint32_t count = (at->end - at->first) * width;

    *mean = sum_of(a, team, at, width, false, 0) / (float)(count ? count : 1);
    *squares = sum_of(a, team, at, width, true, *mean);
}

DEVICE void moments_of_parts(const struct cuda_args *a, uint32_t width)
{
    uint32_t channels = (uint32_t)a->call.batch_norm.channels, total = channels * a->parts;
    struct team team = team_of(a);

    for (uint32_t unit = team.first; unit < total; unit += team.step) {
        struct channel_part at = channel_part_of(a, unit, run_samples(a), width);
        float mean, squares;

        moments_of(a, &team, &at, width, &mean, &squares);
        if (team.lane == 0) {
            a->workspace[at.c * a->parts + at.part] = mean;
            a->workspace[total + at.c * a->parts + at.part] = squares;
        }
    }
}

// For channels of several parts. The parts of a channel lie side by side in the workspace: all
// means, then all squares.
KERNEL(batch_norm_parts)
{
    if (by_fours(&a))
        moments_of_parts(&a, 4);
    else
        moments_of_parts(&a, 1);
}

// Joins the parts of a channel, in their order (Chan, Golub and LeVeque 1979).
DEVICE void join_parts(const struct cuda_args *a, uint32_t c, uint32_t width, float *mean,
                       float *squares)
{
    uint32_t channels = (uint32_t)a->call.batch_norm.channels;
    const float *means = a->workspace + c * a->parts, *others = means + channels * a->parts;
    float count = 0;

    *mean = *squares = 0;
    for (uint32_t part = 0; part < a->parts; part++) {
        struct channel_part at = channel_part_of(a, part * channels + c, run_samples(a), width);
        float more = (float)((at.end - at.first) * width), all = count + more,
              d = means[part] - *mean;

        if (at.end == at.first)
            break;
        *mean += d * (more / all);
        *squares += others[part] + d * d * (count * more / all);
        count = all;
    }
}

// Finds the statistics of a channel, in all threads of the team.
DEVICE void statistics_of(const struct cuda_args *a, const struct team *team, uint32_t c,
                          uint32_t width, float *mean, float *variance)
{
    struct channel_part at;

    if (a->call.batch_norm.frozen) {
        *mean = a->in[3][c];
        *variance = a->in[4][c] < 0 ? 0 : a->in[4][c];
        return;
    }
    if (a->parts > 1) {
        join_parts(a, c, width, mean, variance);
    } else {
        at = channel_part_of(a, c, run_samples(a), width);
        moments_of(a, team, &at, width, mean, variance);
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

// Normalizes a part of a channel: y = x factor + offset, and the residual.
DEVICE void normalize(const struct cuda_args *a, const struct team *team,
                      const struct channel_part *at, uint32_t width, float mean, float factor,
                      float offset)
{
    for (struct walk w = walk_begin(a, team, at, width); w.i < at->end;) {
        struct walk place = w;
        struct group x[AHEAD], more[AHEAD];

        UNROLL
        for (uint32_t k = 0; k < AHEAD; k++) {
            if (w.i < at->end)
                x[k] = load_group(a->in[0] + walk_word(a, &w, at->c, a->call.in[0].stride, width),
                                  width);
            if (w.i < at->end && a->in[5])
                more[k] = load_group(
                    a->in[5] + walk_word(a, &w, at->c, a->call.in[5].stride, width), width);
            walk_on(a, team, &w, width);
        }
        UNROLL
        for (uint32_t k = 0; k < AHEAD; k++) {
            struct group y;

            if (place.i >= at->end)
                break;
            UNROLL
            for (uint32_t e = 0; e < width; e++) {
                y.at[e] = (x[k].at[e] - mean) * factor + offset;
                if (a->in[5])
                    y.at[e] += more[k].at[e];
                if (a->call.batch_norm.relu)
                    y.at[e] = y.at[e] < 0 ? 0 : y.at[e];
            }
            store_group(a->out[0] + walk_word(a, &place, at->c, a->call.out[0].stride, width), &y,
                        width);
            walk_on(a, team, &place, width);
        }
    }
}

// A team normalizes a part of a channel. It finds the channel's statistics itself: of a channel
// that is one part from x, else from what batch_norm_parts left.
DEVICE void normalize_parts(const struct cuda_args *a, uint32_t width)
{
    const struct cn_batch_norm *op = &a->call.batch_norm;
    uint32_t total = (uint32_t)op->channels * a->parts;
    struct team team = team_of(a);

    for (uint32_t unit = team.first; unit < total; unit += team.step) {
        struct channel_part at = channel_part_of(a, unit, a->samples, width);
        float mean, variance;

        statistics_of(a, &team, at.c, width, &mean, &variance);
        if (at.part == 0 && team.lane == 0)
            keep_statistics(a, at.c, mean, variance);
        normalize(a, &team, &at, width, mean, 1 / sqrtf(variance + op->epsilon) * a->in[1][at.c],
                  a->in[2][at.c]);
    }
}

KERNEL(batch_norm)
{
    if (by_fours(&a))
        normalize_parts(&a, 4);
    else
        normalize_parts(&a, 1);
}

// What the gradient reads of a group: dy, or 0 where the rectifier cut y; (x - mean) inverse.
struct norm_group {
    struct group dy, h;
};

// Reads the next groups; those behind the part's end become 0.
DEVICE void read_groups(const struct cuda_args *a, const struct team *team,
                        const struct channel_part *at, struct walk *w, uint32_t width,
                        struct norm_group g[AHEAD])
{
    const struct cn_batch_norm *op = &a->call.batch_norm;
    float mean = a->in[3][at->c], inverse = a->in[3][op->channels + at->c];
    struct group y[AHEAD];
    struct walk place = *w;

    UNROLL
    for (uint32_t k = 0; k < AHEAD; k++) {
        if (w->i < at->end) {
            g[k].dy =
                load_group(a->in[0] + walk_word(a, w, at->c, a->call.in[0].stride, width), width);
            g[k].h =
                load_group(a->in[1] + walk_word(a, w, at->c, a->call.in[1].stride, width), width);
            if (op->relu)
                y[k] = load_group(a->in[4] + walk_word(a, w, at->c, a->call.in[4].stride, width),
                                  width);
        }
        walk_on(a, team, w, width);
    }
    UNROLL
    for (uint32_t k = 0; k < AHEAD; k++) {
        bool inside = place.i < at->end;

        UNROLL
        for (uint32_t e = 0; e < width; e++) {
            bool passes = inside && (!op->relu || y[k].at[e] > 0);

            g[k].h.at[e] = inside ? (g[k].h.at[e] - mean) * inverse : 0;
            g[k].dy.at[e] = passes ? g[k].dy.at[e] : 0;
        }
        place.i += team->width;
    }
}

// Adds up a part's dy (dbeta) and dy h (dgamma).
DEVICE void add_gradients(const struct cuda_args *a, const struct team *team,
                          const struct channel_part *at, uint32_t width, float *beta, float *gamma)
{
    struct norm_group g[AHEAD];

    *beta = *gamma = 0;
    for (struct walk w = walk_begin(a, team, at, width); w.i < at->end;) {
        read_groups(a, team, at, &w, width, g);
        UNROLL
        for (uint32_t k = 0; k < AHEAD; k++) {
            UNROLL
            for (uint32_t e = 0; e < width; e++) {
                *beta += g[k].dy.at[e];
                *gamma += g[k].dy.at[e] * g[k].h.at[e];
            }
        }
    }
    *beta = team_sum(team, *beta);
    *gamma = team_sum(team, *gamma);
}

DEVICE void add_gradients_of_parts(const struct cuda_args *a, uint32_t width)
{
    uint32_t channels = (uint32_t)a->call.batch_norm.channels, total = channels * a->parts;
    struct team team = team_of(a);

    for (uint32_t unit = team.first; unit < total; unit += team.step) {
        struct channel_part at = channel_part_of(a, unit, run_samples(a), width);
        float beta, gamma;

        add_gradients(a, &team, &at, width, &beta, &gamma);
        if (team.lane == 0) {
            a->workspace[at.c * a->parts + at.part] = beta;
            a->workspace[total + at.c * a->parts + at.part] = gamma;
        }
    }
}

// For channels of several parts. The parts of a channel lie side by side in the workspace: all
// sums for dbeta, then those for dgamma.
KERNEL(batch_norm_grad_parts)
{
    if (by_fours(&a))
        add_gradients_of_parts(&a, 4);
    else
        add_gradients_of_parts(&a, 1);
}

// Finds the sums of a channel, in all threads of the team.
DEVICE void gradients_of(const struct cuda_args *a, const struct team *team, uint32_t c,
                         uint32_t width, float *beta, float *gamma)
{
    uint32_t total = (uint32_t)a->call.batch_norm.channels * a->parts;
    struct channel_part at;

    if (a->parts == 1) {
        at = channel_part_of(a, c, run_samples(a), width);
        add_gradients(a, team, &at, width, beta, gamma);
        return;
    }
    *beta = *gamma = 0;
    for (uint32_t part = 0; part < a->parts; part++) {
        *beta += a->workspace[c * a->parts + part];
        *gamma += a->workspace[total + c * a->parts + part];
    }
}

// Writes the gradients of a part: dx = gamma inverse (dy - mean dy - h mean(dy h)), or gamma
// inverse dy when frozen, and dy. Those of samples beyond the batch are 0.
DEVICE void put_gradients(const struct cuda_args *a, const struct team *team,
                          const struct channel_part *at, uint32_t width, float beta, float gamma)
{
    const struct cn_batch_norm *op = &a->call.batch_norm;
    float share = 1 / (float)((uint32_t)op->inner * run_samples(a));
    float factor = a->in[2][at->c] * a->in[3][op->channels + at->c];

    for (struct walk w = walk_begin(a, team, at, width); w.i < at->end;) {
        struct norm_group g[AHEAD];
        struct walk place = w;

        read_groups(a, team, at, &w, width, g);
        UNROLL
        for (uint32_t k = 0; k < AHEAD; k++) {
            bool counts = place.n < run_samples(a);
            struct group dx, dy;

            if (place.i >= at->end)
                break;
            UNROLL
            for (uint32_t e = 0; e < width; e++) {
                dy.at[e] = counts ? g[k].dy.at[e] : 0;
                dx.at[e] = g[k].dy.at[e];
                if (!op->frozen)
                    dx.at[e] -= share * (beta + g[k].h.at[e] * gamma);
                dx.at[e] = counts ? dx.at[e] * factor : 0;
            }
            if (a->out[0])
                store_group(a->out[0] + walk_word(a, &place, at->c, a->call.out[0].stride, width),
                            &dx, width);
            if (a->out[3])
                store_group(a->out[3] + walk_word(a, &place, at->c, a->call.out[3].stride, width),
                            &dy, width);
            walk_on(a, team, &place, width);
        }
    }
}

// The sums come from where batch_norm has its statistics from.
DEVICE void put_gradients_of_parts(const struct cuda_args *a, uint32_t width)
{
    uint32_t total = (uint32_t)a->call.batch_norm.channels * a->parts;
    struct team team = team_of(a);

    for (uint32_t unit = team.first; unit < total; unit += team.step) {
        struct channel_part at = channel_part_of(a, unit, a->samples, width);
        float beta, gamma;

        gradients_of(a, &team, at.c, width, &beta, &gamma);
        if (at.part == 0 && team.lane == 0 && a->out[1])
            put(&a->out[1][at.c], gamma, adds(a));
        if (at.part == 0 && team.lane == 0 && a->out[2])
            put(&a->out[2][at.c], beta, adds(a));
        if (a->out[0] || a->out[3])
            put_gradients(a, &team, &at, width, beta, gamma);
    }
}

KERNEL(batch_norm_grad)
{
    if (by_fours(&a))
        put_gradients_of_parts(&a, 4);
    else
        put_gradients_of_parts(&a, 1);
}
