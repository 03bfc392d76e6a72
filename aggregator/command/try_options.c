#include "aggregator/command/try_options.h"

#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/whole_number.h"
#include "runtime/port/link.h"

#define ROUNDS_MAX 1000000
#define THREADS_MAX 1024      // as of the key "threads"
#define SEED_MAX (1ull << 53) // JSON and YAML readers keep whole numbers below that

struct reading {
    struct cn_try_options *options;
    int argc;
    char **argv;
    bool failed;
    const char *made; // the first option that only a new trial takes; NULL: none was given
};

static void refuse(struct reading *reading, const char *option, const char *value, const char *want)
{
    fprintf(stderr, "error: --%s %s: expected %s\n", option, value, want);
    reading->failed = true;
}

static uint64_t read_count(struct reading *reading, const char *option, uint64_t least,
                           uint64_t most)
{
    char want[80];
    uint64_t value;
    if (cn_whole_number_read(optarg, least, most, &value))
        return value;
    snprintf(want, sizeof(want), "a number from %" PRIu64 " to %" PRIu64, least, most);
    refuse(reading, option, optarg, want);
    return least;
}

static double read_number(struct reading *reading, const char *option, double least, double most)
{
    char *end, want[80];
    double value = strtod(optarg, &end);
    if (end != optarg && !*end && isfinite(value) && value >= least && value <= most)
        return value;
    snprintf(want, sizeof(want), "a number from %g to %g", least, most);
    refuse(reading, option, optarg, want);
    return least;
}

// Takes the option's value and the argument behind it.
static void read_pair(struct reading *reading, const char *option, const char **inputs,
                      const char **labels)
{
    if (optind >= reading->argc || reading->argv[optind][0] == '-') {
        refuse(reading, option, optarg, "two files: inputs and labels");
        return;
    }
    *inputs = optarg;
    *labels = reading->argv[optind++];
}

static void read_split(struct reading *reading)
{
    struct cn_trial_split *split = &reading->options->trial.split;
    for (int kind = CN_TRIAL_IID; kind <= CN_TRIAL_DIRICHLET; kind++) {
        if (strcmp(optarg, cn_trial_split_name((enum cn_trial_split_kind)kind)) == 0) {
            split->kind = (enum cn_trial_split_kind)kind;
            return;
        }
    }
    refuse(reading, "split", optarg, "iid, labels or dirichlet");
}

static void read_job(struct reading *reading)
{
    struct cn_try_options *options = reading->options;
    if (!realpath(optarg, options->job)) {
        fprintf(stderr, "error: --job %s: %s\n", optarg, strerror(errno));
        reading->failed = true;
    } else if (strpbrk(options->job, "\"\\\n")) {
        refuse(reading, "job", optarg, "a path without quotes and backslashes");
    }
    options->trial.job = options->job;
}

static void read_option(struct reading *reading, int option)
{
    struct cn_trial_options *trial = &reading->options->trial;
    switch (option) {
    case 'd':
        read_pair(reading, "data", &trial->inputs, &trial->labels);
        break;
    case 't':
        read_pair(reading, "test", &trial->test_inputs, &trial->test_labels);
        break;
    case 'b':
        trial->split.boards = (uint32_t)read_count(reading, "boards", 1, CN_TRIAL_BOARDS_MAX);
        break;
    case 'g':
        trial->split.groups = (uint32_t)read_count(reading, "groups", 1, CN_TRIAL_BOARDS_MAX);
        break;
    case 's':
        read_split(reading);
        break;
    case 'a':
        trial->split.alpha = read_number(reading, "alpha", 0.01, 1000);
        break;
    case 'e':
        trial->split.seed = read_count(reading, "seed", 0, SEED_MAX - 1);
        break;
    case 'x':
        trial->scale = read_number(reading, "scale", -1e9, 1e9);
        break;
    case 'r':
        trial->rounds = (uint32_t)read_count(reading, "rounds", 1, ROUNDS_MAX);
        break;
    case 'p':
        trial->port = (uint32_t)read_count(reading, "port", 1, UINT16_MAX);
        break;
    case 'n':
        trial->threads = (uint32_t)read_count(reading, "threads", 1, THREADS_MAX);
        break;
    case 'j':
        read_job(reading);
        break;
    case 'k':
        trial->keep = optarg;
        break;
    case 'y':
        trial->stay = true;
        break;
    case 'o':
        reading->options->json = true;
        break;
    default: // getopt told
        reading->failed = true;
    }
}

// Notes an option that says what a new trial is made of.
static void note(struct reading *reading, int option, const char *name)
{
    bool goes_on = option == 'k' || option == 'y' || option == 'o';
    if (!goes_on && !reading->made)
        reading->made = name;
}

// The profiles of an earlier trial say already what it trains.
static void refuse_made(struct reading *reading)
{
    const char *keep = reading->options->trial.keep, *option = reading->made;
    fprintf(stderr,
            "error: --%s: try --keep %s goes on with what is in %s, and takes no other value; edit "
            "%s/job.yaml%s, or begin another trial: try MODEL.onnx --data X Y --%s ...\n",
            option, keep, keep, keep, strcmp(option, "rounds") == 0 ? " (rounds.count)" : "",
            option);
    reading->failed = true;
}

