#include "runtime/command/command.h"

#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/base/build_version.h"
#include "runtime/command/log_options.h"
#include "runtime/command/misspelling.h"
#include "runtime/command/written_by.h"
#include "runtime/port/platform.h"
#include "runtime/profile/gpus.h"
#include "runtime/round/checkpoint/checkpoint.h"
#include "runtime/round/checkpoint/run_store.h"

static atomic_bool stop_requested; // global, because a signal handler has no context

static void on_signal(int number)
{
    (void)number;
    atomic_store(&stop_requested, true);
}

const atomic_bool *cn_command_catch_signals(void)
{
    struct sigaction action = {.sa_handler = on_signal};

    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    signal(SIGPIPE, SIG_IGN);
    return &stop_requested;
}

void cn_command_print_diag(const struct cn_diag *diag)
{
    for (size_t i = 0; i < diag->count && i < CN_DIAG_LINES; i++)
        fprintf(stderr, "%s\n", diag->lines[i]);
    if (diag->count > CN_DIAG_LINES)
        fprintf(stderr, "and %zu more\n", diag->count - CN_DIAG_LINES);
}

void cn_command_print_errors(const struct cn_diag *diag)
{
    for (size_t i = 0; i < diag->count && i < CN_DIAG_LINES; i++)
        fprintf(stderr, "error: %s\n", diag->lines[i]);
    if (diag->count > CN_DIAG_LINES)
        fprintf(stderr, "and %zu more\n", diag->count - CN_DIAG_LINES);
}

// Returns the line without "PATH: " at its beginning.
static const char *without_path(const char *line, const char *path)
{
    size_t length = strlen(path);
    bool says = strncmp(line, path, length) == 0 && strncmp(line + length, ": ", 2) == 0;

    return says ? line + length + 2 : line;
}

void cn_command_print_about(const char *path, cn_err err, const struct cn_diag *diag)
{
    for (size_t i = 0; i < diag->count && i < CN_DIAG_LINES; i++)
        fprintf(stderr, "%s: %s: %s\n", path, err ? "error" : "warning",
                without_path(diag->lines[i], path));
    if (diag->count > CN_DIAG_LINES)
        fprintf(stderr, "and %zu more\n", diag->count - CN_DIAG_LINES);
    if (err && diag->count == 0)
        fprintf(stderr, "%s: error: %s\n", path, cn_err_text(err));
}

static struct cn_profile *load_profile(const char *path, enum cn_profile_use use, const char *key)
{
    static struct cn_diag diag;
    struct cn_profile *profile = NULL;
    cn_err err;

    cn_diag_init(&diag);
    err = cn_profile_load(path, &diag, &profile);
    if (!err && key)
        err = cn_profile_use_key(profile, key);
    if (!err)
        err = cn_profile_require(profile, use, &diag);
    cn_command_print_diag(&diag);
    if (!err)
        return profile;
    if (diag.count == 0)
        fprintf(stderr, "%s: error: %s\n", path, cn_err_text(err));
    cn_profile_free(profile);
    return NULL;
}

struct cn_profile *cn_command_load_profile(const char *path, enum cn_profile_use use)
{
    return load_profile(path, use, NULL);
}

struct cn_profile *cn_command_load_node(const char *path, const char *key)
{
    return load_profile(path, CN_PROFILE_NODE, key);
}

int cn_command_take_profile(int argc, char **argv, const char *help, enum cn_profile_use use,
                            bool *json, struct cn_profile **profile)
{
    static const struct option known[] = {{"json", no_argument, NULL, 'j'}, {0}};
    int option;

    *json = false;
    while ((option = getopt_long(argc, argv, "", known, NULL)) != -1) {
        if (option != 'j')
            return CN_EXIT_USAGE;
        *json = true;
    }
    if (optind + 1 != argc) {
        fputs(help, stderr);
        return CN_EXIT_USAGE;
    }
    *profile = cn_command_load_profile(argv[optind], use);
    return *profile ? CN_EXIT_DONE : CN_EXIT_PROFILE;
}

