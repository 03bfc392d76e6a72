#include "aggregator/show/reason.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static const struct {
    const char *word, *sentence;
} reasons[] = {
    [CN_REASON_REVOKED] = {"revoked", "revoked: its key is refused"},
    [CN_REASON_EXPECTED] = {"expected", NULL},
    [CN_REASON_NEVER] = {"never", "not heard since the aggregator started: check its power, "
                                  "network, key"},
    [CN_REASON_TWICE] = {"twice", NULL},
    [CN_REASON_FAILED] = {"failed", NULL},
    [CN_REASON_AHEAD] = {"ahead", "it is ahead of this ledger: was that restored from a backup?"},
    [CN_REASON_OVER] = {"over", "the run is over"},
    [CN_REASON_GONE] = {"gone", "the run is over, and the board is not here"},
    [CN_REASON_PAUSED] = {"paused", NULL},
    [CN_REASON_MISSING] = {"missing", NULL},
    [CN_REASON_SILENT] = {"silent", NULL},
    [CN_REASON_STOPPED] = {"stopped", "the aggregator is not running"},
    [CN_REASON_QUORUM] = {"quorum", "no round is open: fewer groups are enrolled than the quorum"},
    [CN_REASON_ELSEWHERE] = {"elsewhere", "its group serves another job: see `job list`"},
    [CN_REASON_DRAINED] = {"drained", "its group is drained: `resume` invites it again"},
    [CN_REASON_RUN_PAUSED] = {"run_paused", "no round is open: the run is paused until `resume`"},
    [CN_REASON_MERGING] = {"merging", "no round is open: the version is being made"},
    [CN_REASON_WAITING] = {"waiting", "no round is open: it waits for more groups"},
    [CN_REASON_RESTS] = {"rests", "it rests"},
    [CN_REASON_NEEDS] = {"needs", "it waits for members of its group"},
    [CN_REASON_UNFIT] = {"unfit", NULL},
    [CN_REASON_LEFT_OUT] = {"left_out", "its group was not invited to this round"},
    [CN_REASON_ACCEPTED] = {"accepted", "in the round: its update is accepted"},
    [CN_REASON_HALTED] = {"halted", "in the round, but the aggregator is not running"},
    [CN_REASON_AWAITED] = {"awaited", "in the round: its update is awaited"},
};

static bool is_recent(const struct cn_reason_facts *facts, uint64_t then_ms, uint64_t limit_ms)
{
    return then_ms && (then_ms >= facts->now_ms || facts->now_ms - then_ms <= limit_ms);
}

// Returns the reason of a board with which nothing is wrong.
static enum cn_reason_kind find_place(const struct cn_reason_facts *facts, const char *group)
{
    const struct cn_round_view *view = facts->view;
    bool running = facts->live->running, drained = cn_round_view_is_drained(view, group);
    if (view->round.number == 0 || view->round.state == CN_LEDGER_MERGED)
        return !running                              ? CN_REASON_STOPPED
               : drained                             ? CN_REASON_DRAINED
               : view->steering.pause                ? CN_REASON_RUN_PAUSED
               : view->groups < facts->quorum        ? CN_REASON_QUORUM
               : facts->live->phase == CN_RUN_GATHER ? CN_REASON_WAITING
                                                     : CN_REASON_MERGING;
    const struct cn_history_entry *entry = cn_round_view_find(view, group);
    if (!entry)
        return drained ? CN_REASON_DRAINED : CN_REASON_LEFT_OUT;
    if (entry->accepted)
        return CN_REASON_ACCEPTED;
    return running ? CN_REASON_AWAITED : CN_REASON_HALTED;
}

// Returns the reason of a board that was not heard since the aggregator started. Boards come back
// one after the other, so a board without an error has the time after which it would be silent.
static struct cn_reason find_silence(const struct cn_reason_facts *facts, const char *error)
{
    uint64_t opened_ms = facts->live->opened_ms;
    if (!error && is_recent(facts, opened_ms, CN_REASON_SILENT_MS))
        return (struct cn_reason){.kind = CN_REASON_EXPECTED, .since_ms = opened_ms};
    return (struct cn_reason){.kind = CN_REASON_NEVER, .detail = error};
}

