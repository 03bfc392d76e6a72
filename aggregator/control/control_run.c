// Commands about rounds: pause, resume, drain, close-round, extend-round, reload, stop.
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "aggregator/control/control_private.h"

#define EXTEND_LEAST_MS 1000
#define EXTEND_MOST_MS (7ull * 24 * 3600 * 1000)

// Reads the state of the run. While no aggregator runs, it is that of a run between rounds.
static void read_state(const struct cn_control *control, struct cn_run_state *state)
{
    *state = (struct cn_run_state){.phase = CN_RUN_GATHER};
    if (control->config.run)
        cn_run_get_state(control->config.run, control->now_ms, state);
}

// Returns the end of an answer: what becomes of the round under way.
static const char *outlook(const struct cn_run_state *state, bool held)
{
    if (state->phase == CN_RUN_OPEN && held)
        return "the open round takes updates and is not closed";
    if (state->phase == CN_RUN_OPEN)
        return "the open round is finished";
    if (state->phase == CN_RUN_CLOSING)
        return "the version that is being made is finished";
    return "no round is open";
}

cn_err cn_control_write_pause(struct cn_control *control, const struct cn_control_request *request,
                              struct cn_control_answer *answer)
{
    struct cn_run_state state;
    read_state(control, &state);
    if (state.phase == CN_RUN_ENDED) {
        cn_control_refuse(answer, "the run is over: %s", state.end_reason);
        return CN_OK;
    }
    cn_control_done(answer, "paused until `resume`: %s; no other one is opened",
                    outlook(&state, request->now));
    return cn_steering_pause(control->ledger,
                             request->now ? CN_RUN_PAUSE_NOW : CN_RUN_PAUSE_ROUNDS);
}

// --- groups ---

struct finder {
    const char *name;
    char group[CN_NAME_SIZE]; // "": not found
    uint32_t boards;          // of the group
};

static cn_err find_board(void *context, const struct cn_ledger_board *board)
{
    struct finder *finder = context;
    if (!board->revoked && strcmp(board->name, finder->name) == 0)
        memcpy(finder->group, board->group, sizeof(finder->group));
    return CN_OK;
}

static cn_err count_boards(void *context, const struct cn_ledger_board *board)
{
    struct finder *finder = context;
    finder->boards += !board->revoked && strcmp(board->group, finder->group) == 0;
    return CN_OK;
}

// Finds the group of this name, or that of the board of this name if it trains alone. A group is
// invited as a whole, so a board that trains with others cannot be left out alone.
static cn_err find_group(struct cn_control *control, const char *name, char group[CN_NAME_SIZE],
                         struct cn_control_answer *answer)
{
    struct finder finder = {.name = name};
    snprintf(finder.group, sizeof(finder.group), "%s", name);
    group[0] = '\0';
    cn_err err = cn_ledger_boards(control->ledger, count_boards, &finder);
    bool is_group = finder.boards > 0;
    if (!err && !is_group) {
        finder.group[0] = '\0';
        err = cn_ledger_boards(control->ledger, find_board, &finder);
        if (!err && finder.group[0])
            err = cn_ledger_boards(control->ledger, count_boards, &finder);
    }
    if (err)
        return err;
    if (!finder.group[0])
        cn_control_refuse(answer, "%s: no group and no board of this name is enrolled", name);
    else if (!is_group && finder.boards > 1)
        cn_control_refuse(answer,
                          "%s trains with %u other%s in group %s, which is invited as a "
                          "whole: name the group, or revoke the board",
                          name, finder.boards - 1, finder.boards == 2 ? "" : "s", finder.group);
    else
        memcpy(group, finder.group, CN_NAME_SIZE);
    return CN_OK;
}

static cn_err drain_group(struct cn_control *control, const char *name,
                          struct cn_control_answer *answer)
{
    char group[CN_NAME_SIZE];
    uint32_t groups = 0, drained = 0, quorum = cn_job_updates_needed(control->config.job);
    cn_err err = find_group(control, name, group, answer);
    if (err || !group[0])
        return err;
    err = cn_steering_drain(control->ledger, group, true);
    if (!err)
        err = cn_ledger_group_count(control->ledger, &groups);
    if (!err)
        err = cn_steering_count_drained(control->ledger, &drained);
    if (err)
        return err;
    cn_control_done(answer, "group %s is not invited any more; `resume` takes it back", group);
    size_t length = strlen(answer->text);
    if (groups - drained < quorum)
        snprintf(answer->text + length, sizeof(answer->text) - length,
                 "; %u group%s left and the quorum is %u: no other round can close",
                 groups - drained, groups - drained == 1 ? " is" : "s are", quorum);
    return CN_OK;
}

