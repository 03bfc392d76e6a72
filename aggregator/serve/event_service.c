#include "aggregator/serve/event_service.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "aggregator/ledger/history.h"
#include "aggregator/ledger/rulings.h"
#include "aggregator/show/show.h"
#include "runtime/port/platform.h"

#define VERSIONS_MAX 20 // most versions that become events after one look: the newest ones

// --- storing and telling ---

const struct cn_event *cn_event_service_store(struct cn_event_service *service,
                                              enum cn_event_kind kind, const char *subject,
                                              const char *text, uint64_t code, uint64_t now_ms)
{
    const struct cn_event *event =
        cn_events_add(&service->events, kind, subject, text, code, service->date_ms());
    if (event)
        cn_event_file_add(&service->file, event, now_ms);
    return event;
}

void cn_event_service_add(struct cn_event_service *service, enum cn_event_kind kind,
                          const char *subject, const char *text, uint64_t now_ms)
{
    const struct cn_event *event = cn_event_service_store(service, kind, subject, text, 0, now_ms);
    if (event && cn_event_hook_wants(&service->hook, kind))
        cn_event_hook_tell(&service->hook, event);
}

__attribute__((format(printf, 5, 6))) static void say(struct cn_event_service *service,
                                                      uint64_t now_ms, enum cn_event_kind kind,
                                                      const char *subject, const char *format, ...)
{
    char text[CN_FAULT_SIZE];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    cn_event_service_add(service, kind, subject, text, now_ms);
}

void cn_event_service_note(void *service, const char *command, const char *answer)
{
    say(service, cn_platform_now_ms(), CN_EVENT_COMMAND, "", "%s: %s", command, answer);
}

// --- rounds and versions ---

static void tell_version(struct cn_event_service *service, uint32_t number, uint64_t now_ms)
{
    struct cn_ledger *ledger = service->sources.ledger;
    struct cn_ruling ruling;
    uint32_t selected, accepted;
    if (cn_ruling_find(ledger, number, &ruling) == CN_OK) {
        say(service, now_ms,
            ruling.kind == CN_RULING_REFUSED ? CN_EVENT_VERSION_REFUSED : CN_EVENT_ROLLED_BACK, "",
            "version %u has the weights of version %u: %s", number, ruling.source, ruling.reason);
    } else if (cn_ledger_count(ledger, number, &selected, &accepted) == CN_OK) {
        say(service, now_ms, CN_EVENT_VERSION_MADE, "", "round %u made version %u of %u updates",
            number, number, accepted);
    }
}

static void look_at_versions(struct cn_event_service *service, const struct cn_run_state *state,
                             uint64_t now_ms)
{
    struct cn_event_run *before = &service->run;
    uint32_t newest = cn_model_store_newest(service->sources.models)->number;
    uint32_t first = newest > VERSIONS_MAX && newest - VERSIONS_MAX > before->version
                         ? newest - VERSIONS_MAX
                         : before->version;
    for (uint32_t number = first + 1; number <= newest; number++)
        tell_version(service, number, now_ms);
    before->version = newest;
    const struct cn_score *score = &state->progress.best_score;
    if (state->progress.best == before->state.progress.best || !score->known)
        return;
    if (service->sources.job->loss == CN_LOSS_CROSS_ENTROPY)
        say(service, now_ms, CN_EVENT_VERSION_BEST, "", "version %u is the best: accuracy %.4f",
            state->progress.best, score->accuracy);
    else
        say(service, now_ms, CN_EVENT_VERSION_BEST, "", "version %u is the best: loss %.6g",
            state->progress.best, score->loss);
}

static void look_at_round(struct cn_event_service *service, const struct cn_run_state *state,
                          uint64_t now_ms)
{
    struct cn_event_run *before = &service->run;
    const struct cn_run_counts *counts = cn_run_count(service->sources.run);
    bool opens = state->phase == CN_RUN_OPEN &&
                 (before->state.phase != CN_RUN_OPEN || before->state.round != state->round);
    if (opens)
        say(service, now_ms, CN_EVENT_ROUND_OPENED, "", "round %u is open, %u group%s invited",
            state->round, state->selected, state->selected == 1 ? " is" : "s are");
    if (counts->extended != before->extended)
        say(service, now_ms, CN_EVENT_ROUND_EXTENDED, "",
            "round %u has %u of %u updates at its deadline", state->round, state->accepted,
            cn_job_updates_needed(service->sources.job));
    before->extended = counts->extended;
    if (state->cuts.update_count && state->cuts.round != before->state.cuts.round)
        say(service, now_ms, CN_EVENT_UPDATE_CUT, state->cuts.group, "round %u: %s",
            state->cuts.round, state->cuts.text);
}

static void look_at_end(struct cn_event_service *service, const struct cn_run_state *state,
                        uint64_t now_ms)
{
    const struct cn_job *job = service->sources.job;
    const struct cn_score *best = &state->progress.best_score;
    if (state->phase != CN_RUN_ENDED || service->run.state.phase == CN_RUN_ENDED)
        return;
    if (job->target_accuracy > 0 && best->known && best->accuracy >= job->target_accuracy)
        say(service, now_ms, CN_EVENT_TARGET_REACHED, "",
            "version %u has accuracy %.4f, wanted %.4f", state->progress.best, best->accuracy,
            job->target_accuracy);
    say(service, now_ms, CN_EVENT_RUN_ENDED, "", "the run has ended after %u round%s: %s",
        service->run.version, service->run.version == 1 ? "" : "s",
        state->end_reason ? state->end_reason : "it is over");
}

