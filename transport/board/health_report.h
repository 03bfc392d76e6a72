// health_report.h - sends what a board says of itself: POST h of PROTOCOL.md.
//
// While the board watches the round, the requests for the round show whether the session lives. A
// report is then sent once, without an answer. Otherwise a report is repeated until it is answered,
// so that a board that only reports, for example during a pause, also notices the loss of its
// session. A newer report takes the place of an unanswered one. Threading: none.
#pragma once

#include "runtime/port/health.h"
#include "runtime/port/order.h"
#include "transport/transfer/request.h"

struct cn_health_report {
    struct cn_request asking; // its kind is the first byte of the tags of answered reports
    uint32_t number;          // counts the reports sent without an answer, as part of their tags
    bool unknown;             // the aggregator of this session does not know health
};

// Initialises the reports. kind is the first byte of the tags of reports that are answered; kind +
// 1 is that of the others. exchange and rtt are borrowed.
void cn_health_report_init(struct cn_health_report *report, struct cn_exchange *exchange,
                           struct cn_rtt *rtt, uint8_t kind, uint64_t seed);

// Sends health. With answered, step sends it and repeats it until it is answered. Does nothing when
// the aggregator does not know health.
void cn_health_report_send(struct cn_health_report *report, const struct cn_health *health,
                           bool answered);

// Call this when there is a new session.
void cn_health_report_reconnected(struct cn_health_report *report);

// Sends what is due. Lowers *wake_us to the time of the next request.
void cn_health_report_step(struct cn_health_report *report, uint64_t now_us, uint64_t *wake_us);

// Takes an answer to a report of either kind. Returns false when the answer is to no report. Sets
// *order to what the answer asks of this board; seq 0: nothing.
bool cn_health_report_reply(struct cn_health_report *report, const struct cn_exchange_reply *reply,
                            uint64_t now_us, struct cn_order *order);
