#include "aggregator/ledger/control_epochs.h"

#include <stdio.h>
#include <string.h>

#include "aggregator/ledger/ledger_sql.h"
#include "aggregator/ledger/rulings.h"

// A row of the table: an epoch and how far it goes.
struct row {
    struct cn_control_epoch epoch;
    uint32_t last;                   // newest round of the epoch
    uint8_t members[CN_DIGEST_SIZE]; // digest of the names of the groups
    char lost[CN_NAME_SIZE];         // group whose variate was lost; "": none
};

static cn_err read_row(sqlite3_stmt *statement, struct row *row)
{
    *row = (struct row){
        .epoch = {(uint32_t)sqlite3_column_int64(statement, 0),
                  (uint32_t)sqlite3_column_int64(statement, 2)},
        .last = (uint32_t)sqlite3_column_int64(statement, 1),
    };
    if (sqlite3_column_bytes(statement, 4) > 0) {
        cn_err err = cn_ledger_sql_name(statement, 4, row->lost);
        if (err)
            return err;
    }
    return cn_ledger_sql_bytes(statement, 3, row->members);
}

// Finds the newest epoch that began in a round or before.
static cn_err find_row(struct cn_ledger *ledger, uint32_t round, struct row *row)
{
    sqlite3_stmt *statement;
    cn_err err = cn_ledger_sql_prepare(
        ledger, &statement,
        "SELECT from_round,last_round,groups,members,lost FROM control_epoch WHERE from_round<=?"
        " ORDER BY from_round DESC LIMIT 1",
        "i", (int64_t)round);

    if (err)
        return err;
    err = cn_ledger_sql_step(ledger, statement);
    if (!err)
        err = read_row(statement, row);
    sqlite3_finalize(statement);
    return err;
}

// Reads the groups that have a board which is not revoked.
static cn_err read_groups(struct cn_ledger *ledger, struct row *row)
{
    struct cn_sha256 sha;
    sqlite3_stmt *statement;
    bool more;
    cn_err err = cn_ledger_sql_prepare(
        ledger, &statement, "SELECT DISTINCT grp FROM board WHERE revoked=0 ORDER BY grp", "");

    if (err)
        return err;
    cn_sha256_init(&sha);
    while (!(err = cn_ledger_sql_next(ledger, statement, &more)) && more) {
        char name[CN_NAME_SIZE];

        err = cn_ledger_sql_name(statement, 0, name);
        if (err)
            break;
        cn_sha256_add(&sha, name, strlen(name) + 1);
        row->epoch.groups++;
    }
    sqlite3_finalize(statement);
    cn_sha256_finish(&sha, row->members);
    return err;
}

static cn_err write_row(struct cn_ledger *ledger, const struct row *row)
{
    sqlite3_stmt *statement;
    cn_err err = cn_ledger_sql_prepare(
        ledger, &statement,
        "INSERT INTO control_epoch(from_round,last_round,groups,members,lost)"
        " VALUES(?1,?2,?3,?4,'') ON CONFLICT(from_round) DO UPDATE SET last_round=?2",
        "iiib", (int64_t)row->epoch.begun, (int64_t)row->last, (int64_t)row->epoch.groups,
        row->members);

    return err ? err : cn_ledger_sql_finish(ledger, statement);
}

// Writes why the epoch before does not go on, or "" if it does.
static cn_err find_reason(struct cn_ledger *ledger, uint32_t round, const struct row *before,
                          const struct row *now, char why[CN_CONTROL_TEXT])
{
    struct cn_ruling ruling;
    cn_err err = cn_ruling_find(ledger, round - 1, &ruling);

    why[0] = '\0';
    if (err && err != CN_ENOTFOUND)
        return err;
    if (!before->epoch.begun || before->last != round - 1)
        snprintf(why, CN_CONTROL_TEXT, "the round before had none");
    else if (before->lost[0])
        snprintf(why, CN_CONTROL_TEXT, "group %s has lost its own", before->lost);
    else if (memcmp(before->members, now->members, CN_DIGEST_SIZE) != 0)
        snprintf(why, CN_CONTROL_TEXT, "%u groups are enrolled, and others than before",
                 now->epoch.groups);
    else if (!err)
        snprintf(why, CN_CONTROL_TEXT, "version %u was not made of updates", round - 1);
    return CN_OK;
}

static cn_err open_epoch(struct cn_ledger *ledger, uint32_t round, struct cn_control_epoch *epoch,
                         char why[CN_CONTROL_TEXT])
{
    struct row before = {0}, now = {.epoch.begun = round, .last = round};
    cn_err err = find_row(ledger, round, &before);

    if (err && err != CN_ENOTFOUND)
        return err;
    if (!err && before.last >= round) { // an earlier start of the program opened it
        *epoch = before.epoch;
        return CN_OK;
    }
    err = read_groups(ledger, &now);
    if (!err)
        err = find_reason(ledger, round, &before, &now, why);
    if (err)
        return err;
    if (!why[0]) {
        now = before;
        now.last = round;
    }
    *epoch = now.epoch;
    return write_row(ledger, &now);
}

cn_err cn_control_epoch_open(struct cn_ledger *ledger, uint32_t round,
                             struct cn_control_epoch *epoch, char why[CN_CONTROL_TEXT])
{
    cn_err err = cn_ledger_sql_run(ledger, "BEGIN IMMEDIATE");

    why[0] = '\0';
    return err ? err : cn_ledger_sql_end(ledger, open_epoch(ledger, round, epoch, why));
}

cn_err cn_control_epoch_find(struct cn_ledger *ledger, uint32_t round,
                             struct cn_control_epoch *epoch)
{
    struct row row;
    cn_err err = find_row(ledger, round, &row);

    if (!err && row.last < round)
        err = CN_ENOTFOUND;
    if (!err)
        *epoch = row.epoch;
    return err;
}

cn_err cn_ledger_sql_control(struct cn_ledger *ledger, const struct cn_ledger_contribution *c)
{
    sqlite3_stmt *statement;
    cn_err err = cn_ledger_sql_prepare(
        ledger, &statement,
        "UPDATE control_epoch SET lost=?2 WHERE from_round<=?1 AND last_round>=?1 AND lost='' AND"
        " NOT (from_round=?3 AND ?4=(SELECT count(*) FROM contribution WHERE grp=?2 AND"
        " version>=from_round AND version<?1))",
        "itii", (int64_t)c->round, c->group, (int64_t)c->control_epoch, (int64_t)c->control_count);

    return err ? err : cn_ledger_sql_finish(ledger, statement);
}
