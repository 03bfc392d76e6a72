// ledger_boards.c - boards, their groups and the key epochs of these.
#include <stdio.h>
#include <string.h>

#include "aggregator/ledger/ledger_sql.h"

static cn_err raise_key_epoch(struct cn_ledger *ledger, const char *group)
{
    sqlite3_stmt *statement;
    cn_err err = cn_ledger_sql_prepare(ledger, &statement,
                                       "INSERT INTO key_epoch(grp,raised) VALUES(?,1)"
                                       " ON CONFLICT(grp) DO UPDATE SET raised=raised+1",
                                       "t", group);
    return err ? err : cn_ledger_sql_finish(ledger, statement);
}

// The former board of this name may know pair keys of either group, so the key epochs of both are
// raised.
static cn_err replace_board(struct cn_ledger *ledger, const struct cn_ledger_board *board,
                            const struct cn_ledger_board *before)
{
    sqlite3_stmt *statement;
    cn_err err = cn_ledger_sql_prepare(
        ledger, &statement, "UPDATE board SET grp=?,secret=?,max_weight=?,revoked=0 WHERE name=?",
        "tbit", board->group, board->secret, (int64_t)board->max_weight, board->name);
    if (!err)
        err = cn_ledger_sql_finish(ledger, statement);
    if (!err)
        err = raise_key_epoch(ledger, board->group);
    if (!err && strcmp(before->group, board->group) != 0)
        err = raise_key_epoch(ledger, before->group);
    return err;
}

static cn_err insert_board(struct cn_ledger *ledger, const struct cn_ledger_board *board)
{
    sqlite3_stmt *statement;
    cn_err err = cn_ledger_sql_prepare(
        ledger, &statement,
        "INSERT INTO board(name,grp,secret,max_weight,revoked) VALUES(?,?,?,?,0)", "ttbi",
        board->name, board->group, board->secret, (int64_t)board->max_weight);
    return err ? err : cn_ledger_sql_finish(ledger, statement);
}

cn_err cn_ledger_enroll_within(struct cn_ledger *ledger, const struct cn_ledger_board *board)
{
    struct cn_ledger_board before;
    cn_err err = cn_ledger_find_board(ledger, board->name, &before);
    if (err == CN_ENOTFOUND)
        err = insert_board(ledger, board);
    else if (!err)
        err = before.revoked ? replace_board(ledger, board, &before) : CN_EEXIST;
    cn_crypto_wipe(&before, sizeof(before));
    return err;
}

cn_err cn_ledger_enroll(struct cn_ledger *ledger, const struct cn_ledger_board *board)
{
    cn_err err = cn_ledger_begin_write(ledger);
    if (err)
        return err;
    return cn_ledger_end_write(ledger, cn_ledger_enroll_within(ledger, board));
}

cn_err cn_ledger_revoke_within(struct cn_ledger *ledger, const char *board)
{
    struct cn_ledger_board found;
    sqlite3_stmt *statement;
    cn_err err = cn_ledger_find_board(ledger, board, &found);
    if (!err)
        err = cn_ledger_sql_prepare(ledger, &statement, "UPDATE board SET revoked=1 WHERE name=?",
                                    "t", board);
    if (!err)
        err = cn_ledger_sql_finish(ledger, statement);
    if (!err)
        err = raise_key_epoch(ledger, found.group);
    cn_crypto_wipe(&found, sizeof(found));
    return err;
}

cn_err cn_ledger_revoke(struct cn_ledger *ledger, const char *board)
{
    cn_err err = cn_ledger_begin_write(ledger);
    if (err)
        return err;
    return cn_ledger_end_write(ledger, cn_ledger_revoke_within(ledger, board));
}

cn_err cn_ledger_move(struct cn_ledger *ledger, const char *board, const char *group)
{
    struct cn_ledger_board before;
    sqlite3_stmt *statement;
    cn_err err = cn_ledger_find_board(ledger, board, &before);
    if (!err && before.revoked)
        err = CN_ENOTFOUND;
    if (!err)
        err = cn_ledger_sql_prepare(ledger, &statement, "UPDATE board SET grp=? WHERE name=?", "tt",
                                    group, board);
    if (!err)
        err = cn_ledger_sql_finish(ledger, statement);
    if (!err)
        err = raise_key_epoch(ledger, group);
    if (!err && strcmp(before.group, group) != 0)
        err = raise_key_epoch(ledger, before.group);
    cn_crypto_wipe(&before, sizeof(before));
    return err;
}

cn_err cn_ledger_key_epoch(struct cn_ledger *ledger, const char *group, uint64_t *key_epoch)
{
    sqlite3_stmt *statement;
    cn_err err = cn_ledger_sql_prepare(ledger, &statement,
                                       "SELECT raised FROM key_epoch WHERE grp=?", "t", group);
    uint64_t raised = 0;
    if (!err)
        err = cn_ledger_sql_number(ledger, statement, &raised);
    *key_epoch = ((uint64_t)(ledger->identity.lineage - 1) << 32) + raised;
    return err;
}

