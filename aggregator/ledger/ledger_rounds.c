// The part of the ledger that only the running aggregator writes: rounds, contributions, versions.
#include <string.h>

#include "aggregator/ledger/ledger.h"
#include "aggregator/ledger/ledger_sql.h"

// Runs a statement that returns one row with one number, and finalises it.
static cn_err read_number(struct cn_ledger *ledger, sqlite3_stmt *statement, int64_t *number)
{
    cn_err err = cn_ledger_sql_step(ledger, statement);
    *number = sqlite3_column_int64(statement, 0);
    sqlite3_finalize(statement);
    return err;
}

cn_err cn_ledger_newest_round(struct cn_ledger *ledger, struct cn_ledger_round *round)
{
    sqlite3_stmt *statement;
    cn_err err = cn_ledger_sql_prepare(
        ledger, &statement, "SELECT number,state FROM round ORDER BY number DESC LIMIT 1", "");
    if (err)
        return err;
    err = cn_ledger_sql_step(ledger, statement);
    round->number = (uint32_t)sqlite3_column_int64(statement, 0);
    round->state = (enum cn_ledger_state)sqlite3_column_int(statement, 1);
    sqlite3_finalize(statement);
    return err;
}

cn_err cn_ledger_open_round(struct cn_ledger *ledger, uint32_t number)
{
    sqlite3_stmt *statement;
    cn_err err = cn_ledger_sql_prepare(
        ledger, &statement,
        "INSERT INTO round(number,state,opened_ms) VALUES(?,0," CN_LEDGER_SQL_DATE ")", "i",
        (int64_t)number);
    return err ? err : cn_ledger_sql_finish(ledger, statement);
}

cn_err cn_ledger_close_round(struct cn_ledger *ledger, uint32_t number)
{
    sqlite3_stmt *statement;
    cn_err err = cn_ledger_sql_prepare(ledger, &statement,
                                       "UPDATE round SET state=1,closed_ms=" CN_LEDGER_SQL_DATE
                                       " WHERE number=? AND state=0",
                                       "i", (int64_t)number);
    return err ? err : cn_ledger_sql_finish(ledger, statement);
}

cn_err cn_ledger_select(struct cn_ledger *ledger, uint32_t round, const char *group)
{
    sqlite3_stmt *statement;
    cn_err err = cn_ledger_sql_prepare(
        ledger, &statement,
        "INSERT INTO selection(round,grp) VALUES(?,?) ON CONFLICT(round,grp) DO NOTHING", "it",
        (int64_t)round, group);
    return err ? err : cn_ledger_sql_finish(ledger, statement);
}

cn_err cn_ledger_is_selected(struct cn_ledger *ledger, uint32_t round, const char *group,
                             bool *selected)
{
    sqlite3_stmt *statement;
    int64_t number = 0;
    cn_err err = cn_ledger_sql_prepare(ledger, &statement,
                                       "SELECT count(*) FROM selection WHERE round=? AND grp=?",
                                       "it", (int64_t)round, group);
    if (!err)
        err = read_number(ledger, statement, &number);
    *selected = number != 0;
    return err;
}

cn_err cn_ledger_has_groups(struct cn_ledger *ledger, bool *several)
{
    sqlite3_stmt *statement;
    int64_t number = 0;
    cn_err err = cn_ledger_sql_prepare(ledger, &statement,
                                       "SELECT (SELECT min(grp) FROM selection) IS NOT "
                                       "(SELECT max(grp) FROM selection)",
                                       "");
    if (!err)
        err = read_number(ledger, statement, &number);
    *several = number != 0;
    return err;
}

cn_err cn_ledger_last_turn(struct cn_ledger *ledger, uint32_t round, const char *group,
                           struct cn_ledger_turn *turn)
{
    sqlite3_stmt *statement;
    uint32_t rounds[2] = {0};
    bool counted[2] = {true, true}, more;
    cn_err err = cn_ledger_sql_prepare(
        ledger, &statement,
        "SELECT s.round,c.grp IS NOT NULL FROM selection s LEFT JOIN contribution c"
        " ON c.round=s.round AND c.grp=s.grp WHERE s.round<?1 AND s.round>=?1-64 AND s.grp=?2"
        " ORDER BY s.round DESC LIMIT 2",
        "it", (int64_t)round, group);
    if (err)
        return err;
    for (int i = 0; i < 2 && !(err = cn_ledger_sql_next(ledger, statement, &more)) && more; i++) {
        rounds[i] = (uint32_t)sqlite3_column_int64(statement, 0);
        counted[i] = sqlite3_column_int(statement, 1) != 0;
    }
    sqlite3_finalize(statement);
    turn->kept = !counted[0] && counted[1];
    turn->round = rounds[turn->kept];
    return err;
}

