#include "transport/http/http_request.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "runtime/base/unix_path.h"
#include "runtime/base/words.h"
#include "runtime/port/crypto.h"

#define BEARER "Bearer "
#define NUMBER_DIGITS 18 // fewer than a uint64_t can hold

// Returns the length of the host in "host:port" or "[host]:port"; the whole length without a port.
static size_t host_length(const char *text)
{
    const char *end = text[0] == '[' ? strchr(text, ']') : NULL;
    return end ? (size_t)(end - text) + 1 : strcspn(text, ":");
}

static bool is_wildcard(const char *host)
{
    return strcmp(host, "0.0.0.0") == 0 || strcmp(host, "[::]") == 0;
}

void cn_http_rules_set(struct cn_http_rules *rules, const char *listen, const char *names,
                       const uint8_t token[CN_DIGEST_SIZE])
{
    memset(rules, 0, sizeof(*rules));
    snprintf(rules->names, sizeof(rules->names), "%s", names);
    if (!cn_unix_path(listen)) {
        size_t length = host_length(listen);
        snprintf(rules->host, sizeof(rules->host), "%.*s", (int)length, listen);
        if (is_wildcard(rules->host))
            rules->host[0] = '\0';
        if (listen[length] == ':')
            snprintf(rules->port, sizeof(rules->port), "%s", listen + length + 1);
    }
    rules->has_token = token != NULL;
    if (token)
        memcpy(rules->token, token, CN_DIGEST_SIZE);
}

// --- who asks ---

static bool is_own_port(const struct cn_http_rules *rules, const char *port)
{
    if (!rules->port[0])
        return true;
    return strcmp(port, rules->port) == 0 || (!port[0] && strcmp(rules->port, "80") == 0);
}

static bool same(const char *text, size_t length, const char *wanted)
{
    return strlen(wanted) == length && strncasecmp(text, wanted, length) == 0;
}

// A listed name without a port matches a Host without a port, as a proxy may pass it on, and a Host
// with this server's port, as a browser sends it.
static bool is_listed(const struct cn_http_rules *rules, const char *host, size_t length,
                      const char *port)
{
    const char *rest = rules->names;
    char name[sizeof(rules->names)];
    while (cn_words_next(&rest, name, sizeof(name))) {
        if (strcasecmp(name, host) == 0)
            return true;
        if (same(host, length, name) && is_own_port(rules, port))
            return true;
    }
    return false;
}

static bool is_own_host(const struct cn_http_rules *rules, const char *host)
{
    static const char *const local[] = {"localhost", "127.0.0.1", "[::1]"};
    size_t length = host_length(host);
    const char *port = host[length] == ':' ? host + length + 1 : "";
    if (is_listed(rules, host, length, port))
        return true;
    if (!is_own_port(rules, port))
        return false;
    for (size_t i = 0; i < sizeof(local) / sizeof(local[0]); i++)
        if (same(host, length, local[i]))
            return true;
    return rules->host[0] && same(host, length, rules->host);
}

// A proxy may have added TLS, which only the browser sees.
static bool is_own_origin(const char *origin, const char *host)
{
    size_t scheme = strncmp(origin, "https://", 8) == 0 ? 8 : 7;
    return strncmp(origin, scheme == 8 ? "https://" : "http://", scheme) == 0 &&
           strcasecmp(origin + scheme, host) == 0;
}

// A browser sends "none" for an address that somebody typed. Other programs send no such header.
static bool is_own_site(const char *site)
{
    return !site || strcmp(site, "same-origin") == 0 || strcmp(site, "none") == 0;
}

// Compares digests, so the time says nothing about the token or its length.
static bool has_token(const struct cn_http_rules *rules, const char *authorization)
{
    uint8_t digest[CN_DIGEST_SIZE];
    if (!authorization || strncasecmp(authorization, BEARER, strlen(BEARER)) != 0)
        return false;
    const char *token = authorization + strlen(BEARER);
    cn_crypto_digest(token, strlen(token), digest);
    return cn_crypto_compare(digest, rules->token, CN_DIGEST_SIZE) == 0;
}

bool cn_http_is_trusted(const struct cn_http_rules *rules, const char *authorization)
{
    return !rules->has_token || has_token(rules, authorization);
}

// --- what is asked ---

// Reads "?PARAMETER=DIGITS" or "".
static bool read_query(const char *query, const char *parameter, uint64_t *number)
{
    if (!*query)
        return true;
    size_t length = parameter ? strlen(parameter) : 0;
    if (!length || strncmp(query + 1, parameter, length) != 0 || query[length + 1] != '=')
        return false;
    const char *digits = query + length + 2;
    size_t count = strspn(digits, "0123456789");
    if (!count || count > NUMBER_DIGITS || digits[count])
        return false;
    *number = strtoull(digits, NULL, 10);
    return true;
}

static bool fits(const struct cn_http_route *route, const char *path, size_t length,
                 char name[CN_NAME_SIZE])
{
    size_t own = strlen(route->path);
    name[0] = '\0';
    if (length < own || strncmp(path, route->path, own) != 0)
        return false;
    if (!route->named)
        return length == own;
    if (path[own] != '/' || length - own - 1 >= CN_NAME_SIZE)
        return false;
    snprintf(name, CN_NAME_SIZE, "%.*s", (int)(length - own - 1), path + own + 1);
    return cn_name_valid(name);
}

static const struct cn_http_route *refuse(unsigned code, const char *sentence, unsigned *status,
                                          const char **why)
{
    *status = code;
    *why = sentence;
    return NULL;
}

static const struct cn_http_route *find(const struct cn_http_route *routes, size_t count,
                                        const char *target, struct cn_http_request *request,
                                        unsigned *status, const char **why)
{
    size_t length = strcspn(target, "?");
    for (size_t i = 0; i < count; i++) {
        if (!fits(&routes[i], target, length, request->name))
            continue;
        if (read_query(target + length, routes[i].parameter, &request->number))
            return &routes[i];
        return refuse(400, "the query is not one that this path takes", status, why);
    }
    return refuse(404, "there is no such path", status, why);
}

const struct cn_http_route *cn_http_judge(const struct cn_http_rules *rules,
                                          const struct cn_http_route *routes, size_t count,
                                          const struct cn_http_head *head,
                                          struct cn_http_request *request, unsigned *status,
                                          const char **why)
{
    memset(request, 0, sizeof(*request));
    if (strcmp(head->method, "GET") != 0 && strcmp(head->method, "HEAD") != 0)
        return refuse(405, "expected GET or HEAD; nothing is changed over HTTP", status, why);
    if (head->has_body)
        return refuse(400, "a request has no body here", status, why);
    if (head->size > CN_HTTP_HEAD_MAX)
        return refuse(431, "the head of the request is above 8 KiB", status, why);
    if (head->repeated || !head->host)
        return refuse(400, "expected one Host, and other headers about the client once at most",
                      status, why);
    if (!is_own_host(rules, head->host))
        return refuse(421, "the Host is not one of this server: see http.names in its profile",
                      status, why);
    if (head->origin && !is_own_origin(head->origin, head->host))
        return refuse(403, "the request comes from another site's page", status, why);
    const struct cn_http_route *route = find(routes, count, head->target, request, status, why);
    if (route && !route->fixed && !is_own_site(head->site))
        return refuse(403, "the request comes from another site", status, why);
    if (route && !route->open && !cn_http_is_trusted(rules, head->authorization))
        return refuse(401, "expected Authorization: Bearer with the token of http.token_file",
                      status, why);
    return route;
}