static cn_err read_board(sqlite3_stmt *statement, struct cn_ledger_board *board)
{
    cn_err err = cn_ledger_sql_name(statement, 0, board->name);
    if (!err)
        err = cn_ledger_sql_name(statement, 1, board->group);
    if (!err)
        err = cn_ledger_sql_bytes(statement, 2, board->secret);
    board->max_weight = (uint64_t)sqlite3_column_int64(statement, 3);
    board->revoked = sqlite3_column_int(statement, 4) != 0;
    return err;
}

cn_err cn_ledger_find_board(struct cn_ledger *ledger, const char *name,
                            struct cn_ledger_board *board)
{
    sqlite3_stmt *statement;
    cn_err err = cn_ledger_sql_prepare(
        ledger, &statement, "SELECT name,grp,secret,max_weight,revoked FROM board WHERE name=?",
        "t", name);
    if (err)
        return err;
    err = cn_ledger_sql_step(ledger, statement);
    if (!err)
        err = read_board(statement, board);
    sqlite3_finalize(statement);
    return err;
}

cn_err cn_ledger_boards(struct cn_ledger *ledger, cn_ledger_board_visit *visit, void *context)
{
    sqlite3_stmt *statement;
    cn_err err = cn_ledger_sql_prepare(
        ledger, &statement,
        "SELECT name,grp,secret,max_weight,revoked FROM board ORDER BY sequence", "");
    if (err)
        return err;
    struct cn_ledger_board board;
    bool more;
    while (!(err = cn_ledger_sql_next(ledger, statement, &more)) && more) {
        err = read_board(statement, &board);
        if (!err)
            err = visit(context, &board);
        if (err)
            break;
    }
    cn_crypto_wipe(&board, sizeof(board));
    sqlite3_finalize(statement);
    return err;
}

// A board that leaves a group raises its key epoch. A ledger that mirrors the boards of another one
// has no key epochs, but the updates.
cn_err cn_ledger_had_group(struct cn_ledger *ledger, const char *group, bool *had)
{
    sqlite3_stmt *statement;
    cn_err err = cn_ledger_sql_prepare(ledger, &statement,
                                       "SELECT EXISTS(SELECT 1 FROM board WHERE grp=?1)"
                                       " OR EXISTS(SELECT 1 FROM key_epoch WHERE grp=?1)"
                                       " OR EXISTS(SELECT 1 FROM contribution WHERE grp=?1)",
                                       "t", group);
    *had = false;
    if (err)
        return err;
    err = cn_ledger_sql_step(ledger, statement);
    *had = !err && sqlite3_column_int(statement, 0);
    sqlite3_finalize(statement);
    return err;
}

static void count_group(const char *name, uint32_t boards, uint32_t wanted,
                        struct cn_ledger_group_sizes *sizes)
{
    if (boards > sizes->largest) {
        sizes->largest = boards;
        memcpy(sizes->largest_name, name, CN_NAME_SIZE);
    }
    if (sizes->groups == 0 || boards < sizes->least) {
        sizes->least = boards;
        memcpy(sizes->least_name, name, CN_NAME_SIZE);
    }
    sizes->groups++;
    sizes->enough += boards >= wanted;
}

cn_err cn_ledger_size_groups(struct cn_ledger *ledger, uint32_t wanted,
                             struct cn_ledger_group_sizes *sizes)
{
    sqlite3_stmt *statement;
    char name[CN_NAME_SIZE];
    bool more;
    *sizes = (struct cn_ledger_group_sizes){0};
    cn_err err = cn_ledger_sql_prepare(
        ledger, &statement,
        "SELECT grp,count(*) FROM board WHERE revoked=0 GROUP BY grp ORDER BY grp", "");
    if (err)
        return err;
    while (!(err = cn_ledger_sql_next(ledger, statement, &more)) && more) {
        err = cn_ledger_sql_name(statement, 0, name);
        if (err)
            break;
        count_group(name, (uint32_t)sqlite3_column_int64(statement, 1), wanted, sizes);
    }
    sqlite3_finalize(statement);
    return err;
}

cn_err cn_ledger_group_count(struct cn_ledger *ledger, uint32_t *count)
{
    sqlite3_stmt *statement;
    cn_err err = cn_ledger_sql_prepare(ledger, &statement,
                                       "SELECT count(DISTINCT grp) FROM board WHERE revoked=0", "");
    if (err)
        return err;
    err = cn_ledger_sql_step(ledger, statement);
    *count = (uint32_t)sqlite3_column_int64(statement, 0);
    sqlite3_finalize(statement);
    return err;
}
