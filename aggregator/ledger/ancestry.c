#include "aggregator/ledger/ancestry.h"

#include "aggregator/ledger/ledger_sql.h"

// The rollbacks that led to the newest version: the newest one, and from its source backwards.
// UNION ends the walk also where rows of a damaged ledger lead in a circle.
#define LED                                                                                        \
    "WITH RECURSIVE led(version,source) AS (SELECT version,source FROM ruling WHERE version="      \
    "(SELECT max(version) FROM ruling WHERE kind=2) UNION SELECT ruling.version,ruling.source "    \
    "FROM led JOIN ruling ON ruling.version="                                                      \
    "(SELECT max(version) FROM ruling WHERE kind=2 AND version<=led.source)) "

cn_err cn_ancestry_parent(struct cn_ledger *ledger, uint32_t version, uint32_t *parent, bool *ruled)
{
    struct cn_ruling ruling;
    cn_err err = cn_ruling_find(ledger, version, &ruling);
    if (err && err != CN_ENOTFOUND)
        return err;
    *ruled = !err;
    *parent = *ruled ? ruling.source : version - 1;
    return *parent < version ? CN_OK : CN_EFORMAT;
}

cn_err cn_ancestry_find_gap(struct cn_ledger *ledger, uint32_t number, struct cn_ancestry_gap *gap)
{
    sqlite3_stmt *statement;
    cn_err err = cn_ledger_sql_prepare(
        ledger, &statement,
        LED "SELECT source,version FROM led WHERE version>? ORDER BY version LIMIT 1", "i",
        (int64_t)number);
    if (err)
        return err;
    err = cn_ledger_sql_step(ledger, statement);
    if (!err) {
        gap->source = (uint32_t)sqlite3_column_int64(statement, 0);
        gap->version = (uint32_t)sqlite3_column_int64(statement, 1);
        err = gap->source < gap->version ? CN_OK : CN_EFORMAT;
    }
    sqlite3_finalize(statement);
    return err;
}
