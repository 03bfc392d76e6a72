#include "aggregator/ledger/history.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "aggregator/ledger/ledger_sql.h"

#define PACE_ROUNDS 9 // newest rounds whose openings count for the pace

static cn_err read_entry(sqlite3_stmt *statement, struct cn_history_entry *entry)
{
    memset(entry, 0, sizeof(*entry));
    cn_err err = cn_ledger_sql_name(statement, 0, entry->group);
    entry->accepted = sqlite3_column_type(statement, 1) != SQLITE_NULL;
    entry->rejected = sqlite3_column_type(statement, 4) != SQLITE_NULL;
    if (err || !entry->accepted)
        return err;
    entry->size = (uint64_t)sqlite3_column_int64(statement, 1);
    entry->weight = (uint64_t)sqlite3_column_int64(statement, 2);
    entry->accepted_ms = (uint64_t)sqlite3_column_int64(statement, 3);
    entry->behind = (uint32_t)sqlite3_column_int64(statement, 5);
    return CN_OK;
}

// Selects the updates of a version, then the groups without one that were invited to its round or
// late with it. A group does not count as without one if it has an update of that round in another
// version, as in an asynchronous run.
#define ENTRY_QUERY(which)                                                                         \
    "SELECT e.grp,e.size,e.weight,e.accepted_ms,r.round,e.behind FROM ("                           \
    "SELECT grp,size,weight,accepted_ms,version-round AS behind FROM contribution"                 \
    " WHERE version=?1" which " UNION ALL SELECT grp,NULL,0,0,0 FROM selection s WHERE"            \
    " round=?1" which " AND NOT EXISTS (SELECT 1 FROM contribution c WHERE c.grp=s.grp AND"        \
    " (c.round=s.round OR c.version=s.round))) e"                                                  \
    " LEFT JOIN rejection r ON r.grp=e.grp AND r.round=?1"

cn_err cn_history_round(struct cn_ledger *ledger, uint32_t round, cn_history_visit *visit,
                        void *context)
{
    sqlite3_stmt *statement;
    cn_err err = cn_ledger_sql_prepare(ledger, &statement, ENTRY_QUERY("") " ORDER BY e.grp", "i",
                                       (int64_t)round);
    if (err)
        return err;
    struct cn_history_entry entry;
    bool more;
    while (!(err = cn_ledger_sql_next(ledger, statement, &more)) && more) {
        err = read_entry(statement, &entry);
        if (!err)
            err = visit(context, &entry);
        if (err)
            break;
    }
    sqlite3_finalize(statement);
    return err;
}

static cn_err read_turn(sqlite3_stmt *statement, struct cn_history_turn *turn)
{
    turn->round = (uint32_t)sqlite3_column_int64(statement, 1);
    turn->late = sqlite3_column_int(statement, 2) != 0;
    return cn_ledger_sql_name(statement, 0, turn->group);
}

cn_err cn_history_turns(struct cn_ledger *ledger, uint32_t round, cn_history_turn_visit *visit,
                        void *context)
{
    sqlite3_stmt *statement;
    struct cn_history_turn turn;
    bool more;
    int64_t first = round > CN_HISTORY_TURNS ? round - CN_HISTORY_TURNS : 0;
    cn_err err = cn_ledger_sql_prepare(
        ledger, &statement,
        "SELECT t.grp,t.newest,c.grp IS NULL FROM (SELECT grp,max(round) AS newest FROM selection"
        " WHERE round>=? AND round<? GROUP BY grp) t LEFT JOIN contribution c"
        " ON c.round=t.newest AND c.grp=t.grp ORDER BY t.grp",
        "ii", first, (int64_t)round);
    if (err)
        return err;
    while (!(err = cn_ledger_sql_next(ledger, statement, &more)) && more) {
        err = read_turn(statement, &turn);
        if (!err)
            err = visit(context, &turn);
        if (err)
            break;
    }
    sqlite3_finalize(statement);
    return err;
}

