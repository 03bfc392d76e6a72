// route.h - finds the handler of a request, for the CoAP server and for the loopback of the tests.
#pragma once

#include "transport/coap/coap_server.h"

// Returns the part of path after prefix, or NULL when the route does not match.
const char *cn_route_match(const char *prefix, const char *path);

// Returns the first route that matches method and path, or NULL.
const struct cn_coap_route *cn_route_find(const struct cn_coap_route *routes, size_t count,
                                          unsigned method, const char *path);

// Sets reply to 5.00 and calls the first route that matches method and path. Without such a route
// sets reply to 4.04 or 4.05. Sets request->method and request->path.
void cn_route_dispatch(const struct cn_coap_route *routes, size_t count, void *context,
                       unsigned method, const char *path, struct cn_coap_request *request,
                       struct cn_coap_reply *reply);
