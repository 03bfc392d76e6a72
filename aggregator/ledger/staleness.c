#include "aggregator/ledger/staleness.h"

#include <stdio.h>
#include <string.h>

#include "aggregator/ledger/ledger_sql.h"
#include "runtime/profile/job.h"

// Records nothing if the group has delivered the round meanwhile: it does not train for it any
// more.
static cn_err begin_one(struct cn_ledger *ledger, const struct cn_staleness_begun *begun)
{
    sqlite3_stmt *statement;
    cn_err err = cn_ledger_sql_prepare(
        ledger, &statement,
        "INSERT INTO training(grp,round) SELECT ?1,?2 WHERE NOT EXISTS"
        " (SELECT 1 FROM contribution WHERE grp=?1 AND round>=?2) ON CONFLICT(grp) DO UPDATE"
        " SET round=excluded.round WHERE excluded.round>round",
        "ti", begun->group, (int64_t)begun->round);
    return err ? err : cn_ledger_sql_finish(ledger, statement);
}

cn_err cn_staleness_begin(struct cn_ledger *ledger, const struct cn_staleness_begun *begun,
                          size_t count)
{
    cn_err err = count ? cn_ledger_sql_run(ledger, "BEGIN IMMEDIATE") : CN_OK;

    if (err || count == 0)
        return err;
    for (size_t i = 0; i < count && !err; i++)
        err = begin_one(ledger, &begun[i]);
    return cn_ledger_sql_end(ledger, err);
}

cn_err cn_ledger_sql_delivered(struct cn_ledger *ledger, const struct cn_ledger_contribution *c)
{
    sqlite3_stmt *statement;
    cn_err err = cn_ledger_select(ledger, c->round, c->group);

    if (!err)
        err = cn_ledger_sql_prepare(ledger, &statement,
                                    "DELETE FROM training WHERE grp=? AND round<=?", "ti", c->group,
                                    (int64_t)c->round);
    return err ? err : cn_ledger_sql_finish(ledger, statement);
}

// Records the groups that are too late, and that they train no longer. A group may have its row in
// selection already, because its update was accepted: from another board, or before training had
// its row.
static cn_err select_late(struct cn_ledger *ledger, uint32_t oldest)
{
    sqlite3_stmt *statement;
    cn_err err = cn_ledger_sql_prepare(
        ledger, &statement,
        "INSERT OR IGNORE INTO selection(round,grp) SELECT t.round,t.grp FROM training t"
        " JOIN round r ON r.number=t.round WHERE t.round<?",
        "i", (int64_t)oldest);

    if (!err)
        err = cn_ledger_sql_finish(ledger, statement);
    if (!err)
        err = cn_ledger_sql_prepare(ledger, &statement, "DELETE FROM training WHERE round<?", "i",
                                    (int64_t)oldest);
    return err ? err : cn_ledger_sql_finish(ledger, statement);
}

cn_err cn_staleness_expire(struct cn_ledger *ledger, uint32_t oldest)
{
    cn_err err = cn_ledger_sql_run(ledger, "BEGIN IMMEDIATE");

    return err ? err : cn_ledger_sql_end(ledger, select_late(ledger, oldest));
}

cn_err cn_staleness_walk(struct cn_ledger *ledger, cn_ledger_round_visit *visit, void *context)
{
    sqlite3_stmt *statement;
    cn_err err = cn_ledger_sql_prepare(ledger, &statement,
                                       "SELECT grp,round FROM training ORDER BY grp", "");

    return err ? err : cn_ledger_sql_visit_rounds(ledger, statement, visit, context);
}

cn_err cn_staleness_read(struct cn_ledger *ledger, const char *group,
                         struct cn_staleness *staleness)
{
    sqlite3_stmt *statement;
    cn_err err = cn_ledger_sql_prepare(
        ledger, &statement,
        "WITH last(round,version) AS (SELECT round,version FROM contribution c WHERE grp=?1 AND"
        " round=(SELECT max(s.round) FROM selection s JOIN contribution d ON d.round=s.round"
        " AND d.grp=s.grp WHERE s.grp=?1)) "
        "SELECT ifnull((SELECT round FROM training WHERE grp=?1),0),"
        "ifnull((SELECT version FROM last),0),ifnull((SELECT version-round FROM last),0),"
        "(SELECT count(*) FROM selection WHERE grp=?1 AND"
        " round>ifnull((SELECT round FROM last),0))",
        "t", group);

    memset(staleness, 0, sizeof(*staleness));
    if (err)
        return err;
    err = cn_ledger_sql_step(ledger, statement);
    if (!err)
        *staleness = (struct cn_staleness){
            .training = (uint32_t)sqlite3_column_int64(statement, 0),
            .delivered = (uint32_t)sqlite3_column_int64(statement, 1),
            .behind = (uint32_t)sqlite3_column_int64(statement, 2),
            .late = (uint32_t)sqlite3_column_int64(statement, 3),
        };
    sqlite3_finalize(statement);
    return err;
}

void cn_staleness_text(const struct cn_staleness *staleness, char text[CN_STALENESS_TEXT])
{
    snprintf(text, CN_STALENESS_TEXT,
             "its last %u updates were too late to count: set a larger "
             "rounds.async.buffer, or rounds.async.wait: true",
             staleness->late);
}

cn_err cn_staleness_of_version(struct cn_ledger *ledger, uint32_t version, uint32_t *most,
                               double *mean)
{
    sqlite3_stmt *statement;
    cn_err err = cn_ledger_sql_prepare(ledger, &statement,
                                       "SELECT ifnull(max(version-round),0),"
                                       "ifnull(avg(version-round),0) FROM contribution"
                                       " WHERE version=?",
                                       "i", (int64_t)version);

    *most = 0;
    *mean = 0;
    if (err)
        return err;
    err = cn_ledger_sql_step(ledger, statement);
    if (!err) {
        *most = (uint32_t)sqlite3_column_int64(statement, 0);
        *mean = sqlite3_column_double(statement, 1);
    }
    sqlite3_finalize(statement);
    return err;
}

bool cn_staleness_keeps(struct cn_ledger *ledger, uint32_t round, const char *group,
                        uint64_t keep_rounds, uint32_t newest)
{
    struct cn_ledger_contribution found;

    if (keep_rounds == 0 || round + keep_rounds > newest)
        return true;
    if (round + CN_STALENESS_MAX + keep_rounds <= newest)
        return false;
    cn_err err = cn_ledger_find_contribution(ledger, round, group, &found);
    return err ? err != CN_ENOTFOUND : found.version + keep_rounds > newest;
}
