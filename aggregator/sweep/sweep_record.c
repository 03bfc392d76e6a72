#include "aggregator/sweep/sweep_record.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "aggregator/sweep/sweep_space.h"
#include "aggregator/trial/trial_folder.h"
#include "runtime/port/platform.h"

#define RESULTS_MAX (CN_SWEEP_TRIALS_MAX * CN_SWEEP_RUNGS_MAX)
#define LINE_SIZE 256
#define ENDING_MS 60000 // for processes of an earlier start to end
#define LOOK_MS 100
#define FILE_LIMIT (1u << 20) // bytes; more than all settings and results take
#define HEADING "results\n"   // between the settings and the results

static cn_err refuse(struct cn_diag *diag, const char *folder, const char *why)
{
    cn_diag_add(diag, "%s: %s", folder, why);
    return CN_EEXIST;
}

// --- the file ---

static int print_result(char *text, size_t size, const struct cn_sweep_result *result)
{
    return snprintf(text, size, "%u %u %u %.17g %.17g %" PRIu64 " %" PRIu64 " %s\n", result->rung,
                    result->trial, result->rounds, result->loss, result->accuracy, result->bytes_up,
                    result->bytes_down, result->digest[0] ? result->digest : "-");
}

static bool read_result(const char *line, struct cn_sweep_result *result)
{
    *result = (struct cn_sweep_result){0};
    if (sscanf(line,
               "%" SCNu32 " %" SCNu32 " %" SCNu32 " %lf %lf %" SCNu64 " %" SCNu64 " %64[0-9a-f-]",
               &result->rung, &result->trial, &result->rounds, &result->loss, &result->accuracy,
               &result->bytes_up, &result->bytes_down, result->digest) != 8)
        return false;
    if (result->digest[0] == '-')
        result->digest[0] = '\0';
    return result->rung < CN_SWEEP_RUNGS_MAX && result->trial < CN_SWEEP_TRIALS_MAX;
}

static cn_err keep(struct cn_sweep_record *record, const struct cn_sweep_result *result)
{
    if (record->count == RESULTS_MAX)
        return CN_ERANGE;
    if (record->count == record->room) {
        uint32_t room = record->room ? 2 * record->room : 32;
        struct cn_sweep_result *more = realloc(record->results, room * sizeof(*more));
        if (!more)
            return CN_ENOMEM;
        record->results = more;
        record->room = room;
    }
    record->results[record->count++] = *result;
    return CN_OK;
}

static cn_err read_results(struct cn_sweep_record *record, const char *from)
{
    char line[LINE_SIZE];
    while (*from) {
        struct cn_sweep_result result;
        size_t length = strcspn(from, "\n");
        if (length >= sizeof(line) || !from[length])
            return CN_EINVAL;
        memcpy(line, from, length);
        line[length] = '\0';
        if (!read_result(line, &result))
            return CN_EINVAL;
        cn_err err = keep(record, &result);
        if (err)
            return err;
        from += length + 1;
    }
    return CN_OK;
}

// Returns whether an earlier start found a mistake in its command before its first trial: there is
// no result, and no folder of a trial.
static bool is_unbegun(const char *folder, const char *text)
{
    char path[PATH_MAX], name[CN_SWEEP_NAME_SIZE];
    struct stat found;
    size_t length = strlen(text), heading = strlen(HEADING);
    cn_sweep_name(0, name);
    int size = snprintf(path, sizeof(path), "%s/%s", folder, name);
    return length >= heading && strcmp(text + length - heading, HEADING) == 0 && size > 0 &&
           (size_t)size < sizeof(path) && lstat(path, &found) != 0 && errno == ENOENT;
}

// Takes the file of an earlier start. Its settings must be those of this one.
static cn_err take_file(struct cn_sweep_record *record, const char *folder, const char *text,
                        struct cn_diag *diag)
{
    const char *has = text, *wanted = record->settings;
    while (*wanted) {
        size_t found = strcspn(has, "\n"), length = strcspn(wanted, "\n");
        if (found != length || memcmp(has, wanted, length) != 0) {
            cn_diag_add(diag, "%s has a sweep with '%.*s', not '%.*s'; name another folder", folder,
                        (int)(found < 100 ? found : 100), has, (int)(length < 100 ? length : 100),
                        wanted);
            return CN_EEXIST;
        }
        has += found + (has[found] == '\n');
        wanted += length + (wanted[length] == '\n');
    }
    if (strncmp(has, HEADING, strlen(HEADING)) == 0 && !read_results(record, has + strlen(HEADING)))
        return CN_OK;
    cn_diag_add(diag, "%s/%s is damaged: take it away and the sweep measures its trials again",
                folder, CN_SWEEP_FILE);
    return CN_EINVAL;
}

