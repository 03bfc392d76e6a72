// cairn-flash rollout: updates boards with two systems in waves, and stops after failures.
#include <cjson/cJSON.h>
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "boards/flash/board/enrol.h"
#include "boards/flash/commands.h"
#include "boards/flash/tool/console.h"
#include "boards/flash/tool/process.h"
#include "boards/flash/tool/remote.h"
#include "boards/flash/update/bundle.h"
#include "boards/flash/update/rollout.h"
#include "runtime/base/whole_number.h"
#include "runtime/port/platform.h"
#include "runtime/profile/notation/quantity.h"

#define ASK_MS 1000
#define TIMEOUT "90 min" // the longest round for which a board waits, and three tries
#define WAVE_MAX CN_PROCESS_JOBS
#define SSH_LOST 255 // ssh(1): the connection broke, as it does when the board restarts

// The bundle lies where both systems of the board see it.
#define FIND_FOLDER                                                                                \
    CN_REMOTE_ROOT "if [ -r /etc/default/cairn-update ]; then . /etc/default/cairn-update; fi; "   \
                   "d=${CAIRN_DATA:-/var/lib/private}/cairn-update; "

static const char help[] =
    "Usage: cairn-flash rollout LIST --bundle FILE --version V --gateway PROFILE\n"
    "                           [--wave N] [--stop-after N] [--timeout TIME]\n"
    "\n"
    "Updates boards with two systems. LIST has a line for each: NAME USER@HOST. They\n"
    "are updated in waves, never two of a group at the same time; the next wave\n"
    "begins when each board of this one has said, by way of the gateway, that the new\n"
    "system works. Stops after failures. Run it again to go on: boards that have the\n"
    "version are passed over. Needs ssh and sudo without a password.\n"
    "\n"
    "  --bundle FILE      the update that 'bundle' made\n"
    "  --version V        its version\n"
    "  --gateway PROFILE  the aggregator's profile, here or at ssh://HOST/PATH\n"
    "  --wave N           boards of a wave, 1 to 64; default: 1\n"
    "  --stop-after N     failures after which no further wave begins; default: 1\n"
    "  --timeout TIME     for a wave, sending included; default: 90 min\n"
    "  --json             one object a line\n";

struct rollout_options {
    const char *list, *bundle, *gateway;
    size_t wave, stop_after;
    uint64_t timeout_ms;
    uint8_t digest[CN_DIGEST_SIZE];
    struct cn_rollout rollout;
};

// --- What the gateway says ---

static void read_text(const cJSON *object, const char *key, char *text, size_t size)
{
    const char *value = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(object, key));

    snprintf(text, size, "%s", value ? value : "");
}

static void take_object(void *context, const cJSON *object)
{
    struct cn_rollout *rollout = context;
    struct cn_rollout_facts facts;
    char name[CN_NAME_SIZE];

    read_text(object, "board", name, sizeof(name));
    if (!name[0] || cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(object, "revoked")))
        return;
    read_text(object, "group", facts.group, sizeof(facts.group));
    read_text(object, "slot_version", facts.slot_version, sizeof(facts.slot_version));
    read_text(object, "update", facts.update, sizeof(facts.update));
    read_text(object, "update_version", facts.update_version, sizeof(facts.update_version));
    for (size_t i = 0; i < rollout->count; i++)
        if (strcmp(rollout->boards[i].row->name, name) == 0)
            cn_rollout_note(rollout, &rollout->boards[i], &facts);
}

static int look(struct rollout_options *options, bool quiet)
{
    return cn_enrol_list(options->gateway, quiet, take_object, &options->rollout);
}

// --- One board ---

static void fail(struct cn_rollout_board *board, const char *why)
{
    board->state = CN_ROLLOUT_FAILED;
    cn_console_error(NULL, "%s: %s", board->row->name, why);
}

// --- A wave ---

