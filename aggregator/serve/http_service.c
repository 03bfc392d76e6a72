#include "aggregator/serve/http_service.h"

#include <assert.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>

#include "aggregator/page/page.h"
#include "aggregator/serve/metrics.h"
#include "aggregator/serve/readiness.h"
#include "runtime/base/log.h"
#include "runtime/port/platform.h"
#include "runtime/profile/http_settings.h"
#include "transport/http/http_token.h"

#define FRESH_MS 1000 // nothing that is shown changes faster
#define TEXT "text/plain; charset=utf-8"
#define JSON "application/json; charset=utf-8"

// --- health and metrics ---

static cn_err produce_health(void *context, const struct cn_http_request *request,
                             struct cn_http_answer *answer)
{
    (void)context;
    (void)request;
    return cn_buffer_append(&answer->body, "ok\n", 3);
}

static cn_err produce_readiness(void *context, const struct cn_http_request *request,
                                struct cn_http_answer *answer)
{
    struct cn_http_service *service = context;
    struct cn_run_state state;
    uint64_t now_ms = cn_platform_now_ms();
    bool ready = false;
    (void)request;
    cn_run_get_state(service->sources.run, now_ms, &state);
    struct cn_readiness readiness = {
        .trouble = service->trouble,
        .disk_free = cn_show_disk_free(service->sources.settings->state),
        .disk_reserve = service->sources.settings->reserve,
        .word = cn_job_needed_word(service->sources.job),
        .quorum = cn_job_updates_needed(service->sources.job),
        .over = state.phase == CN_RUN_ENDED,
    };
    cn_invitable_of_roster(service->sources.roster, now_ms, &readiness.groups);
    cn_err err = cn_readiness_write(&readiness, &answer->body, &ready);
    answer->status = ready ? 200 : 503;
    return err;
}

static cn_err produce_metrics(void *context, const struct cn_http_request *request,
                              struct cn_http_answer *answer)
{
    struct cn_http_service *service = context;
    const struct cn_http_sources *from = &service->sources;
    uint64_t now_ms = cn_platform_now_ms();
    struct cn_run_state state;
    struct cn_coap_server_stats stats;
    (void)request;
    cn_run_get_state(from->run, now_ms, &state);
    cn_coap_server_stats(from->server, &stats);
    const struct cn_metrics_source source = {
        .job = from->job,
        .state = &state,
        .counts = cn_run_count(from->run),
        .roster = from->roster,
        .spool = from->spool,
        .server = &stats,
        .boards = from->server,
        .pauses = &service->pauses,
        .release = from->release,
        .run = cn_ledger_identity(from->ledger)->run,
        .version = cn_model_store_newest(from->models)->number,
        .disk_free = cn_show_disk_free(service->sources.settings->state),
        .disk_reserve = from->settings->reserve,
        .retries = service->retries,
        .store_up = service->trouble == CN_OK,
        .over = service->over,
        .board_series = from->settings->http.board_series,
        .now_ms = now_ms,
    };
    cn_err err = cn_metrics_write(&source, &answer->body);
    struct cn_metric_text text = {.out = &answer->body};
    if (!err)
        from->jobs.measure(from->jobs.jobs, &text);
    return err ? err : text.err;
}

// --- JSON ---

static cn_err show(struct cn_http_service *service, const struct cn_http_wish *wish,
                   struct cn_buffer *out)
{
    const struct cn_http_sources *from = &service->sources;
    const struct cn_http_run run = {
        .settings = from->settings,
        .job = from->job,
        .ledger = from->ledger,
        .roster = from->roster,
        .run = from->run,
        .parameters = from->parameters,
        .events = from->events->newest,
        .jobs = from->jobs.count(from->jobs.jobs),
        .curves = &service->curves,
    };
    return cn_http_show(&run, wish, out);
}

cn_err cn_http_service_state(struct cn_http_service *service, struct cn_buffer *out)
{
    static const struct cn_http_wish all = {.view = CN_HTTP_STATE};
    return show(service, &all, out);
}

static cn_err produce_state(void *context, const struct cn_http_request *request,
                            struct cn_http_answer *answer)
{
    struct cn_http_service *service = context;
    const struct cn_http_wish wish = {
        .view = CN_HTTP_STATE, .number = request->number, .tracker = &service->tracker};
    return show(service, &wish, &answer->body);
}

static cn_err produce_versions(void *context, const struct cn_http_request *request,
                               struct cn_http_answer *answer)
{
    const struct cn_http_wish wish = {.view = CN_HTTP_VERSIONS, .number = request->number};
    return show(context, &wish, &answer->body);
}

