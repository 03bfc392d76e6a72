#include "transport/http/http_answers.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/port/crypto.h"
#include "runtime/port/platform.h"

#define BODY_MAX (64u << 20) // bytes of an answer
#define SHARE_MS 100.0       // average time for making answers within a second
#define COST_MS 2.0          // least time that an answer is charged: 50 answers a second on average
#define PLAIN "text/plain; charset=utf-8"

static bool add(struct MHD_Response *response, const char *name, const char *value)
{
    return MHD_add_response_header(response, name, value) == MHD_YES;
}

// The page runs only scripts of this server and can be framed by nobody.
static bool add_common(struct MHD_Response *response, const char *type, const char *cache)
{
    return add(response, "Content-Type", type) && add(response, "Cache-Control", cache) &&
           add(response, "Content-Security-Policy",
               "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
               "connect-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'") &&
           add(response, "X-Content-Type-Options", "nosniff") &&
           add(response, "Referrer-Policy", "no-referrer") &&
           add(response, "Cross-Origin-Resource-Policy", "same-origin");
}

static struct MHD_Response *describe(struct MHD_Response *response, const char *type,
                                     const char *cache)
{
    if (response && add_common(response, type, cache))
        return response;
    if (response)
        MHD_destroy_response(response);
    return NULL;
}

static enum MHD_Result queue_once(struct MHD_Connection *connection, unsigned status,
                                  struct MHD_Response *response)
{
    if (!response)
        return MHD_NO;
    enum MHD_Result result = MHD_queue_response(connection, status, response);
    MHD_destroy_response(response);
    return result;
}

static struct MHD_Response *say(const char *text)
{
    char line[256];
    int length = snprintf(line, sizeof(line), "%s\n", text);
    return describe(MHD_create_response_from_buffer_copy((size_t)length, line), PLAIN, "no-store");
}

enum MHD_Result cn_http_answers_refuse(struct MHD_Connection *connection, unsigned status,
                                       const char *why)
{
    struct MHD_Response *response = say(why);
    if (!response)
        return MHD_NO;
    bool added = add(response, "Connection", "close");
    if (status == 405)
        added = added && add(response, "Allow", "GET, HEAD");
    if (status == 401)
        added = added && add(response, "WWW-Authenticate", "Bearer realm=\"cairn\"");
    if (!added) {
        MHD_destroy_response(response);
        return MHD_NO;
    }
    return queue_once(connection, status, response);
}

static void name_body(const void *body, size_t size, char etag[CN_HTTP_ETAG_SIZE])
{
    uint8_t digest[CN_DIGEST_SIZE];
    cn_crypto_digest(body, size, digest);
    etag[0] = '"';
    cn_hex(etag + 1, digest, 8);
    memcpy(etag + 17, "\"", 2);
}

static void forget(struct cn_http_kept *kept)
{
    if (kept->response)
        MHD_destroy_response(kept->response);
    memset(kept, 0, sizeof(*kept));
}

void cn_http_answers_deinit(struct cn_http_answers *answers)
{
    for (size_t i = 0; i < CN_HTTP_KEPT; i++)
        forget(&answers->kept[i]);
}

// Returns whether a kept answer is for this request. One number can be written in several ways, so
// the numbers are compared and not the targets.
static bool is_same(const struct cn_http_kept *kept, const struct cn_http_route *route,
                    const struct cn_http_request *request)
{
    return kept->route == route && kept->request.number == request->number &&
           strcmp(kept->request.name, request->name) == 0;
}

// Returns true for a route with one answer only.
static bool is_single(const struct cn_http_route *route)
{
    return !route->named && !route->parameter && (route->fixed || route->fresh_ms);
}

bool cn_http_answers_share(const struct cn_http_route *route)
{
    return !is_single(route);
}

bool cn_http_answers_room(const struct cn_http_answers *answers, uint64_t now_ms)
{
    return cn_bucket_has(&answers->made, SHARE_MS, now_ms);
}

static struct cn_http_kept *find_fresh(struct cn_http_answers *answers,
                                       const struct cn_http_route *route,
                                       const struct cn_http_request *request, uint64_t now_ms)
{
    for (size_t i = 0; i < CN_HTTP_KEPT; i++) {
        struct cn_http_kept *kept = &answers->kept[i];
        if (is_same(kept, route, request))
            return route->fixed || now_ms - kept->made_ms < route->fresh_ms ? kept : NULL;
    }
    return NULL;
}

bool cn_http_answers_has(struct cn_http_answers *answers, const struct cn_http_route *route,
                         const struct cn_http_request *request, uint64_t now_ms)
{
    return find_fresh(answers, route, request, now_ms) != NULL;
}

// Returns the place of an older answer to the same request, an empty place, or that of the oldest
// answer of a route with several. There are more places than routes, so there always is one.
static struct cn_http_kept *find_place(struct cn_http_answers *answers,
                                       const struct cn_http_route *route,
                                       const struct cn_http_request *request)
{
    struct cn_http_kept *oldest = NULL;
    for (size_t i = 0; i < CN_HTTP_KEPT; i++) {
        struct cn_http_kept *kept = &answers->kept[i];
        if (is_same(kept, route, request))
            return kept;
        if (kept->route && is_single(kept->route))
            continue;
        if (!oldest || !kept->route || (oldest->route && kept->made_ms < oldest->made_ms))
            oldest = kept;
    }
    return oldest;
}

