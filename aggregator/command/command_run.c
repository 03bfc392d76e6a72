// cairn-aggregator run: serves the boards until the run ends.
#include <getopt.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "aggregator/command/aggregator_commands.h"
#include "aggregator/command/audited.h"
#include "aggregator/daemon/chain_check.h"
#include "aggregator/daemon/daemon.h"
#include "aggregator/daemon/job_events.h"
#include "aggregator/daemon/reload.h"
#include "aggregator/daemon/run_end.h"
#include "aggregator/ledger/job_settings.h"
#include "aggregator/serve/status.h"
#include "aggregator/show/invitable.h"
#include "runtime/base/log.h"
#include "runtime/command/terminal/wrap.h"
#include "runtime/update/local_tensors.h"

#define STEP_MS 50
#define ROSTER_MS 500    // between looks for enrolled and revoked boards
#define STATUS_MS 1000   // between writes of status.json
#define LINGER_MS 20000  // longest time after the end for boards to learn of it
#define QUIET_MS 3000    // silence of all boards after which the program may leave
#define ASKED_MS 1000    // the same where all of them have asked for another job
#define OVER_FILE "over" // empty; says that the boards had their time after the end

static const char help[] =
    "Usage: cairn-aggregator run PROFILE [--stay] [--restored]\n"
    "\n"
    "Runs the job of the profile: opens rounds, merges the updates of the boards,\n"
    "serves the versions. Goes on where it was stopped or killed. Exits 0 when the\n"
    "run is over, 130 when a signal stopped it before. On SIGHUP it takes the job's\n"
    "values from the profile again, as `cairn-aggregator reload` does.\n"
    "\n"
    "With http.listen in the profile it shows metrics, health and the state of the\n"
    "run over HTTP (docs/metrics.md); if it cannot listen there, it does not start.\n"
    "\n"
    "  --stay           keeps serving the last version after the end\n"
    "  --restored       the state directory is an older copy of its run: boards that\n"
    "                   hold more than it give that up and go on from here. Once, at\n"
    "                   the first start after it was restored (docs/backup.md)\n";

static void refresh_roster(struct cn_daemon *daemon, uint64_t now_ms)
{
    if (now_ms - daemon->roster_ms < ROSTER_MS)
        return;
    daemon->roster_ms = now_ms;
    cn_err err = cn_daemon_refresh(daemon);
    if (err)
        cn_log(CN_LOG_WARN, "run", "enrolments and jobs are not read yet: %s", cn_err_text(err));
    err = cn_roster_store_errors(daemon->roster, now_ms);
    if (err)
        cn_log(CN_LOG_WARN, "run", "errors of boards are not stored yet: %s", cn_err_text(err));
}

static void write_status(struct cn_daemon *daemon, const struct cn_run_state *state,
                         uint64_t now_ms)
{
    if (now_ms - daemon->status_ms < STATUS_MS)
        return;
    daemon->status_ms = now_ms;
    cn_err err =
        cn_status_write(daemon->first.setup.settings->state, daemon->roster, state, now_ms);
    if (err)
        cn_log(CN_LOG_DEBUG, "run", "%s: %s", CN_STATUS_FILE, cn_err_text(err));
    cn_platform_notify("WATCHDOG=1"); // from this loop only, so that it stops when the daemon hangs
}

// Returns whether the program still waits for boards that have not come back since its start. They
// need a while to notice the restart, and the leader of a group may be the last to come back.
static bool awaits_boards(const struct cn_daemon *daemon, uint64_t now_ms)
{
    size_t count;
    const struct cn_roster_board *boards = cn_roster_boards(daemon->roster, &count);
    if (now_ms - daemon->started_ms >= LINGER_MS)
        return false;
    for (size_t i = 0; i < count; i++)
        if (!boards[i].heard_ms && !boards[i].enrolled.revoked)
            return true;
    return false;
}

