// cairn-aggregator rollback: the run goes on from an earlier version.
#include <stdio.h>

#include "aggregator/command/aggregator_commands.h"
#include "aggregator/command/rollback_request.h"

static const char help[] =
    "Usage: cairn-aggregator rollback PROFILE VERSION --reason TEXT\n"
    "\n"
    "Goes back: the next version has the weights of VERSION, a number or best. The\n"
    "state of the server's optimizer and what compression had left out start from\n"
    "zero. An open round ends, and its updates do not count. Boards take the version\n"
    "like any other; the numbers of versions go on. The ledger keeps the reason, and\n"
    "replay obeys it.\n"
    "\n"
    "A running aggregator does it within a second between rounds and in an open one;\n"
    "a version that is being made or measured is finished before. Without one the\n"
    "next start does it. Versions that are given up no longer count: the gate, stop\n"
    "and best look at VERSION and at those that it came from.\n"
    "VERSION must still be kept: the first one always is, the best one unless a\n"
    "rollback made an earlier one the best, the others as gateway.keep_versions says.\n"
    "\n"
    "  --reason TEXT    for the ledger, the log and status\n";

// Prints the versions that a rollback can take: the first, the best, and the newest ones without a
// gap.
static void tell_kept(const struct cn_setup *setup)
{
    uint32_t newest, best, oldest;
    if (cn_setup_choose_version(setup->ledger, &setup->job, "last", &newest))
        return;
    oldest = newest;
    while (oldest > 0 && !cn_rollback_request_is_kept(setup, oldest - 1))
        oldest--;
    fprintf(stderr, "Versions that are kept: ");
    if (oldest > 0 && !cn_rollback_request_is_kept(setup, 0))
        fprintf(stderr, "0, ");
    if (!cn_setup_choose_version(setup->ledger, &setup->job, "best", &best) && best > 0 &&
        best < oldest && !cn_rollback_request_is_kept(setup, best))
        fprintf(stderr, "%u (the best), ", best);
    fprintf(stderr, "%u to %u\n", oldest, newest);
}

static int roll_back(struct cn_setup *setup, const struct cn_rollback_request_options *options)
{
    const char *version = options->name;
    uint32_t number;
    int result = cn_rollback_request_check(setup, options->reason);
    if (result)
        return result;
    cn_err err = cn_setup_choose_version(setup->ledger, &setup->job, version, &number);
    if (err) {
        fprintf(stderr, "error: version %s: %s\n", version,
                cn_setup_explain_choice(err, "there is none; expected a number or best"));
        return CN_EXIT_FAILED;
    }
    err = cn_rollback_request_is_kept(setup, number);
    if (err) {
        fprintf(stderr, "error: version %s: %s\n", version,
                cn_setup_explain_choice(err, "it is no longer kept (gateway.keep_versions)"));
        if (err == CN_ENOTFOUND)
            tell_kept(setup);
        return CN_EXIT_FAILED;
    }
    return cn_rollback_request_write(setup, number, options->reason);
}

static int run(const struct cn_ports *ports, int argc, char **argv)
{
    static const struct cn_rollback_request_command command = {
        .name = "rollback", .wants = "PROFILE and VERSION", .act = roll_back};
    (void)ports;
    return cn_rollback_request_run(&command, argc, argv);
}

const struct cn_command cn_aggregator_rollback = {
    .name = "rollback",
    .summary = "go on from an earlier version",
    .help = help,
    .run = run,
};