// Returns the reason of a board of a run that is over. An aggregator that has ended hears nobody.
static struct cn_reason find_end(const struct cn_reason_facts *facts,
                                 const struct cn_live_board *live)
{
    uint64_t heard_ms = live->heard_ms ? live->heard_ms : facts->live->opened_ms;
    if (!facts->live->running ||
        (!live->missing_ms && is_recent(facts, heard_ms, CN_REASON_SILENT_MS)))
        return (struct cn_reason){.kind = CN_REASON_OVER};
    return (struct cn_reason){.kind = CN_REASON_GONE,
                              .since_ms = live->missing_ms ? live->missing_ms : live->heard_ms};
}

// Says whether a board in this place may rest: its group is not in a round.
static bool is_idle(enum cn_reason_kind place)
{
    return place == CN_REASON_LEFT_OUT || place == CN_REASON_WAITING || place == CN_REASON_QUORUM ||
           place == CN_REASON_MERGING;
}

struct cn_reason cn_reason_of(const struct cn_reason_facts *facts,
                              const struct cn_ledger_board *board,
                              const struct cn_live_board *found)
{
    static const struct cn_live_board unheard;
    const struct cn_live_board *live = found ? found : &unheard;
    if (board->revoked)
        return (struct cn_reason){.kind = CN_REASON_REVOKED};
    const char *error = cn_round_view_error(facts->view, board->name);
    if (facts->live->running && !live->heard_ms && !live->missing_ms &&
        (error || !facts->view->end_reason)) // nobody waits for a board of a run that is over
        return find_silence(facts, error);
    if (is_recent(facts, live->twice_ms, CN_INSTANCES_SHOWN_MS))
        return (struct cn_reason){CN_REASON_TWICE, live->twice_ms, live->twice};
    if (live->fault.told_ms)
        return (struct cn_reason){CN_REASON_FAILED, live->fault.told_ms, live->fault.text,
                                  live->error_code};
    if (live->facts.ahead_lineage)
        return (struct cn_reason){.kind = CN_REASON_AHEAD};
    if (!facts->live->running && error) // what a board said last, which the program knew that ended
        return (struct cn_reason){
            .kind = facts->view->end_reason ? CN_REASON_OVER : CN_REASON_STOPPED, .detail = error};
    if (facts->view->end_reason)
        return find_end(facts, live);
    if (cn_board_health_is_fresh(&live->health, facts->now_ms) &&
        cn_board_health_pause(&live->health))
        return (struct cn_reason){.kind = CN_REASON_PAUSED,
                                  .detail = cn_board_health_pause_text(&live->health)};
    if (live->missing_ms)
        return (struct cn_reason){.kind = CN_REASON_MISSING, .since_ms = live->missing_ms};
    if (facts->live->running && !is_recent(facts, live->heard_ms, CN_REASON_SILENT_MS))
        return (struct cn_reason){.kind = CN_REASON_SILENT, .since_ms = live->heard_ms};
    if (live->elsewhere)
        return (struct cn_reason){.kind = CN_REASON_ELSEWHERE};
    if (cn_board_health_is_fresh(&live->health, facts->now_ms) &&
        live->health.said.flags & CN_HEALTH_NEEDS)
        return (struct cn_reason){.kind = CN_REASON_NEEDS, .detail = live->health.said.rest};
    enum cn_reason_kind place = find_place(facts, board->group);
    if (is_idle(place) && cn_board_health_is_fresh(&live->health, facts->now_ms) &&
        live->health.said.flags & CN_HEALTH_RESTS)
        return (struct cn_reason){.kind = CN_REASON_RESTS, .detail = live->health.said.rest};
    if (is_idle(place) && live->unfit)
        return (struct cn_reason){.kind = CN_REASON_UNFIT, .detail = facts->view->select};
    return (struct cn_reason){.kind = place,
                              .invited = facts->view->invited,
                              .groups = facts->view->groups,
                              .turns = facts->view->turn_count > 0,
                              .turn = cn_round_view_turn(facts->view, board->group)};
}

// Returns what to do about an error that a board reports; "": its text says enough.
static const char *cure_of(uint64_t code)
{
    return code == -CN_EDIVERGED
               ? "; `cairn-aggregator rollback PROFILE best --reason TEXT` opens another round"
               : "";
}

