#include "aggregator/daemon/job_opening.h"

#include <stdio.h>
#include <stdlib.h>

#include "aggregator/daemon/job_mistake.h"
#include "aggregator/store/restore.h"
#include "runtime/base/log.h"

bool cn_job_opening_path(const char *state, const char *job, const char *file,
                         char path[CN_PATH_SIZE])
{
    int length = snprintf(path, CN_PATH_SIZE, "%s/" CN_JOBS_FOLDER "/%s%s%s", state, job,
                          file[0] ? "/" : "", file);
    return length > 0 && length < CN_PATH_SIZE;
}

// --- what the run calls ---

static void tell_changed(void *context)
{
    const struct cn_job_slot *slot = context;
    if (slot->gateway->changed)
        slot->gateway->changed(slot->gateway->context);
}

static void count_traffic(void *context, struct cn_run_traffic *traffic)
{
    *traffic = ((const struct cn_job_slot *)context)->traffic;
}

// --- opening ---

// Says whether the profile of a job can be read. Logs each mistake, with its file, and writes the
// first one to why, without paths and values.
static bool check_profile(const char *job, const char *path, char why[CN_JOB_REASON])
{
    struct cn_profile *profile = NULL;
    struct cn_diag diag;
    cn_diag_init(&diag);
    cn_err err = cn_profile_load(path, &diag, &profile);
    if (!err)
        err = cn_profile_require(profile, CN_PROFILE_GATEWAY, &diag);
    cn_profile_free(profile);
    if (!err)
        return true;
    if (!diag.count)
        cn_diag_add(&diag, "%s: %s", path, cn_err_text(err));
    for (size_t i = 0; i < diag.count && i < CN_DIAG_LINES; i++)
        cn_log(CN_LOG_ERROR, "jobs", "job %s: %s", job, diag.lines[i]);
    cn_job_mistake_text(&diag, why);
    return false;
}

static cn_err open_setup(struct cn_job_slot *slot, const char *state, char why[CN_JOB_REASON])
{
    struct cn_setup *setup = &slot->run->setup;
    char path[CN_PATH_SIZE];
    if (!cn_job_opening_path(state, slot->row.name, CN_JOB_PROFILE, path))
        return CN_ERANGE;
    if (!check_profile(slot->row.name, path, why))
        return CN_EINVAL;
    setup->rights = CN_SETUP_OF_CALLER;
    int result = cn_setup_open(setup, path, CN_SETUP_RUN);
    if (result) // a disk or a ledger that fails may work again; the profile and a schema do not
        return result == CN_EXIT_FAILED ? CN_EIO : CN_EINVAL;
    result = cn_setup_open_model(setup);
    if (!result)
        result = cn_setup_check_weights(setup);
    return result ? CN_EINVAL : CN_OK;
}

static cn_err open_run(struct cn_job_slot *slot)
{
    const struct cn_job_run_shared shared = {
        .ports = slot->gateway->ports,
        .roster = slot->roster,
        .context = slot,
        .changed = tell_changed,
        .traffic = count_traffic,
    };
    return cn_job_run_open(slot->run, &shared);
}

static cn_err open_resources(struct cn_job_slot *slot, struct cn_resources *gateway)
{
    slot->resources = calloc(1, sizeof(*slot->resources));
    if (!slot->resources)
        return CN_ENOMEM;
    *slot->resources = (struct cn_resources){
        .ledger = slot->run->setup.ledger,
        .roster = slot->roster,
        .gateway = gateway,
        .spool = slot->run->spool,
        .models = slot->run->models,
        .run = slot->run->run,
        .job = &slot->run->setup.job,
        .live = &slot->run->live,
        .now_ms = gateway->now_ms,
    };
    return CN_OK;
}

cn_err cn_job_opening_open(struct cn_job_slot *slot, const struct cn_job_run_shared *shared,
                           struct cn_resources *gateway, const char *state, bool restored,
                           char why[CN_JOB_REASON])
{
    slot->gateway = shared;
    slot->run = calloc(1, sizeof(*slot->run));
    if (!slot->run)
        return CN_ENOMEM;
    cn_err err = open_setup(slot, state, why);
    if (!err)
        err =
            cn_restore_ledger(slot->run->setup.ledger, slot->run->setup.settings->state, restored);
    if (!err)
        err = cn_roster_open(slot->run->setup.ledger, &slot->roster);
    if (!err)
        cn_roster_join(slot->roster, shared->roster);
    if (!err)
        err = open_run(slot);
    return err ? err : open_resources(slot, gateway);
}

void cn_job_opening_close(struct cn_job_slot *slot)
{
    if (!slot->gateway)
        return;
    free(slot->resources);
    if (slot->run)
        cn_job_run_close(slot->run);
    cn_roster_close(slot->roster);
    free(slot->run);
    slot->resources = NULL;
    slot->roster = NULL;
    slot->run = NULL;
    slot->events = (struct cn_event_run){0};
}