static cn_err require_open(struct cn_ledger *ledger, uint32_t round)
{
    sqlite3_stmt *statement;
    int64_t state = 0;
    cn_err err = cn_ledger_sql_prepare(ledger, &statement, "SELECT state FROM round WHERE number=?",
                                       "i", (int64_t)round);
    if (!err)
        err = read_number(ledger, statement, &state);
    if (err == CN_ENOTFOUND || (!err && state != CN_LEDGER_OPEN))
        return CN_ESTALE;
    return err;
}

// The roster in memory is older than the ledger: its board may have been revoked meanwhile, and
// even enrolled again in another group. A board that has no row was not revoked.
static cn_err require_member(struct cn_ledger *ledger, const struct cn_ledger_contribution *c)
{
    sqlite3_stmt *statement;
    int64_t gone = 0;
    cn_err err = cn_ledger_sql_prepare(
        ledger, &statement, "SELECT count(*) FROM board WHERE name=? AND (revoked<>0 OR grp<>?)",
        "tt", c->board, c->group);
    if (!err)
        err = read_number(ledger, statement, &gone);
    return !err && gone ? CN_EAUTH : err;
}

static uint32_t version_of(const struct cn_ledger_contribution *contribution)
{
    return contribution->version ? contribution->version : contribution->round;
}

static cn_err insert_contribution(struct cn_ledger *ledger, const struct cn_ledger_contribution *c)
{
    sqlite3_stmt *statement;
    cn_err err = cn_ledger_sql_prepare(
        ledger, &statement,
        "INSERT INTO contribution(round,grp,board,digest,size,weight,held_out_loss,"
        "held_out_correct,held_out_count,train_loss,boards,steps,version,down_bps,caps,accepted_ms)"
        " VALUES(?,?,?,?,?,?,?,?,?,?,?,?,?,?,?," CN_LEDGER_SQL_DATE ")",
        "ittbiidiidiiiii", (int64_t)c->round, c->group, c->board, c->digest, (int64_t)c->size,
        (int64_t)c->weight, c->held_out_loss, (int64_t)c->held_out_correct,
        (int64_t)c->held_out_count, c->train_loss, (int64_t)c->boards, (int64_t)c->steps,
        (int64_t)version_of(c), (int64_t)c->down_bps, (int64_t)CN_LEDGER_CAPS);
    return err ? err : cn_ledger_sql_finish(ledger, statement);
}

// Replaces what the source measured of the version before, also by nothing: the loss beside it is
// replaced as well.
static cn_err put_measures(struct cn_ledger *ledger, uint32_t version, const char *source,
                           uint64_t rows, const struct cn_measures *m)
{
    bool none = !rows || (m->top5 <= 0 && m->f1 <= 0 && m->mae <= 0 && m->perplexity <= 0);
    sqlite3_stmt *statement;
    cn_err err;
    if (none)
        err = cn_ledger_sql_prepare(ledger, &statement,
                                    "DELETE FROM measure WHERE version=? AND source=?", "it",
                                    (int64_t)version, source);
    else
        err = cn_ledger_sql_prepare(ledger, &statement,
                                    "INSERT OR REPLACE INTO measure(version,source,rows,top5,f1,"
                                    "mae,perplexity) VALUES(?,?,?,?,?,?,?)",
                                    "itidddd", (int64_t)version, source, (int64_t)rows, m->top5,
                                    m->f1, m->mae, m->perplexity);
    return err ? err : cn_ledger_sql_finish(ledger, statement);
}

cn_err cn_ledger_accept(struct cn_ledger *ledger, const struct cn_ledger_contribution *contribution)
{
    cn_err err = cn_ledger_sql_run(ledger, "BEGIN IMMEDIATE");
    if (err)
        return err;
    err = require_open(ledger, version_of(contribution));
    if (!err)
        err = require_member(ledger, contribution);
    if (!err)
        err = insert_contribution(ledger, contribution);
    if (!err && contribution->version)
        err = cn_ledger_sql_delivered(ledger, contribution);
    if (!err)
        err = cn_ledger_sql_control(ledger, contribution);
    if (!err && contribution->round) // beside the loss, which read_boards finds by the version
        err = put_measures(ledger, version_of(contribution) - 1, contribution->group,
                           contribution->held_out_count, &contribution->measures);
    return cn_ledger_sql_end(ledger, err);
}

