#include "aggregator/serve/status.h"

#include <cjson/cJSON.h>
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "aggregator/run/measured.h"
#include "aggregator/serve/status_boards.h"
#include "aggregator/serve/status_groups.h"
#include "aggregator/serve/status_health.h"
#include "aggregator/serve/status_inventory.h"
#include "runtime/port/platform.h"

#define FILE_MAX (16u << 20)
#define FRESH_MS 10000 // an older file is of a program that hangs or has ended

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

// --- reading ---

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

void cn_status_deinit(struct cn_live_state *live)
{
    free(live->boards);
    memset(live, 0, sizeof(*live));
}

void cn_status_read_traffic(const char *directory, struct cn_run_traffic *traffic)
{
    cJSON *root = NULL;
    *traffic = (struct cn_run_traffic){0};
    if (load(directory, &root) == CN_OK && root)
        read_traffic(root, traffic);
    cJSON_Delete(root);
}

// --- printing ---

static const char *describe_phase(const struct cn_status_report *report)
{
    static const char *const states[] = {"open", "closing", "merged"};
    if (report->view.end_reason)
        return "ended";
    if (report->view.round.number == 0)
        return report->live->running ? "waiting for groups" : "not begun";
    return states[report->view.round.state];
}

// Prints the bytes in one direction. told is what the last program counted, up to at most a second
// before its end. in_ledger is the count at the newest version, for when the file is gone.
static void print_bytes(FILE *stream, const char *way, const struct cn_link_bytes *told,
                        uint64_t in_ledger)
{
    fprintf(stream, "\"bytes_%s\":%" PRIu64 ",\"payload_%s\":%" PRIu64 ",\"wire_%s\":%" PRIu64, way,
            told->messages > in_ledger ? told->messages : in_ledger, way, told->payload, way,
            told->wire);
}

// Prints what the gate and people decided about the newest versions.
static cn_err print_rulings(const struct cn_status_report *report)
{
    struct cn_ruling ruling;
    cn_err err = cn_ruling_newest(report->ledger, CN_RULING_ROLLBACK, &ruling);
    if (!err)
        fprintf(report->stream, "version %u went back to version %u: %s\n", ruling.version,
                ruling.source, ruling.reason);
    if (!err || err == CN_ENOTFOUND)
        err = cn_rulings_waiting_rollback(report->ledger, &ruling);
    if (!err)
        fprintf(report->stream, "a rollback to version %u waits: %s\n", ruling.source,
                ruling.reason);
    if (!err || err == CN_ENOTFOUND)
        err = cn_ruling_newest(report->ledger, CN_RULING_REFUSED, &ruling);
    if (!err)
        fprintf(report->stream, "the gate refused version %u: %s\n", ruling.version, ruling.reason);
    if (report->streak >= CN_RULING_ALARM)
        fprintf(report->stream,
                "ALARM: the gate refused the newest %u versions in a row: a group, the "
                "data or the limit is wrong\n",
                report->streak);
    return err == CN_ENOTFOUND ? CN_OK : err;
}

static void print_settings(const struct cn_status_report *report)
{
    if (report->settings > 1)
        fprintf(report->stream, "the settings that hold were changed for round %u\n",
                report->settings);
    if (report->next_settings)
        fprintf(report->stream, "other settings hold from round %u on\n", report->next_settings);
}

// Prints what people asked of the run (docs/steer-a-run.md).
static void print_steering(const struct cn_status_report *report)
{
    const struct cn_round_view *view = &report->view;
    if (view->steering.pause == CN_RUN_PAUSE_NOW)
        fprintf(report->stream, "paused: the open round is not closed until `resume`\n");
    else if (view->steering.pause)
        fprintf(report->stream, "paused: no other round is opened until `resume`\n");
    if (view->steering.leaving)
        fprintf(report->stream, "draining: the aggregator ends after this round\n");
    for (size_t i = 0; i < view->drained_count; i++)
        fprintf(report->stream, "group %s is drained: it is not invited until `resume`\n",
                view->drained[i]);
    if (view->steered.extended_ms)
        fprintf(report->stream, "round %u was extended by %" PRIu64 " s\n", view->round.number,
                view->steered.extended_ms / 1000);
    if (view->steered.closed_with)
        fprintf(report->stream, "round %u was closed by a person with %u updates\n",
                view->round.number, view->steered.closed_with);
}

