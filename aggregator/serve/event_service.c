#include "aggregator/serve/event_service.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "aggregator/show/show.h"
#include "runtime/port/platform.h"

// --- storing and telling ---

const struct cn_event *cn_event_service_store(struct cn_event_service *service,
                                              const struct cn_event_facts *facts, uint64_t now_ms)
{
    const struct cn_event *event = cn_events_add(&service->events, facts, service->date_ms());
    if (event)
        cn_event_file_add(&service->file, event, now_ms);
    return event;
}

void cn_event_service_add(struct cn_event_service *service, const struct cn_event_facts *facts,
                          uint64_t now_ms)
{
    const struct cn_event *event = cn_event_service_store(service, facts, now_ms);
    if (event && cn_event_hook_wants(&service->hook, facts->kind))
        cn_event_hook_tell(&service->hook, event);
}

__attribute__((format(printf, 4, 5))) static void say(struct cn_event_service *service,
                                                      uint64_t now_ms, enum cn_event_kind kind,
                                                      const char *format, ...)
{
    char text[CN_FAULT_SIZE];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    const struct cn_event_facts facts = {.kind = kind, .subject = "", .text = text};
    cn_event_service_add(service, &facts, now_ms);
}

void cn_event_service_note(void *service, const char *command, const char *job, const char *answer)
{
    char text[CN_FAULT_SIZE];
    snprintf(text, sizeof(text), "%s: %s", command, answer);
    const struct cn_event_facts facts = {
        .kind = CN_EVENT_COMMAND, .job = job, .subject = "", .text = text};
    cn_event_service_add(service, &facts, cn_platform_now_ms());
}

// --- the gateway ---

// Returns how near the free bytes are to the reserve. A better state takes an eighth more than it
// took to leave it, so that a disk at its edge makes no flood.
static enum cn_event_disk disk_of(uint64_t bytes_free, uint64_t reserve, enum cn_event_disk before)
{
    if (bytes_free < reserve + (before == CN_EVENT_DISK_BELOW ? reserve / 8 : 0))
        return CN_EVENT_DISK_BELOW;
    return bytes_free < 2 * reserve + (before != CN_EVENT_DISK_WIDE ? reserve / 4 : 0)
               ? CN_EVENT_DISK_NEAR
               : CN_EVENT_DISK_WIDE;
}

static void look_at_disk(struct cn_event_service *service, uint64_t now_ms)
{
    const struct cn_settings *settings = service->sources.settings;
    uint64_t bytes_free = cn_show_disk_free(settings->state);
    char text[CN_SHOW_DISK_SIZE];
    if (!settings->reserve || !bytes_free)
        return;
    enum cn_event_disk disk = disk_of(bytes_free, settings->reserve, service->disk);
    cn_show_disk_text(bytes_free, settings->reserve, text);
    if (disk != service->disk)
        say(service, now_ms, disk == CN_EVENT_DISK_WIDE ? CN_EVENT_DISK_FREE : CN_EVENT_DISK_LOW,
            "%s", text);
    service->disk = disk;
}

// --- jobs ---

static void tell(void *service, const struct cn_event_facts *facts, uint64_t now_ms)
{
    cn_event_service_add(service, facts, now_ms);
}

static struct cn_event_run_source own_run(const struct cn_event_service *service,
                                          const struct cn_run_state *state, cn_err trouble)
{
    const struct cn_event_sources *from = &service->sources;
    return (struct cn_event_run_source){
        .job = from->job,
        .ledger = from->ledger,
        .models = from->models,
        .run = from->run,
        .live = from->live,
        .state = state,
        .trouble = trouble,
    };
}

// Says whether a submitted job is looked at now: when the own one is, and at once when it has
// ended, because its run may be closed next.
static bool is_due(const struct cn_event_service *service, const struct cn_event_run *watch,
                   const struct cn_event_run_source *from, uint64_t now_ms)
{
    bool ends = from->state->phase == CN_RUN_ENDED && watch->state.phase != CN_RUN_ENDED;
    return service->looked_ms == now_ms || !watch->known || ends;
}

void cn_event_service_job(struct cn_event_service *service, struct cn_event_run *watch,
                          const char *job, const struct cn_event_run_source *from, uint64_t now_ms)
{
    if (!is_due(service, watch, from, now_ms))
        return;
    if (!watch->known) {
        snprintf(watch->job, sizeof(watch->job), "%s", job);
        watch->tell = tell;
        watch->context = service;
        cn_event_run_begin(watch, from, now_ms);
    }
    cn_event_run_look(watch, from, now_ms);
}

void cn_event_service_job_last(struct cn_event_run *watch, const struct cn_event_run_source *from,
                               uint64_t now_ms)
{
    if (watch->known)
        cn_event_run_look(watch, from, now_ms);
}

// --- opening, looking, closing ---

void cn_event_service_open(struct cn_event_service *service, const struct cn_event_sources *sources,
                           uint64_t (*date_ms)(void), uint64_t now_ms)
{
    service->sources = *sources;
    service->date_ms = date_ms ? date_ms : cn_show_date_ms;
    service->opened_ms = now_ms;
    service->run.tell = tell;
    service->run.context = service;
    service->hook.settings = sources->settings;
    service->hook.job = sources->job->name;
    service->hook.run = cn_ledger_identity(sources->ledger)->run;
    cn_event_hook_warn(sources->settings);
    cn_event_audit_open(&service->audit, sources->settings->state);
    cn_event_file_open(&service->file, sources->settings->state, &service->events);
    service->restarted = service->events.newest > 0;
}

void cn_event_service_step(struct cn_event_service *service, const struct cn_run_state *state,
                           cn_err trouble, bool quiet, uint64_t now_ms)
{
    const struct cn_event_run_source from = own_run(service, state, trouble);
    cn_event_hook_step(&service->hook, now_ms);
    if (service->run.known && now_ms - service->looked_ms < CN_EVENT_LOOK_MS)
        return;
    service->looked_ms = now_ms;
    if (!service->run.known) {
        cn_event_run_begin(&service->run, &from, now_ms);
        say(service, now_ms, CN_EVENT_GATEWAY_STARTED, "the gateway runs job %s from version %u",
            service->sources.job->name, service->run.version);
    }
    cn_event_run_look(&service->run, &from, now_ms);
    look_at_disk(service, now_ms);
    cn_event_audit_look(&service->audit, cn_event_service_note, service);
    cn_event_boards_look(service, quiet, now_ms);
}

void cn_event_service_close(struct cn_event_service *service, uint64_t now_ms)
{
    if (service->sources.settings)
        cn_event_hook_step(&service->hook, now_ms);
    cn_event_file_close(&service->file);
    cn_event_audit_close(&service->audit);
    cn_events_deinit(&service->events);
    free(service->marks);
    service->marks = NULL;
    service->mark_count = 0;
}
