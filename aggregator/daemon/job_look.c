#include "aggregator/daemon/job_look.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "aggregator/daemon/job_list.h"
#include "aggregator/daemon/job_opening.h"
#include "aggregator/daemon/setup_show.h"
#include "aggregator/serve/status.h"

static cn_err view_open(const struct cn_job_set *set, const struct cn_job_slot *slot,
                        const struct cn_http_wish *wish, struct cn_buffer *out)
{
    const struct cn_http_run run = {
        .settings = slot->run->setup.settings,
        .job = &slot->run->setup.job,
        .ledger = slot->run->setup.ledger,
        .roster = slot->roster,
        .run = slot->run->run,
        .parameters = slot->run->setup.model.layout.total,
        .events = set->events ? set->events->newest : 0,
        .jobs = cn_job_list_count(set),
    };
    return cn_http_show(&run, wish, out);
}

// Shows the gateway's boards as they are now, though the run of the job is not open.
static cn_err see_boards(const struct cn_job_set *set, struct cn_setup_show *show)
{
    const struct cn_run_state state = {
        .phase = show->live.phase, .traffic = show->live.traffic, .cuts = show->live.cuts};
    cn_status_deinit(&show->live);
    cn_err err = cn_status_gather(set->shared.roster, &state, &show->live);
    for (size_t i = 0; i < show->live.board_count; i++) { // facts about the first job
        struct cn_live_board *board = &show->live.boards[i];
        board->version = 0;
        board->elsewhere = false;
        board->facts.ahead_lineage = board->facts.ahead_version = 0;
    }
    return err;
}

// Says whether the files of a job are there: they may have been removed by hand.
static bool is_stored(const struct cn_job_set *set, const char *name)
{
    static const char *const files[] = {CN_JOB_PROFILE, CN_LEDGER_FILE};
    char path[CN_PATH_SIZE];
    for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++)
        if (!cn_job_opening_path(set->state, name, files[i], path) || access(path, R_OK) != 0)
            return false;
    return true;
}

// Opens the ledger for writing, though it changes nothing: one of an older program gets the tables
// that it lacks. SQLite's read-only access would leave a log and an index (-wal, -shm) beside the
// ledger, as only a writer may remove them. opened: result, the run can be read.
static cn_err view_stored(const struct cn_job_set *set, const char *profile,
                          const struct cn_http_wish *wish, struct cn_buffer *out, bool *opened)
{
    struct cn_setup setup = {.rights = CN_SETUP_OF_CALLER};
    struct cn_setup_show show = {0};
    cn_err err = cn_setup_open(&setup, profile, CN_SETUP_LOOK) ? CN_ENOTFOUND : CN_OK;
    if (!err)
        err = cn_setup_show_open(&setup, false, &show);
    *opened = !err;
    if (!err)
        err = see_boards(set, &show);
    show.source.jobs = cn_job_list_count(set);
    show.source.events = set->events ? set->events->newest : 0;
    if (!err)
        err = cn_http_show_source(&show.source, wish, out);
    cn_setup_show_close(&show);
    cn_setup_deinit(&setup);
    return err;
}

static bool is_free(const struct cn_job_look_faults *faults, size_t i, uint64_t now_ms)
{
    uint64_t tried_ms = faults->items[i].tried_ms;
    return !tried_ms || now_ms - tried_ms >= CN_JOB_LOOK_AGAIN_MS;
}

// Returns whether the stored run of a job may be tried now.
static bool may_try(const struct cn_job_look_faults *faults, const char *name, uint64_t now_ms)
{
    bool room = false;
    for (size_t i = 0; i < CN_JOB_LOOK_FAULTS; i++) {
        if (is_free(faults, i, now_ms))
            room = true;
        else if (strcmp(faults->items[i].job, name) == 0)
            return false;
    }
    return room;
}

static void note_fault(struct cn_job_look_faults *faults, const char *name, uint64_t now_ms)
{
    for (size_t i = 0; i < CN_JOB_LOOK_FAULTS; i++)
        if (is_free(faults, i, now_ms)) {
            snprintf(faults->items[i].job, sizeof(faults->items[i].job), "%s", name);
            faults->items[i].tried_ms = now_ms;
            return;
        }
}

cn_err cn_job_look_find(const void *jobs, const char *name)
{
    const struct cn_job_set *set = jobs;
    struct cn_queued_job row;
    return cn_jobs_find(set->slots[0].run->setup.ledger, name, &row);
}

cn_err cn_job_look(const void *jobs, const char *name, const struct cn_http_wish *wish,
                   struct cn_buffer *out)
{
    const struct cn_job_set *set = jobs;
    const struct cn_job_slot *slot = cn_job_set_find(set, name);
    char profile[CN_PATH_SIZE];
    if (slot && slot->run)
        return view_open(set, slot, wish, out);
    cn_err err = cn_job_look_find(jobs, name);
    if (err)
        return err;
    if (!is_stored(set, name) || !cn_job_opening_path(set->state, name, CN_JOB_PROFILE, profile))
        return CN_ENOTFOUND;
    bool opened;
    uint64_t now_ms = cn_platform_now_ms();
    if (!may_try(set->look_faults, name, now_ms))
        return CN_ENOTFOUND;
    err = view_stored(set, profile, wish, out, &opened);
    if (!opened)
        note_fault(set->look_faults, name, now_ms);
    return err;
}
