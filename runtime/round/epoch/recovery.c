#include "runtime/round/epoch/recovery.h"

#include "runtime/round/checkpoint/checkpoint.h"

static bool same_round(const struct cn_state_tag *a, const struct cn_state_tag *b)
{
    return a->lineage == b->lineage && a->run == b->run && a->round == b->round &&
           a->phase == CN_PHASE_TRAIN && b->phase == CN_PHASE_TRAIN;
}

enum cn_recovery_action cn_recovery_decide(const struct cn_recovery_row *own,
                                           const struct cn_recovery_row *newest)
{
    if (!own->holds)
        return CN_RECOVERY_NOTHING;
    return same_round(&own->tag, &newest->tag) && newest->tag.step == own->tag.step + 1 &&
                   newest->applied == own->holds
               ? CN_RECOVERY_ROLL_FORWARD
               : CN_RECOVERY_DROP;
}

uint32_t cn_recovery_source(const struct cn_recovery_row *rows, uint32_t count, uint32_t newest)
{
    uint32_t source = rows[newest].unable ? count : newest;

    for (uint32_t r = 0; r < count; r++)
        if (!rows[r].unable && cn_state_tag_same(&rows[r].tag, &rows[newest].tag) &&
            (source == count || rows[r].busy_us <= rows[source].busy_us))
            source = r;
    return source;
}
