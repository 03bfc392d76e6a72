#include "aggregator/serve/status_boards.h"

#include <cjson/cJSON.h>
#include <inttypes.h>

#include "aggregator/serve/status_inventory.h"
#include "aggregator/show/reason.h"
#include "aggregator/show/show_parts.h"

#define HARDWARE_SIZE (CN_NAME_SIZE + 128)

// "orin-nano, 6 cpus, 4.0 GiB, 15 W, GPU 8.7"
static void describe_hardware(const struct cn_roster_facts *facts, char text[HARDWARE_SIZE])
{
    char power[32] = "", memory[32] = "", gpu[32] = "";
    snprintf(text, HARDWARE_SIZE, "-");
    if (facts->cpu_count == 0)
        return;
    if (facts->memory)
        snprintf(memory, sizeof(memory), ", %.1f GiB", (double)facts->memory / (1u << 30));
    if (facts->power_mw)
        snprintf(power, sizeof(power), ", %.3g W", (double)facts->power_mw / 1000);
    if (facts->gpu > CN_GPU_NONE)
        snprintf(gpu, sizeof(gpu), ", GPU %.1f", (double)facts->gpu / 10);
    snprintf(text, HARDWARE_SIZE, "%s%s%u cpus%s%s%s", facts->type, facts->type[0] ? ", " : "",
             facts->cpu_count, memory, power, gpu);
}

static uint64_t seconds_since(const struct cn_status_report *report, uint64_t then_ms)
{
    return report->now_ms > then_ms ? (report->now_ms - then_ms) / 1000 : 0;
}

static bool runs_twice(const struct cn_status_report *report, const struct cn_live_board *live)
{
    return live->twice_ms && seconds_since(report, live->twice_ms) <= CN_INSTANCES_SHOWN_MS / 1000;
}

// Prints a member of a JSON object, except the first member.
static cn_err print_text(FILE *stream, const char *name, const char *text)
{
    cJSON *string = cJSON_CreateString(text);
    char *printed = string ? cJSON_PrintUnformatted(string) : NULL;
    cJSON_Delete(string);
    if (!printed)
        return CN_ENOMEM;
    fprintf(stream, ",\"%s\":%s", name, printed);
    cJSON_free(printed);
    return CN_OK;
}

// Prints what the board said of its health.
static cn_err print_health(FILE *stream, const struct cn_board_health *health)
{
    struct cn_buffer out;
    struct cn_json_text json;
    if (!health->told_ms)
        return CN_OK;
    cn_buffer_init(&out, 4096);
    cn_json_text_init(&json, &out);
    cn_show_health(health, &json);
    if (!json.err)
        fprintf(stream, ",%.*s", (int)out.size, (const char *)out.data);
    cn_buffer_deinit(&out);
    return json.err;
}

// Prints what the board told of itself, without what it did not tell.
static cn_err print_inventory(FILE *stream, const struct cn_inventory *inventory)
{
    cn_err err = CN_OK;
    if (inventory->build[0])
        err = print_text(stream, "build", inventory->build);
    if (!err && inventory->system[0])
        err = print_text(stream, "system", inventory->system);
    if (inventory->disk_size)
        fprintf(stream, ",\"disk_size\":%" PRIu64 ",\"disk_free\":%" PRIu64, inventory->disk_size,
                inventory->disk_free);
    if (!err && inventory->slot[0])
        err = print_text(stream, "slot", inventory->slot);
    if (!err && inventory->slot_version[0])
        err = print_text(stream, "slot_version", inventory->slot_version);
    if (!err && inventory->update[0])
        err = print_text(stream, "update", inventory->update);
    if (!err && inventory->update_version[0])
        err = print_text(stream, "update_version", inventory->update_version);
    return err;
}

cn_err cn_status_print_board(void *context, const struct cn_ledger_board *board)
{
    struct cn_status_report *report = context;
    char reason[CN_REASON_SIZE];
    const struct cn_live_board *found = cn_live_find(report->live, board, &report->hint);
    struct cn_live_board live = found ? *found : (struct cn_live_board){0};
    uint64_t heard_ms = live.heard_ms;
    uint64_t silent_s =
        heard_ms && heard_ms <= report->now_ms ? (report->now_ms - heard_ms) / 1000 : 0;
    const struct cn_reason_facts facts = {&report->view, report->live,
                                          cn_job_updates_needed(report->job), report->now_ms};
    struct cn_reason why = cn_reason_of(&facts, board, found);
    cn_reason_text(&why, report->now_ms, true, reason);
    if (report->json) {
        fprintf(report->stream,
                "{\"board\":\"%s\",\"group\":\"%s\",\"revoked\":%s,\"max_weight\":%" PRIu64
                ",\"silent_s\":",
                board->name, board->group, board->revoked ? "true" : "false", board->max_weight);
        if (heard_ms)
            fprintf(report->stream, "%" PRIu64, silent_s);
        else
            fputs("null", report->stream);
        if (live.facts.cpu_count)
            fprintf(report->stream,
                    ",\"type\":\"%s\",\"cpus\":%u,\"memory\":%" PRIu64 ",\"power_mw\":%" PRIu64,
                    live.facts.type, live.facts.cpu_count, live.facts.memory, live.facts.power_mw);
        if (live.facts.gpu)
            fprintf(report->stream, ",\"gpu\":%.1f",
                    live.facts.gpu == CN_GPU_NONE ? 0. : (double)live.facts.gpu / 10);
        cn_err err = print_inventory(report->stream, &live.facts.inventory);
        if (!err)
            err = print_health(report->stream, &live.health);
        if (runs_twice(report, &live))
            fprintf(report->stream, ",\"twice_s\":%" PRIu64, seconds_since(report, live.twice_ms));
        if (live.fault.told_ms)
            fprintf(report->stream, ",\"error_s\":%" PRIu64,
                    seconds_since(report, live.fault.told_ms));
        if (!err && live.fault.told_ms)
            err = print_text(report->stream, "error", live.fault.text);
        if (!err)
            err = print_text(report->stream, "status", reason);
        fputs("}\n", report->stream);
        return err;
    }
    char heard[32] = "-", hardware[HARDWARE_SIZE], systems[CN_SYSTEMS_TEXT_SIZE];
    describe_hardware(&live.facts, hardware);
    if (heard_ms)
        snprintf(heard, sizeof(heard), "%" PRIu64 " s ago", silent_s);
    fprintf(report->stream, "  %-16s %-16s %-12s %-34s %s\n", board->name, board->group, heard,
            hardware, reason);
    cn_status_inventory_text(&live.facts.inventory, systems);
    if (systems[0])
        fprintf(report->stream, "  %-16s %s\n", "", systems);
    return CN_OK;
}
