// session_chain.c - forms chains when an epoch begins: of the members that have the same samples.
#include "runtime/round/session/session_chain.h"
#include "runtime/group/purpose.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "runtime/base/log.h"

struct cn_chain_wish cn_session_chain_wish(const struct cn_session *session)
{
    const struct cn_parallel *parallel = &session->config.job->parallel;

    return (struct cn_chain_wish){
        .parts = session->cut.at.parts, .shards = parallel->shard, .replicas = parallel->replicate};
}

uint32_t cn_session_most_frequent(const int64_t *samples, uint32_t size)
{
    uint32_t most = 0, found = 0;

    for (uint32_t r = 0; r < size; r++) {
        uint32_t count = 0;

        for (uint32_t other = 0; other < size; other++)
            count += samples[other] == samples[r];
        if (count > most) {
            most = count;
            found = r;
        }
    }
    return found;
}

// Says that a member is in no chain because its samples are not those of rank most. The member
// itself reports it, too.
static void tell_other_samples(struct cn_session *session, uint32_t rank, uint32_t most)
{
    char text[CN_FAULT_SIZE];

    snprintf(
        text, sizeof(text),
        "data set '%s' of %s has other samples than that of %s, and a chain needs the same: %s "
        "looks on",
        session->config.job->data_set, cn_session_member(session, rank)->name,
        cn_session_member(session, most)->name, cn_session_member(session, rank)->name);
    cn_log(CN_LOG_ERROR, "chain", "%s", text);
    if (rank == session->planning.sets->view.rank)
        memcpy(session->chain.why, text, sizeof(text));
}

uint32_t cn_session_find_alike(struct cn_session *session, const int64_t *samples)
{
    uint32_t size = session->planning.sets->view.size, ranks = 0;
    uint32_t most = cn_session_most_frequent(samples, size);

    for (uint32_t r = 0; r < size; r++) {
        ranks |= (uint32_t)(samples[r] == samples[most]) << r;
        if (samples[r] != samples[most])
            tell_other_samples(session, r, most);
    }
    return ranks;
}

// Exchanges the fingerprints of the samples.
static cn_err find_alike(struct cn_session *session, struct cn_collective *collective,
                         uint32_t *ranks)
{
    const struct cn_view *view = &session->planning.sets->view;
    int64_t samples[CN_GROUP_MAX] = {0};
    const struct cn_collective_call call = {.kind = CN_COLLECTIVE_ALL_GATHER,
                                            .type = CN_INT64,
                                            .data = samples,
                                            .count = view->size,
                                            .fingerprint = CN_PURPOSE_CHAIN_SAMPLES};
    cn_err err;

    samples[view->rank] = session->chain.samples;
    err = collective->ops->run(collective, &call);
    *ranks = err ? 0 : cn_session_find_alike(session, samples);
    return err;
}

void cn_session_wait_no_more(struct cn_session *session)
{
    session->chain.why[0] = session->chain.lack[0] = session->chain.needs[0] = '\0';
    session->chain.waits = false;
}

// Notes what people are told of a chain that waits for missing members.
static void note_missing(struct cn_session *session, const char *what, const char *missing)
{
    char *text = session->chain.needs;
    size_t size = sizeof(session->chain.needs);

    if (snprintf(text, size, "%s waits for %s%s", what, missing,
                 session->chain.lack[0] ? ", or for more memory here" : "") >= (int)size)
        memcpy(text + size - 4, "...", 4);
}

void cn_session_wait_for_members(struct cn_session *session, uint32_t ranks, const char *what,
                                 const char *otherwise)
{
    const struct cn_group_settings *group = &session->config.settings->group;
    const struct cn_view *view = &session->planning.sets->view;
    char there[128], missing[128] = "", text[CN_FAULT_SIZE];
    size_t length = 0;

    cn_session_name_ranks(session, ranks, there, sizeof(there));
    for (uint32_t m = 0; m < group->member_count && length < sizeof(missing); m++) {
        uint32_t r = 0;

        while (r < view->size && view->ranks[r] != m)
            r++;
        if (r == view->size)
            length += (size_t)snprintf(missing + length, sizeof(missing) - length, "%s%s",
                                       length ? " " : "", group->members[m].name);
    }
    snprintf(text, sizeof(text), "%.24s cannot be made of %.80s: waiting for %.80s", what, there,
             missing[0] ? missing : otherwise);
    cn_log(missing[0] ? CN_LOG_INFO : CN_LOG_WARN, "chain", "%s", text);
    if (missing[0]) // with them this board can train
        note_missing(session, what, missing);
    else if (!session->chain.why[0]) // else it is the reason of this board
        memcpy(session->chain.why, session->chain.lack[0] ? session->chain.lack : text,
               sizeof(text));
    session->chain.waits = true;
}

