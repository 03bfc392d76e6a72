// cairn-aggregator run: serves the boards until the run ends.
#include <getopt.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "aggregator/command/aggregator_commands.h"
#include "aggregator/command/reload.h"
#include "aggregator/command/setup.h"
#include "aggregator/merge/merge.h"
#include "aggregator/run/evaluate.h"
#include "aggregator/serve/http_service.h"
#include "aggregator/serve/report.h"
#include "aggregator/serve/resources.h"
#include "aggregator/serve/status.h"
#include "aggregator/store/job_settings.h"
#include "aggregator/store/restore.h"
#include "runtime/base/build_version.h"
#include "runtime/base/log.h"

#define STEP_MS 50
#define ROSTER_MS 500    // between looks for enrolled and revoked boards
#define RETRY_MS 3000    // after an error that may pass
#define STATUS_MS 1000   // between writes of status.json
#define LIVE_MS 120000   // a group heard within this time can be invited
#define SETTLE_MS 3000   // wait for more groups than the quorum
#define LINGER_MS 20000  // longest time after the end for boards to learn of it
#define QUIET_MS 3000    // silence of all boards after which the program may leave
#define OVER_FILE "over" // empty; says that the boards had their time after the end
#define EXPIRY_MS 600000 // an upload that advances less than 1/64 in this time is dropped
#define HANDSHAKES_MAX 128
#define SESSIONS_MAX 4096
#define REQUESTS_PER_S 500 // of one board, not counting its updates and models

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

struct daemon {
    struct cn_setup setup;
    const char *profile; // path
    struct cn_live_job live;
    struct cn_roster *roster;
    struct cn_spool *spool;
    struct cn_model_store *models;
    struct cn_evaluator *evaluator;
    struct cn_run_measure measure;
    struct cn_run *run;
    struct cn_resources resources;
    struct cn_coap_server *server;
    struct cn_http_service http;
    struct cn_report report;
    uint64_t started_ms;                     // clock
    uint64_t roster_ms, status_ms, ended_ms; // clock; 0: not yet
    bool over_at_start;                      // the run had ended before this program started
    uint64_t retry_ms;                       // clock; the run is not advanced before
    cn_err trouble;                          // error that was logged last; CN_OK: none
};

// --- what the run and the roster call ---

static void tell_observers(void *context)
{
    struct daemon *daemon = context;
    if (daemon->server)
        cn_coap_server_notify(daemon->server, "r");
}

static void count_traffic(void *context, struct cn_run_traffic *traffic)
{
    struct daemon *daemon = context;
    struct cn_coap_server_stats stats = {0};
    if (daemon->server)
        cn_coap_server_stats(daemon->server, &stats);
    *traffic = (struct cn_run_traffic){stats.in, stats.out};
}

static void drop_board(void *context, const char *board)
{
    struct daemon *daemon = context;
    cn_log(CN_LOG_INFO, "run", "%s is revoked or has a new key: its sessions end", board);
    cn_coap_server_drop(daemon->server, board);
}

// --- opening ---

// Finds the number of rows that the newest version's state has, which its own settings decide.
static cn_err find_state_rows(struct daemon *daemon, size_t *rows)
{
    struct cn_ledger_version newest;
    struct cn_job job = daemon->setup.job;
    cn_err err = cn_ledger_newest_version(daemon->setup.ledger, &newest);
    if (!err && newest.number)
        err = cn_job_settings_load(daemon->setup.ledger, newest.number, &daemon->setup.job, &job);
    *rows = cn_merge_state_rows(&job);
    return err == CN_ENOTFOUND ? CN_OK : err;
}

static cn_err open_models(struct daemon *daemon)
{
    const struct cn_model_file *file = &daemon->setup.model;
    const struct cn_gateway_settings *gateway = &daemon->setup.settings->gateway;
    size_t state_rows = 0;
    cn_err err = find_state_rows(daemon, &state_rows);
    if (err)
        return err;
    float *initial = calloc(file->layout.total + 1, sizeof(*initial));
    if (!initial)
        return CN_ENOMEM;
    const struct cn_model_store_config config = {
        .store = daemon->setup.store,
        .ledger = daemon->setup.ledger,
        .layout = &file->layout,
        .snapshot_every = daemon->setup.settings->job.options.snapshot_every,
        .state_rows = state_rows,
        .graph = file->graph.data,
        .graph_size = file->graph.size,
        .initial = initial,
        .keep_rounds = gateway->keep_rounds,
        .keep_versions = gateway->keep_versions,
    };
    err = cn_onnx_weights(file->onnx, &file->layout, initial);
    if (!err)
        err = cn_model_store_open(&config, &daemon->models);
    free(initial);
    return err;
}

