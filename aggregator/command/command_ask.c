// cairn-aggregator logs and selftest: what a board answers to an operator.
#include <cjson/cJSON.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "aggregator/command/aggregator_commands.h"
#include "aggregator/command/steer.h"
#include "runtime/port/order.h"

#define WAIT_S 90       // a board asks at least every 72 s
#define TEST_WAIT_S 390 // WAIT_S, and the 300 s that a board's test may take
#define POLL_MS 300

static const char logs_help[] =
    "Usage: cairn-aggregator logs PROFILE BOARD [--lines N] [--wait SECONDS]\n"
    "                             [--socket PATH] [--id ID]\n"
    "\n"
    "Shows the newest lines of a board's log, at most 32 KiB. The board's profile\n"
    "must have `remote: log`. A board that leads its group hears of it within\n"
    "seconds, another one with its next report of health, within 72 s.\n"
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
    "  --wait SECONDS   how long to wait for the board; default 390. Within 10\n"
    "                   minutes the same command shows an answer that came later\n" CN_STEER_HELP;

static void sleep_ms(long ms)
{
    const struct timespec time = {ms / 1000, ms % 1000 * 1000000};
    (void)nanosleep(&time, NULL);
}

// The client while it waits.
struct wait {
    struct cn_steer *steer;
    const struct cn_settings *settings;
    const char *command;
    long wait_s;
    bool away;        // the aggregator was not there at the last try
    double parts;     // parts of the answer that have come
    time_t changed_s; // clock; when the last one came
};

static time_t now_s(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec;
}

// Prints the answer if it is there. Returns false while it is not.
static bool show(struct wait *wait, const cJSON *state, int *result)
{
    const char *text = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(state, "text"));
    const char *command = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(state, "command"));
    const cJSON *parts = cJSON_GetObjectItemCaseSensitive(state, "parts");
    bool refused = cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(state, "refused"));
    if (command && strcmp(command, wait->command) != 0) {
        fprintf(stderr, "error: another operator has asked %s for something else\n",
                wait->steer->request.board);
        return true;
    }
    if (cJSON_IsNumber(parts) && parts->valuedouble > wait->parts) {
        wait->parts = parts->valuedouble;
        wait->changed_s = now_s();
    }
    if (!text)
        return false;
    if (refused)
        fprintf(stderr, "error: %s answers: %s", wait->steer->request.board, text);
    else
        fputs(text, stdout);
    *result = refused ? CN_EXIT_FAILED : CN_EXIT_DONE;
    return true;
}

// Asks once. Returns whether there is nothing more to wait for.
static bool look(struct wait *wait, int *result)
{
    bool reached;
    cJSON *root = cn_steer_ask(wait->steer, wait->settings, "answer", &reached);
    bool ended = !root && reached; // refused, and printed
    if (root)
        ended = show(wait, cJSON_GetObjectItemCaseSensitive(root, "state"), result);
    wait->away = !reached;
    cJSON_Delete(root);
    return ended;
}

// Waits for the answer; longer than wait_s while parts of it come.
static int wait_for(struct wait *wait)
{
    int result = CN_EXIT_FAILED;
    wait->steer->request.members &= ~(unsigned)CN_CONTROL_LINES;
    wait->steer->id = NULL;
    wait->changed_s = now_s();
    while (!look(wait, &result)) {
        if (now_s() - wait->changed_s >= wait->wait_s) {
            fprintf(stderr,
                    wait->away ? "error: the aggregator has gone while %s was asked\n"
                               : "error: %s has not answered: is it there, and of a release that "
                                 "knows `remote`? `status` says when it was heard last\n",
                    wait->steer->request.board);
            break;
        }
        sleep_ms(POLL_MS);
    }
    return result;
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
    struct wait wait = {.steer = steer, .settings = settings, .command = command, .wait_s = wait_s};
    int result = root ? wait_for(&wait) : CN_EXIT_FAILED;
    if (!reached)
        fprintf(stderr, "error: no aggregator of this profile runs: boards answer through it\n");
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
            if (!take_number(optarg, CN_ORDER_LINES_MAX, &lines))
                return CN_EXIT_USAGE;
            steer.request.lines = (uint64_t)lines;
            steer.request.members |= CN_CONTROL_LINES;
        } else if (option == 'w') {
            if (!take_number(optarg, 3600, &wait_s))
                return CN_EXIT_USAGE;
        } else if (!cn_steer_read_option(&steer, option, optarg))
            return CN_EXIT_USAGE;
    }
    if (!cn_aggregator_arguments(argc, argv, 2, "PROFILE BOARD", positional) ||
        !cn_steer_set_name(positional[1], steer.request.board))
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
