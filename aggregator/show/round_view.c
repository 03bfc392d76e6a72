#include "aggregator/show/round_view.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "aggregator/ledger/staleness.h"
#include "aggregator/run/run.h"

#define FIRST_CAPACITY 16

static cn_err take_entry(void *context, const struct cn_history_entry *entry)
{
    struct cn_round_view *view = context;
    size_t count = view->count;
    bool full = count >= FIRST_CAPACITY ? (count & (count - 1)) == 0 : count == 0;
    if (full) {
        size_t capacity = count ? 2 * count : FIRST_CAPACITY;
        void *entries = realloc(view->entries, capacity * sizeof(*view->entries));
        if (!entries)
            return CN_ENOMEM;
        view->entries = entries;
    }
    view->entries[view->count++] = *entry;
    view->accepted += entry->accepted;
    return CN_OK;
}

static int compare_group(const void *key, const void *entry)
{
    return strcmp(key, ((const struct cn_history_entry *)entry)->group);
}

static int compare_entries(const void *a, const void *b)
{
    return strcmp(((const struct cn_history_entry *)a)->group,
                  ((const struct cn_history_entry *)b)->group);
}

// The groups that train, while they are added to those of the round.
struct training {
    struct cn_round_view *view;
    size_t known; // number of entries of the round, in the order of names
};

// A group of an asynchronous run that trains for an earlier round is awaited, too. The walk visits
// each group once, so only the round's own entries may have it already.
static cn_err take_training(void *context, const char *group, uint32_t round)
{
    const struct training *training = context;
    struct cn_round_view *view = training->view;
    struct cn_history_entry entry = {.behind = view->round.number - round};
    memcpy(entry.group, group, strlen(group) + 1);
    bool known = training->known && bsearch(group, view->entries, training->known,
                                            sizeof(*view->entries), compare_group);
    return known || round > view->round.number ? CN_OK : take_entry(view, &entry);
}

static cn_err load_training(struct cn_ledger *ledger, struct cn_round_view *view)
{
    struct training training = {view, view->count};
    cn_err err = cn_staleness_walk(ledger, take_training, &training);
    if (view->count)
        qsort(view->entries, view->count, sizeof(*view->entries), compare_entries);
    return err;
}

static cn_err load_round(struct cn_ledger *ledger, struct cn_round_view *view)
{
    cn_err err = cn_ledger_newest_round(ledger, &view->round);
    if (err == CN_ENOTFOUND) {
        view->round = (struct cn_ledger_round){0};
        return CN_OK;
    }
    if (!err)
        err = cn_history_round(ledger, view->round.number, take_entry, view);
    if (!err && view->round.state == CN_LEDGER_OPEN)
        err = load_training(ledger, view);
    return err;
}

static cn_err take_drained(void *context, const char *group)
{
    struct cn_round_view *view = context;
    size_t size = (view->drained_count + 1) * sizeof(*view->drained);
    char(*grown)[CN_NAME_SIZE] = realloc(view->drained, size);
    if (!grown)
        return CN_ENOMEM;
    view->drained = grown;
    memcpy(view->drained[view->drained_count++], group, strlen(group) + 1);
    return CN_OK;
}

static cn_err take_error(void *context, const char *board, const char *text)
{
    struct cn_round_view *view = context;
    size_t count = view->error_count;
    if ((count & (count - 1)) == 0) { // the array is full: doubles it
        void *grown = realloc(view->errors, (count ? 2 * count : 1) * sizeof(*view->errors));
        if (!grown)
            return CN_ENOMEM;
        view->errors = grown;
    }
    struct cn_round_error *error = &view->errors[view->error_count++];
    snprintf(error->board, sizeof(error->board), "%s", board);
    snprintf(error->text, sizeof(error->text), "%s", text);
    return CN_OK;
}

static cn_err load_steering(struct cn_ledger *ledger, struct cn_round_view *view)
{
    cn_err err = cn_steering_load(ledger, &view->steering);
    if (!err)
        err = cn_steering_of_round(ledger, view->round.number, &view->steered);
    return err ? err : cn_steering_drained(ledger, take_drained, view);
}

