#include "aggregator/ledger/ledger.h"

#include <errno.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "aggregator/ledger/ledger_sql.h"
#include "aggregator/ledger/pinned_vfs.h"
#include "runtime/base/log.h"

#define BUSY_TIMEOUT_MS 5000

static const char schema[] =
    "CREATE TABLE meta(id INTEGER PRIMARY KEY CHECK(id=1), run INTEGER NOT NULL,"
    " lineage INTEGER NOT NULL, master BLOB NOT NULL, graph BLOB, job BLOB) STRICT;"
    "CREATE TABLE board(sequence INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT NOT NULL UNIQUE,"
    " grp TEXT NOT NULL, secret BLOB NOT NULL, max_weight INTEGER NOT NULL,"
    " revoked INTEGER NOT NULL) STRICT;"
    "CREATE TABLE round(number INTEGER PRIMARY KEY, state INTEGER NOT NULL) STRICT;"
    "CREATE TABLE selection(round INTEGER NOT NULL REFERENCES round(number), grp TEXT NOT NULL,"
    " PRIMARY KEY(round,grp)) STRICT, WITHOUT ROWID;"
    "CREATE INDEX selection_group ON selection(grp,round);"
    "CREATE TABLE contribution(round INTEGER NOT NULL REFERENCES round(number), grp TEXT NOT NULL,"
    " board TEXT NOT NULL, digest BLOB NOT NULL, size INTEGER NOT NULL, weight INTEGER NOT NULL,"
    " held_out_loss REAL NOT NULL, held_out_correct INTEGER NOT NULL,"
    " held_out_count INTEGER NOT NULL, train_loss REAL NOT NULL,"
    " PRIMARY KEY(round,grp)) STRICT, WITHOUT ROWID;"
    "CREATE TABLE version(number INTEGER PRIMARY KEY, digest BLOB NOT NULL UNIQUE,"
    " parent BLOB NOT NULL, delta_digest BLOB NOT NULL, delta_size INTEGER NOT NULL,"
    " bytes_in INTEGER NOT NULL, bytes_out INTEGER NOT NULL, loss REAL NOT NULL,"
    " correct INTEGER NOT NULL, count INTEGER NOT NULL) STRICT;";

// Schema 2 counts how often a group's pair keys were changed; no row: never. A program that does
// not know the table would hand out keys that a revoked board has, so it must not open the file.
static const char schema_2[] =
    "CREATE TABLE key_epoch(grp TEXT PRIMARY KEY, raised INTEGER NOT NULL) STRICT, WITHOUT ROWID;";

// Schema 3 records which job values hold from which round on. Earlier schemas kept only their
// digest, in meta, one for the whole run. A program that does not know the table would take changed
// values as unchanged, so it must not open the file.
static const char schema_3[] =
    "CREATE TABLE setting(from_round INTEGER PRIMARY KEY, digest BLOB NOT NULL, job TEXT) STRICT;"
    "INSERT INTO setting SELECT 1,job,NULL FROM meta WHERE job IS NOT NULL;"
    "ALTER TABLE meta DROP COLUMN job;"
    "PRAGMA user_version=3";

// Schema 4 records versions that were not made of updates: refused by the gate (kind 1), or rolled
// back (kind 2). A program that does not know the table would make them of updates.
static const char schema_4[] =
    "CREATE TABLE ruling(version INTEGER PRIMARY KEY, kind INTEGER NOT NULL,"
    " source INTEGER NOT NULL, loss REAL NOT NULL, accuracy REAL NOT NULL, reason TEXT NOT NULL)"
    " STRICT;"
    "CREATE TABLE rollback(id INTEGER PRIMARY KEY CHECK(id=1), source INTEGER NOT NULL,"
    " reason TEXT NOT NULL) STRICT;"
    "PRAGMA user_version=4";

// Schema 5 records into which version each update went: with asynchronous rounds it may be a later
// one than that of its round. A program that does not know the column would make versions of other
// updates. training has the round that each group trains for then.
static const char schema_5[] =
    "ALTER TABLE contribution ADD COLUMN version INTEGER NOT NULL DEFAULT 0;"
    "UPDATE contribution SET version=round;"
    "CREATE UNIQUE INDEX contribution_version ON contribution(version,grp);"
    "CREATE TABLE training(grp TEXT PRIMARY KEY, round INTEGER NOT NULL) STRICT, WITHOUT ROWID;"
    "PRAGMA user_version=5";

