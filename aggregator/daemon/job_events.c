#include "aggregator/daemon/job_events.h"

static struct cn_event_run_source source_of(const struct cn_job_slot *slot)
{
    return (struct cn_event_run_source){
        .job = &slot->run->setup.job,
        .ledger = slot->run->setup.ledger,
        .models = slot->run->models,
        .run = slot->run->run,
        .live = &slot->run->live,
        .state = &slot->state,
        .trouble = slot->run->trouble ? slot->run->trouble : slot->state.trouble,
    };
}

void cn_job_events_look(struct cn_job_set *set, struct cn_event_service *events, uint64_t now_ms)
{
    for (size_t i = 1; i < set->count; i++) {
        struct cn_job_slot *slot = &set->slots[i];
        if (!slot->run)
            continue;
        const struct cn_event_run_source from = source_of(slot);
        cn_event_service_job(events, &slot->events, slot->row.name, &from, now_ms);
    }
}

void cn_job_events_last(struct cn_job_slot *slot, uint64_t now_ms)
{
    const struct cn_event_run_source from = source_of(slot);
    cn_event_service_job_last(&slot->events, &from, now_ms);
}