static cn_err take_turn(void *context, const struct cn_history_turn *turn)
{
    struct cn_round_view *view = context;
    size_t count = view->turn_count;
    if ((count & (count - 1)) == 0) { // the array is full: doubles it
        void *grown = realloc(view->turns, (count ? 2 * count : 1) * sizeof(*view->turns));
        if (!grown)
            return CN_ENOMEM;
        view->turns = grown;
    }
    view->turns[view->turn_count++] = *turn;
    return CN_OK;
}

// Only a synchronous run leaves groups out.
static cn_err load_turns(struct cn_ledger *ledger, const struct cn_job *job,
                         struct cn_round_view *view)
{
    bool all = view->round.number == 0 || view->count >= view->groups;
    return all || cn_job_is_async(job)
               ? CN_OK
               : cn_history_turns(ledger, view->round.number, take_turn, view);
}

// Counts the invited groups. In an asynchronous run all groups are invited, except those that
// people drained before they delivered.
static cn_err count_invited(struct cn_ledger *ledger, const struct cn_job *job,
                            struct cn_round_view *view)
{
    uint32_t drained;
    view->invited = (uint32_t)view->count;
    if (!cn_job_is_async(job) || !view->round.number)
        return CN_OK;
    cn_err err = cn_steering_count_drained(ledger, &drained);
    if (err)
        return err;
    view->invited = view->groups > drained ? view->groups - drained : 0;
    for (size_t i = 0; i < view->count; i++)
        view->invited +=
            view->entries[i].accepted && cn_round_view_is_drained(view, view->entries[i].group);
    if (view->invited < view->accepted) // groups may be revoked
        view->invited = view->accepted;
    return CN_OK;
}

cn_err cn_round_view_load(struct cn_ledger *ledger, const struct cn_job *job,
                          const struct cn_run_progress *progress, struct cn_round_view *view)
{
    memset(view, 0, sizeof(*view));
    cn_err err = cn_ledger_newest_version(ledger, &view->version);
    view->has_version = !err;
    if (err && err != CN_ENOTFOUND)
        return err;
    if (progress)
        view->progress = *progress;
    err = progress ? CN_OK : cn_score_progress(ledger, job, 0, &view->progress);
    if (!err)
        err = load_round(ledger, view);
    if (!err)
        err = cn_ledger_group_count(ledger, &view->groups);
    if (!err)
        err = load_steering(ledger, view);
    if (!err)
        err = count_invited(ledger, job, view);
    if (!err)
        err = load_turns(ledger, job, view);
    if (!err)
        err = cn_last_error_list(ledger, take_error, view);
    view->oldest = cn_job_is_async(job) ? cn_run_oldest_round(job, view->version.number + 1,
                                                              view->progress.rolled_back)
                                        : view->round.number;
    memcpy(view->select, job->select, sizeof(view->select));
    view->end_reason = cn_score_end(job, &view->progress, view->version.number);
    return err;
}

void cn_round_view_deinit(struct cn_round_view *view)
{
    free(view->entries);
    free(view->drained);
    free(view->turns);
    free(view->errors);
    memset(view, 0, sizeof(*view));
}

const struct cn_history_entry *cn_round_view_find(const struct cn_round_view *view,
                                                  const char *group)
{
    if (view->count == 0)
        return NULL;
    return bsearch(group, view->entries, view->count, sizeof(*view->entries), compare_group);
}

static int compare_turn(const void *key, const void *turn)
{
    return strcmp(key, ((const struct cn_history_turn *)turn)->group);
}

const struct cn_history_turn *cn_round_view_turn(const struct cn_round_view *view,
                                                 const char *group)
{
    return view->turn_count
               ? bsearch(group, view->turns, view->turn_count, sizeof(*view->turns), compare_turn)
               : NULL;
}

static int compare_error(const void *key, const void *error)
{
    return strcmp(key, ((const struct cn_round_error *)error)->board);
}

const char *cn_round_view_error(const struct cn_round_view *view, const char *board)
{
    const struct cn_round_error *found =
        view->error_count
            ? bsearch(board, view->errors, view->error_count, sizeof(*view->errors), compare_error)
            : NULL;
    return found ? found->text : NULL;
}

static int compare_name(const void *key, const void *name)
{
    return strcmp(key, name);
}

bool cn_round_view_is_drained(const struct cn_round_view *view, const char *group)
{
    return view->drained_count &&
           bsearch(group, view->drained, view->drained_count, sizeof(*view->drained), compare_name);
}
