#include "aggregator/daemon/job_events.h"

void cn_job_events_look(struct cn_job_set *set, struct cn_event_service *events, uint64_t now_ms)
{
    for (size_t i = 1; i < set->count; i++) {
        struct cn_job_slot *slot = &set->slots[i];
        if (!slot->run)
            continue;
        const struct cn_event_run_source from = {
            .job = &slot->run->setup.job,
            .ledger = slot->run->setup.ledger,
            .models = slot->run->models,
            .run = slot->run->run,
            .live = &slot->run->live,
            .state = &slot->state,
            .trouble = slot->run->trouble ? slot->run->trouble : slot->state.trouble,
        };
        cn_event_service_job(events, &slot->events, slot->row.name, &from, now_ms);
    }
}
