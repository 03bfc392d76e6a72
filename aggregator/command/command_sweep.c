// cairn-aggregator sweep: tries a job with several values of its keys and finds the best.
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "aggregator/command/aggregator_commands.h"
#include "aggregator/command/try_options.h"
#include "aggregator/sweep/sweep.h"
#include "aggregator/trial/trial_process.h"
#include "runtime/base/whole_number.h"

#define FIRST 3
#define FACTOR 3
#define FACTOR_MAX 100
#define ROUNDS_MAX 1000000
#define SETTINGS_SIZE (CN_TRIAL_TEXT_SIZE + CN_SWEEP_SPACE_SIZE + 128)

static const char help[] =
    "Usage: cairn-aggregator sweep MODEL.onnx --data X Y --keep DIR\n"
    "                              --set KEY=V,V,... [OPTIONS]\n"
    "\n"
    "Tries values of a job's keys. Each trial is a federation on this machine, as\n"
    "`cairn-aggregator try` runs it, with the same samples, boards and seed. All\n"
    "trials train for a few rounds. The third with the lowest loss on rows that no\n"
    "board has goes on to three times as many rounds, and so on until one is left.\n"
    "Prints a table, and writes the winner's values to DIR/winner.yaml, a job file\n"
    "for --job of try. Ctrl-C ends the sweep; the same command goes on.\n"
    "\n"
    "  --set KEY=V,...  a key of the job and its values, such as\n"
    "                   train.learning_rate=0.1,0.03,0.01; several --set are combined\n"
    "  --draw KEY=A..B  draws the value from A to B; --log-draw draws its logarithm\n"
    "                   evenly, as for learning rates\n"
    "  --draws N        N trials, which draw each --draw, and a value of each --set\n"
    "  --first N        rounds of all trials; default 3\n"
    "  --factor N       one of N trials goes on, to N times the rounds; default 3\n"
    "  --keep DIR       folder of the sweep; the winner's run stays in it\n"
    "  --keep-all       the runs of the others stay, too\n"
    "  --json           print only the result, as one JSON object\n"
    "\n"
    "Options of try: --data, --test, --boards, --groups, --split, --alpha, --scale,\n"
    "--job, --port, and --seed, also of the draws. At most 8 keys and 243 trials.\n"
    "Keys that say what is learnt or how it is measured cannot be swept: model, data,\n"
    "loss, central, stop, gate, seed, rounds.count. A trial whose loss is not finite\n"
    "loses.\n"
    "\n"
    "Exits 0 when there is a winner, 1 when files cannot be used or every trial\n"
    "failed, 2 for options that do not fit, 3 for a value that the job does not take,\n"
    "130 for Ctrl-C.\n";

struct options {
    struct cn_sweep sweep;
    struct cn_try_options trial;
    char **words;      // of try; owned, the strings are borrowed
    size_t word_count; // with the name of the command in front
    bool json;
    bool failed;
};

// --- the command line ---

// Returns the value of an option that stands as "--name VALUE" or "--name=VALUE" at *at, and moves
// *at to its last word. NULL: there is another word, or no value.
static const char *take_value(int argc, char **argv, int *at, const char *name)
{
    size_t length = strlen(name);
    const char *word = argv[*at];
    if (!word || strncmp(word, name, length) != 0)
        return NULL;
    if (word[length] == '=')
        return word + length + 1;
    return !word[length] && *at + 1 < argc ? argv[++*at] : NULL;
}

static uint32_t read_count(struct options *options, const char *name, const char *text,
                           uint32_t least, uint32_t most)
{
    uint64_t value = least;
    if (cn_whole_number_read(text, least, most, &value))
        return (uint32_t)value;
    fprintf(stderr, "error: %s %s: expected a number from %u to %u\n", name, text, least, most);
    options->failed = true;
    return least;
}

// Takes an option of the sweep itself. Returns false when the word is none.
static bool take_own(struct options *options, int argc, char **argv, int *at)
{
    struct cn_sweep *sweep = &options->sweep;
    struct cn_diag diag;
    const char *word = argv[*at], *value;
    cn_err err = CN_OK;
    cn_diag_init(&diag);
    if ((value = take_value(argc, argv, at, "--set")))
        err = cn_sweep_space_add_list(&sweep->space, value, &diag);
    else if ((value = take_value(argc, argv, at, "--draw")))
        err = cn_sweep_space_add_range(&sweep->space, value, false, &diag);
    else if ((value = take_value(argc, argv, at, "--log-draw")))
        err = cn_sweep_space_add_range(&sweep->space, value, true, &diag);
    else if ((value = take_value(argc, argv, at, "--draws")))
        sweep->space.draws = read_count(options, "--draws", value, 1, CN_SWEEP_TRIALS_MAX);
    else if ((value = take_value(argc, argv, at, "--first")))
        sweep->plan.first = read_count(options, "--first", value, 1, ROUNDS_MAX);
    else if ((value = take_value(argc, argv, at, "--factor")))
        sweep->plan.factor = read_count(options, "--factor", value, 2, FACTOR_MAX);
    else if (strcmp(word, "--keep-all") == 0)
        sweep->keep_all = true;
    else if ((value = take_value(argc, argv, at, "--keep")))
        sweep->folder = value;
    else if (strcmp(word, "--json") == 0)
        options->json = true;
    else
        return false;
    cn_command_print_errors(&diag);
    options->failed |= err != CN_OK;
    return true;
}

