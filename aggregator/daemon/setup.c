#include "aggregator/daemon/setup.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "aggregator/daemon/chain_check.h"
#include "aggregator/daemon/job_place.h"
#include "aggregator/ledger/job_settings.h"
#include "aggregator/run/score.h"
#include "aggregator/store/read_store.h"
#include "aggregator/store/state_owner.h"
#include "runtime/base/whole_number.h"
#include "runtime/command/written_by.h"
#include "runtime/profile/job_changes.h"
#include "runtime/update/tensor_rules.h"
#include "runtime/update/version.h"

#define EVALUATE_MS 600000 // limit for one evaluation
#define LINE 78            // characters in a line of a list of keys

static int explain_version(const struct cn_setup *setup)
{
    char known[64];
    snprintf(known, sizeof(known), "%d to %d", CN_LEDGER_OLDEST, CN_LEDGER_SCHEMA);
    cn_written_by_explain(setup->settings->state, setup->state_name, "a ledger of another schema",
                          known);
    fputs("Or take the model out with that version's 'cairn-aggregator export'.\n", stderr);
    return CN_EXIT_STATE;
}

static int open_ledger(struct cn_setup *setup, enum cn_setup_access access)
{
    const char *state = setup->settings->state;
    bool exists = access == CN_SETUP_LOOK || access == CN_SETUP_ALONE;
    cn_err err = exists ? cn_ledger_open_existing(state, &setup->ledger)
                        : cn_ledger_open(state, &setup->ledger);
    if (err == CN_EVERSION)
        return explain_version(setup);
    if (err == CN_ENOTFOUND)
        fprintf(stderr, "%s/%s: no run was ever started here\n", setup->state_name, CN_LEDGER_FILE);
    else if (err)
        fprintf(stderr, "%s/%s: %s\n", setup->state_name, CN_LEDGER_FILE, cn_err_reason(err));
    else if (!exists)
        cn_written_by_note(state, "cairn-aggregator");
    return err ? CN_EXIT_FAILED : CN_EXIT_DONE;
}

static int open_store(struct cn_setup *setup, enum cn_setup_access access)
{
    char path[PATH_MAX];
    snprintf(path, sizeof(path), "%s/files", setup->settings->state);
    cn_err err = access == CN_SETUP_LOOK ? cn_read_store_open(path, &setup->store)
                                         : cn_platform_open_store(path, &setup->store);
    if (err == CN_EEXIST)
        fprintf(stderr, "%s: another cairn-aggregator runs here\n", setup->state_name);
    else if (err)
        fprintf(stderr, "%s/files: %s\n", setup->state_name, cn_err_reason(err));
    return err ? CN_EXIT_FAILED : CN_EXIT_DONE;
}

static bool has_ledger(const struct cn_setup *setup)
{
    const char *state = setup->settings->state;
    char path[PATH_MAX];
    int length = snprintf(path, sizeof(path), "%s/%s", state, CN_LEDGER_FILE);
    if (length > 0 && (size_t)length < sizeof(path) && access(path, F_OK) == 0)
        return true;
    fprintf(stderr, "%s/%s: no run was ever started here\n", setup->state_name, CN_LEDGER_FILE);
    return false;
}

int cn_setup_load(struct cn_setup *setup, const char *profile)
{
    setup->profile = cn_command_load_profile(profile, CN_PROFILE_GATEWAY);
    if (!setup->profile)
        return CN_EXIT_PROFILE;
    setup->settings = cn_profile_settings(setup->profile);
    setup->job = setup->settings->job;
    snprintf(setup->state_name, sizeof(setup->state_name), "%s", setup->settings->state);
    return CN_EXIT_DONE;
}

bool cn_setup_refuse_job(const char *state)
{
    struct cn_job_place place;
    if (!cn_job_place_find(state, &place))
        return false;
    fprintf(stderr,
            "error: this is the profile of job %s; the gateway with the state %s has the boards "
            "and the queue: give its profile. 'cairn-aggregator job hold GATEWAY.yaml %s' and job "
            "resume, next and stop steer the job\n",
            place.job, place.gateway, place.job);
    return true;
}

