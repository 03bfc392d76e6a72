// cairn-aggregator snapshot: copies the state directory while the run goes on.
#include <getopt.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "aggregator/command/aggregator_commands.h"
#include "aggregator/command/audited.h"
#include "aggregator/daemon/job_opening.h"
#include "aggregator/ledger/job_settings.h"
#include "aggregator/merge/merge.h"
#include "aggregator/store/model_store.h"
#include "aggregator/store/read_store.h"
#include "aggregator/store/spool_name.h"
#include "aggregator/store/state_copy.h"
#include "aggregator/store/state_owner.h"

static const char help[] =
    "Usage: cairn-aggregator snapshot PROFILE DIRECTORY\n"
    "\n"
    "Copies the state directory to DIRECTORY, which must not exist, while the run\n"
    "goes on: the ledger as it is at one moment, with the versions and updates that\n"
    "it needs. The copy is checked before it gets its name. In place of the state\n"
    "directory it is an older copy of the run: start it with run --restored, see\n"
    "docs/backup.md. Submitted jobs are copied with their runs. Guard it as you\n"
    "guard keys: it holds those of all boards.\n"
    "\n"
    "The list of revoked keys, STATE.revocations, is not part of it.\n";

struct checked {
    const struct cn_setup *setup;
    uint32_t version, updates; // newest version; updates of a round that has no version yet
    bool is_job;               // the run of a submitted job
    const char *partial;       // directory that the copies of jobs go into
    uint32_t jobs, job_files;  // of jobs that were copied
    uint64_t job_bytes;
};

static cn_err add_jobs(void *context, const char *directory);

struct updates {
    struct cn_store *store;
    uint32_t count;
};

static cn_err check_update(void *context, const struct cn_ledger_contribution *accepted)
{
    struct updates *updates = context;
    char name[CN_SPOOL_NAME_SIZE];
    uint8_t digest[CN_DIGEST_SIZE], *frame = NULL;
    size_t size;
    cn_spool_name(accepted->round, accepted->group, name);
    cn_err err = updates->store->ops->load(updates->store, name, accepted->size, &frame, &size);
    if (err)
        return err;
    cn_crypto_digest(frame, size, digest);
    free(frame);
    updates->count++;
    return memcmp(digest, accepted->digest, sizeof(digest)) == 0 ? CN_OK : CN_EDIGEST;
}

// Reads the newest version completely, and the updates of which no version was made yet: what the
// run needs to go on.
static cn_err check_ledger(struct checked *checked, struct cn_ledger *ledger,
                           struct cn_store *store)
{
    const struct cn_setup *setup = checked->setup;
    struct cn_ledger_version newest;
    struct cn_ledger_round round;
    struct cn_job job = setup->job;
    struct cn_model model = {0};
    struct updates updates = {.store = store};
    cn_err err = cn_ledger_newest_version(ledger, &newest);
    if (err)
        return err == CN_ENOTFOUND ? CN_OK : err; // a run that was never started
    if (newest.number)
        err = cn_job_settings_load(ledger, newest.number, &setup->job, &job);
    if (!err || err == CN_ENOTFOUND || err == CN_ECONFLICT)
        err = cn_model_load(store, ledger, &setup->model.layout, cn_merge_state_rows(&job),
                            newest.number, &model);
    cn_model_deinit(&model);
    if (err)
        return err;
    checked->version = newest.number;
    err = cn_ledger_newest_round(ledger, &round);
    if (err || round.state == CN_LEDGER_MERGED)
        return err == CN_ENOTFOUND ? CN_OK : err;
    err = cn_ledger_contributions(ledger, round.number, check_update, &updates);
    checked->updates = updates.count;
    return err;
}

static cn_err check(void *context, const char *directory)
{
    struct cn_ledger *ledger = NULL;
    struct cn_store *store = NULL;
    char files[PATH_MAX];
    int length = snprintf(files, sizeof(files), "%s/files", directory);
    if (length < 0 || (size_t)length >= sizeof(files))
        return CN_EINVAL;
    cn_err err = cn_ledger_open_existing(directory, &ledger);
    if (!err)
        err = cn_read_store_open(files, &store);
    if (!err)
        err = check_ledger(context, ledger, store);
    if (store)
        store->ops->close(store);
    cn_ledger_close(ledger);
    return err;
}

