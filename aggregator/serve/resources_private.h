// resources_private.h - what the handlers of requests share.
#pragma once

#include "aggregator/serve/resources.h"

// Handles POST reg.
void cn_resources_register(void *context, const struct cn_coap_request *request,
                           struct cn_coap_reply *reply);
// Handles POST h.
void cn_resources_health(void *context, const struct cn_coap_request *request,
                         struct cn_coap_reply *reply);

// Handles PUT o.
void cn_resources_order(void *context, const struct cn_coap_request *request,
                        struct cn_coap_reply *reply);

// Finds the board behind a request and notes that it was heard. Sets *resources, which are the
// gateway's, to those of the job that its group serves. If the board is not enrolled, or the job
// does not know it yet, answers and returns NULL.
const struct cn_roster_board *cn_resources_identify(struct cn_resources **resources,
                                                    const struct cn_coap_request *request,
                                                    struct cn_coap_reply *reply);

// Copies the bytes, at most CN_COAP_BODY_MAX, into the reply.
void cn_resources_reply(struct cn_coap_reply *reply, enum cn_coap_code code, const uint8_t *bytes,
                        size_t size);

// Returns the gateway's resources.
struct cn_resources *cn_resources_gateway(struct cn_resources *resources);

// Returns the group of a board, as the gateway knows it.
const struct cn_roster_group *cn_resources_group(const struct cn_resources *resources,
                                                 const struct cn_roster_board *board);

// Returns how often the job that boards are told has changed. A board that was told another number
// must register again.
uint32_t cn_resources_settings(const struct cn_resources *resources);
