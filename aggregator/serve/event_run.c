#include "aggregator/serve/event_run.h"

#include <stdarg.h>
#include <stdio.h>

#include "aggregator/ledger/ancestry.h"
#include "aggregator/ledger/history.h"
#include "aggregator/ledger/rulings.h"
#include "aggregator/run/live_job.h"
#include "aggregator/show/show_parts.h"

#define VERSIONS_MAX 20 // most versions that become events after one look: the newest ones

// What a look uses.
struct look {
    struct cn_event_run *watch;
    const struct cn_event_run_source *from;
    uint64_t now_ms;
};

__attribute__((format(printf, 4, 5))) static void
say(const struct look *look, enum cn_event_kind kind, const char *subject, const char *format, ...)
{
    struct cn_event_run *watch = look->watch;
    char text[CN_FAULT_SIZE];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    const struct cn_event_facts facts = {
        .kind = kind,
        .job = watch->job,
        .run = watch->job[0] ? cn_ledger_identity(look->from->ledger)->run : 0,
        .subject = subject,
        .text = text,
    };
    watch->tell(watch->context, &facts, look->now_ms);
}

// --- rounds and versions ---

static void tell_version(const struct look *look, uint32_t number)
{
    struct cn_ledger *ledger = look->from->ledger;
    struct cn_ruling ruling;
    uint32_t selected, accepted;
    if (cn_ruling_find(ledger, number, &ruling) == CN_OK) {
        say(look,
            ruling.kind == CN_RULING_REFUSED ? CN_EVENT_VERSION_REFUSED : CN_EVENT_ROLLED_BACK, "",
            "version %u has the weights of version %u: %s", number, ruling.source, ruling.reason);
    } else if (cn_ledger_count(ledger, number, &selected, &accepted) == CN_OK) {
        say(look, CN_EVENT_VERSION_MADE, "", "round %u made version %u of %u updates", number,
            number, accepted);
    }
}

// Writes the job's metric of a score: "accuracy 0.9312".
static void metric_text(const struct cn_job *job, const struct cn_score *score, char *text,
                        size_t size)
{
    enum cn_metric metric = cn_job_metric(job);
    snprintf(text, size, metric == CN_METRIC_LOSS ? "%s %.6g" : "%s %.4f", cn_show_metric(job),
             cn_score_value(score, metric));
}

static void tell_score(const struct look *look, uint32_t number)
{
    struct cn_ledger_version version;
    struct cn_score score;
    struct cn_ruling ruling;
    char accuracy[32] = "", more[CN_SCORE_TEXT];
    // A version of a ruling has the weights, and the score, of another one.
    if (cn_ruling_find(look->from->ledger, number, &ruling) != CN_ENOTFOUND ||
        cn_ledger_find_version(look->from->ledger, number, &version))
        return;
    cn_score_of(&version, &score);
    if (!score.known)
        return;
    if (look->from->job->loss == CN_LOSS_CROSS_ENTROPY)
        snprintf(accuracy, sizeof(accuracy), "accuracy %.4f, ", score.accuracy);
    cn_score_text(&score, false, more);
    say(look, CN_EVENT_VERSION_MEASURED, "", "version %u: %sloss %.6g%s", number, accuracy,
        score.loss, more);
}

// Tells the scores of versions once each, so that a program that is told of events can keep their
// history. Versions that a rollback gave up are left out.
static void look_at_scores(const struct look *look)
{
    uint32_t newest = look->from->state->progress.newest_known;
    uint32_t known = look->watch->measured;
    uint32_t first =
        newest > VERSIONS_MAX && newest - VERSIONS_MAX > known ? newest - VERSIONS_MAX : known;
    struct cn_ancestry_gap gap;
    for (uint32_t number = first + 1; number <= newest; number++) {
        if (cn_ancestry_find_gap(look->from->ledger, number, &gap) == CN_OK && number > gap.source)
            number = gap.version;
        if (number <= newest)
            tell_score(look, number);
    }
    look->watch->measured = newest > known ? newest : known;
}

static void look_at_versions(const struct look *look)
{
    struct cn_event_run *before = look->watch;
    const struct cn_run_progress *progress = &look->from->state->progress;
    uint32_t newest = cn_model_store_newest(look->from->models)->number;
    uint32_t first = newest > VERSIONS_MAX && newest - VERSIONS_MAX > before->version
                         ? newest - VERSIONS_MAX
                         : before->version;
    for (uint32_t number = first + 1; number <= newest; number++)
        tell_version(look, number);
    before->version = newest;
    look_at_scores(look);
    const struct cn_score *score = &progress->best_score;
    if (progress->best == before->state.progress.best || !score->known)
        return;
    char value[48];
    metric_text(look->from->job, score, value, sizeof(value));
    say(look, CN_EVENT_VERSION_BEST, "", "version %u is the best: %s", progress->best, value);
}

