// Metrics of boards and groups.
#include "aggregator/serve/metrics.h"
#include "aggregator/show/reason.h"
#include "aggregator/show/show_parts.h"

enum cn_board_condition cn_board_condition_of(const struct cn_roster_board *board, uint64_t now_ms)
{
    uint64_t sign_ms = cn_roster_sign_ms(board);
    if (board->enrolled.revoked)
        return CN_CONDITION_REVOKED;
    if (board->fault.told_ms)
        return CN_CONDITION_FAILED;
    if (!sign_ms)
        return CN_CONDITION_NEVER;
    if (cn_board_health_is_fresh(&board->health, now_ms) && cn_board_health_pause(&board->health))
        return CN_CONDITION_PAUSED;
    return now_ms - sign_ms > CN_REASON_SILENT_MS ? CN_CONDITION_SILENT : CN_CONDITION_LIVE;
}

// Returns the state of a board, by whether a job goes on.
static enum cn_board_condition condition_now(const struct cn_metrics_source *source,
                                             const struct cn_roster_board *board)
{
    enum cn_board_condition condition = cn_board_condition_of(board, source->now_ms);
    bool away = condition == CN_CONDITION_SILENT || condition == CN_CONDITION_NEVER;
    return source->over && away ? CN_CONDITION_GONE : condition;
}

static void write_states(const struct cn_metrics_source *source,
                         const struct cn_roster_board *boards, size_t count,
                         struct cn_metric_text *text)
{
    static const char *const names[] = {"live",  "silent",  "paused", "failed",
                                        "never", "revoked", "gone"};
    size_t states[CN_CONDITION_COUNT] = {0};
    for (size_t i = 0; i < count; i++)
        states[condition_now(source, &boards[i])]++;
    cn_metric_begin(text, "cairn_boards", "gauge", "Boards that were ever enrolled, by state.");
    for (int i = 0; i < CN_CONDITION_COUNT; i++)
        cn_metric_add_by(text, "state", names[i], (double)states[i]);
}

static void write_groups(const struct cn_metrics_source *source, struct cn_metric_text *text)
{
    size_t count, live = 0, drained = 0;
    const struct cn_roster_group *groups = cn_roster_groups(source->roster, &count);
    for (size_t i = 0; i < count; i++) {
        live += groups[i].heard_ms && source->now_ms - groups[i].heard_ms <= CN_REASON_SILENT_MS;
        drained += groups[i].drained;
    }
    cn_metric_begin(text, "cairn_groups", "gauge",
                    "Groups: enrolled, heard within two minutes, drained, in the round.");
    cn_metric_add_by(text, "state", "enrolled", (double)count);
    cn_metric_add_by(text, "state", "live", (double)live);
    cn_metric_add_by(text, "state", "drained", (double)drained);
    cn_metric_add_by(text, "state", "invited", source->state->selected);
    cn_metric_add_by(text, "state", "accepted", source->state->accepted);
}

// A metric that has a value for each board.
struct board_metric {
    const char *name, *help;
    // Returns whether the value is known. Sets it then.
    bool (*read)(const struct cn_metrics_source *source, const struct cn_roster_board *board,
                 double *value);
};

static bool read_up(const struct cn_metrics_source *source, const struct cn_roster_board *board,
                    double *value)
{
    *value = cn_board_condition_of(board, source->now_ms) == CN_CONDITION_LIVE;
    return true;
}

static bool read_heard(const struct cn_metrics_source *source, const struct cn_roster_board *board,
                       double *value)
{
    uint64_t sign_ms = cn_roster_sign_ms(board);
    *value = (double)(source->now_ms - sign_ms) / 1e3;
    return sign_ms && sign_ms <= source->now_ms;
}

static bool read_version(const struct cn_metrics_source *source,
                         const struct cn_roster_board *board, double *value)
{
    const struct cn_roster_group *group =
        cn_roster_find_group(source->roster, board->enrolled.group);
    *value = group ? group->served : 0;
    return *value > 0;
}

