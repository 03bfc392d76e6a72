#include "aggregator/daemon/job_submit.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "aggregator/daemon/init_after.h"
#include "aggregator/daemon/job_opening.h"
#include "aggregator/show/invitable.h"

#define MODEL_FILE "model.onnx"
#define WHOLE_FILE "submitted.yaml" // the profile as it was submitted, with all values
#define OPEN_FILES 16

// --- the profile of the job's run ---

// Makes an absolute path of one that YAML can have between quotes.
static bool resolve(const char *path, char absolute[PATH_MAX])
{
    if (!realpath(path, absolute)) {
        fprintf(stderr, "error: %s: %s\n", path, cn_err_text(cn_err_from_errno(errno)));
        return false;
    }
    if (!strpbrk(absolute, "\"\\\n"))
        return true;
    fprintf(stderr, "error: %s: the path may have no quotes, backslashes or line ends\n", absolute);
    return false;
}

// Loads the gateway's profile with another job. CN_JOB_PROFILE sets the state directory.
static struct cn_profile *load(const struct cn_job_submission *submission)
{
    char gateway[PATH_MAX], job[PATH_MAX], text[3 * PATH_MAX];
    struct cn_profile *profile = NULL;
    struct cn_diag diag;
    if (!resolve(submission->profile, gateway) || !resolve(submission->job, job))
        return NULL;
    int length = snprintf(text, sizeof(text),
                          "schema: cairn/site/v1\nextends: \"%s\"\njob: \"%s\"\n", gateway, job);
    cn_diag_init(&diag);
    cn_err err = cn_profile_parse(submission->job, text, (size_t)length, &diag, &profile);
    if (!err)
        err = cn_profile_require(profile, CN_PROFILE_GATEWAY, &diag);
    if (!err)
        return profile;
    cn_command_print_diag(&diag);
    cn_profile_free(profile);
    return NULL;
}

static cn_err write_whole(const struct cn_profile *profile, struct cn_store *store)
{
    char *text = NULL;
    size_t size = 0;
    FILE *file = open_memstream(&text, &size);
    if (!file)
        return CN_ENOMEM;
    cn_profile_print(profile, false, file);
    cn_err err = fclose(file) ? CN_ENOMEM : cn_store_replace(store, WHOLE_FILE, text, size);
    free(text);
    return err;
}

int cn_job_files_open(const struct cn_job_submission *submission, struct cn_job_files *files)
{
    struct cn_diag diag;
    files->profile = load(submission);
    if (!files->profile)
        return CN_EXIT_PROFILE;
    const char *path = cn_profile_settings(files->profile)->model;
    cn_diag_init(&diag);
    cn_err err = cn_onnx_file_open(path, &diag, &files->model);
    files->has_model = !err;
    if (err)
        cn_command_print_about(path, err, &diag);
    return err ? CN_EXIT_FAILED : CN_EXIT_DONE;
}

void cn_job_files_close(struct cn_job_files *files)
{
    if (files->has_model)
        cn_onnx_file_close(&files->model);
    cn_profile_free(files->profile);
    *files = (struct cn_job_files){0};
}

// The copy of the model is one file: external data of the model is joined.
static int write_files(const struct cn_job_files *files, const char *folder)
{
    static const char text[] = "# Written by cairn-aggregator job submit. Commands that take the\n"
                               "# profile of a gateway take this one for the job's run.\n"
                               "schema: cairn/site/v1\n"
                               "extends: " WHOLE_FILE "\n"
                               "state: .\n"
                               "job: {model: " MODEL_FILE "}\n";
    struct cn_store *store = NULL;
    cn_err err = cn_platform_open_store(folder, &store);
    if (!err)
        err = cn_store_replace(store, MODEL_FILE, files->model.data, files->model.size);
    if (!err)
        err = write_whole(files->profile, store);
    if (!err)
        err = cn_store_replace(store, CN_JOB_PROFILE, text, sizeof(text) - 1);
    if (store)
        store->ops->close(store);
    if (err)
        fprintf(stderr, "error: %s: %s\n", folder, cn_err_reason(err));
    return err ? CN_EXIT_FAILED : CN_EXIT_DONE;
}

// --- checks ---

static int remove_entry(const char *path, const struct stat *info, int kind, struct FTW *place)
{
    (void)info, (void)kind, (void)place;
    return remove(path);
}

// Removes what an attempt that was killed left. The job has no row.
static void clear_folder(const char *folder)
{
    (void)!nftw(folder, remove_entry, OPEN_FILES, FTW_DEPTH | FTW_PHYS | FTW_MOUNT);
}

static int check_name(const struct cn_setup *setup, const char *name)
{
    struct cn_queued_job found;
    if (strcmp(name, setup->settings->job.name) == 0) {
        fprintf(stderr,
                "error: %s is the job of the gateway's profile; give the other one a name "
                "of its own: --name\n",
                name);
        return CN_EXIT_FAILED;
    }
    cn_err err = cn_jobs_find(setup->ledger, name, &found);
    if (!err)
        fprintf(stderr,
                "error: a job %s was submitted before and is %s; --name gives this one "
                "another name\n",
                name, cn_job_state_name(found.state));
    else if (err != CN_ENOTFOUND)
        fprintf(stderr, "error: %s: %s\n", setup->state_name, cn_err_text(err));
    return err == CN_ENOTFOUND ? CN_EXIT_DONE : CN_EXIT_FAILED;
}