// Tables that were added within a schema: older programs ignore them, so the schema's number stays.
// The source of a measure is a group, or '' for the central set.
static const char later[] =
    "CREATE TABLE IF NOT EXISTS measure(version INTEGER NOT NULL, source TEXT NOT NULL,"
    " rows INTEGER NOT NULL, top5 REAL NOT NULL, f1 REAL NOT NULL, mae REAL NOT NULL,"
    " perplexity REAL NOT NULL, PRIMARY KEY(version,source)) STRICT, WITHOUT ROWID;"
    "CREATE TABLE IF NOT EXISTS rejection(grp TEXT PRIMARY KEY, count INTEGER NOT NULL,"
    " round INTEGER NOT NULL, reason TEXT NOT NULL) STRICT, WITHOUT ROWID;"
    "CREATE TABLE IF NOT EXISTS attendance(round INTEGER NOT NULL, grp TEXT NOT NULL,"
    " boards INTEGER NOT NULL, PRIMARY KEY(round,grp)) STRICT, WITHOUT ROWID;"
    "CREATE TABLE IF NOT EXISTS judgement(grp TEXT NOT NULL, round INTEGER NOT NULL,"
    " factor REAL NOT NULL, refused INTEGER NOT NULL, PRIMARY KEY(grp,round)) STRICT,"
    " WITHOUT ROWID;"
    "CREATE TABLE IF NOT EXISTS origin(id INTEGER PRIMARY KEY CHECK(id=1), run INTEGER NOT NULL,"
    " version INTEGER NOT NULL, digest BLOB NOT NULL) STRICT;"
    "CREATE TABLE IF NOT EXISTS last_error(board TEXT PRIMARY KEY, text TEXT NOT NULL,"
    " code INTEGER NOT NULL, count INTEGER NOT NULL, told_ms INTEGER NOT NULL) STRICT,"
    " WITHOUT ROWID;"
    "CREATE TABLE IF NOT EXISTS steering(what TEXT NOT NULL, name TEXT NOT NULL,"
    " since_ms INTEGER NOT NULL, PRIMARY KEY(what,name)) STRICT, WITHOUT ROWID;"
    "CREATE TABLE IF NOT EXISTS control_epoch(from_round INTEGER PRIMARY KEY,"
    " last_round INTEGER NOT NULL, groups INTEGER NOT NULL, members BLOB NOT NULL,"
    " lost TEXT NOT NULL) STRICT;"
    "CREATE TABLE IF NOT EXISTS downlink(version INTEGER PRIMARY KEY, mode INTEGER NOT NULL,"
    " density REAL NOT NULL, value_bits INTEGER NOT NULL, roomy INTEGER NOT NULL,"
    " link_bps INTEGER NOT NULL, budget INTEGER NOT NULL, size INTEGER NOT NULL) STRICT;"
    "CREATE TABLE IF NOT EXISTS steered_round(round INTEGER PRIMARY KEY,"
    " extended_ms INTEGER NOT NULL, closed_with INTEGER NOT NULL) STRICT;"
    "CREATE TABLE IF NOT EXISTS steered(id TEXT PRIMARY KEY, digest BLOB NOT NULL,"
    " at_ms INTEGER NOT NULL, answer TEXT NOT NULL) STRICT, WITHOUT ROWID;"
    "CREATE TABLE IF NOT EXISTS job(name TEXT PRIMARY KEY, sequence INTEGER NOT NULL,"
    " priority INTEGER NOT NULL, turn INTEGER NOT NULL, needs TEXT NOT NULL,"
    " state INTEGER NOT NULL, ahead INTEGER NOT NULL, reason TEXT NOT NULL,"
    " submitted_ms INTEGER NOT NULL) STRICT, WITHOUT ROWID;";

