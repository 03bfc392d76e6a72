#include "aggregator/ledger/steering.h"

#include <stdio.h>
#include <string.h>

#include "aggregator/ledger/ledger_sql.h"

#define STRING(value) STRING_OF(value)
#define STRING_OF(value) #value

// Words of the column "what" of the table steering.
#define PAUSE "pause"
#define PAUSE_NOW "pause_now"
#define LEAVE "leave"
#define DRAIN "drain"

static cn_err put(struct cn_ledger *ledger, const char *what, const char *name)
{
    sqlite3_stmt *statement;
    cn_err err = cn_ledger_sql_prepare(ledger, &statement,
                                       "INSERT INTO steering(what,name,since_ms)"
                                       " VALUES(?,?," CN_LEDGER_SQL_DATE ")"
                                       " ON CONFLICT(what,name) DO NOTHING",
                                       "tt", what, name);
    return err ? err : cn_ledger_sql_finish(ledger, statement);
}

static cn_err take_back(struct cn_ledger *ledger, const char *what, const char *name)
{
    sqlite3_stmt *statement;
    cn_err err = cn_ledger_sql_prepare(
        ledger, &statement, "DELETE FROM steering WHERE what=? AND name=?", "tt", what, name);
    return err ? err : cn_ledger_sql_finish(ledger, statement);
}

// Sets since_ms to the date of a row, in milliseconds since 1970; 0: there is no such row.
static cn_err find(struct cn_ledger *ledger, const char *what, const char *name, uint64_t *since_ms)
{
    sqlite3_stmt *statement;
    cn_err err = cn_ledger_sql_prepare(
        ledger, &statement, "SELECT max(since_ms,1) FROM steering WHERE what=? AND name=?", "tt",
        what, name);
    *since_ms = 0;
    return err ? err : cn_ledger_sql_number(ledger, statement, since_ms);
}

cn_err cn_steering_load(struct cn_ledger *ledger, struct cn_steering *steering)
{
    uint64_t pause_ms, now_ms, leave_ms = 0;
    *steering = (struct cn_steering){0};
    cn_err err = find(ledger, PAUSE, "", &pause_ms);
    if (!err)
        err = find(ledger, PAUSE_NOW, "", &now_ms);
    if (!err)
        err = find(ledger, LEAVE, "", &leave_ms);
    if (err)
        return err;
    steering->pause = now_ms     ? CN_RUN_PAUSE_NOW
                      : pause_ms ? CN_RUN_PAUSE_ROUNDS
                                 : CN_RUN_PAUSE_NONE;
    steering->paused_ms = now_ms ? now_ms : pause_ms;
    steering->leaving = leave_ms != 0;
    return CN_OK;
}

cn_err cn_steering_pause(struct cn_ledger *ledger, enum cn_run_pause pause)
{
    cn_err err = take_back(ledger, pause == CN_RUN_PAUSE_NOW ? PAUSE : PAUSE_NOW, "");
    if (!err && pause == CN_RUN_PAUSE_NONE)
        return take_back(ledger, PAUSE, "");
    return err ? err : put(ledger, pause == CN_RUN_PAUSE_NOW ? PAUSE_NOW : PAUSE, "");
}

cn_err cn_steering_leave(struct cn_ledger *ledger, bool leaving)
{
    return leaving ? put(ledger, LEAVE, "") : take_back(ledger, LEAVE, "");
}

cn_err cn_steering_drain(struct cn_ledger *ledger, const char *group, bool drained)
{
    return drained ? put(ledger, DRAIN, group) : take_back(ledger, DRAIN, group);
}

cn_err cn_steering_is_drained(struct cn_ledger *ledger, const char *group, bool *drained)
{
    uint64_t since_ms;
    cn_err err = find(ledger, DRAIN, group, &since_ms);
    *drained = since_ms != 0;
    return err;
}

cn_err cn_steering_drained(struct cn_ledger *ledger, cn_steering_visit *visit, void *context)
{
    sqlite3_stmt *statement;
    cn_err err = cn_ledger_sql_prepare(
        ledger, &statement, "SELECT name FROM steering WHERE what='" DRAIN "' ORDER BY name", "");
    if (err)
        return err;
    char name[CN_NAME_SIZE];
    bool more;
    while (!(err = cn_ledger_sql_next(ledger, statement, &more)) && more) {
        err = cn_ledger_sql_name(statement, 0, name);
        if (!err)
            err = visit(context, name);
        if (err)
            break;
    }
    sqlite3_finalize(statement);
    return err;
}