static cn_err open_parts(struct daemon *daemon)
{
    const struct cn_spool_config spool = {
        .store = daemon->setup.store,
        .frame_max = cn_update_size_max(&daemon->setup.model.layout),
        .limit = daemon->setup.settings->gateway.spool_limit,
        .chunk_size = CN_RESOURCES_CHUNK_SIZE,
        .expiry_ms = EXPIRY_MS,
        .disk = daemon->setup.settings->state,
        .reserve = daemon->setup.settings->reserve,
    };
    cn_err err = cn_roster_open(daemon->setup.ledger, &daemon->roster);
    if (!err)
        err = cn_spool_open(&spool, &daemon->spool);
    if (!err)
        err = open_models(daemon);
    if (err)
        fprintf(stderr, "%s: %s\n", daemon->setup.settings->state, cn_err_text(err));
    return err;
}

static cn_err open_evaluator(struct daemon *daemon, const struct cn_ports *ports)
{
    cn_err err = cn_setup_open_evaluator(&daemon->setup, ports, &daemon->evaluator);
    if (!err && daemon->evaluator)
        cn_evaluator_measure(daemon->evaluator, &daemon->measure);
    return err;
}

static cn_err open_run(struct daemon *daemon)
{
    daemon->live = (struct cn_live_job){.ledger = daemon->setup.ledger,
                                        .layout = &daemon->setup.model.layout,
                                        .models = daemon->models,
                                        .job = &daemon->setup.job};
    struct cn_run_config config = {
        .job = &daemon->setup.job,
        .live = &daemon->live,
        .ledger = daemon->setup.ledger,
        .store = daemon->setup.store,
        .roster = daemon->roster,
        .spool = daemon->spool,
        .models = daemon->models,
        .measure = daemon->evaluator ? &daemon->measure : NULL,
        .live_ms = LIVE_MS,
        .settle_ms = SETTLE_MS,
        .context = daemon,
        .changed = tell_observers,
        .traffic = count_traffic,
    };
    cn_status_read_traffic(daemon->setup.settings->state, &config.earlier);
    cn_err err = cn_run_open(&config, cn_platform_now_ms(), &daemon->run);
    if (err)
        fprintf(stderr, "%s: %s\n", daemon->setup.settings->state, cn_err_text(err));
    return err;
}

static cn_err open_server(struct daemon *daemon)
{
    const struct cn_gateway_settings *gateway = &daemon->setup.settings->gateway;
    const char *listen[CN_LINK_ADDRESSES];
    for (uint32_t i = 0; i < gateway->listen_count; i++)
        listen[i] = gateway->listen[i];
    daemon->resources = (struct cn_resources){
        .ledger = daemon->setup.ledger,
        .roster = daemon->roster,
        .spool = daemon->spool,
        .models = daemon->models,
        .run = daemon->run,
        .job = &daemon->setup.job,
        .live = &daemon->live,
        .now_ms = cn_platform_now_ms,
    };
    struct cn_coap_server_config config = {
        .listen = listen,
        .listen_count = gateway->listen_count,
        .context = &daemon->resources,
        .find_key = cn_resources_find_key,
        .handshakes_max = HANDSHAKES_MAX,
        .sessions_max = SESSIONS_MAX,
        .requests_per_s = REQUESTS_PER_S,
        .bulk_per_s = gateway->board_bps / 8,
    };
    config.routes = cn_resources_routes(&config.route_count);
    cn_err err = cn_coap_server_open(&config, &daemon->server);
    if (err && err != CN_EEXIST) // CN_EEXIST is in the log, with the address
        fprintf(stderr, "%s: %s\n", listen[0], cn_err_text(err));
    return err;
}

static cn_err open_http(struct daemon *daemon)
{
    const struct cn_http_sources sources = {
        .settings = daemon->setup.settings,
        .job = &daemon->setup.job,
        .ledger = daemon->setup.ledger,
        .roster = daemon->roster,
        .spool = daemon->spool,
        .models = daemon->models,
        .run = daemon->run,
        .server = daemon->server,
        .parameters = daemon->setup.model.layout.total,
        .release = cn_build_version,
    };
    return cn_http_service_open(&daemon->http, &sources);
}

