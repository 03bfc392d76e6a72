#include "aggregator/sweep/sweep.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "aggregator/sweep/sweep_job.h"
#include "aggregator/sweep/sweep_trial.h"
#include "aggregator/trial/trial_run.h"
#include "runtime/base/diag.h"
#include "runtime/command/command.h"
#include "runtime/command/terminal/wrap.h"

#define WINNER_FILE "winner.yaml"

static struct cn_sweep_trial trial_of(const struct cn_sweep *sweep, const char *name)
{
    return (struct cn_sweep_trial){.aggregator = sweep->aggregator,
                                   .folder = sweep->folder,
                                   .name = name,
                                   .given = sweep->given,
                                   .given_count = sweep->given_count,
                                   .stop = sweep->stop};
}

static int fail(const struct cn_sweep *sweep, cn_err err)
{
    fprintf(stderr, "error: %s: %s\n", sweep->folder, cn_err_text(err));
    return CN_EXIT_FAILED;
}

// --- before the trials ---

static cn_err write_job(const struct cn_sweep *sweep, uint32_t trial, uint32_t rung)
{
    char name[CN_SWEEP_NAME_SIZE], file[CN_SWEEP_NAME_SIZE + 8];
    cn_sweep_name(trial, name);
    snprintf(file, sizeof(file), "%s.yaml", name);
    return cn_sweep_job_write(&sweep->space, trial, sweep->base,
                              cn_halving_rounds(&sweep->plan, rung), sweep->record.store, file);
}

int cn_sweep_prepare(struct cn_sweep *sweep)
{
    for (uint32_t i = 0; i < sweep->space.trials; i++) {
        char path[PATH_MAX], name[CN_SWEEP_NAME_SIZE];
        const struct cn_sweep_result *newest = cn_sweep_record_newest(&sweep->record, i);
        struct cn_diag diag;
        if (newest) // the run that goes on has a job with more rounds
            continue;
        cn_err err = write_job(sweep, i, 0);
        if (err)
            return fail(sweep, err);
        cn_diag_init(&diag);
        cn_sweep_name(i, name);
        int length = snprintf(path, sizeof(path), "%s/%s.yaml", sweep->folder, name);
        if (length < 0 || (size_t)length >= sizeof(path))
            return fail(sweep, CN_ERANGE);
        if (cn_sweep_job_check(path, &diag)) {
            cn_command_print_diag(&diag);
            return CN_EXIT_PROFILE;
        }
    }
    return CN_EXIT_DONE;
}

// --- rungs ---

static void tell_result(const struct cn_sweep *sweep, const struct cn_sweep_result *result)
{
    char values[CN_SWEEP_VALUES_SIZE], line[CN_SWEEP_VALUES_SIZE + 160], accuracy[32] = "";
    if (sweep->quiet)
        return;
    cn_sweep_space_values(&sweep->space, result->trial, values);
    if (!isnan(result->accuracy))
        snprintf(accuracy, sizeof(accuracy), ", accuracy %.4f", result->accuracy);
    if (isfinite(result->loss))
        snprintf(line, sizeof(line), "trial %u, %u round%s: loss %.5g%s; %s", result->trial + 1,
                 result->rounds, result->rounds == 1 ? "" : "s", result->loss, accuracy, values);
    else
        snprintf(line, sizeof(line), "trial %u failed; %s", result->trial + 1, values);
    cn_wrap_print(line, CN_WRAP_INDENT);
    fflush(stdout);
}

static int run_trial(struct cn_sweep *sweep, uint32_t rung, uint32_t number)
{
    char name[CN_SWEEP_NAME_SIZE];
    struct cn_sweep_result result = {.rung = rung, .trial = number};
    cn_sweep_name(number, name);
    struct cn_sweep_trial trial = trial_of(sweep, name);
    cn_err err = write_job(sweep, number, rung);
    if (err)
        return fail(sweep, err);
    int code = cn_sweep_trial_run(&trial, &result);
    if (code == CN_EXIT_INTERRUPTED)
        return code;
    if (code == CN_TRIAL_EXIT_PROCESS) { // such as a rate with which no loss is finite
        fprintf(stderr, "error: trial %u failed and loses; %s/%s.log:\n", number + 1, sweep->folder,
                name);
        cn_sweep_trial_tell(&trial);
    } else if (code) {
        fprintf(stderr, "error: trial %u: try ended with exit code %d:\n", number + 1, code);
        cn_sweep_trial_tell(&trial);
        return code;
    }
    err = cn_sweep_record_add(&sweep->record, &result);
    if (err)
        return fail(sweep, err);
    tell_result(sweep, &result);
    return CN_EXIT_DONE;
}

// Runs the trials of a rung that have no result yet. Sets losses.
static int run_rung(struct cn_sweep *sweep, uint32_t rung, double *losses)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < sweep->plan.trials; i++)
        count += sweep->in[i];
    if (!sweep->quiet && count)
        printf("rung %u of %u: %u trial%s, %u round%s\n", rung + 1, cn_halving_rungs(&sweep->plan),
               count, count == 1 ? "" : "s", cn_halving_rounds(&sweep->plan, rung),
               cn_halving_rounds(&sweep->plan, rung) == 1 ? "" : "s");
    for (uint32_t i = 0; i < sweep->plan.trials; i++) {
        if (!sweep->in[i])
            continue;
        int code = cn_sweep_record_find(&sweep->record, rung, i) ? CN_EXIT_DONE
                                                                 : run_trial(sweep, rung, i);
        if (code)
            return code;
        losses[i] = cn_sweep_record_find(&sweep->record, rung, i)->loss;
    }
    return CN_EXIT_DONE;
}

// Removes the folders of trials that have lost: their losses are in the record.
static void remove_lost(const struct cn_sweep *sweep)
{
    for (uint32_t i = 0; i < sweep->plan.trials && !sweep->keep_all; i++) {
        char name[CN_SWEEP_NAME_SIZE];
        if (sweep->in[i])
            continue;
        cn_sweep_name(i, name);
        struct cn_sweep_trial trial = trial_of(sweep, name);
        cn_sweep_trial_remove(&trial);
    }
}

int cn_sweep_run(struct cn_sweep *sweep)
{
    double losses[CN_SWEEP_TRIALS_MAX] = {0};
    uint32_t rungs = cn_halving_rungs(&sweep->plan);
    sweep->winner = UINT32_MAX;
    for (uint32_t i = 0; i < sweep->plan.trials; i++)
        sweep->in[i] = true;
    for (uint32_t rung = 0; rung < rungs; rung++) {
        int code = run_rung(sweep, rung, losses);
        if (code)
            return code;
        if (rung + 1 < rungs)
            cn_halving_select(&sweep->plan, rung, losses, sweep->in);
        if (rung + 1 < rungs)
            remove_lost(sweep);
    }
    sweep->winner = cn_halving_best(sweep->plan.trials, losses, sweep->in);
    if (sweep->winner == UINT32_MAX) {
        fprintf(stderr, "error: every trial failed: no loss is finite\n");
        return CN_EXIT_FAILED;
    }
    cn_err err = cn_sweep_job_write(&sweep->space, sweep->winner, sweep->base, 0,
                                    sweep->record.store, WINNER_FILE);
    return err ? fail(sweep, err) : CN_EXIT_DONE;
}
