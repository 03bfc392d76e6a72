#include "aggregator/daemon/reload.h"

#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "aggregator/daemon/chain_check.h"
#include "aggregator/run/score.h"
#include "runtime/base/log.h"
#include "runtime/update/tensor_rules.h"

static atomic_bool asked;

// Checks the rules for single tensors in a copy, because the running aggregator uses the layout.
static cn_err check_tensor_rules(const struct cn_setup *setup, const struct cn_job *job,
                                 struct cn_diag *refused)
{
    struct cn_layout copy;
    cn_err err = cn_layout_copy(&setup->model.layout, &copy);
    if (err)
        return err;
    err = cn_tensor_rules_set(&copy, job, refused);
    cn_layout_deinit(&copy);
    return err == CN_ENOTFOUND || err == CN_EINVAL ? CN_ECONFLICT : err;
}

// Returns whether the run has the same chains already.
static bool has_chains(const struct cn_setup *setup, const struct cn_job *job)
{
    struct cn_job current;
    return cn_setup_find_job(setup, &current) == CN_OK &&
           current.pipeline.parts == job->pipeline.parts &&
           current.parallel.shard == job->parallel.shard;
}

// Refuses a cut that the model cannot have, and chains that no group can form. Where the run has
// these chains already, its boards are too few for other reasons: that hinders no other change.
static cn_err check_chain(const struct cn_setup *setup, const struct cn_job *job,
                          struct cn_diag *refused, struct cn_diag *warned)
{
    bool had = has_chains(setup, job);
    cn_err err = cn_chain_check_cut(setup->model.onnx, job, refused);
    if (!err)
        err = cn_chain_check_groups(setup->ledger, job, had ? warned : refused, warned);
    if (had && err == CN_EINVAL && !refused->count)
        err = CN_OK;
    return err && refused->count ? CN_ECONFLICT : err;
}

cn_err cn_reload_write(const struct cn_setup *setup, const struct cn_settings *settings,
                       struct cn_job_reload *reload)
{
    struct cn_diag warned;
    *reload = (struct cn_job_reload){0};
    cn_diag_init(&warned);
    cn_err err = check_tensor_rules(setup, &settings->job, &reload->refused);
    if (!err)
        err = check_chain(setup, &settings->job, &reload->refused, &warned);
    if (!err)
        err = cn_job_reload(setup->ledger, settings, reload);
    reload->warned = warned;
    return err;
}

// Lines begin with "KEY:".
static bool has_key_of(const struct cn_diag *lines, const char *line)
{
    for (size_t i = 0; i < lines->count && i < CN_DIAG_LINES; i++)
        if (strncmp(lines->lines[i], line, strcspn(line, ":") + 1) == 0)
            return true;
    return false;
}

void cn_reload_describe(const struct cn_job_reload *reload, size_t line, char text[CN_RELOAD_LINE])
{
    const char *changed = reload->changed.lines[line];
    snprintf(text, CN_RELOAD_LINE, "from round %u on: %s",
             has_key_of(&reload->at_once, changed) ? reload->open_round : reload->from_round,
             changed);
}

// Says how a run stands that its new values end. If stop.patience is the only reason, the
// measurement of the version that is made now may still change the end.
static void describe_sudden_end(const struct cn_run_progress *progress, const struct cn_job *job,
                                uint32_t newest, const char *reason, char text[CN_RELOAD_LINE])
{
    uint32_t age = cn_score_age(progress);
    struct cn_job rest = *job;
    rest.patience = 0;
    if (!cn_score_end(&rest, progress, newest))
        snprintf(text, CN_RELOAD_LINE,
                 "stop.patience is %u and the best version, %u, is %u version%s old: the run ends "
                 "with the next version, unless that is better",
                 job->patience, progress->best, age, age == 1 ? "" : "s");
    else
        snprintf(text, CN_RELOAD_LINE,
                 "with these values the run ends at once, or with the open round: %s", reason);
}

void cn_reload_describe_end(const struct cn_setup *setup, const struct cn_settings *settings,
                            char text[CN_RELOAD_LINE])
{
    struct cn_run_progress progress = {0}, progress_after = {0};
    struct cn_ledger_version newest;
    const struct cn_job *before = &setup->job, *after = &settings->job;
    text[0] = '\0';
    cn_err err = cn_ledger_newest_version(setup->ledger, &newest);
    if (!err)
        err = cn_score_progress(setup->ledger, before, 0, &progress);
    if (!err)
        err = cn_score_progress(setup->ledger, after, 0, &progress_after);
    if (err)
        return;
    const char *was_over = cn_score_end(before, &progress, newest.number);
    const char *is_over = cn_score_end(after, &progress_after, newest.number);
    if (was_over)
        snprintf(text, CN_RELOAD_LINE, "the run is over: %s; %s", was_over,
                 is_over ? "with the values of the profile it stays so"
                         : "it goes on with these values when the aggregator is started again");
    else if (is_over)
        describe_sudden_end(&progress_after, after, newest.number, is_over, text);
}