cn_err cn_steering_count_drained(struct cn_ledger *ledger, uint32_t *count)
{
    sqlite3_stmt *statement;
    cn_err err =
        cn_ledger_sql_prepare(ledger, &statement,
                              "SELECT count(DISTINCT grp) FROM board WHERE revoked=0"
                              " AND grp IN (SELECT name FROM steering WHERE what='" DRAIN "')",
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

// --- rounds ---

cn_err cn_steering_of_round(struct cn_ledger *ledger, uint32_t round,
                            struct cn_steered_round *steered)
{
    sqlite3_stmt *statement;
    *steered = (struct cn_steered_round){0};
    cn_err err = cn_ledger_sql_prepare(
        ledger, &statement, "SELECT extended_ms,closed_with FROM steered_round WHERE round=?", "i",
        (int64_t)round);
    if (err)
        return err;
    err = cn_ledger_sql_step(ledger, statement);
    if (!err) {
        steered->extended_ms = (uint64_t)sqlite3_column_int64(statement, 0);
        steered->closed_with = (uint32_t)sqlite3_column_int64(statement, 1);
    }
    sqlite3_finalize(statement);
    return err == CN_ENOTFOUND ? CN_OK : err;
}

cn_err cn_steering_extend_round(struct cn_ledger *ledger, uint32_t round, uint64_t extend_ms)
{
    sqlite3_stmt *statement;
    cn_err err = cn_ledger_sql_prepare(ledger, &statement,
                                       "INSERT INTO steered_round(round,extended_ms,closed_with)"
                                       " VALUES(?,?,0) ON CONFLICT(round) DO UPDATE"
                                       " SET extended_ms=extended_ms+excluded.extended_ms",
                                       "ii", (int64_t)round, (int64_t)extend_ms);
    return err ? err : cn_ledger_sql_finish(ledger, statement);
}

cn_err cn_steering_close_round(struct cn_ledger *ledger, uint32_t round, uint32_t accepted)
{
    sqlite3_stmt *statement;
    cn_err err = cn_ledger_sql_prepare(ledger, &statement,
                                       "INSERT INTO steered_round(round,extended_ms,closed_with)"
                                       " VALUES(?,0,?) ON CONFLICT(round) DO UPDATE"
                                       " SET closed_with=excluded.closed_with",
                                       "ii", (int64_t)round, (int64_t)accepted);
    return err ? err : cn_ledger_sql_finish(ledger, statement);
}

// --- commands that were carried out ---

cn_err cn_steering_find_answer(struct cn_ledger *ledger, const char *id,
                               const uint8_t digest[CN_DIGEST_SIZE],
                               char answer[CN_STEERING_ANSWER_SIZE])
{
    sqlite3_stmt *statement;
    uint8_t known[CN_DIGEST_SIZE];
    cn_err err = cn_ledger_sql_prepare(ledger, &statement,
                                       "SELECT digest,answer FROM steered WHERE id=?"
                                       " AND abs(" CN_LEDGER_SQL_DATE
                                       "-at_ms)<=" STRING(CN_STEERING_REMEMBER_S) "*1000",
                                       "t", id);
    if (err)
        return err;
    err = cn_ledger_sql_step(ledger, statement);
    if (!err)
        err = cn_ledger_sql_bytes(statement, 0, known);
    if (!err && memcmp(known, digest, sizeof(known)) != 0)
        err = CN_ECONFLICT;
    if (!err) {
        const char *text = (const char *)sqlite3_column_text(statement, 1);
        snprintf(answer, CN_STEERING_ANSWER_SIZE, "%s", text ? text : "");
    }
    sqlite3_finalize(statement);
    return err;
}

cn_err cn_steering_keep_answer(struct cn_ledger *ledger, const char *id,
                               const uint8_t digest[CN_DIGEST_SIZE], const char *answer)
{
    sqlite3_stmt *statement;
    cn_err err = cn_ledger_sql_run(
        ledger, "DELETE FROM steered WHERE abs(" CN_LEDGER_SQL_DATE "-at_ms)>" STRING(
                    CN_STEERING_REMEMBER_S) "*1000"
                                            " OR id NOT IN (SELECT id FROM steered ORDER BY at_ms "
                                            "DESC LIMIT " STRING(CN_STEERING_REMEMBER_MOST) "-1)");
    if (!err)
        err = cn_ledger_sql_prepare(ledger, &statement,
                                    "INSERT OR REPLACE INTO steered(id,digest,at_ms,answer)"
                                    " VALUES(?,?," CN_LEDGER_SQL_DATE ",?)",
                                    "tbt", id, digest, answer);
    return err ? err : cn_ledger_sql_finish(ledger, statement);
}
