// session_auto.c - "parallel: auto": collects what the members know, searches for the quickest
// layout, and tells it.
#include <stdlib.h>
#include <string.h>

#include "runtime/base/log.h"
#include "runtime/base/printable.h"
#include "runtime/engine/program/bucket_plan.h"
#include "runtime/engine/trainer/trainer_parts.h"
#include "runtime/group/layout_text.h"
#include "runtime/group/purpose.h"
#include "runtime/port/platform.h"
#include "runtime/round/session/session_chain.h"

#define MICRO_US_MOST 1000000000000ull // longest micro-batch that is believed
#define BYTES_MOST (1ull << 50)        // most memory
#define TIMED 3                        // number of evaluations, of which the quickest counts

bool cn_session_is_automatic(const struct cn_session *session)
{
    return session->config.job->parallel.kind == CN_PARALLEL_AUTO;
}

bool cn_session_may_cut(const struct cn_session *session)
{
    const struct cn_parallel *parallel = &session->config.job->parallel;

    return parallel->kind == CN_PARALLEL_AUTO && parallel->scope == CN_SCOPE_SHARED &&
           !parallel->train[0] && !parallel->measure[0] && !parallel->balance &&
           parallel->lr_scaling == CN_LR_SCALING_NONE && !session->config.alone &&
           session->config.settings->group.member_count > 1;
}

uint32_t cn_session_accumulates(const struct cn_session *session)
{
    const struct cn_session_sets *sets = session->planning.sets;

    return sets && sets->layout.micro ? sets->layout.micro : cn_job_accumulate(session->config.job);
}

// --- what a member knows ---

// Measures by evaluating, which changes no weight, gradient or statistic. Its counts are removed
// afterwards. The weights may be zeros, so a loss that is not finite does not matter.
static cn_err evaluate(struct cn_session *session, uint64_t *least_us)
{
    const struct cn_batch *batch = cn_reader_take(
        session->data.reader, session->held.cursor + session->steps.unsaved_counts.cursor);
    size_t classes = cn_trainer_classes(session->trainer);
    float *counts = calloc(3 * classes + 1, sizeof(*counts));
    cn_err err = counts ? CN_OK : CN_ENOMEM;

    *least_us = UINT64_MAX;
    for (int i = 0; !err && i < TIMED; i++) {
        uint64_t begun_us = cn_platform_now_us(), took_us;
        struct cn_metrics metrics = {0};

        err = cn_trainer_evaluate(session->trainer, batch, &metrics);
        took_us = cn_platform_now_us() - begun_us;
        *least_us = took_us < *least_us ? took_us : *least_us;
        err = err == CN_EDIVERGED ? CN_OK : err;
    }
    if (!err)
        cn_trainer_take_counts(session->trainer, counts);
    free(counts);
    return err;
}

// As evaluate, for a part of the model: its inputs are zeros.
static cn_err evaluate_part(struct cn_session *session, uint64_t *least_us)
{
    uint32_t samples = session->config.job->batch;
    size_t words = cn_trainer_boundary_words(session->trainer, CN_BOUNDARY_INPUTS) * samples;
    float *zeros = calloc(words + 1, sizeof(*zeros));
    cn_err err = zeros ? CN_OK : CN_ENOMEM;

    if (!err && words)
        err = cn_trainer_set_boundary(session->trainer, 0, CN_BOUNDARY_INPUTS, samples, zeros);
    if (!err)
        err = evaluate(session, least_us);
    free(zeros);
    return err;
}

// As evaluate, in stage 3, where the trainer has only a share of the weights: it borrows the held
// ones, or zeros.
static cn_err evaluate_lent(struct cn_session *session, uint64_t *least_us)
{
    float *zeros = NULL;
    cn_err err = cn_session_recall(session), back;

    if (!err && !session->held.weights)
        err = cn_session_allocate(&zeros, session->layout->total);
    if (!err)
        err = cn_trainer_lend_weights(session->trainer, zeros ? zeros : session->held.weights);
    if (!err)
        err = evaluate(session, least_us);
    back = cn_trainer_lend_weights(session->trainer, NULL);
    cn_scratch_free(zeros);
    return err ? err : back;
}

