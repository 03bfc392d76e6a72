// node_link.h - opens the link to the aggregator by a board's profile, and registers the board.
#pragma once

#include "runtime/port/link.h"
#include "runtime/profile/profile.h"
#include "runtime/round/node/node_ahead.h"

// Opens the link. store keeps the last registration; NULL: it is not kept. settings and store are
// borrowed while the link is open.
cn_err cn_node_link_open(const struct cn_link_ops *ops, const struct cn_settings *settings,
                         const uint8_t key[CN_KEY_SIZE], struct cn_store *store,
                         struct cn_link **link);

// Facts that a node in a run adds to its registration.
struct cn_node_facts {
    const struct cn_node_ahead *ahead; // the board's version if the aggregator is older, or NULL
    const char *fault;                 // why the board cannot train; "": it can
    uint64_t fault_code;               // number of a cn_err, without its sign; 0: not known
    uint64_t fault_run;                // run that it gives up because of that; 0: it trains on
    uint64_t instance;                 // random number of this process
    uint64_t gpu;                      // as in cn_registration
    const struct cn_inventory *inventory;
};

// Registers the board. facts is NULL if the program is not a node in a run. Returns CN_EAGAIN when
// a registration is under way.
cn_err cn_node_link_register(struct cn_link *link, const struct cn_settings *settings,
                             const struct cn_node_facts *facts);