// Checks what belongs together.
static void check(struct reading *reading)
{
    const struct cn_trial_options *trial = &reading->options->trial;
    const struct cn_trial_split *split = &trial->split;
    uint32_t least = (split->boards + CN_GROUP_MAX - 1) / CN_GROUP_MAX;
    const char *wrong = NULL;
    if (!trial->model && trial->keep && reading->made) {
        refuse_made(reading);
        return;
    }
    if (!trial->model && (trial->inputs || !trial->keep))
        wrong = "try wants a MODEL.onnx, or --keep DIR with an earlier try";
    else if (trial->model && !trial->inputs)
        wrong = "try wants --data X Y: the files of inputs and labels";
    else if (split->alpha > 0 && split->kind != CN_TRIAL_DIRICHLET)
        wrong = "--alpha belongs to --split dirichlet";
    if (wrong)
        fprintf(stderr, "error: %s\n", wrong);
    else if (split->groups > split->boards)
        fprintf(stderr, "error: --groups %u: expected at most one for each of %u boards\n",
                split->groups, split->boards);
    else if (split->groups < least)
        fprintf(stderr,
                "error: --groups %u: expected at least %u for %u boards; a group has at most %d\n",
                split->groups, least, split->boards, CN_GROUP_MAX);
    else
        return;
    reading->failed = true;
}

bool cn_try_options_read(int argc, char **argv, struct cn_try_options *options)
{
    static const struct option known[] = {
        {"data", required_argument, NULL, 'd'},    {"test", required_argument, NULL, 't'},
        {"boards", required_argument, NULL, 'b'},  {"groups", required_argument, NULL, 'g'},
        {"split", required_argument, NULL, 's'},   {"alpha", required_argument, NULL, 'a'},
        {"seed", required_argument, NULL, 'e'},    {"scale", required_argument, NULL, 'x'},
        {"rounds", required_argument, NULL, 'r'},  {"port", required_argument, NULL, 'p'},
        {"threads", required_argument, NULL, 'n'}, {"job", required_argument, NULL, 'j'},
        {"keep", required_argument, NULL, 'k'},    {"stay", no_argument, NULL, 'y'},
        {"json", no_argument, NULL, 'o'},          {0},
    };
    struct reading reading = {.options = options, .argc = argc, .argv = argv};
    int option, place;
    *options = (struct cn_try_options){
        .trial = {.split = {.kind = CN_TRIAL_IID, .boards = 4, .groups = 2, .seed = 1},
                  .scale = 1}};
    while (!reading.failed && (option = getopt_long(argc, argv, "", known, &place)) != -1) {
        read_option(&reading, option);
        if (!reading.failed)
            note(&reading, option, known[place].name);
    }
    if (!reading.failed && argc - optind > 1) {
        fprintf(stderr, "error: '%s': try wants one MODEL.onnx\n", argv[optind + 1]);
        return false;
    }
    if (!reading.failed && optind < argc)
        options->trial.model = argv[optind];
    if (!reading.failed)
        check(&reading);
    if (options->trial.split.alpha <= 0) // not given
        options->trial.split.alpha = 0.5;
    return !reading.failed;
}

// --- the text in the folder ---

static void add_path(char *text, size_t size, const char *key, const char *path)
{
    char absolute[PATH_MAX];
    size_t at = strlen(text);
    if (!path)
        return;
    // A path with a * is no file.
    snprintf(text + at, size - at, "%s %s\n", key, realpath(path, absolute) ? absolute : path);
}

void cn_try_options_describe(const struct cn_trial_options *options, char *text, size_t size)
{
    const struct cn_trial_split *split = &options->split;
    int at = snprintf(text, size, "boards %u\ngroups %u\nsplit %s", split->boards, split->groups,
                      cn_trial_split_name(split->kind));
    if (split->kind == CN_TRIAL_DIRICHLET)
        at += snprintf(text + at, size - (size_t)at, " %.9g", split->alpha);
    at += snprintf(text + at, size - (size_t)at, "\nseed %" PRIu64 "\nscale %.9g\n", split->seed,
                   options->scale);
    if (options->rounds)
        at += snprintf(text + at, size - (size_t)at, "rounds %u\n", options->rounds);
    if (options->threads)
        snprintf(text + at, size - (size_t)at, "threads %u\n", options->threads);
    add_path(text, size, "model", options->model);
    add_path(text, size, "inputs", options->inputs);
    add_path(text, size, "labels", options->labels);
    add_path(text, size, "test-inputs", options->test_inputs);
    add_path(text, size, "test-labels", options->test_labels);
    add_path(text, size, "job", options->job);
}

void cn_try_options_recall(const char *text, struct cn_trial_split *split)
{
    if (sscanf(text, "boards %" SCNu32 "\ngroups %" SCNu32, &split->boards, &split->groups) != 2 ||
        split->boards < 1 || split->boards > CN_TRIAL_BOARDS_MAX || split->groups < 1 ||
        split->groups > split->boards)
        split->boards = 0;
}
