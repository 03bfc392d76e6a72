// node_private.h - what the files of the node share: node.c has the loop and the link's events,
// node_worker.c the worker and what it needs, node_registration.c manifests and keys, node_fault.c
// what the aggregator hears when this board cannot train.
#pragma once

#include "runtime/base/log_limit.h"
#include "runtime/round/epoch/worker.h"
#include "runtime/round/node/node.h"
#include "runtime/round/node/node_ahead.h"
#include "runtime/round/node/node_group.h"
#include "runtime/round/node/node_keys.h"
#include "runtime/round/node/status_file.h"
#include "runtime/round/upkeep/traffic.h"
#include "runtime/round/upkeep/upkeep.h"

struct cn_node_owner {
    struct cn_node_config config;
    struct cn_link *link;
    struct cn_node_group group;

    bool registered;
    bool remembered; // by what the aggregator said before this start
    struct cn_manifest manifest;
    struct cn_node_keys keys;
    struct cn_node_ahead ahead;
    bool fetching_graph;
    struct cn_mapping model; // the ONNX file made from the graph blob

    struct cn_upkeep care;
    struct cn_traffic_rules limits;
    struct cn_traffic traffic;

    bool working; // the worker thread runs
    struct cn_worker worker;
    struct cn_mailbox box;
    uint32_t errand;        // number of the newest one of the worker
    const uint8_t *sending; // the frame the link sends; owned
    uint64_t solo_epoch;    // of a group of one

    bool down; // the aggregator is away, or refuses this board
    bool refused;
    uint64_t down_since_ms;
    struct cn_log_quota link_lines;    // about what the aggregator does
    struct cn_log_quotas member_lines; // the worker's, about connections with members
    uint64_t status_ms;
    struct cn_status_file status;
    cn_err result;     // CN_EAGAIN while running
    uint64_t instance; // random number of this process

    char fault[CN_FAULT_SIZE]; // why this board cannot train; "": it can
    bool only_restart_helps;   // the fault is one that a new process does not have
    bool disk_told;            // the fault is that of a disk
    atomic_int disk;           // a cn_err: how storing the state went last, set by the worker
};

// Registers, unless that is under way already.
cn_err cn_node_enlist(struct cn_node_owner *node);

// The same, but CN_EAGAIN when one is under way.
cn_err cn_node_enlist_now(struct cn_node_owner *node);

// Whether the round is watched.
cn_err cn_node_watch(struct cn_node_owner *node, bool on);

void cn_node_stop_worker(struct cn_node_owner *node);

// Uses the stored graph if it is the one of the run and starts the worker, else fetches it.
cn_err cn_node_prepare(struct cn_node_owner *node);
cn_err cn_node_take_graph(struct cn_node_owner *node, const uint8_t *graph, size_t size);

// What the aggregator answered to the registration, or once answered.
cn_err cn_node_take_manifest(struct cn_node_owner *node, const struct cn_manifest *manifest,
                             bool remembered);

// Goes over to new pair keys when that is due. A board that does not lead hears of them, too: the
// leader may be the one that was revoked.
cn_err cn_node_poll_keys(struct cn_node_owner *node, uint64_t now_ms);

// Tells the aggregator when the state cannot be stored, and when it can again.
cn_err cn_node_poll_disk(struct cn_node_owner *node);

// Tells the aggregator why this board cannot train and returns when that has answered, or not in
// 10 s; with fault_wait_ms in the configuration not earlier than that after the call. Ends the
// worker. Returns early on stop.
void cn_node_tell_fault(struct cn_node_owner *node, cn_err why);

// Says so in log and to the aggregator when that is older than this board.
cn_err cn_node_poll_ahead(struct cn_node_owner *node, uint64_t now_ms);