int cn_setup_take_rights(struct cn_setup *setup)
{
    char path[CN_PATH_SIZE];
    if (setup->rights == CN_SETUP_OF_CALLER)
        return CN_EXIT_DONE;
    cn_err err = cn_state_owner_take(setup->settings->state, path);
    if (!err)
        err = cn_profile_use_state(setup->profile, path);
    if (err) {
        fprintf(stderr, "error: %s: %s\n", setup->state_name,
                err == CN_EAUTH       ? "root cannot take the rights of its owner here"
                : err == CN_ECONFLICT ? "it belongs to another user than the earlier run"
                                      : cn_err_reason(err));
        return CN_EXIT_FAILED;
    }
    if (setup->rights == CN_SETUP_OF_OWNER_FOREVER)
        cn_state_owner_stay();
    return CN_EXIT_DONE;
}

int cn_setup_open_state(struct cn_setup *setup, enum cn_setup_access access)
{
    int result = cn_setup_take_rights(setup);
    setup->access = access;
    bool of_gateway = access == CN_SETUP_ENROLL || access == CN_SETUP_ALONE;
    if (!result && of_gateway && cn_setup_refuse_job(setup->state_name))
        return CN_EXIT_FAILED;
    if (!result && access == CN_SETUP_ALONE && !has_ledger(setup))
        return CN_EXIT_FAILED; // a lock would make the directory
    if (!result && (access == CN_SETUP_RUN || access == CN_SETUP_ALONE))
        result = open_store(setup, access); // locks first: one program at a time has the ledger
    if (!result)
        result = open_ledger(setup, access);
    if (!result && access == CN_SETUP_LOOK)
        result = open_store(setup, access);
    return result;
}

int cn_setup_open(struct cn_setup *setup, const char *profile, enum cn_setup_access access)
{
    int result = cn_setup_load(setup, profile);
    return result ? result : cn_setup_open_state(setup, access);
}

// Checks that the model's file has the weights of version 0, if that exists. In a run that follows
// another one, version 0 was trained before, and only the file's graph counts.
static cn_err check_weights(const struct cn_setup *setup)
{
    struct cn_ledger_version first;
    struct cn_ledger_origin origin;
    const struct cn_layout *layout = &setup->model.layout;
    struct cn_version_header header = {.count = layout->total};
    uint8_t digest[CN_DIGEST_SIZE];
    cn_err err = cn_ledger_find_version(setup->ledger, 0, &first);
    if (err)
        return err == CN_ENOTFOUND ? CN_OK : err;
    err = cn_ledger_find_origin(setup->ledger, &origin);
    if (err != CN_ENOTFOUND)
        return err;
    float *weights = calloc(layout->total + 1, sizeof(*weights));
    if (!weights)
        return CN_ENOMEM;
    memcpy(header.graph, setup->model.digest, CN_DIGEST_SIZE);
    err = cn_onnx_weights(setup->model.onnx, layout, weights);
    if (!err)
        cn_version_digest(&header, weights, digest);
    free(weights);
    if (!err && memcmp(digest, first.digest, CN_DIGEST_SIZE) != 0)
        return CN_EDIGEST;
    return err;
}

// Prints the keys that a start takes, in lines of at most LINE characters.
static void print_changeable(void)
{
    size_t column = 0;
    fprintf(stderr, "A start takes other values of these keys by itself:\n");
    for (size_t i = 0; i < cn_job_change_count; i++) {
        const char *key = cn_job_changes[i].key;
        if (cn_job_changes[i].change != CN_CHANGE_START &&
            cn_job_changes[i].change != CN_CHANGE_RESTART)
            continue;
        if (column && column + strlen(key) + 2 > LINE) {
            fprintf(stderr, ",\n");
            column = 0;
        }
        fprintf(stderr, "%s%s", column ? ", " : "  ", key);
        column += strlen(key) + 2;
    }
    fprintf(stderr, "\n");
}

// Prints the values that differ.
static void explain_values(const char *state, const struct cn_job_conflict *conflict)
{
    if (conflict->unrecorded) {
        fprintf(stderr,
                "error: %s: the run has other job values than the profile; which ones is not "
                "known: an older program recorded only their digest\n",
                state);
    } else {
        fprintf(stderr, "error: %s: the run has other job values than the profile:\n", state);
        for (size_t i = 0; i < conflict->lines.count && i < CN_DIAG_LINES; i++)
            fprintf(stderr, "  %s\n", conflict->lines.lines[i]);
        if (conflict->lines.count > CN_DIAG_LINES)
            fprintf(stderr, "  and %zu more\n", conflict->lines.count - CN_DIAG_LINES);
    }
}