cn_err cn_history_find(struct cn_ledger *ledger, uint32_t round, const char *group,
                       struct cn_history_entry *entry)
{
    sqlite3_stmt *statement;
    cn_err err = cn_ledger_sql_prepare(ledger, &statement, ENTRY_QUERY(" AND grp=?2"), "it",
                                       (int64_t)round, group);
    if (err)
        return err;
    err = cn_ledger_sql_step(ledger, statement);
    if (!err)
        err = read_entry(statement, entry);
    sqlite3_finalize(statement);
    return err;
}

cn_err cn_history_dates(struct cn_ledger *ledger, uint32_t round, struct cn_history_dates *dates)
{
    sqlite3_stmt *statement;
    memset(dates, 0, sizeof(*dates));
    cn_err err = cn_ledger_sql_prepare(
        ledger, &statement,
        round ? "SELECT r.state,r.opened_ms,r.closed_ms,v.made_ms FROM round r"
                " LEFT JOIN version v ON v.number=r.number WHERE r.number=?"
              : "SELECT 2,0,0,made_ms FROM version WHERE number=?",
        "i", (int64_t)round);
    if (err)
        return err;
    err = cn_ledger_sql_step(ledger, statement);
    if (!err) {
        dates->state = (enum cn_ledger_state)sqlite3_column_int(statement, 0);
        dates->opened_ms = (uint64_t)sqlite3_column_int64(statement, 1);
        dates->closed_ms = (uint64_t)sqlite3_column_int64(statement, 2);
        dates->made_ms = (uint64_t)sqlite3_column_int64(statement, 3);
    }
    sqlite3_finalize(statement);
    return err;
}

static int compare(const void *a, const void *b)
{
    int64_t left = *(const int64_t *)a, right = *(const int64_t *)b;
    return left < right ? -1 : left > right;
}

// Reads the newest openings, newest first.
static cn_err read_openings(struct cn_ledger *ledger, int64_t opened_ms[PACE_ROUNDS], size_t *count)
{
    sqlite3_stmt *statement;
    bool more;
    *count = 0;
    cn_err err = cn_ledger_sql_prepare(ledger, &statement,
                                       "SELECT opened_ms FROM round WHERE opened_ms>0"
                                       " ORDER BY number DESC LIMIT ?",
                                       "i", (int64_t)PACE_ROUNDS);
    if (err)
        return err;
    while (!(err = cn_ledger_sql_next(ledger, statement, &more)) && more && *count < PACE_ROUNDS)
        opened_ms[(*count)++] = sqlite3_column_int64(statement, 0);
    sqlite3_finalize(statement);
    return err;
}

cn_err cn_history_pace(struct cn_ledger *ledger, uint64_t *round_ms)
{
    int64_t opened_ms[PACE_ROUNDS], steps[PACE_ROUNDS];
    size_t count, used = 0;
    *round_ms = 0;
    cn_err err = read_openings(ledger, opened_ms, &count);
    if (err)
        return err;
    for (size_t i = 1; i < count; i++)
        if (opened_ms[i - 1] > opened_ms[i]) // not so when the date was set back
            steps[used++] = opened_ms[i - 1] - opened_ms[i];
    if (used == 0)
        return CN_OK;
    qsort(steps, used, sizeof(*steps), compare);
    *round_ms = (uint64_t)steps[used / 2];
    return CN_OK;
}

cn_err cn_history_rejections(struct cn_ledger *ledger, cn_history_rejection_visit *visit,
                             void *context)
{
    sqlite3_stmt *statement;
    cn_err err = cn_ledger_sql_prepare(ledger, &statement,
                                       "SELECT grp,round,reason FROM rejection ORDER BY grp", "");
    if (err)
        return err;
    struct cn_history_rejection rejection;
    bool more;
    while (!(err = cn_ledger_sql_next(ledger, statement, &more)) && more) {
        const char *reason = (const char *)sqlite3_column_text(statement, 2);
        rejection.round = (uint32_t)sqlite3_column_int64(statement, 1);
        snprintf(rejection.reason, sizeof(rejection.reason), "%s", reason ? reason : "");
        err = cn_ledger_sql_name(statement, 0, rejection.group);
        if (!err)
            err = visit(context, &rejection);
        if (err)
            break;
    }
    sqlite3_finalize(statement);
    return err;
}
