// downlink.h - how large a version's encoding may be for the groups' links: `update.down.mode:
// auto`.
//
// There is a ladder of encodings; each step down takes about half the bytes of the one above. A
// version should reach the slowest quarter of the groups in a tenth of `rounds.deadline`. Goodput
// towards them is what they say with their updates, so a choice depends on the job, on the
// contributions and on the choice before. Yet the expected sizes come from libm, so each choice is
// recorded (ledger/downlinks.h), and versions are made by the record. Threading: that of the
// ledger.
#pragma once

#include "aggregator/ledger/downlinks.h"
#include "runtime/engine/layout.h"

// Of a larger encoding, at most this share of the budget is expected to be used, and three versions
// in a row must have had the room. So links whose goodput varies do not change the rule each time.
#define CN_DOWNLINK_ROOM 0.75
#define CN_DOWNLINK_ROOMY 3

// Chooses the rule of next->version for next->link_bps bit/s, both set by the caller. A link that
// is too slow for the encoding takes as many steps down as it needs at once; up goes one step at a
// time. Without a known goodput the rule stays; the first one is q8. before is the choice for an
// earlier version, NULL for none. It is also NULL when its rule is on no step of the ladder.
void cn_downlink_next(const struct cn_layout *layout, const struct cn_job *job,
                      const struct cn_downlink *before, struct cn_downlink *next);

// Chooses and records the rule of a version that is about to be made, unless it is recorded
// already. Does nothing if the job's own rule holds. Call it when the version's contributions are
// final. Errors are those of ledger.h.
cn_err cn_downlink_decide(struct cn_ledger *ledger, const struct cn_layout *layout,
                          const struct cn_job *job, uint32_t version);

// Finds the rule of a version: the job's, or with CN_UPDATE_AUTO the recorded one. Returns
// CN_EFORMAT when the ledger lacks it, with a line in the log.
cn_err cn_downlink_rule(struct cn_ledger *ledger, const struct cn_job *job, uint32_t version,
                        struct cn_update_rule *rule);

#define CN_DOWNLINK_RULE 32
// Writes an encoding as a few words, such as "topk 5 %".
void cn_downlink_rule_text(const struct cn_update_rule *rule, char text[CN_DOWNLINK_RULE]);

#define CN_DOWNLINK_TEXT 200
// Writes a sentence for people about the newest choice, which holds since version `since`.
void cn_downlink_text(const struct cn_downlink *downlink, uint32_t since,
                      char text[CN_DOWNLINK_TEXT]);
