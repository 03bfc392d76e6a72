#include "transport/measure.h"

#define CHUNKS_MIN 8  // of a transfer that counts
#define ROUND_TRIPS 2 // declaration and commit, or request and last answer
#define WEIGHT 0.25

static double rate_of(const struct cn_link_measure *measure, const struct cn_measure_sample *sample)
{
    uint64_t idle_us = ROUND_TRIPS * measure->rtt_us;
    uint64_t elapsed_us = sample->elapsed_us ? sample->elapsed_us : 1;

    // At most half of the time is taken for waiting: the round trip is an average, too.
    elapsed_us -= idle_us < elapsed_us / 2 ? idle_us : elapsed_us / 2;
    return 8e6 * (double)sample->size / (double)elapsed_us;
}

static void add(double *mean, double *deviation, double sample)
{
    double distance = sample > *mean ? sample - *mean : *mean - sample;

    if (*mean <= 0) {
        *mean = sample;
        *deviation = sample / 4;
        return;
    }
    *deviation += WEIGHT * (distance - *deviation);
    *mean += WEIGHT * (sample - *mean);
}

static void add_loss(struct cn_link_measure *measure, const struct cn_measure_sample *sample)
{
    double again = sample->sent > sample->chunks ? (double)(sample->sent - sample->chunks) : 0;

    measure->loss += WEIGHT * (again / (double)(sample->sent ? sample->sent : 1) - measure->loss);
}

void cn_measure_up(struct cn_link_measure *measure, const struct cn_measure_sample *sample)
{
    if (sample->chunks < CHUNKS_MIN)
        return;
    add(&measure->up_bps, &measure->up_deviation_bps, rate_of(measure, sample));
    add_loss(measure, sample);
}

void cn_measure_down(struct cn_link_measure *measure, const struct cn_measure_sample *sample)
{
    double deviation = 0;

    if (sample->chunks < CHUNKS_MIN)
        return;
    add(&measure->down_bps, &deviation, rate_of(measure, sample));
    add_loss(measure, sample);
}