static void look_at_round(const struct look *look)
{
    struct cn_event_run *before = look->watch;
    const struct cn_run_state *state = look->from->state;
    const struct cn_run_counts *counts = cn_run_count(look->from->run);
    bool opens = state->phase == CN_RUN_OPEN &&
                 (before->state.phase != CN_RUN_OPEN || before->state.round != state->round);
    if (opens)
        say(look, CN_EVENT_ROUND_OPENED, "", "round %u is open, %u group%s invited", state->round,
            state->selected, state->selected == 1 ? " is" : "s are");
    if (counts->extended != before->extended)
        say(look, CN_EVENT_ROUND_EXTENDED, "", "round %u has %u of %u updates at its deadline",
            state->round, state->accepted, cn_job_updates_needed(look->from->job));
    before->extended = counts->extended;
    if (state->cuts.update_count && state->cuts.round != before->state.cuts.round)
        say(look, CN_EVENT_UPDATE_CUT, state->cuts.group, "round %u: %s", state->cuts.round,
            state->cuts.text);
}

static void look_at_end(const struct look *look)
{
    const struct cn_job *job = look->from->job;
    const struct cn_run_state *state = look->from->state;
    const struct cn_score *best = &state->progress.best_score;
    if (state->phase != CN_RUN_ENDED || look->watch->state.phase == CN_RUN_ENDED)
        return;
    if (job->target_accuracy > 0 && best->known && best->accuracy >= job->target_accuracy)
        say(look, CN_EVENT_TARGET_REACHED, "", "version %u has accuracy %.4f, wanted %.4f",
            state->progress.best, best->accuracy, job->target_accuracy);
    else if (best->known && cn_job_reaches(job, cn_score_value(best, cn_job_metric(job)))) {
        char value[48];
        metric_text(job, best, value, sizeof(value));
        say(look, CN_EVENT_TARGET_REACHED, "", "version %u has %s, wanted %.6g",
            state->progress.best, value, job->target);
    }
    if (!look->watch->job[0])
        say(look, CN_EVENT_RUN_ENDED, "", "the run has ended after %u round%s: %s",
            look->watch->version, look->watch->version == 1 ? "" : "s",
            state->end_reason ? state->end_reason : "it is over");
}

// --- rejections ---

struct rejections {
    const struct look *look;
    bool quiet;
};

// Remembers a rejection. Returns false when it was remembered before.
static bool is_new(struct cn_event_run *watch, const struct cn_history_rejection *rejection)
{
    uint64_t hash = (uint64_t)cn_name_hash(rejection->group) << 32 | rejection->round;
    size_t kept = watch->seen_count < CN_EVENT_SEEN ? watch->seen_count : CN_EVENT_SEEN;
    for (size_t i = 0; i < kept; i++)
        if (watch->seen[i] == hash)
            return false;
    watch->seen[watch->seen_count++ % CN_EVENT_SEEN] = hash;
    return true;
}

static cn_err take_rejection(void *context, const struct cn_history_rejection *rejection)
{
    const struct rejections *rejections = context;
    struct cn_event_run *watch = rejections->look->watch;
    // Rejections of older rounds are events already, or happened before this program. There may be
    // more of them than are remembered.
    if (rejection->round + 2 < watch->state.oldest)
        return CN_OK;
    if (is_new(watch, rejection) && !rejections->quiet)
        say(rejections->look, CN_EVENT_UPDATE_REJECTED, rejection->group,
            "round %u: its update was rejected: %s", rejection->round, rejection->reason);
    return CN_OK;
}

static void look_at_rejections(const struct look *look, bool quiet)
{
    struct rejections rejections = {look, quiet};
    uint64_t rejected = cn_run_count(look->from->run)->rejected;
    if (!quiet && rejected == look->watch->rejected)
        return;
    if (!cn_history_rejections(look->from->ledger, take_rejection, &rejections))
        look->watch->rejected = rejected;
}

// --- store and settings ---

static void look_at_store(const struct look *look)
{
    struct cn_event_run *before = look->watch;
    cn_err trouble = look->from->trouble;
    if (trouble && !before->trouble)
        say(look, CN_EVENT_STORE_DOWN, "", "the run waits: %s", cn_err_text(trouble));
    else if (!trouble && before->trouble)
        say(look, CN_EVENT_STORE_UP, "", "the run goes on");
    before->trouble = trouble;
}

static void look_at_settings(const struct look *look)
{
    struct cn_event_run *before = look->watch;
    uint32_t settings = look->from->live ? look->from->live->number : 0;
    if (before->settings && settings != before->settings)
        say(look, CN_EVENT_SETTINGS_CHANGED, "", "other settings of the job hold now");
    before->settings = settings;
}

// --- looking ---

void cn_event_run_begin(struct cn_event_run *watch, const struct cn_event_run_source *from,
                        uint64_t now_ms)
{
    const struct look look = {watch, from, now_ms};
    watch->known = true;
    watch->state = *from->state;
    watch->measured = from->state->progress.newest_known;
    watch->extended = cn_run_count(from->run)->extended;
    watch->version = cn_model_store_newest(from->models)->number;
    watch->settings = from->live ? from->live->number : 0;
    look_at_rejections(&look, true);
    if (watch->state.phase == CN_RUN_OPEN)
        watch->state.phase = CN_RUN_GATHER; // so the open round is an event
}

void cn_event_run_look(struct cn_event_run *watch, const struct cn_event_run_source *from,
                       uint64_t now_ms)
{
    const struct look look = {watch, from, now_ms};
    look_at_versions(&look);
    look_at_round(&look);
    look_at_rejections(&look, false);
    look_at_store(&look);
    look_at_settings(&look);
    look_at_end(&look);
    watch->state = *from->state;
}
