// http_text.c - runtime/port/text_server.h by way of http_server.h.
#include "transport/http/http_text.h"

#include <stdlib.h>

#include "runtime/base/log.h"
#include "runtime/profile/http_settings.h"
#include "transport/http/http_server.h"
#include "transport/http/http_token.h"

#define FRESH_MS 1000

struct cn_text_server {
    struct cn_http_server *http;
    struct cn_http_route routes[2];
    cn_text_produce *produce;
    void *context;
};

static cn_err produce_text(void *context, const struct cn_http_request *request,
                           struct cn_http_answer *answer)
{
    const struct cn_text_server *server = context;

    (void)request;
    return server->produce(server->context, &answer->body);
}

static cn_err produce_health(void *context, const struct cn_http_request *request,
                             struct cn_http_answer *answer)
{
    (void)context, (void)request;
    return cn_buffer_append(&answer->body, "ok\n", 3);
}

static cn_err read_token(const struct cn_http_settings *http, uint8_t token[CN_DIGEST_SIZE])
{
    const char *why;
    cn_err err = cn_http_token_read(http->token_file, token, &why);

    if (err)
        cn_log(CN_LOG_ERROR, "http", "http.token_file: %s: %s", http->token_file, why);
    return err;
}

static void close_server(struct cn_text_server *server)
{
    if (server)
        cn_http_close(server->http);
    free(server);
}

static cn_err open_server(const struct cn_http_settings *http, const char *path, const char *type,
                          cn_text_produce *produce, void *context, struct cn_text_server **result)
{
    uint8_t token[CN_DIGEST_SIZE];
    bool has_token = http->token_file[0] != '\0';
    struct cn_text_server *server = calloc(1, sizeof(*server));
    cn_err err;

    if (!server)
        return CN_ENOMEM;
    server->produce = produce;
    server->context = context;
    server->routes[0] = (struct cn_http_route){
        .path = path, .type = type, .produce = produce_text, .fresh_ms = FRESH_MS};
    server->routes[1] = (struct cn_http_route){.path = "/healthz",
                                               .type = "text/plain; charset=utf-8",
                                               .open = true,
                                               .produce = produce_health,
                                               .fresh_ms = FRESH_MS};
    struct cn_http_config config = {.listen = http->listen,
                                    .local = cn_http_settings_local(http->listen),
                                    .routes = server->routes,
                                    .route_count = 2,
                                    .context = server};

    err = has_token ? read_token(http, token) : CN_OK;
    if (!err) {
        cn_http_rules_set(&config.rules, http->listen, http->names, has_token ? token : NULL);
        err = cn_http_open(&config, &server->http);
    }
    if (err) {
        close_server(server);
        return err;
    }
    *result = server;
    return CN_OK;
}

static int descriptor(const struct cn_text_server *server)
{
    return cn_http_descriptor(server->http);
}

static cn_err step(struct cn_text_server *server, uint64_t now_ms)
{
    return cn_http_step(server->http, now_ms);
}

const struct cn_text_server_ops cn_http_text = {
    .open = open_server,
    .close = close_server,
    .descriptor = descriptor,
    .step = step,
};
