#include "aggregator/show/alerts.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "aggregator/run/measured.h"
#include "aggregator/store/rulings.h"

#define MIB (1024.0 * 1024.0)
#define TEXT_SIZE CN_REASON_SIZE

enum level { LEVEL_ERROR, LEVEL_WARNING, LEVEL_INFO, LEVELS };

// Alerts are collected for all levels and written by level.
struct alert {
    enum level level;
    const char *kind;
    const char *board;        // "": none
    char group[CN_NAME_SIZE]; // "": none
    uint64_t since_ms;        // clock; 0: not known
    char text[TEXT_SIZE];
};

struct alerts {
    const struct cn_show_source *source;
    const struct cn_round_view *view;
    struct alert *list;    // owned; the newest is a scratch when the list is full
    size_t counts[LEVELS]; // alerts of each level that are in the list
    size_t count, left_out;
};

// Returns an alert to fill in. Each level has room for CN_ALERTS_MAX; what is more is counted.
static struct alert *add(struct alerts *alerts, enum level level, const char *kind)
{
    struct alert *alert = &alerts->list[alerts->count];
    *alert = (struct alert){.level = level, .kind = kind, .board = ""};
    if (alerts->counts[level] == CN_ALERTS_MAX) {
        alerts->left_out++;
        return alert;
    }
    alerts->counts[level]++;
    alerts->count++;
    return alert;
}

static void add_boards(struct alerts *alerts, const struct cn_board_list *list)
{
    static const struct {
        enum cn_reason_kind kind;
        enum level level;
    } alarming[] = {
        {CN_REASON_FAILED, LEVEL_ERROR},    {CN_REASON_TWICE, LEVEL_ERROR},
        {CN_REASON_AHEAD, LEVEL_ERROR},     {CN_REASON_SILENT, LEVEL_WARNING},
        {CN_REASON_MISSING, LEVEL_WARNING}, {CN_REASON_NEVER, LEVEL_WARNING},
    };
    for (size_t i = 0; i < list->count; i++) {
        const struct cn_board_entry *board = &list->boards[i];
        for (size_t k = 0; k < sizeof(alarming) / sizeof(alarming[0]); k++) {
            if (board->reason.kind != alarming[k].kind)
                continue;
            struct alert *alert =
                add(alerts, alarming[k].level, cn_reason_word(board->reason.kind));
            alert->board = board->name;
            memcpy(alert->group, board->group, sizeof(alert->group));
            alert->since_ms = board->reason.since_ms;
            cn_reason_text(&board->reason, 0, false, alert->text);
        }
    }
}

static void add_gateway(struct alerts *alerts)
{
    const struct cn_show_source *source = alerts->source;
    const struct cn_round_view *view = alerts->view;
    const struct cn_status_live *live = source->live;
    if (!live->running && !view->end_reason)
        snprintf(add(alerts, LEVEL_ERROR, "stopped")->text, TEXT_SIZE,
                 "the aggregator is not running: the run stands still");
    if (view->groups < cn_job_quorum(source->job) && !view->end_reason)
        snprintf(add(alerts, LEVEL_ERROR, "quorum")->text, TEXT_SIZE,
                 "the quorum is %" PRIu32 " groups and %" PRIu32 " are enrolled",
                 cn_job_quorum(source->job), view->groups);
    if (source->disk_free && source->disk_free < 2 * source->disk_reserve) {
        bool below = source->disk_free < source->disk_reserve;
        snprintf(add(alerts, below ? LEVEL_ERROR : LEVEL_WARNING, "disk")->text, TEXT_SIZE,
                 "the disk of the gateway has %.0f MiB free; %.0f MiB are kept in reserve%s",
                 (double)source->disk_free / MIB, (double)source->disk_reserve / MIB,
                 below ? ", so no update is taken" : "");
    }
    if (live->warning[0])
        snprintf(add(alerts, LEVEL_WARNING, "worse")->text, TEXT_SIZE, "%s", live->warning);
    if (live->cuts.count) {
        struct alert *alert = add(alerts, LEVEL_INFO, "cut");
        memcpy(alert->group, live->cuts.group, sizeof(alert->group));
        snprintf(alert->text, sizeof(alert->text),
                 "round %" PRIu32 ", %" PRIu32 " of its updates: %s", live->cuts.round,
                 live->cuts.count, live->cuts.text);
    }
}