// Returns whether every board has registered since the end, to ask for another job: so all know of
// the end.
static bool all_have_asked(const struct cn_daemon *daemon)
{
    size_t count;
    const struct cn_roster_board *boards = cn_roster_boards(daemon->roster, &count);
    for (size_t i = 0; i < count; i++)
        if (!boards[i].enrolled.revoked && boards[i].registered_ms <= daemon->ended_ms)
            return false;
    return count > 0;
}

// Says whether the program may leave after the end of the run: every group that is here has the
// last version and all boards are silent, or LINGER_MS are over. Until then a board that was killed
// at the end has come back.
static bool may_leave(struct cn_daemon *daemon, uint64_t now_ms)
{
    size_t count;
    uint32_t last = cn_model_store_newest(daemon->first.models)->number;
    const struct cn_roster_group *groups = cn_roster_groups(daemon->roster, &count);
    if (daemon->ended_ms == 0)
        daemon->ended_ms = now_ms;
    if (now_ms - daemon->ended_ms > LINGER_MS)
        return true;
    if (awaits_boards(daemon, now_ms))
        return false;
    uint64_t quiet_ms = all_have_asked(daemon) ? ASKED_MS : QUIET_MS;
    for (size_t i = 0; i < count; i++) {
        bool here = groups[i].heard_ms && now_ms - groups[i].heard_ms < LINGER_MS;
        bool lacks_last = !daemon->over_at_start && !groups[i].away && groups[i].served < last;
        if (here && lacks_last)
            return false;
        if (here && now_ms - groups[i].heard_ms < quiet_ms)
            return false;
    }
    return now_ms - daemon->ended_ms >= quiet_ms;
}

// Forgets an earlier end: the run goes on, or another job does.
static void forget_end(struct cn_daemon *daemon)
{
    struct cn_store *store = daemon->first.setup.store;
    daemon->ended_ms = 0;
    if (store->ops->remove(store, OVER_FILE))
        cn_log(CN_LOG_DEBUG, "run", "%s was not removed", OVER_FILE);
}

// Returns whether nothing is left to do: the run and all jobs are over.
static bool is_over(const struct cn_daemon *daemon, const struct cn_run_state *state)
{
    return state->phase == CN_RUN_ENDED &&
           (cn_job_set_is_over(&daemon->jobs) ||
            (state->steering.leaving && cn_job_set_is_idle(&daemon->jobs)));
}

static bool was_left(const struct cn_daemon *daemon)
{
    uint8_t *bytes = NULL;
    size_t size;
    cn_err err = daemon->first.setup.store->ops->load(daemon->first.setup.store, OVER_FILE, 0,
                                                      &bytes, &size);
    free(bytes);
    return !err;
}

static cn_err tick(struct cn_daemon *daemon, struct cn_run_state *state)
{
    uint32_t wait_ms = cn_http_service_wait(&daemon->http, STEP_MS);
    cn_err err = cn_coap_server_step(daemon->server, wait_ms);
    uint64_t now_ms = cn_platform_now_ms();
    if (err)
        return err;
    refresh_roster(daemon, now_ms);
    if (cn_reload_is_asked())
        (void)cn_reload_here(&daemon->first.setup, NULL, daemon->profile, NULL, 0);
    cn_control_step(daemon->control, now_ms);
    err = cn_job_run_tick(&daemon->first, now_ms);
    if (err)
        return err;
    cn_run_get_state(daemon->first.run, now_ms, state);
    cn_job_set_step(&daemon->jobs, state, daemon->server, now_ms);
    write_status(daemon, state, now_ms);
    cn_err trouble = daemon->first.trouble ? daemon->first.trouble : state->trouble;
    bool over = state->phase == CN_RUN_ENDED && cn_job_set_is_over(&daemon->jobs);
    cn_event_service_step(&daemon->events, state, trouble, over, now_ms);
    cn_job_events_look(&daemon->jobs, &daemon->events, now_ms);
    cn_http_service_step(&daemon->http, trouble, over, now_ms);
    return cn_report_update(&daemon->report, state, now_ms);
}