// Checks what belongs together.
static void check(struct options *options)
{
    struct cn_sweep *sweep = &options->sweep;
    const struct cn_trial_options *trial = &options->trial.trial;
    struct cn_diag diag;
    const char *wrong = NULL;
    cn_diag_init(&diag);
    if (!sweep->folder)
        wrong = "sweep wants --keep DIR, a folder for its trials";
    else if (trial->rounds || trial->stay)
        wrong = "sweep takes no --rounds and no --stay: --first and --factor say how long trials "
                "train";
    if (wrong)
        fprintf(stderr, "error: %s\n", wrong);
    options->failed |= wrong || cn_sweep_space_check(&sweep->space, &diag);
    cn_command_print_errors(&diag);
    sweep->plan.trials = sweep->space.trials;
    if (options->failed)
        return;
    uint32_t rungs = cn_halving_rungs(&sweep->plan);
    if (rungs <= CN_SWEEP_RUNGS_MAX && cn_halving_rounds(&sweep->plan, rungs - 1) <= ROUNDS_MAX)
        return;
    fprintf(stderr, "error: --first and --factor: the last trial would train more than %d rounds\n",
            ROUNDS_MAX);
    options->failed = true;
}

// Reads the arguments after the command's name. Prints what is wrong.
static bool read_options(struct options *options, int argc, char **argv)
{
    struct cn_sweep *sweep = &options->sweep;
    options->words = calloc((size_t)argc + 1, sizeof(*options->words));
    if (!options->words)
        return false;
    sweep->plan = (struct cn_halving){.first = FIRST, .factor = FACTOR};
    options->words[options->word_count++] = argv[0];
    for (int i = 1; i < argc && !options->failed; i++)
        if (!take_own(options, argc, argv, &i))
            options->words[options->word_count++] = argv[i];
    if (!options->failed && options->word_count == 1) {
        fprintf(stderr, "error: sweep wants a MODEL.onnx and --data X Y: inputs and labels\n");
        return false;
    }
    if (options->failed ||
        !cn_try_options_read((int)options->word_count, options->words, &options->trial))
        return false;
    sweep->space.seed = options->trial.trial.split.seed;
    sweep->base = options->trial.trial.job;
    check(options);
    return !options->failed;
}

// --- the sweep ---

// The words of `try` without --job, which each trial has for itself.
static void drop_job(struct options *options)
{
    size_t kept = 0;
    for (size_t i = 1; i < options->word_count; i++) {
        if (strncmp(options->words[i], "--job=", 6) == 0)
            continue;
        if (strcmp(options->words[i], "--job") == 0)
            i++;
        else
            options->words[kept++] = options->words[i];
    }
    options->sweep.given = options->words;
    options->sweep.given_count = kept;
}

// Writes what the sweep is made of: another command must not go on with its folder.
static void describe(const struct options *options, char settings[SETTINGS_SIZE])
{
    char trial[CN_TRIAL_TEXT_SIZE], space[CN_SWEEP_SPACE_SIZE];
    cn_try_options_describe(&options->trial.trial, trial, sizeof(trial));
    cn_sweep_space_describe(&options->sweep.space, space);
    snprintf(settings, SETTINGS_SIZE, "first %u\nfactor %u\n%s%s", options->sweep.plan.first,
             options->sweep.plan.factor, trial, space);
}

static int open_folder(struct options *options)
{
    static char settings[SETTINGS_SIZE];
    struct cn_diag diag;
    cn_diag_init(&diag);
    describe(options, settings);
    if (cn_sweep_record_open(&options->sweep.record, options->sweep.folder, settings, &diag)) {
        cn_command_print_errors(&diag);
        return CN_EXIT_FAILED;
    }
    return CN_EXIT_DONE;
}

static void tell_end(const struct cn_sweep *sweep, int code)
{
    char name[CN_SWEEP_NAME_SIZE];
    if (code == CN_EXIT_INTERRUPTED)
        fprintf(stderr, "stopped; the same command goes on\n");
    if (code || sweep->quiet)
        return;
    cn_sweep_name(sweep->winner, name);
    printf("the winner is trial %u; its values as a job file: %s/winner.yaml\n"
           "next: cairn-aggregator export %s/%s/gateway.yaml --version best -o model\n",
           sweep->winner + 1, sweep->folder, sweep->folder, name);
}

static int run_sweep(struct options *options)
{
    struct cn_sweep *sweep = &options->sweep;
    int code = open_folder(options);
    if (!code)
        code = cn_sweep_prepare(sweep);
    if (!code)
        code = cn_sweep_run(sweep);
    if (!code)
        cn_sweep_print(sweep, options->json);
    tell_end(sweep, code);
    cn_sweep_record_close(&sweep->record);
    return code;
}

static int run(const struct cn_ports *ports, int argc, char **argv)
{
    static struct options options; // the values of all keys are too large for the stack
    static char aggregator[PATH_MAX];
    (void)ports;
    if (!read_options(&options, argc, argv)) {
        free(options.words);
        return CN_EXIT_USAGE;
    }
    drop_job(&options);
    options.sweep.quiet = options.json;
    options.sweep.stop = cn_command_catch_signals();
    options.sweep.aggregator = aggregator;
    int code = CN_EXIT_FAILED;
    if (cn_trial_process_find("cairn-aggregator", aggregator, sizeof(aggregator)))
        code = run_sweep(&options);
    else
        fprintf(stderr, "error: cairn-aggregator is neither beside this program nor in PATH\n");
    free(options.words);
    return code;
}

const struct cn_command cn_aggregator_sweep = {
    .name = "sweep",
    .summary = "find good values of a job's keys by trials on this machine",
    .help = help,
    .run = run,
};