int cn_command_open_store(const struct cn_settings *settings, struct cn_store **store)
{
    uint32_t version = 0;
    cn_err err = cn_platform_open_store(settings->state, store);

    if (err) {
        fprintf(stderr, "error: state directory %s: %s\n", settings->state,
                err == CN_EEXIST ? "another cairn-node uses it" : cn_err_reason(err));
        return CN_EXIT_FAILED;
    }
    if (cn_run_store_find_unknown(*store, &version) == CN_OK) {
        char found[64], known[64];

        snprintf(found, sizeof(found), "checkpoint format %u", version);
        snprintf(known, sizeof(known), "%d to %d", CN_CHECKPOINT_OLDEST, CN_CHECKPOINT_VERSION);
        cn_written_by_explain(settings->state, settings->state, found, known);
        (*store)->ops->close(*store);
        *store = NULL;
        return CN_EXIT_STATE;
    }
    cn_written_by_note(settings->state, "cairn-node");
    return CN_EXIT_DONE;
}

bool cn_command_is_sysroot(const char *directory)
{
    char sys[CN_PATH_SIZE], proc[CN_PATH_SIZE];

    if ((size_t)snprintf(sys, sizeof(sys), "%s/sys", directory) < sizeof(sys) &&
        (size_t)snprintf(proc, sizeof(proc), "%s/proc", directory) < sizeof(proc) &&
        (access(sys, X_OK) == 0 || access(proc, X_OK) == 0))
        return true;
    fprintf(stderr, "error: --sysroot '%s' has neither sys/ nor proc/ of a board\n", directory);
    return false;
}

// Opens the device to see whether it works, and sets *capability to that of struct cn_compute.
static bool opens(const struct cn_compute_ops *ops, uint32_t number, bool wanted,
                  uint32_t *capability)
{
    const struct cn_compute_config config = {.threads = 1, .number = number, .wanted = wanted};
    struct cn_compute *device;

    if (ops->open(&config, &device))
        return false;
    *capability = device->capability;
    ops->close(device);
    return true;
}

bool cn_command_has_device(const struct cn_compute_ops *ops, uint32_t number)
{
    uint32_t capability;

    return opens(ops, number, false, &capability);
}

// Returns the first device that works here. The last one in the list is the processor, which always
// works, but does not count where a GPU was asked for.
static const struct cn_compute_ops *find_device(const struct cn_compute_ops *const *ops,
                                                const struct cn_settings *settings,
                                                uint32_t *capability)
{
    uint32_t number = cn_gpus_first(settings);

    while (ops[1] && !opens(*ops, number, settings->gpus[0] != '\0', capability))
        ops++;
    if (ops[1] || !settings->gpus[0])
        return *ops;
    fprintf(stderr, "error: gpus: %u does not work here\n", number);
    return NULL;
}

const struct cn_compute_ops *cn_command_compute(const struct cn_ports *ports,
                                                const struct cn_settings *settings,
                                                uint32_t *capability)
{
    const struct cn_compute_ops *const *ops = ports->computes;
    const char *wanted = settings->device == CN_DEVICE_CUDA ? "cuda" : "cpu";
    uint32_t found = 0;

    capability = capability ? capability : &found;
    *capability = 0;
    if (settings->device == CN_DEVICE_AUTO)
        return find_device(ops, settings, capability);
    for (; *ops; ops++) {
        if (strcmp((*ops)->name, wanted) != 0)
            continue;
        if (!ops[1] || opens(*ops, cn_gpus_first(settings), true, capability))
            return *ops;
        fprintf(stderr,
                "error: device: %s does not work here; 'auto' takes the processor instead\n",
                wanted);
        return NULL;
    }
    fprintf(stderr, "error: device: %s is not part of this build; use 'auto' or 'cpu'\n", wanted);
    return NULL;
}