cn_err cn_ledger_first_measured(struct cn_ledger *ledger, const char *group, uint64_t *samples)
{
    sqlite3_stmt *statement;
    cn_err err =
        cn_ledger_sql_prepare(ledger, &statement,
                              "SELECT max(1,held_out_count/max(boards,1)) FROM contribution WHERE "
                              "grp=? AND held_out_count>0 ORDER BY round LIMIT 1",
                              "t", group);
    *samples = 0;
    return err ? err : cn_ledger_sql_number(ledger, statement, samples);
}

#define OTHER_COLUMNS                                                                              \
    "grp,board,digest,size,weight,held_out_loss,held_out_correct,held_out_count,train_loss,"       \
    "boards,steps,version,caps"
#define CONTRIBUTION_COLUMNS "round," OTHER_COLUMNS

static cn_err read_contribution(sqlite3_stmt *statement, struct cn_ledger_contribution *c)
{
    c->round = (uint32_t)sqlite3_column_int64(statement, 0);
    cn_err err = cn_ledger_sql_name(statement, 1, c->group);
    if (!err)
        err = cn_ledger_sql_name(statement, 2, c->board);
    if (!err)
        err = cn_ledger_sql_bytes(statement, 3, c->digest);
    c->size = (uint64_t)sqlite3_column_int64(statement, 4);
    c->weight = (uint64_t)sqlite3_column_int64(statement, 5);
    c->held_out_loss = sqlite3_column_double(statement, 6);
    c->held_out_correct = (uint64_t)sqlite3_column_int64(statement, 7);
    c->held_out_count = (uint64_t)sqlite3_column_int64(statement, 8);
    c->train_loss = sqlite3_column_double(statement, 9);
    c->boards = (uint32_t)sqlite3_column_int64(statement, 10);
    c->steps = (uint64_t)sqlite3_column_int64(statement, 11);
    c->version = (uint32_t)sqlite3_column_int64(statement, 12);
    c->caps = (uint32_t)sqlite3_column_int64(statement, 13);
    return err;
}

static cn_err find_contribution(struct cn_ledger *ledger, const char *sql, uint32_t number,
                                const char *group, struct cn_ledger_contribution *contribution)
{
    sqlite3_stmt *statement;
    cn_err err = cn_ledger_sql_prepare(ledger, &statement, sql, "it", (int64_t)number, group);
    if (err)
        return err;
    err = cn_ledger_sql_step(ledger, statement);
    if (!err)
        err = read_contribution(statement, contribution);
    sqlite3_finalize(statement);
    return err;
}

cn_err cn_ledger_find_contribution(struct cn_ledger *ledger, uint32_t round, const char *group,
                                   struct cn_ledger_contribution *contribution)
{
    return find_contribution(
        ledger, "SELECT " CONTRIBUTION_COLUMNS " FROM contribution WHERE round=? AND grp=?", round,
        group, contribution);
}

cn_err cn_ledger_find_part(struct cn_ledger *ledger, uint32_t version, const char *group,
                           struct cn_ledger_contribution *contribution)
{
    return find_contribution(
        ledger, "SELECT " CONTRIBUTION_COLUMNS " FROM contribution WHERE version=? AND grp=?",
        version, group, contribution);
}

// Visits the contributions that a statement with one number selects.
static cn_err visit_contributions(struct cn_ledger *ledger, const char *sql, uint32_t number,
                                  cn_ledger_contribution_visit *visit, void *context)
{
    sqlite3_stmt *statement;
    cn_err err = cn_ledger_sql_prepare(ledger, &statement, sql, "i", (int64_t)number);
    if (err)
        return err;
    struct cn_ledger_contribution contribution;
    bool more;
    while (!(err = cn_ledger_sql_next(ledger, statement, &more)) && more) {
        err = read_contribution(statement, &contribution);
        if (!err)
            err = visit(context, &contribution);
        if (err)
            break;
    }
    sqlite3_finalize(statement);
    return err;
}

