#include "runtime/group/auto_layout.h"

#include <inttypes.h>
#include <stdio.h>

#define BACKWARD 0.6 // share of a micro-batch's computing time that can hide the transfer
#define EXPOSED 0.25 // largest wait for the transfer, as a share of the computing time

static uint64_t needs(const struct cn_auto_member *member, uint32_t stage, uint32_t shards)
{
    const struct cn_auto_need *need = &member->needs[stage - 1];

    return need->whole + need->shared / shards + (need->shared % shards > 0);
}

// Finds the member with the least memory to spare. Returns false when a member has too little.
static bool fits(const struct cn_auto_facts *facts, uint32_t stage, uint32_t shards,
                 struct cn_auto_tightest *tightest)
{
    int64_t least = INT64_MAX;

    *tightest = (struct cn_auto_tightest){0};
    for (uint32_t m = 0; m < facts->count; m++) {
        const struct cn_auto_member *member = &facts->members[m];
        uint64_t wanted = needs(member, stage, shards);
        int64_t spare = (int64_t)member->limit - (int64_t)wanted;

        if (!member->limit || spare >= least)
            continue;
        least = spare;
        *tightest = (struct cn_auto_tightest){m, member->limit, wanted};
    }
    return least >= 0;
}

static bool choose_shards(const struct cn_auto_facts *facts, struct cn_auto_layout *layout)
{
    for (int even = 1; even >= 0; even--) // numbers that leave no member over come first
        for (uint32_t shards = layout->stage > 1 ? 2 : 1; shards <= facts->count; shards++) {
            layout->shards = shards;
            if ((!even || facts->count % shards == 0) &&
                fits(facts, layout->stage, shards, &layout->tightest))
                return true;
        }
    return false;
}

static void choose_stage(const struct cn_auto_facts *facts, struct cn_auto_layout *layout)
{
    for (layout->stage = 1; layout->stage <= CN_AUTO_STAGES; layout->stage++) {
        layout->fits = choose_shards(facts, layout);
        if (layout->fits)
            return;
        fits(facts, layout->stage, facts->count, &layout->lower);
    }
    layout->stage = 1;
    layout->shards = facts->count;
    fits(facts, layout->stage, layout->shards, &layout->tightest);
}

// In a ring each member sends 2 (n - 1) / n of the bytes. One kbit/s is one bit per ms.
static uint64_t wire_us(const struct cn_auto_facts *facts, uint32_t count)
{
    if (!facts->link_kbps || count < 2)
        return 0;
    return (uint64_t)(16000.0 * (count - 1) / count * (double)facts->gradients /
                      (double)facts->link_kbps);
}

// Returns the part of the transfer that happens once in a step, for any number of micro-batches: in
// stage 2 only the weights, in stage 3 nothing.
static double once_us(const struct cn_auto_layout *layout)
{
    static const double shares[CN_AUTO_STAGES] = {1, 0.5, 0};

    return shares[layout->stage - 1] * (double)layout->wire_us;
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
    waits = once_us(layout) - (layout->shards == 1 ? BACKWARD * computes : 0);
    layout->micro = facts->micro;
    while (computes > 0 && waits > EXPOSED * computes * layout->micro && 2 * layout->micro <= most)
        layout->micro *= 2;
}

void cn_auto_layout_choose(const struct cn_auto_facts *facts, struct cn_auto_layout *layout)
{
    *layout = (struct cn_auto_layout){0};
    choose_stage(facts, layout);
    layout->replicas = facts->count / layout->shards;
    choose_micro(facts, layout);
}

static void put_memory(const struct cn_auto_layout *layout, const char *const *names, char *text,
                       size_t size)
{
    const struct cn_auto_tightest *tightest = &layout->tightest, *lower = &layout->lower;
    int length;

    if (!tightest->has) {
        snprintf(text, size, "no member says how much memory it has");
        return;
    }
    length = snprintf(text, size, "%" PRIu64 " KiB of %" PRIu64 " KiB on %.63s%s",
                      tightest->needs >> 10, tightest->has >> 10, names[tightest->member],
                      layout->fits ? "" : ", too much: it computes twice or in parts");
    if (layout->stage > 1)
        snprintf(text + length, size - (size_t)length,
                 ", stage %u would take %" PRIu64 " KiB of %.63s", layout->stage - 1,
                 lower->needs >> 10, names[lower->member]);
}

void cn_auto_layout_text(const struct cn_auto_layout *layout, const char *const *names, char *text,
                         size_t size)
{
    char memory[300], stage[24] = "";

    put_memory(layout, names, memory, sizeof(memory));
    if (layout->shards > 1)
        snprintf(stage, sizeof(stage), ", stage %u", layout->stage);
    snprintf(text, size,
             "%u replica%s of %u shard%s%s, %u micro-batch%s a step: %s; %.3g ms for a "
             "micro-batch, %.3g ms for gradients on the wire",
             layout->replicas, layout->replicas == 1 ? "" : "s", layout->shards,
             layout->shards == 1 ? "" : "s", stage, layout->micro, layout->micro == 1 ? "" : "es",
             memory, 1e-3 * (double)layout->micro_us, 1e-3 * (double)layout->wire_us);
}
