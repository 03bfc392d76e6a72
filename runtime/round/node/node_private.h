// node_private.h - the state that the files of the node share.
//
// node.c has the loop and handles the link's events. node_worker.c starts and stops the worker.
// node_registration.c handles manifests and keys. node_fault.c tells the aggregator when this board
// cannot train.
#pragma once

#include "runtime/base/log_limit.h"
#include "runtime/engine/onnx/onnx_file.h"
#include "runtime/round/epoch/worker.h"
#include "runtime/round/node/node.h"
#include "runtime/round/node/node_ahead.h"
#include "runtime/round/node/node_group.h"
#include "runtime/round/node/node_health.h"
#include "runtime/round/node/node_keys.h"
#include "runtime/round/node/node_metrics.h"
#include "runtime/round/node/node_rest.h"
#include "runtime/round/node/status_file.h"
#include "runtime/round/node/update_report.h"
#include "runtime/round/upkeep/traffic.h"
#include "runtime/round/upkeep/upkeep.h"

struct cn_node_owner {
    struct cn_node_config config;
    struct cn_link *link;
    struct cn_node_group group;

    bool registered;
    bool changed_run; // it has served another run before
    bool remembered;  // the manifest was kept from before this start
    struct cn_manifest manifest;
    struct cn_node_keys keys;
    struct cn_node_ahead ahead;
    bool discards; // the next worker begins without the stored state
    bool fetching_graph;
    struct cn_mapping model; // the ONNX file made from the graph blob
    struct cn_store *files;  // those of the manifest's run in the board's store; NULL: not open

    struct cn_upkeep care;
    struct cn_traffic_rules limits;
    struct cn_traffic traffic;

    bool working; // the worker thread runs; worker and box are valid
    struct cn_worker worker;
    struct cn_mailbox box;
    uint32_t errand;        // number of the worker's newest errand
    const uint8_t *sending; // the frame that the link sends; owned
    uint64_t solo_epoch;    // last epoch of a group of one

    bool down;    // the aggregator is away or refuses this board
    bool refused; // the aggregator refuses this board
    uint64_t down_since_ms;
    bool end_told;  // the log says that the run has ended
    bool wait_told; // the log says that the board waits for the aggregator
    // Clock; when the node asked whether there is another run after this one; 0: it did not.
    uint64_t next_asked_ms;
    bool next_answered;     // the aggregator named the same run again
    uint64_t end_doubt_ms;  // clock; when the aggregator said that the run goes on; 0: it did not
    struct cn_progress end; // of the run that has ended, when it asked
    struct cn_log_quota link_lines;    // limits log lines about the aggregator
    struct cn_log_quotas member_lines; // limits the worker's log lines about members
    uint64_t status_ms;                // when the status was written last
    struct cn_status_file status;
    struct cn_node_health health;
    struct cn_node_rest rest; // judged once a second
    uint64_t rest_ms;         // when it was judged last
    struct cn_node_metrics metrics;
    cn_err result;     // CN_EAGAIN while running
    uint64_t instance; // random number of this process

    char fault[CN_FAULT_SIZE]; // why this board cannot train; "": it can
    bool only_restart_helps;   // a new process would not have the fault
    bool stuck;                // a thread waits for good, as fault says (cn_platform_fault)
    bool gives_up;             // it cannot train the run of the manifest
    bool withdraws;            // the link still registers with a fault of another run
    // The report of cairn-update that the aggregator knows, and when it was read last.
    char report[CN_UPDATE_REPORT_SIZE];
    uint64_t report_ms;

    struct {
        struct cn_order next; // waits until another one may be carried out; seq 0: none
        uint32_t seq;         // of the newest order that was carried out; 0: none
        uint64_t ms;          // clock; when
        uint64_t test_ms;     // clock; when the last self-test began; 0: there was none
        uint32_t test_seq;    // of its order
        bool tests;           // it runs
        int64_t process;
        int output; // descriptor of the file with what it printed
    } order;

