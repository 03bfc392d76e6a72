#include "aggregator/ledger/tally.h"

#include <stdio.h>
#include <string.h>

#include "aggregator/ledger/ledger_sql.h"

cn_err cn_tally_reject(struct cn_ledger *ledger, const char *group, uint32_t round,
                       const char *reason)
{
    sqlite3_stmt *statement;
    cn_err err = cn_ledger_sql_prepare(
        ledger, &statement,
        "INSERT INTO rejection(grp,count,round,reason) VALUES(?,1,?,?) ON CONFLICT(grp) DO UPDATE"
        " SET count=count+1,round=excluded.round,reason=excluded.reason"
        " WHERE excluded.round>round",
        "tit", group, (int64_t)round, reason);
    return err ? err : cn_ledger_sql_finish(ledger, statement);
}

static cn_err read_rejections(struct cn_ledger *ledger, const char *group, struct cn_tally *tally)
{
    sqlite3_stmt *statement;
    cn_err err = cn_ledger_sql_prepare(
        ledger, &statement, "SELECT count,round,reason FROM rejection WHERE grp=?", "t", group);
    if (err)
        return err;
    err = cn_ledger_sql_step(ledger, statement);
    if (!err) {
        const char *reason = (const char *)sqlite3_column_text(statement, 2);
        tally->rejected = (uint64_t)sqlite3_column_int64(statement, 0);
        tally->rejected_round = (uint32_t)sqlite3_column_int64(statement, 1);
        snprintf(tally->reason, sizeof(tally->reason), "%s", reason ? reason : "");
    }
    sqlite3_finalize(statement);
    return err == CN_ENOTFOUND ? CN_OK : err;
}

cn_err cn_tally_read_judged(struct cn_ledger *ledger, const char *group, struct cn_tally *tally)
{
    sqlite3_stmt *statement;
    cn_err err = cn_ledger_sql_prepare(
        ledger, &statement,
        "SELECT round,factor,(SELECT count(*) FROM judgement WHERE grp=?1 AND round>"
        "(SELECT ifnull(max(round),0) FROM judgement WHERE grp=?1 AND refused=0))"
        " FROM judgement WHERE grp=?1 ORDER BY round DESC LIMIT 1",
        "t", group);
    if (err)
        return err;
    err = cn_ledger_sql_step(ledger, statement);
    if (!err) {
        tally->judged_round = (uint32_t)sqlite3_column_int64(statement, 0);
        tally->factor = sqlite3_column_double(statement, 1);
        tally->refused = (uint32_t)sqlite3_column_int64(statement, 2);
    }
    sqlite3_finalize(statement);
    return err == CN_ENOTFOUND ? CN_OK : err;
}

cn_err cn_tally_judge(struct cn_ledger *ledger, const char *group, uint32_t round, double factor,
                      bool refused, uint32_t *in_a_row)
{
    sqlite3_stmt *statement;
    struct cn_tally tally = {0};
    cn_err err = cn_ledger_sql_prepare(
        ledger, &statement,
        "INSERT OR REPLACE INTO judgement(grp,round,factor,refused) VALUES(?,?,?,?)", "tidi", group,
        (int64_t)round, factor, (int64_t)refused);
    if (!err)
        err = cn_ledger_sql_finish(ledger, statement);
    if (!err)
        err = cn_tally_read_judged(ledger, group, &tally);
    *in_a_row = tally.refused;
    return err;
}

cn_err cn_tally_read(struct cn_ledger *ledger, const char *group, struct cn_tally *tally)
{
    sqlite3_stmt *statement;
    memset(tally, 0, sizeof(*tally));
    cn_err err =
        cn_ledger_sql_prepare(ledger, &statement,
                              "SELECT count(c.digest),count(*)-count(c.digest) FROM selection s"
                              " JOIN round r ON r.number=s.round"
                              " LEFT JOIN contribution c ON c.round=s.round AND c.grp=s.grp"
                              " WHERE s.grp=? AND (c.digest IS NOT NULL OR r.state<>0)",
                              "t", group);
    if (err)
        return err;
    err = cn_ledger_sql_step(ledger, statement);
    if (!err) {
        tally->accepted = (uint64_t)sqlite3_column_int64(statement, 0);
        tally->late = (uint64_t)sqlite3_column_int64(statement, 1);
    }
    sqlite3_finalize(statement);
    if (!err)
        err = read_rejections(ledger, group, tally);
    return err ? err : cn_tally_read_judged(ledger, group, tally);
}

cn_err cn_tally_attend(struct cn_ledger *ledger, const char *group, uint32_t round, uint32_t boards)
{
    sqlite3_stmt *statement;
    cn_err err = cn_ledger_sql_prepare(
        ledger, &statement,
        "INSERT INTO attendance(round,grp,boards) VALUES(?,?,?) ON CONFLICT(round,grp) DO UPDATE"
        " SET boards=excluded.boards",
        "iti", (int64_t)round, group, (int64_t)boards);
    return err ? err : cn_ledger_sql_finish(ledger, statement);
}

cn_err cn_tally_boards(struct cn_ledger *ledger, uint32_t round, uint32_t *boards)
{
    sqlite3_stmt *statement;
    *boards = 0;
    cn_err err = cn_ledger_sql_prepare(
        ledger, &statement,
        "SELECT sum(ifnull(a.boards,1)) FROM contribution c"
        " LEFT JOIN attendance a ON a.round=c.round AND a.grp=c.grp WHERE c.version=?",
        "i", (int64_t)round);
    if (err)
        return err;
    err = cn_ledger_sql_step(ledger, statement);
    if (!err)
        *boards = (uint32_t)sqlite3_column_int64(statement, 0);
    sqlite3_finalize(statement);
    return err;
}
