// The answer about the run as it is now.
#include "aggregator/ledger/staleness.h"
#include "aggregator/show/alerts.h"
#include "aggregator/show/show_parts.h"

struct state_answer {
    const struct cn_show_source *source;
    struct cn_round_view view;
    struct cn_board_list list;
    struct cn_json_text json;
    uint64_t round_ms; // median duration of the last rounds; 0: not known
};

static const char *phase_of(const struct state_answer *answer)
{
    static const char *const phases[] = {"gather", "open", "closing", "measure", "ended"};
    static const char *const states[] = {"open", "closing", "gather"};
    const struct cn_live_state *live = answer->source->live;
    if (answer->view.end_reason)
        return "ended";
    if (live->running && (unsigned)live->phase < sizeof(phases) / sizeof(phases[0]))
        return phases[live->phase];
    return answer->view.round.number ? states[answer->view.round.state] : "gather";
}

static void write_run(struct state_answer *answer)
{
    const struct cn_show_source *source = answer->source;
    const struct cn_round_view *view = &answer->view;
    struct cn_json_text *json = &answer->json;
    uint8_t run[8];
    for (size_t i = 0; i < sizeof(run); i++)
        run[i] = (uint8_t)(cn_ledger_identity(source->ledger)->run >> (56 - 8 * i));
    cn_json_open(json, "run", '{');
    cn_json_hex(json, "id", run, sizeof(run));
    cn_json_string(json, "job", source->job->name);
    cn_json_bool(json, "running", source->live->running);
    cn_json_string(json, "phase", phase_of(answer));
    cn_json_count(json, "round", view->round.number);
    cn_json_count(json, "rounds", source->job->rounds);
    cn_json_count(json, "version", view->version.number);
    cn_json_count(json, "groups", view->groups);
    cn_json_count(json, "invited", view->invited);
    cn_json_count(json, "accepted", view->accepted);
    cn_json_count(json, "quorum", cn_job_updates_needed(source->job));
    if (cn_job_is_async(source->job)) {
        uint32_t most;
        double mean;
        cn_json_string(json, "mode", "asynchronous");
        if (!cn_staleness_of_version(source->ledger, view->version.number, &most, &mean)) {
            cn_json_count(json, "staleness", most);
            cn_json_real(json, "mean_staleness", mean);
        }
    }
    cn_json_count(json, "deadline_ms", source->job->deadline_ms);
    if (source->live->running && source->live->phase == CN_RUN_OPEN)
        cn_json_count(json, "remaining_ms", source->live->remaining_ms);
    if (source->live->running && source->live->settling_ms)
        cn_json_count(json, "settling_ms", source->live->settling_ms);
    if (view->steering.pause) {
        cn_json_string(json, "paused", view->steering.pause == CN_RUN_PAUSE_NOW ? "now" : "rounds");
        cn_json_count(json, "paused_ms", view->steering.paused_ms);
    }
    if (view->steering.leaving)
        cn_json_bool(json, "leaving", true);
    cn_json_close(json, '}');
}

static cn_err write_best(struct state_answer *answer)
{
    const struct cn_run_progress *progress = &answer->view.progress;
    struct cn_json_text *json = &answer->json;
    struct cn_ledger_version best;
    if (progress->newest_score.known) {
        cn_json_open(json, "newest", '{');
        cn_json_count(json, "version", progress->newest_known);
        cn_show_score(answer->source, &progress->newest_score, json);
        cn_json_close(json, '}');
    }
    if (!progress->best_score.known)
        return CN_OK;
    cn_err err = cn_ledger_find_version(answer->source->ledger, progress->best, &best);
    if (err)
        return err;
    cn_json_open(json, "best", '{');
    cn_json_count(json, "version", progress->best);
    cn_json_hex(json, "digest", best.digest, CN_DIGEST_SIZE);
    cn_show_score(answer->source, &progress->best_score, json);
    cn_json_close(json, '}');
    return CN_OK;
}

// Writes what ends the run, and the longest time until then at the present pace.
static void write_end(struct state_answer *answer)
{
    const struct cn_job *job = answer->source->job;
    const struct cn_round_view *view = &answer->view;
    struct cn_json_text *json = &answer->json;
    uint64_t left = job->rounds > view->version.number ? job->rounds - view->version.number : 0;
    cn_json_open(json, "end", '{');
    if (view->end_reason) {
        cn_json_string(json, "reason", view->end_reason);
    } else {
        cn_json_count(json, "rounds_left", left);
        if (answer->round_ms && cn_live_is_moving(answer->source->live, &view->steering))
            cn_json_count(json, "left_ms", left * answer->round_ms);
    }
    if (answer->round_ms)
        cn_json_count(json, "round_ms", answer->round_ms);
    if (job->target_accuracy > 0)
        cn_json_real(json, "target_accuracy", job->target_accuracy);
    if (job->target != 0) {
        cn_json_string(json, "metric", cn_show_metric(job));
        cn_json_real(json, "target", job->target);
    }
    if (job->patience)
        cn_json_count(json, "patience", job->patience);
    cn_json_close(json, '}');
}