// All boards of a wave get the bundle and install it at the same time, each at its own pace: one
// that does not get on holds up none of the others.
struct wave {
    const struct rollout_options *options;
    uint64_t deadline_ms; // of cn_platform_now_ms
    struct cn_rollout_board *boards[WAVE_MAX];
    struct cn_process_job jobs[WAVE_MAX];
    const char *words[WAVE_MAX][CN_REMOTE_WORDS]; // the command lines of jobs
    bool sent[WAVE_MAX];                          // the board has the bundle
    size_t count;
};

// Sets what the job of board i runs next.
static void set_script(struct wave *wave, size_t i, const char *script, int in)
{
    const char *const words[] = CN_REMOTE_COMMAND(wave->boards[i]->row->place, script);

    _Static_assert(sizeof(words) == sizeof(wave->words[i]), "CN_REMOTE_WORDS is wrong");
    memcpy(wave->words[i], words, sizeof(words));
    wave->jobs[i].argv = wave->words[i];
    wave->jobs[i].in = in;
}

static void set_sending(struct wave *wave, size_t i)
{
    static const char script[] =
        FIND_FOLDER "$s sh -c 'umask 077; mkdir -p \"$1\" && cat >\"$1/bundle.new\" && test -s "
                    "\"$1/bundle.new\" && sync "
                    "\"$1/bundle.new\" && mv \"$1/bundle.new\" \"$1/bundle.raucb\"' sh \"$d\" && "
                    "$s sha256sum \"$d/bundle.raucb\"";

    set_script(wave, i, script, open(wave->options->bundle, O_RDONLY | O_CLOEXEC));
}

static bool is_whole_there(const struct wave *wave, const struct cn_process_result *result)
{
    char digest[2 * CN_DIGEST_SIZE + 1];

    cn_hex(digest, wave->options->digest, CN_DIGEST_SIZE);
    return result->out.size >= strlen(digest) &&
           memcmp(result->out.data, digest, strlen(digest)) == 0;
}

// Returns whether the board has the bundle, and may install it.
static bool take_sending(struct wave *wave, size_t i)
{
    struct cn_rollout_board *board = wave->boards[i];
    struct cn_process_result *result = &wave->jobs[i].result;

    if (wave->jobs[i].in < 0)
        fail(board, "the bundle cannot be opened");
    else if (result->late)
        fail(board, "it has not taken the bundle in time");
    else if (result->code != 0)
        fail(board, cn_process_complaint(result));
    else if (!is_whole_there(wave, result))
        fail(board, "the bundle reads back differently there");
    else
        cn_console_step("sent", "%s has the bundle", board->row->name);
    if (wave->jobs[i].in >= 0)
        close(wave->jobs[i].in);
    wave->jobs[i].in = -1;
    return board->state == CN_ROLLOUT_UPDATES;
}

// A board whose installation does not end in time may have the update all the same: what the
// gateway says decides.
static void take_installation(struct wave *wave, size_t i)
{
    struct cn_process_result *result = &wave->jobs[i].result;
    const char *name = wave->boards[i]->row->name;

    if (result->code == 0 || cn_process_interrupted())
        return;
    if (result->late)
        cn_console_step("late", "%s: its installation has not ended in time", name);
    else if (result->code == SSH_LOST && result->errors.size)
        cn_console_step("lost", "%s: %s", name, cn_process_complaint(result));
    else if (result->code != SSH_LOST) {
        wave->boards[i]->state = CN_ROLLOUT_FAILED;
        cn_console_error(NULL, "%s: cairn-update install has failed there: %s", name,
                         cn_process_complaint(result));
    }
}

// Starts the installation once the bundle is there.
static bool take_ended(void *context, struct cn_process_job *job)
{
    static const char script[] = FIND_FOLDER "$s cairn-update install \"$d/bundle.raucb\"";
    struct wave *wave = context;
    size_t i = (size_t)(job - wave->jobs);

    if (wave->sent[i]) {
        take_installation(wave, i);
        return false;
    }
    wave->sent[i] = take_sending(wave, i);
    if (!wave->sent[i] || cn_process_interrupted())
        return false;
    set_script(wave, i, script, -1);
    return true;
}

