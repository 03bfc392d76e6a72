// route.h - finds the handler of a request; shared by the CoAP server and the loopback.
#pragma once

#include "transport/coap/coap_server.h"

// The part of path behind prefix, or NULL when the route does not match.
const char *cn_route_match(const char *prefix, const char *path);

// The first route that matches both, or NULL.
const struct cn_coap_route *cn_route_find(const struct cn_coap_route *routes, size_t count,
                                          unsigned method, const char *path);

// Sets reply to 5.00, calls the first route that matches method and path, or answers 4.04 or 4.05.
// request->path is set here.
void cn_route_dispatch(const struct cn_coap_route *routes, size_t count, void *context,
                       unsigned method, const char *path, struct cn_coap_request *request,
                       struct cn_coap_reply *reply);
