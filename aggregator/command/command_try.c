// cairn-aggregator try: a gateway and boards on this machine train the user's model on the user's
// data.
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "aggregator/command/aggregator_commands.h"
#include "aggregator/command/try_options.h"
#include "aggregator/command/view/try_result.h"
#include "aggregator/trial/trial_run.h"
#include "runtime/command/terminal/wrap.h"

static const char help[] =
    "Usage: cairn-aggregator try MODEL.onnx --data X Y [OPTIONS]\n"
    "       cairn-aggregator try --keep DIR\n"
    "\n"
    "Trains a model on this machine as a federation would: divides the samples among\n"
    "boards, writes a profile and a key for each, and runs the gateway and all boards\n"
    "as processes over loopback. Prints the address of a page that shows the run, a\n"
    "row for each version, and in the end rounds, accuracy, bytes and digest. Ctrl-C\n"
    "ends all; the same command goes on, if DIR is kept. The second form goes on with\n"
    "what is in DIR, profiles that you changed included.\n"
    "\n"
    "  --data X Y       inputs and labels: .npy, .npz:NAME, IDX or .csv, a row each;\n"
    "                   a * in both names several files\n"
    "  --test X Y       samples that measure each version; default: a tenth of --data\n"
    "  --boards N       default 4, at most 64\n"
    "  --groups N       the boards form so many groups; default 2\n"
    "  --split KIND     iid: each board gets samples of all kinds (default); labels:\n"
    "                   each label goes to one group; dirichlet: each label is dealt\n"
    "                   to the groups in random shares\n"
    "  --alpha A        of dirichlet; the smaller, the more unequal; default 0.5\n"
    "  --scale S        factor of each input, such as 0.00392157 for bytes; default 1\n"
    "  --rounds N       default 20, or as --job says\n"
    "  --job FILE       job file with other values, such as server.optimizer; what it\n"
    "                   leaves out is as without it. With data.scope: shared all\n"
    "                   boards of a group have the same samples\n"
    "  --seed N         of division and training; default 1\n"
    "  --threads N      of each board; default: the processors, divided among the\n"
    "                   boards. Only boards with as many make the same bits\n"
    "  --keep DIR       keep all files of the run in DIR; default: a temporary folder\n"
    "  --port P         first port: the page's, then the gateway's, then the boards';\n"
    "                   default: any that are free\n"
    "  --stay           keep the page after the end, until Ctrl-C\n"
    "  --json           print only the result, as one JSON object\n"
    "\n"
    "A board that fails is told at once; the run goes on while groups for the quorum\n"
    "are left. If the loss is not finite, name a job with a lower train.learning_rate\n"
    "or, for features of different scales, the model that cairn-node normalize makes.\n"
    "\n"
    "Exits 0 when the run is over, 1 when files cannot be used, 2 for options that do\n"
    "not fit, 3 for a job file with mistakes, 4 when the gateway failed or too few\n"
    "boards can train, 130 for Ctrl-C.\n";

struct trial {
    struct cn_try_options options;
    struct cn_trial_folder folder;
    struct cn_trial_programs programs;
    const atomic_bool *stop;
    struct cn_profile *given; // the job file, loaded
    struct cn_setup setup;    // the gateway's, for a look
};

static int report(const struct cn_diag *diag, int code)
{
    cn_command_print_errors(diag);
    return code;
}

static bool find_programs(struct cn_trial_programs *programs)
{
    const struct {
        const char *name;
        char *path;
    } wanted[] = {{"cairn-node", programs->node}, {"cairn-aggregator", programs->aggregator}};
    for (size_t i = 0; i < sizeof(wanted) / sizeof(wanted[0]); i++) {
        if (cn_trial_process_find(wanted[i].name, wanted[i].path, PATH_MAX))
            continue;
        fprintf(stderr, "error: %s is neither beside this program nor in PATH\n", wanted[i].name);
        return false;
    }
    return true;
}