// Opens the job as its run would, and warns when it needs more groups than there are.
static int check_run(const struct cn_setup *gateway, const char *profile)
{
    struct cn_setup setup = {0};
    uint32_t groups = 0;
    int result = CN_EXIT_PROFILE;
    setup.profile = cn_command_load_profile(profile, CN_PROFILE_GATEWAY);
    if (setup.profile) {
        setup.settings = cn_profile_settings(setup.profile);
        setup.job = setup.settings->job;
        result = cn_setup_load_model(&setup);
    }
    if (!result)
        result = cn_setup_set_tensor_rules(&setup) | cn_setup_check_cut(&setup) |
                 cn_setup_check_groups(&setup, gateway->ledger);
    const char *set = setup.settings ? setup.settings->job.central_set : "";
    if (!result && set[0] && !cn_profile_data(setup.settings, set)) {
        fprintf(stderr, "error: the job's central set %s is not in the gateway's data section\n",
                set);
        result = CN_EXIT_FAILED;
    }
    uint32_t needed = cn_job_updates_needed(&setup.job);
    if (!result && !cn_ledger_group_count(gateway->ledger, &groups) && groups < needed) {
        char few[CN_INVITABLE_ENROLLED_TEXT];
        cn_invitable_enrolled_text(cn_job_needed_word(&setup.job), needed, groups, few);
        fprintf(stderr, "warning: %s: the job waits for more\n", few);
    }
    cn_setup_deinit(&setup);
    return result;
}

// --- submitting ---

// Makes the ledger of a run that begins with its model's weights.
static int make_state(const char *profile)
{
    struct cn_setup setup = {0};
    int result = cn_setup_open(&setup, profile, CN_SETUP_RUN);
    cn_setup_deinit(&setup);
    return result;
}

static int make_folder(const struct cn_setup *setup, const struct cn_job_submission *submission,
                       const struct cn_job_files *files, const char *folder)
{
    char path[CN_PATH_SIZE];
    if (snprintf(path, sizeof(path), "%s/" CN_JOB_PROFILE, folder) >= (int)sizeof(path)) {
        fprintf(stderr, "error: %s: the path is too long\n", folder);
        return CN_EXIT_FAILED;
    }
    clear_folder(folder);
    int result = write_files(files, folder);
    if (!result)
        result = check_run(setup, path);
    if (!result)
        result = submission->from ? cn_init_after(submission->from, submission->version, path, true)
                                  : make_state(path);
    return result;
}

static int add_row(const struct cn_setup *setup, const struct cn_queued_job *job)
{
    cn_err err = cn_jobs_add(setup->ledger, job);
    if (err == CN_ERANGE)
        fprintf(stderr, "error: %d jobs are in the queue: one of them must end first\n",
                CN_JOBS_MOST);
    else if (err)
        fprintf(stderr, "error: %s: %s\n", setup->state_name, cn_err_text(err));
    return err ? CN_EXIT_FAILED : CN_EXIT_DONE;
}

static int submit(const struct cn_setup *setup, const struct cn_job_submission *submission,
                  const struct cn_job_files *files, struct cn_queued_job *job)
{
    const char *state = setup->settings->state;
    char folder[CN_PATH_SIZE];
    *job = (struct cn_queued_job){.priority = submission->priority, .turn = submission->turn};
    snprintf(job->name, sizeof(job->name), "%s",
             submission->name ? submission->name : cn_profile_settings(files->profile)->job.name);
    snprintf(job->needs, sizeof(job->needs), "%s", submission->needs);
    int result = check_name(setup, job->name);
    if (result)
        return result;
    if (!cn_job_opening_path(state, job->name, "", folder)) {
        fprintf(stderr, "error: %s: the path is too long\n", setup->state_name);
        return CN_EXIT_FAILED;
    }
    result = make_folder(setup, submission, files, folder);
    if (!result)
        result = add_row(setup, job);
    if (result)
        clear_folder(folder);
    return result;
}

// Takes the lock under which one job at a time is submitted. Returns a descriptor, or -1 after it
// printed why there is none.
static int lock_jobs(const char *state)
{
    char jobs[CN_PATH_SIZE], path[CN_PATH_SIZE];
    int file = -1;
    if (cn_job_opening_path(state, "", "", jobs) && cn_job_opening_path(state, ".lock", "", path)) {
        (void)!mkdir(jobs, 0700);
        file = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    }
    if (file >= 0 && flock(file, LOCK_EX) == 0)
        return file;
    fprintf(stderr, "error: %s/" CN_JOBS_FOLDER ": %s\n", state, strerror(errno));
    if (file >= 0)
        close(file);
    return -1;
}

int cn_job_submit(const struct cn_setup *setup, const struct cn_job_submission *submission,
                  const struct cn_job_files *files, struct cn_queued_job *job)
{
    int lock = lock_jobs(setup->settings->state);
    if (lock < 0)
        return CN_EXIT_FAILED;
    int result = submit(setup, submission, files, job);
    close(lock);
    return result;
}
