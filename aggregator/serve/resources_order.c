// resources_order.c - PUT o/SEQ/PART/COUNT: a part of a board's answer to an order.
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "aggregator/serve/resources_private.h"

// Reads "SEQ/PART/COUNT" or "SEQ/PART/COUNT/no".
static bool parse_path(const char *path, struct cn_order_part *part)
{
    uint32_t *const numbers[] = {&part->seq, &part->part, &part->count};
    for (int i = 0; i < 3; i++) {
        char *end;
        errno = 0;
        unsigned long long value = strtoull(path, &end, 10);
        if (*path < '0' || *path > '9' || errno || value > UINT32_MAX ||
            (*end != '/' && (i < 2 || *end)))
            return false;
        *numbers[i] = (uint32_t)value;
        path = end + (*end == '/');
    }
    part->refused = strcmp(path, "no") == 0;
    return !*path || part->refused;
}

// Like a report of health, an answer does not make the board's group one that can be invited.
void cn_resources_order(void *context, const struct cn_coap_request *request,
                        struct cn_coap_reply *reply)
{
    struct cn_resources *resources = context;
    struct cn_order_part part = {.bytes = request->body, .size = request->size};
    if (!cn_roster_find(resources->roster, request->board)) {
        cn_coap_reply_error(reply, CN_COAP_UNAUTHORIZED, "%s is not enrolled", request->board);
        return;
    }
    if (!parse_path(request->path, &part)) {
        cn_coap_reply_error(reply, CN_COAP_BAD_REQUEST, "expected o/ORDER/PART/COUNT");
        return;
    }
    cn_err err = cn_orders_add_part(&resources->orders, request->board, resources->now_ms(), &part);
    if (err == CN_ENOTFOUND)
        cn_coap_reply_error(reply, CN_COAP_NOT_FOUND, "nothing of this number is asked");
    else if (err)
        cn_coap_reply_error(reply, CN_COAP_BAD_REQUEST, "no answer has such a part");
    else
        reply->code = CN_COAP_CHANGED;
}
