// session_cut.c - where the model is cut, which part this board's trainer holds, and whether its
// samples are those of the others.
#include <stdlib.h>
#include <string.h>

#include "runtime/base/log.h"
#include "runtime/engine/trainer/trainer_parts.h"
#include "runtime/group/pipeline_order.h"
#include "runtime/round/session/session_chain.h"

#define CUT_TEXT 2048  // bytes, for a cut into as many parts as there may be
#define LEAST_WORK 0.1 // of an equal share; people are told of a part with less

uint32_t cn_session_in_flight(const struct cn_session_cut *cut, uint32_t part)
{
    uint32_t most = cn_pipeline_in_flight(cut->at.parts, cut->micro, part);

    return cut->most && cut->most < most ? cut->most : most;
}

void cn_session_set_part(struct cn_session *session, uint32_t part)
{
    struct cn_session_cut *cut = &session->cut;

    cut->part = part;
    cut->micro = cut->at.parts * cn_session_accumulates(session);
    cut->slots = cn_session_in_flight(cut, part);
}

// Returns the part that this board gets if all members are there.
static uint32_t likely_part(const struct cn_session *session)
{
    const struct cn_settings *settings = session->config.settings;
    struct cn_set all = cn_ranks_set((1u << settings->group.member_count) - 1);
    struct cn_chain_wish wish = cn_session_chain_wish(session);
    struct cn_chain_place place;
    uint32_t own = 0;

    while (own < settings->group.member_count &&
           strcmp(settings->group.members[own].name, settings->name) != 0)
        own++;
    return cn_ranks_chain(all.ranks, all.size, &wish, own, &place) || place.idle ? 0 : place.part;
}

// Notes, for each part, its share of the work and the words that pass the place behind it.
static cn_err measure_cut(struct cn_session *session, const struct cn_graph *graph)
{
    struct cn_session_cut *cut = &session->cut;
    struct cn_trainer_place *places = NULL;
    size_t count = 0;
    double before = 0;
    cn_err err =
        cn_trainer_list_places(graph, &session->layout_own, graph->loss + 1, &places, &count);

    cn_session_note_inputs(session, graph);
    for (size_t i = 0; !err && i < count; i++)
        for (uint32_t p = 0; p + 1 < cut->at.parts; p++)
            if (places[i].nodes == cut->at.places[p]) {
                cut->words[p] = places[i].words + places[i].gradient_words +
                                cn_session_sample_words(session, p);
                cut->work[p] = places[i].work - before;
                before = places[i].work;
            }
    cut->work[cut->at.parts - 1] = 1 - before;
    free(places);
    return err;
}

// Warns of parts that give a board next to nothing to do.
static void warn_of_idle_parts(const struct cn_session_cut *cut)
{
    uint32_t parts = cut->at.parts;

    for (uint32_t p = 0; p < parts; p++)
        if (cut->work[p] * parts < LEAST_WORK)
            cn_log(CN_LOG_WARN, "chain",
                   "part %u of %u has %.1f %% of the work: a board of it mostly waits; fewer parts "
                   "(parallel.pipeline) would do",
                   p + 1, parts, 100 * cut->work[p]);
}

// Takes over a cut that is possible, of the graph of the whole model.
static cn_err take(struct cn_session *session, const struct cn_graph *graph,
                   const struct cn_cut *cut, const char *how)
{
    char text[CUT_TEXT];
    cn_err err = cn_trainer_cut_text(graph, cut, text, sizeof(text));

    session->cut = (struct cn_session_cut){.at = *cut};
    session->cut.holders =
        calloc(session->layout_own.tensor_count + 1, sizeof(*session->cut.holders));
    if (!session->cut.holders)
        err = CN_ENOMEM;
    if (!err)
        err = cn_cut_holders(graph, &session->layout_own, cut, session->cut.holders);
    if (!err)
        err = measure_cut(session, graph);
    if (!err)
        cn_log(CN_LOG_INFO, "chain", "parallel.cut %s: %s of the work", how, text);
    if (!err && session->config.job->parallel.kind != CN_PARALLEL_AUTO) // auto weighs that itself
        warn_of_idle_parts(&session->cut);
    return err;
}

