// link.h - a board's connection to the aggregator.
//
// Requests return at once; poll reports their outcome as an event. The link retries a request, with
// back-off and jitter, over lost packets, sessions and addresses, until an event ends it. At most
// one registration, one fetch and one upload are under way. A second of a kind returns CN_EAGAIN.
//
// Threading: one thread (the owner). Nothing blocks.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "runtime/base/bytes.h"
#include "runtime/base/error.h"
#include "runtime/base/member.h"
#include "runtime/port/health.h"
#include "runtime/port/order.h"
#include "runtime/port/store.h"
#include "runtime/profile/job.h"

struct cn_link_config {
    const char *board;                        // name of the board: the PSK identity
    uint8_t key[CN_KEY_SIZE];                 // key of the session, derived from the board's key
    const char *addresses[CN_LINK_ADDRESSES]; // "host:port", tried in order; resolved at each try
    uint32_t address_count;
    uint64_t uplink_bps; // bits per second this board may send; 0 for no limit
    enum cn_link_transport transport;
    struct cn_store *store; // keeps the last registration; borrowed; NULL: it is not kept
};

#define CN_FAULT_SIZE 240 // bytes of the text why a board cannot train, with its terminating 0

// Bytes of an inventory's texts, with the terminating 0.
#define CN_BUILD_TEXT_SIZE 48
#define CN_SYSTEM_TEXT_SIZE 64
#define CN_GPU_NONE 1         // of cn_registration.gpu: the processor trains
#define CN_DATA_SETS_SIZE 192 // bytes of the names of data sets, with the terminating 0

// What a board is and runs, for an inventory. Only shown: no decision depends on it. "" and 0 mean
// "not told".
struct cn_inventory {
    char build[CN_BUILD_TEXT_SIZE];   // version of its cairn-node
    char system[CN_SYSTEM_TEXT_SIZE]; // "JetPack 6.2 (L4T 36.4.3)", "Debian GNU/Linux 12"
    uint64_t disk_size, disk_free;    // bytes of the disk with its state, at registration
    // For a board with two systems: the slot that runs ("A" or "B") and the version in it.
    char slot[8], slot_version[CN_SYSTEM_TEXT_SIZE];
    // State of the last update of the system ("good", "trying", "rolled-back", ...), its version.
    char update[16], update_version[CN_SYSTEM_TEXT_SIZE];
};

// A board's description of itself when it registers.
struct cn_registration {
    uint32_t cpu_count;
    uint64_t memory;                          // bytes available for training
    uint64_t power_mw;                        // power budget; 0 when the profile has none
    uint64_t gpu;                             // CUDA compute capability of the GPU that trains,
                                              // times 10, such as 87; or CN_GPU_NONE; 0: not told
    char board_type[CN_NAME_SIZE];            // for example "jetson-orin-nano-8gb"
    char members[CN_GROUP_MAX][CN_NAME_SIZE]; // the group's members by its profile, with itself
    uint32_t member_count;
    // The version that the board holds, if it is newer than the aggregator's round; else zeros.
    uint64_t ahead_lineage, ahead_version;
    char fault[CN_FAULT_SIZE]; // why the board cannot train; "": it can, as far as it knows
    uint64_t fault_code;       // number of a cn_err, without its sign; 0: not known
    uint64_t fault_run;        // run that it gives up because of that; 0: it trains on
    uint64_t instance;         // random number of this process; 0: it tells none
    struct cn_inventory inventory;
    // Names of the data sets in its profile, separated by spaces; "": not told.
    char data_sets[CN_DATA_SETS_SIZE];
};

// The tensors that never change in a run, by their digest (cn_local_tensors_digest); zeros: none.
struct cn_base_name {
    uint8_t digest[CN_DIGEST_SIZE];
};

// The aggregator's answer to a registration.
struct cn_manifest {
    uint64_t run;
    uint32_t lineage;
    char group[CN_NAME_SIZE];
    uint8_t graph[CN_DIGEST_SIZE]; // digest of the graph blob, by which it is fetched
    uint64_t graph_size;           // bytes of the graph blob
    struct cn_base_name base;
    struct cn_job job;
    uint8_t job_digest[CN_DIGEST_SIZE];           // digest of the encoded job
    uint64_t key_epoch;                           // epoch of pair_keys (transport/GROUP.md)
    uint64_t group_boards;                        // boards enrolled in the group; 0: unknown
    uint8_t pair_keys[CN_GROUP_MAX][CN_KEY_SIZE]; // one per member, in the registration's order
};

enum cn_round_state {
    CN_ROUND_OPEN,    // the aggregator takes updates for .round
    CN_ROUND_CLOSING, // the aggregator is making the version: wait
    CN_ROUND_ENDED,   // the run is over; .version is the last one
};