static void on_signal(int number)
{
    (void)number;
    atomic_store(&asked, true);
}

void cn_reload_catch_signal(void)
{
    struct sigaction action = {.sa_handler = on_signal};
    sigaction(SIGHUP, &action, NULL);
}

bool cn_reload_is_asked(void)
{
    return atomic_exchange(&asked, false);
}

// Where the lines about a reload go besides the log: to the client of a control socket.
struct told {
    char prefix[CN_NAME_SIZE + 8]; // of each line: "job NAME: "; "": the gateway's own job
    const char *path;              // of the profile
    char *text;                    // NULL: only to the log
    size_t size;
};

static void tell(struct told *told, enum cn_log_level level, const char *line)
{
    cn_log(level, "reload", "%s%s", told->prefix, line);
    size_t used = told->text ? strlen(told->text) : 0;
    if (told->text && used + 1 < told->size)
        snprintf(told->text + used, told->size - used, "%s%s%s", used ? "\n" : "", told->prefix,
                 line);
}

static void tell_refusal(struct told *told, cn_err err, const struct cn_diag *diag)
{
    char text[CN_DIAG_LINE_SIZE];
    for (size_t i = 0; i < diag->count && i < CN_DIAG_LINES; i++)
        tell(told, CN_LOG_ERROR, diag->lines[i]);
    if (diag->count)
        snprintf(text, sizeof(text), "nothing is changed: the profile %s is refused", told->path);
    else
        snprintf(text, sizeof(text), "nothing is changed: %s: %s", told->path, cn_err_text(err));
    tell(told, CN_LOG_ERROR, text);
}

// Refuses a profile whose files are not those that the running aggregator has open.
static void check_files(const struct cn_setup *setup, const struct cn_settings *settings,
                        struct cn_diag *refused)
{
    if (strcmp(setup->settings->state, settings->state) != 0)
        cn_diag_add(refused, "state: the running aggregator uses %s, the profile names %s",
                    setup->settings->state, settings->state);
    if (strcmp(setup->settings->model, settings->model) != 0)
        cn_diag_add(refused, "job.model: the running aggregator trains %s, the profile names %s",
                    setup->settings->model, settings->model);
}

static bool take(const struct cn_setup *setup, const struct cn_settings *settings,
                 struct told *told)
{
    static struct cn_job_reload reload;
    struct cn_diag diag;
    char text[CN_RELOAD_LINE];
    cn_diag_init(&diag);
    check_files(setup, settings, &diag);
    cn_err err = diag.count ? CN_ECONFLICT : cn_reload_write(setup, settings, &reload);
    if (err) {
        tell_refusal(told, err, diag.count ? &diag : &reload.refused);
        return false;
    }
    for (size_t i = 0; i < reload.changed.count && i < CN_DIAG_LINES; i++) {
        cn_reload_describe(&reload, i, text);
        tell(told, CN_LOG_INFO, text);
    }
    for (size_t i = 0; i < reload.warned.count && i < CN_DIAG_LINES; i++)
        tell(told, CN_LOG_WARN, reload.warned.lines[i]);
    if (reload.changed.count == 0)
        tell(told, CN_LOG_INFO, "the profile has the values of the run");
    cn_reload_describe_end(setup, settings, text);
    if (text[0])
        tell(told, CN_LOG_WARN, text);
    return true;
}

bool cn_reload_here(const struct cn_setup *setup, const char *job, const char *path, char *text,
                    size_t size)
{
    struct cn_profile *profile = NULL;
    struct cn_diag diag;
    struct told told = {.path = path, .text = text, .size = size};
    bool taken = false;
    if (job)
        snprintf(told.prefix, sizeof(told.prefix), "job %.*s: ", CN_NAME_SIZE - 1, job);
    cn_diag_init(&diag);
    if (text)
        text[0] = '\0';
    cn_err err = cn_profile_load(path, &diag, &profile);
    if (!err)
        err = cn_profile_require(profile, CN_PROFILE_GATEWAY, &diag);
    if (err)
        tell_refusal(&told, err, &diag);
    else
        taken = take(setup, cn_profile_settings(profile), &told);
    cn_profile_free(profile);
    return taken;
}
