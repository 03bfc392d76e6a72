// steering.h - what people asked of the run while it goes on, as the ledger records it.
//
// No version depends on it, so replay does not read it. An older program ignores its tables: there
// a paused run goes on. Calls that write begin no transaction, and may stand between
// cn_ledger_begin_write and cn_ledger_end_write. cn_steering_pause and cn_steering_keep_answer are
// two statements and must stand there. Errors are those of ledger.h. Threading: that of the ledger.
#pragma once

#include "aggregator/ledger/ledger.h"

enum cn_run_pause {
    CN_RUN_PAUSE_NONE,
    CN_RUN_PAUSE_ROUNDS, // no round is opened; the open one is finished
    CN_RUN_PAUSE_NOW,    // the open round is not closed, either
};

struct cn_steering {
    enum cn_run_pause pause;
    uint64_t paused_ms; // milliseconds since 1970; when this kind of pause began; 0: no pause
    bool leaving;       // the program ends once no round is open
};

cn_err cn_steering_load(struct cn_ledger *ledger, struct cn_steering *steering);
// Begins, changes or ends a pause.
cn_err cn_steering_pause(struct cn_ledger *ledger, enum cn_run_pause pause);
cn_err cn_steering_leave(struct cn_ledger *ledger, bool leaving);

// Keeps a group out of the rounds that follow, or with drained false lets it take part again.
cn_err cn_steering_drain(struct cn_ledger *ledger, const char *group, bool drained);
cn_err cn_steering_is_drained(struct cn_ledger *ledger, const char *group, bool *drained);
// Visits the drained groups in the order of names. An error of visit ends the walk and is returned.
typedef cn_err cn_steering_visit(void *context, const char *group);
cn_err cn_steering_drained(struct cn_ledger *ledger, cn_steering_visit *visit, void *context);
// Counts the drained groups that have a board that is not revoked.
cn_err cn_steering_count_drained(struct cn_ledger *ledger, uint32_t *count);

// What people did to a round.
struct cn_steered_round {
    uint64_t extended_ms; // sum of the extensions of its deadline
    uint32_t closed_with; // updates that it had when people closed it below its quorum; 0: not so
};

// Reads what was done to a round; zeros when nothing was.
cn_err cn_steering_of_round(struct cn_ledger *ledger, uint32_t round,
                            struct cn_steered_round *steered);
// Adds to the extensions of a round's deadline.
cn_err cn_steering_extend_round(struct cn_ledger *ledger, uint32_t round, uint64_t extend_ms);
// Notes that the round is closed with this number of updates. The caller closes it, in the same
// transaction.
cn_err cn_steering_close_round(struct cn_ledger *ledger, uint32_t round, uint32_t accepted);

// --- commands that were carried out ---

#define CN_STEERING_ID_SIZE 65        // of a command, with the terminating 0
#define CN_STEERING_ANSWER_SIZE 4096  // of its answer, with the terminating 0
#define CN_STEERING_REMEMBER_S 600    // how long an answer is kept
#define CN_STEERING_REMEMBER_MOST 256 // answers that are kept

// Finds the answer to a command that was carried out. Returns CN_ENOTFOUND when the id is not
// known, CN_ECONFLICT when it was the id of a command with another digest.
cn_err cn_steering_find_answer(struct cn_ledger *ledger, const char *id,
                               const uint8_t digest[CN_DIGEST_SIZE],
                               char answer[CN_STEERING_ANSWER_SIZE]);
// Remembers an answer, and forgets answers that are too old or too many. Call it in the transaction
// of the command: then a command that is sent again after a crash is not carried out twice.
cn_err cn_steering_keep_answer(struct cn_ledger *ledger, const char *id,
                               const uint8_t digest[CN_DIGEST_SIZE], const char *answer);
