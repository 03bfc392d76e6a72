#include "aggregator/merge/caps.h"

#include <stdlib.h>

static int compare(const void *a, const void *b)
{
    uint64_t left = *(const uint64_t *)a, right = *(const uint64_t *)b;

    return left < right ? -1 : left > right;
}

// Returns the lower of the two middle values of an even number. So fewer than half of the groups
// cannot raise it above the values of all others.
static uint64_t median(const uint64_t *sorted, size_t count)
{
    return sorted[(count - 1) / 2];
}

// Limits each weight to boards * the median of weight / boards, rounded down.
static void cap_weights(struct cn_caps_entry *entries, size_t count, uint64_t *sorted,
                        struct cn_caps_result *result)
{
    for (size_t i = 0; i < count; i++)
        sorted[i] = entries[i].weight / entries[i].boards;
    qsort(sorted, count, sizeof(*sorted), compare);
    result->board_weight = median(sorted, count);
    if (result->board_weight == 0)
        result->board_weight = 1;
    for (size_t i = 0; i < count; i++) {
        uint64_t most = result->board_weight * entries[i].boards;

        if (entries[i].weight > most)
            entries[i].weight = most;
    }
}

static uint64_t norm_of(const struct cn_caps_entry *entry, bool statistics)
{
    return statistics ? entry->statistics_norm : entry->norm;
}

// Leaves out at most a quarter of the updates: those with more than 7/4 of the largest norm outside
// that quarter. Sets the limit to which the rest is scaled down: 5/4 of the median norm. Zeros are
// not counted: a group that sends nothing says nothing of how large an update is. least is the
// number of others that is needed.
static void cap_norms(struct cn_caps_entry *entries, size_t count, bool statistics, size_t least,
                      uint64_t *sorted, struct cn_caps_norms *norms)
{
    size_t moving = 0;

    for (size_t i = 0; i < count; i++)
        if (norm_of(&entries[i], statistics))
            sorted[moving++] = norm_of(&entries[i], statistics);
    if (moving < least)
        return;
    qsort(sorted, moving, sizeof(*sorted), compare);
    norms->median = median(sorted, moving);
    norms->max = norms->median + norms->median / 4;
    uint64_t next = sorted[moving - 1 - moving / 4], most = next + next / 4 * 3;
    for (size_t i = 0; i < count; i++) {
        if (statistics)
            entries[i].statistics_out = entries[i].statistics_norm > most;
        else
            entries[i].left_out = entries[i].norm > most;
    }
}

void cn_caps_find(struct cn_caps_entry *entries, size_t count, bool older, uint64_t *scratch,
                  struct cn_caps_result *result)
{
    size_t least = older ? CN_CAPS_LEAST : 1;

    *result = (struct cn_caps_result){0};
    if (count < CN_CAPS_LEAST)
        return;
    cap_weights(entries, count, scratch, result);
    cap_norms(entries, count, false, least, scratch, &result->trained);
    cap_norms(entries, count, true, least, scratch, &result->statistics);
}