static void print_run(const struct cn_status_report *report)
{
    const struct cn_steering *steering = &report->view.steering;
    const struct cn_ledger_version *version = &report->view.version;
    const struct cn_score *score = &report->view.progress.newest_score;
    uint64_t run = cn_ledger_identity(report->ledger)->run;
    char digest[2 * CN_DIGEST_SIZE + 1], measures[CN_SCORE_TEXT];
    cn_hex(digest, version->digest, CN_DIGEST_SIZE);
    if (report->json) {
        fprintf(report->stream,
                "{\"run\":\"%016" PRIx64
                "\",\"running\":%s,\"round\":%u,\"rounds\":%u,\"state\":\"%s\",\"selected\":%u,"
                "\"accepted\":%u,\"quorum\":%u,\"version\":%u,\"digest\":\"%s\"",
                run, report->live->running ? "true" : "false", report->view.round.number,
                report->job->rounds, describe_phase(report), report->view.invited,
                report->view.accepted, cn_job_updates_needed(report->job), version->number, digest);
        cn_score_text(score, true, measures);
        if (score->known)
            fprintf(report->stream, ",\"accuracy\":%.6f,\"loss\":%.6f%s", score->accuracy,
                    score->loss, measures);
        fprintf(report->stream, ",\"remaining_ms\":%" PRIu64 ",", report->live->remaining_ms);
        print_bytes(report->stream, "in", &report->live->traffic.in, version->bytes_in);
        fputc(',', report->stream);
        print_bytes(report->stream, "out", &report->live->traffic.out, version->bytes_out);
        fprintf(report->stream,
                ",\"settings\":%u,\"next_settings\":%u,\"refused_in_a_row\":%u,\"paused\":\"%s\","
                "\"leaving\":%s}\n",
                report->settings, report->next_settings, report->streak,
                steering->pause == CN_RUN_PAUSE_NOW ? "now"
                : steering->pause                   ? "rounds"
                                                    : "",
                steering->leaving ? "true" : "false");
        return;
    }
    fprintf(report->stream, "run %016" PRIx64 ", %s\n", run,
            report->live->running     ? "the aggregator is running"
            : report->view.end_reason ? report->view.end_reason
                                      : "the aggregator is not running");
    fprintf(report->stream, "round %u of %u (%s): %u of %u updates, %u groups invited\n",
            report->view.round.number, report->job->rounds, describe_phase(report),
            report->view.accepted, cn_job_updates_needed(report->job), report->view.invited);
    print_settings(report);
    print_steering(report);
    fprintf(report->stream, "version %u (%.12s)", version->number, digest);
    cn_score_text(score, false, measures);
    if (score->known && report->job->loss == CN_LOSS_CROSS_ENTROPY)
        fprintf(report->stream, "; newest measurement: accuracy %.3f, loss %.4f%s", score->accuracy,
                score->loss, measures);
    else if (score->known)
        fprintf(report->stream, "; newest measurement: loss %.4f%s", score->loss, measures);
    if (report->view.groups < cn_job_updates_needed(report->job))
        fprintf(report->stream, "\nthe %s is %u groups and %u are enrolled",
                cn_job_needed_word(report->job), cn_job_updates_needed(report->job),
                report->view.groups);
    fprintf(report->stream, "\n\n  %-16s %-16s %-12s %-34s %s\n", "board", "group", "heard",
            "hardware", "status");
}

static void print_cuts(const struct cn_status_report *report)
{
    const struct cn_merge_cuts *cuts = &report->live->cuts;
    if (report->live->warning[0] && !report->json)
        fprintf(report->stream, "%s\n", report->live->warning);
    if (cuts->update_count && !report->json)
        fprintf(report->stream, "round %u, %u of its updates: %s\n", cuts->round,
                cuts->update_count, cuts->text);
}

// Prints which measurements stood out in the round of the newest version.
static void print_outlier(void *context, const char *group, const char *text)
{
    const struct cn_status_report *report = context;
    (void)group;
    fprintf(report->stream, "%s\n", text);
}

static cn_err print_outliers(struct cn_status_report *report, uint32_t merged)
{
    if (report->json || merged == 0)
        return CN_OK;
    return cn_measured_outliers(report->ledger, merged, print_outlier, report);
}

// Finds the round from which on the present settings hold, that of newer settings, and the number
// of versions in a row that the gate refused.
static cn_err find_settings(struct cn_status_report *report)
{
    struct cn_ledger_setting row;
    uint32_t round = report->view.round.number ? report->view.round.number : 1;
    cn_err err = cn_ledger_find_setting(report->ledger, round, &row);
    if (!err)
        report->settings = row.from_round;
    cn_ledger_setting_deinit(&row);
    if (!err)
        err = cn_ledger_find_setting(report->ledger, UINT32_MAX, &row);
    if (!err && row.from_round > report->settings)
        report->next_settings = row.from_round;
    if (!err)
        cn_ledger_setting_deinit(&row);
    return err && err != CN_ENOTFOUND ? err : cn_ruling_streak(report->ledger, &report->streak);
}

static cn_err print_all(struct cn_status_report *report)
{
    uint32_t merged = report->view.version.number;
    print_cuts(report);
    cn_err err = report->json ? CN_OK : print_rulings(report);
    if (!err)
        err = print_outliers(report, merged);
    if (err)
        return err;
    print_run(report);
    err = cn_ledger_boards(report->ledger, cn_status_print_board, report);
    return err ? err
               : cn_status_print_groups(report->ledger, merged, cn_job_is_async(report->job),
                                        report->json, report->stream);
}

cn_err cn_status_print(struct cn_ledger *ledger, const struct cn_job *job,
                       const struct cn_live_state *live, uint64_t now_ms, bool json, FILE *stream)
{
    struct cn_status_report report = {.ledger = ledger,
                                      .job = job,
                                      .live = live,
                                      .now_ms = now_ms,
                                      .json = json,
                                      .stream = stream};
    cn_err err = cn_round_view_load(ledger, job, NULL, &report.view);
    if (!err)
        err = find_settings(&report);
    if (!err)
        err = print_all(&report);
    cn_round_view_deinit(&report.view);
    return err;
}
