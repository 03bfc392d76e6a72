#include "aggregator/show/show_parts.h"

#include <stdio.h>
#include <time.h>

#include "runtime/port/platform.h"

#define DISK_FULL 1 // bytes; 0 is "not known", and no disk has one free byte

void cn_show_begin(const struct cn_show_source *source, struct cn_json_text *json)
{
    cn_json_open(json, NULL, '{');
    cn_json_count(json, "v", CN_SHOW_FORMAT);
    cn_json_count(json, "clock_ms", source->now_ms);
    cn_json_count(json, "date_ms", source->date_ms);
}

void cn_show_score(const struct cn_show_source *source, const struct cn_score *score,
                   struct cn_json_text *json)
{
    const struct {
        const char *key;
        double value;
    } measures[] = {
        {"top5", score->measures.top5},
        {"f1", score->measures.f1},
        {"mae", score->measures.mae},
        {"perplexity", score->measures.perplexity},
    };
    if (!score->known)
        return;
    if (source->job->loss == CN_LOSS_CROSS_ENTROPY)
        cn_json_real(json, "accuracy", score->accuracy);
    cn_json_real(json, "loss", score->loss);
    for (size_t i = 0; i < sizeof(measures) / sizeof(measures[0]); i++)
        if (measures[i].value > 0)
            cn_json_real(json, measures[i].key, measures[i].value);
    cn_json_string(json, "by", score->central ? "central" : "boards");
}

const char *cn_show_metric(const struct cn_job *job)
{
    static const char *const words[] = {
        [CN_METRIC_ACCURACY] = "accuracy", [CN_METRIC_LOSS] = "loss",
        [CN_METRIC_TOP5] = "top5",         [CN_METRIC_F1] = "f1",
        [CN_METRIC_MAE] = "mae",
    };
    return words[cn_job_metric(job)];
}

uint64_t cn_show_disk_free(const char *path)
{
    uint64_t bytes;
    if (cn_platform_disk_free(path, &bytes))
        return 0;
    return bytes ? bytes : DISK_FULL;
}

uint64_t cn_show_disk_count(uint64_t disk_free)
{
    return disk_free == DISK_FULL ? 0 : disk_free;
}

void cn_show_disk_text(uint64_t bytes_free, uint64_t reserve, char text[CN_SHOW_DISK_SIZE])
{
    snprintf(text, CN_SHOW_DISK_SIZE,
             "the disk of the gateway has %.0f MiB free; %.0f MiB are kept in reserve%s",
             (double)bytes_free / (1u << 20), (double)reserve / (1u << 20),
             bytes_free < reserve ? ", so no update is taken" : "");
}

uint64_t cn_show_date_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

static void write_hardware(const struct cn_roster_facts *facts, struct cn_json_text *json)
{
    if (facts->cpu_count == 0)
        return;
    if (facts->type[0])
        cn_json_foreign(json, "type", facts->type);
    cn_json_count(json, "cpus", facts->cpu_count);
    if (facts->memory)
        cn_json_count(json, "memory", facts->memory);
    if (facts->power_mw)
        cn_json_count(json, "power_mw", facts->power_mw);
    if (facts->gpu)
        cn_json_real(json, "gpu", facts->gpu == CN_GPU_NONE ? 0 : (double)facts->gpu / 10);
    if (facts->inventory.build[0])
        cn_json_foreign(json, "build", facts->inventory.build);
    if (facts->inventory.system[0])
        cn_json_foreign(json, "system", facts->inventory.system);
    if (facts->inventory.disk_size) {
        cn_json_count(json, "disk_size", facts->inventory.disk_size);
        cn_json_count(json, "disk_free", facts->inventory.disk_free);
    }
    if (facts->inventory.slot[0])
        cn_json_foreign(json, "slot", facts->inventory.slot);
    if (facts->inventory.slot_version[0])
        cn_json_foreign(json, "slot_version", facts->inventory.slot_version);
    if (facts->inventory.update[0])
        cn_json_foreign(json, "update", facts->inventory.update);
    if (facts->inventory.update_version[0])
        cn_json_foreign(json, "update_version", facts->inventory.update_version);
}

void cn_show_write_board(const struct cn_show_source *source, const char *key,
                         const struct cn_board_entry *board, struct cn_json_text *json)
{
    char why[CN_REASON_SIZE];
    cn_reason_text(&board->reason, source->now_ms, false, why);
    cn_json_open(json, key, '{');
    cn_json_string(json, "name", board->name);
    cn_json_string(json, "group", board->group);
    cn_json_string(json, "state", cn_reason_word(board->reason.kind));
    cn_json_foreign(json, "why", why);
    if (board->reason.kind == CN_REASON_FAILED)
        cn_json_foreign(json, "error", board->reason.detail);
    if (board->reason.since_ms)
        cn_json_count(json, "since_ms", board->reason.since_ms);
    if (board->live && board->live->heard_ms)
        cn_json_count(json, "heard_ms", board->live->heard_ms);
    if (board->live && board->live->version)
        cn_json_count(json, "version", board->live->version);
    if (board->max_weight)
        cn_json_count(json, "max_weight", board->max_weight);
    if (board->live)
        write_hardware(&board->live->facts, json);
    if (board->live)
        cn_show_health(&board->live->health, json);
    cn_json_close(json, '}');
}

char cn_show_sign(const struct cn_history_entry *entry, enum cn_ledger_state state)
{
    if (!entry)
        return 'n';
    if (entry->accepted)
        return 'a';
    if (entry->rejected)
        return 'r';
    return state == CN_LEDGER_OPEN ? 'w' : 'l';
}
