#include "runtime/group/bucket_tuner.h"

#include <math.h>

#define SMALL 4096   // bytes: calls up to this size measure the latency
#define BACKWARD 0.6 // backward pass / time of a micro-batch; about two thirds in most models
#define MOST 64      // most buckets of a step
#define SHIFT 1.25   // a link this many times slower or faster has changed
#define WORTH 0.95   // smaller buckets have to wait less than this share of the best wait so far
#define CHANGE 0.9   // a new choice has to wait less than this share of the present wait

void cn_bucket_tuner_add(struct cn_bucket_tuner *tuner, size_t bytes, double us)
{
    if (!(us > 0))
        return;
    if (bytes <= SMALL) {
        if (!(tuner->latency_us > 0) || us < tuner->latency_us)
            tuner->latency_us = us;
    } else if (!(tuner->call_us > 0) || us * tuner->call_bytes < tuner->call_us * (double)bytes) {
        tuner->call_us = us;
        tuner->call_bytes = (double)bytes;
    }
}

double cn_bucket_tuner_exposed(const struct cn_bucket_costs *costs, size_t total, double made_us,
                               const struct cn_bucket_choice *choice)
{
    size_t done = 0, size = choice->bucket;
    double free_us = 0; // time from which the link is free

    while (done < total) {
        double made_at;

        size = size < total - done ? size : total - done;
        done += size;
        made_at = made_us * (double)done;
        free_us = (free_us > made_at ? free_us : made_at) + costs->latency_us +
                  costs->byte_us * (double)size;
        size = choice->bucket * choice->window;
    }
    return free_us - made_us * (double)total;
}

// Tries large buckets first: they disturb the backward pass least.
static struct cn_bucket_choice best(const struct cn_bucket_costs *costs, size_t total,
                                    double made_us)
{
    struct cn_bucket_choice found = {total, 1};
    double least = cn_bucket_tuner_exposed(costs, total, made_us, &found);

    for (size_t bucket = total / 2; bucket >= CN_BUCKET_LEAST && bucket >= total / MOST;
         bucket /= 2)
        for (uint32_t window = 1; window <= CN_WINDOW_MOST; window *= 2) {
            const struct cn_bucket_choice choice = {bucket, window};
            double exposed = cn_bucket_tuner_exposed(costs, total, made_us, &choice);

            if (exposed >= WORTH * least)
                continue;
            found = choice;
            least = exposed;
        }
    return found;
}

// Makes the costs of the span. The latency is subtracted from a call's time; the rest is at least
// 0.
static struct cn_bucket_costs end_span(struct cn_bucket_tuner *tuner)
{
    double rest = tuner->call_us - tuner->latency_us;
    struct cn_bucket_costs costs = {tuner->latency_us, 0};

    if (tuner->call_bytes > 0)
        costs.byte_us = fmax(rest, 0.1 * tuner->call_us) / tuner->call_bytes;
    tuner->steps = 0;
    tuner->latency_us = tuner->call_us = tuner->call_bytes = 0;
    return costs;
}

static bool is_away(const struct cn_bucket_costs *settled, const struct cn_bucket_costs *now)
{
    return now->byte_us > SHIFT * settled->byte_us || now->byte_us * SHIFT < settled->byte_us;
}

static enum cn_tuner_event watch(struct cn_bucket_tuner *tuner)
{
    if (!is_away(&tuner->settled, &tuner->now)) {
        tuner->away = 0;
        return CN_TUNER_NOTHING;
    }
    if (++tuner->away < CN_TUNER_SPANS)
        return CN_TUNER_NOTHING;
    tuner->away = 0;
    tuner->shifted = true;
    return CN_TUNER_SHIFTED;
}

static enum cn_tuner_event choose(struct cn_bucket_tuner *tuner, size_t total, double compute_us,
                                  struct cn_bucket_choice *choice)
{
    double made_us = BACKWARD * compute_us / (double)total;
    struct cn_bucket_choice found = best(&tuner->now, total, made_us);

    tuner->settled = tuner->now;
    tuner->shifted = false;
    if (cn_bucket_tuner_exposed(&tuner->now, total, made_us, &found) <
        CHANGE * cn_bucket_tuner_exposed(&tuner->now, total, made_us, choice))
        *choice = found;
    return CN_TUNER_CHOSE;
}

enum cn_tuner_event cn_bucket_tuner_step(struct cn_bucket_tuner *tuner, size_t total,
                                         double compute_us, struct cn_bucket_choice *choice)
{
    bool searches = tuner->shifted || !(tuner->settled.byte_us > 0);

    if (++tuner->steps < CN_TUNER_STEPS)
        return CN_TUNER_NOTHING;
    tuner->now = end_span(tuner);
    if (!total || !(tuner->now.latency_us > 0) || !(tuner->now.byte_us > 0))
        return CN_TUNER_NOTHING;
    return searches ? choose(tuner, total, compute_us, choice) : watch(tuner);
}
