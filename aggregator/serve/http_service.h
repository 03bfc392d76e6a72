// http_service.h - the page, metrics, health and JSON of a running aggregator over HTTP.
//
//   GET /                 the page, and its files (page.h)
//   GET /healthz          200 "ok" from a loop that turns
//   GET /readyz           200 "ok", or 503 with a line for each reason
//   GET /metrics          metrics.h
//   GET /v1/state         show.h; ?since=SEQ
//   GET /v1/versions      show.h; ?from=N
//   GET /v1/board/NAME    show.h
//   GET /v1/events        events.h; ?from=SEQ
//   GET /v1/jobs          the gateway's jobs
//   GET /v1/job-state/NAME     as /v1/state without since, of the job with this name
//   GET /v1/job-events/NAME    as /v1/events, of the job with this name; ?from=SEQ
//   GET /v1/job-versions/NAME  as /v1/versions, of the job with this name; ?from=N
//
// An answer without parameter and name is made at most once a second, however many clients ask. All
// other answers take at most a tenth of the program's time. Threading: that of the run.
#pragma once

#include "aggregator/serve/http_show.h"
#include "aggregator/show/events.h"
#include "aggregator/show/json_text.h"
#include "runtime/base/histogram.h"
#include "runtime/base/metric_text.h"
#include "runtime/profile/profile.h"
#include "transport/coap/coap_server.h"
#include "transport/http/http_server.h"

// The jobs of the gateway, as the part that knows them shows them. The functions get jobs.
struct cn_http_jobs {
    const void *jobs;
    uint32_t (*count)(const void *jobs);
    cn_err (*show)(const void *jobs, struct cn_json_text *json); // the member "jobs"
    void (*measure)(const void *jobs, struct cn_metric_text *text);
    // Writes what is shown of the run of the job with this name. Returns CN_ENOTFOUND when there is
    // no such job or its run has not begun.
    cn_err (*look)(const void *jobs, const char *name, const struct cn_http_wish *wish,
                   struct cn_buffer *out);
    // Returns CN_ENOTFOUND when no job of this name was submitted.
    cn_err (*find)(const void *jobs, const char *name);
};

struct cn_http_sources { // borrowed until close
    const struct cn_settings *settings;
    const struct cn_job *job; // the run's
    struct cn_ledger *ledger;
    struct cn_roster *roster;
    struct cn_spool *spool;
    struct cn_model_store *models;
    struct cn_run *run;
    struct cn_coap_server *server;
    const struct cn_events *events;
    struct cn_http_jobs jobs;
    size_t parameters;   // values of the model
    const char *release; // of this program
};

struct cn_http_service {         // zero it before use
    struct cn_http_server *http; // NULL: the profile has no http.listen
    // The routes of http_service.c, and one for each file of the page.
    struct cn_http_route routes[CN_HTTP_ROUTES_MAX];
    size_t route_count;
    struct cn_http_sources sources;
    struct cn_show_tracker tracker;
    struct cn_sensor_curves curves;
    struct cn_histogram pauses; // of the loop, in seconds
    uint64_t awake_us;          // clock; when the loop last woke; 0: it never waited
    uint64_t retries;           // times that the run waited after an error
    cn_err trouble;             // why the run waits now; CN_OK: it does not
    bool over;                  // no job of the gateway goes on
};

// Begins to listen as the profile says; does nothing without http.listen. What is wrong with the
// token file or the address is printed to standard error or logged.
cn_err cn_http_service_open(struct cn_http_service *service, const struct cn_http_sources *sources);
void cn_http_service_close(struct cn_http_service *service);

// Tries what open would do: reads the token, and listens. Prints the address, or what is wrong.
// held: does not listen, because a running aggregator has the address.
cn_err cn_http_service_check(const struct cn_settings *settings, bool held);

// Waits up to timeout_ms until boards or clients want something. Returns how long the CoAP server
// may wait after that: 0, or all of timeout_ms where there is no HTTP service.
uint32_t cn_http_service_wait(struct cn_http_service *service, uint32_t timeout_ms);

// Answers clients. trouble: why the run waits, or CN_OK. over: no job of the gateway goes on. A
// server that fails is logged and closed: the run goes on without it.
void cn_http_service_step(struct cn_http_service *service, cn_err trouble, bool over,
                          uint64_t now_ms);

// Writes what GET /v1/state answers, with all boards. Works without http.listen, too.
cn_err cn_http_service_state(struct cn_http_service *service, struct cn_buffer *out);
