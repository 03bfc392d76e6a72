#include "aggregator/daemon/init_after.h"

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "aggregator/daemon/setup.h"
#include "aggregator/ledger/job_settings.h"
#include "aggregator/store/model_store.h"
#include "aggregator/store/read_store.h"
#include "aggregator/store/revocations.h"
#include "aggregator/store/state_owner.h"
#include "runtime/profile/job_text.h"

struct succession {
    struct cn_setup setup;     // the next run
    const char *state;         // state directory of the earlier run
    struct cn_ledger *earlier; // ledger of the earlier run
    struct cn_store *files;    // files of the earlier run
    struct cn_model first;     // version 0 of the next run
    struct cn_ledger_origin origin;
    bool is_job;
};

// Returns the option that named the earlier run.
static const char *option_of(const struct succession *next)
{
    return next->is_job ? "--from" : "--after";
}

static int open_earlier(struct succession *next)
{
    char path[PATH_MAX], state[CN_PATH_SIZE];
    cn_err err = cn_state_owner_take(next->state, state);
    if (!err)
        err = cn_ledger_open_existing(state, &next->earlier);
    if (err) {
        fprintf(stderr, "error: %s %s: %s\n", option_of(next), next->state,
                err == CN_ENOTFOUND ? "it has no ledger: no run was ever started there"
                                    : cn_err_text(err));
        return CN_EXIT_FAILED;
    }
    snprintf(path, sizeof(path), "%s/files", state);
    err = cn_read_store_open(path, &next->files);
    if (err)
        fprintf(stderr, "error: %s/files: %s\n", next->state, cn_err_text(err));
    return err ? CN_EXIT_FAILED : CN_EXIT_DONE;
}

// Finds the job of the earlier run, which says which of its versions is the best.
static void find_job(struct succession *next, struct cn_job *job)
{
    const struct cn_job *profile = &next->setup.settings->job;
    if (cn_job_settings_load(next->earlier, UINT32_MAX, profile, job))
        *job = *profile;
}

static int check_graph(struct succession *next)
{
    struct cn_setup *setup = &next->setup;
    uint8_t graph[CN_DIGEST_SIZE];
    cn_err err = cn_ledger_graph(next->earlier, graph);
    if (!err && memcmp(graph, setup->model.digest, CN_DIGEST_SIZE) == 0)
        return CN_EXIT_DONE;
    if (err && err != CN_ENOTFOUND)
        fprintf(stderr, "error: %s %s: %s\n", option_of(next), next->state, cn_err_text(err));
    else if (next->is_job)
        fprintf(stderr,
                "error: --from: the run in %s %s; without --from the job begins with the weights "
                "of %s\n",
                next->state, err ? "has no version yet" : "has another model than the job",
                setup->settings->model);
    else
        fprintf(stderr,
                "error: --after %s: that run %s; --version none takes its boards and keys and "
                "begins with the weights of %s\n",
                next->state, err ? "has no version yet" : "has another model than the profile",
                setup->settings->model);
    return CN_EXIT_FAILED;
}

// Makes a version of the earlier run version 0 of the next one; its file is durable on return.
static int take_version(struct succession *next, const char *version)
{
    struct cn_setup *setup = &next->setup;
    struct cn_model trained = {0};
    struct cn_job job;
    uint32_t number = 0;
    find_job(next, &job);
    cn_err err = cn_setup_choose_version(next->earlier, &job, version, &number);
    cn_state_owner_leave(); // the earlier run may belong to root
    if (!err)
        err = cn_model_load_weights(next->files, next->earlier, &setup->model.layout, number,
                                    &trained);
    cn_state_owner_return();
    if (err) {
        fprintf(stderr, "error: %s %s: %s\n", next->is_job ? "--from: version" : "--version",
                version, cn_setup_explain_choice(err, "there is none, or it is no longer kept"));
        return CN_EXIT_FAILED;
    }
    next->origin.run = cn_ledger_identity(next->earlier)->run;
    next->origin.version = number;
    memcpy(next->origin.digest, trained.digest, CN_DIGEST_SIZE);
    err = cn_model_seal(&next->first, setup->model.digest, &setup->model.layout,
                        cn_model_weights(&trained));
    if (!err)
        err = cn_model_save_first(setup->store, &next->first);
    cn_model_deinit(&trained);
    if (err)
        fprintf(stderr, "error: %s/files: %s\n", setup->state_name, cn_err_text(err));
    return err ? CN_EXIT_FAILED : CN_EXIT_DONE;
}