static cn_err add_refusals(struct alerts *alerts)
{
    struct cn_ruling ruling;
    uint32_t streak;
    cn_err err = cn_ruling_streak(alerts->source->ledger, &streak);
    if (err || streak < 2)
        return err;
    err = cn_ruling_newest(alerts->source->ledger, CN_RULING_REFUSED, &ruling);
    if (err)
        return err;
    snprintf(add(alerts, LEVEL_ERROR, "refused")->text, TEXT_SIZE,
             "the gate refused the newest %" PRIu32 " versions in a row; version %" PRIu32 ": %s",
             streak, ruling.version, ruling.reason);
    return CN_OK;
}

static cn_err add_rejection(void *context, const struct cn_history_rejection *rejection)
{
    struct alerts *alerts = context;
    if (rejection->round + 1 < alerts->view->round.number)
        return CN_OK; // an old story: the group's row still counts it
    struct alert *alert = add(alerts, LEVEL_WARNING, "rejected");
    memcpy(alert->group, rejection->group, sizeof(alert->group));
    snprintf(alert->text, sizeof(alert->text), "round %" PRIu32 ": its update was rejected: %s",
             rejection->round, rejection->reason);
    return CN_OK;
}

static void add_outlier(void *context, const char *group, const char *text)
{
    struct alert *alert = add(context, LEVEL_WARNING, "outlier");
    snprintf(alert->group, sizeof(alert->group), "%s", group);
    snprintf(alert->text, sizeof(alert->text), "%s", text);
}

static void write_alert(const struct alert *alert, struct cn_json_text *json)
{
    static const char *const levels[LEVELS] = {"error", "warning", "info"};
    cn_json_open(json, NULL, '{');
    cn_json_string(json, "level", levels[alert->level]);
    cn_json_string(json, "kind", alert->kind);
    if (alert->board[0])
        cn_json_string(json, "board", alert->board);
    if (alert->group[0])
        cn_json_string(json, "group", alert->group);
    if (alert->since_ms)
        cn_json_count(json, "since_ms", alert->since_ms);
    cn_json_foreign(json, "text", alert->text);
    cn_json_close(json, '}');
}

static void write_all(const struct alerts *alerts, struct cn_json_text *json)
{
    size_t written = 0;
    cn_json_open(json, "alerts", '[');
    for (int level = 0; level < LEVELS; level++)
        for (size_t i = 0; i < alerts->count && written < CN_ALERTS_MAX; i++)
            if ((int)alerts->list[i].level == level) {
                write_alert(&alerts->list[i], json);
                written++;
            }
    cn_json_close(json, ']');
    cn_json_count(json, "alerts_more", alerts->left_out + alerts->count - written);
}

cn_err cn_alerts_write(const struct cn_show_source *source, const struct cn_round_view *view,
                       const struct cn_board_list *list, struct cn_json_text *json)
{
    struct alerts alerts = {.source = source, .view = view};
    cn_err err = CN_OK;
    alerts.list = calloc((size_t)LEVELS * CN_ALERTS_MAX + 1, sizeof(*alerts.list));
    if (!alerts.list)
        return CN_ENOMEM;
    add_gateway(&alerts);
    add_boards(&alerts, list);
    err = add_refusals(&alerts);
    if (!err)
        err = cn_history_rejections(source->ledger, add_rejection, &alerts);
    if (!err && view->version.number)
        err = cn_measured_outliers(source->ledger, view->version.number, add_outlier, &alerts);
    if (!err)
        write_all(&alerts, json);
    free(alerts.list);
    return err;
}