// Ends the program after `drain`. Deletes that order from the ledger, so that the next start
// continues the run.
static cn_err end_drain(struct cn_daemon *daemon, const struct cn_run_state *state)
{
    uint32_t newest = cn_model_store_newest(daemon->first.models)->number;
    cn_err err = cn_report_rest(&daemon->report, state, cn_platform_now_ms());
    if (err)
        return err;
    cn_log(CN_LOG_INFO, "run", "the aggregator ends after version %u, as `drain` asked", newest);
    cn_report_clear(&daemon->report);
    if (state->phase != CN_RUN_ENDED)
        printf("drained after version %u; the run goes on with the next start\n", newest);
    fflush(stdout);
    return cn_steering_leave(daemon->first.setup.ledger, false);
}

static int serve(struct cn_daemon *daemon, const atomic_bool *stop, bool stay)
{
    struct cn_run_state state;
    bool drained = false;
    cn_err err = CN_OK;
    cn_run_get_state(daemon->first.run, cn_platform_now_ms(), &state);
    daemon->started_ms = cn_platform_now_ms();
    daemon->over_at_start = state.phase == CN_RUN_ENDED;
    bool over = daemon->over_at_start && cn_job_set_is_over(&daemon->jobs);
    bool left_before = over && was_left(daemon);
    if (!over)
        forget_end(daemon);
    if (daemon->over_at_start && !left_before && !stay)
        cn_log(CN_LOG_INFO, "run", "the run is over: %s; boards have up to %u s to learn of it",
               state.end_reason, LINGER_MS / 1000);
    cn_platform_notify("READY=1");
    while (!atomic_load(stop) && !daemon->stops && !drained && !err) {
        err = tick(daemon, &state);
        if (!err)
            err = cn_run_end_tell(daemon, &state, stay);
        // The measurement of the newest version belongs to its round.
        drained = state.steering.leaving && state.phase == CN_RUN_GATHER && !state.measuring &&
                  cn_job_set_is_idle(&daemon->jobs);
        if (over && !is_over(daemon, &state)) {
            left_before = false;
            forget_end(daemon);
        }
        over = is_over(daemon, &state);
        if (over && (!stay || state.steering.leaving) &&
            (left_before || may_leave(daemon, cn_platform_now_ms()))) {
            // Without the file the next start only waits for boards again.
            if (cn_store_replace(daemon->first.setup.store, OVER_FILE, "", 0))
                cn_log(CN_LOG_DEBUG, "run", "%s was not written", OVER_FILE);
            break;
        }
    }
    if (!err && state.phase == CN_RUN_ENDED && !daemon->end_told)
        err = cn_report_summary(&daemon->report, &state, &daemon->first.setup.model.layout,
                                daemon->first.setup.settings->state);
    if (!err && state.steering.leaving && (drained || state.phase == CN_RUN_ENDED))
        err = end_drain(daemon, &state);
    cn_platform_notify("STOPPING=1");
    cn_report_clear(&daemon->report);
    if (err) {
        fprintf(stderr, "error: round %u: %s\n", state.round, cn_err_text(err));
        return CN_EXIT_FAILED;
    }
    return drained || (state.phase == CN_RUN_ENDED && cn_job_set_is_over(&daemon->jobs))
               ? CN_EXIT_DONE
               : CN_EXIT_INTERRUPTED;
}

// Groups that are too small for a chain are no mistake of a run: their boards may be enrolled
// later.
static void warn_of_chains(const struct cn_daemon *daemon)
{
    const struct cn_setup *setup = &daemon->first.setup;
    struct cn_diag lines;
    cn_diag_init(&lines);
    (void)cn_chain_check_groups(setup->ledger, &setup->job, &lines, &lines);
    for (size_t i = 0; i < lines.count && i < CN_DIAG_LINES; i++)
        cn_log(CN_LOG_WARN, "run", "%s", lines.lines[i]);
}

