// last_error.h - the last error of each board, in the ledger: what a board said before the
// aggregator was started again, or before the board fell silent.
//
// The texts come from boards and were cleaned (fault.h). Errors are those of ledger.h. Threading:
// that of the ledger.
#pragma once

#include "aggregator/ledger/ledger.h"
#include "aggregator/roster/fault.h"

struct cn_last_error {
    char text[CN_FAULT_SIZE];
    uint64_t code;  // -cn_err as the board said; 0: not known
    uint64_t count; // errors of this board that were stored; cn_roster_store_errors leaves some out
    uint64_t date_ms; // when the newest was stored: milliseconds since 1970
};

// One error to store.
struct cn_last_error_note {
    const char *board, *text; // borrowed
    uint64_t code;
};

// Stores the errors of count boards with the present date, all or none.
cn_err cn_last_error_store(struct cn_ledger *ledger, const struct cn_last_error_note *notes,
                           size_t count);

typedef cn_err cn_last_error_visit(void *context, const char *board, const char *text);
// Visits the boards that told an error, in the order of their names. An error of visit ends the
// walk and is returned.
cn_err cn_last_error_list(struct cn_ledger *ledger, cn_last_error_visit *visit, void *context);

// Reads the last error of a board. Returns CN_ENOTFOUND when it never told one.
cn_err cn_last_error_find(struct cn_ledger *ledger, const char *board, struct cn_last_error *error);
