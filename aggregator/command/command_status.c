// cairn-aggregator status: shows the run, the round, and why a board is not in it.
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>

#include "aggregator/command/aggregator_commands.h"
#include "aggregator/command/status_remote.h"
#include "aggregator/command/view/status_watch.h"
#include "aggregator/daemon/setup.h"
#include "aggregator/serve/status.h"
#include "aggregator/serve/status_print.h"
#include "aggregator/show/show.h"
#include "runtime/command/terminal/wrap.h"
#include "runtime/port/platform.h"

#define INDENT 6 // columns before the second and later lines of a paragraph

static const char help[] =
    "Usage: cairn-aggregator status [--json | --watch] PROFILE\n"
    "       cairn-aggregator status [--json] --socket PATH PROFILE\n"
    "\n"
    "Shows the run, its round and version, and for each board when it was last heard\n"
    "and why it is, or is not, in the round.\n"
    "\n"
    "  --json           one object a line: the run, each board, each group\n"
    "  --watch          on a terminal: progress, time left, curves and boards with\n"
    "                   trouble, drawn each second until the run is over, q or\n"
    "                   Ctrl-C. Space or p pauses the view, not the run. Arrows, j, k\n"
    "                   and the page keys scroll where the terminal is shorter.\n"
    "                   Without colours where NO_COLOR is set. Into a pipe or a file,\n"
    "                   and with TERM=dumb: lines for each version\n"
    "  --socket PATH    ask the aggregator over its control socket, as a user does\n"
    "                   who may not read the state. Such a user is in group\n"
    "                   cairn-view, and needs no --socket where the service runs.\n"
    "                   With --json: the object of aggregator/show/JSON.md\n";

// Says that no update is taken where the disk is too full for it.
static void print_disk(const struct cn_settings *settings)
{
    char text[CN_SHOW_DISK_SIZE];
    uint64_t bytes_free = cn_show_disk_free(settings->state);
    if (!bytes_free || bytes_free >= settings->reserve)
        return;
    cn_show_disk_text(bytes_free, settings->reserve, text);
    cn_wrap_print(text, CN_WRAP_INDENT);
}

// Prints JSON as it is, and other lines wrapped to the width of the terminal.
static cn_err print(const struct cn_setup *setup, bool json)
{
    struct cn_live_state live;
    struct cn_job job;
    uint64_t now_ms = cn_platform_now_ms();
    char *text = NULL;
    size_t size = 0;
    FILE *stream = json ? stdout : open_memstream(&text, &size);
    if (!stream)
        return CN_ENOMEM;
    cn_err err = cn_status_read(setup->settings->state, now_ms, &live);
    if (!err)
        err = cn_setup_find_job(setup, &job);
    if (!err)
        err = cn_status_print(setup->ledger, &job, &live, now_ms, json, stream);
    cn_status_deinit(&live);
    if (!json && fclose(stream) && !err)
        err = CN_ENOMEM;
    if (!json && !err) {
        print_disk(setup->settings);
        cn_wrap_print_all(text, INDENT);
    }
    free(text);
    return err;
}

static int run(const struct cn_ports *ports, int argc, char **argv)
{
    static const struct option known[] = {{"json", no_argument, NULL, 'j'},
                                          {"watch", no_argument, NULL, 'w'},
                                          {"socket", required_argument, NULL, 'S'},
                                          {0}};
    struct cn_steer steer = {0};
    bool json = false, watch = false;
    const char *positional[1];
    (void)ports;
    int option;
    while ((option = getopt_long(argc, argv, "", known, NULL)) != -1) {
        if (option == 'j')
            json = true;
        else if (option == 'w')
            watch = true;
        else if (!cn_steer_read_option(&steer, option, optarg))
            return CN_EXIT_USAGE;
    }
    if (!cn_aggregator_positional(argc, argv, 1, positional))
        return CN_EXIT_USAGE;
    if (watch && (json || steer.socket)) {
        fprintf(stderr, "error: --watch and --%s do not go together\n", json ? "json" : "socket");
        return CN_EXIT_USAGE;
    }
    if (!watch && cn_steer_is_needed(&steer, positional[0], CN_STEER_READ))
        return cn_status_remote_print(&steer, positional[0], json);
    struct cn_setup setup = {0};
    int result = cn_setup_open(&setup, positional[0], CN_SETUP_LOOK);
    if (!result && watch) {
        result = cn_status_watch(&setup, cn_command_catch_signals());
    } else if (!result) {
        cn_err err = print(&setup, json);
        if (err)
            fprintf(stderr, "%s: %s\n", setup.state_name, cn_err_text(err));
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