static void announce(struct cn_daemon *daemon)
{
    const struct cn_settings *settings = daemon->first.setup.settings;
    size_t groups;
    uint32_t version = cn_model_store_newest(daemon->first.models)->number;
    cn_roster_groups(daemon->roster, &groups);
    const struct cn_job *job = &daemon->first.setup.job;
    char line[2 * CN_NAME_SIZE + 256], quorum[32] = "";
    if (cn_job_is_async(job))
        snprintf(quorum, sizeof(quorum), " of %u", job->quorum);
    snprintf(line, sizeof(line),
             "job %s, run %016" PRIx64
             ": %zu parameters, %u round%s, %s %u%s; %zu group%s enrolled; listening on %s",
             daemon->first.setup.job.name, cn_ledger_identity(daemon->first.setup.ledger)->run,
             daemon->first.setup.model.layout.total, job->rounds, job->rounds == 1 ? "" : "s",
             cn_job_needed_word(job), cn_job_updates_needed(job), quorum, groups,
             groups == 1 ? "" : "s", settings->gateway.listen[0]);
    cn_wrap_print(line, CN_WRAP_INDENT);
    struct cn_ledger_origin origin;
    if (!cn_ledger_find_origin(daemon->first.setup.ledger, &origin))
        printf("version 0 is version %u of run %016" PRIx64 "\n", origin.version, origin.run);
    char text[CN_LOCAL_TEXT_SIZE];
    cn_local_tensors_text(&daemon->first.setup.model.layout, text);
    if (text[0])
        printf("each group keeps for itself: %s\n", text);
    char few[CN_INVITABLE_ENROLLED_TEXT];
    cn_invitable_enrolled_text(cn_job_needed_word(job), cn_job_updates_needed(job),
                               (uint32_t)groups, few);
    if (groups < cn_job_updates_needed(job))
        cn_log(CN_LOG_WARN, "run", "%s: no round can close before more are", few);
    warn_of_chains(daemon);
    cn_report_init(&daemon->report, stdout, daemon->first.setup.ledger, &daemon->first.setup.job,
                   version, cn_platform_now_ms());
}

// Writes to the audit that the run starts or ends, with the digest of the job's values.
static void audit_run(const struct cn_daemon *daemon, const char *what)
{
    uint8_t digest[CN_DIGEST_SIZE];
    char settings[2 * CN_DIGEST_SIZE + 1];
    cn_job_settings_digest(&daemon->first.setup.job, digest);
    cn_hex(settings, digest, sizeof(digest));
    cn_audited_note(daemon->first.setup.settings->state, what, "settings", settings);
}

static int run(const struct cn_ports *ports, int argc, char **argv)
{
    static const struct option known[] = {
        {"stay", no_argument, NULL, 's'}, {"restored", no_argument, NULL, 'r'}, {0}};
    bool stay = false, restored = false;
    const char *positional[1];
    int option;
    while ((option = getopt_long(argc, argv, "", known, NULL)) != -1) {
        if (option == 's')
            stay = true;
        else if (option == 'r')
            restored = true;
        else
            return CN_EXIT_USAGE;
    }
    if (!cn_aggregator_positional(argc, argv, 1, positional))
        return CN_EXIT_USAGE;
    struct cn_daemon daemon = {.profile = positional[0]};
    const atomic_bool *stop = cn_command_catch_signals();
    cn_reload_catch_signal();
    int result = cn_daemon_open(&daemon, ports, positional[0], restored);
    if (!result) {
        audit_run(&daemon, "start");
        announce(&daemon);
        result = serve(&daemon, stop, stay);
        audit_run(&daemon, "end");
    }
    cn_daemon_close(&daemon);
    return result;
}

const struct cn_command cn_aggregator_run = {
    .name = "run",
    .summary = "run the job: rounds, merging, serving",
    .help = help,
    .exits = "7 state of another version",
    .run = run,
};
