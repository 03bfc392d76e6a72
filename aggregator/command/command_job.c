// cairn-aggregator job: several jobs on one gateway.
#include <getopt.h>
#include <stdio.h>
#include <string.h>

#include "aggregator/command/aggregator_commands.h"
#include "aggregator/command/audited.h"
#include "aggregator/command/steer.h"
#include "aggregator/command/view/job_view.h"
#include "aggregator/daemon/job_opening.h"
#include "aggregator/daemon/job_submit.h"
#include "runtime/base/whole_number.h"

static const char help[] =
    "Usage: cairn-aggregator job submit PROFILE JOB [--name NAME] [--priority P]\n"
    "                        [--turn ROUNDS] [--needs RULE] [--from RUN[:VERSION]]\n"
    "       cairn-aggregator job list PROFILE [--json]\n"
    "       cairn-aggregator job show PROFILE NAME [--json]\n"
    "       cairn-aggregator job hold|resume|next PROFILE NAME\n"
    "       cairn-aggregator job stop PROFILE NAME --yes\n"
    "\n"
    "Several jobs share the boards, keys and address of one gateway: that of its\n"
    "profile, and those that are submitted. A group serves one job at a time and\n"
    "changes to another when its update is accepted. Each job has a run of its own,\n"
    "whose final model is the same as if it were alone with the same groups. JOB is\n"
    "a job file; the files of its run are in STATE/jobs/NAME, and commands such as\n"
    "status, export and replay take its profile.yaml there.\n"
    "\n"
    "submit   puts a job into the queue; its model and profile are copied\n"
    "list     all jobs, with how they stand\n"
    "show     one job, with its groups and the path of its profile\n"
    "hold     the job opens no round until resume; its open one is finished\n"
    "resume   ends a hold; tries a job that failed again\n"
    "next     the job comes before all others until its turn is over\n"
    "stop     ends the job for good; its versions stay\n"
    "\n"
    "  --name NAME      of the job here; default: the name in the job file\n"
    "  --priority P     0 to 9, the highest first; default 5, as the profile's job. A\n"
    "                   job that waits gains 1 each hour\n"
    "  --turn ROUNDS    after so many rounds, others of its priority have the groups;\n"
    "                   default 10\n"
    "  --needs RULE     by name, memory, cores, gpu (cuda or none) and arch of\n"
    "                   boards: 'memory >= 4 GiB and arch >= 8.7'\n"
    "  --from RUN[:V]   begins with what another job trained: the name of that, and a\n"
    "                   version: a number, last (the default) or best\n"
    "  --json           for programs\n" //
    CN_STEER_HELP;

struct options {
    struct cn_steer steer;
    struct cn_job_submission submission;
    const char *from;
    bool json;
};

static bool take_number(const char *option, const char *text, uint64_t min, uint64_t max,
                        uint32_t *number)
{
    uint64_t value;
    if (cn_whole_number_read(text, min, max, &value)) {
        *number = (uint32_t)value;
        return true;
    }
    fprintf(stderr, "error: %s %s: expected a whole number from %u to %u\n", option, text,
            (unsigned)min, (unsigned)max);
    return false;
}

// --- submit ---

static int check_rule(const char *text)
{
    struct cn_rule rule;
    char why[CN_DIAG_LINE_SIZE];
    cn_err err = strlen(text) < CN_RULE_SIZE ? CN_OK : CN_ERANGE;
    if (err)
        snprintf(why, sizeof(why), "longer than %d characters", CN_RULE_SIZE - 1);
    else if (text[0])
        err = cn_rule_parse(text, why, &rule);
    if (!err && text[0] && !cn_rule_is_of_registration(&rule)) {
        err = CN_EINVAL;
        snprintf(why, sizeof(why), "it speaks of more than a board tells when it registers");
    }
    if (err)
        fprintf(stderr, "error: --needs: %s%s\n", why,
                err == CN_EINVAL ? "; a gateway knows name, memory, cores, gpu and arch" : "");
    return err ? CN_EXIT_USAGE : CN_EXIT_DONE;
}

// Splits RUN[:VERSION] and finds the state directory of the run.
static int find_from(const struct cn_setup *setup, const char *from, char state[CN_PATH_SIZE],
                     char version[CN_NAME_SIZE])
{
    char name[CN_NAME_SIZE];
    const char *colon = strchr(from, ':');
    size_t length = colon ? (size_t)(colon - from) : strlen(from);
    struct cn_queued_job found;
    snprintf(name, sizeof(name), "%.*s", (int)(length < CN_NAME_SIZE ? length : CN_NAME_SIZE - 1),
             from);
    snprintf(version, CN_NAME_SIZE, "%s", colon ? colon + 1 : "last");
    snprintf(state, CN_PATH_SIZE, "%s", setup->settings->state);
    if (strcmp(name, setup->settings->job.name) == 0)
        return CN_EXIT_DONE;
    if (length < CN_NAME_SIZE && !cn_jobs_find(setup->ledger, name, &found) &&
        cn_job_opening_path(setup->settings->state, name, "", state))
        return CN_EXIT_DONE;
    fprintf(stderr, "error: --from %s: no job of this name was submitted\n", from);
    return CN_EXIT_FAILED;
}