static void update_all(struct wave *wave)
{
    for (size_t i = 0; i < wave->count; i++) {
        wave->jobs[i] = (struct cn_process_job){0};
        wave->sent[i] = false;
        set_sending(wave, i);
    }
    cn_process_run_all(wave->jobs, wave->count, wave->deadline_ms, take_ended, wave);
    for (size_t i = 0; i < wave->count; i++)
        cn_process_deinit(&wave->jobs[i].result);
}

// Waits until each board of the wave has decided. A gateway that cannot be asked for a while does
// not end the wave, because its boards go on.
static int wait_for_all(struct rollout_options *options, uint64_t deadline_ms)
{
    int code = CN_EXIT_DONE;

    for (;;) {
        code = look(options, code != CN_EXIT_DONE); // says once that the gateway does not answer
        if (cn_process_interrupted())
            return CN_EXIT_DONE;
        if (!code && !cn_rollout_count(&options->rollout, CN_ROLLOUT_UPDATES))
            return CN_EXIT_DONE;
        if (cn_platform_now_ms() >= deadline_ms)
            break;
        cn_platform_sleep_ms(ASK_MS);
    }
    if (code)
        return code;
    for (size_t i = 0; i < options->rollout.count; i++)
        if (options->rollout.boards[i].state == CN_ROLLOUT_UPDATES)
            fail(&options->rollout.boards[i], "it has not said in time that the new system works");
    return CN_EXIT_DONE;
}

static int run_wave(struct rollout_options *options)
{
    static struct wave wave;
    int code;

    wave.options = options;
    wave.deadline_ms = cn_platform_now_ms() + options->timeout_ms;
    wave.count = 0;
    while (wave.count < options->wave && !cn_process_interrupted()) {
        struct cn_rollout_board *board = cn_rollout_begin(&options->rollout);

        if (!board)
            break;
        wave.boards[wave.count++] = board;
    }
    update_all(&wave);
    code = wait_for_all(options, wave.deadline_ms);
    for (size_t i = 0; i < wave.count; i++) {
        const struct cn_rollout_board *board = wave.boards[i];

        if (board->state == CN_ROLLOUT_HAS)
            cn_console_step("updated", "%s runs version %s", board->row->name,
                            options->rollout.version);
        else if (board->state == CN_ROLLOUT_FAILED && board->facts.update[0])
            cn_console_step("result", "%s: update to %s: %s", board->row->name,
                            board->facts.update_version, board->facts.update);
    }
    return code;
}

static int check_boards(const struct cn_rollout *rollout)
{
    for (size_t i = 0; i < rollout->count; i++) {
        const struct cn_rollout_board *board = &rollout->boards[i];

        if (!board->known) {
            cn_console_error("'cairn-aggregator status' lists the boards",
                             "line %u: the gateway does not know %s", board->row->line,
                             board->row->name);
            return CN_EXIT_FAILED;
        }
    }
    return CN_EXIT_DONE;
}

static int run_waves(struct rollout_options *options)
{
    struct cn_rollout *rollout = &options->rollout;
    size_t failed = 0, left;
    int code = look(options, false);

    if (!code)
        code = check_boards(rollout);
    while (!code && !cn_process_interrupted() && cn_rollout_count(rollout, CN_ROLLOUT_WAITS) &&
           failed < options->stop_after) {
        code = run_wave(options);
        failed = cn_rollout_count(rollout, CN_ROLLOUT_FAILED);
    }
    if (code)
        return code;
    left = cn_rollout_count(rollout, CN_ROLLOUT_WAITS);
    cn_console_step("done", "%zu of %zu boards have version %s",
                    cn_rollout_count(rollout, CN_ROLLOUT_HAS), rollout->count, rollout->version);
    if (failed && left)
        cn_console_error("find out why, then run it again",
                         "stopped after %zu failures; %zu "
                         "boards are as they were",
                         failed, left);
    return cn_process_interrupted() ? CN_EXIT_INTERRUPTED : failed ? CN_EXIT_FAILED : CN_EXIT_DONE;
}

