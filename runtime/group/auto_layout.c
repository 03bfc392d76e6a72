#include "runtime/group/auto_layout.h"

#include <stdio.h>

#define BACKWARD 0.6 // of a micro-batch's computing time, beside which gradients travel
#define EXPOSED 0.25 // of the computing: what may be waited for the wire

static uint64_t needs(const struct cn_auto_member *member, uint32_t shards)
{
    return member->needs + member->state / shards + (member->state % shards > 0);
}

// Finds the member with the least to spare; false when one has too little.
static bool fits(const struct cn_auto_facts *facts, uint32_t shards, struct cn_auto_layout *layout)
{
    int64_t least = INT64_MAX;

    layout->tightest_has = 0;
    for (uint32_t m = 0; m < facts->count; m++) {
        const struct cn_auto_member *member = &facts->members[m];
        int64_t spare = (int64_t)member->limit - (int64_t)needs(member, shards);

        if (!member->limit || spare >= least)
            continue;
        least = spare;
        layout->tightest = m;
        layout->tightest_has = member->limit;
        layout->tightest_needs = needs(member, shards);
    }
    return least >= 0;
}

static void choose_shards(const struct cn_auto_facts *facts, struct cn_auto_layout *layout)
{
    layout->fits = true;
    for (int even = 1; even >= 0; even--) // first those that leave nobody over
        for (uint32_t shards = 1; shards <= facts->count; shards++) {
            layout->shards = shards;
            if ((!even || facts->count % shards == 0) && fits(facts, shards, layout))
                return;
        }
    layout->shards = facts->count;
    layout->fits = fits(facts, facts->count, layout);
}

// A ring sends 2 (n - 1) / n of the bytes from each member; 8 bits a byte, kbit/s are bits a ms.
static uint64_t wire_us(const struct cn_auto_facts *facts, uint32_t count)
{
    if (!facts->link_kbps || count < 2)
        return 0;
    return (uint64_t)(16000.0 * (count - 1) / count * (double)facts->gradients /
                      (double)facts->link_kbps);
}

static void choose_micro(const struct cn_auto_facts *facts, struct cn_auto_layout *layout)
{
    uint32_t most = facts->micro > CN_AUTO_MICRO ? facts->micro : CN_AUTO_MICRO;
    double computes, waits;

    for (uint32_t m = 0; m < facts->count; m++)
        if (facts->members[m].micro_us > layout->micro_us)
            layout->micro_us = facts->members[m].micro_us;
    layout->wire_us = wire_us(facts, layout->shards * layout->replicas);
    computes = (double)layout->micro_us;
    waits = (double)layout->wire_us - (layout->shards == 1 ? BACKWARD * computes : 0);
    layout->micro = facts->micro;
    while (computes > 0 && waits > EXPOSED * computes * layout->micro && 2 * layout->micro <= most)
        layout->micro *= 2;
}

void cn_auto_layout_choose(const struct cn_auto_facts *facts, struct cn_auto_layout *layout)
{
    *layout = (struct cn_auto_layout){0};
    choose_shards(facts, layout);
    layout->replicas = facts->count / layout->shards;
    choose_micro(facts, layout);
}

void cn_auto_layout_text(const struct cn_auto_layout *layout, const char *tightest, char *text,
                         size_t size)
{
    char memory[200] = "no member says how much memory it has";

    if (layout->tightest_has)
        snprintf(memory, sizeof(memory), "%llu KiB of %llu KiB on %.63s%s",
                 (unsigned long long)layout->tightest_needs >> 10,
                 (unsigned long long)layout->tightest_has >> 10, tightest,
                 layout->fits ? "" : ", too much: it computes twice or in parts");
    snprintf(text, size,
             "%u replica%s of %u shard%s, %u micro-batch%s a step: %s; %.3g ms for a micro-batch, "
             "%.3g ms for gradients on the wire",
             layout->replicas, layout->replicas == 1 ? "" : "s", layout->shards,
             layout->shards == 1 ? "" : "s", layout->micro, layout->micro == 1 ? "" : "es", memory,
             1e-3 * (double)layout->micro_us, 1e-3 * (double)layout->wire_us);
}
