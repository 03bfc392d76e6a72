// staleness.h - the ledger's account of an asynchronous run: what groups train, and who is late.
//
// A group trains for the round after its base, whatever round is open. In an asynchronous run a
// group is invited to no round: the ledger's table selection gets a row when an update is accepted
// or when it has become too late. So each row has an outcome, as in a synchronous run. The table
// training has the round that a group trains for, as far as the versions it fetched tell. No
// version depends on it. Errors are those of ledger.h. Threading: that of the ledger.
#pragma once

#include "aggregator/ledger/ledger.h"

// People are told of a group after this number of updates in a row that were too late.
#define CN_STALENESS_NAMED 3

// What a group of an asynchronous run is doing.
struct cn_staleness {
    uint32_t training;  // round that it trains for; 0: unknown
    uint32_t delivered; // version that its newest accepted update went into; 0: none
    uint32_t behind;    // versions by which the base of its newest accepted update was too old
    uint32_t late;      // updates that were too late after its newest accepted one
};

// A group, and the round for which it trains.
struct cn_staleness_begun {
    const char *group;
    uint32_t round;
};
// Records that groups train for these rounds now, in one transaction. A round changes nothing if it
// is not newer than the recorded one, or if the group has delivered its update already.
cn_err cn_staleness_begin(struct cn_ledger *ledger, const struct cn_staleness_begun *begun,
                          size_t count);

// Records the updates of the groups that train for a round before oldest as too late.
cn_err cn_staleness_expire(struct cn_ledger *ledger, uint32_t oldest);

// Visits the groups with the round that each trains for, in the order of names. An error of visit
// ends the walk and is returned.
cn_err cn_staleness_walk(struct cn_ledger *ledger, cn_ledger_round_visit *visit, void *context);

// Reads what a group is doing. A group that the ledger does not know has zeros.
cn_err cn_staleness_read(struct cn_ledger *ledger, const char *group,
                         struct cn_staleness *staleness);

// Writes what a person should do about a group with several late updates in a row.
#define CN_STALENESS_TEXT 160
void cn_staleness_text(const struct cn_staleness *staleness, char text[CN_STALENESS_TEXT]);

// Sets most to the largest staleness among the updates of a version, and mean to their mean
// staleness (stale.h). Both are 0 in a synchronous run.
cn_err cn_staleness_of_version(struct cn_ledger *ledger, uint32_t version, uint32_t *most,
                               double *mean);

// Returns whether the update of a group is kept. Those of the newest keep_rounds versions are, and
// with 0 all are. The version that is made of an update may be later than that of its round.
// Returns true also when the ledger cannot be read.
bool cn_staleness_keeps(struct cn_ledger *ledger, uint32_t round, const char *group,
                        uint64_t keep_rounds, uint32_t newest);
