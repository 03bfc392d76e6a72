// trial_check.c - has the programs themselves check files and profiles of a trial.
#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "aggregator/trial/trial.h"
#include "runtime/command/command.h"
#include "runtime/port/platform.h"

#define LOOK_MS 5
#define CHECK_LOG "logs/check.log"
#define SOURCES "check.yaml" // profile with the user's own files
#define WARNINGS_MAX 16

// Runs "PROGRAM check PROFILE" and returns its exit code. The log has what the program printed.
static int check(const char *program, const char *folder, const char *profile, int nowhere)
{
    char path[PATH_MAX], name[PATH_MAX], command[] = "check";
    struct cn_trial_process process = {0};
    snprintf(path, sizeof(path), "%s", program);
    snprintf(name, sizeof(name), "%s", profile);
    char *argv[] = {path, command, name, NULL};
    if (cn_trial_process_start(&process, folder, argv, CHECK_LOG, nowhere)) {
        fprintf(stderr, "error: %s: %s\n", program, strerror(errno));
        return CN_EXIT_FAILED;
    }
    while (!cn_trial_process_ended(&process))
        cn_platform_sleep_ms(LOOK_MS);
    return process.code;
}

// Prints that a check failed, and what it said.
static void tell(const char *folder, const char *what, const char *profile)
{
    char log[PATH_MAX + sizeof(CHECK_LOG)];
    snprintf(log, sizeof(log), "%s/%s", folder, CHECK_LOG);
    fprintf(stderr, "error: %s; `check` of %s says:\n", what, profile);
    (void)cn_trial_process_tell(log, 0);
}

// --- the user's own files ---

// Writes a path between double quotes, as YAML has them. A path with a * is no file, so only its
// folder is made absolute.
static void write_path(FILE *file, const char *path)
{
    char here[PATH_MAX] = "";
    if (path[0] != '/' && !getcwd(here, sizeof(here)))
        here[0] = '\0';
    fputc('"', file);
    for (const char *c = here; *c; c++)
        fprintf(file, strchr("\"\\", *c) ? "\\%c" : "%c", *c);
    if (here[0])
        fputc('/', file);
    for (const char *c = path; *c; c++)
        fprintf(file, strchr("\"\\", *c) ? "\\%c" : "%c", *c);
    fputc('"', file);
}

static cn_err write_profile(const char *folder, const char *inputs, const char *labels,
                            struct cn_diag *diag)
{
    FILE *file = cn_trial_file_create(folder, SOURCES, diag);
    if (!file)
        return CN_EIO;
    fprintf(file, "schema: cairn/site/v1\nstate: state/check\nthreads: 1\ndata:\n  try: {inputs: ");
    write_path(file, inputs);
    fprintf(file, ", labels: ");
    write_path(file, labels);
    fprintf(file, "}\njob: job.yaml\n");
    return cn_trial_file_close(file, SOURCES, diag);
}

static cn_err check_pair(const struct cn_trial_programs *programs, const char *folder,
                         const char *option, const char *inputs, const char *labels,
                         struct cn_diag *diag)
{
    char path[PATH_MAX + sizeof(SOURCES)], what[64];
    FILE *nowhere = fopen("/dev/null", "we");
    cn_err err = nowhere ? write_profile(folder, inputs, labels, diag) : CN_EIO;
    int code = err ? CN_EXIT_FAILED : check(programs->node, folder, SOURCES, fileno(nowhere));
    if (nowhere)
        fclose(nowhere);
    if (!err && code != CN_EXIT_DONE) {
        snprintf(what, sizeof(what), "model, job and %s do not fit", option);
        tell(folder, what, "them");
        err = CN_ECANCELED;
    }
    snprintf(path, sizeof(path), "%s/%s", folder, SOURCES);
    (void)remove(path);
    return err;
}

cn_err cn_trial_check_sources(const struct cn_trial_programs *programs,
                              const struct cn_trial_options *options, const char *folder,
                              struct cn_diag *diag)
{
    cn_err err = check_pair(programs, folder, "--data", options->inputs, options->labels, diag);
    if (!err && options->test_inputs)
        err = check_pair(programs, folder, "--test", options->test_inputs, options->test_labels,
                         diag);
    return err;
}

// --- the profiles ---

// Returns whether a line of a log, without its end, is a warning to print. A warning that names a
// line of a file is about the user's profile, and is printed when that is loaded.
static bool is_warning(const char *line)
{
    const char *found = strstr(line, "warning: ");
    return found && (found == line || (found - line > 2 && !isdigit((unsigned char)found[-3])));
}

// Prints the warnings of the checks, each once: boards have the same job.
static void print_warnings(const char *folder)
{
    char path[PATH_MAX + sizeof(CHECK_LOG)], told[WARNINGS_MAX][CN_TRIAL_LINE_SIZE];
    char line[CN_TRIAL_LINE_SIZE];
    size_t count = 0;
    snprintf(path, sizeof(path), "%s/%s", folder, CHECK_LOG);
    FILE *file = fopen(path, "re");
    while (file && count < WARNINGS_MAX && fgets(line, sizeof(line), file)) {
        size_t i = 0;
        line[strcspn(line, "\n")] = '\0';
        while (i < count && strcmp(told[i], line) != 0)
            i++;
        if (i < count || !is_warning(line))
            continue;
        memcpy(told[count++], line, sizeof(line));
        fprintf(stderr, "%s\n", line);
    }
    if (file)
        fclose(file);
}

bool cn_trial_check(const struct cn_trial_programs *programs, const struct cn_trial_folder *folder,
                    uint32_t boards)
{
    char profile[64];
    FILE *nowhere = fopen("/dev/null", "we");
    int code = nowhere ? check(programs->aggregator, folder->path, "gateway.yaml", fileno(nowhere))
                       : CN_EXIT_FAILED;
    snprintf(profile, sizeof(profile), "gateway.yaml");
    for (uint32_t i = 0; i < boards && code == CN_EXIT_DONE; i++) {
        snprintf(profile, sizeof(profile), "board-%u.yaml", i + 1);
        code = check(programs->node, folder->path, profile, fileno(nowhere));
    }
    if (nowhere)
        fclose(nowhere);
    if (code == CN_EXIT_DONE)
        print_warnings(folder->path);
    else
        tell(folder->path, "model and data do not fit the run", profile);
    return code == CN_EXIT_DONE;
}