// --- rejections ---

struct rejections {
    struct cn_event_service *service;
    bool quiet;
    uint64_t now_ms;
};

// Remembers a rejection. Returns false when it was remembered before.
static bool is_new(struct cn_event_service *service, const struct cn_history_rejection *rejection)
{
    uint64_t hash = (uint64_t)cn_name_hash(rejection->group) << 32 | rejection->round;
    size_t kept = service->seen_count < CN_EVENT_SEEN ? service->seen_count : CN_EVENT_SEEN;
    for (size_t i = 0; i < kept; i++)
        if (service->seen[i] == hash)
            return false;
    service->seen[service->seen_count++ % CN_EVENT_SEEN] = hash;
    return true;
}

static cn_err take_rejection(void *context, const struct cn_history_rejection *rejection)
{
    const struct rejections *rejections = context;
    // Rejections of older rounds are events already, or happened before this program. There may be
    // more of them than are remembered.
    if (rejection->round + 2 < rejections->service->run.state.oldest)
        return CN_OK;
    if (is_new(rejections->service, rejection) && !rejections->quiet)
        say(rejections->service, rejections->now_ms, CN_EVENT_UPDATE_REJECTED, rejection->group,
            "round %u: its update was rejected: %s", rejection->round, rejection->reason);
    return CN_OK;
}

static void look_at_rejections(struct cn_event_service *service, bool quiet, uint64_t now_ms)
{
    struct rejections rejections = {service, quiet, now_ms};
    uint64_t rejected = cn_run_count(service->sources.run)->rejected;
    if (!quiet && rejected == service->run.rejected)
        return;
    if (!cn_history_rejections(service->sources.ledger, take_rejection, &rejections))
        service->run.rejected = rejected;
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
    enum cn_event_disk disk = disk_of(bytes_free, settings->reserve, service->run.disk);
    cn_show_disk_text(bytes_free, settings->reserve, text);
    if (disk != service->run.disk)
        say(service, now_ms, disk == CN_EVENT_DISK_WIDE ? CN_EVENT_DISK_FREE : CN_EVENT_DISK_LOW,
            "", "%s", text);
    service->run.disk = disk;
}

static void look_at_gateway(struct cn_event_service *service, cn_err trouble, uint64_t now_ms)
{
    struct cn_event_run *before = &service->run;
    uint32_t settings = service->sources.live ? service->sources.live->number : 0;
    look_at_disk(service, now_ms);
    if (trouble && !before->trouble)
        say(service, now_ms, CN_EVENT_STORE_DOWN, "", "the run waits: %s", cn_err_text(trouble));
    else if (!trouble && before->trouble)
        say(service, now_ms, CN_EVENT_STORE_UP, "", "the run goes on");
    before->trouble = trouble;
    if (before->settings && settings != before->settings)
        say(service, now_ms, CN_EVENT_SETTINGS_CHANGED, "", "other settings of the job hold now");
    before->settings = settings;
}

// --- opening, looking, closing ---

void cn_event_service_open(struct cn_event_service *service, const struct cn_event_sources *sources,
                           uint64_t (*date_ms)(void), uint64_t now_ms)
{
    service->sources = *sources;
    service->date_ms = date_ms ? date_ms : cn_show_date_ms;
    service->opened_ms = now_ms;
    service->hook.settings = sources->settings;
    service->hook.job = sources->job->name;
    service->hook.run = cn_ledger_identity(sources->ledger)->run;
    cn_event_hook_warn(sources->settings);
    cn_event_audit_open(&service->audit, sources->settings->state);
    cn_event_file_open(&service->file, sources->settings->state, &service->events);
    service->restarted = service->events.newest > 0;
}

// Takes the present state of everything, so that only later changes are events.
static void begin(struct cn_event_service *service, const struct cn_run_state *state,
                  uint64_t now_ms)
{
    struct cn_event_run *run = &service->run;
    run->known = true;
    run->state = *state;
    run->state.cuts.round = state->cuts.round;
    run->extended = cn_run_count(service->sources.run)->extended;
    run->version = cn_model_store_newest(service->sources.models)->number;
    run->settings = service->sources.live ? service->sources.live->number : 0;
    look_at_rejections(service, true, now_ms);
    say(service, now_ms, CN_EVENT_GATEWAY_STARTED, "", "the gateway runs job %s from version %u",
        service->sources.job->name, run->version);
    if (state->phase == CN_RUN_OPEN)
        run->state.phase = CN_RUN_GATHER; // so the open round is an event
}

void cn_event_service_step(struct cn_event_service *service, const struct cn_run_state *state,
                           cn_err trouble, bool quiet, uint64_t now_ms)
{
    cn_event_hook_step(&service->hook, now_ms);
    if (service->run.known && now_ms - service->looked_ms < CN_EVENT_LOOK_MS)
        return;
    service->looked_ms = now_ms;
    if (!service->run.known)
        begin(service, state, now_ms);
    look_at_versions(service, state, now_ms);
    look_at_round(service, state, now_ms);
    look_at_rejections(service, false, now_ms);
    look_at_gateway(service, trouble, now_ms);
    look_at_end(service, state, now_ms);
    cn_event_audit_look(&service->audit, cn_event_service_note, service);
    cn_event_boards_look(service, quiet, now_ms);
    service->run.state = *state;
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
