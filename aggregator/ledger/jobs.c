#include "aggregator/ledger/jobs.h"

#include <stdio.h>

#include "aggregator/ledger/ledger_sql.h"

#define COLUMNS "name,priority,turn,needs,state,ahead,reason,submitted_ms"
#define STATE_MOST CN_JOB_FAILED

bool cn_job_is_over(enum cn_job_state state)
{
    return state != CN_JOB_ACTIVE && state != CN_JOB_HELD;
}

const char *cn_job_state_name(enum cn_job_state state)
{
    static const char *const names[] = {"active", "held", "ended", "stopped", "failed"};
    return names[state];
}

static cn_err count_open(void *context, const struct cn_queued_job *job)
{
    *(uint32_t *)context += !cn_job_is_over(job->state);
    return CN_OK;
}

cn_err cn_jobs_add(struct cn_ledger *ledger, const struct cn_queued_job *job)
{
    sqlite3_stmt *statement;
    uint32_t open = 0;
    cn_err err = cn_jobs_list(ledger, count_open, &open);
    if (!err && open >= CN_JOBS_MOST)
        err = CN_ERANGE;
    if (!err)
        err = cn_ledger_sql_prepare(ledger, &statement,
                                    "INSERT INTO job(sequence," COLUMNS ")"
                                    " VALUES((SELECT coalesce(max(sequence),0)+1 FROM job),"
                                    "?,?,?,?,?,0,''," CN_LEDGER_SQL_DATE ")",
                                    "tiiti", job->name, (int64_t)job->priority, (int64_t)job->turn,
                                    job->needs, (int64_t)job->state);
    return err ? err : cn_ledger_sql_finish(ledger, statement);
}

static void read_text(sqlite3_stmt *statement, int column, char *text, size_t size)
{
    const char *found = (const char *)sqlite3_column_text(statement, column);
    snprintf(text, size, "%s", found ? found : "");
}

static cn_err read_job(sqlite3_stmt *statement, struct cn_queued_job *job)
{
    int64_t priority = sqlite3_column_int64(statement, 1);
    int64_t turn = sqlite3_column_int64(statement, 2), state = sqlite3_column_int64(statement, 4);
    cn_err err = cn_ledger_sql_name(statement, 0, job->name);
    if (err || priority < 0 || priority > CN_JOB_PRIORITY_MOST || turn < 1 ||
        turn > CN_JOB_TURN_MOST || state < 0 || state > STATE_MOST)
        return CN_EFORMAT;
    job->priority = (uint32_t)priority;
    job->turn = (uint32_t)turn;
    read_text(statement, 3, job->needs, sizeof(job->needs));
    job->state = (enum cn_job_state)state;
    job->ahead = sqlite3_column_int(statement, 5) != 0;
    read_text(statement, 6, job->reason, sizeof(job->reason));
    job->submitted_ms = (uint64_t)sqlite3_column_int64(statement, 7);
    return CN_OK;
}

cn_err cn_jobs_find(struct cn_ledger *ledger, const char *name, struct cn_queued_job *job)
{
    sqlite3_stmt *statement;
    cn_err err = cn_ledger_sql_prepare(ledger, &statement,
                                       "SELECT " COLUMNS " FROM job WHERE name=?", "t", name);
    if (err)
        return err;
    err = cn_ledger_sql_step(ledger, statement);
    if (!err)
        err = read_job(statement, job);
    sqlite3_finalize(statement);
    return err;
}

cn_err cn_jobs_list(struct cn_ledger *ledger, cn_jobs_visit *visit, void *context)
{
    sqlite3_stmt *statement;
    cn_err err = cn_ledger_sql_prepare(ledger, &statement,
                                       "SELECT " COLUMNS " FROM job ORDER BY sequence", "");
    if (err)
        return err;
    struct cn_queued_job job;
    bool more;
    while (!(err = cn_ledger_sql_next(ledger, statement, &more)) && more) {
        err = read_job(statement, &job);
        if (!err)
            err = visit(context, &job);
        if (err)
            break;
    }
    sqlite3_finalize(statement);
    return err;
}

cn_err cn_jobs_set_state(struct cn_ledger *ledger, const char *name, enum cn_job_state state,
                         const char *reason)
{
    char cut[CN_JOB_REASON];
    sqlite3_stmt *statement;
    snprintf(cut, sizeof(cut), "%s", reason);
    cn_err err =
        cn_ledger_sql_prepare(ledger, &statement,
                              "UPDATE job SET state=?,reason=?,ahead=ahead*(?<2)"
                              " WHERE name=? AND (state<2 OR (state=4 AND ?=0))",
                              "ititi", (int64_t)state, cut, (int64_t)state, name, (int64_t)state);
    return err ? err : cn_ledger_sql_finish(ledger, statement);
}

cn_err cn_jobs_set_ahead(struct cn_ledger *ledger, const char *name, bool ahead)
{
    sqlite3_stmt *statement;
    cn_err err = cn_ledger_sql_prepare(ledger, &statement,
                                       "UPDATE job SET ahead=(name=?) AND ? WHERE name=? OR ?",
                                       "titi", name, (int64_t)ahead, name, (int64_t)ahead);
    return err ? err : cn_ledger_sql_finish(ledger, statement);
}