// Columns that were added within a schema, like the tables above. Rows of an older program have the
// default.
static const struct {
    const char *present; // a query that returns a row if the column exists
    const char *add;
} later_columns[] = {
    {"SELECT 1 FROM pragma_table_info('contribution') WHERE name='boards'",
     "ALTER TABLE contribution ADD COLUMN boards INTEGER NOT NULL DEFAULT 0"},
    {"SELECT 1 FROM pragma_table_info('version') WHERE name='state_digest'",
     "ALTER TABLE version ADD COLUMN state_digest BLOB"},
    {"SELECT 1 FROM pragma_table_info('round') WHERE name='opened_ms'",
     "ALTER TABLE round ADD COLUMN opened_ms INTEGER NOT NULL DEFAULT 0"},
    {"SELECT 1 FROM pragma_table_info('round') WHERE name='closed_ms'",
     "ALTER TABLE round ADD COLUMN closed_ms INTEGER NOT NULL DEFAULT 0"},
    {"SELECT 1 FROM pragma_table_info('contribution') WHERE name='accepted_ms'",
     "ALTER TABLE contribution ADD COLUMN accepted_ms INTEGER NOT NULL DEFAULT 0"},
    {"SELECT 1 FROM pragma_table_info('version') WHERE name='made_ms'",
     "ALTER TABLE version ADD COLUMN made_ms INTEGER NOT NULL DEFAULT 0"},
    {"SELECT 1 FROM pragma_table_info('contribution') WHERE name='steps'",
     "ALTER TABLE contribution ADD COLUMN steps INTEGER NOT NULL DEFAULT 0"},
    {"SELECT 1 FROM pragma_table_info('contribution') WHERE name='down_bps'",
     "ALTER TABLE contribution ADD COLUMN down_bps INTEGER NOT NULL DEFAULT 0"},
    {"SELECT 1 FROM pragma_table_info('contribution') WHERE name='caps'",
     "ALTER TABLE contribution ADD COLUMN caps INTEGER NOT NULL DEFAULT 1"},
};

// Maps a result of SQLite to an error, and logs SQLite's message for errors that nobody expects.
static cn_err map_error(struct cn_ledger *ledger, int result)
{
    switch (result & 0xff) {
    case SQLITE_OK:
    case SQLITE_DONE:
    case SQLITE_ROW:
        return CN_OK;
    case SQLITE_NOMEM:
        return CN_ENOMEM;
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
        return CN_EAGAIN;
    case SQLITE_FULL:
        return CN_ENOSPC;
    case SQLITE_CONSTRAINT:
        return CN_EEXIST;
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
        cn_log(CN_LOG_ERROR, "ledger", "%s", sqlite3_errmsg(ledger->db));
        return CN_EFORMAT;
    default:
        cn_log(CN_LOG_ERROR, "ledger", "%s", sqlite3_errmsg(ledger->db));
        return CN_EIO;
    }
}

cn_err cn_ledger_sql_prepare(struct cn_ledger *ledger, sqlite3_stmt **statement, const char *sql,
                             const char *types, ...)
{
    va_list values;
    int result = sqlite3_prepare_v2(ledger->db, sql, -1, statement, NULL);
    va_start(values, types);
    for (int i = 1; result == SQLITE_OK && types[i - 1]; i++) {
        if (types[i - 1] == 'i')
            result = sqlite3_bind_int64(*statement, i, va_arg(values, int64_t));
        else if (types[i - 1] == 'd')
            result = sqlite3_bind_double(*statement, i, va_arg(values, double));
        else if (types[i - 1] == 't')
            result =
                sqlite3_bind_text(*statement, i, va_arg(values, const char *), -1, SQLITE_STATIC);
        else
            result = sqlite3_bind_blob(*statement, i, va_arg(values, const uint8_t *), 32,
                                       SQLITE_STATIC);
    }
    va_end(values);
    if (result == SQLITE_OK)
        return CN_OK;
    cn_err err = map_error(ledger, result);
    sqlite3_finalize(*statement);
    *statement = NULL;
    return err;
}

cn_err cn_ledger_sql_reuse(struct cn_ledger *ledger, enum cn_ledger_kept which, const char *sql,
                           const int64_t *numbers, int count, sqlite3_stmt **statement)
{
    sqlite3_stmt **kept = &ledger->kept[which];
    int result = SQLITE_OK;
    *statement = NULL;
    if (!*kept)
        result = sqlite3_prepare_v2(ledger->db, sql, -1, kept, NULL);
    for (int i = 0; result == SQLITE_OK && i < count; i++)
        result = sqlite3_bind_int64(*kept, i + 1, numbers[i]);
    if (result == SQLITE_OK)
        *statement = *kept;
    return map_error(ledger, result);
}

