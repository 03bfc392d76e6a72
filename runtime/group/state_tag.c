#include "runtime/group/state_tag.h"

#include <string.h>

bool cn_state_tag_same(const struct cn_state_tag *a, const struct cn_state_tag *b)
{
    return a->lineage == b->lineage && a->run == b->run && a->round == b->round &&
           a->phase == b->phase && a->step == b->step && a->samples == b->samples &&
           a->counted_round == b->counted_round && a->counted_own == b->counted_own &&
           memcmp(a->counted, b->counted, sizeof(a->counted)) == 0 &&
           memcmp(a->frame, b->frame, sizeof(a->frame)) == 0;
}

static int compare_numbers(uint64_t a, uint64_t b)
{
    return a < b ? -1 : a > b;
}

static int compare_runs(const struct cn_state_tag *a, const struct cn_state_tag *b)
{
    int order = compare_numbers(a->lineage, b->lineage);

    return order ? order : compare_numbers(a->run, b->run);
}

static int compare_progress(const struct cn_state_tag *a, const struct cn_state_tag *b)
{
    int order = compare_numbers(a->round, b->round);

    if (!order)
        order = compare_numbers(a->phase, b->phase);
    if (!order)
        order = compare_numbers(a->step, b->step);
    if (!order)
        order = compare_numbers(a->samples, b->samples);
    return order;
}

// Returns the tag that knows the newest update that counts.
static const struct cn_state_tag *find_witness(const struct cn_state_tag *const *tags,
                                               uint32_t count)
{
    const struct cn_state_tag *witness = tags[0];
    int order;

    for (uint32_t i = 1; i < count; i++) {
        order = compare_runs(tags[i], witness);
        if (!order)
            order = compare_numbers(tags[i]->counted_round, witness->counted_round);
        if (order > 0)
            witness = tags[i];
    }
    return witness;
}

// Returns true if the update that counts was made from this state or waits in its outbox.
static bool is_counted(const struct cn_state_tag *tag, const struct cn_state_tag *witness)
{
    if (tag->counted_round == witness->counted_round)
        return !tag->counted_round || tag->counted_own;
    return tag->round == witness->counted_round &&
           memcmp(tag->frame, witness->counted, sizeof(tag->frame)) == 0;
}

uint32_t cn_state_tag_choose(const struct cn_state_tag *const *tags, uint32_t count)
{
    const struct cn_state_tag *witness = find_witness(tags, count);
    uint32_t chosen = UINT32_MAX;

    for (uint32_t i = 0; i < count; i++) {
        int order = chosen == UINT32_MAX ? 1 : compare_runs(tags[i], tags[chosen]);

        if (!order && !compare_runs(tags[i], witness))
            order = is_counted(tags[i], witness) - is_counted(tags[chosen], witness);
        if (!order)
            order = compare_progress(tags[i], tags[chosen]);
        if (order > 0)
            chosen = i;
    }
    return chosen;
}
