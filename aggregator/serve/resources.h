// resources.h - what boards can ask of the aggregator: decode, call, answer.
//
//   POST reg           who I am and what I speak      -> the manifest
//   GET  k/MEMBER      the key of the pair            -> 32 bytes
//   GET  r             the round (observable)         -> cn_round_info
//   GET  b/HEX/N/COUNT chunks of the blob HEX from N  -> bytes
//   POST u             an update of this digest comes -> cn_upload_status
//   PUT  u/ID/N        chunks of it from N            -> cn_upload_status, when it is wanted
//   GET  u/ID/N        what is missing from chunk N   -> cn_upload_status
//   POST u/ID/commit   all is sent                    -> cn_upload_status; ACCEPTED means durable
//   DELETE u/ID        it will not be sent
//   POST p             does a datagram of this size arrive? -> as many bytes
//
// The messages are those of transport/message/message.h. Who asks is what the session proved, never
// what a message says. Errors carry a sentence for the board's log.
#pragma once

#include "aggregator/run/run.h"
#include "runtime/base/log_limit.h"
#include "transport/coap/coap_server.h"

#define CN_RESOURCES_CHUNK_SIZE 64 // small, so that a message can be filled to any path's size
#define CN_RESOURCES_WINDOW (1u << 18)

struct cn_resources {
    struct cn_ledger *ledger; // all borrowed
    struct cn_roster *roster;
    struct cn_spool *spool;
    struct cn_model_store *models;
    struct cn_run *run;
    const struct cn_job *job;
    uint64_t (*now_ms)(void);
    uint64_t trouble_ms; // clock; when trouble of ours was last told
    // Lines about boards that are ahead of the ledger, by a hash of the board's name.
    struct cn_log_limit ahead[CN_LOG_QUOTA_BUCKETS];
};

// The routes; each one's context is a struct cn_resources.
const struct cn_coap_route *cn_resources_routes(size_t *count);

// What the server asks with: context is a struct cn_resources.
cn_err cn_resources_find_key(void *context, const char *board, uint8_t key[CN_KEY_SIZE]);
