// session_chain_sums.c - adds up the gradients of a step of chains, and clips them.
//
// First the members with one part add up its gradients, then the members of each chain those of a
// tensor that several of its parts hold. Where a part's state is held in shares, each member gets
// the sums of its share. A tensor of several parts is in another bucket of each, so its holders add
// up the whole of it.
#include <math.h>
#include <string.h>

#include "runtime/engine/trainer/trainer_parts.h"
#include "runtime/group/purpose.h"
#include "runtime/port/platform.h"
#include "runtime/round/session/session_chain.h"

static cn_err sum(struct cn_collective *collective, const struct cn_set *set, float *data,
                  size_t count, enum cn_number wire, enum cn_purpose what)
{
    const struct cn_collective_call call = {.kind = CN_COLLECTIVE_ALL_REDUCE,
                                            .how = CN_REDUCE_SUM,
                                            .wire = wire,
                                            .set = set,
                                            .data = data,
                                            .count = count,
                                            .fingerprint = what};

    return set->size > 1 && count ? collective->ops->run(collective, &call) : CN_OK;
}

// Gives each member of a part the sums of its share, bucket after bucket.
static cn_err sum_shares(struct cn_session *session, struct cn_collective *collective,
                         float *gradients)
{
    const struct cn_step_plan *plan = &session->plan;
    enum cn_number wire = session->reducer->wire;
    size_t first = 0;
    cn_err err = CN_OK;

    for (uint32_t b = 0; !err && b < cn_trainer_bucket_count(session->trainer); b++) {
        struct cn_trainer_piece own = cn_session_own_piece(session, b, first);
        size_t words = cn_trainer_bucket_words(session->trainer, b);
        const struct cn_collective_call call = {.kind = CN_COLLECTIVE_REDUCE_SCATTER,
                                                .how = CN_REDUCE_SUM,
                                                .wire = wire,
                                                .set = &plan->shard_set,
                                                .data = gradients + first,
                                                .count = words,
                                                .fingerprint = CN_PURPOSE_CHAIN_PIECES};

        err = collective->ops->run(collective, &call);
        if (!err)
            err = sum(collective, &plan->replica_set, gradients + own.first, own.count, wire,
                      CN_PURPOSE_CHAIN_SUM);
        first += words;
    }
    return err;
}

// Adds up the gradients of the members with the same part. From stage 2 on that was done in the
// backward passes.
static cn_err sum_part(struct cn_session *session, struct cn_collective *collective)
{
    float *gradients;
    cn_err err;

    if (cn_trainer_stage(session->trainer) >= CN_STAGE_GRADIENTS)
        return CN_OK;
    err = cn_trainer_gradients(session->trainer, &gradients);
    if (err)
        return err;
    return session->plan.shards > 1 ? sum_shares(session, collective, gradients)
                                    : sum(collective, &session->plan.chain.alike, gradients,
                                          cn_trainer_gradient_words(session->trainer),
                                          session->reducer->wire, CN_PURPOSE_CHAIN_SUM);
}

// --- tensors of several parts ---

// A bucket with a tensor that other parts hold, too.
struct tied_bucket {
    float *data; // the bucket's gradients
    size_t first, words;
    struct cn_trainer_piece own;
    float *share; // this board's piece of it, where that lies elsewhere; NULL: in data
};

// Finds the bucket that has the gradient at a word.
static cn_err find_bucket(struct cn_session *session, size_t place, struct tied_bucket *bucket)
{
    struct cn_trainer *trainer = session->trainer;
    size_t before = 0, count; // values of the share before the bucket
    uint32_t b = 0;
    cn_err err;

    *bucket = (struct tied_bucket){.words = cn_trainer_bucket_words(trainer, 0)};
    err = cn_trainer_lend_bucket(trainer, &bucket->data);
    if (err)
        return err;
    while (place >= bucket->first + bucket->words) {
        before += cn_session_own_piece(session, b, bucket->first).count;
        bucket->first += bucket->words;
        bucket->words = cn_trainer_bucket_words(trainer, ++b);
    }
    bucket->own = cn_session_own_piece(session, b, bucket->first);
    if (cn_trainer_stage(trainer) < CN_STAGE_GRADIENTS) {
        bucket->data += bucket->first;
        return CN_OK;
    }
    err = cn_trainer_share(trainer, &bucket->share, &count);
    if (!err)
        bucket->share += before;
    return err;
}

// Makes the whole of a bucket of this board's piece and those of the others.
static cn_err gather_bucket(struct cn_session *session, struct cn_collective *collective,
                            const struct tied_bucket *bucket)
{
    const struct cn_collective_call call = {.kind = CN_COLLECTIVE_ALL_GATHER,
                                            .set = &session->plan.shard_set,
                                            .data = bucket->data,
                                            .count = bucket->words,
                                            .fingerprint = CN_PURPOSE_CHAIN_PIECES};

    if (bucket->share)
        memcpy(bucket->data + (bucket->own.first - bucket->first), bucket->share,
               bucket->own.count * sizeof(float));
    return collective->ops->run(collective, &call);
}