cn_err cn_ledger_contributions(struct cn_ledger *ledger, uint32_t version,
                               cn_ledger_contribution_visit *visit, void *context)
{
    return visit_contributions(
        ledger, "SELECT " CONTRIBUTION_COLUMNS " FROM contribution WHERE version=? ORDER BY grp",
        version, visit, context);
}

cn_err cn_ledger_measured(struct cn_ledger *ledger, uint32_t from,
                          cn_ledger_contribution_visit *visit, void *context)
{
    // SQLite takes the other columns from the row that has the maximum.
    return visit_contributions(ledger,
                               "SELECT max(round)," OTHER_COLUMNS
                               " FROM contribution WHERE round>=? AND held_out_count>0 GROUP BY "
                               "grp ORDER BY grp",
                               from, visit, context);
}

uint32_t cn_ledger_measured_version(const struct cn_ledger_contribution *contribution)
{
    return contribution->round - 1;
}

cn_err cn_ledger_count(struct cn_ledger *ledger, uint32_t round, uint32_t *selected,
                       uint32_t *accepted)
{
    sqlite3_stmt *statement;
    cn_err err = cn_ledger_sql_prepare(ledger, &statement,
                                       "SELECT (SELECT count(*) FROM selection WHERE round=?1),"
                                       "(SELECT count(*) FROM contribution WHERE version=?1)",
                                       "i", (int64_t)round);
    if (err)
        return err;
    err = cn_ledger_sql_step(ledger, statement);
    *selected = (uint32_t)sqlite3_column_int64(statement, 0);
    *accepted = (uint32_t)sqlite3_column_int64(statement, 1);
    sqlite3_finalize(statement);
    return err;
}

cn_err cn_ledger_outcome(struct cn_ledger *ledger, const char *group,
                         struct cn_ledger_outcome *outcome)
{
    memset(outcome, 0, sizeof(*outcome));
    sqlite3_stmt *statement;
    cn_err err = cn_ledger_sql_prepare(
        ledger, &statement,
        "SELECT s.round,c.digest FROM selection s JOIN round r ON r.number=s.round"
        " LEFT JOIN contribution c ON c.round=s.round AND c.grp=s.grp"
        " WHERE s.grp=? AND (c.digest IS NOT NULL OR r.state<>0) ORDER BY s.round DESC LIMIT 1",
        "t", group);
    if (err)
        return err;
    err = cn_ledger_sql_step(ledger, statement);
    if (!err) {
        outcome->round = (uint32_t)sqlite3_column_int64(statement, 0);
        outcome->accepted = sqlite3_column_type(statement, 1) != SQLITE_NULL;
        if (outcome->accepted)
            err = cn_ledger_sql_bytes(statement, 1, outcome->digest);
    }
    sqlite3_finalize(statement);
    return err == CN_ENOTFOUND ? CN_OK : err;
}

cn_err cn_ledger_sql_add_version(struct cn_ledger *ledger, const struct cn_ledger_version *v)
{
    sqlite3_stmt *statement;
    cn_err err = cn_ledger_sql_prepare(
        ledger, &statement,
        "INSERT INTO version(number,digest,parent,delta_digest,delta_size,bytes_in,bytes_out,"
        "loss,correct,count,state_digest,made_ms)"
        " VALUES(?,?,?,?,?,?,?,?,?,?,?," CN_LEDGER_SQL_DATE ")",
        "ibbbiiidiib", (int64_t)v->number, v->digest, v->parent, v->delta_digest,
        (int64_t)v->delta_size, (int64_t)v->bytes_in, (int64_t)v->bytes_out, v->central.loss,
        (int64_t)v->central.correct, (int64_t)v->central.count, v->state_digest);
    return err ? err : cn_ledger_sql_finish(ledger, statement);
}

static cn_err mark_merged(struct cn_ledger *ledger, uint32_t number)
{
    sqlite3_stmt *statement;
    cn_err err = cn_ledger_sql_prepare(ledger, &statement,
                                       "UPDATE round SET state=2 WHERE number=? AND state=1", "i",
                                       (int64_t)number);
    return err ? err : cn_ledger_sql_finish(ledger, statement);
}

