#include "transport/coap/route.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define DIAGNOSTIC_SIZE 160

void cn_coap_reply_error(struct cn_coap_reply *reply, enum cn_coap_code code, const char *format,
                         ...)
{
    va_list arguments;
    int length;

    va_start(arguments, format);
    length = vsnprintf((char *)reply->body, DIAGNOSTIC_SIZE, format, arguments);
    va_end(arguments);
    reply->code = code;
    reply->size = length < 0 ? 0 : strlen((char *)reply->body);
    reply->max_age_s = 0;
}

const char *cn_route_match(const char *prefix, const char *path)
{
    size_t length = strlen(prefix);

    if (strncmp(path, prefix, length) != 0 || (path[length] && path[length] != '/'))
        return NULL;
    return path + length + (path[length] == '/');
}

const struct cn_coap_route *cn_route_find(const struct cn_coap_route *routes, size_t count,
                                          unsigned method, const char *path)
{
    for (size_t i = 0; i < count; i++) {
        if ((unsigned)routes[i].method == method && cn_route_match(routes[i].prefix, path))
            return &routes[i];
    }
    return NULL;
}

void cn_route_dispatch(const struct cn_coap_route *routes, size_t count, void *context,
                       unsigned method, const char *path, struct cn_coap_request *request,
                       struct cn_coap_reply *reply)
{
    const struct cn_coap_route *route = cn_route_find(routes, count, method, path);
    bool found = false;

    request->method = (enum cn_coap_method)method;
    reply->code = CN_COAP_INTERNAL_ERROR;
    reply->size = 0;
    reply->max_age_s = 0;
    if (route) {
        request->path = cn_route_match(route->prefix, path);
        route->handle(context, request, reply);
        return;
    }
    for (size_t i = 0; i < count; i++)
        found |= cn_route_match(routes[i].prefix, path) != NULL;
    if (found)
        cn_coap_reply_error(reply, CN_COAP_METHOD_NOT_ALLOWED, "wrong method");
    else
        cn_coap_reply_error(reply, CN_COAP_NOT_FOUND, "no such resource");
}