// The deltas before the newest one, for a board that missed versions: entry i makes version
// .version - 1 - i from its parent. An entry of size 0 ends the chain.
struct cn_delta_chain {
    uint8_t digests[CN_CHAIN_MAX][CN_DIGEST_SIZE];
    uint32_t sizes[CN_CHAIN_MAX];
};

// A q8 snapshot that decodes to exactly one version.
struct cn_snapshot {
    uint32_t number;                // number of the version; 0: there is no snapshot
    uint64_t size;                  // bytes of the frame
    uint8_t digest[CN_DIGEST_SIZE]; // digest of the frame
};

// The control variates of a round (runtime/update/variate.h).
struct cn_round_control {
    uint32_t epoch;                 // round in which their epoch began; 0: the job has no variates
    uint64_t size;                  // bytes of the frame with the server's variate; 0: all zero
    uint8_t digest[CN_DIGEST_SIZE]; // digest of the frame
};

// The round as this board's group sees it. Fits one datagram.
struct cn_round_info {
    uint64_t run;
    uint32_t lineage;
    enum cn_round_state state;
    uint32_t round;
    uint64_t remaining_ms; // time to the deadline
    bool invited;          // false: this group was not selected, wait for the next round
    uint32_t version;      // version to train from; 0 is the initial model
    uint8_t version_digest[CN_DIGEST_SIZE];
    uint64_t version_size;                // bytes of the full version, fetched by version_digest
    uint8_t parent[CN_DIGEST_SIZE];       // digest of the version's parent
    uint8_t delta_digest[CN_DIGEST_SIZE]; // the frame that makes the version from its parent
    uint64_t delta_size;                  // bytes of that frame; 0: fetch the full version
    struct cn_delta_chain chain;          // only set when the group seems to be behind
    struct cn_snapshot snapshot;          // only set when the group seems to be behind
    uint64_t key_epoch;                   // newest epoch of the group's pair keys
    uint64_t group_boards;                // boards enrolled in the group; 0: unknown
    // Newest version that was made by going back to an earlier one, or in place of a refused one
    // that the group had a part in; 0: none. What a group keeps of rounds before that version
    // belongs to versions that were given up.
    uint64_t forget;
    // Oldest round whose updates still count; 0: only those of .round do. Above 0 the run is
    // asynchronous: a group that trains for an earlier round continues.
    uint64_t oldest;
    struct cn_round_control control; // for training from .version
    struct cn_order order;           // what an operator asks of this board
    // Round of this group's newest update with a verdict; 0: none yet.
    uint32_t decided_round;
    bool decided_accepted;                  // whether an update of decided_round was accepted
    uint8_t decided_digest[CN_DIGEST_SIZE]; // digest of the accepted frame; zeros: none
};

// The run number of an upload that only measures the link. The aggregator receives the upload,
// refuses it and drops it.
#define CN_RUN_MEASUREMENT 0

// Further results of a held-out measurement. 0: not measured, or not defined for the loss.
struct cn_measures {
    double top5, f1;   // shares, 0 to 1; cross-entropy only
    double mae;        // mean absolute error; losses that compare values only
    double perplexity; // exp of the mean loss; cross-entropy with several labels per sample only
};

struct cn_link_upload {
    uint64_t run;
    uint32_t round;
    const uint8_t *frame; // borrowed until the receipt
    size_t size;
    uint8_t digest[CN_DIGEST_SIZE]; // digest of the frame
    uint8_t base[CN_DIGEST_SIZE];   // digest of the version that the update is relative to
    // Held-out measurement of that version: loss and counts are sums over the samples of the group.
    double held_out_loss;
    uint64_t held_out_correct, held_out_count;
    struct cn_measures measures;
    double train_loss;                     // mean over the round's samples
    uint64_t steps;                        // steps that the group did in the round
    uint64_t control_epoch, control_count; // as in cn_declare_request
    uint64_t down_bps;                     // goodput towards the board; 0: not known
    // All members of the group, this board included. member_count 0: the group has no others.
    struct cn_member_sign members[CN_GROUP_MAX];
    uint32_t member_count;
    bool fresh; // the frame is new: no part of it can have been sent before
};

#define CN_VERDICT_REASON 160 // bytes of the text of an event, with its terminating 0

enum cn_verdict {
    CN_VERDICT_ACCEPTED, // the update is in the ledger: the new residual is valid
    CN_VERDICT_REJECTED, // the update will never be counted; .text says why
    CN_VERDICT_LATE,     // the round has ended without the update
};

