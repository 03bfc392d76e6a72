// cairn-aggregator init: writes a first profile.
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "aggregator/command/aggregator_commands.h"
#include "aggregator/daemon/init_after.h"

static const char help[] =
    "Usage: cairn-aggregator init [FILE]\n"
    "       cairn-aggregator init --after STATE [--version V] PROFILE\n"
    "\n"
    "Writes a commented profile to FILE (default: gateway.yaml), which must not\n"
    "exist, or with - to standard output. What must be filled in stands there with\n"
    "an example, everything else as a comment with its default.\n"
    "\n"
    "With --after, prepares the next run: in the state directory of PROFILE, which\n"
    "must be a new one, it enrols the boards of STATE, the state directory of an\n"
    "earlier run, with the keys that they have, and makes a version of that run\n"
    "version 0. Nothing has to be changed on the boards. The job may have other\n"
    "values; its model must have the same graph. STATE stays as it is; a ledger of\n"
    "an earlier release gets the form of this one.\n"
    "\n"
    "  --after STATE    state directory of the earlier run\n"
    "  --version V      a number, last (the default), best: the best measured one,\n"
    "                   or none: begin with the weights of the job's model, which\n"
    "                   may be any\n";

static int print_profile(void)
{
    cn_err err = cn_profile_template(CN_PROFILE_GATEWAY, NULL, 0, stdout);
    if (err)
        fprintf(stderr, "error: standard output: %s\n", cn_err_text(err));
    return err ? CN_EXIT_FAILED : CN_EXIT_DONE;
}

static int write_profile(const char *path)
{
    int descriptor = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
    FILE *stream = descriptor < 0 ? NULL : fdopen(descriptor, "w");
    if (!stream) {
        fprintf(stderr, "error: %s: %s\n", path, strerror(errno));
        return CN_EXIT_FAILED;
    }
    cn_err err = cn_profile_template(CN_PROFILE_GATEWAY, NULL, 0, stream);
    if (fclose(stream) != 0 && !err)
        err = CN_EIO;
    if (err) {
        fprintf(stderr, "error: %s: %s\n", path, cn_err_text(err));
        unlink(path);
        return CN_EXIT_FAILED;
    }
    printf("%s is written; edit it, then try: cairn-aggregator check %s\n", path, path);
    return CN_EXIT_DONE;
}

static int run(const struct cn_ports *ports, int argc, char **argv)
{
    static const struct option known[] = {
        {"after", required_argument, NULL, 'a'}, {"version", required_argument, NULL, 'v'}, {0}};
    const char *after = NULL, *version = NULL;
    int option;
    (void)ports;
    while ((option = getopt_long(argc, argv, "", known, NULL)) != -1) {
        if (option == 'a')
            after = optarg;
        else if (option == 'v')
            version = optarg;
        else
            return CN_EXIT_USAGE;
    }
    if (optind + 1 < argc || (after && optind == argc) || (version && !after)) {
        fputs(help, stderr);
        return CN_EXIT_USAGE;
    }
    if (after)
        return cn_init_after(after, version ? version : "last", argv[optind], false);
    const char *path = optind < argc ? argv[optind] : "gateway.yaml";
    return strcmp(path, "-") == 0 ? print_profile() : write_profile(path);
}

const struct cn_command cn_aggregator_init = {
    .name = "init",
    .summary = "write a commented profile",
    .help = help,
    .run = run,
};
