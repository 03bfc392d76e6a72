#include "aggregator/ledger/downlinks.h"

#include "aggregator/ledger/ledger_sql.h"

#define COLUMNS "version,mode,density,value_bits,roomy,link_bps,budget,size"

// Takes a statement that returns a row of COLUMNS, and finalises it.
static cn_err read_downlink(struct cn_ledger *ledger, sqlite3_stmt *statement,
                            struct cn_downlink *downlink)
{
    cn_err err = cn_ledger_sql_step(ledger, statement);
    *downlink = (struct cn_downlink){0};
    if (!err)
        *downlink = (struct cn_downlink){
            .version = (uint32_t)sqlite3_column_int64(statement, 0),
            .rule = {(enum cn_update_mode)sqlite3_column_int(statement, 1),
                     sqlite3_column_double(statement, 2),
                     (uint32_t)sqlite3_column_int64(statement, 3)},
            .roomy = (uint32_t)sqlite3_column_int64(statement, 4),
            .link_bps = (uint64_t)sqlite3_column_int64(statement, 5),
            .budget = (uint64_t)sqlite3_column_int64(statement, 6),
            .size = (uint64_t)sqlite3_column_int64(statement, 7),
        };
    sqlite3_finalize(statement);
    return err;
}

cn_err cn_downlinks_find(struct cn_ledger *ledger, uint32_t version, struct cn_downlink *downlink)
{
    sqlite3_stmt *statement;
    cn_err err = cn_ledger_sql_prepare(ledger, &statement,
                                       "SELECT " COLUMNS " FROM downlink WHERE version=?", "i",
                                       (int64_t)version);
    return err ? err : read_downlink(ledger, statement, downlink);
}

cn_err cn_downlinks_newest(struct cn_ledger *ledger, struct cn_downlink *downlink)
{
    sqlite3_stmt *statement;
    cn_err err = cn_ledger_sql_prepare(
        ledger, &statement, "SELECT " COLUMNS " FROM downlink ORDER BY version DESC LIMIT 1", "");
    return err ? err : read_downlink(ledger, statement, downlink);
}

cn_err cn_downlinks_since(struct cn_ledger *ledger, uint32_t *version)
{
    sqlite3_stmt *statement;
    cn_err err = cn_ledger_sql_prepare(
        ledger, &statement,
        "WITH newest AS (SELECT mode,density,value_bits FROM downlink ORDER BY version DESC LIMIT "
        "1)"
        " SELECT min(version) FROM downlink WHERE version>ifnull((SELECT max(version) FROM downlink"
        " WHERE (mode,density,value_bits) NOT IN newest),0)",
        "");
    uint64_t number = 0;
    if (!err)
        err = cn_ledger_sql_number(ledger, statement, &number);
    *version = (uint32_t)number;
    return err;
}

cn_err cn_downlinks_add(struct cn_ledger *ledger, const struct cn_downlink *downlink)
{
    sqlite3_stmt *statement;
    cn_err err = cn_ledger_sql_prepare(
        ledger, &statement, "INSERT INTO downlink(" COLUMNS ") VALUES(?,?,?,?,?,?,?,?)", "iidiiiii",
        (int64_t)downlink->version, (int64_t)downlink->rule.mode, downlink->rule.density,
        (int64_t)downlink->rule.value_bits, (int64_t)downlink->roomy, (int64_t)downlink->link_bps,
        (int64_t)downlink->budget, (int64_t)downlink->size);
    return err ? err : cn_ledger_sql_finish(ledger, statement);
}

cn_err cn_downlinks_goodput(struct cn_ledger *ledger, uint32_t version, uint64_t *bps)
{
    int64_t after = (int64_t)version - CN_DOWNLINKS_RECENT;
    sqlite3_stmt *statement;
    // A column beside the only max() comes from the row that has the maximum (SQLite, SELECT, 3.1).
    cn_err err = cn_ledger_sql_prepare(
        ledger, &statement,
        "WITH link AS (SELECT down_bps AS bps,max(version) FROM contribution WHERE version>? AND"
        " version<=? AND down_bps>0 GROUP BY grp)"
        " SELECT bps FROM link ORDER BY bps LIMIT 1"
        " OFFSET (SELECT max(count(*)-1,0)/4 FROM link)",
        "ii", after, (int64_t)version);
    *bps = 0;
    return err ? err : cn_ledger_sql_number(ledger, statement, bps);
}