// Prints what to do about a profile that does not fit the run.
static void explain_way(const char *state, bool reloadable)
{
    if (reloadable)
        fprintf(stderr, "To take the profile's values into the run from its next round on: "
                        "cairn-aggregator reload PROFILE\n");
    fprintf(stderr,
            "%s the run's values in the profile. Or give the profile another state directory and "
            "begin the next\nrun there, with the same boards and keys, from what was trained: "
            "cairn-aggregator init --after %s PROFILE\n",
            reloadable ? "Or restore" : "Restore", state);
}

static int explain_binding(const struct cn_setup *setup, cn_err err,
                           const struct cn_job_conflict *conflict)
{
    const char *state = setup->state_name;
    if (err == CN_ECONFLICT && conflict) {
        if (conflict->model)
            fprintf(stderr, "error: %s: the run has another model than the profile: %s\n", state,
                    setup->settings->model);
        if (conflict->values)
            explain_values(state, conflict);
    } else if (err == CN_EDIGEST) {
        fprintf(stderr,
                "error: %s: the run has another model than the profile: %s has other weights than "
                "it began with\n",
                state, setup->settings->model);
    } else if (err) {
        fprintf(stderr, "%s: %s\n", state, cn_err_text(err));
    }
    bool values = err == CN_ECONFLICT && conflict && conflict->values;
    if (err == CN_ECONFLICT || err == CN_EDIGEST)
        explain_way(state, values && conflict->reloadable && !conflict->model);
    if (values)
        print_changeable();
    return err ? CN_EXIT_FAILED : CN_EXIT_DONE;
}

// Takes the job of the newest round from the ledger, whatever the profile says. An older program
// recorded no values; the profile's then stand in for them, and replay shows whether they are
// right.
static cn_err look_at_job(struct cn_setup *setup, struct cn_job_conflict *conflict)
{
    uint8_t graph[CN_DIGEST_SIZE];
    cn_err err = cn_ledger_graph(setup->ledger, graph);
    if (err)
        return err == CN_ENOTFOUND ? CN_OK : err;
    conflict->model = memcmp(graph, setup->model.digest, CN_DIGEST_SIZE) != 0;
    if (conflict->model)
        return CN_ECONFLICT;
    err = cn_job_settings_load(setup->ledger, UINT32_MAX, &setup->settings->job, &setup->job);
    if (err != CN_ECONFLICT)
        return err;
    fprintf(stderr,
            "warning: %s: an older program recorded no job values, only a digest, and the "
            "profile's have another one; the profile's are taken\n",
            setup->state_name);
    return CN_OK;
}

int cn_setup_load_model(struct cn_setup *setup)
{
    struct cn_diag diag;
    cn_diag_init(&diag);
    setup->has_model = true;
    cn_err err = cn_model_file_init(&setup->model, setup->settings->model, &diag);
    if (err)
        cn_command_print_about(setup->settings->model, err, &diag);
    return err ? CN_EXIT_FAILED : CN_EXIT_DONE;
}

int cn_setup_open_model(struct cn_setup *setup)
{
    struct cn_diag diag;
    struct cn_job_conflict conflict = {0};
    cn_diag_init(&diag);
    int result = cn_setup_load_model(setup);
    if (result)
        return result;
    cn_err err = CN_OK;
    if (setup->access == CN_SETUP_LOOK)
        err = look_at_job(setup, &conflict);
    if (!err && cn_tensor_rules_set(&setup->model.layout, &setup->job, &diag) != CN_OK) {
        cn_command_print_diag(&diag);
        return CN_EXIT_FAILED;
    }
    // Every board would end with an error in the first round of a cut that cannot be.
    if (setup->access == CN_SETUP_RUN && cn_setup_check_cut(setup))
        return CN_EXIT_FAILED;
    if (setup->access != CN_SETUP_LOOK)
        err = cn_job_settings_bind(setup->ledger, setup->model.digest, setup->settings, &conflict);
    return explain_binding(setup, err, &conflict);
}

int cn_setup_set_tensor_rules(struct cn_setup *setup)
{
    struct cn_diag diag;
    cn_diag_init(&diag);
    if (cn_tensor_rules_set(&setup->model.layout, &setup->settings->job, &diag) == CN_OK)
        return CN_EXIT_DONE;
    cn_command_print_diag(&diag);
    return CN_EXIT_FAILED;
}

int cn_setup_check_cut(const struct cn_setup *setup)
{
    struct cn_diag diag;
    cn_diag_init(&diag);
    cn_err err = cn_chain_check_cut(setup->model.onnx, &setup->settings->job, &diag);
    if (!err)
        return CN_EXIT_DONE;
    if (diag.count == 0)
        cn_diag_add(&diag, "the model cannot be cut: %s", cn_err_text(err));
    cn_command_print_errors(&diag);
    return CN_EXIT_FAILED;
}

