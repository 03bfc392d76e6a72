// cairn-aggregator audit: shows who asked for what, and checks that no line was changed.
#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "aggregator/command/aggregator_commands.h"
#include "aggregator/daemon/setup.h"
#include "aggregator/store/audit.h"

static const char help[] =
    "Usage: cairn-aggregator audit PROFILE --verify [--expect DIGEST]\n"
    "\n"
    "Checks STATE/audit.jsonl, which has a line for each command about the run, and\n"
    "its older parts: each line names the digest of the line before. Prints how many\n"
    "lines there are, and the digest of the newest one. Exits with 1 when a line was\n"
    "changed, removed or moved.\n"
    "\n"
    "Whoever may write the file can also write all of it again. So keep a printed\n"
    "digest elsewhere, and give it later with --expect.\n"
    "\n"
    "  --verify          the check; needed\n"
    "  --expect DIGEST   also wants a line with this digest\n";

// state is the path that people know.
static int print_verdict(const char *state, const struct cn_audit_verdict *verdict,
                         const char *expected)
{
    if (verdict->fault[0]) {
        fprintf(stderr, "error: %s/%s\n", state, verdict->fault);
        return CN_EXIT_FAILED;
    }
    if (verdict->torn)
        fprintf(stderr, "warning: the last line is cut off, as a crash leaves it; what it would "
                        "have said was not done\n");
    if (expected && !verdict->expected_found) {
        fprintf(stderr,
                "error: %s: no line has the digest %s: the file was written again, or that line "
                "is no longer kept\n",
                state, expected);
        return CN_EXIT_FAILED;
    }
    printf("%" PRIu64 " lines, %" PRIu64 " to %" PRIu64 ": ok; the newest is %s\n", verdict->lines,
           verdict->first, verdict->last, verdict->newest);
    return CN_EXIT_DONE;
}

static int verify(const struct cn_setup *setup, const char *expected)
{
    struct cn_audit_verdict verdict;
    if (cn_setup_refuse_job(setup->state_name))
        return CN_EXIT_FAILED;
    cn_err err = cn_audit_verify(setup->settings->state, expected, &verdict);
    if (!err)
        return print_verdict(setup->state_name, &verdict, expected);
    fprintf(stderr, "error: %s/%s: %s\n", setup->state_name, CN_AUDIT_FILE,
            err == CN_ENOTFOUND ? "there is none yet" : cn_err_reason(err));
    return CN_EXIT_FAILED;
}

static int run(const struct cn_ports *ports, int argc, char **argv)
{
    static const struct option known[] = {
        {"verify", no_argument, NULL, 'v'}, {"expect", required_argument, NULL, 'e'}, {0}};
    const char *positional[1], *expected = NULL;
    bool is_check = false;
    int option;
    (void)ports;
    while ((option = getopt_long(argc, argv, "", known, NULL)) != -1) {
        if (option == 'v')
            is_check = true;
        else if (option == 'e')
            expected = optarg;
        else
            return CN_EXIT_USAGE;
    }
    if (!cn_aggregator_positional(argc, argv, 1, positional))
        return CN_EXIT_USAGE;
    if (!is_check) {
        fprintf(stderr, "error: --verify is missing; see --help\n");
        return CN_EXIT_USAGE;
    }
    struct cn_setup setup = {0};
    int result = cn_setup_load(&setup, positional[0]);
    if (!result)
        result = cn_setup_take_rights(&setup);
    if (!result)
        result = verify(&setup, expected);
    cn_setup_deinit(&setup);
    return result;
}

const struct cn_command cn_aggregator_audit = {
    .name = "audit",
    .summary = "check the record of who asked for what",
    .help = help,
    .run = run,
};