cn_err cn_session_cut_into(struct cn_session *session, uint32_t parts, struct cn_diag *diag)
{
    const struct cn_job *job = session->config.job;
    const char *names = job->pipeline.cut;
    struct cn_graph graph;
    struct cn_cut cut;
    cn_err err;

    cn_layout_deinit(&session->layout_own);
    session->layout_own = (struct cn_layout){0};
    free(session->cut.holders);
    session->cut = (struct cn_session_cut){0};
    err = cn_trainer_import(session->onnx, job->loss, &job->rules, diag, &session->layout_own,
                            &graph);
    if (err)
        return err;
    err = cn_trainer_find_cut(&graph, &session->layout_own, names, parts, diag, &cut);
    if (!err)
        err = take(session, &graph, &cut,
                   names[0] ? "as the job says" : "auto, equal work with the fewest values sent");
    cn_graph_deinit(&graph);
    if (!err)
        cn_session_set_part(session, likely_part(session));
    return err;
}

cn_err cn_session_cut_model(struct cn_session *session, struct cn_diag *diag)
{
    const struct cn_session_config *config = &session->config;
    const struct cn_job *job = config->job;
    uint32_t parts = job->pipeline.parts, members = config->settings->group.member_count;
    uint32_t shards = job->parallel.shard;

    if (config->alone || parts <= 1)
        return CN_OK;
    if (members < parts) {
        cn_diag_add(diag,
                    "parallel.pipeline of job '%s' is %u, and %u boards are in group.members "
                    "of this profile; wanted at least %u",
                    job->name, parts, members ? members : 1, parts);
        return CN_EINVAL;
    }
    if (shards > 1 && members < parts * shards) {
        cn_diag_add(
            diag,
            "parallel.pipeline: %u and parallel.shard: %u of job '%s' need %u boards, and %u "
            "are in group.members of this profile",
            parts, shards, job->name, parts * shards, members);
        return CN_EINVAL;
    }
    return cn_session_cut_into(session, parts, diag);
}

// --- another cut, or another part ---

cn_err cn_session_import(const struct cn_session *session, struct cn_layout *layout,
                         struct cn_graph *graph)
{
    const struct cn_job *job = session->config.job;
    struct cn_diag diag; // has nothing new: the trainer was opened from this file

    cn_diag_init(&diag);
    return cn_trainer_import(session->onnx, job->loss, &job->rules, &diag, layout, graph);
}

// Takes over a cut that the leader chose.
static cn_err take_chosen(struct cn_session *session, const struct cn_cut *cut)
{
    struct cn_layout layout;
    struct cn_graph graph;
    struct cn_diag diag;
    cn_err err = cn_session_import(session, &layout, &graph);

    if (err)
        return err;
    cn_diag_init(&diag);
    err = cn_cut_check(&graph, cut, &diag);
    if (err)
        cn_log(CN_LOG_ERROR, "chain", "the leader's cut cannot be used: %s", cn_diag_first(&diag));
    else
        err = take(session, &graph, cut, "auto, the quickest that was found");
    cn_graph_deinit(&graph);
    cn_layout_deinit(&layout);
    return err;
}

static bool is_same(const struct cn_cut *a, const struct cn_cut *b)
{
    for (uint32_t p = 0; a->parts == b->parts && p + 1 < a->parts; p++)
        if (a->places[p] != b->places[p])
            return false;
    return a->parts == b->parts;
}

// Sets the part of the present cut. Returns whether the open trainer serves for it: it holds a
// share of this part, with as many messages.
static bool set_part_of_same_cut(struct cn_session *session, const struct cn_part_share *share)
{
    struct cn_session_cut before = session->cut;
    uint32_t had[CN_BOUNDARY_COUNT], wants[CN_BOUNDARY_COUNT];

    cn_session_count_messages(session, had);
    cn_session_set_part(session, share->part);
    cn_session_count_messages(session, wants);
    return before.part == share->part && before.slots == session->cut.slots &&
           session->sharing.shards == share->shards && memcmp(had, wants, sizeof(had)) == 0;
}

