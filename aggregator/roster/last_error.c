#include "aggregator/roster/last_error.h"

#include "aggregator/ledger/ledger_sql.h"

static cn_err store(struct cn_ledger *ledger, const struct cn_last_error_note *note)
{
    sqlite3_stmt *statement;
    cn_err err = cn_ledger_sql_prepare(
        ledger, &statement,
        "INSERT INTO last_error(board,text,code,count,told_ms) VALUES(?,?,?,1," CN_LEDGER_SQL_DATE
        ") ON CONFLICT(board) DO UPDATE SET text=excluded.text,code=excluded.code,count=count+1,"
        "told_ms=excluded.told_ms",
        "tti", note->board, note->text, (int64_t)note->code);
    return err ? err : cn_ledger_sql_finish(ledger, statement);
}

cn_err cn_last_error_store(struct cn_ledger *ledger, const struct cn_last_error_note *notes,
                           size_t count)
{
    cn_err err = cn_ledger_sql_run(ledger, "BEGIN IMMEDIATE");
    if (err)
        return err;
    for (size_t i = 0; !err && i < count; i++)
        err = store(ledger, &notes[i]);
    return cn_ledger_sql_end(ledger, err);
}

cn_err cn_last_error_find(struct cn_ledger *ledger, const char *board, struct cn_last_error *error)
{
    sqlite3_stmt *statement;
    *error = (struct cn_last_error){0};
    cn_err err = cn_ledger_sql_prepare(
        ledger, &statement, "SELECT text,code,count,told_ms FROM last_error WHERE board=?", "t",
        board);
    if (err)
        return err;
    err = cn_ledger_sql_step(ledger, statement);
    if (!err) {
        const char *text = (const char *)sqlite3_column_text(statement, 0);
        cn_fault_clean(error->text, text ? text : "");
        error->code = (uint64_t)sqlite3_column_int64(statement, 1);
        error->count = (uint64_t)sqlite3_column_int64(statement, 2);
        error->date_ms = (uint64_t)sqlite3_column_int64(statement, 3);
    }
    sqlite3_finalize(statement);
    return err;
}

static cn_err visit_row(sqlite3_stmt *statement, cn_last_error_visit *visit, void *context)
{
    const char *board = (const char *)sqlite3_column_text(statement, 0);
    const char *text = (const char *)sqlite3_column_text(statement, 1);
    char cleaned[CN_FAULT_SIZE];
    if (!board || !cn_name_valid(board))
        return CN_OK;
    cn_fault_clean(cleaned, text ? text : "");
    return visit(context, board, cleaned);
}

cn_err cn_last_error_list(struct cn_ledger *ledger, cn_last_error_visit *visit, void *context)
{
    sqlite3_stmt *statement;
    cn_err err = cn_ledger_sql_prepare(ledger, &statement,
                                       "SELECT board,text FROM last_error ORDER BY board", "");
    if (err)
        return err;
    while (!err) {
        err = cn_ledger_sql_step(ledger, statement);
        if (!err)
            err = visit_row(statement, visit, context);
    }
    sqlite3_finalize(statement);
    return err == CN_ENOTFOUND ? CN_OK : err;
}
