// sim_gateway.h - the aggregator's side of transfers in a simulation: the product's spool behind a
// few handlers. The chunks have CN_SIM_CHUNK bytes.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "transport/coap_server.h"

#define CN_SIM_CHUNK 64

struct cn_sim_gateway;

// size: of the blob that is served and of the largest frame. data is borrowed.
struct cn_sim_gateway *cn_sim_gateway_open(const uint8_t *data, size_t size);
void cn_sim_gateway_close(struct cn_sim_gateway *gateway);

const struct cn_coap_route *cn_sim_gateway_routes(size_t *count);

// Chunks that came when they were there already.
uint64_t cn_sim_gateway_repeats(const struct cn_sim_gateway *gateway);
