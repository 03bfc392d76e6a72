#include "aggregator/serve/status.h"

#include <cjson/cJSON.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "aggregator/serve/status_health.h"
#include "aggregator/serve/status_inventory.h"

// --- writing ---

static bool was_heard(const struct cn_roster_board *board)
{
    return board->heard_ms || board->seen_ms || board->missing_ms || board->health.told_ms;
}

// Returns the newest version that a board of the group fetched; 0 when none did.
static uint32_t find_version(const struct cn_roster *roster, const char *group)
{
    const struct cn_roster_group *found = cn_roster_find_group(roster, group);
    return found ? found->served : 0;
}

static bool is_elsewhere(const struct cn_roster *roster, const char *group)
{
    const struct cn_roster_group *found = cn_roster_find_group(roster, group);
    return found && found->away;
}

static bool is_unfit(const struct cn_roster *roster, const char *group)
{
    const struct cn_roster_group *found = cn_roster_find_group(roster, group);
    return found && found->unfit;
}

static cJSON *describe_boards(const struct cn_roster *roster)
{
    size_t count;
    const struct cn_roster_board *boards = cn_roster_boards(roster, &count);
    cJSON *list = cJSON_CreateObject();
    for (size_t i = 0; i < count; i++) {
        const struct cn_roster_board *seen = cn_roster_newest(roster, i);
        if (!was_heard(seen))
            continue;
        const struct cn_roster_facts *facts = &seen->facts;
        cJSON *board = cJSON_AddObjectToObject(list, boards[i].enrolled.name);
        char key[CN_LIVE_KEY_SIZE];
        cn_live_name_key(&boards[i].enrolled, key);
        cJSON_AddStringToObject(board, "key", key);
        cJSON_AddNumberToObject(board, "heard_ms", (double)seen->heard_ms);
        cJSON_AddNumberToObject(board, "seen_ms", (double)seen->seen_ms);
        cJSON_AddNumberToObject(board, "missing_ms", (double)seen->missing_ms);
        cJSON_AddNumberToObject(board, "version",
                                (double)find_version(roster, boards[i].enrolled.group));
        cJSON_AddStringToObject(board, "type", facts->type);
        cJSON_AddNumberToObject(board, "cpus", (double)facts->cpu_count);
        cJSON_AddNumberToObject(board, "memory", (double)facts->memory);
        cJSON_AddNumberToObject(board, "power_mw", (double)facts->power_mw);
        cJSON_AddNumberToObject(board, "gpu", (double)facts->gpu);
        cn_status_inventory_add(board, &facts->inventory);
        cn_status_health_add(board, &seen->health);
        if (is_elsewhere(roster, boards[i].enrolled.group))
            cJSON_AddNumberToObject(board, "elsewhere", 1);
        if (is_unfit(roster, boards[i].enrolled.group))
            cJSON_AddNumberToObject(board, "unfit", 1);
        if (boards[i].facts.ahead_lineage)
            cJSON_AddNumberToObject(board, "ahead_lineage", (double)boards[i].facts.ahead_lineage);
        if (seen->instances.twice_ms) {
            cJSON_AddNumberToObject(board, "twice_ms", (double)seen->instances.twice_ms);
            cJSON_AddStringToObject(board, "twice", seen->instances.twice);
        }
        const struct cn_roster_board *failed = cn_roster_failed(roster, i);
        if (failed) {
            cJSON_AddNumberToObject(board, "fault_ms", (double)failed->fault.told_ms);
            cJSON_AddStringToObject(board, "fault", failed->fault.text);
            cJSON_AddNumberToObject(board, "fault_code", (double)failed->error_code);
        }
    }
    return list;
}

static cJSON *describe_cuts(const struct cn_merge_cuts *cuts)
{
    cJSON *object = cJSON_CreateObject();
    cJSON_AddNumberToObject(object, "round", (double)cuts->round);
    cJSON_AddNumberToObject(object, "count", (double)cuts->update_count);
    cJSON_AddNumberToObject(object, "norm", cuts->norm);
    cJSON_AddStringToObject(object, "group", cuts->group);
    cJSON_AddStringToObject(object, "text", cuts->text);
    return object;
}

static void add_bytes(cJSON *root, const char *way, const struct cn_link_bytes *bytes)
{
    char name[24];
    snprintf(name, sizeof(name), "bytes_%s", way); // bytes of CoAP messages
    cJSON_AddNumberToObject(root, name, (double)bytes->messages);
    snprintf(name, sizeof(name), "payload_%s", way);
    cJSON_AddNumberToObject(root, name, (double)bytes->payload);
    snprintf(name, sizeof(name), "wire_%s", way);
    cJSON_AddNumberToObject(root, name, (double)bytes->wire);
}

