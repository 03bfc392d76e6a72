// resources_order.c - PUT o/SEQ/PART/COUNT: a part of a board's answer to an order.
#include <errno.h>
#include <stdlib.h>

#include "aggregator/serve/resources_private.h"

// Reads "SEQ/PART/COUNT".
static bool parse_path(const char *path, uint32_t numbers[3])
{
    for (int i = 0; i < 3; i++) {
        char *end;
        errno = 0;
        unsigned long long value = strtoull(path, &end, 10);
        if (*path < '0' || *path > '9' || errno || value > UINT32_MAX ||
            *end != (i < 2 ? '/' : '\0'))
            return false;
        numbers[i] = (uint32_t)value;
        path = end + (i < 2);
    }
    return true;
}

void cn_resources_order(void *context, const struct cn_coap_request *request,
                        struct cn_coap_reply *reply)
{
    struct cn_resources *resources = context;
    uint32_t path[3];
    const struct cn_roster_board *board = cn_resources_identify(resources, request, reply);
    if (!board)
        return;
    if (!parse_path(request->path, path)) {
        cn_coap_reply_error(reply, CN_COAP_BAD_REQUEST, "expected o/ORDER/PART/COUNT");
        return;
    }
    cn_err err = cn_orders_take(&resources->orders, board->enrolled.name, resources->now_ms(), path,
                                request->body, request->size);
    if (err == CN_ENOTFOUND)
        cn_coap_reply_error(reply, CN_COAP_NOT_FOUND, "nothing of this number is asked");
    else if (err)
        cn_coap_reply_error(reply, CN_COAP_BAD_REQUEST, "the parts do not fit together");
    else
        reply->code = CN_COAP_CHANGED;
}
