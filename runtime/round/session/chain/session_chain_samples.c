// session_chain_samples.c - a chain that trains on its boards' own samples.
//
// The member with the first part reads its samples. What later parts read of them, labels and
// inputs, travels behind the activations of each message. From round to round the members change
// places (cn_ranks_turn), so that the samples of all are trained.
#include <string.h>

#include "runtime/base/log.h"
#include "runtime/group/purpose.h"
#include "runtime/round/session/session_chain.h"

void cn_session_note_inputs(struct cn_session *session, const struct cn_graph *graph)
{
    struct cn_session_cut *cut = &session->cut;

    cn_cut_inputs(graph, &cut->at, cut->readers);
    cut->input_count = graph->input_count;
    for (uint32_t i = 0; i < graph->input_count; i++)
        cut->input_words[i] = graph->values[graph->inputs[i]].words;
    cut->label_words = graph->labels == CN_GRAPH_NONE ? 0 : graph->values[graph->labels].words;
}

// Returns whether a part behind this one reads an input.
static bool travels(const struct cn_session_cut *cut, uint32_t part, uint32_t input)
{
    return cut->readers[input] >> (part + 1) != 0;
}

size_t cn_session_sample_words(const struct cn_session *session, uint32_t part)
{
    const struct cn_session_cut *cut = &session->cut;
    size_t words = cut->label_words;

    if (!cn_session_takes_turns(session) || part + 1 >= cut->at.parts)
        return 0;
    for (uint32_t i = 0; i < cut->input_count; i++)
        words += travels(cut, part, i) ? cut->input_words[i] : 0;
    return words;
}

// Returns the labels of a batch, whatever their type.
static float *labels_of(const struct cn_session *session, const struct cn_batch *batch)
{
    return session->config.job->loss == CN_LOSS_CROSS_ENTROPY ? (float *)(void *)batch->labels
                                                              : batch->targets;
}

// Copies the samples of a message behind a part: between a batch and the message, in the direction
// that `arrives` says.
static void copy_samples(const struct cn_session *session, uint32_t part,
                         const struct cn_batch *batch, float *message, bool arrives)
{
    const struct cn_session_cut *cut = &session->cut;
    float *inputs = batch->inputs;
    size_t labels = cut->label_words * batch->count * sizeof(*message);

    for (uint32_t n = 0; n < batch->count; n++)
        for (uint32_t i = 0; i < cut->input_count; i++) {
            size_t words = cut->input_words[i];

            if (travels(cut, part, i)) {
                memcpy(arrives ? inputs : message, arrives ? message : inputs,
                       words * sizeof(*message));
                message += words;
            } else if (arrives) { // as good as any: no part from here on reads it
                memset(inputs, 0, words * sizeof(*inputs));
            }
            inputs += words;
        }
    if (arrives)
        memcpy(labels_of(session, batch), message, labels);
    else
        memcpy(message, labels_of(session, batch), labels);
}

void cn_session_put_samples(const struct cn_session *session, uint32_t part,
                            const struct cn_batch *batch, float *message)
{
    if (cn_session_sample_words(session, part))
        copy_samples(session, part, batch, message, false);
}

void cn_session_get_samples(const struct cn_session *session, uint32_t part, const float *message,
                            uint32_t count, struct cn_batch *batch)
{
    batch->count = count;
    copy_samples(session, part, batch, (float *)message, true);
}

cn_err cn_session_count_held_out(const struct cn_session *session, struct cn_collective *collective,
                                 uint64_t *count)
{
    const struct cn_chain_place *place = &session->plan.chain;
    struct cn_collective_call call = {.kind = CN_COLLECTIVE_BROADCAST,
                                      .set = &place->chain,
                                      .data = count,
                                      .count = sizeof(*count),
                                      .fingerprint = CN_PURPOSE_CHAIN_HELD_OUT};
    cn_err err;

    *count = cn_dataset_count(session->data.set, CN_SPLIT_HELD_OUT);
    if (!cn_session_takes_turns(session) || !place->parts || place->idle)
        return CN_OK;
    call.peer = cn_ranks_of_part(place, 0);
    err = collective->ops->run(collective, &call);
    return !err && *count > UINT32_MAX ? CN_EFORMAT : err; // no board reads so many in a round
}

// --- turns ---

uint32_t cn_session_turn_round(const struct cn_session *session)
{
    return session->held.round ? session->held.round : 1;
}

uint32_t cn_session_order_members(const struct cn_session *session, uint32_t ranks,
                                  uint32_t order[CN_GROUP_MAX])
{
    struct cn_chain_wish wish = cn_session_chain_wish(session);
    struct cn_set set = cn_ranks_set(ranks);
    uint32_t shards, chains = cn_ranks_chains(&wish, set.size, &shards), begin = 0;

    if (cn_session_takes_turns(session) && chains)
        begin = cn_ranks_turn(set.size, chains, cn_session_turn_round(session));
    for (uint32_t i = 0; i < set.size; i++)
        order[i] = set.ranks[(begin + i) % set.size];
    return set.size;
}

uint64_t cn_session_first_of_turn(const struct cn_session *session)
{
    const struct cn_job *job = session->config.job;
    uint32_t most = cn_job_most_steps(job);

    return (session->plan.turns * most + cn_session_position(session)) * session->plan.micro;
}

uint64_t cn_session_first_read(const struct cn_session *session, uint64_t first)
{
    const struct cn_settings *settings = session->config.settings;
    uint64_t members = settings->gpu_count ? settings->gpu_count : 1;
    uint64_t micro = session->plan.micro;

    if (!cn_session_takes_turns(session))
        return first;
    return (first / micro * members + settings->gpu_place) * micro;
}

void cn_session_tell_turn(const struct cn_session *session)
{
    const struct cn_session_cut *cut = &session->cut;
    const struct cn_chain_place *place = &session->plan.chain;
    bool whole = false; // an input leaves the board as it is

    if (!cn_session_takes_turns(session))
        return;
    for (uint32_t i = 0; i < cut->input_count; i++)
        whole |= travels(cut, 0, i);
    cn_log(CN_LOG_INFO, "chain",
           "round %u: the chain trains on the samples of %s; their activations%s and labels go to "
           "the other members",
           cn_session_turn_round(session),
           cn_session_member(session, cn_ranks_of_part(place, 0))->name,
           whole ? ", inputs that later parts read" : "");
}