cn_err cn_ledger_sql_step(struct cn_ledger *ledger, sqlite3_stmt *statement)
{
    int result = sqlite3_step(statement);
    return result == SQLITE_DONE ? CN_ENOTFOUND : map_error(ledger, result);
}

cn_err cn_ledger_sql_number(struct cn_ledger *ledger, sqlite3_stmt *statement, uint64_t *number)
{
    cn_err err = cn_ledger_sql_step(ledger, statement);
    *number = err ? 0 : (uint64_t)sqlite3_column_int64(statement, 0);
    sqlite3_finalize(statement);
    return err == CN_ENOTFOUND ? CN_OK : err;
}

cn_err cn_ledger_sql_next(struct cn_ledger *ledger, sqlite3_stmt *statement, bool *more)
{
    cn_err err = cn_ledger_sql_step(ledger, statement);
    *more = err == CN_OK;
    return err == CN_ENOTFOUND ? CN_OK : err;
}

cn_err cn_ledger_sql_finish(struct cn_ledger *ledger, sqlite3_stmt *statement)
{
    cn_err err = map_error(ledger, sqlite3_step(statement));
    sqlite3_finalize(statement);
    return err;
}

cn_err cn_ledger_sql_run(struct cn_ledger *ledger, const char *sql)
{
    return map_error(ledger, sqlite3_exec(ledger->db, sql, NULL, NULL, NULL));
}

cn_err cn_ledger_sql_end(struct cn_ledger *ledger, cn_err err)
{
    if (err == CN_OK) {
        err = cn_ledger_sql_run(ledger, "COMMIT");
        if (err == CN_OK)
            return CN_OK;
    }
    // After some errors SQLite has already rolled back by itself, and a second rollback would fail.
    if (!sqlite3_get_autocommit(ledger->db))
        (void)!sqlite3_exec(ledger->db, "ROLLBACK", NULL, NULL, NULL);
    return err;
}

cn_err cn_ledger_sql_bytes(sqlite3_stmt *statement, int column, uint8_t bytes[32])
{
    const void *blob = sqlite3_column_blob(statement, column);
    if (!blob || sqlite3_column_bytes(statement, column) != 32)
        return CN_EFORMAT;
    memcpy(bytes, blob, 32);
    return CN_OK;
}

cn_err cn_ledger_sql_name(sqlite3_stmt *statement, int column, char name[CN_NAME_SIZE])
{
    const char *text = (const char *)sqlite3_column_text(statement, column);
    if (!text || !cn_name_valid(text))
        return CN_EFORMAT;
    snprintf(name, CN_NAME_SIZE, "%s", text);
    return CN_OK;
}

cn_err cn_ledger_sql_visit_rounds(struct cn_ledger *ledger, sqlite3_stmt *statement,
                                  cn_ledger_round_visit *visit, void *context)
{
    bool more;
    cn_err err;
    while (!(err = cn_ledger_sql_next(ledger, statement, &more)) && more) {
        char group[CN_NAME_SIZE];
        err = cn_ledger_sql_name(statement, 0, group);
        if (!err)
            err = visit(context, group, (uint32_t)sqlite3_column_int64(statement, 1));
        if (err)
            break;
    }
    sqlite3_finalize(statement);
    return err;
}

static cn_err make_directory(const char *path)
{
    char part[PATH_MAX];
    size_t length = strlen(path);
    if (length == 0 || length >= sizeof(part))
        return CN_EINVAL;
    for (size_t i = 1; i <= length; i++) {
        if (path[i] != '/' && path[i] != '\0')
            continue;
        memcpy(part, path, i);
        part[i] = '\0';
        if (mkdir(part, 0700) != 0 && errno != EEXIST)
            return cn_err_from_errno(errno);
    }
    struct stat info;
    if (stat(path, &info) != 0)
        return cn_err_from_errno(errno);
    if (S_ISDIR(info.st_mode))
        return CN_OK;
    errno = ENOTDIR; // what SQLite would leave there is chance
    return cn_err_from_errno(errno);
}

