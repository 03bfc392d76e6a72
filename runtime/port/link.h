// link.h - a board's connection to the aggregator.
//
// Requests return at once; what came of them is an event from poll. Everything is retried inside,
// with back-off and jitter, over lost packets, sessions and addresses, until an event ends it. At
// most one registration, one fetch and one upload are under way; a second of a kind is CN_EAGAIN.
//
// Threading: one thread (the owner). Nothing blocks.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "runtime/base/bytes.h"
#include "runtime/base/error.h"
#include "runtime/base/member.h"
#include "runtime/port/store.h"
#include "runtime/profile/job.h"

struct cn_link_config {
    const char *board;                        // the PSK identity
    uint8_t key[CN_KEY_SIZE];                 // of the session, derived from the board's key
    const char *addresses[CN_LINK_ADDRESSES]; // "host:port", tried in order, each resolved anew
    uint32_t address_count;
    uint64_t uplink_bps; // bits per second this board may send; 0 for no limit
    enum cn_link_transport transport;
    struct cn_store *store; // where the last registration is kept; borrowed, NULL: it is not
};

// What a board says of itself when it registers.
struct cn_registration {
    uint32_t cpu_count;
    uint64_t memory;                          // bytes for training
    uint64_t power_mw;                        // budget; 0 when the profile has none
    char board_type[CN_NAME_SIZE];            // "jetson-orin-nano-8gb"
    char members[CN_GROUP_MAX][CN_NAME_SIZE]; // of its group, as its profile says; itself included
    uint32_t member_count;
    // What it holds of the run, when that is newer than the aggregator's round; zeros: it is not.
    uint64_t ahead_lineage, ahead_version;
};

// What the aggregator answers.
struct cn_manifest {
    uint64_t run;
    uint32_t lineage;
    char group[CN_NAME_SIZE];
    uint8_t graph[CN_DIGEST_SIZE]; // of the graph blob, fetched by this digest
    uint64_t graph_size;
    struct cn_job job;
    uint8_t job_digest[CN_DIGEST_SIZE];           // of all that the job says, as it travels
    uint64_t key_epoch;                           // that the pair keys are of (transport/GROUP.md)
    uint64_t group_boards;                        // enrolled in the group; 0: not said
    uint8_t pair_keys[CN_GROUP_MAX][CN_KEY_SIZE]; // in the order of the registration's members
};

enum cn_round_state {
    CN_ROUND_OPEN,    // updates for .round are wanted
    CN_ROUND_CLOSING, // the version is being made: wait
    CN_ROUND_ENDED,   // the run is over; .version is the last one
};

// The deltas before the newest one, for a board that missed versions: entry i makes version
// .version - 1 - i from its parent. Size 0: there is none, nor any further.
struct cn_delta_chain {
    uint8_t digests[CN_CHAIN_MAX][CN_DIGEST_SIZE];
    uint32_t sizes[CN_CHAIN_MAX];
};

// A version as a q8 snapshot, which is exactly that version.
struct cn_snapshot {
    uint32_t number; // 0: there is none
    uint64_t size;
    uint8_t digest[CN_DIGEST_SIZE]; // of the frame
};

// The round as this board's group sees it. Fits one datagram.
struct cn_round_info {
    uint64_t run;
    uint32_t lineage;
    enum cn_round_state state;
    uint32_t round;
    uint64_t remaining_ms; // to the deadline
    bool invited;          // false: this group was not selected, wait for the next round
    uint32_t version;      // what to train from; 0 is the initial model
    uint8_t version_digest[CN_DIGEST_SIZE];
    uint64_t version_size;                // bytes of the full version, fetched by version_digest
    uint8_t parent[CN_DIGEST_SIZE];       // of the version
    uint8_t delta_digest[CN_DIGEST_SIZE]; // the frame that makes the version from its parent
    uint64_t delta_size;                  // 0: there is none, fetch the full version
    struct cn_delta_chain chain;          // only when the group seems to be behind
    struct cn_snapshot snapshot;          // the same
    uint64_t key_epoch;                   // the newest of the group's pair keys
    uint64_t group_boards;                // enrolled in the group; 0: not said
    // The newest update of this group that was decided on.
    uint32_t decided_round; // 0: none yet
    bool decided_accepted;
    uint8_t decided_digest[CN_DIGEST_SIZE]; // SHA-256 of the accepted frame; zeros when none was
};

// The run of an upload that only measures the link: it is taken, refused and dropped.
#define CN_RUN_MEASUREMENT 0

// More of a held-out measurement, means over its samples. 0: not measured, or not a measure of the
// loss.
struct cn_measures {
    double top5, f1; // cross-entropy: shares
    double mae;      // mean absolute error, of losses that compare values
    double perplexity;
};

// What the leader of a group knows of a member.
struct cn_member_sign {
    uint32_t id;        // cn_name_hash of its name
    uint32_t missing_s; // seconds since its last sign of life; 0: it takes part in the round
};