int cn_setup_check_groups(const struct cn_setup *setup, struct cn_ledger *ledger)
{
    struct cn_diag refused, warned;
    cn_diag_init(&refused);
    cn_diag_init(&warned);
    cn_err err = cn_chain_check_groups(ledger, &setup->settings->job, &refused, &warned);
    if (err && refused.count == 0)
        cn_diag_add(&refused, "the boards are not known: %s", cn_err_text(err));
    if (warned.count)
        fprintf(stderr, "warning: %s\n", cn_diag_first(&warned));
    cn_command_print_errors(&refused);
    return err ? CN_EXIT_FAILED : CN_EXIT_DONE;
}

int cn_setup_check_job(const struct cn_setup *setup)
{
    struct cn_job_conflict conflict;
    cn_err err =
        cn_job_settings_check(setup->ledger, setup->model.digest, setup->settings, &conflict);
    return explain_binding(setup, err, &conflict);
}

int cn_setup_check_weights(const struct cn_setup *setup)
{
    return explain_binding(setup, check_weights(setup), NULL);
}

cn_err cn_setup_open_evaluator(const struct cn_setup *setup, const struct cn_ports *ports,
                               struct cn_evaluator **evaluator)
{
    const struct cn_settings *settings = setup->settings;
    struct cn_diag diag;
    cn_diag_init(&diag);
    *evaluator = NULL;
    if (settings->job.central_set[0] == '\0')
        return CN_OK;
    const struct cn_data_paths *paths = cn_profile_data(settings, settings->job.central_set);
    if (!paths) {
        fprintf(stderr, "error: the job's central set %s is not in the profile's data section\n",
                settings->job.central_set);
        return CN_EINVAL;
    }
    const struct cn_evaluator_config config = {
        .onnx = setup->model.onnx,
        .job = &setup->job,
        .files = paths,
        .computes = ports->computes,
        .threads = settings->threads ? settings->threads : cn_platform_cpu_count(),
        .timeout_ms = EVALUATE_MS,
    };
    cn_err err = cn_evaluator_open(&config, &diag, evaluator);
    if (err)
        fprintf(stderr, "%s: %s\n", settings->job.central_set,
                diag.count ? cn_diag_first(&diag) : cn_err_text(err));
    return err;
}

cn_err cn_setup_find_job(const struct cn_setup *setup, struct cn_job *job)
{
    struct cn_ledger_round newest = {.number = 1};
    *job = setup->settings->job;
    cn_err err = cn_ledger_newest_round(setup->ledger, &newest);
    if (!err && newest.state == CN_LEDGER_MERGED) // the settings of the next one may end the run
        newest.number++;
    if (!err || err == CN_ENOTFOUND)
        err = cn_job_settings_load(setup->ledger, newest.number ? newest.number : 1,
                                   &setup->settings->job, job);
    return err == CN_ENOTFOUND || err == CN_ECONFLICT ? CN_OK : err;
}

cn_err cn_setup_choose_version(struct cn_ledger *ledger, const struct cn_job *job, const char *text,
                               uint32_t *number)
{
    struct cn_ledger_version newest;
    struct cn_run_progress progress = {0};
    uint64_t value;
    cn_err err = cn_ledger_newest_version(ledger, &newest);
    if (err)
        return err;
    *number = newest.number;
    if (strcmp(text, "last") == 0)
        return CN_OK;
    if (strcmp(text, "best") == 0) {
        err = cn_score_progress(ledger, job, 0, &progress);
        *number = progress.best;
        return err || progress.best_score.known ? err : CN_EAGAIN;
    }
    if (!cn_whole_number_read(text, 0, newest.number, &value))
        return CN_ENOTFOUND;
    *number = (uint32_t)value;
    return CN_OK;
}

const char *cn_setup_explain_choice(cn_err err, const char *none)
{
    return err == CN_ENOTFOUND ? none
           : err == CN_EAGAIN  ? "none is known: the central set has to measure versions "
                                 "(central.set), or two groups each version (rounds.quorum)"
                               : cn_err_text(err);
}

void cn_setup_deinit(struct cn_setup *setup)
{
    if (setup->store)
        setup->store->ops->close(setup->store);
    cn_ledger_close(setup->ledger);
    if (setup->has_model)
        cn_model_file_deinit(&setup->model);
    cn_profile_free(setup->profile);
    memset(setup, 0, sizeof(*setup));
}
