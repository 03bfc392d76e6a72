// message.h - the CBOR messages between board and aggregator (RFC 8949, deterministic encoding).
//
// PROTOCOL.md has the CDDL. Every message is a map with small integer keys and fits one datagram.
// Decoders accept any bytes. They skip unknown keys. They return CN_EFORMAT for missing keys, wrong
// types, numbers outside their limits, trailing bytes and names that cn_name_valid refuses. A put
// function needs room for CN_MESSAGE_MAX bytes and returns CN_ERANGE for a longer message.
#pragma once

#include "runtime/base/bytes.h"
#include "runtime/port/link.h"

#define CN_MESSAGE_MAX 1024 // most bytes of a message
#define CN_CHUNK_MAX 1024   // most bytes of a chunk; with its headers it fits the smallest datagram

// The oldest and newest protocol and format versions that this build speaks.
#define CN_PROTOCOL_MIN 2
#define CN_PROTOCOL_MAX 3
#define CN_UPDATE_FORMAT_MIN 2
#define CN_UPDATE_FORMAT_MAX 4
#define CN_GRAPH_OPS_MIN 1
#define CN_GRAPH_OPS_MAX 7

struct cn_version_range {
    uint32_t min, max;
};

// POST reg: a board registers with its versions and facts.
struct cn_register_request {
    struct cn_version_range protocol, update_format, graph_ops;
    struct cn_registration facts; // members and member_count are not sent
};

// Reply 2.05 to POST reg: a cn_manifest without pair keys, and the versions that the aggregator
// chose.
struct cn_register_reply {
    uint32_t protocol, update_format, graph_ops;
    uint32_t chunk_size; // bytes of a chunk, in both directions
    uint32_t window;     // most chunks in flight in each direction
    struct cn_manifest manifest;
};

// POST u: a board announces an update.
struct cn_declare_request {
    uint64_t run;
    uint32_t round;
    uint64_t size;
    uint8_t digest[CN_DIGEST_SIZE];
    uint8_t base[CN_DIGEST_SIZE];              // version that the update is relative to
    double held_out_loss;                      // sum over the held-out samples, for base
    uint64_t held_out_correct, held_out_count; // samples, for base
    double train_loss;                         // mean over the round's samples
    struct cn_measures measures;               // of base on the held-out samples
    // Signs of life of the members, as the leader sees them.
    struct cn_member_sign members[CN_GROUP_MAX];
    uint32_t member_count;
    uint64_t steps; // steps of the round that the group did; 0: not said
    // Epoch of the group's control variate, and the number of its updates in that epoch of which
    // the variate was made; both 0 without control variates.
    uint64_t control_epoch, control_count;
    uint64_t down_bps; // goodput towards the board that it measured; 0: not known
};

#define CN_HEALTH_MESSAGE_MAX 200 // most bytes of POST h

#define CN_UPLOAD_ID_SIZE 8
#define CN_RANGE_MAX 48
#define CN_RECENT_MAX 24

struct cn_chunk_range {
    uint32_t first, count;
};

// Reply to POST u, to PUT u/ID/N when requested, to GET u/ID/N and to POST u/ID/commit.
struct cn_upload_status {
    uint8_t id[CN_UPLOAD_ID_SIZE]; // see cn_message_upload_id
    bool decided;                  // true: verdict is set
    enum cn_verdict verdict;
    uint8_t accepted[CN_DIGEST_SIZE]; // of the frame that counts for the round; zeros: none
    uint32_t chunk_count;
    uint32_t received;                           // number of chunks received
    struct cn_chunk_range missing[CN_RANGE_MAX]; // the first missing chunks, in ascending order
    uint32_t missing_count;
    char reason[120]; // reason of a verdict other than accepted
    uint32_t known; // number of first chunks that `missing` covers; nothing is known of later ones
    struct cn_chunk_range recent[CN_RECENT_MAX]; // chunks that arrived last, in order of arrival
    uint32_t recent_count;
};

// Returns the version of the graph's operators that a board must know for the job: the highest that
// holds of these, or else 1.
//
//   2  the job has rules, or a loss that CN_LOSS_MSE precedes in enum cn_loss
//   3  the job sets keys of cn_parallel, by which the members of a group share the work
//   4  the members of a group divide the model (pipeline)
//   5  gradients are corrected (train.correction)
//   6  the members divide the model, and each has samples of its own
uint32_t cn_message_graph_ops(const struct cn_job *job);

// Returns the lowest update format that a board must know for the job.
uint32_t cn_message_update_format(const struct cn_job *job);

cn_err cn_message_put_register(const struct cn_register_request *message, uint8_t *bytes,
                               size_t *size);
cn_err cn_message_get_register(const uint8_t *bytes, size_t size,
                               struct cn_register_request *message);
cn_err cn_message_put_manifest(const struct cn_register_reply *message, uint8_t *bytes,
                               size_t *size);
cn_err cn_message_get_manifest(const uint8_t *bytes, size_t size,
                               struct cn_register_reply *message);
cn_err cn_message_put_round(const struct cn_round_info *message, uint8_t *bytes, size_t *size);
cn_err cn_message_get_round(const uint8_t *bytes, size_t size, struct cn_round_info *message);
cn_err cn_message_put_declare(const struct cn_declare_request *message, uint8_t *bytes,
                              size_t *size);
cn_err cn_message_get_declare(const uint8_t *bytes, size_t size,
                              struct cn_declare_request *message);
cn_err cn_message_put_status(const struct cn_upload_status *message, uint8_t *bytes, size_t *size);
cn_err cn_message_get_status(const uint8_t *bytes, size_t size, struct cn_upload_status *message);
// POST h: what a board says of itself. The message is at most CN_HEALTH_MESSAGE_MAX bytes long.
cn_err cn_message_put_health(const struct cn_health *message, uint8_t *bytes, size_t *size);
cn_err cn_message_get_health(const uint8_t *bytes, size_t size, struct cn_health *message);
// The answer to POST h, if there is something to do.
cn_err cn_message_put_order(const struct cn_order *message, uint8_t *bytes, size_t *size);
cn_err cn_message_get_order(const uint8_t *bytes, size_t size, struct cn_order *message);
// Computes an upload's ID: the first bytes of SHA-256(board | run | round | digest), with numbers
// little-endian.
void cn_message_upload_id(const char *board, uint64_t run, uint32_t round,
                          const uint8_t digest[CN_DIGEST_SIZE], uint8_t id[CN_UPLOAD_ID_SIZE]);

// Copies a diagnostic text of a peer. Cuts it to fit and replaces control characters.
void cn_message_copy_text(char *to, size_t to_size, const uint8_t *from, size_t size);