cn_err cn_ledger_add_version(struct cn_ledger *ledger, const struct cn_ledger_version *version)
{
    cn_err err = cn_ledger_sql_run(ledger, "BEGIN IMMEDIATE");
    if (err)
        return err;
    err = cn_ledger_sql_add_version(ledger, version);
    if (!err)
        err = mark_merged(ledger, version->number);
    return cn_ledger_sql_end(ledger, err);
}

#define VERSION_QUERY                                                                              \
    "SELECT number,digest,parent,delta_digest,delta_size,bytes_in,bytes_out,loss,correct,count,"   \
    "state_digest FROM version "

// Reads the median of what the groups measured whose updates made a version. Each group counts with
// the mean over its samples. Of two middle values it takes the worse one.
static cn_err read_middle(struct cn_ledger *ledger, uint32_t round, enum cn_ledger_kept which,
                          const char *sql, double *middle, uint64_t *groups)
{
    sqlite3_stmt *statement;
    const int64_t number = round;
    cn_err err = cn_ledger_sql_reuse(ledger, which, sql, &number, 1, &statement);
    if (err)
        return err;
    err = cn_ledger_sql_step(ledger, statement);
    *middle = sqlite3_column_double(statement, 0);
    *groups = err ? 0 : (uint64_t)sqlite3_column_int64(statement, 1);
    sqlite3_reset(statement);
    return err == CN_ENOTFOUND ? CN_OK : err;
}

#define MEASURED " FROM contribution WHERE version=?1 AND held_out_count>0"
#define MIDDLE(value, worse_first)                                                                 \
    "SELECT " value ",(SELECT count(*)" MEASURED ")" MEASURED " ORDER BY " value worse_first       \
    " LIMIT 1 OFFSET (SELECT (count(*)-1)/2" MEASURED ")"

// Reads what the groups measured whose updates made version number + 1: version number, or in an
// asynchronous run also an earlier one. Each group counts as one, however many samples it claims.
static cn_err read_boards(struct cn_ledger *ledger, uint32_t number,
                          struct cn_ledger_metrics *boards, uint32_t *measured_by)
{
    double loss = 0, accuracy = 0;
    uint64_t groups = 0;
    *measured_by = 0;
    cn_err err = read_middle(ledger, number + 1, CN_LEDGER_KEPT_LOSS,
                             MIDDLE("held_out_loss/held_out_count", " DESC"), &loss, &groups);
    if (!err)
        err =
            read_middle(ledger, number + 1, CN_LEDGER_KEPT_ACCURACY,
                        MIDDLE("1.0*held_out_correct/held_out_count", " ASC"), &accuracy, &groups);
    if (err || groups == 0)
        return err;
    *measured_by = (uint32_t)groups;
    boards->count = CN_LEDGER_MEDIAN;
    boards->loss = loss * CN_LEDGER_MEDIAN;
    boards->correct = (uint64_t)(accuracy * CN_LEDGER_MEDIAN + 0.5);
    return CN_OK;
}

// Reads means over the samples of the central set, or of the groups of read_boards.
// From three groups on, a group counts for at most the median of the groups' samples per board.
#define MEASURES                                                                                   \
    "WITH m AS (SELECT measure.*,max(1,ifnull(boards,1)) AS b FROM measure LEFT JOIN "             \
    "contribution c ON c.version=measure.version+1 AND grp=source WHERE measure.version=? AND "    \
    "(source='')=?),"                                                                              \
    "w AS (SELECT max(1,rows/b) AS each FROM m ORDER BY each LIMIT 1 OFFSET "                      \
    "(SELECT (count(*)-1)/2 FROM m)),"                                                             \
    "n AS (SELECT *,CASE WHEN (SELECT count(*) FROM m)<3 THEN rows "                               \
    "ELSE min(rows,(SELECT each FROM w)*b) END AS r FROM m) "                                      \
    "SELECT total(top5*r)/sum(r),total(f1*r)/sum(r),total(mae*r)/sum(r),"                          \
    "total(perplexity*r)/sum(r) FROM n"
static cn_err read_measures(struct cn_ledger *ledger, uint32_t version, bool central,
                            struct cn_measures *measures)
{
    sqlite3_stmt *statement;
    const int64_t numbers[] = {version, central};
    cn_err err =
        cn_ledger_sql_reuse(ledger, CN_LEDGER_KEPT_MEASURES, MEASURES, numbers, 2, &statement);
    if (err)
        return err;
    err = cn_ledger_sql_step(ledger, statement);
    if (!err)
        *measures = (struct cn_measures){
            .top5 = sqlite3_column_double(statement, 0),
            .f1 = sqlite3_column_double(statement, 1),
            .mae = sqlite3_column_double(statement, 2),
            .perplexity = sqlite3_column_double(statement, 3),
        };
    sqlite3_reset(statement);
    return err;
}

