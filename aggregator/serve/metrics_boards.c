// Metrics of boards and groups.
#include "aggregator/serve/metrics.h"

#define LIVE_MS 120000 // a board that was heard longer ago is silent

static uint64_t newest_sign(const struct cn_roster_board *board)
{
    return board->heard_ms > board->seen_ms ? board->heard_ms : board->seen_ms;
}

static enum cn_metrics_board state_of(const struct cn_roster_board *board, uint64_t now_ms)
{
    uint64_t sign_ms = newest_sign(board);
    if (board->enrolled.revoked)
        return CN_METRICS_REVOKED;
    if (board->fault.told_ms)
        return CN_METRICS_FAILED;
    if (!sign_ms)
        return CN_METRICS_NEVER;
    return now_ms - sign_ms > LIVE_MS ? CN_METRICS_SILENT : CN_METRICS_LIVE;
}

static void write_states(const struct cn_metrics_source *source,
                         const struct cn_roster_board *boards, size_t count,
                         struct cn_metric_text *text)
{
    static const char *const names[] = {"live", "silent", "failed", "never", "revoked"};
    size_t states[CN_METRICS_BOARD_COUNT] = {0};
    for (size_t i = 0; i < count; i++)
        states[state_of(&boards[i], source->now_ms)]++;
    cn_metric_begin(text, "cairn_boards", "gauge", "Boards that were ever enrolled, by state.");
    for (int i = 0; i < CN_METRICS_BOARD_COUNT; i++)
        cn_metric_add_by(text, "state", names[i], (double)states[i]);
}

static void write_groups(const struct cn_metrics_source *source, struct cn_metric_text *text)
{
    size_t count, live = 0;
    const struct cn_roster_group *groups = cn_roster_groups(source->roster, &count);
    for (size_t i = 0; i < count; i++)
        live += groups[i].heard_ms && source->now_ms - groups[i].heard_ms <= LIVE_MS;
    cn_metric_begin(text, "cairn_groups", "gauge",
                    "Groups: enrolled, heard within two minutes, in the round.");
    cn_metric_add_by(text, "state", "enrolled", (double)count);
    cn_metric_add_by(text, "state", "live", (double)live);
    cn_metric_add_by(text, "state", "invited", source->state->selected);
    cn_metric_add_by(text, "state", "accepted", source->state->accepted);
}

static void write_each(const struct cn_metrics_source *source, const struct cn_roster_board *boards,
                       size_t count, struct cn_metric_text *text)
{
    cn_metric_begin(text, "cairn_board_up", "gauge",
                    "1 for a board that is live, 0 for one that is silent, failed or never came.");
    for (size_t i = 0; i < count; i++) {
        const struct cn_ledger_board *board = &boards[i].enrolled;
        const struct cn_metric_label labels[] = {{"board", board->name}, {"group", board->group}};
        if (!board->revoked)
            cn_metric_add(text, labels, 2, state_of(&boards[i], source->now_ms) == CN_METRICS_LIVE);
    }
    cn_metric_begin(text, "cairn_board_last_heard_seconds", "gauge",
                    "Since the last sign of life of a board, its leader's reports included.");
    for (size_t i = 0; i < count; i++) {
        const struct cn_ledger_board *board = &boards[i].enrolled;
        const struct cn_metric_label labels[] = {{"board", board->name}, {"group", board->group}};
        uint64_t sign_ms = newest_sign(&boards[i]);
        if (!board->revoked && sign_ms && sign_ms <= source->now_ms)
            cn_metric_add(text, labels, 2, (double)(source->now_ms - sign_ms) / 1e3);
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
    if (enrolled && enrolled <= source->board_series)
        write_each(source, boards, count, text);
}
