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

// Handles all methods of u.
void cn_resources_upload(void *context, const struct cn_coap_request *request,
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

// Answers with the status of an upload.
void cn_resources_reply_status(struct cn_coap_reply *reply, enum cn_coap_code code,
                               const struct cn_upload_status *status);

// Answers after a passing error of the aggregator itself: the board keeps what it has and comes
// back.
void cn_resources_reply_trouble(struct cn_resources *resources, struct cn_coap_reply *reply,
                                cn_err err);

// Reads a decimal number that ends at stop or at the end of text. Sets *rest to what follows stop.
bool cn_resources_parse_number(const char *text, char stop, uint32_t *number, const char **rest);

// Notes in facts that a board holds a newer version than the ledger, and logs it. A version that no
// run reaches is not believed.
void cn_resources_note_ahead(struct cn_resources *resources, const char *board,
                             const struct cn_registration *registration,
                             struct cn_roster_facts *facts);

// Returns the gateway's resources.
struct cn_resources *cn_resources_gateway(struct cn_resources *resources);

// Returns the group of a board, as the gateway knows it.
const struct cn_roster_group *cn_resources_group(const struct cn_resources *resources,
                                                 const struct cn_roster_board *board);

// Returns how often the job that boards are told has changed. A board that was told another number
// must register again.
uint32_t cn_resources_settings(const struct cn_resources *resources);