// The bytes of a route without a producer are constant and are not copied.
static struct MHD_Response *make_fixed(const struct cn_http_route *route, struct cn_http_kept *made)
{
    made->status = MHD_HTTP_OK;
    name_body(route->fixed, route->fixed_size, made->etag);
    return describe(MHD_create_response_from_buffer_static(route->fixed_size, route->fixed),
                    route->type, "no-cache");
}

static struct MHD_Response *make_produced(struct cn_http_answers *answers,
                                          const struct cn_http_route *route, void *context,
                                          const struct cn_http_request *request, uint64_t now_ms,
                                          struct cn_http_kept *made)
{
    struct cn_http_answer answer = {.status = MHD_HTTP_OK};
    uint64_t count;
    cn_buffer_init(&answer.body, BODY_MAX);
    cn_err err = route->produce(context, request, &answer);
    if (err) {
        cn_buffer_deinit(&answer.body);
        made->status = err == CN_ENOTFOUND ? MHD_HTTP_NOT_FOUND : MHD_HTTP_SERVICE_UNAVAILABLE;
        if (err != CN_ENOTFOUND && cn_log_limit_due(&answers->trouble, now_ms, &count))
            cn_log(CN_LOG_WARN, "http", "%s: %s", route->path, cn_err_text(err));
        return say(cn_err_text(err));
    }
    made->status = answer.status;
    name_body(answer.body.data, answer.body.size, made->etag);
    struct MHD_Response *response = MHD_create_response_from_buffer_with_free_callback(
        answer.body.size, answer.body.data, free);
    if (!response)
        cn_buffer_deinit(&answer.body);
    return describe(response, made->status == MHD_HTTP_OK ? route->type : PLAIN, "no-store");
}

// Makes an answer and keeps it. Returns NULL when there is no memory for it.
static struct cn_http_kept *make(struct cn_http_answers *answers, const struct cn_http_route *route,
                                 void *context, const struct cn_http_request *request,
                                 uint64_t now_ms)
{
    struct cn_http_kept made = {.route = route, .request = *request, .made_ms = now_ms};
    made.response = route->fixed ? make_fixed(route, &made)
                                 : make_produced(answers, route, context, request, now_ms, &made);
    if (!made.response || (made.etag[0] && !add(made.response, "ETag", made.etag))) {
        forget(&made);
        return NULL;
    }
    struct cn_http_kept *place = find_place(answers, route, request);
    forget(place);
    *place = made;
    return place;
}

static enum MHD_Result queue_unchanged(struct MHD_Connection *connection,
                                       const struct cn_http_route *route, const char *etag)
{
    struct MHD_Response *response = describe(MHD_create_response_empty(MHD_RF_NONE), route->type,
                                             route->fixed ? "no-cache" : "no-store");
    if (response && !add(response, "ETag", etag)) {
        MHD_destroy_response(response);
        return MHD_NO;
    }
    return queue_once(connection, MHD_HTTP_NOT_MODIFIED, response);
}

static enum MHD_Result queue_busy(struct MHD_Connection *connection)
{
    struct MHD_Response *response = say("too many requests; come back in a second");
    if (response && !add(response, "Retry-After", "1")) {
        MHD_destroy_response(response);
        return MHD_NO;
    }
    return queue_once(connection, MHD_HTTP_TOO_MANY_REQUESTS, response);
}

// Makes an answer of a route with several at the expense of their common time.
static struct cn_http_kept *make_charged(struct cn_http_answers *answers,
                                         const struct cn_http_route *route, void *context,
                                         const struct cn_http_request *request, uint64_t now_ms)
{
    uint64_t began_us = cn_platform_now_us();
    struct cn_http_kept *kept = make(answers, route, context, request, now_ms);
    double took_ms = (double)(cn_platform_now_us() - began_us) / 1000;
    if (took_ms > COST_MS)
        cn_bucket_charge(&answers->made, took_ms - COST_MS);
    return kept;
}

enum MHD_Result cn_http_answers_queue(struct cn_http_answers *answers,
                                      struct MHD_Connection *connection,
                                      const struct cn_http_route *route, void *context,
                                      const struct cn_http_request *request, const char *known,
                                      uint64_t now_ms)
{
    struct cn_http_kept *kept = find_fresh(answers, route, request, now_ms);
    if (!kept && is_single(route)) {
        kept = make(answers, route, context, request, now_ms);
    } else if (!kept) {
        if (!cn_bucket_take(&answers->made, SHARE_MS, COST_MS, now_ms))
            return queue_busy(connection);
        kept = make_charged(answers, route, context, request, now_ms);
    }
    if (!kept)
        return MHD_NO;
    if (known && kept->etag[0] && kept->status == MHD_HTTP_OK && strstr(known, kept->etag))
        return queue_unchanged(connection, route, kept->etag);
    return MHD_queue_response(connection, kept->status, kept->response);
}