// Writes the sentence of a group that waits for its turn, or whose turn it is.
static void put_turn(const struct cn_reason *reason, char text[CN_REASON_SIZE])
{
    bool waits = reason->kind == CN_REASON_LEFT_OUT;
    int length = snprintf(text, CN_REASON_SIZE, "%s%s %u of %u groups are%s, in turn; ",
                          reasons[reason->kind].sentence, waits ? ":" : ";", reason->invited,
                          reason->groups, waits ? "" : " invited");
    if (reason->turn)
        snprintf(text + length, CN_REASON_SIZE - (size_t)length, "its last one was round %u%s",
                 reason->turn->round,
                 reason->turn->late ? ", in which no update of it counted" : "");
    else
        snprintf(text + length, CN_REASON_SIZE - (size_t)length,
                 "it was in none of the last %d rounds", CN_HISTORY_TURNS);
}

// Says whether the sentence tells whose turn it is.
static bool tells_turn(const struct cn_reason *reason)
{
    return reason->kind == CN_REASON_LEFT_OUT ||
           (reason->turns &&
            (reason->kind == CN_REASON_AWAITED || reason->kind == CN_REASON_ACCEPTED));
}

void cn_reason_text(const struct cn_reason *reason, uint64_t now_ms, bool ages,
                    char text[CN_REASON_SIZE])
{
    char age[32] = "";
    const char *detail = reason->detail ? reason->detail : "";
    uint64_t seconds = now_ms > reason->since_ms ? (now_ms - reason->since_ms) / 1000 : 0;
    if (ages)
        snprintf(age, sizeof(age), " %" PRIu64 " s", seconds);
    if (reason->kind == CN_REASON_TWICE)
        snprintf(text, CN_REASON_SIZE, "runs twice: two programs use its key, %s", detail);
    else if (reason->kind == CN_REASON_FAILED)
        snprintf(text, CN_REASON_SIZE, "error%s%s: %s%s", age, ages ? " ago" : "", detail,
                 cure_of(reason->code));
    else if (reason->kind == CN_REASON_EXPECTED && ages)
        snprintf(text, CN_REASON_SIZE, "not heard yet: the aggregator started %" PRIu64 " s ago",
                 seconds);
    else if (reason->kind == CN_REASON_EXPECTED)
        snprintf(text, CN_REASON_SIZE, "not heard yet: the aggregator has just started");
    else if (reason->kind == CN_REASON_NEVER && *detail)
        snprintf(text, CN_REASON_SIZE, "not heard since the aggregator started; it said last: %s",
                 detail);
    else if ((reason->kind == CN_REASON_OVER || reason->kind == CN_REASON_STOPPED) && *detail)
        snprintf(text, CN_REASON_SIZE, "%s; its last error was: %s", reasons[reason->kind].sentence,
                 detail);
    else if (tells_turn(reason))
        put_turn(reason, text);
    else if (reason->kind == CN_REASON_PAUSED)
        snprintf(text, CN_REASON_SIZE, "it pauses: %s", detail);
    else if (reason->kind == CN_REASON_UNFIT)
        snprintf(text, CN_REASON_SIZE, "not invited: its group does not meet rounds.select: %s",
                 detail);
    else if (reason->kind == CN_REASON_RESTS && *detail)
        snprintf(text, CN_REASON_SIZE, "it rests: %s", detail);
    else if (reason->kind == CN_REASON_NEEDS && *detail)
        snprintf(text, CN_REASON_SIZE, "%s", detail);
    else if (reason->kind == CN_REASON_MISSING)
        snprintf(text, CN_REASON_SIZE, "missing in its group%s%s", ages ? " since" : "", age);
    else if (reason->kind == CN_REASON_SILENT)
        snprintf(text, CN_REASON_SIZE, "silent%s%s: check its power and network",
                 ages ? " for" : "", age);
    else
        snprintf(text, CN_REASON_SIZE, "%s", reasons[reason->kind].sentence);
}

const char *cn_reason_word(enum cn_reason_kind kind)
{
    return reasons[kind].word;
}