cn_err cn_control_write_drain(struct cn_control *control, const struct cn_control_request *request,
                              struct cn_control_answer *answer)
{
    struct cn_run_state state;
    if (request->members & CN_CONTROL_GROUP)
        return drain_group(control, request->group, answer);
    read_state(control, &state);
    if (!control->config.run)
        cn_control_refuse(answer, "no aggregator runs: only a group can be drained now");
    else if (state.phase == CN_RUN_OPEN && state.steering.pause == CN_RUN_PAUSE_NOW)
        cn_control_refuse(answer, "the open round is paused and would never end: `resume` first");
    else
        cn_control_done(answer, "the aggregator ends; before that %s", outlook(&state, false));
    return answer->ok ? cn_steering_leave(control->ledger, true) : CN_OK;
}

cn_err cn_control_write_resume(struct cn_control *control, const struct cn_control_request *request,
                               struct cn_control_answer *answer)
{
    struct cn_steering before;
    bool drained;
    if (request->members & CN_CONTROL_GROUP) {
        char group[CN_NAME_SIZE];
        cn_err err = find_group(control, request->group, group, answer);
        if (!err && group[0])
            err = cn_steering_is_drained(control->ledger, group, &drained);
        if (err || !group[0])
            return err;
        cn_control_done(answer, drained ? "group %s is invited again" : "group %s was not drained",
                        group);
        return cn_steering_drain(control->ledger, group, false);
    }
    cn_err err = cn_steering_load(control->ledger, &before);
    if (err)
        return err;
    cn_control_done(answer, "%s",
                    before.leaving ? "the aggregator stays, and the run goes on"
                    : before.pause ? "the run goes on"
                                   : "the run was not paused");
    err = cn_steering_pause(control->ledger, CN_RUN_PAUSE_NONE);
    return err ? err : cn_steering_leave(control->ledger, false);
}

// --- the open round ---

cn_err cn_control_write_close_round(struct cn_control *control,
                                    const struct cn_control_request *request,
                                    struct cn_control_answer *answer)
{
    struct cn_run_state state;
    const char *refusal = cn_run_refuse_close(control->config.run);
    read_state(control, &state);
    if (refusal) {
        cn_control_refuse(answer, "%s", refusal);
        return CN_OK;
    }
    if (!request->yes) {
        cn_control_refuse(
            answer,
            "round %u would be closed with %u update%s; the quorum is "
            "%u%s. This cannot be undone: give --yes",
            state.round, state.accepted, state.accepted == 1 ? "" : "s",
            cn_job_updates_needed(control->config.job),
            state.accepted < state.selected ? ", and groups that still train would be late" : "");
        return CN_OK;
    }
    cn_control_done(answer, "round %u is closed with %u updates", state.round, state.accepted);
    cn_err err = cn_steering_close_round(control->ledger, state.round, state.accepted);
    return err ? err : cn_ledger_close_round(control->ledger, state.round);
}

cn_err cn_control_apply_close_round(struct cn_control *control,
                                    const struct cn_control_request *request,
                                    struct cn_control_answer *answer)
{
    (void)request, (void)answer;
    cn_run_enter_closing(control->config.run);
    return CN_OK;
}

cn_err cn_control_write_extend_round(struct cn_control *control,
                                     const struct cn_control_request *request,
                                     struct cn_control_answer *answer)
{
    struct cn_run_state state;
    read_state(control, &state);
    if (state.phase != CN_RUN_OPEN)
        cn_control_refuse(answer, "no round is open");
    else if (request->duration_ms < EXTEND_LEAST_MS || request->duration_ms > EXTEND_MOST_MS ||
             state.remaining_ms + request->duration_ms > EXTEND_MOST_MS)
        cn_control_refuse(answer, "a round can be extended by 1 s or more, and have 7 days left");
    else
        cn_control_done(answer, "round %u has %" PRIu64 " s left, %" PRIu64 " s more", state.round,
                        (state.remaining_ms + request->duration_ms) / 1000,
                        request->duration_ms / 1000);
    return answer->ok ? cn_steering_extend_round(control->ledger, state.round, request->duration_ms)
                      : CN_OK;
}

cn_err cn_control_apply_extend_round(struct cn_control *control,
                                     const struct cn_control_request *request,
                                     struct cn_control_answer *answer)
{
    (void)answer;
    cn_run_extend_round(control->config.run, request->duration_ms);
    return CN_OK;
}

// --- the program ---

cn_err cn_control_apply_reload(struct cn_control *control, const struct cn_control_request *request,
                               struct cn_control_answer *answer)
{
    (void)request;
    answer->ok = control->config.reload(control->config.context, control->job, answer->text);
    return CN_OK;
}

cn_err cn_control_apply_stop(struct cn_control *control, const struct cn_control_request *request,
                             struct cn_control_answer *answer)
{
    (void)request;
    cn_control_done(answer, "the aggregator ends now; the next start goes on where it stopped");
    control->config.stop(control->config.context);
    return CN_OK;
}