static void set_plan(struct cn_session *session, const struct cn_chain_place *place)
{
    struct cn_session_sets *sets = session->planning.sets;
    struct cn_step_plan *plan = &session->plan;
    uint32_t micro = session->cut.micro;

    sets->round = cn_session_turn_round(session);
    plan->chain = *place;
    plan->train = place->all;
    plan->whole = place->all.size == sets->view.size;
    plan->trains = !place->idle;
    plan->place = place->part * place->chains + place->number;
    plan->micro = place->idle ? 0 : micro;
    plan->before = place->number * micro;
    plan->total = place->chains * micro;
    plan->shards = place->shards;
    plan->stage = session->sharing.stage;
    plan->shard = place->shard;
    plan->shard_set = place->together;
    plan->replica_set = place->same;
    for (uint32_t p = 0; p < place->all.size; p++) {
        plan->seats[p] = sets->view.ranks[place->ranks[p]];
        session->planning.micro[p] = micro;
    }
    if (!place->idle) // random draws are those of the chain's first member
        session->planning.seat = sets->view.ranks[cn_ranks_of_part(place, 0)];
    if (cn_session_takes_turns(session))
        plan->turns = cn_ranks_turns_before(session->chain.members, place->chains, sets->round,
                                            place->number);
    sets->train = sets->allowed = place->all.id & cn_session_everybody(sets);
    cn_session_name_ranks(session, sets->train, plan->names, sizeof(plan->names));
}

uint32_t cn_session_slots_used(const struct cn_session *session)
{
    uint32_t most = session->chain.most, slots = session->cut.slots;

    return most && most < slots ? most : slots;
}

// Lists the members of this board's chain in the order of their parts.
static void name_chain(const struct cn_session *session, char *text, size_t size)
{
    const struct cn_chain_place *place = &session->plan.chain;
    size_t length = 0;

    text[0] = '\0';
    for (uint32_t p = 0; p < place->parts && length < size; p++)
        length += (size_t)snprintf(text + length, size - length, "%s%s", p ? " " : "",
                                   cn_session_member(session, cn_ranks_of_part(place, p))->name);
}

static void tell(const struct cn_session *session)
{
    const struct cn_chain_place *place = &session->plan.chain;
    const struct cn_layout *layout = cn_trainer_layout(session->trainer);
    char names[128];

    name_chain(session, names, sizeof(names));
    cn_log(CN_LOG_INFO, "chain",
           "part %u of %u, chain %u of %u (%s): %zu of %zu values, %u micro-batches a step, %u in "
           "flight, %" PRIu64 " bytes in all",
           place->part + 1, place->parts, place->number + 1, place->chains, names, layout->total,
           session->layout->total, session->plan.micro, cn_session_slots_used(session),
           cn_trainer_memory(session->trainer));
    if (place->shards > 1) {
        cn_session_name_ranks(session,
                              place->together.id & cn_session_everybody(session->planning.sets),
                              names, sizeof(names));
        cn_log(CN_LOG_INFO, "chain",
               "share %u of %u of this part (%s): %" PRIu64
               " bytes of the optimizer's state, stage %u",
               place->shard + 1, place->shards, names, cn_trainer_state_memory(session->trainer),
               cn_trainer_stage(session->trainer));
    }
    cn_session_tell_turn(session);
}

// Agrees on the most micro-batches that a part has in flight, since all members issue the calls of
// one order.
static cn_err agree_in_flight(struct cn_session *session, struct cn_collective *collective)
{
    const struct cn_chain_place *place = &session->plan.chain;
    uint32_t least = UINT32_MAX;
    int64_t most[CN_GROUP_MAX] = {0};
    const struct cn_collective_call call = {.kind = CN_COLLECTIVE_ALL_GATHER,
                                            .type = CN_INT64,
                                            .set = &place->all,
                                            .data = most,
                                            .count = place->all.size,
                                            .fingerprint = CN_PURPOSE_CHAIN_IN_FLIGHT};
    uint32_t own = 0;
    cn_err err;

    while (place->all.ranks[own] != session->planning.sets->view.rank)
        own++;
    most[own] = session->cut.most;
    err = collective->ops->run(collective, &call);
    for (uint32_t i = 0; !err && i < place->all.size; i++)
        if (most[i] > 0 && most[i] < least)
            least = (uint32_t)most[i];
    session->chain.most = least < UINT32_MAX ? least : 0;
    return err;
}

// Lets the members that hold a part together compute the same again.
static cn_err agree_recompute(struct cn_session *session, struct cn_collective *collective)
{
    bool opened = false;
    cn_err err = cn_session_recall(session);

    if (!err)
        err = cn_session_agree_recompute(session, collective, &opened);
    if (err || !opened)
        return err;
    err = cn_session_set_share(session, session->plan.shards, session->plan.shard);
    return err ? err : cn_session_load_trainer(session);
}

// Declares the sets for collective calls, those of all members, in the same order on each.
static cn_err prepare_sets(const struct cn_session *session, struct cn_collective *collective)
{
    const struct cn_chain_place *own = &session->plan.chain;
    const struct cn_chain_wish wish = {own->parts, own->shards, 0};
    struct cn_set sets[1 + 2 * CN_GROUP_MAX] = {session->plan.train};
    uint32_t count = 1;

    for (uint32_t p = 0; own->shards > 1 && p < own->all.size; p++) {
        struct cn_chain_place place;
        cn_err err = cn_ranks_chain(own->ranks, own->all.size, &wish, own->ranks[p], &place);

        if (err)
            return err;
        if (place.shard == 0)
            sets[count++] = place.together;
        if (place.number < place.shards)
            sets[count++] = place.same;
    }
    return collective->ops->prepare(collective, sets, count);
}

