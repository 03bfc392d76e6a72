#include "aggregator/ledger/rulings.h"

#include <stdio.h>
#include <string.h>

#include "aggregator/ledger/ledger_sql.h"

#define COLUMNS "version,kind,source,loss,accuracy,reason"

// Takes a statement that returns a row of COLUMNS, and finalises it.
static cn_err read_ruling(struct cn_ledger *ledger, sqlite3_stmt *statement,
                          struct cn_ruling *ruling)
{
    cn_err err = cn_ledger_sql_step(ledger, statement);
    *ruling = (struct cn_ruling){0};
    if (!err) {
        const char *reason = (const char *)sqlite3_column_text(statement, 5);
        int kind = sqlite3_column_int(statement, 1);
        ruling->version = (uint32_t)sqlite3_column_int64(statement, 0);
        ruling->kind = (enum cn_ruling_kind)kind;
        ruling->source = (uint32_t)sqlite3_column_int64(statement, 2);
        ruling->loss = sqlite3_column_double(statement, 3);
        ruling->accuracy = sqlite3_column_double(statement, 4);
        snprintf(ruling->reason, sizeof(ruling->reason), "%s", reason ? reason : "");
        if (kind != CN_RULING_REFUSED && kind != CN_RULING_ROLLBACK)
            err = CN_EFORMAT;
    }
    sqlite3_finalize(statement);
    return err;
}

cn_err cn_ruling_find(struct cn_ledger *ledger, uint32_t version, struct cn_ruling *ruling)
{
    sqlite3_stmt *statement;
    cn_err err =
        cn_ledger_sql_prepare(ledger, &statement, "SELECT " COLUMNS " FROM ruling WHERE version=?",
                              "i", (int64_t)version);
    return err ? err : read_ruling(ledger, statement, ruling);
}

cn_err cn_ruling_newest(struct cn_ledger *ledger, enum cn_ruling_kind kind,
                        struct cn_ruling *ruling)
{
    sqlite3_stmt *statement;
    cn_err err = cn_ledger_sql_prepare(ledger, &statement,
                                       "SELECT " COLUMNS
                                       " FROM ruling WHERE kind=? ORDER BY version DESC LIMIT 1",
                                       "i", (int64_t)kind);
    return err ? err : read_ruling(ledger, statement, ruling);
}

cn_err cn_ruling_refused(struct cn_ledger *ledger, const char *group, uint32_t *version)
{
    sqlite3_stmt *statement;
    cn_err err = cn_ledger_sql_prepare(
        ledger, &statement,
        "SELECT r.version FROM ruling r WHERE r.kind=1 AND (?1='' OR EXISTS(SELECT 1 FROM"
        " contribution c WHERE c.version=r.version AND c.grp=?1)) ORDER BY r.version DESC LIMIT 1",
        "t", group ? group : "");
    uint64_t number = 0;
    if (!err)
        err = cn_ledger_sql_number(ledger, statement, &number);
    *version = (uint32_t)number;
    return err;
}

cn_err cn_ruling_streak(struct cn_ledger *ledger, uint32_t *count)
{
    sqlite3_stmt *statement;
    cn_err err = cn_ledger_sql_prepare(
        ledger, &statement,
        "SELECT ifnull(max(number),0)-ifnull((SELECT max(number) FROM version WHERE number NOT IN"
        " (SELECT version FROM ruling WHERE kind=1)),0) FROM version",
        "");
    *count = 0;
    if (err)
        return err;
    err = cn_ledger_sql_step(ledger, statement);
    if (!err)
        *count = (uint32_t)sqlite3_column_int64(statement, 0);
    sqlite3_finalize(statement);
    return err;
}

static cn_err insert_ruling(struct cn_ledger *ledger, const struct cn_ruling *ruling)
{
    sqlite3_stmt *statement;
    cn_err err = cn_ledger_sql_prepare(
        ledger, &statement, "INSERT INTO ruling(" COLUMNS ") VALUES(?,?,?,?,?,?)", "iiiddt",
        (int64_t)ruling->version, (int64_t)ruling->kind, (int64_t)ruling->source, ruling->loss,
        ruling->accuracy, ruling->reason);
    return err ? err : cn_ledger_sql_finish(ledger, statement);
}

static cn_err merge_round(struct cn_ledger *ledger, uint32_t number)
{
    sqlite3_stmt *statement;
    cn_err err = cn_ledger_sql_prepare(ledger, &statement,
                                       "INSERT INTO round(number,state,closed_ms)"
                                       " VALUES(?,2," CN_LEDGER_SQL_DATE ")"
                                       " ON CONFLICT(number) DO UPDATE SET state=2,"
                                       "closed_ms=CASE state WHEN 0 THEN excluded.closed_ms"
                                       " ELSE closed_ms END",
                                       "i", (int64_t)number);
    return err ? err : cn_ledger_sql_finish(ledger, statement);
}

cn_err cn_ruling_add(struct cn_ledger *ledger, const struct cn_ledger_version *version,
                     const struct cn_ruling *ruling)
{
    cn_err err = cn_ledger_begin_write(ledger);
    if (err)
        return err;
    err = cn_ledger_sql_add_version(ledger, version);
    if (!err)
        err = insert_ruling(ledger, ruling);
    if (!err)
        err = merge_round(ledger, version->number);
    if (!err && ruling->kind == CN_RULING_ROLLBACK)
        err = cn_rulings_drop_rollback(ledger);
    return cn_ledger_end_write(ledger, err);
}

cn_err cn_rulings_ask_rollback(struct cn_ledger *ledger, uint32_t source, const char *reason)
{
    sqlite3_stmt *statement;
    cn_err err = cn_ledger_sql_prepare(ledger, &statement,
                                       "INSERT INTO rollback(id,source,reason) VALUES(1,?,?)", "it",
                                       (int64_t)source, reason);
    return err ? err : cn_ledger_sql_finish(ledger, statement);
}

cn_err cn_rulings_waiting_rollback(struct cn_ledger *ledger, struct cn_ruling *ruling)
{
    sqlite3_stmt *statement;
    cn_err err = cn_ledger_sql_prepare(ledger, &statement,
                                       "SELECT 0,2,source,0.0,0.0,reason FROM rollback", "");
    return err ? err : read_ruling(ledger, statement, ruling);
}

cn_err cn_rulings_drop_rollback(struct cn_ledger *ledger)
{
    return cn_ledger_sql_run(ledger, "DELETE FROM rollback");
}

bool cn_ruling_reason_valid(const char *text)
{
    size_t length = strlen(text);
    for (size_t i = 0; i < length; i++)
        if ((unsigned char)text[i] < 0x20 || text[i] == 0x7f)
            return false;
    return length > 0 && length < CN_RULING_TEXT;
}
