// cairn-aggregator init: writes a first profile.
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "aggregator/command/aggregator_commands.h"

static const char help[] =
    "Usage: cairn-aggregator init [FILE]\n"
    "\n"
    "Writes a commented profile to FILE (default: gateway.yaml), which must not\n"
    "exist, or with - to standard output. What must be filled in stands there with\n"
    "an example, everything else as a comment with its default.\n";

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
    printf("%s is written; edit it, then try: cairn-aggregator run %s\n", path, path);
    return CN_EXIT_DONE;
}

static int run(const struct cn_ports *ports, int argc, char **argv)
{
    static const struct option known[] = {{0}};
    (void)ports;
    if (getopt_long(argc, argv, "", known, NULL) != -1)
        return CN_EXIT_USAGE;
    if (optind + 1 < argc) {
        fputs(help, stderr);
        return CN_EXIT_USAGE;
    }
    const char *path = optind < argc ? argv[optind] : "gateway.yaml";
    return strcmp(path, "-") == 0 ? print_profile() : write_profile(path);
}

const struct cn_command cn_aggregator_init = {
    .name = "init",
    .summary = "write a commented profile",
    .help = help,
    .run = run,
};