// Measures a micro-batch of the whole model. A part's time is scaled up by its share of the work.
static cn_err time_micro(struct cn_session *session, uint64_t *micro_us)
{
    bool cut = cn_session_is_cut(session);
    double share = cut ? session->cut.work[session->cut.part] : 1, forward, step;
    uint64_t least_us = 0;
    cn_err err = cut ? evaluate_part(session, &least_us)
                 : cn_trainer_stage(session->trainer) == CN_STAGE_WEIGHTS
                     ? evaluate_lent(session, &least_us)
                     : evaluate(session, &least_us);

    if (err)
        return err;
    cn_trainer_flops(session->trainer, &forward, &step);
    *micro_us = (uint64_t)((double)least_us * (forward > 0 ? step / forward : 1) /
                           (share > 0.01 ? share : 0.01)) +
                1;
    return CN_OK;
}

// Returns the memory of a board without a limit in its profile. A GPU's memory is not known here.
static uint64_t limit_of(const struct cn_session *session)
{
    const struct cn_settings *settings = session->config.settings;

    if (settings->memory_limit || cn_trainer_capability(session->trainer))
        return settings->memory_limit;
    return settings->memory_size ? settings->memory_size : cn_platform_memory_size();
}

static cn_err own_words(struct cn_session *session, bool trains, int64_t words[CN_LAYOUT_WORDS])
{
    uint64_t *micro_us = &session->planning.sets->micro_us;
    cn_err err = trains && !*micro_us ? time_micro(session, micro_us) : CN_OK;

    words[CN_LAYOUT_WORD_CUTS] = cn_session_may_cut(session) &&
                                 !cn_dataset_is_open_ended(session->data.set) &&
                                 session->config.settings->precision != CN_PRECISION_FLOAT16;
    words[CN_LAYOUT_WORD_SAMPLES] = session->chain.samples;
    words[CN_LAYOUT_WORD_LIMIT] = (int64_t)limit_of(session);
    words[CN_LAYOUT_WORD_MICRO_US] = (int64_t)*micro_us;
    words[CN_LAYOUT_WORD_COPIES_WHOLE] = (int64_t)cn_session_copies(session, false);
    words[CN_LAYOUT_WORD_COPIES_DIVIDED] = (int64_t)cn_session_copies(session, true);
    for (uint32_t s = 0; s < CN_LAYOUT_STAGES; s++) {
        words[CN_LAYOUT_WORD_NEEDS + 2 * s] = (int64_t)session->planning.needs[s].whole;
        words[CN_LAYOUT_WORD_NEEDS + 2 * s + 1] = (int64_t)session->planning.needs[s].shared;
    }
    return err;
}

cn_err cn_session_gather_words(struct cn_session *session, struct cn_collective *collective,
                               uint32_t train, struct cn_layout_words *words)
{
    const struct cn_view *view = &session->planning.sets->view;
    const struct cn_collective_call call = {.kind = CN_COLLECTIVE_ALL_GATHER,
                                            .type = CN_INT64,
                                            .data = words->of,
                                            .count = (size_t)view->size * CN_LAYOUT_WORDS,
                                            .fingerprint = CN_PURPOSE_AUTO_TIMES};
    cn_err err;

    *words = (struct cn_layout_words){0};
    err = own_words(session, train >> view->rank & 1, words->of[view->rank]);
    return err || view->size == 1 ? err : collective->ops->run(collective, &call);
}

// --- the search, on the leader ---

// The ranks of the members that the search sees, and their names.
struct field {
    uint32_t ranks[CN_GROUP_MAX];
    const char *names[CN_GROUP_MAX];
};

// Fills in the places for a cut. Without cuts they say when gradients are complete.
static cn_err list_places(const struct cn_session *session, struct cn_layout_facts *facts,
                          double work[CN_LAYOUT_PLACES + 1])
{
    const struct cn_job *job = session->config.job;
    uint64_t rows = 1 + cn_trainer_has_second(session->trainer);
    struct cn_trainer_place *places = NULL;
    size_t count = 0;
    struct cn_layout layout;
    struct cn_graph graph;
    cn_err err = cn_session_import(session, &layout, &graph);

    if (err)
        return err;
    err = cn_trainer_list_places(&graph, &layout, CN_LAYOUT_PLACES, &places, &count);
    facts->place_count = (uint32_t)count;
    for (size_t i = 0; !err && i <= count; i++) {
        const struct cn_trainer_place *place = &places[i];
        const struct cn_cut_sums *sums = &place->sums;
        uint64_t base = job->rules.proximal > 0 ? sums->parameters : 0;

        work[i] = place->work;
        facts->places[i] = (struct cn_layout_place){
            .nodes = place->nodes,
            .forward = (uint64_t)place->words * job->batch * sizeof(float),
            .backward = (uint64_t)place->gradient_words * job->batch * sizeof(float),
            .gradients = sums->trained * sizeof(float),
            .state = (2 * sums->parameters + base + rows * sums->trained) * sizeof(float),
            .copy = sums->parameters * sizeof(float),
            .saved = (uint64_t)sums->kept * job->batch * sizeof(float),
        };
    }
    free(places);
    cn_graph_deinit(&graph);
    cn_layout_deinit(&layout);
    return err;
}