static cn_err produce_board(void *context, const struct cn_http_request *request,
                            struct cn_http_answer *answer)
{
    const struct cn_http_wish wish = {.view = CN_HTTP_BOARD, .name = request->name};
    return show(context, &wish, &answer->body);
}

// Writes the events from number first on. job is as cn_events_write_from takes it.
static cn_err write_events(const struct cn_http_service *service, const char *job, uint64_t first,
                           struct cn_buffer *out)
{
    struct cn_json_text json;
    cn_json_text_init(&json, out);
    cn_json_open(&json, NULL, '{');
    cn_json_count(&json, "v", CN_SHOW_FORMAT);
    cn_events_write_from(service->sources.events, job, first, &json);
    cn_json_close(&json, '}');
    return json.err;
}

static cn_err produce_events(void *context, const struct cn_http_request *request,
                             struct cn_http_answer *answer)
{
    return write_events(context, NULL, request->number, &answer->body);
}

// The gateway's own job has the events that are about no submitted one.
static cn_err produce_job_events(void *context, const struct cn_http_request *request,
                                 struct cn_http_answer *answer)
{
    const struct cn_http_service *service = context;
    const struct cn_http_jobs *jobs = &service->sources.jobs;
    if (strcmp(request->name, service->sources.job->name) == 0)
        return write_events(service, "", request->number, &answer->body);
    cn_err err = jobs->find(jobs->jobs, request->name);
    return err ? err : write_events(service, request->name, request->number, &answer->body);
}

static cn_err produce_jobs(void *context, const struct cn_http_request *request,
                           struct cn_http_answer *answer)
{
    const struct cn_http_service *service = context;
    struct cn_json_text json;
    (void)request;
    cn_json_text_init(&json, &answer->body);
    cn_json_open(&json, NULL, '{');
    cn_json_count(&json, "v", CN_SHOW_FORMAT);
    cn_err err = service->sources.jobs.show(service->sources.jobs.jobs, &json);
    cn_json_close(&json, '}');
    return err ? err : json.err;
}

static cn_err produce_job_state(void *context, const struct cn_http_request *request,
                                struct cn_http_answer *answer)
{
    const struct cn_http_jobs *jobs = &((struct cn_http_service *)context)->sources.jobs;
    const struct cn_http_wish wish = {.view = CN_HTTP_STATE};
    return jobs->look(jobs->jobs, request->name, &wish, &answer->body);
}

static cn_err produce_job_versions(void *context, const struct cn_http_request *request,
                                   struct cn_http_answer *answer)
{
    const struct cn_http_jobs *jobs = &((struct cn_http_service *)context)->sources.jobs;
    const struct cn_http_wish wish = {.view = CN_HTTP_VERSIONS, .number = request->number};
    return jobs->look(jobs->jobs, request->name, &wish, &answer->body);
}

static const struct cn_http_route produced[] = {
    {.path = "/healthz",
     .type = TEXT,
     .open = true,
     .produce = produce_health,
     .fresh_ms = FRESH_MS},
    {.path = "/readyz", .type = TEXT, .produce = produce_readiness, .fresh_ms = FRESH_MS},
    {.path = "/metrics", .type = CN_METRIC_TYPE, .produce = produce_metrics, .fresh_ms = FRESH_MS},
    {.path = "/v1/state",
     .parameter = "since",
     .type = JSON,
     .produce = produce_state,
     .fresh_ms = FRESH_MS},
    {.path = "/v1/versions",
     .parameter = "from",
     .type = JSON,
     .produce = produce_versions,
     .fresh_ms = FRESH_MS},
    {.path = "/v1/events",
     .parameter = "from",
     .type = JSON,
     .produce = produce_events,
     .fresh_ms = FRESH_MS},
    {.path = "/v1/jobs", .type = JSON, .produce = produce_jobs, .fresh_ms = FRESH_MS},
    {.path = "/v1/job-state",
     .named = true,
     .type = JSON,
     .produce = produce_job_state,
     .fresh_ms = FRESH_MS},
    {.path = "/v1/job-events",
     .named = true,
     .parameter = "from",
     .type = JSON,
     .produce = produce_job_events,
     .fresh_ms = FRESH_MS},
    {.path = "/v1/job-versions",
     .named = true,
     .parameter = "from",
     .type = JSON,
     .produce = produce_job_versions,
     .fresh_ms = FRESH_MS},
    {.path = "/v1/board",
     .named = true,
     .type = JSON,
     .produce = produce_board,
     .fresh_ms = FRESH_MS},
};

