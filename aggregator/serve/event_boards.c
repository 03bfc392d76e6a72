// event_boards.c - events about boards.
//
// A board that comes and goes causes at most CN_EVENT_BOARD_MAX events in CN_EVENT_BOARD_MS, and
// one run of the hook in that time. If the board's state at the end of that time differs from the
// one that was told last, it is told then.
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "aggregator/serve/event_service.h"

#include "runtime/base/hash.h"

struct change {
    enum cn_event_kind kind;
    char text[CN_FAULT_SIZE];
    uint64_t code; // of an error
};

static enum cn_board_condition state_of(const struct cn_event_service *service,
                                        const struct cn_event_mark *mark,
                                        const struct cn_roster_board *board, uint64_t now_ms)
{
    enum cn_board_condition state = cn_board_condition_of(board, now_ms);
    // Boards come back one after the other, and the first ones miss the rest.
    bool soon = now_ms - service->opened_ms < CN_EVENT_RESTART_MS;
    bool missed = (state == CN_CONDITION_NEVER && !soon && (mark->was_here || board->missing_ms)) ||
                  (state == CN_CONDITION_LIVE && board->missing_ms);
    return missed ? CN_CONDITION_SILENT : state;
}

static void describe_back(const struct cn_event_service *service, const struct cn_event_mark *mark,
                          uint64_t now_ms, struct change *change)
{
    bool soon = service->restarted && now_ms - service->opened_ms < CN_EVENT_RESTART_MS;
    if (mark->state == CN_CONDITION_NEVER && soon) {
        change->kind = CN_EVENT_KINDS;
        return;
    }
    bool joins = mark->state == CN_CONDITION_NEVER && !service->restarted;
    bool resumes = mark->state == CN_CONDITION_PAUSED;
    change->kind = joins     ? CN_EVENT_BOARD_JOINED
                   : resumes ? CN_EVENT_BOARD_RESUMED
                             : CN_EVENT_BOARD_BACK;
    snprintf(change->text, sizeof(change->text), "%s",
             joins                                ? "the board is here"
             : resumes                            ? "the board goes on"
             : mark->state == CN_CONDITION_FAILED ? "the board reports no error any more"
                                                  : "the board is back");
}

// Describes what a board became. Sets the kind to CN_EVENT_KINDS if that is no event.
static void describe(const struct cn_event_service *service, const struct cn_event_mark *mark,
                     const struct cn_roster_board *board, enum cn_board_condition state,
                     uint64_t now_ms, struct change *change)
{
    uint64_t sign_ms = cn_roster_sign_ms(board);
    *change = (struct change){.kind = CN_EVENT_KINDS};
    switch (state) {
    case CN_CONDITION_LIVE:
        describe_back(service, mark, now_ms, change);
        break;
    case CN_CONDITION_SILENT:
        change->kind = CN_EVENT_BOARD_SILENT;
        if (board->missing_ms)
            snprintf(change->text, sizeof(change->text), "the board is missing in its group");
        else if (!sign_ms)
            snprintf(change->text, sizeof(change->text),
                     "the board was not heard since the aggregator started");
        else
            snprintf(change->text, sizeof(change->text),
                     "the board was not heard for %" PRIu64 " s", (now_ms - sign_ms) / 1000);
        break;
    case CN_CONDITION_PAUSED:
        change->kind = CN_EVENT_BOARD_PAUSED;
        snprintf(change->text, sizeof(change->text), "the board pauses: %s",
                 cn_board_health_pause_text(&board->health));
        break;
    case CN_CONDITION_FAILED:
        change->kind = CN_EVENT_BOARD_FAILED;
        snprintf(change->text, sizeof(change->text), "%s", board->fault.text);
        change->code = board->error_code;
        break;
    case CN_CONDITION_REVOKED:
        change->kind = CN_EVENT_BOARD_REVOKED;
        snprintf(change->text, sizeof(change->text), "the board is revoked");
        break;
    default: // CN_CONDITION_NEVER: the board was enrolled again, with another key
        break;
    }
}

// Counts an event of the board in its present period. Returns false when the period has no more.
static bool may_tell(struct cn_event_mark *mark, uint64_t now_ms)
{
    if (!mark->count || now_ms - mark->window_ms >= CN_EVENT_BOARD_MS) {
        mark->window_ms = now_ms;
        mark->count = 0;
    }
    if (mark->count == CN_EVENT_BOARD_MAX)
        return false;
    mark->count++;
    return true;
}

static void tell_hook(struct cn_event_service *service, struct cn_event_mark *mark, uint64_t now_ms)
{
    const struct cn_event *event = cn_events_find(&service->events, mark->deferred);
    if (!mark->deferred || (mark->hook_ms && now_ms - mark->hook_ms < CN_EVENT_BOARD_MS))
        return;
    mark->deferred = 0;
    if (!event || (mark->hook_ms && mark->hook_state == mark->state))
        return; // the board's state is again the one that the hook was told
    cn_event_hook_tell(&service->hook, event);
    mark->hook_ms = now_ms;
    mark->hook_state = mark->state;
}

