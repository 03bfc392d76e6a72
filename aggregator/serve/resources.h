// resources.h - what boards can ask of the aggregator: decodes a request, calls the run, answers.
//
//   POST reg           the board's versions and hardware      -> the manifest
//   GET  k/MEMBER      the key that it shares with a member   -> 32 bytes
//   GET  r             the round (observable)                 -> cn_round_info
//   GET  b/HEX/N/COUNT COUNT chunks of the blob HEX from N    -> bytes
//   POST u             announces an update by its digest      -> cn_upload_status
//   PUT  u/ID/N        chunks of the update from N            -> cn_upload_status, when wanted
//   GET  u/ID/N        which chunks are missing from N        -> cn_upload_status
//   POST u/ID/commit   says that all chunks were sent         -> cn_upload_status
//   DELETE u/ID        says that the update will not be sent
//   POST h             the board's health                     -> nothing, or cn_order
//   PUT  o/SEQ/N/COUNT part N of the answer to an order       -> nothing
//   POST p             tests whether a datagram of this size arrives -> the same number of bytes
//
// k/MEMBER/EPOCH names the group's key epoch; without it 0 is meant. b/HEX/N, without COUNT, asks
// for one kilobyte. In the answer to a commit ACCEPTED means durable.
//
// The messages are those of transport/message/message.h. The DTLS session proves which board asks;
// no message can change that. Error replies carry a sentence for the board's log.
//
// A gateway with several jobs has resources for each. A request is answered by those of the job
// that the board's group serves at the time; keys and orders are those of the gateway. Threading:
// that of the CoAP server.
#pragma once

#include "aggregator/roster/orders.h"
#include "aggregator/run/run.h"
#include "runtime/base/log_limit.h"
#include "transport/coap/coap_server.h"

// Bytes; small, so that a message can be filled to the size that any path takes.
#define CN_RESOURCES_CHUNK_SIZE 64
#define CN_RESOURCES_WINDOW (1u << 18)

// What came of deciding again which job each group serves.
enum cn_replan {
    CN_REPLAN_LATER,   // nothing was decided: that was done just before
    CN_REPLAN_OPENING, // it was decided, and may be decided otherwise when another job is open
    CN_REPLAN_DONE,
};

struct cn_resources {
    struct cn_ledger *ledger; // borrowed, as all pointers here
    struct cn_roster *roster; // of the run, which this process alone changes for a further job
    // Those of the gateway, which have the boards' keys; NULL: these are the gateway's own.
    struct cn_resources *gateway;
    // Finds the resources of the job that a group serves; NULL: all groups serve this one. Only the
    // gateway's own have it.
    struct cn_resources *(*serving)(void *context, const char *group);
    // Decides again which job each group serves, after a board said that it cannot train, or
    // registered though the run of its job is over. NULL: there is nothing to decide.
    enum cn_replan (*replan)(void *context);
    void *context; // passed to both functions
    struct cn_spool *spool;
    struct cn_model_store *models;
    struct cn_run *run;
    const struct cn_job *job;
    const struct cn_live_job *live; // names the job that boards are told; NULL: job
    struct cn_base_name base;       // the tensors that never change
    bool has_base;                  // base is set, or the job has none
    struct cn_orders orders;        // what operators asked of boards; owned
    uint64_t (*now_ms)(void);
    uint64_t trouble_ms; // clock; when an error of the aggregator itself was last logged
    // Limits lines about boards that are ahead of the ledger, by a hash of the board's name.
    struct cn_log_limit ahead[CN_LOG_QUOTA_BUCKETS];
};

// Returns the routes. The context of each is the gateway's struct cn_resources.
const struct cn_coap_route *cn_resources_routes(size_t *count);

// Finds the key of a board for the CoAP server. context is a struct cn_resources.
cn_err cn_resources_find_key(void *context, const char *board, uint8_t key[CN_KEY_SIZE]);