static cn_err store_all(const struct cn_sweep_record *record)
{
    size_t size = strlen(record->settings) + sizeof(HEADING) + record->count * LINE_SIZE;
    char *text = malloc(size);
    if (!text)
        return CN_ENOMEM;
    size_t at = (size_t)snprintf(text, size, "%s%s", record->settings, HEADING);
    for (uint32_t i = 0; i < record->count; i++)
        at += (size_t)print_result(text + at, size - at, &record->results[i]);
    cn_err err = cn_store_replace(record->store, CN_SWEEP_FILE, text, at);
    free(text);
    return err;
}

// --- the folder ---

// Locks a file whose descriptor all processes inherit that this one starts, and that they start. So
// once it is locked, none of an earlier start is left.
static cn_err wait_for_earlier(struct cn_sweep_record *record, const char *folder,
                               struct cn_diag *diag)
{
    char path[PATH_MAX];
    uint64_t begun_ms = cn_platform_now_ms();
    int length = snprintf(path, sizeof(path), "%s/running", folder);
    if (length < 0 || (size_t)length >= sizeof(path))
        return CN_ERANGE;
    // NOLINTNEXTLINE(android-cloexec-open): it is to be inherited
    record->running = open(path, O_RDWR | O_CREAT | O_NOFOLLOW, 0644);
    if (record->running < 0)
        return refuse(diag, path, strerror(errno));
    while (flock(record->running, LOCK_EX | LOCK_NB) != 0) {
        if (cn_platform_now_ms() - begun_ms > ENDING_MS)
            return refuse(diag, folder, "processes of an earlier sweep still run there");
        cn_platform_sleep_ms(LOOK_MS);
    }
    return CN_OK;
}

cn_err cn_sweep_record_open(struct cn_sweep_record *record, const char *folder,
                            const char *settings, struct cn_diag *diag)
{
    uint8_t *text = NULL;
    size_t size = 0;
    *record = (struct cn_sweep_record){.settings = strdup(settings), .running = -1};
    bool exists;
    cn_err err = record->settings
                     ? cn_trial_folder_check(folder, CN_SWEEP_FILE, "sweep", &exists, diag)
                     : CN_ENOMEM;
    if (err)
        return err;
    err = cn_platform_open_store(folder, &record->store);
    if (err == CN_EEXIST)
        return refuse(diag, folder, "another cairn-aggregator sweep runs there");
    if (!err)
        err = wait_for_earlier(record, folder, diag);
    if (!err)
        err = record->store->ops->load(record->store, CN_SWEEP_FILE, FILE_LIMIT, &text, &size);
    if (err == CN_ENOTFOUND)
        err = store_all(record);
    char *whole = text ? malloc(size + 1) : NULL;
    if (whole) {
        memcpy(whole, text, size);
        whole[size] = '\0';
        err =
            is_unbegun(folder, whole) ? store_all(record) : take_file(record, folder, whole, diag);
    } else if (text) {
        err = CN_ENOMEM;
    }
    free(whole);
    free(text);
    if (err && diag->count == 0)
        cn_diag_add(diag, "%s: %s", folder, cn_err_text(err));
    return err;
}

void cn_sweep_record_close(struct cn_sweep_record *record)
{
    if (record->running >= 0)
        close(record->running);
    if (record->store)
        record->store->ops->close(record->store);
    free(record->results);
    free(record->settings);
    *record = (struct cn_sweep_record){.running = -1};
}

// --- results ---

cn_err cn_sweep_record_add(struct cn_sweep_record *record, const struct cn_sweep_result *result)
{
    cn_err err = keep(record, result);
    return err ? err : store_all(record);
}

const struct cn_sweep_result *cn_sweep_record_find(const struct cn_sweep_record *record,
                                                   uint32_t rung, uint32_t trial)
{
    for (uint32_t i = 0; i < record->count; i++)
        if (record->results[i].rung == rung && record->results[i].trial == trial)
            return &record->results[i];
    return NULL;
}

const struct cn_sweep_result *cn_sweep_record_newest(const struct cn_sweep_record *record,
                                                     uint32_t trial)
{
    const struct cn_sweep_result *newest = NULL;
    for (uint32_t i = 0; i < record->count; i++)
        if (record->results[i].trial == trial &&
            (!newest || record->results[i].rung > newest->rung))
            newest = &record->results[i];
    return newest;
}
