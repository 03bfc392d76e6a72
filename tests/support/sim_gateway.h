// sim_gateway.h - the aggregator's side of transfers in a simulation: the product's spool behind a
// few handlers. The chunks have CN_SIM_CHUNK bytes.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "transport/coap/coap_server.h"

#define CN_SIM_CHUNK 64

struct cn_sim_gateway;

// size: of the blob that is served and of the largest frame. data is borrowed.
struct cn_sim_gateway *cn_sim_gateway_open(const uint8_t *data, size_t size);
void cn_sim_gateway_close(struct cn_sim_gateway *gateway);

const struct cn_coap_route *cn_sim_gateway_routes(size_t *count);

// Chunks that came when they were there already.
uint64_t cn_sim_gateway_repeats(const struct cn_sim_gateway *gateway);

// For uploads of round 1 that are interrupted. The time, from which follows what becomes durable:
void cn_sim_gateway_tick(struct cn_sim_gateway *gateway, uint64_t now_ms);

// kill -9: only what was durable is left. Until it is started nobody is answered.
void cn_sim_gateway_kill(struct cn_sim_gateway *gateway);
void cn_sim_gateway_start(struct cn_sim_gateway *gateway);

// An end or the session is new: the chunks that are there, or that the next declaration to a killed
// gateway finds, do not have to come again.
void cn_sim_gateway_expect_renewal(struct cn_sim_gateway *gateway);
// How many these are; *repeats: of them came again.
uint64_t cn_sim_gateway_known(const struct cn_sim_gateway *gateway, uint64_t *repeats);

// Messages with chunks that came.
uint64_t cn_sim_gateway_messages(const struct cn_sim_gateway *gateway);
