// cairn-aggregator revoke: a board's key is refused from now on.
#include <getopt.h>
#include <stdio.h>

#include "aggregator/command/aggregator_commands.h"
#include "aggregator/command/setup.h"
#include "aggregator/store/restore.h"

static const char help[] =
    "Usage: cairn-aggregator revoke PROFILE BOARD\n"
    "\n"
    "Refuses the board from now on. A running aggregator ends its sessions within a\n"
    "second. Updates that were accepted stay counted. The other members of its group\n"
    "get new keys for each other at the end of their round and drop the board. A\n"
    "board that was revoked by a release without key epochs is dropped by its group\n"
    "when it is revoked once more.\n";

static int run(const struct cn_ports *ports, int argc, char **argv)
{
    static const struct option known[] = {{0}};
    const char *positional[2];
    (void)ports;
    if (getopt_long(argc, argv, "", known, NULL) != -1)
        return CN_EXIT_USAGE;
    if (!cn_aggregator_positional(argc, argv, 2, positional))
        return CN_EXIT_USAGE;
    struct cn_setup setup = {0};
    int result = cn_setup_open(&setup, positional[0], CN_SETUP_ENROLL);
    if (!result) {
        cn_restore_note_revoked(setup.ledger, setup.settings->state, positional[1]);
        cn_err err = cn_ledger_revoke(setup.ledger, positional[1]);
        if (err == CN_ENOTFOUND)
            fprintf(stderr, "%s is not enrolled\n", positional[1]);
        else if (err)
            fprintf(stderr, "%s: %s\n", positional[1], cn_err_text(err));
        else
            printf("revoked %s\n", positional[1]);
        result = err ? CN_EXIT_FAILED : CN_EXIT_DONE;
    }
    cn_setup_deinit(&setup);
    return result;
}

const struct cn_command cn_aggregator_revoke = {
    .name = "revoke",
    .summary = "refuse a board from now on",
    .help = help,
    .run = run,
};