// The page is open: it asks for the token itself.
static void add_routes(struct cn_http_service *service)
{
    size_t count, own = sizeof(produced) / sizeof(produced[0]);
    const struct cn_page_file *files = cn_page_files(&count);
    assert(own + count <= CN_HTTP_ROUTES_MAX);
    memcpy(service->routes, produced, sizeof(produced));
    for (size_t i = 0; i < count; i++)
        service->routes[own + i] = (struct cn_http_route){
            .path = files[i].path,
            .type = files[i].type,
            .open = true,
            .fixed = files[i].data,
            .fixed_size = files[i].size,
        };
    service->route_count = own + count;
}

// --- opening, closing ---

static cn_err read_token(const struct cn_http_settings *http, uint8_t token[CN_DIGEST_SIZE])
{
    const char *why;
    cn_err err = cn_http_token_read(http->token_file, token, &why);
    if (err)
        fprintf(stderr, "error: http.token_file: %s: %s\n", http->token_file, why);
    return err;
}

static cn_err listen_as(const struct cn_http_settings *http, const char *listen,
                        struct cn_http_service *service, struct cn_http_server **server)
{
    uint8_t token[CN_DIGEST_SIZE];
    bool has_token = http->token_file[0] != '\0';
    struct cn_http_config config = {
        .listen = listen,
        .local = cn_http_settings_local(http->listen),
        .routes = service->routes,
        .route_count = service->route_count,
        .context = service,
    };
    cn_err err = has_token ? read_token(http, token) : CN_OK;
    if (err)
        return err;
    cn_http_rules_set(&config.rules, http->listen, http->names, has_token ? token : NULL);
    return cn_http_open(&config, server);
}

cn_err cn_http_service_open(struct cn_http_service *service, const struct cn_http_sources *sources)
{
    const struct cn_http_settings *http = &sources->settings->http;
    service->sources = *sources;
    service->pauses.bounds = cn_histogram_pauses;
    add_routes(service);
    return http->listen[0] ? listen_as(http, http->listen, service, &service->http) : CN_OK;
}

void cn_http_service_close(struct cn_http_service *service)
{
    cn_http_close(service->http);
    cn_show_tracker_deinit(&service->tracker);
    cn_sensor_curves_deinit(&service->curves);
    service->http = NULL;
}

cn_err cn_http_service_check(const struct cn_settings *settings, bool held)
{
    const struct cn_http_settings *http = &settings->http;
    struct cn_http_service unused = {0}; // never steps, so nobody is answered
    struct cn_http_server *server = NULL;
    if (!http->listen[0])
        return CN_OK;
    cn_err err = listen_as(http, held ? NULL : http->listen, &unused, &server);
    cn_http_close(server);
    if (!err)
        printf("http: %s%s\n", http->listen, held ? ", held by the aggregator that runs here" : "");
    return err;
}

// --- running ---

uint32_t cn_http_service_wait(struct cn_http_service *service, uint32_t timeout_ms)
{
    if (!service->http)
        return timeout_ms;
    struct pollfd waiting[] = {
        {.fd = cn_coap_server_descriptor(service->sources.server), .events = POLLIN},
        {.fd = cn_http_descriptor(service->http), .events = POLLIN},
    };
    uint32_t wait_ms = cn_http_wait_ms(service->http, timeout_ms, cn_platform_now_ms());
    if (service->awake_us)
        cn_histogram_add(&service->pauses,
                         (double)(cn_platform_now_us() - service->awake_us) / 1e6);
    (void)poll(waiting, 2, (int)wait_ms); // an error only makes the next look come sooner
    service->awake_us = cn_platform_now_us();
    return 0;
}

void cn_http_service_step(struct cn_http_service *service, cn_err trouble, bool over,
                          uint64_t now_ms)
{
    service->over = over;
    if (service->http)
        cn_sensor_curves_look(&service->curves, service->sources.roster, now_ms);
    if (trouble && trouble != service->trouble)
        service->retries++;
    service->trouble = trouble;
    cn_err err = service->http ? cn_http_step(service->http, now_ms) : CN_OK;
    if (!err)
        return;
    cn_log(CN_LOG_ERROR, "http",
           "the HTTP server failed and is closed until the next start: %s; the run goes on",
           cn_err_text(err));
    cn_http_service_close(service);
}
