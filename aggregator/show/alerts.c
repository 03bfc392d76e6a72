#include "aggregator/show/alerts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "aggregator/ledger/rulings.h"
#include "aggregator/ledger/staleness.h"
#include "aggregator/run/measured.h"
#include "aggregator/run/run_counts.h"
#include "aggregator/show/invitable.h"

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
    struct alert *list;    // owned; it has one place more, for an alert that is left out
    size_t counts[LEVELS]; // alerts of each level that are in the list
    size_t count;          // alerts in the list
    size_t left_out;       // alerts for which there was no room
};

// Returns an alert to fill in. Each level has room for CN_ALERTS_MAX; an alert beyond that is
// counted as left out, and what is filled in is lost.
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
    const struct cn_live_state *live = source->live;
    if (!live->running && !view->end_reason)
        snprintf(add(alerts, LEVEL_ERROR, "stopped")->text, TEXT_SIZE,
                 "the aggregator is not running: the run stands still");
    if (source->disk_free && source->disk_free < 2 * source->disk_reserve) {
        bool below = source->disk_free < source->disk_reserve;
        cn_show_disk_text(source->disk_free, source->disk_reserve,
                          add(alerts, below ? LEVEL_ERROR : LEVEL_WARNING, "disk")->text);
    }
    if (live->warning[0])
        snprintf(add(alerts, LEVEL_WARNING, "worse")->text, TEXT_SIZE, "%s", live->warning);
    if (live->cuts.update_count) {
        struct alert *alert = add(alerts, LEVEL_INFO, "cut");
        memcpy(alert->group, live->cuts.group, sizeof(alert->group));
        snprintf(alert->text, sizeof(alert->text), "round %u, %u of its updates: %s",
                 live->cuts.round, live->cuts.update_count, live->cuts.text);
    }
}

// Tells that no round can close before more groups can be invited.
static cn_err add_quorum(struct alerts *alerts, const struct cn_board_list *list)
{
    const struct cn_show_source *source = alerts->source;
    const struct cn_round_view *view = alerts->view;
    struct cn_invitable invitable;
    uint32_t needed = cn_job_updates_needed(source->job);
    const char *word = cn_job_needed_word(source->job);
    if (view->end_reason)
        return CN_OK;
    if (view->groups < needed) {
        cn_invitable_enrolled_text(word, needed, view->groups,
                                   add(alerts, LEVEL_ERROR, "quorum")->text);
        return CN_OK;
    }
    cn_err err = cn_invitable_of_list(view, list, source->now_ms, &invitable);
    if (!err && source->live->running && invitable.count < needed)
        cn_invitable_text(&invitable, word, needed, add(alerts, LEVEL_ERROR, "quorum")->text);
    return err;
}

static void add_steering(struct alerts *alerts)
{
    const struct cn_round_view *view = alerts->view;
    const struct cn_steering *steering = &view->steering;
    if (view->end_reason)
        return;
    if (steering->pause)
        snprintf(add(alerts, LEVEL_INFO, "paused")->text, TEXT_SIZE, "the run is paused: %s",
                 steering->pause == CN_RUN_PAUSE_NOW ? "the open round is not closed until `resume`"
                                                     : "no other round is opened until `resume`");
    if (steering->leaving)
        snprintf(add(alerts, LEVEL_INFO, "leaving")->text, TEXT_SIZE,
                 "the aggregator ends after this round, as `drain` asked");
    for (size_t i = 0; i < view->drained_count; i++) {
        struct alert *alert = add(alerts, LEVEL_INFO, "drained");
        memcpy(alert->group, view->drained[i], sizeof(alert->group));
        snprintf(alert->text, TEXT_SIZE, "the group is drained: not invited until `resume`");
    }
}