// --- The command ---

static bool take_count(const char *option, size_t most, size_t *count)
{
    uint64_t value;

    if (!cn_whole_number_read(optarg, 1, most, &value)) {
        cn_console_error(NULL, "%s '%s': a number from 1 to %zu is expected", option, optarg, most);
        return false;
    }
    *count = value;
    return true;
}

static bool take(struct rollout_options *options, int option, const char **timeout)
{
    switch (option) {
    case 'b':
        options->bundle = optarg;
        return true;
    case 'v':
        options->rollout.version = optarg;
        return true;
    case 'g':
        options->gateway = optarg;
        return true;
    case 't':
        *timeout = optarg;
        return true;
    case 'j':
        cn_console_set_json(true);
        return true;
    case 'w':
        return take_count("--wave", WAVE_MAX, &options->wave);
    case 's':
        return take_count("--stop-after", CN_BOARD_TABLE_ROWS, &options->stop_after);
    default:
        return false;
    }
}

static int parse(int argc, char **argv, struct rollout_options *options)
{
    static const struct option known[] = {
        {"bundle", required_argument, NULL, 'b'},
        {"version", required_argument, NULL, 'v'},
        {"gateway", required_argument, NULL, 'g'},
        {"wave", required_argument, NULL, 'w'},
        {"stop-after", required_argument, NULL, 's'},
        {"timeout", required_argument, NULL, 't'},
        {"json", no_argument, NULL, 'j'},
        {0},
    };
    const char *timeout = TIMEOUT;
    int option;

    while ((option = getopt_long(argc, argv, "", known, NULL)) != -1)
        if (!take(options, option, &timeout))
            return CN_EXIT_USAGE;
    if (!options->bundle || !options->gateway || !options->rollout.version || optind + 1 != argc) {
        fputs(help, stderr);
        return CN_EXIT_USAGE;
    }
    options->list = argv[optind];
    if (!cn_rauc_conf_is_word(options->rollout.version)) {
        cn_console_error(NULL, "--version '%s': 1 to 63 letters, digits and + - . _ ~ are expected",
                         options->rollout.version);
        return CN_EXIT_USAGE;
    }
    if (cn_quantity_parse(timeout, cn_units_time, &options->timeout_ms)) {
        cn_console_error(NULL, "--timeout '%s': expected a time such as '90 min'", timeout);
        return CN_EXIT_USAGE;
    }
    return CN_EXIT_DONE;
}

static int run(const struct cn_ports *ports, int argc, char **argv)
{
    static struct rollout_options options = {.wave = 1, .stop_after = 1};
    struct cn_board_table table = {0};
    int code = parse(argc, argv, &options);

    (void)ports;
    if (!code)
        code = cn_board_table_load(options.list, &table);
    if (code)
        return code;
    cn_process_catch_signals();
    options.rollout.count = table.count;
    options.rollout.boards = calloc(table.count, sizeof(*options.rollout.boards));
    for (size_t i = 0; i < table.count && options.rollout.boards; i++)
        options.rollout.boards[i].row = &table.rows[i];
    if (!options.rollout.boards) {
        code = CN_EXIT_FAILED;
    } else if (cn_bundle_digest(options.bundle, options.digest)) {
        cn_console_error(NULL, "%s cannot be read", options.bundle);
        code = CN_EXIT_FAILED;
    } else {
        code = run_waves(&options);
    }
    free(options.rollout.boards);
    cn_board_table_deinit(&table);
    return code;
}

const struct cn_command cn_flash_rollout = {
    .name = "rollout",
    .summary = "update boards with two systems in waves",
    .help = help,
    .run = run,
};