static void write_way(struct cn_json_text *json, const char *way, const struct cn_link_bytes *bytes,
                      uint64_t in_ledger)
{
    cn_json_open(json, way, '{');
    cn_json_count(json, "messages", bytes->messages > in_ledger ? bytes->messages : in_ledger);
    if (bytes->messages) {
        cn_json_count(json, "payload", bytes->payload);
        cn_json_count(json, "wire", bytes->wire);
    }
    cn_json_close(json, '}');
}

static void write_cost(struct state_answer *answer)
{
    const struct cn_show_source *source = answer->source;
    struct cn_json_text *json = &answer->json;
    cn_json_open(json, "bytes", '{');
    write_way(json, "in", &source->live->traffic.in, answer->view.version.bytes_in);
    write_way(json, "out", &source->live->traffic.out, answer->view.version.bytes_out);
    if (source->parameters) // bytes of one model as dense float32
        cn_json_count(json, "dense", source->parameters * sizeof(float));
    cn_json_close(json, '}');
    if (!source->disk_free)
        return;
    cn_json_open(json, "disk", '{');
    cn_json_count(json, "free", cn_show_disk_count(source->disk_free));
    cn_json_count(json, "reserve", source->disk_reserve);
    cn_json_close(json, '}');
}

// Writes the boards that changed after since. With a tracker, each board is written to the buffer,
// looked at, and taken out again if it is not new to the reader.
static cn_err write_boards(struct state_answer *answer, struct cn_show_tracker *tracker,
                           uint64_t since)
{
    struct cn_json_text *json = &answer->json;
    cn_err err = tracker
                     ? cn_show_tracker_begin(tracker, answer->list.count, answer->source->date_ms)
                     : CN_OK;
    if (err)
        return err;
    uint64_t known = tracker ? cn_show_tracker_known(tracker, since) : 0;
    cn_json_bool(json, "boards_all", known == 0);
    cn_json_count(json, "boards_count", answer->list.count);
    cn_json_open(json, "boards", '[');
    for (size_t i = 0; i < answer->list.count && !json->err; i++) {
        const struct cn_json_text before = *json;
        size_t size = json->out->size;
        cn_show_write_board(answer->source, NULL, &answer->list.boards[i], json);
        // The comma before the object is no part of what is said about the board.
        size_t begin = size + before.comma;
        if (json->err || !tracker)
            continue;
        if (cn_show_tracker_note(tracker, i, json->out->data + begin, json->out->size - begin) >
            known)
            continue;
        *json = before;
        err = cn_buffer_resize(json->out, size);
        if (err)
            return err;
    }
    cn_json_close(json, ']');
    if (tracker)
        cn_json_count(json, "seq", tracker->newest);
    if (answer->source->events)
        cn_json_count(json, "events", answer->source->events);
    if (answer->source->jobs)
        cn_json_count(json, "jobs", answer->source->jobs);
    return CN_OK;
}

static cn_err write_state(struct state_answer *answer, struct cn_show_tracker *tracker,
                          uint64_t since)
{
    const struct cn_show_source *source = answer->source;
    const struct cn_reason_facts facts = {&answer->view, source->live,
                                          cn_job_updates_needed(source->job), source->now_ms};
    cn_err err = cn_round_view_load(source->ledger, source->job, source->progress, &answer->view);
    if (!err)
        err = cn_board_list_load(source->ledger, &facts, &answer->list);
    if (!err)
        err = cn_history_pace(source->ledger, &answer->round_ms);
    if (err)
        return err;
    cn_show_begin(source, &answer->json);
    write_run(answer);
    err = cn_show_downlink(source, &answer->json);
    if (!err)
        err = write_best(answer);
    if (err)
        return err;
    write_end(answer);
    write_cost(answer);
    err = cn_alerts_write(source, &answer->view, &answer->list, &answer->json);
    if (err)
        return err;
    err = cn_show_groups(source, &answer->view, &answer->list, &answer->json);
    if (err)
        return err;
    err = write_boards(answer, tracker, since);
    cn_json_close(&answer->json, '}');
    return err ? err : answer->json.err;
}

cn_err cn_show_state(const struct cn_show_source *source, struct cn_show_tracker *tracker,
                     uint64_t since, struct cn_buffer *out)
{
    struct state_answer answer = {.source = source};
    cn_json_text_init(&answer.json, out);
    cn_err err = cn_ledger_begin_read(source->ledger);
    if (err)
        return err;
    err = write_state(&answer, tracker, since);
    cn_ledger_end_read(source->ledger);
    cn_round_view_deinit(&answer.view);
    cn_board_list_deinit(&answer.list);
    return err;
}