// Returns what a step takes beside its state and the values that are kept: as much as the whole
// model's, else four times the largest message.
static uint64_t rest_of(const struct cn_session *session, const struct cn_layout_facts *facts)
{
    const struct cn_layout_place *all = &facts->places[facts->place_count];
    const struct cn_trainer_need *need = &session->planning.needs[0];
    uint64_t known = all->state + all->saved, most = 0;

    if (need->whole + need->shared)
        return need->whole + need->shared > known ? need->whole + need->shared - known : 0;
    for (uint32_t i = 0; i < facts->place_count; i++)
        if (facts->places[i].forward > most)
            most = facts->places[i].forward;
    return 4 * most;
}

// Returns the number nearest to what another member told that lies within limits.
static uint64_t bounded(int64_t value, uint64_t least, uint64_t most)
{
    return value < (int64_t)least ? least : (uint64_t)value < most ? (uint64_t)value : most;
}

static void add_member(const int64_t words[CN_LAYOUT_WORDS], uint64_t kbps, const double *work,
                       struct cn_layout_facts *facts)
{
    struct cn_layout_member *member = &facts->members[facts->count++];
    double micro_us = (double)bounded(words[CN_LAYOUT_WORD_MICRO_US], 1, MICRO_US_MOST);

    member->limit = bounded(words[CN_LAYOUT_WORD_LIMIT], 0, BYTES_MOST);
    member->kbps = kbps;
    for (uint32_t i = 0; i <= facts->place_count; i++)
        member->us[i] = work[i] * micro_us;
    member->copies_whole = bounded(words[CN_LAYOUT_WORD_COPIES_WHOLE], 0, BYTES_MOST);
    member->copies_divided = bounded(words[CN_LAYOUT_WORD_COPIES_DIVIDED], 0, BYTES_MOST);
    for (uint32_t s = 0; s < CN_LAYOUT_STAGES; s++)
        member->needs[s] = (struct cn_layout_need){
            bounded(words[CN_LAYOUT_WORD_NEEDS + 2 * s], 0, BYTES_MOST),
            bounded(words[CN_LAYOUT_WORD_NEEDS + 2 * s + 1], 0, BYTES_MOST)};
}

static cn_err fill_in(const struct cn_session *session, const struct cn_layout_words *words,
                      uint32_t among, uint32_t not_parts, struct field *field,
                      struct cn_layout_facts *facts)
{
    const struct cn_session_sets *sets = session->planning.sets;
    bool cuts = not_parts != CN_LAYOUT_NO_CUT;
    double work[CN_LAYOUT_PLACES + 1], forward, step;
    cn_err err;

    cn_trainer_flops(session->trainer, &forward, &step);
    *facts = (struct cn_layout_facts){.forward_share = step > 0 ? forward / step : 1.0 / 3,
                                      .call_us = sets->call_us,
                                      .sum_share = sets->sum_share,
                                      .micro = cn_job_accumulate(session->config.job),
                                      .most_parts = cuts ? CN_CUT_PARTS_MAX : 1,
                                      .not_parts = not_parts};
    err = list_places(session, facts, work);
    for (uint32_t r = 0; !err && r < sets->view.size; r++) {
        if (!(among >> r & 1))
            continue;
        field->ranks[facts->count] = r;
        field->names[facts->count] = cn_session_member(session, r)->name;
        add_member(words->of[r], sets->facts[r].link_kbps, work, facts);
    }
    facts->bucket = cn_session_bucket(session);
    facts->tunes = session->reducer && session->reducer->measured;
    facts->rest = rest_of(session, facts);
    return err;
}