// What the trainer holds.
struct holding {
    struct cn_session_cut cut;
    uint32_t shards, stage, shard;
    enum cn_recompute recompute;
};

// Goes back to the cut and the trainer that were before.
static cn_err go_back(struct cn_session *session, const struct holding *before)
{
    if (session->cut.holders != before->cut.holders)
        free(session->cut.holders);
    session->cut = before->cut;
    session->sharing.shards = before->shards;
    session->sharing.stage = before->stage;
    session->sharing.recompute = before->recompute;
    if (cn_session_try_trainer(session))
        return CN_EWEDGED;
    if (before->shards > 1 && before->shard < before->shards &&
        cn_session_set_share(session, before->shards, before->shard))
        return CN_EWEDGED;
    return cn_session_load_trainer(session) ? CN_EWEDGED : CN_OK;
}

// Opens the trainer for a part, or without a cut for the whole model.
static cn_err open_for(struct cn_session *session, const struct cn_cut *cut, bool same,
                       const struct cn_part_share *share)
{
    cn_err err = !same && cut ? take_chosen(session, cut) : CN_OK;

    if (err)
        return err;
    if (!cut) {
        session->cut = (struct cn_session_cut){0};
        return cn_session_try_whole(session);
    }
    session->cut.most = 0; // memory may have room for more now, as when a member is back
    cn_session_set_part(session, share->part);
    session->sharing.shards = share->shards;
    session->sharing.stage = cn_session_job_stage(session->config.job);
    session->sharing.recompute = CN_RECOMPUTE_NONE;
    err = cn_session_try_trainer(session);
    return err || share->shards == 1 ? err
                                     : cn_session_set_share(session, share->shards, share->shard);
}

cn_err cn_session_change_part(struct cn_session *session, const struct cn_cut *cut,
                              const struct cn_part_share *share)
{
    static const struct cn_cut none = {.parts = 0};
    const struct holding before = {session->cut, session->sharing.shards, session->sharing.stage,
                                   session->sharing.shard, session->sharing.recompute};
    bool same = is_same(cut ? cut : &none, &before.cut.at);
    bool serves = same && (!cut || set_part_of_same_cut(session, share));
    cn_err err, back;

    if (serves && (!cut || session->sharing.shard == share->shard))
        return CN_OK;
    err = cn_session_recall(session);
    if (err) {
        session->cut = before.cut;
        return err;
    }
    err = serves ? cn_session_set_share(session, share->shards, share->shard)
                 : open_for(session, cut, same, share);
    if (err) {
        back = go_back(session, &before);
        return back ? back : err;
    }
    if (before.cut.holders != session->cut.holders)
        free(before.cut.holders);
    if (!cut)
        cn_log(CN_LOG_INFO, "chain", "no part of the model: this board holds the whole of it");
    // Without the held weights the trainer would go on with those of the file.
    return cn_session_load_trainer(session) ? CN_EWEDGED : CN_OK;
}

// --- the samples ---

cn_err cn_session_look_at_samples(struct cn_session *session, struct cn_diag *diag)
{
    if (!cn_session_is_cut(session) && !cn_session_may_cut(session))
        return CN_OK;
    if (cn_session_takes_turns(session)) // nobody else reads them
        return CN_OK;
    if (cn_dataset_is_open_ended(session->data.set) && !cn_session_is_cut(session))
        return CN_OK;
    if (cn_dataset_is_open_ended(session->data.set)) {
        cn_diag_add(diag,
                    "data set '%s' is a folder, whose files may differ between the members of a "
                    "chain; wanted files with parallel.pipeline",
                    session->config.job->data_set);
        return CN_ENOTSUP;
    }
    session->chain.samples = cn_dataset_sum(session->data.set);
    return CN_OK;
}
