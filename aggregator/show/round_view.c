#include "aggregator/show/round_view.h"

#include <stdlib.h>
#include <string.h>

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

static cn_err load_round(struct cn_ledger *ledger, struct cn_round_view *view)
{
    cn_err err = cn_ledger_newest_round(ledger, &view->round);
    if (err == CN_ENOTFOUND) {
        view->round = (struct cn_ledger_round){0};
        return CN_OK;
    }
    if (!err)
        err = cn_history_round(ledger, view->round.number, take_entry, view);
    view->invited = (uint32_t)view->count;
    return err;
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
    view->end_reason = cn_score_end(job, &view->progress, view->version.number);
    return err;
}

void cn_round_view_deinit(struct cn_round_view *view)
{
    free(view->entries);
    memset(view, 0, sizeof(*view));
}

static int compare_group(const void *key, const void *entry)
{
    return strcmp(key, ((const struct cn_history_entry *)entry)->group);
}

const struct cn_history_entry *cn_round_view_find(const struct cn_round_view *view,
                                                  const char *group)
{
    if (view->count == 0)
        return NULL;
    return bsearch(group, view->entries, view->count, sizeof(*view->entries), compare_group);
}
