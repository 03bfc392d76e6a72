// resources_health.c - POST h: a board's health, for people (runtime/port/health.h).
#include "aggregator/serve/resources_private.h"
#include "transport/message/message.h"

// Takes the report, and the members that the board misses. Of a report that came too soon nothing
// counts, so a board that sends many costs little.
static void take(struct cn_roster *roster, const struct cn_roster_board *board,
                 const struct cn_health *health, uint64_t now_ms)
{
    if (cn_roster_report(roster, board->enrolled.name, health, now_ms) && health->missing_count)
        cn_roster_miss(roster, board->enrolled.name, board->enrolled.group, health->missing,
                       health->missing_count, now_ms);
}

void cn_resources_health(void *context, const struct cn_coap_request *request,
                         struct cn_coap_reply *reply)
{
    struct cn_resources *resources = context;
    struct cn_health health;
    const struct cn_roster_board *board = cn_roster_find(resources->roster, request->board);
    if (!board) {
        cn_coap_reply_error(reply, CN_COAP_UNAUTHORIZED, "%s is not enrolled", request->board);
        return;
    }
    if (!cn_roster_is_registered(board)) {
        cn_coap_reply_error(reply, CN_COAP_UNAUTHORIZED, "register first");
        return;
    }
    if (request->size > CN_HEALTH_MESSAGE_MAX ||
        cn_message_get_health(request->body, request->size, &health) != CN_OK) {
        cn_coap_reply_error(reply, CN_COAP_BAD_REQUEST, "malformed report of health");
        return;
    }
    take(resources->roster, board, &health, resources->now_ms());
    struct cn_resources *job = resources;
    if (resources->serving)
        job = resources->serving(resources->context, board->enrolled.group);
    if (job != resources)
        take(job->roster, board, &health, resources->now_ms());
    reply->code = request->wants_reply ? CN_COAP_CHANGED : CN_COAP_SILENT;
    const struct cn_order order =
        cn_orders_open(&resources->orders, request->board, resources->now_ms());
    uint8_t bytes[CN_MESSAGE_MAX];
    size_t size = 0;
    if (request->wants_reply && order.seq && cn_message_put_order(&order, bytes, &size) == CN_OK)
        cn_resources_reply(reply, CN_COAP_CHANGED, bytes, size);
}
