// job_events.h - finds events in the runs of submitted jobs.
#pragma once

#include "aggregator/daemon/job_set.h"
#include "aggregator/serve/event_service.h"

// Looks at all runs that are open, except that of the first job. Call it after each step of the set
// and of the events.
void cn_job_events_look(struct cn_job_set *set, struct cn_event_service *events, uint64_t now_ms);
// Looks at an open run before it is closed: else up to a second of its events would be lost. When
// the program ends, that second is lost: the next one begins with the state that it finds.
void cn_job_events_last(struct cn_job_slot *slot, uint64_t now_ms);