static cn_err read_version(struct cn_ledger *ledger, int *version)
{
    sqlite3_stmt *statement;
    cn_err err = cn_ledger_sql_prepare(ledger, &statement, "PRAGMA user_version", "");
    if (err)
        return err;
    err = cn_ledger_sql_step(ledger, statement);
    *version = sqlite3_column_int(statement, 0);
    sqlite3_finalize(statement);
    return err;
}

static cn_err insert_identity(struct cn_ledger *ledger)
{
    struct cn_ledger_identity fresh = {.lineage = 1};
    cn_err err = cn_crypto_random(&fresh.run, sizeof(fresh.run));
    if (!err)
        err = cn_crypto_random(fresh.master, sizeof(fresh.master));
    if (err)
        return err;
    sqlite3_stmt *statement;
    err = cn_ledger_sql_prepare(ledger, &statement,
                                "INSERT INTO meta(id,run,lineage,master) VALUES(1,?,?,?)", "iib",
                                (int64_t)fresh.run, (int64_t)fresh.lineage, fresh.master);
    if (!err)
        err = cn_ledger_sql_finish(ledger, statement);
    cn_crypto_wipe(&fresh, sizeof(fresh));
    return err;
}

static cn_err add_columns(struct cn_ledger *ledger)
{
    cn_err err = CN_OK;
    for (size_t i = 0; i < sizeof(later_columns) / sizeof(later_columns[0]) && !err; i++) {
        sqlite3_stmt *statement;
        err = cn_ledger_sql_prepare(ledger, &statement, later_columns[i].present, "");
        if (err)
            return err;
        err = cn_ledger_sql_step(ledger, statement);
        sqlite3_finalize(statement);
        if (err == CN_ENOTFOUND)
            err = cn_ledger_sql_run(ledger, later_columns[i].add);
    }
    return err;
}

// Two programs may make the same ledger at the same time. The transaction decides which of them
// does.
static cn_err make_schema(struct cn_ledger *ledger)
{
    int version = 0;
    cn_err err = cn_ledger_sql_run(ledger, "BEGIN IMMEDIATE");
    if (err)
        return err;
    err = read_version(ledger, &version);
    if (!err && version == 0) {
        err = cn_ledger_sql_run(ledger, schema);
        if (!err)
            err = insert_identity(ledger);
    } else if (!err && (version < 0 || version > CN_LEDGER_SCHEMA)) {
        cn_log(CN_LOG_ERROR, "ledger", "schema %d was found, this program knows %d", version,
               CN_LEDGER_SCHEMA);
        err = CN_EVERSION;
    }
    if (!err && version < 2)
        err = cn_ledger_sql_run(ledger, schema_2);
    if (!err && version < 3)
        err = cn_ledger_sql_run(ledger, schema_3);
    if (!err && version < 4)
        err = cn_ledger_sql_run(ledger, schema_4);
    if (!err && version < 5)
        err = cn_ledger_sql_run(ledger, schema_5);
    if (!err)
        err = cn_ledger_sql_run(ledger, later);
    if (!err)
        err = add_columns(ledger);
    return cn_ledger_sql_end(ledger, err);
}

static cn_err load_identity(struct cn_ledger *ledger)
{
    sqlite3_stmt *statement;
    cn_err err =
        cn_ledger_sql_prepare(ledger, &statement, "SELECT run,lineage,master FROM meta", "");
    if (err)
        return err;
    err = cn_ledger_sql_step(ledger, statement);
    if (!err) {
        ledger->identity.run = (uint64_t)sqlite3_column_int64(statement, 0);
        ledger->identity.lineage = (uint32_t)sqlite3_column_int64(statement, 1);
        err = cn_ledger_sql_bytes(statement, 2, ledger->identity.master);
    }
    sqlite3_finalize(statement);
    return err == CN_ENOTFOUND ? CN_EFORMAT : err;
}

