#include "aggregator/merge/normalize.h"

#include <math.h>
#include <stdlib.h>

#include "runtime/update/update.h"

double cn_normalize_distance(const struct cn_job *job, uint64_t steps)
{
    double pull = job->learning_rate * job->rules.proximal, momentum = job->momentum;
    double distance = 0, velocity = 0;

    for (uint64_t i = 0; i < steps; i++) {
        double pulled = pull * distance, gradient = 1 - pulled, kept = momentum * velocity;

        velocity = kept + gradient;
        kept = momentum * velocity;
        distance = distance + (job->rules.nesterov ? gradient + kept : velocity);
    }
    return distance >= 1 ? distance : 1; // also when proximal made the distance NaN
}

bool cn_normalize_holds(const struct cn_job *job, const struct cn_caps_entry *entries, size_t count)
{
    if (job->server.normalize != CN_NORMALIZE_STEPS)
        return false;
    for (size_t i = 0; i < count; i++)
        if (entries[i].steps == 0) // accepted before the job normalized
            return false;
    return true;
}

// Returns d: the length of the direction of an update, in the least steps of the round.
static double length_of(const struct cn_job *job, const struct cn_caps_entry *entry, double least,
                        uint64_t norm_max)
{
    uint64_t norm = norm_max && entry->norm > norm_max ? norm_max : entry->norm;

    return (double)norm * (least / cn_normalize_distance(job, entry->steps));
}

static int compare_numbers(const void *a, const void *b)
{
    double left = *(const double *)a, right = *(const double *)b;

    return left < right ? -1 : left > right;
}

static double median(double *numbers, size_t count)
{
    qsort(numbers, count, sizeof(*numbers), compare_numbers);
    return numbers[(count - 1) / 2];
}

// Returns what d may be at most.
static double longest_direction(const struct cn_job *job, const struct cn_caps_entry *entries,
                                size_t count, double least, uint64_t norm_max, double *scratch)
{
    size_t moving = 0;

    for (size_t i = 0; scratch && i < count; i++)
        if (entries[i].norm)
            scratch[moving++] = length_of(job, &entries[i], least, norm_max);
    return moving < CN_CAPS_LEAST ? INFINITY : 1.25 * median(scratch, moving);
}

// Returns what an A counts as at most in the length of the version's step.
static double longest_distance(const struct cn_job *job, const struct cn_caps_entry *entries,
                               size_t count, double *scratch)
{
    for (size_t i = 0; scratch && i < count; i++)
        scratch[i] = cn_normalize_distance(job, entries[i].steps);
    return scratch && count ? 2 * median(scratch, count) : INFINITY;
}

void cn_normalize_find(const struct cn_job *job, struct cn_caps_entry *entries, size_t count,
                       uint64_t norm_max, double *scratch, float *factor)
{
    uint64_t most = CN_UPDATE_WEIGHT_MAX / CN_NORMALIZE_UNIT / (count ? count : 1);
    double far = longest_distance(job, entries, count, scratch);
    double least = INFINITY, distances = 0, weights = 0;

    for (size_t i = 0; i < count; i++) {
        double distance = cn_normalize_distance(job, entries[i].steps);

        if (entries[i].weight > most)
            entries[i].weight = most ? most : 1;
        if (entries[i].left_out)
            continue;
        least = distance < least ? distance : least;
        distances = distances + (double)entries[i].weight * (distance < far ? distance : far);
        weights = weights + (double)entries[i].weight;
    }
    double longest = longest_direction(job, entries, count, least, norm_max, scratch);
    for (size_t i = 0; i < count; i++) {
        double distance = cn_normalize_distance(job, entries[i].steps);
        double parts = (double)entries[i].weight * CN_NORMALIZE_UNIT * least / distance;
        double length = length_of(job, &entries[i], least, norm_max);

        if (length > longest)
            parts = parts * longest / length;
        entries[i].trained = parts >= 1 ? (uint64_t)parts : 1;
    }
    *factor = weights > 0 ? (float)(distances / weights / least) : 1;
}

void cn_normalize_scale(const struct cn_layout *layout, float factor, float *mean)
{
    for (size_t t = 0; t < layout->tensor_count; t++) {
        const struct cn_tensor_info *tensor = &layout->tensors[t];

        for (size_t i = 0; tensor->class == CN_TENSOR_PARAM && i < tensor->count; i++)
            mean[tensor->offset + i] *= factor;
    }
}