static int open_daemon(struct daemon *daemon, const struct cn_ports *ports, const char *profile,
                       bool restored)
{
    int result = cn_setup_open(&daemon->setup, profile, CN_SETUP_RUN);
    if (!result)
        result = cn_setup_open_model(&daemon->setup);
    if (!result)
        result = cn_setup_check_weights(&daemon->setup);
    if (result)
        return result;
    cn_err err = cn_restore_ledger(daemon->setup.ledger, daemon->setup.settings->state, restored);
    if (!err)
        err = open_parts(daemon);
    if (!err)
        err = open_evaluator(daemon, ports);
    if (!err)
        err = open_run(daemon);
    if (!err)
        err = open_server(daemon);
    if (!err)
        err = open_http(daemon);
    return err ? CN_EXIT_FAILED : CN_EXIT_DONE;
}

// Closes the servers first, because their handlers use all the rest.
static void close_daemon(struct daemon *daemon)
{
    cn_http_service_close(&daemon->http);
    cn_coap_server_close(daemon->server);
    cn_run_close(daemon->run);
    cn_evaluator_close(daemon->evaluator);
    cn_model_store_close(daemon->models);
    cn_spool_close(daemon->spool);
    cn_roster_close(daemon->roster);
    cn_setup_deinit(&daemon->setup);
}

// --- running ---

static void refresh_roster(struct daemon *daemon, uint64_t now_ms)
{
    if (now_ms - daemon->roster_ms < ROSTER_MS)
        return;
    daemon->roster_ms = now_ms;
    cn_err err = cn_roster_refresh(daemon->roster, drop_board, daemon);
    if (err)
        cn_log(CN_LOG_WARN, "run", "enrolments are not read yet: %s", cn_err_text(err));
}

static void write_status(struct daemon *daemon, const struct cn_run_state *state, uint64_t now_ms)
{
    if (now_ms - daemon->status_ms < STATUS_MS)
        return;
    daemon->status_ms = now_ms;
    cn_err err = cn_status_write(daemon->setup.settings->state, daemon->roster, state, now_ms);
    if (err)
        cn_log(CN_LOG_DEBUG, "run", "%s: %s", CN_STATUS_FILE, cn_err_text(err));
    cn_platform_notify("WATCHDOG=1"); // from this loop only, so that it stops when the daemon hangs
}

// Boards need a while to notice that this program was restarted. So shortly after its start it
// waits for all of them: the board that leads a group may be the last to come back.
static bool awaits_boards(const struct daemon *daemon, uint64_t now_ms)
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

// Says whether the program may leave after the end: every group that is here has the last version
// and all boards are silent, or their time is over. A board that was killed at the end is back
// before that.
static bool may_leave(struct daemon *daemon, uint64_t now_ms)
{
    size_t count;
    uint32_t last = cn_model_store_newest(daemon->models)->number;
    const struct cn_roster_group *groups = cn_roster_groups(daemon->roster, &count);
    if (daemon->ended_ms == 0)
        daemon->ended_ms = now_ms;
    if (now_ms - daemon->ended_ms > LINGER_MS)
        return true;
    if (awaits_boards(daemon, now_ms))
        return false;
    for (size_t i = 0; i < count; i++) {
        bool here = groups[i].heard_ms && now_ms - groups[i].heard_ms < LINGER_MS;
        bool lacks_last = !daemon->over_at_start && groups[i].served < last;
        if (here && lacks_last)
            return false;
        if (here && now_ms - groups[i].heard_ms < QUIET_MS)
            return false;
    }
    return now_ms - daemon->ended_ms >= QUIET_MS;
}

static bool was_left(const struct daemon *daemon)
{
    uint8_t *bytes = NULL;
    size_t size;
    cn_err err = daemon->setup.store->ops->load(daemon->setup.store, OVER_FILE, 0, &bytes, &size);
    free(bytes);
    return !err;
}

// Advances the run. An error that passes by itself, such as a full disk, is logged once, and the
// run pauses before it tries again.
static cn_err advance(struct daemon *daemon, uint64_t now_ms)
{
    if (now_ms < daemon->retry_ms)
        return CN_OK;
    cn_err err = cn_run_tick(daemon->run, now_ms);
    bool passes = err == CN_EAGAIN || err == CN_ENOSPC || err == CN_EIO;
    if (passes && err != daemon->trouble)
        cn_log(CN_LOG_ERROR, "run", "the run waits: %s; trying every %d s", cn_err_text(err),
               RETRY_MS / 1000);
    if (passes)
        daemon->retry_ms = now_ms + RETRY_MS;
    daemon->trouble = passes ? err : CN_OK;
    return passes ? CN_OK : err;
}

