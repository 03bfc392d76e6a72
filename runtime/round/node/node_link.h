// node_link.h - the link to the aggregator as a board's profile wants it.
#pragma once

#include "runtime/port/link.h"
#include "runtime/profile/profile.h"
#include "runtime/round/node/node_ahead.h"

// store: where the last registration is kept; NULL: it is not. settings and store are borrowed for
// as long as the link is open.
cn_err cn_node_link_open(const struct cn_link_ops *ops, const struct cn_settings *settings,
                         const uint8_t key[CN_KEY_SIZE], struct cn_store *store,
                         struct cn_link **link);

// What a node in a run tells of itself beside its settings.
struct cn_node_facts {
    const struct cn_node_ahead
        *ahead;        // what it holds when the aggregator is older; NULL: it is not
    const char *fault; // why it cannot train; "": it can
    uint64_t instance; // of this process
};

// Registers. facts: NULL where the program is no node in a run. CN_EAGAIN when a registration is
// under way already.
cn_err cn_node_link_enlist(struct cn_link *link, const struct cn_settings *settings,
                           const struct cn_node_facts *facts);
