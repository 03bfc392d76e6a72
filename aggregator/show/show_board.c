// The answer about one board.
#include "aggregator/ledger/tally.h"
#include "aggregator/show/show_parts.h"

#define ROUNDS 20 // newest rounds whose verdicts are given

static cn_err write_rounds(const struct cn_show_source *source, const char *group, uint32_t newest,
                           struct cn_json_text *json)
{
    uint32_t first = newest > ROUNDS ? newest - ROUNDS + 1 : 1;
    char signs[ROUNDS + 1] = "";
    for (uint32_t round = first; round <= newest; round++) {
        struct cn_history_entry entry;
        struct cn_history_dates dates;
        cn_err err = cn_history_dates(source->ledger, round, &dates);
        if (!err)
            err = cn_history_find(source->ledger, round, group, &entry);
        if (err && err != CN_ENOTFOUND)
            return err;
        signs[round - first] = cn_show_sign(err ? NULL : &entry, dates.state);
    }
    cn_json_count(json, "first_round", first);
    cn_json_string(json, "signs", signs);
    return CN_OK;
}

static cn_err write_group(const struct cn_show_source *source, const char *group, uint32_t newest,
                          struct cn_json_text *json)
{
    struct cn_tally tally;
    cn_err err = cn_tally_read(source->ledger, group, &tally);
    if (err)
        return err;
    cn_json_open(json, "group", '{');
    cn_json_string(json, "name", group);
    cn_json_count(json, "accepted", tally.accepted);
    cn_json_count(json, "late", tally.late);
    cn_json_count(json, "rejected", tally.rejected);
    if (tally.rejected) {
        cn_json_count(json, "rejected_round", tally.rejected_round);
        cn_json_foreign(json, "rejected_reason", tally.reason);
    }
    if (tally.judged_round) {
        cn_json_count(json, "judged_round", tally.judged_round);
        cn_json_real(json, "factor", tally.factor);
        cn_json_count(json, "refused_in_a_row", tally.refused);
    }
    err = write_rounds(source, group, newest, json);
    cn_json_close(json, '}');
    return err;
}

static cn_err write_board(const struct cn_show_source *source, const struct cn_round_view *view,
                          const struct cn_ledger_board *board, struct cn_buffer *out)
{
    struct cn_json_text json;
    struct cn_last_error error;
    size_t hint = 0;
    const struct cn_reason_facts facts = {view, source->live, cn_job_updates_needed(source->job),
                                          source->now_ms};
    struct cn_board_entry entry;
    cn_board_list_describe(board, &facts, &hint, &entry);
    cn_json_text_init(&json, out);
    cn_show_begin(source, &json);
    cn_show_write_board(source, "board", &entry, &json);
    cn_err err = cn_last_error_find(source->ledger, board->name, &error);
    if (!err || err == CN_ENOTFOUND) {
        cn_show_last_error(&error, &json);
        cn_show_sensors(source->curve, &json);
        err = write_group(source, board->group, view->round.number, &json);
    }
    cn_json_close(&json, '}');
    return err ? err : json.err;
}

cn_err cn_show_board(const struct cn_show_source *source, const char *name, struct cn_buffer *out)
{
    struct cn_ledger_board board;
    struct cn_round_view view = {0};
    cn_err err = cn_ledger_begin_read(source->ledger);
    if (err)
        return err;
    err = cn_name_valid(name) ? cn_ledger_find_board(source->ledger, name, &board) : CN_ENOTFOUND;
    if (!err)
        err = cn_round_view_load(source->ledger, source->job, source->progress, &view);
    if (!err)
        err = write_board(source, &view, &board, out);
    cn_ledger_end_read(source->ledger);
    cn_round_view_deinit(&view);
    return err;
}