// Reads the job file, if there is one, to print its mistakes before anything is made. Its warnings
// are printed when the gateway's profile is loaded, which extends it.
static int read_job(struct trial *trial)
{
    struct cn_diag diag;
    struct cn_trial_options *options = &trial->options.trial;
    if (!options->job)
        return CN_EXIT_DONE;
    cn_diag_init(&diag);
    if (cn_profile_load(options->job, &diag, &trial->given)) {
        cn_command_print_diag(&diag);
        return CN_EXIT_PROFILE;
    }
    const struct cn_job *job = &cn_profile_settings(trial->given)->job;
    uint32_t quorum = job->quorum;
    options->given = trial->given;
    options->split.shared = job->parallel.scope == CN_SCOPE_SHARED;
    if (quorum <= options->split.groups)
        return CN_EXIT_DONE;
    fprintf(stderr,
            "error: --groups %u: rounds.quorum of %s wants at least %u; use --groups %u or a "
            "smaller rounds.quorum\n",
            options->split.groups, options->job, quorum, quorum);
    return CN_EXIT_USAGE;
}

// Makes the trial's folder. If that fails, removes what was made of it.
static int make(struct trial *trial)
{
    struct cn_diag diag;
    char settings[CN_TRIAL_TEXT_SIZE];
    struct cn_trial_options *options = &trial->options.trial;
    cn_diag_init(&diag);
    if (!options->model) {
        fprintf(stderr, "error: %s: there is no earlier try\n", options->keep);
        return CN_EXIT_FAILED;
    }
    int code = read_job(trial);
    if (code)
        return code;
    if (cn_trial_folder_make(&trial->folder, options->keep, &diag))
        return report(&diag, CN_EXIT_FAILED);
    cn_try_options_describe(options, settings, sizeof(settings));
    cn_err err = cn_trial_prepare(options, &trial->programs, &trial->folder, &diag);
    bool fits = err || cn_trial_check(&trial->programs, &trial->folder, options->split.boards);
    if (!err && fits)
        err = cn_trial_folder_finish(&trial->folder, settings, &diag);
    cn_command_print_errors(&diag);
    code = err || !fits ? CN_EXIT_FAILED : CN_EXIT_DONE;
    if (code)
        cn_trial_folder_close(&trial->folder, true);
    return code;
}

// Takes up the trial of a folder.
static int take_up(struct trial *trial)
{
    struct cn_diag diag;
    char settings[CN_TRIAL_TEXT_SIZE];
    struct cn_trial_options *options = &trial->options.trial;
    cn_diag_init(&diag);
    cn_try_options_describe(options, settings, sizeof(settings));
    if (options->model && cn_trial_folder_compare(&trial->folder, settings, &diag))
        return report(&diag, CN_EXIT_USAGE);
    ssize_t size = pread(trial->folder.lock, settings, sizeof(settings) - 1, 0);
    settings[size < 0 ? 0 : size] = '\0';
    cn_try_options_recall(settings, &options->split);
    if (options->split.boards)
        return CN_EXIT_DONE;
    fprintf(stderr, "error: %s/%s is damaged\n", trial->folder.path, CN_TRIAL_FILE);
    return CN_EXIT_FAILED;
}

static int open_folder(struct trial *trial)
{
    struct cn_diag diag;
    bool exists = false;
    cn_diag_init(&diag);
    if (trial->options.trial.keep &&
        cn_trial_folder_open(&trial->folder, trial->options.trial.keep, &exists, &diag))
        return report(&diag, CN_EXIT_FAILED);
    return exists ? take_up(trial) : make(trial);
}

// --- the run ---

static void announce(const struct trial *trial)
{
    const struct cn_settings *settings = trial->setup.settings;
    const struct cn_trial_split *split = &trial->options.trial.split;
    if (trial->options.json)
        return;
    printf("%u board%s in %u group%s; logs and profiles: %s\n", split->boards,
           split->boards == 1 ? "" : "s", split->groups, split->groups == 1 ? "" : "s",
           trial->folder.path);
    if (settings->http.listen[0])
        printf("watch the run in a browser: http://%s/\n", settings->http.listen);
    cn_try_result_describe(&settings->job);
    fflush(stdout);
}

static int print_result(const struct trial *trial)
{
    return cn_try_result_print(&trial->setup, trial->folder.path, trial->options.json);
}