// Prints the exit codes, no line wider than 80 columns.
static void print_exits(FILE *stream, const struct cn_command *const *commands)
{
    int column = fprintf(stream, "Exit codes: 0 done, 1 failed, 2 usage, 3 invalid profile,");

    for (size_t i = 0; commands[i]; i++) {
        int width = commands[i]->exits ? (int)strlen(commands[i]->exits) + 2 : 0;

        if (width && column + width > 80)
            column = fprintf(stream, "\n%s,", commands[i]->exits);
        else if (width)
            column += fprintf(stream, " %s,", commands[i]->exits);
    }
    fprintf(stream, "%s130 interrupted.\n", column > 60 ? "\n" : " ");
}

static void print_usage(FILE *stream, const char *program, const struct cn_command *const *commands)
{
    int width = 0;

    for (size_t i = 0; commands[i]; i++) {
        int length = (int)strlen(commands[i]->name);

        width = length > width ? length : width;
    }
    // Two spaces follow the longest name: manual pages and shell completion find its end by them.
    fprintf(stream,
            "Usage: %s [--log-level error|warn|info|debug]\n"
            "       [--log-format text|json|journal] COMMAND [OPTIONS]\n\n",
            program);
    for (size_t i = 0; commands[i]; i++)
        fprintf(stream, "  %-*s  %s\n", width, commands[i]->name, commands[i]->summary);
    fprintf(stream,
            "\nLog lines go to standard error: the time in UTC, or seconds since boot\n"
            "(+42.017s) while the clock is not set; the level; the area; the text.\n"
            "Under journald, and with --log-format journal, its priority stands in place of\n"
            "the time. --log-format json writes an object a line. --log-level warn,run=debug\n"
            "sets the level of the area run apart.\n"
            "\n'%s COMMAND --help' describes a command.\n",
            program);
    print_exits(stream, commands);
}

// Checks that all output was written: with a full disk the exit code must not be 0.
static int end_output(int code)
{
    if (fflush(stdout) == 0 && !ferror(stdout))
        return code;
    fprintf(stderr, "error: standard output could not be written\n");
    return code == CN_EXIT_DONE ? CN_EXIT_FAILED : code;
}

static int run_command(const char *program, const struct cn_command *command,
                       const struct cn_ports *ports, int argc, char **argv)
{
    char name[80];
    int code;

    snprintf(name, sizeof(name), "%s %s", program, command->name);
    argv[0] = name; // getopt puts it in front of its messages
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--help") == 0) {
            fputs(command->help, stdout);
            return end_output(CN_EXIT_DONE);
        }
    }
    code = command->run(ports, argc, argv);
    if (code == CN_EXIT_USAGE && optopt == 0 && optind > 1 && optind <= argc)
        cn_misspelling_option(program, command, argv[optind - 1]); // getopt has said the error
    return end_output(code);
}

cn_err cn_command_open_timeline(const char *path, struct cn_timeline **timeline)
{
    cn_err err = path ? cn_timeline_open(path, timeline) : CN_OK;

    if (err)
        fprintf(stderr, "error: --timeline %s: cannot be written: %s\n", path, cn_err_reason(err));
    return err;
}

void cn_command_close_timeline(const char *path, struct cn_timeline *timeline)
{
    if (cn_timeline_close(timeline))
        fprintf(stderr, "error: --timeline %s: is not complete\n", path);
}

int cn_command_dispatch(const char *program, const struct cn_command *const *commands,
                        const struct cn_ports *ports, int argc, char **argv)
{
    cn_platform_hide_memory();
    if (cn_log_options_take(&argc, argv))
        return CN_EXIT_USAGE;
    if (argc < 2) {
        print_usage(stderr, program, commands);
        return CN_EXIT_USAGE;
    }
    if (strcmp(argv[1], "--help") == 0) {
        print_usage(stdout, program, commands);
        return CN_EXIT_DONE;
    }
    if (strcmp(argv[1], "--version") == 0) {
        printf("%s %s\n", program, cn_build_version);
        return CN_EXIT_DONE;
    }
    for (const struct cn_command *const *command = commands; *command; command++) {
        if (strcmp(argv[1], (*command)->name) == 0)
            return run_command(program, *command, ports, argc - 1, argv + 1);
    }
    cn_misspelling_command(program, commands, argv[1]);
    return CN_EXIT_USAGE;
}