static int submit(const struct options *options, const char *profile, const char *job)
{
    struct cn_job_submission submission = options->submission;
    struct cn_setup setup = {.rights = CN_SETUP_OF_OWNER_FOREVER};
    struct cn_job_files files = {0};
    struct cn_queued_job row = {0};
    struct cn_audited audited;
    int opened = CN_EXIT_DONE;
    char state[CN_PATH_SIZE], version[CN_NAME_SIZE];
    submission.profile = profile;
    submission.job = job;
    int result = check_rule(submission.needs);
    if (!result)
        result = cn_setup_load(&setup, profile);
    if (!result) { // what is wrong with them is noted in the audit, too
        opened = cn_job_files_open(&submission, &files);
        result = cn_setup_open_state(&setup, CN_SETUP_ENROLL);
    }
    if (!result && options->from) {
        result = find_from(&setup, options->from, state, version);
        submission.from = state;
        submission.version = version;
    }
    if (!result)
        result = cn_audited_begin(&audited, &setup, "job-submit", "file", job);
    if (!result) {
        result = opened ? opened : cn_job_submit(&setup, &submission, &files, &row);
        if (!result) { // the line "asked" has the file
            audited.key = "job";
            audited.value = row.name;
        }
        result = cn_audited_end(&audited, result);
        if (!result) {
            printf("job %s is in the queue with priority %u\n", row.name, row.priority);
            cn_job_view_await(&setup, row.name);
        }
    }
    cn_job_files_close(&files);
    cn_setup_deinit(&setup);
    return result;
}

// --- the others ---

static int view(const struct options *options, const char *profile, const char *name)
{
    struct cn_setup setup = {0};
    int result = cn_setup_open(&setup, profile, CN_SETUP_LOOK);
    if (!result)
        result = cn_job_view(&setup, name, options->json);
    cn_setup_deinit(&setup);
    return result;
}

static int steer(struct options *options, const char *profile, const char *verb, const char *name)
{
    char command[CN_CONTROL_COMMAND_SIZE];
    if (!cn_steer_set_name(name, options->steer.request.job))
        return CN_EXIT_USAGE;
    options->steer.request.members |= CN_CONTROL_JOB;
    snprintf(command, sizeof(command), "job-%s", verb);
    return cn_steer_send(&options->steer, profile, command);
}

static int run(const struct cn_ports *ports, int argc, char **argv)
{
    static const struct option known[] = {
        {"name", required_argument, NULL, 'n'},
        {"priority", required_argument, NULL, 'p'},
        {"turn", required_argument, NULL, 't'},
        {"needs", required_argument, NULL, 'r'},
        {"from", required_argument, NULL, 'f'},
        {"json", no_argument, NULL, 'j'},
        {"yes", no_argument, NULL, 'y'},
        CN_STEER_OPTIONS,
        {0},
    };
    struct options options = {
        .submission = {.priority = CN_JOB_PRIORITY, .turn = CN_JOB_TURN, .needs = ""}};
    struct cn_job_submission *submission = &options.submission;
    char name[CN_NAME_SIZE];
    int option;
    (void)ports;
    while ((option = getopt_long(argc, argv, "", known, NULL)) != -1) {
        bool good = true;
        if (option == 'n')
            good = cn_steer_set_name(submission->name = optarg, name);
        else if (option == 'p')
            good =
                take_number("--priority", optarg, 0, CN_JOB_PRIORITY_MOST, &submission->priority);
        else if (option == 't')
            good = take_number("--turn", optarg, 1, CN_JOB_TURN_MOST, &submission->turn);
        else if (option == 'r')
            submission->needs = optarg;
        else if (option == 'f')
            options.from = optarg;
        else if (option == 'j')
            options.json = true;
        else if (option == 'y')
            options.steer.request.yes = true, options.steer.request.members |= CN_CONTROL_YES;
        else
            good = cn_steer_read_option(&options.steer, option, optarg);
        if (!good)
            return CN_EXIT_USAGE;
    }
    const char *verb = optind < argc ? argv[optind] : "", *words[3];
    if (strcmp(verb, "list") == 0)
        return cn_aggregator_arguments(argc, argv, 2, "list PROFILE", words)
                   ? view(&options, words[1], NULL)
                   : CN_EXIT_USAGE;
    if (strcmp(verb, "submit") == 0)
        return cn_aggregator_arguments(argc, argv, 3, "submit PROFILE JOB", words)
                   ? submit(&options, words[1], words[2])
                   : CN_EXIT_USAGE;
    if (strcmp(verb, "show") == 0)
        return cn_aggregator_arguments(argc, argv, 3, "show PROFILE NAME", words)
                   ? view(&options, words[1], words[2])
                   : CN_EXIT_USAGE;
    static const char *const verbs[] = {"hold", "resume", "next", "stop"};
    for (size_t i = 0; i < sizeof(verbs) / sizeof(verbs[0]); i++)
        if (strcmp(verb, verbs[i]) == 0)
            return cn_aggregator_arguments(argc, argv, 3, "a verb, PROFILE and NAME", words)
                       ? steer(&options, words[1], verb, words[2])
                       : CN_EXIT_USAGE;
    fprintf(stderr, "error: job %s: expected submit, list, show, hold, resume, next or stop\n",
            verb);
    return CN_EXIT_USAGE;
}

const struct cn_command cn_aggregator_job = {
    .name = "job",
    .summary = "several jobs on one gateway: submit, list, hold",
    .help = help,
    .run = run,
};
