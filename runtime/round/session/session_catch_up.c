// session_catch_up.c - gives members that do not train the state of those that do.
#include "runtime/group/purpose.h"
#include "runtime/group/ranks.h"
#include "runtime/round/session/session_private.h"

struct counters {
    uint64_t samples, updates, cursor;
    double train_loss;
    uint32_t step;
};

static cn_err give(struct cn_session *session, struct cn_collective *collective,
                   const struct cn_set *set, uint32_t source, void *data, size_t size,
                   enum cn_purpose what)
{
    const struct cn_collective_call call = {
        .kind = CN_COLLECTIVE_BROADCAST,
        .set = set->size == session->planning.sets->view.size ? NULL : set,
        .peer = source,
        .data = data,
        .count = size,
        .fingerprint = what};

    return collective->ops->run(collective, &call);
}

// Gives the arrays of a state to the members that lack it. They arrive in memory of their own, so
// the held state stays whole until all have arrived.
static cn_err give_arrays(struct cn_session *session, struct cn_collective *collective,
                          const struct cn_set *set, uint32_t source, float *fresh[3])
{
    struct cn_checkpoint *held = &session->held;
    uint32_t count = cn_trainer_has_second(session->trainer) ? 3 : 2;
    float **arrays[3] = {&held->weights, &held->optimizer, &held->second};
    bool gives = source == session->planning.sets->view.rank;
    cn_err err = CN_OK;

    for (uint32_t i = 0; !err && i < count; i++) {
        if (!gives)
            err = cn_session_allocate(&fresh[i], held->total);
        if (!err)
            err = give(session, collective, set, source, gives ? *arrays[i] : fresh[i],
                       held->total * sizeof(float), CN_PURPOSE_CATCH_UP_STATE);
    }
    for (uint32_t i = 0; !err && !gives && i < count; i++) {
        float *old = *arrays[i];

        *arrays[i] = fresh[i];
        fresh[i] = old;
    }
    return err;
}

static cn_err take_state(struct cn_session *session, struct cn_collective *collective,
                         const struct cn_set *set, uint32_t source)
{
    struct cn_checkpoint *held = &session->held;
    bool gives = source == session->planning.sets->view.rank;
    struct counters counters = {0};
    float *fresh[3] = {NULL, NULL, NULL};
    cn_err err = gives ? cn_session_snapshot(session) : CN_OK;

    if (!err && gives)
        err = cn_session_allocate_optimizer(session); // adds the zeros that the state leaves out
    if (gives)
        counters = (struct counters){held->samples, held->updates, held->cursor, held->train_loss,
                                     held->step};
    if (!err)
        err = give(session, collective, set, source, &counters, sizeof(counters),
                   CN_PURPOSE_CATCH_UP_COUNTERS);
    if (!err)
        err = give_arrays(session, collective, set, source, fresh);
    if (!err && !gives) {
        held->samples = counters.samples;
        held->updates = counters.updates;
        held->cursor = counters.cursor;
        cn_session_record_micro(session);
        held->train_loss = counters.train_loss;
        held->step = counters.step;
        session->steps.unsaved = 0;
        err = cn_session_load_trainer(session);
    }
    for (uint32_t i = 0; i < 3; i++)
        cn_scratch_free(fresh[i]);
    return err;
}

cn_err cn_session_catch_up(struct cn_session *session, struct cn_collective *collective)
{
    struct cn_session_sets *sets = session->planning.sets;
    uint32_t behind = sets ? cn_session_everybody(sets) & ~sets->current : 0;
    uint32_t source;
    struct cn_set set;
    cn_err err = CN_OK;

    if (!behind)
        return CN_OK;
    if (cn_session_is_sharded(session) && session->plan.trains)
        err = cn_session_gather(session, collective);
    if (err)
        return err;
    source = (uint32_t)__builtin_ctz(sets->current);
    set = cn_ranks_set(behind | 1u << source);
    if (set.id >> sets->view.rank & 1)
        err = take_state(session, collective, &set, source);
    if (!err)
        sets->current = cn_session_everybody(sets);
    return err;
}

cn_err cn_session_collect(struct cn_session *session, struct cn_collective *collective)
{
    cn_err err = cn_session_catch_up(session, collective);

    return err ? err : cn_session_bring_weights(session, collective);
}
