// cairn-aggregator status: shows the run, the round, and why a board is not in it.
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>

#include "aggregator/command/aggregator_commands.h"
#include "aggregator/command/setup.h"
#include "aggregator/serve/status.h"
#include "aggregator/store/job_settings.h"
#include "runtime/command/wrap.h"
#include "runtime/port/platform.h"

#define INDENT 6 // columns before the second and later lines of a paragraph

static const char help[] =
    "Usage: cairn-aggregator status [--json] PROFILE\n"
    "\n"
    "Shows the run, its round and version, and for each board when it was last heard\n"
    "and why it is, or is not, in the round.\n"
    "\n"
    "  --json           one object a line: the run, each board, each group\n";

// Finds the job of the round under way. Where the ledger has none, the profile's counts.
static cn_err find_job(const struct cn_setup *setup, struct cn_job *job)
{
    struct cn_ledger_round newest = {.number = 1};
    *job = setup->settings->job;
    cn_err err = cn_ledger_newest_round(setup->ledger, &newest);
    if (!err || err == CN_ENOTFOUND)
        err = cn_job_settings_load(setup->ledger, newest.number ? newest.number : 1,
                                   &setup->settings->job, job);
    return err == CN_ENOTFOUND || err == CN_ECONFLICT ? CN_OK : err;
}

// Prints JSON as it is, and other lines wrapped to the width of the terminal.
static cn_err print(const struct cn_setup *setup, bool json)
{
    struct cn_status_live live;
    struct cn_job job;
    uint64_t now_ms = cn_platform_now_ms();
    char *text = NULL;
    size_t size = 0;
    FILE *stream = json ? stdout : open_memstream(&text, &size);
    if (!stream)
        return CN_ENOMEM;
    cn_err err = cn_status_read(setup->settings->state, now_ms, &live);
    if (!err)
        err = find_job(setup, &job);
    if (!err)
        err = cn_status_print(setup->ledger, &job, &live, now_ms, json, stream);
    cn_status_deinit(&live);
    if (!json && fclose(stream) && !err)
        err = CN_ENOMEM;
    if (!json && !err)
        cn_wrap_print_all(text, INDENT);
    free(text);
    return err;
}

static int run(const struct cn_ports *ports, int argc, char **argv)
{
    static const struct option known[] = {{"json", no_argument, NULL, 'j'}, {0}};
    bool json = false;
    const char *positional[1];
    (void)ports;
    int option;
    while ((option = getopt_long(argc, argv, "", known, NULL)) != -1) {
        if (option == 'j')
            json = true;
        else
            return CN_EXIT_USAGE;
    }
    if (!cn_aggregator_positional(argc, argv, 1, positional))
        return CN_EXIT_USAGE;
    struct cn_setup setup = {0};
    int result = cn_setup_open(&setup, positional[0], CN_SETUP_LOOK);
    if (!result) {
        cn_err err = print(&setup, json);
        if (err)
            fprintf(stderr, "%s: %s\n", setup.settings->state, cn_err_text(err));
        result = err ? CN_EXIT_FAILED : CN_EXIT_DONE;
    }
    cn_setup_deinit(&setup);
    return result;
}

const struct cn_command cn_aggregator_status = {
    .name = "status",
    .summary = "show the run and why a board is not in the round",
    .help = help,
    .run = run,
};