static cn_err open_file(const char *path, int flags, struct cn_ledger *ledger)
{
    mode_t mask = umask(0077); // SQLite gives the log and the index the same mode
    int result = sqlite3_open_v2(path, &ledger->db, flags, cn_pinned_vfs(path));
    umask(mask);
    if (result != SQLITE_OK)
        return map_error(ledger, result);
    sqlite3_busy_timeout(ledger->db, BUSY_TIMEOUT_MS);
    cn_err err = cn_ledger_sql_run(
        ledger, "PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL; PRAGMA foreign_keys=ON");
    if (!err)
        err = make_schema(ledger);
    if (!err)
        err = load_identity(ledger);
    return err;
}

static cn_err open_ledger(const char *directory, int flags, struct cn_ledger **ledger)
{
    char path[PATH_MAX];
    int length = snprintf(path, sizeof(path), "%s/%s", directory, CN_LEDGER_FILE);
    if (length < 0 || (size_t)length >= sizeof(path))
        return CN_EINVAL;
    if (!(flags & SQLITE_OPEN_CREATE) && access(path, F_OK) != 0)
        return CN_ENOTFOUND;
    struct cn_ledger *opened = calloc(1, sizeof(*opened));
    if (!opened)
        return CN_ENOMEM;
    cn_err err = open_file(path, flags, opened);
    if (err) {
        cn_ledger_close(opened);
        return err;
    }
    *ledger = opened;
    return CN_OK;
}

cn_err cn_ledger_open(const char *directory, struct cn_ledger **ledger)
{
    *ledger = NULL;
    cn_err err = make_directory(directory);
    if (err)
        return err;
    return open_ledger(directory, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE, ledger);
}

cn_err cn_ledger_open_existing(const char *directory, struct cn_ledger **ledger)
{
    *ledger = NULL;
    return open_ledger(directory, SQLITE_OPEN_READWRITE, ledger);
}

void cn_ledger_close(struct cn_ledger *ledger)
{
    if (!ledger)
        return;
    for (int i = 0; i < CN_LEDGER_KEPT_COUNT; i++)
        sqlite3_finalize(ledger->kept[i]);
    sqlite3_close(ledger->db);
    cn_crypto_wipe(&ledger->identity, sizeof(ledger->identity));
    free(ledger);
}

const struct cn_ledger_identity *cn_ledger_identity(const struct cn_ledger *ledger)
{
    return &ledger->identity;
}

cn_err cn_ledger_raise_lineage(struct cn_ledger *ledger, uint64_t now_s)
{
    int64_t next = (int64_t)ledger->identity.lineage + 1;
    sqlite3_stmt *statement;
    uint32_t drawn = 0;
    cn_err err = cn_crypto_random(&drawn, sizeof(drawn));
    if (err)
        return err;
    if (now_s > (uint64_t)next && now_s < UINT32_MAX)
        next = (int64_t)now_s;
    else
        next += drawn >> 8; // 24 bits leave room for some hundred restores
    if (next > UINT32_MAX)
        return CN_ERANGE;
    err = cn_ledger_sql_prepare(ledger, &statement, "UPDATE meta SET lineage=?", "i", next);
    if (!err)
        err = cn_ledger_sql_finish(ledger, statement);
    return err ? err : load_identity(ledger);
}

cn_err cn_ledger_begin_read(struct cn_ledger *ledger)
{
    return cn_ledger_sql_run(ledger, "BEGIN DEFERRED");
}

void cn_ledger_end_read(struct cn_ledger *ledger)
{
    (void)!cn_ledger_sql_end(ledger, CN_OK); // nothing was written, so nothing can be lost
}

cn_err cn_ledger_begin_write(struct cn_ledger *ledger)
{
    return cn_ledger_sql_run(ledger, "BEGIN IMMEDIATE");
}

cn_err cn_ledger_end_write(struct cn_ledger *ledger, cn_err err)
{
    return cn_ledger_sql_end(ledger, err);
}

cn_err cn_ledger_generation(struct cn_ledger *ledger, int64_t *generation)
{
    sqlite3_stmt *statement;
    cn_err err = cn_ledger_sql_prepare(ledger, &statement, "PRAGMA data_version", "");
    if (err)
        return err;
    err = cn_ledger_sql_step(ledger, statement);
    *generation = sqlite3_column_int64(statement, 0);
    sqlite3_finalize(statement);
    return err;
}
