// rulings.h - what the gate and people decided about versions, as the ledger records it.
//
// A version with a ruling was not made of the updates of its round. Replay takes the ruling as
// given and checks the bits that follow from it. Errors are those of ledger.h. Threading: that of
// the ledger.
#pragma once

#include "aggregator/ledger/ledger.h"

enum cn_ruling_kind {
    CN_RULING_REFUSED = 1,  // by the gate: the version has its parent's weights
    CN_RULING_ROLLBACK = 2, // by a person: the version has the weights of an earlier one
};

#define CN_RULING_TEXT 200 // size of a reason, with the terminating 0
#define CN_RULING_ALARM 2  // refused versions in a row that are an alarm

struct cn_ruling {
    uint32_t version; // the version that the ruling made
    enum cn_ruling_kind kind;
    uint32_t source;       // the version whose weights it has
    double loss, accuracy; // REFUSED: what was measured; 0 where it is not finite or not known
    char reason[CN_RULING_TEXT];
};

// Reads the ruling about a version. Returns CN_ENOTFOUND when there is none.
cn_err cn_ruling_find(struct cn_ledger *ledger, uint32_t version, struct cn_ruling *ruling);
// Reads the newest ruling of a kind. Returns CN_ENOTFOUND when there is none.
cn_err cn_ruling_newest(struct cn_ledger *ledger, enum cn_ruling_kind kind,
                        struct cn_ruling *ruling);
// Reads the newest refused version that a group had a part in, or NULL for any group; 0: none.
cn_err cn_ruling_refused(struct cn_ledger *ledger, const char *group, uint32_t *version);
// Counts how many of the newest versions, one after the other, the gate refused.
cn_err cn_ruling_streak(struct cn_ledger *ledger, uint32_t *count);

// Writes a version with its ruling, marks its round merged, and ends a request for this rollback:
// all in one transaction. The round of a rollback need not have been opened. The version's files
// must be durable before.
cn_err cn_ruling_add(struct cn_ledger *ledger, const struct cn_ledger_version *version,
                     const struct cn_ruling *ruling);

// Asks the running aggregator, or the next one, to go back to a version. Returns CN_EEXIST when a
// rollback waits already.
cn_err cn_rulings_ask_rollback(struct cn_ledger *ledger, uint32_t source, const char *reason);
// Reads the rollback that waits; only source and reason are set. Returns CN_ENOTFOUND when none
// does.
cn_err cn_rulings_waiting_rollback(struct cn_ledger *ledger, struct cn_ruling *ruling);
// Gives up the rollback that waits.
cn_err cn_rulings_drop_rollback(struct cn_ledger *ledger);

// Says whether text can be a reason: 1 to CN_RULING_TEXT - 1 bytes without control characters of
// ASCII. Bytes from 0x80 on are not checked.
bool cn_ruling_reason_valid(const char *text);
