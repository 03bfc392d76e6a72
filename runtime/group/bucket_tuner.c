#include "runtime/group/bucket_tuner.h"

#include <math.h>

#define SMALL 4096   // bytes
#define BACKWARD 0.6 // of a step's computing time; about two thirds in most models

static void keep_smallest(double *least, double value)
{
    if (value > 0 && (!(*least > 0) || value < *least))
        *least = value;
}

void cn_bucket_tuner_add(struct cn_bucket_tuner *tuner, size_t bytes, double us)
{
    if (bytes <= SMALL)
        keep_smallest(&tuner->latency_us, us);
    else
        keep_smallest(&tuner->byte_us, us / (double)bytes);
}

static size_t best(const struct cn_bucket_tuner *tuner, size_t total, double compute_us)
{
    double made_us = BACKWARD * compute_us / (double)total;
    double byte_us = tuner->byte_us > made_us ? tuner->byte_us : made_us;
    double size = sqrt(tuner->latency_us * (double)total / byte_us);

    if (size > (double)total)
        return total;
    return size > CN_BUCKET_LEAST ? (size_t)size : CN_BUCKET_LEAST;
}

size_t cn_bucket_tuner_step(struct cn_bucket_tuner *tuner, size_t total, double compute_us,
                            size_t now)
{
    size_t wanted = now;

    if (++tuner->steps < CN_TUNER_STEPS)
        return now;
    if (total && tuner->latency_us > 0 && tuner->byte_us > 0)
        wanted = best(tuner, total, compute_us);
    *tuner = (struct cn_bucket_tuner){0};
    return wanted > now + now / 2 || wanted < now - now / 3 ? wanted : now;
}
