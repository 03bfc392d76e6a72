#include "aggregator/store/restore.h"

#include <limits.h>
#include <stdio.h>
#include <time.h>

#include "aggregator/store/revocations.h"
#include "runtime/base/log.h"

static void tell_unwritten(const char *path, cn_err err)
{
    cn_log(CN_LOG_WARN, "ledger",
           "%s cannot be written: %s; a copy of the state from before a revocation would let that "
           "board in",
           path, cn_err_text(err));
}

// Returns an error, which ends the run, when the list cannot be read: without it the run could let
// a revoked board in.
static cn_err apply_revocations(struct cn_ledger *ledger, const char *state)
{
    struct cn_revocations_report report;
    char path[PATH_MAX];
    cn_err err = cn_revocations_path(state, path, sizeof(path));
    if (err)
        return err;
    err = cn_revocations_apply(ledger, path, &report);
    if (report.unread)
        fprintf(stderr,
                "%s: the list of revoked keys cannot be read: %s; 'chmod 644' lets the "
                "service read it\n",
                path, cn_err_text(report.unread));
    if (report.malformed)
        cn_log(CN_LOG_WARN, "ledger", "%s: lines that are not revocations are skipped: %u", path,
               report.malformed);
    if (!err && report.unwritten)
        tell_unwritten(path, report.unwritten);
    return err;
}

cn_err cn_restore_ledger(struct cn_ledger *ledger, const char *state, bool restored)
{
    time_t now = time(NULL);
    cn_err err = apply_revocations(ledger, state);
    if (!err && restored) {
        err = cn_ledger_raise_lineage(ledger, now > 0 ? (uint64_t)now : 0);
        if (!err)
            cn_log(CN_LOG_WARN, "run",
                   "restored: lineage %u begins; changes that boards hold from the lineage before "
                   "do not count",
                   cn_ledger_identity(ledger)->lineage);
    }
    if (err)
        fprintf(stderr, "%s: %s\n", state, cn_err_text(err));
    return err;
}

void cn_restore_note_revoked(struct cn_ledger *ledger, const char *state, const char *board)
{
    struct cn_ledger_board found;
    char path[PATH_MAX];
    if (cn_ledger_find_board(ledger, board, &found))
        return; // the calling command reports it
    cn_err err = cn_revocations_path(state, path, sizeof(path));
    if (!err)
        err = cn_revocations_add(path, &found);
    cn_crypto_wipe(&found, sizeof(found));
    if (err)
        tell_unwritten(path, err);
}
