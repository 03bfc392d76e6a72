// A run that follows an earlier one: it has the same boards and keys, and may begin with trained
// weights.
#include <string.h>

#include "aggregator/ledger/ledger_sql.h"

cn_err cn_ledger_find_origin(struct cn_ledger *ledger, struct cn_ledger_origin *origin)
{
    sqlite3_stmt *statement;
    cn_err err =
        cn_ledger_sql_prepare(ledger, &statement, "SELECT run,version,digest FROM origin", "");
    if (err)
        return err;
    err = cn_ledger_sql_step(ledger, statement);
    if (!err) {
        origin->run = (uint64_t)sqlite3_column_int64(statement, 0);
        origin->version = (uint32_t)sqlite3_column_int64(statement, 1);
        err = cn_ledger_sql_bytes(statement, 2, origin->digest);
    }
    sqlite3_finalize(statement);
    return err;
}

cn_err cn_ledger_check_empty(struct cn_ledger *ledger)
{
    sqlite3_stmt *statement;
    cn_err err =
        cn_ledger_sql_prepare(ledger, &statement,
                              "SELECT 1 FROM board UNION ALL SELECT 1 FROM version"
                              " UNION ALL SELECT 1 FROM meta WHERE graph IS NOT NULL LIMIT 1",
                              "");
    if (err)
        return err;
    err = cn_ledger_sql_step(ledger, statement);
    sqlite3_finalize(statement);
    if (err == CN_ENOTFOUND)
        return CN_OK;
    return err ? err : CN_EEXIST;
}

static cn_err copy_board(void *context, const struct cn_ledger_board *board)
{
    struct cn_ledger *ledger = context;
    sqlite3_stmt *statement;
    cn_err err = cn_ledger_sql_prepare(
        ledger, &statement,
        "INSERT INTO board(name,grp,secret,max_weight,revoked) VALUES(?,?,?,?,?)", "ttbii",
        board->name, board->group, board->secret, (int64_t)board->max_weight,
        (int64_t)board->revoked);
    return err ? err : cn_ledger_sql_finish(ledger, statement);
}

// A board accepts a new pair key only with a larger epoch. So the key epochs continue from the
// earlier run, and so does the lineage on which they depend.
static cn_err copy_epochs(struct cn_ledger *ledger, struct cn_ledger *earlier)
{
    sqlite3_stmt *from = NULL, *to;
    bool more;
    cn_err err = cn_ledger_sql_prepare(ledger, &to, "UPDATE meta SET lineage=?", "i",
                                       (int64_t)earlier->identity.lineage);
    if (!err)
        err = cn_ledger_sql_finish(ledger, to);
    if (!err)
        err = cn_ledger_sql_prepare(earlier, &from, "SELECT grp,raised FROM key_epoch", "");
    if (err)
        return err;
    while (!(err = cn_ledger_sql_next(earlier, from, &more)) && more) {
        char group[CN_NAME_SIZE];
        err = cn_ledger_sql_name(from, 0, group);
        if (!err)
            err =
                cn_ledger_sql_prepare(ledger, &to, "INSERT INTO key_epoch(grp,raised) VALUES(?,?)",
                                      "ti", group, sqlite3_column_int64(from, 1));
        if (!err)
            err = cn_ledger_sql_finish(ledger, to);
        if (err)
            break;
    }
    sqlite3_finalize(from);
    return err;
}

static cn_err begin(struct cn_ledger *ledger, const struct cn_ledger_start *start)
{
    const struct cn_ledger_origin *origin = &start->origin;
    sqlite3_stmt *statement;
    cn_err err = cn_ledger_sql_prepare(
        ledger, &statement, "INSERT INTO origin(id,run,version,digest) VALUES(1,?,?,?)", "iib",
        (int64_t)origin->run, (int64_t)origin->version, origin->digest);
    if (!err)
        err = cn_ledger_sql_finish(ledger, statement);
    if (!err)
        err =
            cn_ledger_sql_prepare(ledger, &statement, "UPDATE meta SET graph=?", "b", start->graph);
    if (!err)
        err = cn_ledger_sql_finish(ledger, statement);
    if (!err)
        err = cn_ledger_put_setting(ledger, start->setting);
    return err ? err : cn_ledger_sql_add_version(ledger, start->version);
}

cn_err cn_ledger_follow(struct cn_ledger *ledger, struct cn_ledger *earlier,
                        const struct cn_ledger_start *start)
{
    cn_err err = cn_ledger_sql_run(ledger, "BEGIN IMMEDIATE");
    if (err)
        return err;
    err = cn_ledger_check_empty(ledger);
    if (!err)
        err = cn_ledger_boards(earlier, copy_board, ledger);
    if (!err)
        err = copy_epochs(ledger, earlier);
    if (!err && start)
        err = begin(ledger, start);
    return cn_ledger_sql_end(ledger, err);
}
