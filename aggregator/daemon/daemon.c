#include "aggregator/daemon/daemon.h"

#include <stdio.h>

#include "aggregator/daemon/job_bytes.h"
#include "aggregator/daemon/job_list.h"
#include "aggregator/daemon/job_look.h"
#include "aggregator/serve/listening.h"
#include "aggregator/store/restore.h"
#include "runtime/base/build_version.h"
#include "runtime/base/log.h"

#define HANDSHAKES_MAX 128
#define SESSIONS_MAX 4096
#define REQUESTS_PER_S 500 // requests of one board, without those of updates and models

// --- what the run and the roster call ---

static void tell_observers(void *context)
{
    struct cn_daemon *daemon = context;
    if (daemon->server)
        cn_coap_server_notify(daemon->server, "r");
}

static void count_traffic(void *context, struct cn_run_traffic *traffic)
{
    struct cn_daemon *daemon = context;
    struct cn_coap_server_stats stats = {0};
    if (daemon->server)
        cn_coap_server_stats(daemon->server, &stats);
    *traffic = (struct cn_run_traffic){stats.in, stats.out};
    cn_job_bytes_take_off(&daemon->jobs, traffic);
}

void cn_daemon_drop_board(void *context, const char *board)
{
    struct cn_daemon *daemon = context;
    cn_log(CN_LOG_INFO, "run", "%s is revoked, moved or has a new key: its sessions end", board);
    cn_coap_server_drop(daemon->server, board);
    cn_orders_drop(&daemon->resources.orders, board);
}

cn_err cn_daemon_refresh(struct cn_daemon *daemon)
{
    cn_err err = cn_roster_refresh(daemon->roster, cn_daemon_drop_board, daemon);
    return err ? err : cn_job_set_refresh(&daemon->jobs);
}

// --- opening ---

static cn_err open_roster(struct cn_daemon *daemon)
{
    cn_err err = cn_roster_open(daemon->first.setup.ledger, &daemon->roster);
    if (err)
        fprintf(stderr, "%s: %s\n", daemon->first.setup.settings->state, cn_err_text(err));
    return err;
}

static cn_err open_jobs(struct cn_daemon *daemon, const struct cn_ports *ports, bool restored)
{
    const struct cn_job_run_shared shared = {
        .ports = ports,
        .roster = daemon->roster,
        .context = daemon,
        .changed = tell_observers,
        .traffic = count_traffic,
    };
    cn_err err = cn_job_run_open(&daemon->first, &shared);
    if (err)
        return err;
    daemon->resources = (struct cn_resources){
        .ledger = daemon->first.setup.ledger,
        .roster = daemon->roster,
        .spool = daemon->first.spool,
        .models = daemon->first.models,
        .run = daemon->first.run,
        .job = &daemon->first.setup.job,
        .live = &daemon->first.live,
        .serving = cn_job_set_serving,
        .replan = cn_job_set_replan,
        .context = &daemon->jobs,
        .now_ms = cn_platform_now_ms,
    };
    err = cn_job_set_open(&daemon->jobs, &shared, &daemon->first, &daemon->resources,
                          daemon->first.setup.settings->state, restored);
    return err ? err : cn_job_set_refresh(&daemon->jobs);
}

static cn_err open_server(struct cn_daemon *daemon)
{
    const struct cn_gateway_settings *gateway = &daemon->first.setup.settings->gateway;
    const char *listen[CN_LINK_ADDRESSES];
    for (uint32_t i = 0; i < gateway->listen_count; i++)
        listen[i] = gateway->listen[i];
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

static void tell_end_of_job(void *context, const char *job, const char *how)
{
    struct cn_daemon *daemon = context;
    const struct cn_event_facts facts = {
        .kind = CN_EVENT_JOB_ENDED, .job = job, .subject = job, .text = how};
    cn_event_service_add(&daemon->events, &facts, cn_platform_now_ms());
}

static void open_events(struct cn_daemon *daemon)
{
    const struct cn_event_sources sources = {
        .settings = daemon->first.setup.settings,
        .job = &daemon->first.setup.job,
        .ledger = daemon->first.setup.ledger,
        .roster = daemon->roster,
        .models = daemon->first.models,
        .run = daemon->first.run,
        .live = &daemon->first.live,
    };
    cn_event_service_open(&daemon->events, &sources, NULL, cn_platform_now_ms());
    daemon->jobs.ended = tell_end_of_job;
    daemon->jobs.events = &daemon->events.events;
    daemon->jobs.ended_context = daemon;
}

static cn_err open_http(struct cn_daemon *daemon)
{
    const struct cn_http_sources sources = {
        .settings = daemon->first.setup.settings,
        .job = &daemon->first.setup.job,
        .ledger = daemon->first.setup.ledger,
        .roster = daemon->roster,
        .spool = daemon->first.spool,
        .models = daemon->first.models,
        .run = daemon->first.run,
        .server = daemon->server,
        .events = &daemon->events.events,
        .jobs = {&daemon->jobs, cn_job_list_count, cn_job_list_show, cn_job_list_measure,
                 cn_job_look, cn_job_look_find},
        .parameters = daemon->first.setup.model.layout.total,
        .release = cn_build_version,
    };
    cn_err err = cn_http_service_open(&daemon->http, &sources);
    cn_err written = err ? CN_OK : cn_listening_write(daemon->first.setup.settings);
    if (written)
        cn_log(CN_LOG_WARN, "run", "check cannot be told the addresses in use: %s",
               cn_err_text(written));
    return err;
}

int cn_daemon_open(struct cn_daemon *daemon, const struct cn_ports *ports, const char *profile,
                   bool restored)
{
    daemon->first.setup.rights = CN_SETUP_OF_CALLER;
    int result = cn_setup_load(&daemon->first.setup, profile);
    if (!result && cn_setup_refuse_job(daemon->first.setup.state_name))
        result = CN_EXIT_FAILED;
    if (!result)
        result = cn_setup_open_state(&daemon->first.setup, CN_SETUP_RUN);
    if (!result)
        result = cn_setup_open_model(&daemon->first.setup);
    if (!result)
        result = cn_setup_check_weights(&daemon->first.setup);
    if (result)
        return result;
    cn_err err = cn_restore_ledger(daemon->first.setup.ledger, daemon->first.setup.settings->state,
                                   restored);
    if (!err)
        err = open_roster(daemon);
    if (!err)
        err = open_jobs(daemon, ports, restored);
    if (!err)
        err = open_server(daemon);
    if (!err)
        open_events(daemon);
    if (!err)
        err = open_http(daemon);
    if (!err)
        err = cn_daemon_open_control(daemon);
    return err ? CN_EXIT_FAILED : CN_EXIT_DONE;
}

// Closes the servers first, because their handlers use all the rest.
void cn_daemon_close(struct cn_daemon *daemon)
{
    cn_control_close(daemon->control);
    cn_http_service_close(&daemon->http);
    cn_event_service_close(&daemon->events, cn_platform_now_ms());
    cn_coap_server_close(daemon->server);
    cn_orders_deinit(&daemon->resources.orders);
    cn_job_set_close(&daemon->jobs);
    cn_job_run_close(&daemon->first);
    cn_roster_close(daemon->roster);
}
