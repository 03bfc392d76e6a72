// message.h - the CBOR messages between board and aggregator (RFC 8949, deterministic encoding).
//
// PROTOCOL.md has the CDDL. Every message is a map with small integer keys and fits one datagram.
// Decoding is total: unknown keys are skipped, missing ones, wrong types, numbers out of their
// limits and trailing bytes are CN_EFORMAT; names are checked with cn_name_valid.
#pragma once

#include "runtime/base/bytes.h"
#include "runtime/port/link.h"

#define CN_MESSAGE_MAX 1024 // bytes of any message here
#define CN_CHUNK_MAX 1024   // bytes of a chunk: with its headers one fits the smallest datagram

// Protocol and format versions this build speaks, oldest and newest.
#define CN_PROTOCOL_MIN 2
#define CN_PROTOCOL_MAX 3
#define CN_UPDATE_FORMAT_MIN 2
#define CN_UPDATE_FORMAT_MAX 2
#define CN_GRAPH_OPS_MIN 1
#define CN_GRAPH_OPS_MAX 3

struct cn_version_range {
    uint32_t min, max;
};

// POST reg
struct cn_register_request {
    struct cn_version_range protocol, update_format, graph_ops;
    struct cn_registration facts; // members are not sent here
};

// 2.05 to POST reg: a cn_manifest without pair keys, and the versions that were picked.
struct cn_register_reply {
    uint32_t protocol, update_format, graph_ops;
    uint32_t chunk_size; // bytes of a chunk, both ways
    uint32_t window;     // chunks in flight, at most, each way
    struct cn_manifest manifest;
};

// POST u
struct cn_declare_request {
    uint64_t run;
    uint32_t round;
    uint64_t size;
    uint8_t digest[CN_DIGEST_SIZE];
    uint8_t base[CN_DIGEST_SIZE]; // version the update is relative to
    double held_out_loss;
    uint64_t held_out_correct, held_out_count;
    double train_loss;
    struct cn_measures measures;
    struct cn_member_sign members[CN_GROUP_MAX]; // as the leader sees them
    uint32_t member_count;
};

#define CN_UPLOAD_ID_SIZE 8
#define CN_RANGE_MAX 48
#define CN_RECENT_MAX 24

struct cn_chunk_range {
    uint32_t first, count;
};

// Reply to POST u, PUT u/ID/N (when asked for), GET u/ID/N and POST u/ID/commit.
struct cn_upload_status {
    uint8_t id[CN_UPLOAD_ID_SIZE]; // first bytes of SHA-256(board | run | round | digest)
    bool decided;                  // verdict is set
    enum cn_verdict verdict;
    uint8_t accepted[CN_DIGEST_SIZE];
    uint32_t chunk_count;
    uint32_t received;                           // chunks
    struct cn_chunk_range missing[CN_RANGE_MAX]; // the first ones, in order
    uint32_t missing_count;
    char reason[120]; // of a verdict other than accepted
    uint32_t known;   // chunks that the list of missing ones covers: the rest may be there or not
    struct cn_chunk_range recent[CN_RECENT_MAX]; // that came last, in that order
    uint32_t recent_count;
};

// The graph operator set that a board needs for the job: 2 with rules or the losses after mse, 3
// where its members share the work in another way than all alike.
uint32_t cn_message_graph_ops(const struct cn_job *job);

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
// The first bytes of SHA-256(board | run | round | digest), numbers little-endian.
void cn_message_upload_id(const char *board, uint64_t run, uint32_t round,
                          const uint8_t digest[CN_DIGEST_SIZE], uint8_t id[CN_UPLOAD_ID_SIZE]);

// bytes has room for CN_MESSAGE_MAX.

// Copies a diagnostic of a peer: cut to fit, control characters replaced.
void cn_message_copy_text(char *to, size_t to_size, const uint8_t *from, size_t size);
