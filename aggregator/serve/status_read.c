// status_read.c - reads the file that a running aggregator writes (status.c).
#include <cjson/cJSON.h>
#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "aggregator/serve/status.h"
#include "aggregator/serve/status_health.h"
#include "aggregator/serve/status_inventory.h"
#include "runtime/port/platform.h"

#define FILE_MAX (16u << 20)
#define FRESH_MS 10000 // an older file is of a program that hangs or has ended

static uint64_t read_number(const cJSON *root, const char *key)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(root, key);
    return cJSON_IsNumber(item) && item->valuedouble >= 0 && item->valuedouble < 1e15
               ? (uint64_t)item->valuedouble
               : 0;
}

static cn_err read_boards(const cJSON *root, struct cn_live_state *live)
{
    const cJSON *list = cJSON_GetObjectItemCaseSensitive(root, "boards");
    const cJSON *item;
    int count = cJSON_GetArraySize(list);
    live->boards = calloc((size_t)count + 1, sizeof(*live->boards));
    if (!live->boards)
        return CN_ENOMEM;
    cJSON_ArrayForEach(item, list)
    {
        if (!cJSON_IsObject(item) || !item->string || !cn_name_valid(item->string))
            continue;
        struct cn_live_board *board = &live->boards[live->board_count++];
        const char *type = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(item, "type"));
        snprintf(board->name, sizeof(board->name), "%s", item->string);
        const char *key = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(item, "key"));
        snprintf(board->key, sizeof(board->key), "%s", key ? key : "");
        board->heard_ms = read_number(item, "heard_ms");
        board->missing_ms = read_number(item, "missing_ms");
        board->elsewhere = read_number(item, "elsewhere") != 0;
        board->unfit = read_number(item, "unfit") != 0;
        board->version = (uint32_t)read_number(item, "version");
        uint64_t seen_ms = read_number(item, "seen_ms");
        if (seen_ms > board->heard_ms)
            board->heard_ms = seen_ms;
        board->facts.cpu_count = (uint32_t)read_number(item, "cpus");
        board->facts.memory = read_number(item, "memory");
        board->facts.power_mw = read_number(item, "power_mw");
        board->facts.gpu = read_number(item, "gpu");
        cn_status_inventory_read(item, &board->facts.inventory);
        cn_status_health_read(item, &board->health);
        if (board->health.told_ms > board->heard_ms)
            board->heard_ms = board->health.told_ms;
        board->facts.ahead_lineage = read_number(item, "ahead_lineage");
        const char *fault = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(item, "fault"));
        if (fault)
            (void)cn_fault_note(&board->fault, fault, read_number(item, "fault_ms"));
        board->error_code = read_number(item, "fault_code");
        const char *twice = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(item, "twice"));
        board->twice_ms = twice ? read_number(item, "twice_ms") : 0;
        snprintf(board->twice, sizeof(board->twice), "%s", twice ? twice : "");
        if (type && cn_name_valid(type))
            snprintf(board->facts.type, sizeof(board->facts.type), "%s", type);
    }
    return CN_OK;
}

static void read_cuts(const cJSON *root, struct cn_merge_cuts *cuts)
{
    const cJSON *object = cJSON_GetObjectItemCaseSensitive(root, "cuts");
    const cJSON *norm = cJSON_GetObjectItemCaseSensitive(object, "norm");
    const char *group = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(object, "group"));
    const char *text = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(object, "text"));
    if (!cJSON_IsNumber(norm) || !group || !text || !cn_name_valid(group))
        return;
    cuts->round = (uint32_t)read_number(object, "round");
    cuts->update_count = (uint32_t)read_number(object, "count");
    cuts->norm = norm->valuedouble;
    snprintf(cuts->group, sizeof(cuts->group), "%s", group);
    snprintf(cuts->text, sizeof(cuts->text), "%s", text);
}

static void read_traffic(const cJSON *root, struct cn_run_traffic *traffic)
{
    traffic->in.messages = read_number(root, "bytes_in");
    traffic->in.payload = read_number(root, "payload_in");
    traffic->in.wire = read_number(root, "wire_in");
    traffic->out.messages = read_number(root, "bytes_out");
    traffic->out.payload = read_number(root, "payload_out");
    traffic->out.wire = read_number(root, "wire_out");
}

static cn_err parse(const cJSON *root, uint64_t now_ms, struct cn_live_state *live)
{
    uint64_t pid = read_number(root, "pid"), written_ms = read_number(root, "written_ms");
    bool alive = pid && pid <= INT_MAX && (kill((pid_t)pid, 0) == 0 || errno == EPERM);
    read_traffic(root, &live->traffic);
    if (!alive || written_ms > now_ms || now_ms - written_ms > FRESH_MS)
        return CN_OK;
    live->running = true;
    live->phase = (enum cn_run_phase)read_number(root, "phase");
    live->remaining_ms = read_number(root, "remaining_ms");
    live->settling_ms = read_number(root, "settling_ms");
    live->opened_ms = read_number(root, "opened_ms");
    live->roster_ms = read_number(root, "roster_ms");
    read_cuts(root, &live->cuts);
    const char *warning = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(root, "warning"));
    snprintf(live->warning, sizeof(live->warning), "%s", warning ? warning : "");
    return read_boards(root, live);
}

// Sets *root to NULL when there is no file or it holds no JSON.
static cn_err load(const char *directory, cJSON **root)
{
    char path[PATH_MAX];
    struct cn_mapping mapping;
    *root = NULL;
    snprintf(path, sizeof(path), "%s/%s", directory, CN_STATUS_FILE);
    cn_err err = cn_platform_map(path, FILE_MAX, &mapping);
    if (err)
        return err == CN_ENOTFOUND ? CN_OK : err;
    *root = cJSON_ParseWithLength((const char *)mapping.data, mapping.size);
    cn_platform_unmap(&mapping);
    return CN_OK;
}

cn_err cn_status_read(const char *directory, uint64_t now_ms, struct cn_live_state *live)
{
    cJSON *root;
    memset(live, 0, sizeof(*live));
    cn_err err = load(directory, &root);
    if (root)
        err = parse(root, now_ms, live);
    cJSON_Delete(root);
    return err;
}

void cn_status_read_traffic(const char *directory, struct cn_run_traffic *traffic)
{
    cJSON *root = NULL;
    *traffic = (struct cn_run_traffic){0};
    if (load(directory, &root) == CN_OK && root)
        read_traffic(root, traffic);
    cJSON_Delete(root);
}