static bool is_fresh(const struct cn_metrics_source *source, const struct cn_roster_board *board)
{
    return cn_board_health_is_fresh(&board->health, source->now_ms);
}

static bool read_temperature(const struct cn_metrics_source *source,
                             const struct cn_roster_board *board, double *value)
{
    *value = cn_show_celsius(&board->health.said);
    return is_fresh(source, board) && board->health.said.temperature_mk != 0;
}

static bool read_power(const struct cn_metrics_source *source, const struct cn_roster_board *board,
                       double *value)
{
    *value = (double)board->health.said.power_mw / 1e3;
    return is_fresh(source, board) && board->health.said.power_mw != 0;
}

static bool read_speed(const struct cn_metrics_source *source, const struct cn_roster_board *board,
                       double *value)
{
    *value = (double)board->health.said.centisamples / 100;
    return is_fresh(source, board) && board->health.said.centisamples != 0;
}

static bool read_throttled(const struct cn_metrics_source *source,
                           const struct cn_roster_board *board, double *value)
{
    *value = (board->health.said.flags & CN_HEALTH_THROTTLED) != 0;
    return is_fresh(source, board);
}

static void write_each(const struct cn_metrics_source *source, const struct cn_roster_board *boards,
                       size_t count, struct cn_metric_text *text)
{
    static const struct board_metric metrics[] = {
        {"cairn_board_up",
         "1 for a board that is live, 0 for one that is silent, failed or never came.", read_up},
        {"cairn_board_last_heard_seconds",
         "Since the last sign of life of a board, its group's reports included.", read_heard},
        {"cairn_board_version", "The newest version that a board's group fetched since the start.",
         read_version},
        {"cairn_board_temperature_celsius", "Of the hottest zone of a board, as it said.",
         read_temperature},
        {"cairn_board_power_watts", "What a board takes, as it said.", read_power},
        {"cairn_board_samples_per_second", "Speed of a board's training, as it said.", read_speed},
        {"cairn_board_throttled", "1 while a board slows itself down for heat or power.",
         read_throttled},
    };
    for (size_t m = 0; m < sizeof(metrics) / sizeof(metrics[0]); m++) {
        cn_metric_begin(text, metrics[m].name, "gauge", metrics[m].help);
        for (size_t i = 0; i < count; i++) {
            const struct cn_ledger_board *board = &boards[i].enrolled;
            const struct cn_metric_label labels[] = {{"board", board->name},
                                                     {"group", board->group}};
            double value;
            if (!board->revoked && metrics[m].read(source, &boards[i], &value))
                cn_metric_add(text, labels, 2, value);
        }
    }
}

// Writes the bytes of each board's messages, both ways.
static void write_bytes(const struct cn_metrics_source *source,
                        const struct cn_roster_board *boards, size_t count,
                        struct cn_metric_text *text)
{
    cn_metric_begin(text, "cairn_board_bytes_total", "counter",
                    "Bytes of CoAP messages from a board and to it since the start.");
    for (size_t i = 0; i < count; i++) {
        const struct cn_ledger_board *board = &boards[i].enrolled;
        struct cn_link_bytes in, out;
        if (board->revoked)
            continue;
        cn_coap_server_board_bytes(source->boards, board->name, &in, &out);
        for (int way = 0; way < 2; way++) {
            const struct cn_metric_label labels[] = {
                {"board", board->name}, {"group", board->group}, {"direction", way ? "out" : "in"}};
            cn_metric_add(text, labels, 3, (double)(way ? out.messages : in.messages));
        }
    }
}

void cn_metrics_write_boards(const struct cn_metrics_source *source, struct cn_metric_text *text)
{
    size_t count, enrolled = 0;
    const struct cn_roster_board *boards = cn_roster_boards(source->roster, &count);
    write_states(source, boards, count, text);
    write_groups(source, text);
    for (size_t i = 0; i < count; i++)
        enrolled += !boards[i].enrolled.revoked;
    if (!enrolled || enrolled > source->board_series)
        return;
    write_each(source, boards, count, text);
    if (source->boards)
        write_bytes(source, boards, count, text);
}
