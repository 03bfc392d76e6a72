#include "aggregator/jobs/job_fit.h"

#include <stdio.h>
#include <string.h>

// Says whether a board has a data set. One that told of none may have it.
static bool has_data(const char *names, const char *wanted)
{
    size_t length = strlen(wanted);
    if (!length || !*names)
        return true;
    for (const char *at = names;; at++) {
        at = strstr(at, wanted);
        if (!at)
            return false;
        if ((at == names || at[-1] == ' ') && (at[length] == ' ' || !at[length]))
            return true;
    }
}

// Finds a board of the gateway in the job's roster, which has the same boards in the same order
// except for a moment after a change.
static const struct cn_roster_board *find_tried(const struct cn_job_need *need, size_t place,
                                                const char *name)
{
    size_t count;
    const struct cn_roster_board *boards = cn_roster_boards(need->tried, &count);
    if (place < count && strcmp(boards[place].enrolled.name, name) == 0)
        return &boards[place];
    return cn_roster_find(need->tried, name);
}

// Returns the error with which a board could not train the job a short while ago; NULL: none.
static const char *find_failure(const struct cn_job_need *need, size_t place, const char *name)
{
    const struct cn_roster_board *board = find_tried(need, place, name);
    bool failed = board && board->failed_ms && need->now_ms - board->failed_ms < CN_JOB_RETRY_MS;
    return failed ? board->fault.text : NULL;
}

static void count_board(const struct cn_job_need *need, const struct cn_roster_board *board,
                        size_t place, struct cn_job_fit *fit, char why[CN_JOB_REASON])
{
    const char *name = board->enrolled.name, *failure = find_failure(need, place, name);
    bool known = cn_roster_is_registered(board);
    bool meets_rule = !known || !need->rule->count ||
                      cn_roster_meets(board, need->rule, need->data_set, need->now_ms);
    bool has_set = !known || has_data(board->facts.data_sets, need->data_set);
    fit->boards++;
    fit->known += known;
    fit->failed += failure != NULL;
    fit->refused |= !meets_rule || !has_set;
    if (!meets_rule)
        snprintf(why, CN_JOB_REASON, "%s does not meet '%.100s'", name, need->text);
    else if (!has_set)
        snprintf(why, CN_JOB_REASON, "%s has no data set %s", name, need->data_set);
    else if (failure)
        snprintf(why, CN_JOB_REASON, "%s: %.120s", name, failure);
}

void cn_job_fit(const struct cn_job_need *need, struct cn_job_fit *fits, char why[CN_JOB_REASON])
{
    size_t board_count, group_count;
    bool all = true;
    const struct cn_roster_board *boards = cn_roster_boards(need->boards, &board_count);
    const struct cn_roster_group *groups = cn_roster_groups(need->boards, &group_count);
    why[0] = '\0';
    memset(fits, 0, group_count * sizeof(*fits));
    for (size_t i = 0; i < board_count; i++) {
        const struct cn_roster_group *group =
            boards[i].enrolled.revoked
                ? NULL
                : cn_roster_find_group(need->boards, boards[i].enrolled.group);
        if (group)
            count_board(need, &boards[i], i, &fits[group - groups], why);
    }
    for (size_t g = 0; g < group_count; g++) {
        struct cn_job_fit *fit = &fits[g];
        fit->fits =
            !fit->refused && fit->failed < fit->boards && (fit->known || !need->rule->count);
        all &= fit->fits;
    }
    if (all)
        why[0] = '\0';
}