static void look_at(struct cn_event_service *service, struct cn_event_mark *mark,
                    const struct cn_roster_board *board, bool quiet, uint64_t now_ms)
{
    enum cn_board_condition state = state_of(service, mark, board, now_ms);
    uint64_t fault =
        state == CN_CONDITION_FAILED ? cn_hash64(board->fault.text, strlen(board->fault.text)) : 0;
    struct change change;
    // A board that has not been heard since the start is as it was before.
    bool unheard = state == CN_CONDITION_NEVER &&
                   (mark->state == CN_CONDITION_FAILED || mark->state == CN_CONDITION_SILENT);
    if (!unheard && (state != mark->state || (fault && fault != mark->fault_hash))) {
        describe(service, mark, board, state, now_ms, &change);
        bool silent = quiet || change.kind == CN_EVENT_KINDS;
        if (!silent && !may_tell(mark, now_ms))
            return;
        const struct cn_event_facts facts = {.kind = change.kind,
                                             .subject = board->enrolled.name,
                                             .text = change.text,
                                             .code = change.code};
        const struct cn_event *event =
            silent ? NULL : cn_event_service_store(service, &facts, now_ms);
        mark->state = state;
        mark->fault_hash = fault;
        if (event && cn_event_hook_wants(&service->hook, change.kind))
            mark->deferred = event->seq;
    }
    tell_hook(service, mark, now_ms);
}

// Two processes that go on make one event, not one for each sign of them. An event for which there
// is no room is told later.
static void look_for_twice(struct cn_event_service *service, struct cn_event_mark *mark,
                           const struct cn_roster_board *board, uint64_t now_ms)
{
    uint64_t sign_ms = board->instances.twice_ms, before_ms = mark->twice_ms;
    char text[CN_INSTANCES_TEXT + 48];
    bool goes_on = before_ms && sign_ms - before_ms <= CN_INSTANCES_SHOWN_MS;
    if (!sign_ms || sign_ms == before_ms || (!goes_on && !may_tell(mark, now_ms)))
        return;
    mark->twice_ms = sign_ms;
    if (goes_on)
        return;
    snprintf(text, sizeof(text), "two programs use the board's key, %s", board->instances.twice);
    const struct cn_event_facts facts = {
        .kind = CN_EVENT_BOARD_TWICE, .subject = board->enrolled.name, .text = text};
    cn_event_service_add(service, &facts, now_ms);
}

// Takes the state of the newest event about a board that an earlier program stored. So its trouble
// ends with an event, and a board that was here and does not come back makes one.
static void recall(const struct cn_event_service *service, const char *board,
                   struct cn_event_mark *mark)
{
    for (uint64_t seq = service->events.newest; seq; seq--) {
        const struct cn_event *event = cn_events_find(&service->events, seq);
        if (!event)
            return;
        if (strcmp(event->subject, board) != 0 || event->kind < CN_EVENT_BOARD_JOINED ||
            event->kind > CN_EVENT_BOARD_REVOKED)
            continue;
        if (event->kind == CN_EVENT_BOARD_FAILED) {
            mark->state = CN_CONDITION_FAILED;
            mark->fault_hash = cn_hash64(event->text, strlen(event->text));
        } else if (event->kind == CN_EVENT_BOARD_SILENT) {
            mark->state = CN_CONDITION_SILENT;
        } else {
            mark->was_here = event->kind != CN_EVENT_BOARD_REVOKED;
        }
        return;
    }
}

static bool grow(struct cn_event_service *service, size_t count)
{
    if (count <= service->mark_count)
        return true;
    struct cn_event_mark *marks = realloc(service->marks, count * sizeof(*marks));
    if (!marks)
        return false;
    memset(marks + service->mark_count, 0, (count - service->mark_count) * sizeof(*marks));
    service->marks = marks;
    service->mark_count = count;
    return true;
}

void cn_event_boards_look(struct cn_event_service *service, bool quiet, uint64_t now_ms)
{
    size_t count;
    const struct cn_roster_board *boards = cn_roster_boards(service->sources.roster, &count);
    if (!grow(service, count))
        return; // the next look tries again
    for (size_t i = 0; i < count; i++) {
        struct cn_event_mark *mark = &service->marks[i];
        if (!mark->known) {
            mark->known = true;
            mark->state = boards[i].enrolled.revoked ? CN_CONDITION_REVOKED : CN_CONDITION_NEVER;
            if (service->restarted && !boards[i].enrolled.revoked)
                recall(service, boards[i].enrolled.name, mark);
        }
        look_at(service, mark, &boards[i], quiet, now_ms);
        look_for_twice(service, mark, &boards[i], now_ms);
    }
}
