// cairn-aggregator status: the run, the round, and why a board is not in it.
#include <stdio.h>

#include "aggregator/setup.h"
#include "aggregator/status.h"
#include "runtime/port/platform.h"

static const char usage[] =
    "cairn-aggregator status PROFILE [--json]\n"
    "\n"
    "Shows the run, its round and version, and for each board when it was last heard and why it is, or\n"
    "is not, in the round.\n"
    "\n"
    "  --json           one object a line: the run, then each board\n"
    "  --log-level L    error, warn, info or debug\n";

int cn_command_status(const struct cn_aggregator_ports *ports, int argc, char **argv)
{
    bool json = false;
    const char *positional[1];
    const struct cn_option options[] = {{"--json", NULL, NULL, &json}};
    const struct cn_arguments arguments = {usage, options, 1, positional, 1, 1};
    (void)ports;
    enum cn_parse_result parsed = cn_aggregator_options_parse(&arguments, argc, argv);
    if (parsed != CN_PARSE_OK)
        return parsed == CN_PARSE_HELP ? CN_EXIT_DONE : CN_EXIT_USAGE;
    struct cn_setup setup = {0};
    int result = cn_setup_open(&setup, positional[0], CN_SETUP_LOOK);
    if (!result) {
        struct cn_status_live live;
        uint64_t now_ms = cn_platform_now_ms();
        cn_err err = cn_status_read(setup.settings->state, now_ms, &live);
        if (!err)
            err = cn_status_print(setup.ledger, &setup.settings->job, &live, now_ms, json, stdout);
        cn_status_deinit(&live);
        if (err)
            fprintf(stderr, "%s: %s\n", setup.settings->state, cn_err_text(err));
        result = err ? CN_EXIT_FAILED : CN_EXIT_DONE;
    }
    cn_setup_deinit(&setup);
    return result;
}
