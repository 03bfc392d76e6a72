// Commands about boards: enroll, revoke, move.
#include <stdio.h>
#include <string.h>

#include "aggregator/control/control_private.h"
#include "aggregator/ledger/staleness.h"
#include "aggregator/store/restore.h"

// Refuses the request if its board is enrolled with another key, group or max_weight. A board that
// is enrolled exactly as the request says is no error: the answer to an earlier request was lost.
static bool is_taken(const struct cn_ledger_board *found, const struct cn_ledger_board *wanted,
                     struct cn_control_answer *answer)
{
    bool same = memcmp(found->secret, wanted->secret, sizeof(found->secret)) == 0 &&
                strcmp(found->group, wanted->group) == 0 && found->max_weight == wanted->max_weight;
    if (!same)
        cn_control_refuse(answer, CN_CONTROL_ENROLLED, found->name, found->group);
    return !same;
}

cn_err cn_control_write_enroll(struct cn_control *control, const struct cn_control_request *request,
                               struct cn_control_answer *answer)
{
    struct cn_ledger_board board = {.max_weight = request->max_weight}, found;
    const char *group = request->members & CN_CONTROL_GROUP ? request->group : request->board;
    memcpy(board.name, request->board, sizeof(board.name));
    snprintf(board.group, sizeof(board.group), "%s", group);
    memcpy(board.secret, request->key, sizeof(board.secret));
    cn_err err = cn_ledger_enroll_within(control->ledger, &board);
    bool exists = err == CN_EEXIST;
    if (exists)
        err = cn_ledger_find_board(control->ledger, board.name, &found);
    if (!err && !(exists && is_taken(&found, &board, answer)))
        cn_control_done(answer, "enrolled %s in group %s", board.name, board.group);
    cn_crypto_wipe(&board, sizeof(board));
    cn_crypto_wipe(&found, sizeof(found));
    return err;
}

cn_err cn_control_write_revoke(struct cn_control *control, const struct cn_control_request *request,
                               struct cn_control_answer *answer)
{
    cn_restore_note_revoked(control->ledger, control->config.state, request->board);
    cn_err err = cn_ledger_revoke_within(control->ledger, request->board);
    if (err == CN_ENOTFOUND) {
        cn_control_refuse(answer, "%s is not enrolled", request->board);
        return CN_OK;
    }
    if (!err)
        cn_control_done(answer, "revoked %s", request->board);
    return err;
}

// Finds out whether the open round waits for an update of the group. If its board moved now, the
// update would be refused, and the round would wait for ever.
static cn_err is_awaited(struct cn_ledger *ledger, const char *group, bool *awaited)
{
    struct cn_ledger_round round;
    struct cn_ledger_contribution found;
    *awaited = false;
    cn_err err = cn_ledger_newest_round(ledger, &round);
    if (err || round.state != CN_LEDGER_OPEN)
        return err == CN_ENOTFOUND ? CN_OK : err;
    err = cn_ledger_is_selected(ledger, round.number, group, awaited);
    if (err || !*awaited)
        return err;
    err = cn_ledger_find_contribution(ledger, round.number, group, &found);
    *awaited = err == CN_ENOTFOUND;
    return err == CN_ENOTFOUND ? CN_OK : err;
}

// Refuses the move of a board for whose group's update the run waits.
static cn_err refuse_awaited(struct cn_control *control, const struct cn_ledger_board *board,
                             struct cn_control_answer *answer)
{
    struct cn_staleness staleness = {0};
    bool awaited = false;
    if (control->config.job->async.mode == CN_ROUNDS_ASYNCHRONOUS) {
        cn_err err = cn_staleness_read(control->ledger, board->group, &staleness);
        if (!err && staleness.training)
            cn_control_refuse(answer,
                              "group %s trains from version %u, and its update would not "
                              "count: `drain` it, and move %s when the update is there",
                              board->group, staleness.training - 1, board->name);
        return err;
    }
    cn_err err = is_awaited(control->ledger, board->group, &awaited);
    if (!err && !awaited && control->config.awaits &&
        control->config.awaits(control->config.context, board->group)) {
        cn_control_refuse(answer,
                          "a submitted job waits for the update of group %s: `job hold` it, and "
                          "move %s when the round is over",
                          board->group, board->name);
        return CN_OK;
    }
    if (!err && awaited)
        cn_control_refuse(answer,
                          "the open round waits for the update of group %s: `pause`, and move %s "
                          "when the round is over",
                          board->group, board->name);
    return err;
}

struct company {
    const char *board, *groups[2];
    bool found; // one of the groups has another board
};

static cn_err look_for_company(void *context, const struct cn_ledger_board *board)
{
    struct company *company = context;
    bool near = strcmp(board->group, company->groups[0]) == 0 ||
                strcmp(board->group, company->groups[1]) == 0;
    company->found |= near && !board->revoked && strcmp(board->name, company->board) != 0;
    return CN_OK;
}

// Moves the board. If it leaves or joins others, their profiles must follow.
static cn_err move(struct cn_control *control, const struct cn_ledger_board *board,
                   const char *group, struct cn_control_answer *answer)
{
    struct company company = {.board = board->name, .groups = {board->group, group}};
    cn_err err = cn_ledger_boards(control->ledger, look_for_company, &company);
    if (err)
        return err;
    cn_control_done(answer, "%s is in group %s now; it was in %s%s", board->name, group,
                    board->group,
                    company.found ? "; now change group.members in the profiles of the boards of "
                                    "both groups, and restart them"
                                  : "");
    return cn_ledger_move(control->ledger, board->name, group);
}

cn_err cn_control_write_move(struct cn_control *control, const struct cn_control_request *request,
                             struct cn_control_answer *answer)
{
    struct cn_ledger_board found;
    cn_err err = cn_ledger_find_board(control->ledger, request->board, &found);
    if (err == CN_ENOTFOUND || (!err && found.revoked)) {
        cn_control_refuse(answer, "%s is not enrolled", request->board);
        err = CN_OK;
    } else if (!err && strcmp(found.group, request->group) == 0) {
        cn_control_done(answer, "%s is in group %s already", request->board, request->group);
    } else if (!err) {
        err = refuse_awaited(control, &found, answer);
        if (!err && !answer->text[0])
            err = move(control, &found, request->group, answer);
    }
    cn_crypto_wipe(&found, sizeof(found));
    return err;
}
