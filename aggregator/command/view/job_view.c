#include "aggregator/command/view/job_view.h"

#include <cjson/cJSON.h>
#include <stdio.h>
#include <string.h>

#include "aggregator/daemon/job_list.h"
#include "aggregator/daemon/job_opening.h"
#include "aggregator/serve/status.h"
#include "aggregator/store/state_owner.h"
#include "runtime/command/terminal/wrap.h"

#define LIST_MAX ((size_t)1 << 20)
#define AWAIT_MS 2000
#define LOOK_MS 50

// Returns what the running aggregator wrote, or NULL, and whether one runs.
static cJSON *read_list(const char *state, bool *runs)
{
    struct cn_live_state live;
    char path[CN_PATH_SIZE];
    struct cn_mapping mapping;
    bool running = !cn_status_read(state, cn_platform_now_ms(), &live) && live.running;
    cn_status_deinit(&live);
    *runs = running;
    int length = snprintf(path, sizeof(path), "%s/" CN_JOB_LIST_FILE, state);
    if (!running || length < 0 || (size_t)length >= sizeof(path) ||
        cn_platform_map(path, LIST_MAX, &mapping))
        return NULL;
    cJSON *root = cJSON_ParseWithLength((const char *)mapping.data, mapping.size);
    cn_platform_unmap(&mapping);
    cJSON *list = cJSON_DetachItemFromObject(root, "jobs");
    cJSON_Delete(root);
    return list;
}

static const cJSON *find(const cJSON *list, const char *name)
{
    const cJSON *item;
    cJSON_ArrayForEach(item, list)
    {
        const char *found = cJSON_GetStringValue(cJSON_GetObjectItem(item, "name"));
        if (found && strcmp(found, name) == 0)
            return item;
    }
    return NULL;
}

struct view {
    const struct cn_setup *setup;
    const char *name; // NULL: all jobs
    bool json, found, comma;
    bool runs;   // an aggregator runs
    cJSON *list; // of the running aggregator; NULL: none runs, or it has no jobs
};

// Reads the number of the newest version from the ledger of a job's run. Returns false when there
// is none.
static bool read_version(const struct view *view, const char *job, bool first, uint32_t *number)
{
    char folder[CN_PATH_SIZE];
    struct cn_ledger *ledger = NULL;
    struct cn_ledger_version newest;
    if (!first && !cn_job_opening_path(view->setup->settings->state, job, "", folder))
        return false;
    if (!first && cn_ledger_open_existing(folder, &ledger))
        return false;
    cn_err err = cn_ledger_newest_version(first ? view->setup->ledger : ledger, &newest);
    if (!first)
        cn_ledger_close(ledger);
    *number = err ? 0 : newest.number;
    return !err;
}

static void describe(const struct view *view, const struct cn_queued_job *job, bool first,
                     char *text, size_t size)
{
    const char *said =
        cJSON_GetStringValue(cJSON_GetObjectItem(find(view->list, job->name), "text"));
    const char *name = cn_job_state_name(job->state);
    const char *stands = view->runs ? "" : "; no aggregator runs";
    bool over = cn_job_is_over(job->state);
    uint32_t version;
    if (said && !over)
        snprintf(text, size, "%s", said);
    else if (!read_version(view, job->name, first, &version))
        snprintf(text, size, over ? "%s: %s" : "%s, not begun%s", name,
                 over ? job->reason : stands);
    else if (over)
        snprintf(text, size, "%s at version %u: %s", name, version, job->reason);
    else
        snprintf(text, size, "%s, version %u%s", name, version, stands);
}

static void print_groups(const cJSON *job)
{
    const cJSON *group, *groups = cJSON_GetObjectItem(job, "groups");
    if (!cJSON_GetArraySize(groups))
        return;
    printf("groups:   ");
    cJSON_ArrayForEach(group, groups) printf(" %s", cJSON_GetStringValue(group));
    printf("\n");
}

static void print_whole(const struct view *view, const struct cn_queued_job *job, bool first,
                        const char *text)
{
    char folder[CN_PATH_SIZE], profile[CN_PATH_SIZE];
    printf("job:       %s\n", job->name);
    printf("how:       %s\n", text);
    printf("priority:  %u%s\n", job->priority, job->ahead ? ", before all others" : "");
    printf("turn:      %u round%s\n", job->turn, job->turn == 1 ? "" : "s");
    if (job->needs[0])
        printf("needs:     %s\n", job->needs);
    print_groups(find(view->list, job->name));
    if (!first &&
        cn_job_opening_path(view->setup->settings->state, job->name, CN_JOB_PROFILE, folder)) {
        cn_state_owner_name(folder, profile);
        printf("profile:   %s\n", profile);
    }
}