static cn_err make_copy(struct checked *checked, const char *to, struct cn_state_copy *copy)
{
    *copy = (struct cn_state_copy){
        .state = checked->setup->settings->state,
        .ledger = checked->setup->ledger,
        .to = to,
        .check = check,
        .add = checked->is_job ? NULL : add_jobs,
        .context = checked,
    };
    return cn_state_copy_make(copy);
}

// Copies a job and its run into the folder jobs of the copy.
static cn_err add_job(void *context, const struct cn_queued_job *job)
{
    struct checked *checked = context, own = {.is_job = true};
    struct cn_setup setup = {0};
    struct cn_state_copy copy;
    char profile[CN_PATH_SIZE], to[CN_PATH_SIZE];
    if (!cn_job_opening_path(checked->setup->settings->state, job->name, CN_JOB_PROFILE, profile) ||
        !cn_job_opening_path(checked->partial, job->name, "", to))
        return CN_ERANGE;
    own.setup = &setup;
    cn_state_owner_return();
    int result = cn_setup_open(&setup, profile, CN_SETUP_LOOK);
    if (!result)
        result = cn_setup_open_model(&setup);
    cn_state_owner_leave();
    cn_err err = result ? CN_EIO : make_copy(&own, to, &copy);
    cn_setup_deinit(&setup);
    if (result && cn_job_is_over(job->state)) {
        fprintf(stderr, "warning: job %s has %s and is not copied\n", job->name,
                cn_job_state_name(job->state));
        return CN_OK;
    }
    if (err) {
        fprintf(stderr, "error: job %s is not copied: %s\n", job->name, cn_err_text(err));
        return err;
    }
    checked->jobs++;
    checked->job_files += copy.files;
    checked->job_bytes += copy.bytes;
    return CN_OK;
}

static cn_err add_jobs(void *context, const char *directory)
{
    struct checked *checked = context;
    char folder[CN_PATH_SIZE];
    checked->partial = directory;
    if (!cn_job_opening_path(directory, "", "", folder))
        return CN_ERANGE;
    if (mkdir(folder, 0700) != 0)
        return CN_EIO;
    return cn_jobs_list(checked->setup->ledger, add_job, checked);
}

// Writes the copy with the rights of the caller, and reads the state with those of its owner.
static int copy_state(const struct cn_setup *setup, const char *to)
{
    struct checked checked = {.setup = setup};
    struct cn_state_copy copy;
    cn_state_owner_leave();
    cn_err err = make_copy(&checked, to, &copy);
    cn_state_owner_return();
    if (err) {
        fprintf(stderr, "error: %s: %s\n", to,
                err == CN_EEXIST   ? "exists already, or DIRECTORY.partial does"
                : err == CN_EAGAIN ? "the run removed files faster than they were copied"
                                   : cn_err_reason(err));
        return CN_EXIT_FAILED;
    }
    printf("%s has version %u and %u updates after it: %u files, %" PRIu64 " bytes\n", to,
           checked.version, checked.updates, copy.files, copy.bytes);
    if (checked.jobs)
        printf("and %u submitted job%s: %u files, %" PRIu64 " bytes\n", checked.jobs,
               checked.jobs == 1 ? "" : "s", checked.job_files, checked.job_bytes);
    return CN_EXIT_DONE;
}

static int run(const struct cn_ports *ports, int argc, char **argv)
{
    static const struct option known[] = {{0}};
    const char *positional[2];
    (void)ports;
    if (getopt_long(argc, argv, "", known, NULL) != -1)
        return CN_EXIT_USAGE;
    if (!cn_aggregator_arguments(argc, argv, 2, "PROFILE and DIRECTORY", positional))
        return CN_EXIT_USAGE;
    struct cn_setup setup = {0};
    int result = cn_setup_open(&setup, positional[0], CN_SETUP_LOOK);
    if (!result)
        result = cn_setup_open_model(&setup);
    if (!result) {
        struct cn_audited audited;
        result = cn_audited_begin(&audited, &setup, "snapshot", "to", positional[1]);
        if (!result)
            result = cn_audited_end(&audited, copy_state(&setup, positional[1]));
    }
    cn_setup_deinit(&setup);
    return result;
}

const struct cn_command cn_aggregator_snapshot = {
    .name = "snapshot",
    .summary = "copy the state while the run goes on",
    .help = help,
    .run = run,
};