static cn_err tick(struct daemon *daemon, struct cn_run_state *state)
{
    uint32_t wait_ms = cn_http_service_wait(&daemon->http, STEP_MS);
    cn_err err = cn_coap_server_step(daemon->server, wait_ms);
    uint64_t now_ms = cn_platform_now_ms();
    if (err)
        return err;
    refresh_roster(daemon, now_ms);
    if (cn_reload_is_asked())
        cn_reload_by_signal(&daemon->setup, daemon->profile);
    err = advance(daemon, now_ms);
    if (err)
        return err;
    cn_run_get_state(daemon->run, now_ms, state);
    write_status(daemon, state, now_ms);
    cn_err trouble = daemon->trouble ? daemon->trouble : state->trouble;
    cn_http_service_step(&daemon->http, trouble, now_ms);
    return cn_report_update(&daemon->report, state, now_ms);
}

// The summary of the run follows when the program ends.
static void tell_end(const struct cn_run_state *state, bool stay, bool *told)
{
    if (state->phase != CN_RUN_ENDED || !stay || *told)
        return;
    cn_log(CN_LOG_INFO, "run", "the run is over: %s; its last version stays available",
           state->end_reason);
    *told = true;
}

static int serve(struct daemon *daemon, const atomic_bool *stop, bool stay)
{
    struct cn_run_state state;
    bool told = false;
    cn_err err = CN_OK;
    cn_run_get_state(daemon->run, cn_platform_now_ms(), &state);
    daemon->started_ms = cn_platform_now_ms();
    daemon->over_at_start = state.phase == CN_RUN_ENDED;
    bool left_before = daemon->over_at_start && was_left(daemon);
    cn_platform_notify("READY=1");
    while (!atomic_load(stop) && !err) {
        err = tick(daemon, &state);
        tell_end(&state, stay, &told);
        if (state.phase == CN_RUN_ENDED && !stay &&
            (left_before || may_leave(daemon, cn_platform_now_ms()))) {
            // Without the file the next start only waits for boards again.
            if (cn_store_replace(daemon->setup.store, OVER_FILE, "", 0))
                cn_log(CN_LOG_DEBUG, "run", "%s was not written", OVER_FILE);
            break;
        }
    }
    if (!err && state.phase == CN_RUN_ENDED)
        err = cn_report_summary(&daemon->report, &state, &daemon->setup.model.layout,
                                daemon->setup.settings->state);
    cn_platform_notify("STOPPING=1");
    cn_report_clear(&daemon->report);
    if (err) {
        fprintf(stderr, "error: round %" PRIu32 ": %s\n", state.round, cn_err_text(err));
        return CN_EXIT_FAILED;
    }
    return state.phase == CN_RUN_ENDED ? CN_EXIT_DONE : CN_EXIT_INTERRUPTED;
}

static void announce(struct daemon *daemon)
{
    const struct cn_settings *settings = daemon->setup.settings;
    size_t groups;
    uint32_t version = cn_model_store_newest(daemon->models)->number;
    cn_roster_groups(daemon->roster, &groups);
    printf("job %s, run %016" PRIx64 ": %zu parameters, %" PRIu32 " rounds, quorum %" PRIu32
           "; %zu groups enrolled; listening on %s\n",
           daemon->setup.job.name, cn_ledger_identity(daemon->setup.ledger)->run,
           daemon->setup.model.layout.total, daemon->setup.job.rounds,
           cn_job_quorum(&daemon->setup.job), groups, settings->gateway.listen[0]);
    struct cn_ledger_origin origin;
    if (!cn_ledger_find_origin(daemon->setup.ledger, &origin))
        printf("version 0 is version %" PRIu32 " of run %016" PRIx64 "\n", origin.version,
               origin.run);
    if (groups < cn_job_quorum(&daemon->setup.job))
        cn_log(CN_LOG_WARN, "run",
               "the quorum is %" PRIu32 " groups and %zu are enrolled: no round can close before "
               "more are",
               cn_job_quorum(&daemon->setup.job), groups);
    cn_report_init(&daemon->report, stdout, daemon->setup.ledger, &daemon->setup.job, version,
                   cn_platform_now_ms());
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
    struct daemon daemon = {.profile = positional[0]};
    const atomic_bool *stop = cn_command_catch_signals();
    cn_reload_catch_signal();
    int result = open_daemon(&daemon, ports, positional[0], restored);
    if (!result) {
        announce(&daemon);
        result = serve(&daemon, stop, stay);
    }
    close_daemon(&daemon);
    return result;
}

const struct cn_command cn_aggregator_run = {
    .name = "run",
    .summary = "run the job: rounds, merging, serving",
    .help = help,
    .exits = "7 state of another version",
    .run = run,
};