// Says on a member that its epoch has enough others for complete chains.
static void tell_left_over(const struct cn_session *session, const struct cn_chain_place *place)
{
    cn_log(CN_LOG_WARN, "chain", "%s is left over beside %u chain%s of %u parts: it looks on",
           cn_session_member(session, session->planning.sets->view.rank)->name, place->chains,
           place->chains == 1 ? "" : "s", place->parts);
}

cn_err cn_session_begin_chains(struct cn_session *session, struct cn_collective *collective,
                               const struct cn_chain_place *place)
{
    cn_err err;

    bool again = session->planning.sets->train != 0; // in the same epoch, at the round's first step

    set_plan(session, place);
    err = prepare_sets(session, collective);
    if (!err && !again && place->idle && !session->chain.why[0])
        tell_left_over(session, place);
    if (!err && again && place->idle) // it looks on until the round's end
        err = cn_session_recall(session);
    if (err || place->idle)
        return err;
    err = agree_recompute(session, collective);
    if (!err)
        err = agree_in_flight(session, collective);
    if (err)
        return err;
    tell(session);
    if (again)
        cn_session_let_go_first(session);
    return cn_session_store_held(session);
}

// Says on the leader that fewer members than the job wants hold the state of a part together.
static void tell_fewer(const struct cn_session *session, uint32_t ranks,
                       const struct cn_chain_wish *wish, const struct cn_chain_place *place)
{
    char names[128];

    if (session->planning.sets->view.rank > 0 || place->shards >= wish->shards)
        return;
    cn_session_name_ranks(session, ranks, names, sizeof(names));
    cn_log(CN_LOG_WARN, "chain",
           "parallel.shard is %u, but %u members (%s) hold %u parts: %u shares of each",
           wish->shards, session->chain.members, names, place->parts, place->shards);
}

// With turns a board gets each part in some round. Opens those of the other rounds one after the
// other, in as many shares as there are now, so that one that does not fit is told before its turn.
static cn_err open_other_parts(struct cn_session *session, const struct cn_chain_place *place)
{
    uint32_t own = place->idle ? place->parts : place->part;
    cn_err err = CN_OK;

    for (uint32_t p = 0; !err && p < place->parts; p++) {
        const struct cn_part_share share = {p, place->shards, place->idle ? 0 : place->shard};

        if (p != own)
            err = cn_session_change_part(session, &session->cut.at, &share);
    }
    return err;
}

// Opens the trainer for this board's place. A share that is larger than the job wants may not fit,
// and then all members wait. Where places change within an epoch nobody can wait, so then all parts
// that a board gets in the epoch are tried before.
static cn_err open_place(struct cn_session *session, struct cn_collective *collective,
                         uint32_t ranks, const struct cn_chain_wish *wish,
                         const struct cn_chain_place *place)
{
    const struct cn_session_sets *sets = session->planning.sets;
    const struct cn_part_share share = {place->part, place->shards, place->shard};
    bool turns = cn_session_takes_turns(session);
    bool agrees = place->shards < wish->shards && !sets->train;
    uint32_t members = turns ? ranks : place->all.id & cn_session_everybody(sets), lacking = 0;
    cn_err err = CN_OK, own = CN_OK;

    if (agrees && turns)
        own = open_other_parts(session, place);
    if (!own && !place->idle)
        own = cn_session_change_part(session, &session->cut.at, &share);
    if (!agrees || (own && own != CN_ENOMEM))
        return own;
    err = cn_session_agree_opened(session, collective, members, own, &lacking);
    if (!err && lacking)
        cn_session_wait_for_members(session, ranks, "a share that fits", "more memory");
    return err;
}

cn_err cn_session_form_chains(struct cn_session *session, struct cn_collective *collective)
{
    const struct cn_view *view = &session->planning.sets->view;
    struct cn_chain_wish wish = cn_session_chain_wish(session);
    struct cn_chain_place place;
    uint32_t order[CN_GROUP_MAX], ranks = cn_session_everybody(session->planning.sets);
    char what[64];
    cn_err err = CN_OK;

    cn_session_wait_no_more(session);
    if (!cn_session_takes_turns(session))
        err = find_alike(session, collective, &ranks);
    if (err)
        return err;
    session->chain.members = cn_session_order_members(session, ranks, order);
    if (cn_ranks_chain(order, session->chain.members, &wish, view->rank, &place)) {
        snprintf(what, sizeof(what), "a chain of %u parts", session->cut.at.parts);
        cn_session_wait_for_members(session, ranks, what, "members with the same samples");
        return CN_OK;
    }
    tell_fewer(session, ranks, &wish, &place);
    err = open_place(session, collective, ranks, &wish, &place);
    return err || session->chain.waits ? err : cn_session_begin_chains(session, collective, &place);
}

bool cn_session_waits(const struct cn_session *session)
{
    return session->chain.waits;
}