struct cn_link_upload {
    uint64_t run;
    uint32_t round;
    const uint8_t *frame; // borrowed until the receipt
    size_t size;
    uint8_t digest[CN_DIGEST_SIZE]; // of the frame
    uint8_t base[CN_DIGEST_SIZE];   // of the version it is relative to
    // Held-out measurement of the version it is based on, summed over the group.
    double held_out_loss;
    uint64_t held_out_correct, held_out_count;
    struct cn_measures measures;
    double train_loss; // mean over the round's samples
    // All members of the group, this board included; count 0: it has no others.
    struct cn_member_sign members[CN_GROUP_MAX];
    uint32_t member_count;
    bool fresh; // it was made just now: nobody can have sent any of it before
};

#define CN_VERDICT_REASON 160

enum cn_verdict {
    CN_VERDICT_ACCEPTED, // it is in the ledger; the residual counts
    CN_VERDICT_REJECTED, // not counted and never will be; .reason says why
    CN_VERDICT_LATE,     // the round is over without it
};

enum cn_link_event_type {
    CN_LINK_REGISTERED, // .manifest, .remembered
    CN_LINK_REFUSED,    // .text: unknown or revoked key, versions that do not fit; retried slowly
    CN_LINK_DOWN,       // .text: nobody answers; retried. Told once for each outage
    CN_LINK_UP,         // after DOWN
    CN_LINK_ROUND,      // .round: the descriptor, when it changed and after each registration
    CN_LINK_FETCHED,    // .data, .size: checked against the digest
    CN_LINK_GONE,       // the blob asked for is not there (any more)
    CN_LINK_RECEIPT,    // .verdict, .accepted, .text
};

struct cn_link_event {
    enum cn_link_event_type type;
    const struct cn_manifest *manifest; // pointers are valid until the next poll
    bool remembered; // it is the last one of before: the aggregator did not answer so far. Told at
                     // most once, before any other, and the registration goes on
    const struct cn_round_info *round;
    const uint8_t *data;
    size_t size;
    enum cn_verdict verdict;
    uint8_t
        accepted[CN_DIGEST_SIZE]; // digest of what counts for (run, round, group); zeros for none
    char text[CN_VERDICT_REASON];
};

// The bytes that went one way, counted in three ways.
struct cn_link_bytes {
    uint64_t payload;  // bodies of messages alone: parts of updates and models, small messages
    uint64_t messages; // CoAP messages: header, options, body
    // Packets: DTLS or TLS, UDP or TCP, and IP around the messages. Exact over UDP apart from
    // handshakes; over TCP without acknowledgements and what the kernel sends again.
    uint64_t wire;
};

struct cn_link_stats {
    struct cn_link_bytes up, down;
    bool stream; // it goes over TCP and TLS now, not UDP and DTLS
};

// What the link could carry so far, as moving averages; 0 where nothing was measured. It is what
// the choice of the next update's size follows from (runtime/update/rate.h).
struct cn_link_path_stats {
    double up_bps;           // goodput: bits of payload that arrived in a second
    double up_deviation_bps; // mean deviation of its samples
    double down_bps;
    uint64_t rtt_us;
    double loss; // share of the transmissions that did not arrive, 0 to 1
    uint64_t
        update_max; // bytes of an update by the limits of the profile, set by the node; 0: none
};

struct cn_link; // a port embeds it as its first member

struct cn_link_ops {
    cn_err (*open)(const struct cn_link_config *config, struct cn_link **link);
    void (*close)(struct cn_link *link);

    // Becomes readable when poll has work; call poll at least every 100 ms as well.
    int (*descriptor)(const struct cn_link *link);

    // Does what is due. CN_OK with one event, CN_EAGAIN when there is none.
    cn_err (*poll)(struct cn_link *link, struct cn_link_event *event);

    // May be called again at any time, for example to get new pair keys.
    cn_err (*enlist)(struct cn_link *link, const struct cn_registration *registration);

    // While on, ROUND events come (observed, and polled as a fallback). Off at first.
    cn_err (*watch)(struct cn_link *link, bool on);

    // CN_ERANGE when size is above limit. The result is FETCHED or GONE.
    cn_err (*fetch)(struct cn_link *link, const uint8_t digest[CN_DIGEST_SIZE], uint64_t size,
                    uint64_t limit);

    // The result is RECEIPT. Sending the same frame again, after any crash on any side, is
    // harmless.
    cn_err (*upload)(struct cn_link *link, const struct cn_link_upload *upload);

    // Ends a fetch and an upload under way without an event.
    void (*abandon)(struct cn_link *link);

    void (*stats)(const struct cn_link *link, struct cn_link_stats *stats);

    void (*measure)(const struct cn_link *link, struct cn_link_path_stats *measure);
};

struct cn_link {
    const struct cn_link_ops *ops;
};
