#include "aggregator/sweep/sweep_trial.h"

#include <cjson/cJSON.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "aggregator/trial/trial_folder.h"
#include "aggregator/trial/trial_process.h"
#include "aggregator/trial/trial_run.h"
#include "runtime/command/command.h"
#include "runtime/port/platform.h"

#define STEP_MS 100
#define END_MS 20000     // for a trial to end its own processes
#define ANSWER_SIZE 4096 // bytes of what `try --json` prints
#define OWN_WORDS 8      // words of the command line beside those that were given

static void path_of(const struct cn_sweep_trial *trial, const char *end, char path[PATH_MAX])
{
    if (snprintf(path, PATH_MAX, "%s/%s%s", trial->folder, trial->name, end) >= PATH_MAX)
        path[0] = '\0';
}

// --- the answer ---

static double number_of(const cJSON *object, const char *name, double otherwise)
{
    const cJSON *value = cJSON_GetObjectItemCaseSensitive(object, name);
    return cJSON_IsNumber(value) ? value->valuedouble : otherwise;
}

static uint64_t count_of(const cJSON *object, const char *name)
{
    double value = number_of(object, name, 0);
    return value > 0 && value < 9e15 ? (uint64_t)value : 0;
}

// Reads the object that `try --json` printed. Returns false when it is none, or has no loss.
static bool read_answer(const char *text, struct cn_sweep_result *result)
{
    cJSON *answer = cJSON_Parse(text);
    const cJSON *digest = cJSON_GetObjectItemCaseSensitive(answer, "digest");
    double loss = number_of(answer, "loss", NAN);
    if (cJSON_IsString(digest))
        snprintf(result->digest, sizeof(result->digest), "%s", digest->valuestring);
    result->rounds = (uint32_t)count_of(answer, "rounds");
    result->accuracy = number_of(answer, "accuracy", NAN);
    result->bytes_up = count_of(answer, "bytes_up");
    result->bytes_down = count_of(answer, "bytes_down");
    result->loss = isfinite(loss) ? loss : INFINITY;
    cJSON_Delete(answer);
    return isfinite(loss);
}

// --- the process ---

// Collects what the process prints until it has ended. Returns its exit code.
static int follow(const struct cn_sweep_trial *trial, struct cn_trial_process *process, int output,
                  char answer[ANSWER_SIZE])
{
    size_t size = 0;
    bool open = true;
    while (open && !atomic_load(trial->stop)) {
        struct pollfd watched = {.fd = output, .events = POLLIN};
        if (poll(&watched, 1, STEP_MS) <= 0)
            continue;
        ssize_t got = read(output, answer + size, ANSWER_SIZE - 1 - size);
        if (got > 0)
            size += (size_t)got;
        open = (got > 0 && size < ANSWER_SIZE - 1) || (got < 0 && errno == EINTR);
    }
    answer[size] = '\0';
    while (!cn_trial_process_ended(process) && !atomic_load(trial->stop))
        cn_platform_sleep_ms(STEP_MS);
    if (process->pid == 0)
        return process->code;
    cn_trial_process_end(process, 1, END_MS);
    return CN_EXIT_INTERRUPTED;
}

static int start(const struct cn_sweep_trial *trial, struct cn_trial_process *process, int output)
{
    char keep[PATH_MAX], job[PATH_MAX], log[PATH_MAX], program[PATH_MAX];
    char verb[] = "try", keep_word[] = "--keep", job_word[] = "--job", json_word[] = "--json";
    size_t count = 0;
    char **words = calloc(trial->given_count + OWN_WORDS, sizeof(*words));
    if (!words)
        return -1;
    path_of(trial, "", keep);
    path_of(trial, ".yaml", job);
    path_of(trial, ".log", log);
    snprintf(program, sizeof(program), "%s", trial->aggregator);
    words[count++] = program;
    words[count++] = verb;
    if (access(keep, F_OK) != 0) { // else the trial goes on with what is in its folder
        for (size_t i = 0; i < trial->given_count; i++)
            words[count++] = trial->given[i];
        words[count++] = job_word;
        words[count++] = job;
    }
    words[count++] = keep_word;
    words[count++] = keep;
    words[count++] = json_word;
    snprintf(process->name, sizeof(process->name), "%s", trial->name);
    cn_err err = cn_trial_process_start(process, ".", words, log, output);
    free(words);
    return err ? -1 : 0;
}

int cn_sweep_trial_run(const struct cn_sweep_trial *trial, struct cn_sweep_result *result)
{
    char answer[ANSWER_SIZE] = "";
    struct cn_trial_process process = {0};
    int ends[2] = {-1, -1}, code = CN_EXIT_FAILED;
    result->loss = INFINITY;
    result->accuracy = NAN;
    bool started = pipe2(ends, O_CLOEXEC) == 0 && start(trial, &process, ends[1]) == 0;
    if (!started)
        fprintf(stderr, "error: %s cannot be started: %s\n", trial->name, strerror(errno));
    if (ends[1] >= 0)
        close(ends[1]);
    if (started)
        code = follow(trial, &process, ends[0], answer);
    if (ends[0] >= 0)
        close(ends[0]);
    if (code == CN_EXIT_DONE && !read_answer(answer, result))
        code = CN_TRIAL_EXIT_PROCESS;
    return code;
}

void cn_sweep_trial_tell(const struct cn_sweep_trial *trial)
{
    char log[PATH_MAX];
    path_of(trial, ".log", log);
    (void)cn_trial_process_tell(log, 0);
}

void cn_sweep_trial_remove(const struct cn_sweep_trial *trial)
{
    struct cn_trial_folder folder = {.lock = -1};
    path_of(trial, "", folder.path);
    cn_trial_folder_close(&folder, true);
}