enum cn_link_event_type {
    CN_LINK_REGISTERED, // .manifest, .remembered
    CN_LINK_REFUSED,    // .text: unknown or revoked key, or versions that differ; retried slowly
    CN_LINK_DOWN,       // .text: no answer; retried. One event for each outage
    CN_LINK_UP,         // the aggregator answers again after DOWN
    CN_LINK_ROUND,      // .round: the round changed, or the board has registered
    CN_LINK_ROUND_TIME, // .round: only its .remaining_ms is other than was to be expected
    CN_LINK_FETCHED,    // .data, .size: checked against the digest
    CN_LINK_GONE,       // the requested blob does not exist, or no longer
    CN_LINK_ORDER,      // .order
    CN_LINK_RECEIPT,    // .verdict, .accepted, .text
};

// Only the fields that the type names above are set. Pointers are valid until the next poll.
struct cn_link_event {
    enum cn_link_event_type type;
    const struct cn_manifest *manifest;
    // The manifest is stored from an earlier registration, because the aggregator has not answered
    // yet. Only the first REGISTERED event can have this set; the registration continues.
    bool remembered;
    const struct cn_round_info *round;
    struct cn_order order; // also in .round
    const uint8_t *data;
    size_t size;
    enum cn_verdict verdict;
    // Digest of the update that counts for (run, round, group); zeros for none.
    uint8_t accepted[CN_DIGEST_SIZE];
    char text[CN_VERDICT_REASON];
};

// Bytes in one direction, counted at three levels.
struct cn_link_bytes {
    uint64_t payload;  // bodies of messages alone: parts of updates and models, small messages
    uint64_t messages; // CoAP messages: header, options, body
    // Packets: the messages with DTLS or TLS, UDP or TCP, and IP. Exact over UDP except for
    // handshakes. Over TCP, acknowledgements and the kernel's retransmissions are not counted.
    uint64_t wire;
};

struct cn_link_stats {
    struct cn_link_bytes up, down;
    bool stream; // the link uses TCP and TLS now, not UDP and DTLS
};

// Quality of the link so far, as moving averages; 0 where nothing was measured. The size of the
// next update is chosen by these figures (runtime/update/rate.h).
struct cn_link_path_stats {
    double up_bps;           // goodput: bits of payload that arrived per second
    double up_deviation_bps; // mean deviation of the samples of up_bps
    double down_bps;         // goodput towards the board
    uint64_t rtt_us;
    double loss;         // share of the transmissions that did not arrive, 0 to 1
    uint64_t update_max; // bytes of the largest update by the profile, set by the node; 0: no limit
};

struct cn_link; // a port embeds it as its first member

struct cn_link_ops {
    cn_err (*open)(const struct cn_link_config *config, struct cn_link **link);
    void (*close)(struct cn_link *link);

    // Returns a descriptor that is readable when poll has work. Call poll at least every 100 ms
    // in any case. The link owns the descriptor.
    int (*descriptor)(const struct cn_link *link);

    // Sends and receives what is due. Returns CN_OK with one event, CN_EAGAIN when there is none.
    cn_err (*poll)(struct cn_link *link, struct cn_link_event *event);

    // Registers the board. The result is REGISTERED or REFUSED. May be called again at any time,
    // for example to get new pair keys. A registration with a fault takes the place of one that is
    // under way.
    cn_err (*register_board)(struct cn_link *link, const struct cn_registration *registration);

    // Turns ROUND events on or off; they are off at first. The aggregator reports changes of the
    // round; as a fallback, the link also asks for the round from time to time.
    cn_err (*watch)(struct cn_link *link, bool on);

    // Fetches the blob of this digest and size. Returns CN_ERANGE when size is above limit. The
    // result is FETCHED or GONE.
    cn_err (*fetch)(struct cn_link *link, const uint8_t digest[CN_DIGEST_SIZE], uint64_t size,
                    uint64_t limit);

    // Sends an update. The result is RECEIPT. Sending the same frame again, after any crash on any
    // side, is harmless.
    cn_err (*upload)(struct cn_link *link, const struct cn_link_upload *upload);

    // Reports the state of the board. The report is sent at once and once, or dropped while the
    // board is not registered. There is no event. When the aggregator does not know this message,
    // no more are sent in the session.
    void (*tell)(struct cn_link *link, const struct cn_health *health);

    // Answers order number seq with size bytes of text. refused: the board does not obey, and text
    // says why. Copies at most CN_ORDER_ANSWER_MAX bytes. There is no event.
    void (*answer)(struct cn_link *link, uint32_t seq, bool refused, const void *text, size_t size);

    // Ends the fetch and the upload that are under way, without an event.
    void (*abandon)(struct cn_link *link);

    // Gets the bytes sent and received so far.
    void (*stats)(const struct cn_link *link, struct cn_link_stats *stats);

    // Gets the moving averages of the link's quality.
    void (*measure)(const struct cn_link *link, struct cn_link_path_stats *measure);
};

struct cn_link {
    const struct cn_link_ops *ops;
};