static char *describe(const struct cn_roster *roster, const struct cn_run_state *state,
                      uint64_t now_ms)
{
    cJSON *root = cJSON_CreateObject();
    cJSON_AddNumberToObject(root, "pid", (double)getpid());
    cJSON_AddNumberToObject(root, "written_ms", (double)now_ms);
    cJSON_AddNumberToObject(root, "phase", (double)state->phase);
    cJSON_AddNumberToObject(root, "remaining_ms", (double)state->remaining_ms);
    cJSON_AddNumberToObject(root, "settling_ms", (double)state->settling_ms);
    cJSON_AddNumberToObject(root, "opened_ms", (double)cn_roster_opened_ms(roster));
    cJSON_AddNumberToObject(root, "roster_ms", (double)cn_roster_read_ms(roster));
    add_bytes(root, "in", &state->traffic.in);
    add_bytes(root, "out", &state->traffic.out);
    cJSON_AddItemToObject(root, "boards", describe_boards(roster));
    if (state->warning[0])
        cJSON_AddStringToObject(root, "warning", state->warning);
    if (state->cuts.update_count)
        cJSON_AddItemToObject(root, "cuts", describe_cuts(&state->cuts));
    char *text = cJSON_PrintUnformatted(root);
    cJSON_Delete(root);
    return text;
}

static cn_err replace(const char *directory, const char *text)
{
    char path[PATH_MAX], aside[PATH_MAX];
    snprintf(path, sizeof(path), "%s/%s", directory, CN_STATUS_FILE);
    int length = snprintf(aside, sizeof(aside), "%s/.%s", directory, CN_STATUS_FILE);
    if (length < 0 || (size_t)length >= sizeof(aside))
        return CN_EINVAL;
    FILE *file = fopen(aside, "w");
    if (!file)
        return cn_err_from_errno(errno);
    bool written = fputs(text, file) >= 0;
    if (fclose(file) != 0 || !written || rename(aside, path) != 0)
        return CN_EIO;
    return CN_OK;
}

cn_err cn_status_write(const char *directory, const struct cn_roster *roster,
                       const struct cn_run_state *state, uint64_t now_ms)
{
    char *text = describe(roster, state, now_ms);
    if (!text)
        return CN_ENOMEM;
    cn_err err = replace(directory, text);
    cJSON_free(text);
    return err;
}

// --- in the aggregator itself ---

cn_err cn_status_gather(const struct cn_roster *roster, const struct cn_run_state *state,
                        struct cn_live_state *live)
{
    size_t count;
    const struct cn_roster_board *boards = cn_roster_boards(roster, &count);
    *live = (struct cn_live_state){
        .running = true,
        .phase = state->phase,
        .remaining_ms = state->remaining_ms,
        .settling_ms = state->settling_ms,
        .opened_ms = cn_roster_opened_ms(roster),
        .roster_ms = cn_roster_read_ms(roster),
        .traffic = state->traffic,
        .cuts = state->cuts,
    };
    memcpy(live->warning, state->warning, sizeof(live->warning));
    live->boards = calloc(count + 1, sizeof(*live->boards));
    if (!live->boards)
        return CN_ENOMEM;
    for (size_t i = 0; i < count; i++) {
        const struct cn_roster_board *from = &boards[i], *seen = cn_roster_newest(roster, i);
        const struct cn_roster_board *failed = cn_roster_failed(roster, i);
        if (!was_heard(seen))
            continue;
        struct cn_live_board *board = &live->boards[live->board_count++];
        memcpy(board->name, from->enrolled.name, sizeof(board->name));
        cn_live_name_key(&from->enrolled, board->key);
        board->health = seen->health;
        board->heard_ms = cn_roster_sign_ms(seen);
        board->missing_ms = seen->missing_ms;
        board->elsewhere = is_elsewhere(roster, from->enrolled.group);
        board->unfit = is_unfit(roster, from->enrolled.group);
        board->version = find_version(roster, from->enrolled.group);
        if (failed) {
            board->fault = failed->fault;
            board->error_code = failed->error_code;
        }
        board->twice_ms = seen->instances.twice_ms;
        memcpy(board->twice, seen->instances.twice, sizeof(board->twice));
        board->facts = seen->facts;
        board->facts.ahead_lineage = from->facts.ahead_lineage;
        board->facts.ahead_version = from->facts.ahead_version;
    }
    return CN_OK;
}

void cn_status_deinit(struct cn_live_state *live)
{
    free(live->boards);
    memset(live, 0, sizeof(*live));
}