// A copied state directory may be older than a revocation that is in the list beside it, so the
// list is taken over, too.
static cn_err take_revocations(const struct succession *next)
{
    char from[PATH_MAX], to[PATH_MAX];
    struct cn_revocations_report report;
    cn_err err = cn_revocations_path(next->state, from, sizeof(from));
    if (!err)
        err = cn_revocations_path(next->setup.settings->state, to, sizeof(to));
    if (!err)
        err = cn_revocations_import(to, from, &report);
    return err == CN_ENOTFOUND ? CN_OK : err;
}

static cn_err follow(struct succession *next, bool trained)
{
    struct cn_setup *setup = &next->setup;
    struct cn_ledger_setting setting = {.from_round = 1};
    struct cn_ledger_version version = {.number = 0};
    if (!trained)
        return cn_ledger_follow(setup->ledger, next->earlier, NULL);
    memcpy(version.digest, next->first.digest, CN_DIGEST_SIZE);
    cn_job_settings_digest(&setup->settings->job, setting.digest);
    cn_err err = cn_job_text_make(setup->settings, &setting.job);
    const struct cn_ledger_start start = {next->origin, &version, setup->model.digest, &setting};
    if (!err)
        err = cn_ledger_follow(setup->ledger, next->earlier, &start);
    cn_ledger_setting_deinit(&setting);
    return err;
}

static int explain_state(const char *state, cn_err err)
{
    if (err == CN_EEXIST)
        fprintf(stderr,
                "error: %s: a run or boards are there already; give the profile a state "
                "directory of its own for the next run\n",
                state);
    else if (err)
        fprintf(stderr, "error: %s: %s\n", state, cn_err_text(err));
    return err ? CN_EXIT_FAILED : CN_EXIT_DONE;
}

static int begin(struct succession *next, bool trained, const char *profile)
{
    const char *state = next->setup.state_name;
    uint32_t groups = 0;
    cn_err err = follow(next, trained);
    if (!err && !next->is_job) // after the boards: a board that is revoked meanwhile is in the list
        err = take_revocations(next);
    if (!err)
        err = cn_ledger_group_count(next->setup.ledger, &groups);
    if (err)
        return explain_state(state, err);
    if (next->is_job)
        return CN_EXIT_DONE;
    printf("%s has the boards of %s, %u group%s, with the keys that they have\n", state,
           next->state, groups, groups == 1 ? "" : "s");
    if (trained)
        printf("version 0 is version %u of run %016" PRIx64 "\n", next->origin.version,
               next->origin.run);
    printf("try: cairn-aggregator check %s\n", profile);
    return CN_EXIT_DONE;
}

static void close_all(struct succession *next)
{
    cn_model_deinit(&next->first);
    if (next->files)
        next->files->ops->close(next->files);
    cn_ledger_close(next->earlier);
    cn_setup_deinit(&next->setup);
}

int cn_init_after(const char *earlier, const char *version, const char *profile, bool is_job)
{
    struct succession next = {.state = earlier, .is_job = is_job};
    bool trained = strcmp(version, "none") != 0;
    int result = open_earlier(&next);
    cn_state_owner_leave(); // the next run may have another owner, such as root
    if (!result)
        result = cn_setup_open(&next.setup, profile, CN_SETUP_RUN);
    if (!result) // checked before a file of the state is replaced
        result = explain_state(next.setup.state_name, cn_ledger_check_empty(next.setup.ledger));
    if (!result)
        result = cn_setup_load_model(&next.setup);
    if (!result) // the job is of the run from here on
        result = cn_setup_set_tensor_rules(&next.setup);
    if (!result && trained)
        result = check_graph(&next);
    if (!result && trained)
        result = take_version(&next, version);
    if (!result)
        result = begin(&next, trained, profile);
    close_all(&next);
    return result;
}
