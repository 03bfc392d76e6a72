#include "transport/board/health_report.h"

void cn_health_report_init(struct cn_health_report *report, struct cn_exchange *exchange,
                           struct cn_rtt *rtt, uint8_t kind, uint64_t seed)
{
    *report = (struct cn_health_report){0};
    cn_request_init(&report->asking, exchange, rtt, kind, seed);
}

static void send_once(struct cn_health_report *report, const uint8_t *body, size_t size)
{
    struct cn_exchange *exchange = report->asking.exchange;
    const struct cn_exchange_request request = {
        .tag = (uint64_t)(report->asking.kind + 1) << 56 | ++report->number,
        .method = CN_COAP_POST,
        .path = "h",
        .body = body,
        .size = size,
        .silent = true,
    };

    (void)exchange->ops->send(exchange, &request); // the next report makes up for a lost one
}

void cn_health_report_send(struct cn_health_report *report, const struct cn_health *health,
                           bool answered)
{
    uint8_t body[CN_MESSAGE_MAX];
    size_t size;

    if (report->unknown || cn_message_put_health(health, body, &size))
        return;
    if (answered) {
        cn_request_start(&report->asking, CN_COAP_POST, "h", body, size);
        return;
    }
    cn_request_stop(&report->asking);
    send_once(report, body, size);
}

void cn_health_report_reconnected(struct cn_health_report *report)
{
    report->unknown = false;
    cn_request_hurry(&report->asking);
}

void cn_health_report_step(struct cn_health_report *report, uint64_t now_us, uint64_t *wake_us)
{
    cn_request_step(&report->asking, now_us, wake_us);
}

bool cn_health_report_reply(struct cn_health_report *report, const struct cn_exchange_reply *reply,
                            uint64_t now_us, struct cn_order *order)
{
    bool mine;

    if (reply->code != CN_COAP_CHANGED || !reply->size ||
        cn_message_get_order(reply->body, reply->size, order))
        *order = (struct cn_order){0};

    if (reply->code == CN_COAP_NOT_FOUND || reply->code == CN_COAP_METHOD_NOT_ALLOWED) {
        report->unknown = true; // an older aggregator has no resource h
        cn_request_stop(&report->asking);
        return true;
    }
    if (reply->tag >> 56 != report->asking.kind)
        return true; // an error about a report that is not repeated
    (void)cn_request_answered(&report->asking, reply, now_us, &mine);
    return mine;
}
