// cairn-aggregator logs and selftest: what a board answers to an operator.
#include <cjson/cJSON.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "aggregator/command/aggregator_commands.h"
#include "aggregator/command/steer.h"

#define LINES_MOST 1000
#define WAIT_S 90       // a board asks at least every 72 s
#define TEST_WAIT_S 390 // and may test itself for 300 s
#define POLL_MS 300

static const char logs_help[] =
    "Usage: cairn-aggregator logs PROFILE BOARD [--lines N] [--wait SECONDS]\n"
    "                             [--socket PATH] [--id ID]\n"
    "\n"
    "Shows the newest lines of a board's log, at most 32 KiB. The board's profile must\n"
    "have `remote: log`. A board that leads its group hears of it within seconds,\n"
    "another one with its next report of health, within 72 s.\n"
    "\n"
    "  --lines N        1 to 1000; default 100\n"
    "  --wait SECONDS   how long to wait for the board; default 90. Within 10 minutes\n"
    "                   the same command shows an answer that came later\n" CN_STEER_HELP;

static const char selftest_help[] =
    "Usage: cairn-aggregator selftest PROFILE BOARD [--wait SECONDS] [--socket PATH]\n"
    "                                 [--id ID]\n"
    "\n"
    "Has a board test itself, beside what it does, and shows the report: hardware,\n"
    "drivers, clock, sensors, memory, training on each device, storage. The board's\n"
    "profile must have `remote: selftest`.\n"
    "\n"
    "  --wait SECONDS   how long to wait for the board; default 390. Within 10 minutes\n"
    "                   the same command shows an answer that came later\n" CN_STEER_HELP;

static void sleep_ms(long ms)
{
    const struct timespec time = {ms / 1000, ms % 1000 * 1000000};
    (void)nanosleep(&time, NULL);
}

// Prints the answer if it is there. Returns whether there is nothing more to wait for.
static bool show(const cJSON *root, int *result)
{
    const cJSON *state = cJSON_GetObjectItemCaseSensitive(root, "state");
    const char *text = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(state, "text"));
    if (root && !text)
        return false;
    *result = root ? CN_EXIT_DONE : CN_EXIT_FAILED;
    if (text)
        fputs(text, stdout);
    return true;
}

static int wait_for(struct cn_steer *steer, const struct cn_settings *settings, long wait_s)
{
    struct timespec begun, now;
    int result = CN_EXIT_FAILED;
    (void)clock_gettime(CLOCK_MONOTONIC, &begun);
    steer->request.members &= ~(unsigned)CN_CONTROL_LINES;
    steer->id = NULL;
    for (;;) {
        bool reached;
        cJSON *root = cn_steer_ask(steer, settings, "answer", &reached);
        bool ended = show(root, &result);
        cJSON_Delete(root);
        if (ended)
            return result;
        (void)clock_gettime(CLOCK_MONOTONIC, &now);
        if (now.tv_sec - begun.tv_sec >= wait_s)
            break;
        sleep_ms(POLL_MS);
    }
    fprintf(stderr,
            "error: %s has not answered within %ld s: is it there, and of a release that knows "
            "`remote`? `status` says when it was heard last\n",
            steer->request.board, wait_s);
    return CN_EXIT_FAILED;
}

static bool take_number(const char *text, long most, long *number)
{
    char *end;
    *number = strtol(text, &end, 10);
    if (end != text && !*end && *number >= 1 && *number <= most)
        return true;
    fprintf(stderr, "error: %s: expected a number from 1 to %ld\n", text, most);
    return false;
}

static int ask(struct cn_steer *steer, const char *profile, const char *command, long wait_s)
{
    bool reached;
    struct cn_profile *loaded = cn_command_load_profile(profile, CN_PROFILE_GATEWAY);
    if (!loaded)
        return CN_EXIT_PROFILE;
    const struct cn_settings *settings = cn_profile_settings(loaded);
    cJSON *root = cn_steer_ask(steer, settings, command, &reached);
    int result = root ? wait_for(steer, settings, wait_s) : CN_EXIT_FAILED;
    if (!reached)
        fprintf(stderr, "error: no aggregator of this profile runs: a board's log comes through "
                        "it\n");
    cJSON_Delete(root);
    cn_profile_free(loaded);
    return result;
}

// Reads the options of a command, of which only logs has lines.
static int run(int argc, char **argv, const char *command, bool has_lines, long wait_s)
{
    static const struct option known[] = {{"lines", required_argument, NULL, 'l'},
                                          {"wait", required_argument, NULL, 'w'},
                                          CN_STEER_OPTIONS,
                                          {0}};
    struct cn_steer steer = {0};
    const char *positional[2];
    long lines;
    int option;
    while ((option = getopt_long(argc, argv, "", known + !has_lines, NULL)) != -1) {
        if (option == 'l') {
            if (!take_number(optarg, LINES_MOST, &lines))
                return CN_EXIT_USAGE;
            steer.request.lines = (uint64_t)lines;
            steer.request.members |= CN_CONTROL_LINES;
        } else if (option == 'w') {
            if (!take_number(optarg, 3600, &wait_s))
                return CN_EXIT_USAGE;
        } else if (!cn_steer_take_option(&steer, option, optarg))
            return CN_EXIT_USAGE;
    }
    if (!cn_aggregator_arguments(argc, argv, 2, "PROFILE BOARD", positional) ||
        !cn_steer_take_name(positional[1], steer.request.board))
        return CN_EXIT_USAGE;
    steer.request.members |= CN_CONTROL_BOARD;
    return ask(&steer, positional[0], command, wait_s);
}

static int run_logs(const struct cn_ports *ports, int argc, char **argv)
{
    (void)ports;
    return run(argc, argv, "logs", true, WAIT_S);
}

static int run_selftest(const struct cn_ports *ports, int argc, char **argv)
{
    (void)ports;
    return run(argc, argv, "selftest", false, TEST_WAIT_S);
}

const struct cn_command cn_aggregator_logs = {
    .name = "logs",
    .summary = "show the newest lines of a board's log",
    .help = logs_help,
    .run = run_logs,
};

const struct cn_command cn_aggregator_selftest = {
    .name = "selftest",
    .summary = "have a board test itself, and show the report",
    .help = selftest_help,
    .run = run_selftest,
};
