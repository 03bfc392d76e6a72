// cairn-aggregator revoke: a board's key is refused from now on.
#include <stdio.h>

#include "aggregator/setup.h"

static const char usage[] =
    "cairn-aggregator revoke PROFILE BOARD\n"
    "\n"
    "Refuses the board from now on. A running aggregator ends its sessions within a second. Updates\n"
    "that were accepted stay counted.\n"
    "\n"
    "  --log-level L    error, warn, info or debug\n";

int cn_command_revoke(const struct cn_aggregator_ports *ports, int argc, char **argv)
{
    const char *positional[2];
    const struct cn_arguments arguments = {usage, NULL, 0, positional, 2, 2};
    (void)ports;
    enum cn_parse_result parsed = cn_aggregator_options_parse(&arguments, argc, argv);
    if (parsed != CN_PARSE_OK)
        return parsed == CN_PARSE_HELP ? CN_EXIT_DONE : CN_EXIT_USAGE;
    struct cn_setup setup = {0};
    int result = cn_setup_open(&setup, positional[0], CN_SETUP_ENROLL);
    if (!result) {
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
