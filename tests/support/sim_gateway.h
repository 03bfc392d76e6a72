// sim_gateway.h - the aggregator's side of transfers in a simulation.
//
// It is the product's spool behind a few handlers. Its chunks have CN_SIM_CHUNK bytes.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "transport/coap/coap_server.h"

#define CN_SIM_CHUNK 64

struct cn_sim_gateway;

// Opens a gateway. size is that of the blob that is served, and of the largest frame. data is
// borrowed.
struct cn_sim_gateway *cn_sim_gateway_open(const uint8_t *data, size_t size);
void cn_sim_gateway_close(struct cn_sim_gateway *gateway);

const struct cn_coap_route *cn_sim_gateway_routes(size_t *count);

// Returns the number of chunks that arrived although they were already there.
uint64_t cn_sim_gateway_repeats(const struct cn_sim_gateway *gateway);

// Tells the time, for uploads of round 1 that are interrupted. The spool saves what has waited long
// enough.
void cn_sim_gateway_tick(struct cn_sim_gateway *gateway, uint64_t now_ms);

// Acts as kill -9: only what was durable remains. Requests get no answer until start.
void cn_sim_gateway_kill(struct cn_sim_gateway *gateway);
void cn_sim_gateway_start(struct cn_sim_gateway *gateway);

// Call when either end was restarted or the session is new. The chunks that are there now, or at
// the next declaration if the gateway was killed, need not be sent again.
void cn_sim_gateway_expect_renewal(struct cn_sim_gateway *gateway);
// Returns the number of those chunks. Sets *repeats to the number of them that were sent again.
uint64_t cn_sim_gateway_known(const struct cn_sim_gateway *gateway, uint64_t *repeats);

// Answers declarations with "later" and Max-Age 1 until this time. Without ticks the gateway's time
// stands still.
void cn_sim_gateway_postpone(struct cn_sim_gateway *gateway, uint64_t until_ms);

// Returns the number of messages with chunks that arrived.
uint64_t cn_sim_gateway_messages(const struct cn_sim_gateway *gateway);