static cn_err add_refusals(struct alerts *alerts)
{
    struct cn_ruling ruling;
    uint32_t streak;
    cn_err err = cn_ruling_streak(alerts->source->ledger, &streak);
    if (err || streak < CN_RULING_ALARM)
        return err;
    err = cn_ruling_newest(alerts->source->ledger, CN_RULING_REFUSED, &ruling);
    if (err)
        return err;
    snprintf(add(alerts, LEVEL_ERROR, "refused")->text, TEXT_SIZE,
             "the gate refused the newest %u versions in a row; version %u: %s", streak,
             ruling.version, ruling.reason);
    return CN_OK;
}

static cn_err add_rejection(void *context, const struct cn_history_rejection *rejection)
{
    struct alerts *alerts = context;
    if (rejection->round + 1 < alerts->view->oldest)
        return CN_OK; // an older one is no alert; the group's row counts it
    struct alert *alert = add(alerts, LEVEL_WARNING, "rejected");
    memcpy(alert->group, rejection->group, sizeof(alert->group));
    // Each part of a group that is split makes an update of its own, and the first one counts.
    bool apart = strcmp(rejection->reason, cn_run_refusal_text(CN_REFUSAL_OTHER)) == 0;
    snprintf(alert->text, sizeof(alert->text), "round %u: its update was rejected: %s%s",
             rejection->round, rejection->reason,
             apart ? "; a board trains apart from its group: see group.members of its profiles"
                   : "");
    return CN_OK;
}

static void add_outlier(void *context, const char *group, const char *text)
{
    struct alert *alert = add(context, LEVEL_WARNING, "outlier");
    snprintf(alert->group, sizeof(alert->group), "%s", group);
    snprintf(alert->text, sizeof(alert->text), "%s", text);
}

// Tells of groups that the robust rule refuses again and again.
static cn_err add_refused_groups(struct alerts *alerts, const struct cn_board_list *list)
{
    if (alerts->source->job->robust.rule == CN_ROBUST_NONE)
        return CN_OK;
    for (size_t i = 0; i < list->group_count; i++) {
        struct cn_tally tally = {0};
        cn_err err = cn_tally_read_judged(alerts->source->ledger, list->groups[i], &tally);
        if (err)
            return err;
        if (tally.refused < CN_TALLY_REFUSED)
            continue;
        struct alert *alert = add(alerts, LEVEL_WARNING, "distrusted");
        snprintf(alert->group, sizeof(alert->group), "%s", list->groups[i]);
        snprintf(
            alert->text, sizeof(alert->text),
            "the robust rule refused its last %u updates; that of round %u counted for %.0f %%",
            tally.refused, tally.judged_round, 100 * tally.factor);
    }
    return CN_OK;
}

// Tells of groups of an asynchronous run that are too late again and again.
static cn_err add_late_groups(struct alerts *alerts, const struct cn_board_list *list)
{
    if (!cn_job_is_async(alerts->source->job) || alerts->view->end_reason)
        return CN_OK;
    for (size_t i = 0; i < list->group_count; i++) {
        struct cn_staleness staleness;
        cn_err err = cn_staleness_read(alerts->source->ledger, list->groups[i], &staleness);
        if (err)
            return err;
        if (staleness.late < CN_STALENESS_NAMED)
            continue;
        struct alert *alert = add(alerts, LEVEL_WARNING, "late");
        snprintf(alert->group, sizeof(alert->group), "%s", list->groups[i]);
        cn_staleness_text(&staleness, alert->text);
    }
    return CN_OK;
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
    add_steering(&alerts);
    add_boards(&alerts, list);
    err = add_quorum(&alerts, list);
    if (!err)
        err = add_refusals(&alerts);
    if (!err)
        err = cn_history_rejections(source->ledger, add_rejection, &alerts);
    if (!err && view->version.number)
        err = cn_measured_outliers(source->ledger, view->version.number, add_outlier, &alerts);
    if (!err)
        err = add_refused_groups(&alerts, list);
    if (!err)
        err = add_late_groups(&alerts, list);
    if (!err)
        write_all(&alerts, json);
    free(alerts.list);
    return err;
}