// Prints what the gateway warned of, because a person who tries something sees no log.
static void tell_warnings(const struct trial *trial)
{
    char log[PATH_MAX + 32], newest[CN_TRIAL_LINE_SIZE], line[PATH_MAX + CN_TRIAL_LINE_SIZE + 128];
    snprintf(log, sizeof(log), "%s/logs/gateway.log", trial->folder.path);
    uint64_t count = cn_trial_process_warnings(log, newest);
    if (count == 0 || trial->options.json)
        return;
    snprintf(line, sizeof(line), "warnings of the gateway: %" PRIu64 ", the newest: %s", count,
             newest);
    cn_wrap_print(line, CN_WRAP_INDENT);
}

static void tell_rest(const struct trial *trial, const char *profile, int code)
{
    bool over = cn_try_result_end(&trial->setup) != NULL;
    if (code == CN_EXIT_DONE && !over && trial->options.trial.keep)
        fprintf(stderr, "the run is drained, not over; cairn-aggregator try --keep %s goes on\n",
                trial->folder.path);
    else if (code == CN_EXIT_DONE && trial->options.trial.keep && !trial->options.json)
        printf("next: cairn-aggregator export %s --version best -o model\n"
               "      cairn-aggregator report %s -o run.html\n",
               profile, profile);
    else if (code == CN_EXIT_INTERRUPTED && trial->options.trial.keep)
        fprintf(stderr, "stopped; cairn-aggregator try --keep %s goes on\n", trial->folder.path);
    else if (code == CN_TRIAL_EXIT_PROCESS)
        fprintf(stderr,
                "all files: %s; when the cause is mended, cairn-aggregator try --keep %s goes on\n",
                trial->folder.path, trial->folder.path);
}

// Returns the fewest boards with which a group can hold the model.
static uint32_t members_needed(const struct cn_job *job)
{
    uint32_t parts = job->pipeline.parts > 1 ? job->pipeline.parts : 1;
    return parts * (job->parallel.shard > 1 ? job->parallel.shard : 1);
}

static int run_processes(struct trial *trial)
{
    const struct cn_settings *settings = trial->setup.settings;
    struct cn_trial_run run = {.programs = &trial->programs,
                               .folder = trial->folder.path,
                               .state = settings->state,
                               .split = &trial->options.trial.split,
                               .quorum = cn_job_buffer(&settings->job),
                               .members = members_needed(&settings->job),
                               .boards = trial->options.trial.split.boards,
                               .rounds = settings->job.rounds,
                               .stay = trial->options.trial.stay,
                               .quiet = trial->options.json,
                               .stop = trial->stop};
    int code = cn_trial_run_until_end(&run);
    if (code == CN_EXIT_DONE)
        code = print_result(trial);
    if (code == CN_EXIT_DONE && run.stay && settings->http.listen[0]) {
        printf("the page stays until Ctrl-C: http://%s/\n", settings->http.listen);
        fflush(stdout);
        cn_trial_run_stay(&run);
    }
    cn_trial_run_end(&run);
    return code;
}

static int run_trial(struct trial *trial)
{
    char path[PATH_MAX + 16];
    snprintf(path, sizeof(path), "%s/gateway.yaml", trial->folder.path);
    trial->setup.rights = CN_SETUP_OF_CALLER;
    int code = cn_setup_open(&trial->setup, path, CN_SETUP_LOOK);
    if (code)
        return code;
    if (cn_try_result_end(&trial->setup)) {
        code = print_result(trial);
    } else {
        announce(trial);
        code = run_processes(trial);
    }
    if (code == CN_EXIT_DONE)
        tell_warnings(trial);
    tell_rest(trial, path, code);
    return code;
}

static int run(const struct cn_ports *ports, int argc, char **argv)
{
    struct trial trial = {.folder = {.lock = -1}};
    (void)ports;
    if (!cn_try_options_read(argc, argv, &trial.options))
        return CN_EXIT_USAGE;
    trial.stop = cn_command_catch_signals();
    if (!find_programs(&trial.programs))
        return CN_EXIT_FAILED;
    int code = open_folder(&trial);
    cn_profile_free(trial.given);
    if (code)
        return code;
    code = run_trial(&trial);
    cn_setup_deinit(&trial.setup);
    bool needless = !trial.options.trial.keep && code != CN_TRIAL_EXIT_PROCESS;
    cn_trial_folder_close(&trial.folder, needless);
    return code;
}

const struct cn_command cn_aggregator_try = {
    .name = "try",
    .summary = "train a model on this machine as a federation would",
    .help = help,
    .exits = "4 too few boards can train, or the gateway failed",
    .run = run,
};