    bool disk_told;         // the aggregator knows that the disk fails
    unsigned given_up_told; // the round of which the aggregator knows that it was given up
    char hindered_told[CN_FAULT_SIZE]; // cn_progress.hindered of which the aggregator knows
    atomic_uint given_up;              // cn_session_config.given_up
    struct cn_live_facts live;         // cn_session_config.live
    atomic_int disk; // a cn_err: the last result of storing the state, set by the worker
};

// Registers the board, unless a registration is under way.
cn_err cn_node_register(struct cn_node_owner *node);

// Registers the board. Returns CN_EAGAIN when a registration is under way.
cn_err cn_node_register_now(struct cn_node_owner *node);

// Starts or stops watching the round.
cn_err cn_node_watch(struct cn_node_owner *node, bool on);

// Stops the worker, leaves the group and abandons the worker's transfers. Does nothing if no worker
// runs.
void cn_node_stop_worker(struct cn_node_owner *node);

// Starts the worker with the stored graph if that belongs to the run; else fetches the graph.
cn_err cn_node_prepare(struct cn_node_owner *node);

// Stores the graph that was fetched and starts the worker.
cn_err cn_node_take_graph(struct cn_node_owner *node, const uint8_t *graph, size_t size);

// Closes the files of the run, if they are open.
void cn_node_close_files(struct cn_node_owner *node);

// Takes the aggregator's answer to the registration. remembered: the answer was kept from before.
cn_err cn_node_take_manifest(struct cn_node_owner *node, const struct cn_manifest *manifest,
                             bool remembered);

// Begins to use new pair keys when that is due. A board that does not lead looks for them, too: the
// leader may be the member that was revoked.
cn_err cn_node_poll_keys(struct cn_node_owner *node, uint64_t now_ms);

// Returns whether the run has ended. It needs no group then: a board that comes late must not wait
// for members that have left.
bool cn_node_run_is_over(const struct cn_node_owner *node);

// Says once that the run has ended: a board that waits for the next one is silent otherwise.
void cn_node_tell_end(struct cn_node_owner *node);

// With until_end: once the run has ended, asks whether the gateway has another job for this board,
// and ends the node when it has none, has left or does not answer. Goes on when the gateway says
// that the run does.
cn_err cn_node_poll_end(struct cn_node_owner *node, uint64_t now_ms);

// Tells the aggregator when the state cannot be stored, a round was given up or the epoch's members
// cannot train together, and when that is over.
cn_err cn_node_poll_trouble(struct cn_node_owner *node);

// Returns the error that node->fault is about.
cn_err cn_node_fault_code(const struct cn_node_owner *node);

// Reports to the aggregator how this board is, if that is due and bytes are not scarce. Call it
// about once a second.
void cn_node_poll_health(struct cn_node_owner *node, uint64_t now_ms);

// Ends the worker and tells the aggregator node->fault, why this board cannot train. Blocks until
// the aggregator has answered, at most 10 s, but at least for config.fault_wait_ms, and 2 s in a
// group of several. Returns early on stop, and does not wait for fault_wait_ms when a new process
// would help. Returns true when the aggregator names another run instead: the board has begun with
// that, and err says whether it could.
bool cn_node_tell_fault(struct cn_node_owner *node, cn_err *err);

// Registers again when cairn-update reports something else than the aggregator knows.
cn_err cn_node_poll_report(struct cn_node_owner *node, uint64_t now_ms);

// Tells the log and the aggregator when the aggregator is older than this board.
cn_err cn_node_poll_ahead(struct cn_node_owner *node, uint64_t now_ms);

// Takes what an operator asks of this board, unless it was done. cn_node_poll_order does it, and
// sends what a self-test printed once that has ended; call it about once a second.
void cn_node_take_order(struct cn_node_owner *node, const struct cn_order *order);
void cn_node_poll_order(struct cn_node_owner *node, uint64_t now_ms);
