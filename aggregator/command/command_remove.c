// cairn-aggregator remove: takes a group out of the run, and what it had a part in.
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "aggregator/command/aggregator_commands.h"
#include "aggregator/command/rollback_request.h"
#include "aggregator/ledger/influence.h"
#include "aggregator/store/restore.h"

static const char help[] =
    "Usage: cairn-aggregator remove PROFILE GROUP --reason TEXT [--yes]\n"
    "\n"
    "Revokes every board of the group, and goes back to the newest kept version that\n"
    "has nothing of it; the other groups train on from there. This is exact: no\n"
    "update of the group, and no update that was trained from one, is left in the\n"
    "model. It costs the rounds since then. `replay --without GROUP` shows them.\n"
    "\n"
    "  --reason TEXT    for the ledger, the log and status\n"
    "  --yes            do not ask before versions are given up\n";

struct removal {
    struct cn_setup *setup;
    const char *group;
    const char *gateway; // state directory with the boards
};

// Boards are read one by one, because revoking writes to the ledger.
static cn_err find_next(void *context, const struct cn_ledger_board *board)
{
    struct cn_ledger_board *next = context;
    if (strcmp(board->group, next->group) != 0 || board->revoked)
        return CN_OK;
    memcpy(next->name, board->name, sizeof(next->name));
    return CN_ECANCELED; // ends the walk
}

// Revokes the group's boards in the ledger of the gateway.
static cn_err revoke_in(struct cn_ledger *ledger, const struct removal *removal)
{
    for (;;) {
        struct cn_ledger_board next = {0};
        snprintf(next.group, sizeof(next.group), "%s", removal->group);
        cn_err err = cn_ledger_boards(ledger, find_next, &next);
        if (err != CN_ECANCELED)
            return err;
        cn_restore_note_revoked(ledger, removal->gateway, next.name);
        err = cn_ledger_revoke(ledger, next.name);
        if (err)
            return err;
        printf("revoked %s\n", next.name);
    }
}

// A submitted job has copies of the gateway's boards. The gateway revokes them there a moment
// later; until then the job would take updates of the group.
static cn_err revoke_copies(const struct removal *removal)
{
    struct cn_ledger_board next = {0};
    snprintf(next.group, sizeof(next.group), "%s", removal->group);
    cn_err err;
    while ((err = cn_ledger_boards(removal->setup->ledger, find_next, &next)) == CN_ECANCELED) {
        err = cn_ledger_revoke(removal->setup->ledger, next.name);
        if (err)
            break;
    }
    return err;
}

static cn_err revoke_all(const struct removal *removal)
{
    struct cn_ledger *ledger;
    if (strcmp(removal->gateway, removal->setup->settings->state) == 0)
        return revoke_in(removal->setup->ledger, removal);
    cn_err err = cn_ledger_open_existing(removal->gateway, &ledger);
    if (err)
        return err;
    err = revoke_in(ledger, removal);
    cn_ledger_close(ledger);
    return err ? err : revoke_copies(removal);
}

// Finds the run's newest version, and the newest kept one that has nothing of the group. *needed
// says whether the run must go back to it, or end its open round.
static cn_err find_version(const struct removal *removal, uint32_t *newest, uint32_t *number,
                           bool *needed)
{
    struct cn_influence influence;
    struct cn_ledger *ledger = removal->setup->ledger;
    *needed = false;
    *newest = *number = 0;
    cn_err err = cn_ledger_begin_read(ledger); // all at one moment: the run may go on meanwhile
    if (err)
        return err;
    err = cn_influence_load(ledger, removal->group, 0, &influence);
    cn_ledger_end_read(ledger);
    if (!err) {
        *newest = *number = influence.count - 1;
        *needed = influence.touched[*number] || influence.in_round;
    }
    while (!err && *needed) {
        err = influence.touched[*number] ? CN_ENOTFOUND
                                         : cn_rollback_request_is_kept(removal->setup, *number);
        if (!err || *number == 0 || err != CN_ENOTFOUND)
            break;
        --*number;
        err = CN_OK;
    }
    cn_influence_deinit(&influence);
    return err;
}

// Returns whether the run may go back. Asks the user if that gives versions up.
static bool is_confirmed(const struct removal *removal, uint32_t newest, uint32_t number, bool yes)
{
    char answer[8];
    if (yes || newest == number)
        return true;
    printf("The run would go back from version %u to version %u, the newest kept one\nthat has "
           "nothing of group %s.\n",
           newest, number, removal->group);
    if (!isatty(STDIN_FILENO)) {
        fprintf(stderr,
                "error: group %s: nobody was asked whether the run may go back; --yes says "
                "that it may\n",
                removal->group);
        return false;
    }
    printf("Type yes to revoke the group's boards and to go back: ");
    fflush(stdout);
    if (fgets(answer, sizeof(answer), stdin) && strcmp(answer, "yes\n") == 0)
        return true;
    fprintf(stderr, "error: group %s: not confirmed; nothing is changed\n", removal->group);
    return false;
}

static int remove_group(struct cn_setup *setup, const struct cn_rollback_request_options *options)
{
    const char *group = options->name;
    const struct removal removal = {.setup = setup, .group = group, .gateway = options->gateway};
    uint32_t newest, number;
    bool needed, had;
    int result = cn_rollback_request_check(setup, options->reason);
    if (result)
        return result;
    cn_err err = cn_ledger_had_group(setup->ledger, group, &had);
    if (!err && !had) {
        fprintf(stderr, "error: group %s: no board of it was ever enrolled\n", group);
        return CN_EXIT_FAILED;
    }
    if (!err)
        err = find_version(&removal, &newest, &number, &needed);
    if (!err && !is_confirmed(&removal, newest, number, options->yes))
        return CN_EXIT_FAILED;
    if (!err)
        err = revoke_all(&removal);
    if (!err) // a second time: the run may have advanced before the boards were revoked
        err = find_version(&removal, &newest, &number, &needed);
    if (err) {
        fprintf(stderr, "error: group %s: %s\n", group, cn_err_text(err));
        return CN_EXIT_FAILED;
    }
    if (needed)
        result = cn_rollback_request_write(setup, number, options->reason);
    else
        printf("no update of group %s is in version %u: the run goes on from it\n", group, number);
    err = result ? CN_OK : cn_rollback_request_tell_origin(setup, group);
    if (err)
        fprintf(stderr, "error: group %s: %s\n", group, cn_err_text(err));
    return err ? CN_EXIT_FAILED : result;
}

static int run(const struct cn_ports *ports, int argc, char **argv)
{
    static const struct cn_rollback_request_command command = {
        .name = "remove", .wants = "PROFILE and GROUP", .asks = true, .act = remove_group};
    (void)ports;
    return cn_rollback_request_run(&command, argc, argv);
}

const struct cn_command cn_aggregator_remove = {
    .name = "remove",
    .summary = "take a group out of the run",
    .help = help,
    .run = run,
};
