// ledger_sql.h - SQL helpers of the ledger's files, and of files that keep a table of their own in
// the ledger or copy its file.
#pragma once

#include <sqlite3.h>

#include "aggregator/ledger/ledger.h"

// The machine's date in milliseconds since 1970. It is stored for people only: no decision reads
// it.
#define CN_LEDGER_SQL_DATE "CAST((julianday('now')-2440587.5)*86400000+0.5 AS INTEGER)"

// Statements that a ledger keeps: preparing them takes several times as long as running them, and
// each version that is read runs all of them.
enum cn_ledger_kept {
    CN_LEDGER_KEPT_LOSS,
    CN_LEDGER_KEPT_ACCURACY,
    CN_LEDGER_KEPT_MEASURES,
    CN_LEDGER_KEPT_COUNT,
};

struct cn_ledger {
    sqlite3 *db;
    struct cn_ledger_identity identity;
    sqlite3_stmt *kept[CN_LEDGER_KEPT_COUNT]; // NULL: not prepared yet
};

// Prepares sql and binds one value for each letter of types: 'i' int64_t, 'd' double, 't' const
// char *, 'b' const uint8_t[32]. Text and bytes are borrowed until the statement is finalised. On
// an error *statement is NULL.
cn_err cn_ledger_sql_prepare(struct cn_ledger *ledger, sqlite3_stmt **statement, const char *sql,
                             const char *types, ...);

// Finds the kept statement `which`, or prepares it at its first use, and binds count numbers. sql
// must be the same in each call for one `which`. End its use with sqlite3_reset. On an error
// *statement is NULL.
cn_err cn_ledger_sql_reuse(struct cn_ledger *ledger, enum cn_ledger_kept which, const char *sql,
                           const int64_t *numbers, int count, sqlite3_stmt **statement);

// Steps a statement. Returns CN_OK for a row and CN_ENOTFOUND after the last one.
cn_err cn_ledger_sql_step(struct cn_ledger *ledger, sqlite3_stmt *statement);

// As cn_ledger_sql_step, but says in more whether there is a row, and returns CN_OK after the last
// one. For walks whose visitor may return CN_ENOTFOUND for its own reasons.
cn_err cn_ledger_sql_next(struct cn_ledger *ledger, sqlite3_stmt *statement, bool *more);

// Steps a statement that returns no rows, and finalises it.
cn_err cn_ledger_sql_finish(struct cn_ledger *ledger, sqlite3_stmt *statement);

// Reads the number that a query has found, 0 if it found none, and finalises it.
cn_err cn_ledger_sql_number(struct cn_ledger *ledger, sqlite3_stmt *statement, uint64_t *number);

// Runs SQL that needs no values; several statements may be separated by semicolons.
cn_err cn_ledger_sql_run(struct cn_ledger *ledger, const char *sql);

// Ends a transaction: commits when err is CN_OK, otherwise rolls back. Returns the first error.
cn_err cn_ledger_sql_end(struct cn_ledger *ledger, cn_err err);

// Adds a version within the caller's transaction.
cn_err cn_ledger_sql_add_version(struct cn_ledger *ledger, const struct cn_ledger_version *version);

// Records within the caller's transaction that a group of an asynchronous run has delivered.
cn_err cn_ledger_sql_delivered(struct cn_ledger *ledger, const struct cn_ledger_contribution *c);

// Notes within the caller's transaction if a group of a job with control variates has lost its
// variate, so that the next round begins another epoch (control_epochs.h).
cn_err cn_ledger_sql_control(struct cn_ledger *ledger, const struct cn_ledger_contribution *c);

// Finalises a statement whose rows are a group's name and a round, after it called visit for each.
// An error of visit ends the walk and is returned.
cn_err cn_ledger_sql_visit_rounds(struct cn_ledger *ledger, sqlite3_stmt *statement,
                                  cn_ledger_round_visit *visit, void *context);

// Read a column. A column of the wrong type or size gives CN_EFORMAT.
cn_err cn_ledger_sql_bytes(sqlite3_stmt *statement, int column, uint8_t bytes[32]);
cn_err cn_ledger_sql_name(sqlite3_stmt *statement, int column, char name[CN_NAME_SIZE]);
