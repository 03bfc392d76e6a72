// ledger_mirror.c - gives the ledger of a job the boards of its gateway's ledger.
#include "aggregator/ledger/ledger_sql.h"

static cn_err mirror_board(void *context, const struct cn_ledger_board *board)
{
    struct cn_ledger *ledger = context;
    sqlite3_stmt *statement;
    cn_err err = cn_ledger_sql_prepare(
        ledger, &statement,
        "INSERT INTO board(name,grp,secret,max_weight,revoked) VALUES(?,?,?,?,?)"
        " ON CONFLICT(name) DO UPDATE SET grp=excluded.grp,secret=excluded.secret,"
        "max_weight=excluded.max_weight,revoked=excluded.revoked"
        " WHERE (grp,secret,max_weight,revoked)"
        " IS NOT (excluded.grp,excluded.secret,excluded.max_weight,excluded.revoked)",
        "ttbii", board->name, board->group, board->secret, (int64_t)board->max_weight,
        (int64_t)board->revoked);
    return err ? err : cn_ledger_sql_finish(ledger, statement);
}

struct walk {
    struct cn_ledger *ledger, *source;
};

static cn_err revoke_if_gone(void *context, const struct cn_ledger_board *board)
{
    const struct walk *walk = context;
    struct cn_ledger_board found;
    sqlite3_stmt *statement;
    cn_err err = board->revoked ? CN_OK : cn_ledger_find_board(walk->source, board->name, &found);
    cn_crypto_wipe(&found, sizeof(found));
    if (err != CN_ENOTFOUND)
        return err;
    err = cn_ledger_sql_prepare(walk->ledger, &statement, "UPDATE board SET revoked=1 WHERE name=?",
                                "t", board->name);
    return err ? err : cn_ledger_sql_finish(walk->ledger, statement);
}

cn_err cn_ledger_mirror_boards(struct cn_ledger *ledger, struct cn_ledger *source, bool *changed)
{
    struct walk walk = {ledger, source};
    int64_t before = sqlite3_total_changes64(ledger->db);
    *changed = false;
    cn_err err = cn_ledger_begin_write(ledger);
    if (err)
        return err;
    err = cn_ledger_boards(source, mirror_board, ledger);
    if (!err)
        err = cn_ledger_boards(ledger, revoke_if_gone, &walk);
    err = cn_ledger_end_write(ledger, err);
    *changed = !err && sqlite3_total_changes64(ledger->db) != before;
    return err;
}
