// node_init.c - "cairn-node init": writes a first profile.
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "runtime/base/name.h"
#include "runtime/command/command.h"

#define ENTRY_MAX 4

static const char help[] =
    "Usage: cairn-node init [OPTIONS] [FILE]\n"
    "\n"
    "Writes a commented profile to FILE (default: site.yaml), which must not exist,\n"
    "or with - to standard output. What must be filled in stands there with an\n"
    "example, everything else as a comment with its default.\n"
    "\n"
    "  --board TYPE   type of board, a folder of boards/, or a path to its\n"
    "                 board.yaml\n"
    "  --name NAME    name of this board, as enrolled at the aggregator\n"
    "  --alone        for 'train': model, job and data instead of an aggregator\n";

struct options {
    const char *path;
    enum cn_profile_use use;
    struct cn_profile_entry entries[ENTRY_MAX];
    size_t entry_count;
};

static void add_entry(struct options *options, const char *key, const char *value)
{
    options->entries[options->entry_count++] = (struct cn_profile_entry){key, value};
}

static int parse(int argc, char **argv, struct options *options)
{
    static const struct option known[] = {
        {"board", required_argument, NULL, 'b'},
        {"name", required_argument, NULL, 'n'},
        {"alone", no_argument, NULL, 'a'},
        {0},
    };
    const char *board = NULL;
    const char *name = NULL;
    int option;

    while ((option = getopt_long(argc, argv, "", known, NULL)) != -1) {
        if (option == 'b')
            board = optarg;
        else if (option == 'n')
            name = optarg;
        else if (option == 'a')
            options->use = CN_PROFILE_TRAIN;
        else
            return -1;
    }
    if (optind + 1 < argc) {
        fputs(help, stderr);
        return -1;
    }
    if (name && !cn_name_valid(name)) {
        fprintf(stderr,
                "error: --name '%s': 1 to 63 of a-z 0-9 . _ -, the first a letter or digit\n",
                name);
        return -1;
    }
    options->path = optind < argc ? argv[optind] : "site.yaml";
    // Without a board the profile extends no file, so it works in any directory.
    if (board)
        add_entry(options, "extends", board);
    if (name)
        add_entry(options, "name", name);
    return 0;
}

static int print_profile(const struct options *options)
{
    cn_err err = cn_profile_template(options->use, options->entries, options->entry_count, stdout);

    if (err)
        fprintf(stderr, "error: standard output: %s\n", cn_err_text(err));
    return err ? CN_EXIT_FAILED : CN_EXIT_DONE;
}

static int write_profile(const struct options *options)
{
    int descriptor = open(options->path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
    FILE *stream = descriptor < 0 ? NULL : fdopen(descriptor, "w");
    cn_err err;

    if (!stream) {
        fprintf(stderr, "error: %s: %s\n", options->path, strerror(errno));
        return CN_EXIT_FAILED;
    }
    err = cn_profile_template(options->use, options->entries, options->entry_count, stream);
    if (fclose(stream) && !err)
        err = CN_EIO;
    if (err) {
        fprintf(stderr, "error: %s: %s\n", options->path, cn_err_text(err));
        unlink(options->path);
        return CN_EXIT_FAILED;
    }
    printf("%s is written; edit it, then try: cairn-node check %s\n", options->path, options->path);
    return CN_EXIT_DONE;
}

static int run(const struct cn_ports *ports, int argc, char **argv)
{
    struct options options = {.use = CN_PROFILE_NODE};

    (void)ports;
    if (parse(argc, argv, &options))
        return CN_EXIT_USAGE;
    return strcmp(options.path, "-") == 0 ? print_profile(&options) : write_profile(&options);
}

const struct cn_command cn_command_init = {
    .name = "init",
    .summary = "write a commented profile",
    .help = help,
    .run = run,
};
