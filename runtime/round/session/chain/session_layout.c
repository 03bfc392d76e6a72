// session_layout.c - "parallel: auto" with a model that may be cut: forms the layout when an epoch
// begins.
//
// The search predicts how much memory a part takes. A member finds out when it opens its trainer.
// So all members tell whether they could, and if one could not, the leader searches among the other
// layouts.
#include "runtime/base/log.h"
#include "runtime/round/session/session_chain.h"

// Returns the members that may train together: with the same samples by their fingerprints if all
// can hold a part, else with the same number of samples. Sets *not_parts.
static uint32_t find_members(struct cn_session *session, const struct cn_layout_words *words,
                             uint32_t *not_parts)
{
    struct cn_session_sets *sets = session->planning.sets;
    int64_t samples[CN_GROUP_MAX] = {0};

    *not_parts = 0;
    for (uint32_t r = 0; r < sets->view.size; r++) {
        samples[r] = words->of[r][CN_LAYOUT_WORD_SAMPLES];
        if (!words->of[r][CN_LAYOUT_WORD_CUTS])
            *not_parts = CN_LAYOUT_NO_CUT;
    }
    return *not_parts ? cn_session_without_other_samples(session, cn_session_everybody(sets))
                      : cn_session_find_alike(session, samples);
}

static bool is_of_the_layout(cn_err err)
{
    return err == CN_ENOMEM || err == CN_EINVAL || err == CN_ENOTSUP;
}

// Opens the trainer of the whole model, or the largest share of it that fits. CN_ENOMEM where a
// member that is to train can only hold a smaller one than the layout says.
static cn_err open_whole(struct cn_session *session)
{
    const struct cn_session_sets *sets = session->planning.sets;
    const struct cn_session_layout *layout = &sets->layout;
    cn_err err = cn_session_change_part(session, NULL, NULL);
    uint32_t shards = session->sharing.shards;

    if (err || !(cn_session_layout_ranks(layout) >> sets->view.rank & 1))
        return err;
    return shards > layout->shards || (shards > 1 && shards == layout->shards &&
                                       session->sharing.stage > layout->stage)
               ? CN_ENOMEM
               : CN_OK;
}

// Opens the trainer for the chosen layout. Without a cut it holds the whole model or a share of it;
// the members that train are chosen before the next step (session_sets.c). A member that is left
// over beside the chains holds any part that fits.
static cn_err open_for(struct cn_session *session, struct cn_chain_place *place)
{
    const struct cn_session_sets *sets = session->planning.sets;
    const struct cn_session_layout *layout = &sets->layout;
    const struct cn_chain_wish wish = {.parts = layout->parts};
    struct cn_cut cut = {.parts = layout->parts};
    cn_err err = CN_ENOMEM;

    if (layout->parts == 1)
        return open_whole(session);
    for (uint32_t p = 0; p + 1 < layout->parts; p++)
        cut.places[p] = (size_t)layout->places[p];
    if (cn_ranks_chain(layout->ranks, layout->count, &wish, sets->view.rank, place))
        return CN_EINVAL;
    for (uint32_t p = 0; p < layout->parts && is_of_the_layout(err); p++) {
        const struct cn_part_share share = {.part = place->idle ? p : place->part, .shards = 1};

        err = cn_session_change_part(session, &cut, &share);
        if (!place->idle)
            return err;
    }
    return err;
}

// Chooses layouts until all members that are to train have opened one, or until none is left: then
// *lacking is not 0.
static cn_err open_any(struct cn_session *session, struct cn_collective *collective,
                       const struct cn_layout_words *words, uint32_t among, uint32_t not_parts,
                       struct cn_chain_place *place, uint32_t *lacking)
{
    const struct cn_session_layout *layout = &session->planning.sets->layout;

    *lacking = among;
    for (;;) {
        cn_err err = cn_session_search_layout(session, collective, words, among, not_parts), own;

        if (err || !layout->parts)
            return err;
        own = open_for(session, place);
        if (own && !is_of_the_layout(own))
            return own;
        err = cn_session_agree_opened(session, collective, cn_session_layout_ranks(layout), own,
                                      lacking);
        if (err)
            return err;
        if (!*lacking) // a board that looks on and could hold nothing leaves
            return own;
        not_parts |= 1u << layout->parts;
        cn_log(CN_LOG_WARN, "sets", "parallel: auto: a member cannot hold what it should: %s",
               layout->parts > 1 ? "trying other layouts" : "trying to cut the model");
    }
}

cn_err cn_session_form_layout(struct cn_session *session, struct cn_collective *collective)
{
    struct cn_session_sets *sets = session->planning.sets;
    struct cn_chain_place place = {0};
    struct cn_layout_words words;
    uint32_t among, not_parts, lacking;
    cn_err err;

    cn_session_wait_no_more(session);
    err = cn_session_gather_words(session, collective, cn_session_everybody(sets), &words);
    if (err)
        return err;
    among = find_members(session, &words, &not_parts);
    err = open_any(session, collective, &words, among, not_parts, &place, &lacking);
    if (err)
        return err;
    if (lacking) {
        cn_session_wait_for_members(session, among, "a layout that fits", "more memory");
        return CN_OK;
    }
    return sets->layout.parts > 1 ? cn_session_begin_chains(session, collective, &place) : CN_OK;
}