static void describe(const struct cn_layout_facts *facts, const struct cn_layout_search *search,
                     const struct field *field, struct cn_session_layout *layout)
{
    const struct cn_layout_candidate *best = &search->candidates[search->best];

    layout->parts = best->parts;
    layout->replicas = best->replicas;
    layout->shards = best->shards;
    layout->stage = best->stage;
    layout->micro = best->micro;
    layout->count = best->parts * best->replicas * best->shards;
    for (uint32_t p = 0; p < layout->count; p++)
        layout->ranks[p] = field->ranks[best->members[p]];
    for (uint32_t p = 0; p + 1 < best->parts; p++)
        layout->places[p] = facts->places[best->places[p]].nodes;
    cn_layout_text(search, field->names, layout->why, sizeof(layout->why));
}

static cn_err search(const struct cn_session *session, const struct cn_layout_words *words,
                     uint32_t among, uint32_t not_parts, struct cn_session_layout *layout)
{
    struct cn_layout_facts *facts = calloc(1, sizeof(*facts));
    struct cn_layout_search *found = calloc(1, sizeof(*found));
    struct field field = {0};
    cn_err err = facts && found ? CN_OK : CN_ENOMEM;

    if (!err)
        err = fill_in(session, words, among, not_parts, &field, facts);
    if (!err) {
        cn_layout_search(facts, found);
        if (found->count)
            describe(facts, found, &field, layout);
    }
    free(facts);
    free(found);
    return err;
}

// --- the choice, on all members ---

// Returns whether a layout that the leader told makes sense for these members.
static bool is_possible(const struct cn_session *session, const struct cn_session_layout *layout,
                        uint32_t among, uint32_t not_parts)
{
    uint32_t micro = cn_job_accumulate(session->config.job), ranks = 0; // ranks seen so far
    uint32_t most = micro > CN_LAYOUT_MICRO ? micro : CN_LAYOUT_MICRO;

    if (!layout->parts || layout->parts > CN_CUT_PARTS_MAX || !layout->replicas ||
        layout->replicas > CN_GROUP_MAX || !layout->shards || layout->shards > CN_GROUP_MAX ||
        (layout->parts > 1 && (layout->shards > 1 || !cn_session_may_cut(session))) ||
        layout->count != layout->parts * layout->replicas * layout->shards ||
        layout->count > CN_GROUP_MAX || layout->stage < 1 || layout->stage > CN_LAYOUT_STAGES ||
        layout->micro < micro || layout->micro > most)
        return false;
    if (not_parts >> layout->parts & 1) // cuts that were refused, or all of them
        return false;
    for (uint32_t p = 1; p + 1 < layout->parts; p++)
        if (layout->places[p] <= layout->places[p - 1])
            return false;
    for (uint32_t p = 0; p < layout->count; p++) {
        if (layout->ranks[p] >= CN_GROUP_MAX || !(among >> layout->ranks[p] & 1) ||
            ranks >> layout->ranks[p] & 1)
            return false;
        ranks |= 1u << layout->ranks[p];
    }
    return true;
}

cn_err cn_session_search_layout(struct cn_session *session, struct cn_collective *collective,
                                const struct cn_layout_words *words, uint32_t among,
                                uint32_t not_parts)
{
    struct cn_session_sets *sets = session->planning.sets;
    struct cn_session_layout layout = {0};
    cn_err err = CN_OK;

    if (sets->view.rank == 0)
        err = search(session, words, among, not_parts, &layout);
    if (!err && sets->view.size > 1)
        err = cn_broadcast(collective, 0, &layout, sizeof(layout));
    if (err)
        return err;
    if (!layout.parts) // none fits
        layout = (struct cn_session_layout){0};
    else if (!is_possible(session, &layout, among, not_parts))
        return CN_EFORMAT;
    layout.among = among;
    layout.why[sizeof(layout.why) - 1] = '\0'; // the leader's text may be anything
    cn_printable_clean(layout.why);
    sets->layout = layout;
    if (layout.parts)
        cn_log(CN_LOG_INFO, "sets", "parallel: auto: %s", layout.why);
    return CN_OK;
}

cn_err cn_session_choose_layout(struct cn_session *session, struct cn_collective *collective,
                                uint32_t train)
{
    struct cn_layout_words words;
    cn_err err;

    if (!cn_session_is_automatic(session) || session->planning.sets->layout.among == train)
        return CN_OK;
    err = cn_session_gather_words(session, collective, train, &words);
    return err ? err
               : cn_session_search_layout(session, collective, &words, train, CN_LAYOUT_NO_CUT);
}
