// The ledger's rows of settings: which values of the job hold from which round on.
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "aggregator/ledger/ledger_sql.h"
#include "runtime/profile/job_text.h"

void cn_ledger_setting_deinit(struct cn_ledger_setting *setting)
{
    free(setting->job);
    setting->job = NULL;
}

cn_err cn_ledger_put_setting(struct cn_ledger *ledger, const struct cn_ledger_setting *setting)
{
    sqlite3_stmt *statement;
    cn_err err = cn_ledger_sql_prepare(
        ledger, &statement, "INSERT OR REPLACE INTO setting(from_round,digest,job) VALUES(?,?,?)",
        "ibt", (int64_t)setting->from_round, setting->digest, setting->job);
    return err ? err : cn_ledger_sql_finish(ledger, statement);
}

static cn_err read_setting(sqlite3_stmt *statement, struct cn_ledger_setting *setting)
{
    const char *job = (const char *)sqlite3_column_text(statement, 2);
    int64_t from_round = sqlite3_column_int64(statement, 0);
    cn_err err = cn_ledger_sql_bytes(statement, 1, setting->digest);
    if (err || from_round < 1 || from_round > UINT32_MAX)
        return CN_EFORMAT;
    setting->from_round = (uint32_t)from_round;
    if (!job)
        return CN_OK;
    if ((size_t)sqlite3_column_bytes(statement, 2) > CN_JOB_TEXT_MAX)
        return CN_EFORMAT;
    setting->job = strdup(job);
    return setting->job ? CN_OK : CN_ENOMEM;
}

cn_err cn_ledger_find_setting(struct cn_ledger *ledger, uint32_t round,
                              struct cn_ledger_setting *setting)
{
    sqlite3_stmt *statement;
    memset(setting, 0, sizeof(*setting));
    cn_err err = cn_ledger_sql_prepare(ledger, &statement,
                                       "SELECT from_round,digest,job FROM setting"
                                       " WHERE from_round<=? ORDER BY from_round DESC LIMIT 1",
                                       "i", (int64_t)round);
    if (err)
        return err;
    err = cn_ledger_sql_step(ledger, statement);
    if (!err)
        err = read_setting(statement, setting);
    sqlite3_finalize(statement);
    return err;
}

cn_err cn_ledger_graph(struct cn_ledger *ledger, uint8_t graph[CN_DIGEST_SIZE])
{
    sqlite3_stmt *statement;
    cn_err err = cn_ledger_sql_prepare(ledger, &statement,
                                       "SELECT graph FROM meta WHERE graph IS NOT NULL", "");
    if (err)
        return err;
    err = cn_ledger_sql_step(ledger, statement);
    if (!err)
        err = cn_ledger_sql_bytes(statement, 0, graph);
    sqlite3_finalize(statement);
    return err;
}

cn_err cn_ledger_bind(struct cn_ledger *ledger, const uint8_t graph[CN_DIGEST_SIZE],
                      const struct cn_ledger_setting *setting)
{
    uint8_t bound[CN_DIGEST_SIZE];
    sqlite3_stmt *statement;
    cn_err err = cn_ledger_sql_run(ledger, "BEGIN IMMEDIATE");
    if (err)
        return err;
    err = cn_ledger_graph(ledger, bound);
    if (!err)
        err = CN_EEXIST;
    else if (err == CN_ENOTFOUND)
        err = cn_ledger_sql_prepare(ledger, &statement, "UPDATE meta SET graph=?", "b", graph);
    if (!err)
        err = cn_ledger_sql_finish(ledger, statement);
    if (!err)
        err = cn_ledger_put_setting(ledger, setting);
    return cn_ledger_sql_end(ledger, err);
}