// Adds up a tensor over the parts of a chain that hold it. Where the chains would add in other
// orders, the first chain adds, and its members hand the sum to those with the same part: all
// holders have the same bits.
static cn_err sum_over_parts(struct cn_session *session, struct cn_collective *collective,
                             uint32_t holders, float *data, size_t count)
{
    const struct cn_chain_place *place = &session->plan.chain;
    struct cn_set set = cn_ranks_parts(place, holders);
    const struct cn_collective_call hand = {.kind = CN_COLLECTIVE_BROADCAST,
                                            .set = &place->alike,
                                            .peer = place->ranks[place->part * place->chains],
                                            .data = data,
                                            .count = count * sizeof(*data),
                                            .fingerprint = CN_PURPOSE_CHAIN_HANDED};
    bool alike = cn_ranks_add_alike(place, holders);
    cn_err err = CN_OK;

    if (alike || place->number == 0)
        err = sum(collective, &set, data, count, CN_FLOAT32, CN_PURPOSE_CHAIN_TIED);
    return err || alike ? err : collective->ops->run(collective, &hand);
}

static cn_err sum_tensor(struct cn_session *session, struct cn_collective *collective,
                         uint32_t holders, size_t place, size_t count)
{
    struct tied_bucket bucket;
    float *gradients;
    cn_err err;

    if (session->plan.shards == 1) {
        err = cn_trainer_gradients(session->trainer, &gradients);
        return err ? err : sum_over_parts(session, collective, holders, gradients + place, count);
    }
    err = find_bucket(session, place, &bucket);
    if (!err)
        err = gather_bucket(session, collective, &bucket);
    if (!err)
        err = sum_over_parts(session, collective, holders, bucket.data + (place - bucket.first),
                             count);
    if (!err && bucket.share)
        memcpy(bucket.share, bucket.data + (bucket.own.first - bucket.first),
               bucket.own.count * sizeof(float));
    return err;
}

// Adds up the gradients of tensors that several parts hold, in the order of the layout.
static cn_err sum_tied(struct cn_session *session, struct cn_collective *collective)
{
    const struct cn_layout *own = cn_trainer_layout(session->trainer);
    cn_err err = CN_OK;

    for (size_t t = 0; !err && t < own->tensor_count; t++) {
        uint32_t holders = cn_trainer_holders(session->trainer, t);
        size_t place = cn_trainer_gradient_place(session->trainer, t);

        if (holders & (holders - 1) && place != SIZE_MAX)
            err = sum_tensor(session, collective, holders, place, own->tensors[t].count);
    }
    return err;
}

cn_err cn_session_reduce_chain(struct cn_session *session, struct cn_collective *collective,
                               bool *finite)
{
    double squares = 0;
    uint64_t begun_us = cn_platform_now_us();
    cn_err err = sum_part(session, collective);

    if (!err)
        err = sum_tied(session, collective);
    if (!err && session->plan.shards > 1)
        err = cn_session_check_share(session, collective, finite);
    cn_session_note_act(session, CN_CHAIN_SUM, 0, begun_us, cn_platform_now_us(), 0);
    if (err || session->plan.shards > 1)
        return err;
    err = cn_trainer_squares(session->trainer, 1, &squares);
    *finite = isfinite(squares) != 0;
    return err;
}

// --- clipping ---

// Returns the index of a member in a set.
static uint32_t index_in(const struct cn_set *set, uint32_t rank)
{
    uint32_t i = 0;

    while (i < set->size && set->ranks[i] != rank)
        i++;
    return i;
}

// Returns the squares of this part. In stage 1 the board has all of its gradient.
static cn_err part_squares(struct cn_session *session, struct cn_collective *collective,
                           double weight, double *squares)
{
    return cn_trainer_stage(session->trainer) >= CN_STAGE_GRADIENTS
               ? cn_session_sum_squares(session, collective, weight, squares)
               : cn_trainer_squares(session->trainer, weight, squares);
}

// Adds the squares of each part, in the order of the parts, so that all members get the same norm.
// The set is in the order of the ranks.
cn_err cn_session_clip_chain(struct cn_session *session, struct cn_collective *collective,
                             double weight)
{
    const struct cn_chain_place *place = &session->plan.chain;
    uint64_t bits[CN_GROUP_MAX] = {0};
    const struct cn_collective_call call = {.kind = CN_COLLECTIVE_ALL_GATHER,
                                            .type = CN_INT64,
                                            .set = &place->chain,
                                            .data = bits,
                                            .count = place->parts,
                                            .fingerprint = CN_PURPOSE_CHAIN_SQUARES};
    double squares, all = 0;
    cn_err err;

    if (!(session->config.job->rules.clip > 0))
        return CN_OK;
    weight = weight > 0 ? weight : 1;
    err = part_squares(session, collective, weight, &squares);
    memcpy(&bits[index_in(&place->chain, cn_ranks_of_part(place, place->part))], &squares,
           sizeof(squares));
    if (!err)
        err = collective->ops->run(collective, &call);
    for (uint32_t p = 0; !err && p < place->parts; p++) {
        memcpy(&squares, &bits[index_in(&place->chain, cn_ranks_of_part(place, p))],
               sizeof(squares));
        all += squares;
    }
    if (err)
        return err;
    return cn_trainer_stage(session->trainer) >= CN_STAGE_GRADIENTS
               ? cn_trainer_share_clip(session->trainer, weight, all)
               : cn_trainer_clip(session->trainer, weight, all);
}