static void print_json(struct view *view, const struct cn_queued_job *job, bool first,
                       const char *text)
{
    char folder[CN_PATH_SIZE], profile[CN_PATH_SIZE];
    const cJSON *live = find(view->list, job->name);
    const char *said = cJSON_GetStringValue(cJSON_GetObjectItem(live, "state"));
    cJSON *object = cJSON_CreateObject();
    cJSON_AddStringToObject(object, "name", job->name);
    cJSON_AddNumberToObject(object, "priority", job->priority);
    cJSON_AddNumberToObject(object, "turn", job->turn);
    cJSON_AddStringToObject(object, "needs", job->needs);
    // Of the profile's job only the running aggregator knows that it is over.
    cJSON_AddStringToObject(object, "state", first && said ? said : cn_job_state_name(job->state));
    cJSON_AddBoolToObject(object, "ahead", job->ahead);
    cJSON_AddStringToObject(object, "text", text);
    cJSON *groups = cJSON_Duplicate(cJSON_GetObjectItem(live, "groups"), true);
    cJSON_AddItemToObject(object, "groups", groups ? groups : cJSON_CreateArray());
    if (!first &&
        cn_job_opening_path(view->setup->settings->state, job->name, CN_JOB_PROFILE, folder)) {
        cn_state_owner_name(folder, profile);
        cJSON_AddStringToObject(object, "profile", profile);
    }
    char *line = cJSON_PrintUnformatted(object);
    printf("%s%s", view->comma ? ",\n" : "", line ? line : "{}");
    view->comma = true;
    cJSON_free(line);
    cJSON_Delete(object);
}

static void show(struct view *view, const struct cn_queued_job *job, bool first)
{
    char text[CN_JOB_TEXT], line[CN_JOB_TEXT + CN_NAME_SIZE + 16];
    if (view->name && strcmp(view->name, job->name) != 0)
        return;
    view->found = true;
    describe(view, job, first, text, sizeof(text));
    if (view->json) {
        print_json(view, job, first, text);
    } else if (view->name) {
        print_whole(view, job, first, text);
    } else {
        snprintf(line, sizeof(line), "%-20s %u%s  %s", job->name, job->priority,
                 job->ahead ? "!" : " ", text);
        cn_wrap_print(line, 25);
    }
}

static cn_err show_row(void *context, const struct cn_queued_job *job)
{
    show(context, job, false);
    return CN_OK;
}

int cn_job_view(const struct cn_setup *setup, const char *name, bool json)
{
    struct view view = {.setup = setup, .name = name, .json = json};
    struct cn_queued_job first = {.priority = CN_JOB_PRIORITY, .turn = CN_JOB_TURN};
    memcpy(first.name, setup->settings->job.name, sizeof(first.name));
    view.list = read_list(setup->settings->state, &view.runs);
    if (json)
        printf("[");
    show(&view, &first, true);
    cn_err err = cn_jobs_list(setup->ledger, show_row, &view);
    if (json)
        printf("]\n");
    cJSON_Delete(view.list);
    if (err)
        fprintf(stderr, "error: %s: %s\n", setup->state_name, cn_err_text(err));
    else if (name && !view.found)
        fprintf(stderr, "error: no job %s was submitted\n", name);
    return err || (name && !view.found) ? CN_EXIT_FAILED : CN_EXIT_DONE;
}

void cn_job_view_await(const struct cn_setup *setup, const char *name)
{
    uint64_t begun_ms = cn_platform_now_ms();
    struct cn_live_state live;
    bool running = !cn_status_read(setup->settings->state, begun_ms, &live) && live.running;
    cn_status_deinit(&live);
    while (running && cn_platform_now_ms() - begun_ms < AWAIT_MS) {
        cJSON *list = read_list(setup->settings->state, &running);
        const char *text = cJSON_GetStringValue(cJSON_GetObjectItem(find(list, name), "text"));
        if (text)
            printf("%s\n", text);
        cJSON_Delete(list);
        if (text)
            return;
        cn_platform_sleep_ms(LOOK_MS);
    }
    printf(running ? "the aggregator has not looked at it yet\n"
                   : "no aggregator runs: it waits for the next start\n");
}