static cn_err read_version(struct cn_ledger *ledger, sqlite3_stmt *statement,
                           struct cn_ledger_version *v)
{
    cn_err err = cn_ledger_sql_step(ledger, statement);
    if (!err) {
        v->number = (uint32_t)sqlite3_column_int64(statement, 0);
        err = cn_ledger_sql_bytes(statement, 1, v->digest);
    }
    if (!err)
        err = cn_ledger_sql_bytes(statement, 2, v->parent);
    if (!err)
        err = cn_ledger_sql_bytes(statement, 3, v->delta_digest);
    v->delta_size = (uint64_t)sqlite3_column_int64(statement, 4);
    v->bytes_in = (uint64_t)sqlite3_column_int64(statement, 5);
    v->bytes_out = (uint64_t)sqlite3_column_int64(statement, 6);
    v->central.loss = sqlite3_column_double(statement, 7);
    v->central.correct = (uint64_t)sqlite3_column_int64(statement, 8);
    v->central.count = (uint64_t)sqlite3_column_int64(statement, 9);
    memset(v->state_digest, 0, sizeof(v->state_digest));
    if (!err && sqlite3_column_type(statement, 10) != SQLITE_NULL)
        err = cn_ledger_sql_bytes(statement, 10, v->state_digest);
    v->boards = (struct cn_ledger_metrics){0};
    sqlite3_finalize(statement);
    if (!err)
        err = read_boards(ledger, v->number, &v->boards, &v->measured_by);
    if (!err)
        err = read_measures(ledger, v->number, true, &v->central.measures);
    if (!err)
        err = read_measures(ledger, v->number, false, &v->boards.measures);
    return err;
}

cn_err cn_ledger_find_version(struct cn_ledger *ledger, uint32_t number,
                              struct cn_ledger_version *version)
{
    sqlite3_stmt *statement;
    cn_err err = cn_ledger_sql_prepare(ledger, &statement, VERSION_QUERY "WHERE number=?", "i",
                                       (int64_t)number);
    return err ? err : read_version(ledger, statement, version);
}

cn_err cn_ledger_find_digest(struct cn_ledger *ledger, uint32_t version,
                             uint8_t digest[CN_DIGEST_SIZE])
{
    sqlite3_stmt *statement;
    cn_err err = cn_ledger_sql_prepare(
        ledger, &statement, "SELECT digest FROM version WHERE number=?", "i", (int64_t)version);
    if (err)
        return err;
    err = cn_ledger_sql_step(ledger, statement);
    if (!err)
        err = cn_ledger_sql_bytes(statement, 0, digest);
    sqlite3_finalize(statement);
    return err;
}

cn_err cn_ledger_newest_version(struct cn_ledger *ledger, struct cn_ledger_version *version)
{
    sqlite3_stmt *statement;
    cn_err err =
        cn_ledger_sql_prepare(ledger, &statement, VERSION_QUERY "ORDER BY number DESC LIMIT 1", "");
    return err ? err : read_version(ledger, statement, version);
}

static cn_err update_central(struct cn_ledger *ledger, uint32_t number,
                             const struct cn_ledger_metrics *metrics)
{
    sqlite3_stmt *statement;
    cn_err err = cn_ledger_sql_prepare(
        ledger, &statement, "UPDATE version SET loss=?,correct=?,count=? WHERE number=?", "diii",
        metrics->loss, (int64_t)metrics->correct, (int64_t)metrics->count, (int64_t)number);
    return err ? err : cn_ledger_sql_finish(ledger, statement);
}

cn_err cn_ledger_set_central(struct cn_ledger *ledger, uint32_t number,
                             const struct cn_ledger_metrics *metrics)
{
    cn_err err = cn_ledger_sql_run(ledger, "BEGIN IMMEDIATE");
    if (err)
        return err;
    err = update_central(ledger, number, metrics);
    if (!err)
        err = put_measures(ledger, number, "", metrics->count, &metrics->measures);
    return cn_ledger_sql_end(ledger, err);
}
