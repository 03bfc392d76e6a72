// session_auto.c - "parallel: auto": collects the facts and chooses the layout.
#include <stdlib.h>

#include "runtime/base/log.h"
#include "runtime/engine/program/bucket_plan.h"
#include "runtime/port/platform.h"
#include "runtime/round/session/session_private.h"

#define FINGERPRINT 0x73617501
#define TIMED 3 // number of evaluations, of which the quickest counts

enum fact { LIMIT, MICRO_US, NEEDS, FACTS = NEEDS + 2 * CN_AUTO_STAGES };

bool cn_session_is_automatic(const struct cn_session *session)
{
    return session->config.job->parallel.kind == CN_PARALLEL_AUTO;
}

uint32_t cn_session_accumulates(const struct cn_session *session)
{
    const struct cn_session_sets *sets = session->planning.sets;

    return sets && sets->layout.micro ? sets->layout.micro : cn_job_accumulate(session->config.job);
}

// Measures by evaluating, which changes no weight, gradient or statistic. Its counts are removed
// afterwards.
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
    }
    if (!err)
        cn_trainer_take_counts(session->trainer, counts);
    free(counts);
    return err;
}

// Measures a micro-batch once per epoch, before its first step. In stage 3 the trainer has only a
// share of the weights, so it borrows the held ones.
static cn_err time_micro(struct cn_session *session, uint64_t *micro_us)
{
    bool lends = cn_trainer_stage(session->trainer) == CN_STAGE_WEIGHTS;
    uint64_t least_us = 0;
    double forward, step;
    cn_err err = lends ? cn_session_recall(session) : CN_OK;

    if (!err && lends)
        err = cn_trainer_lend_weights(session->trainer, session->held.weights);
    if (!err)
        err = evaluate(session, &least_us);
    if (lends && cn_trainer_lend_weights(session->trainer, NULL) && !err)
        err = CN_EINVAL;
    if (err)
        return err;
    cn_trainer_flops(session->trainer, &forward, &step);
    *micro_us = (uint64_t)((double)least_us * (forward > 0 ? step / forward : 1)) + 1;
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

static cn_err own_facts(struct cn_session *session, bool trains, int64_t words[FACTS])
{
    uint64_t *micro_us = &session->planning.sets->micro_us;
    cn_err err = trains && !*micro_us ? time_micro(session, micro_us) : CN_OK;

    words[LIMIT] = (int64_t)limit_of(session);
    words[MICRO_US] = (int64_t)*micro_us;
    for (uint32_t stage = 1; stage <= CN_AUTO_STAGES; stage++) {
        struct cn_trainer_need need = cn_trainer_needs(session->trainer, stage);

        words[NEEDS + 2 * (stage - 1)] = (int64_t)need.whole;
        words[NEEDS + 2 * (stage - 1) + 1] = (int64_t)need.shared;
    }
    return err;
}

static struct cn_auto_member get_member(const int64_t words[FACTS])
{
    struct cn_auto_member member = {.limit = (uint64_t)words[LIMIT],
                                    .micro_us = (uint64_t)words[MICRO_US]};

    for (uint32_t s = 0; s < CN_AUTO_STAGES; s++)
        member.needs[s] = (struct cn_auto_need){(uint64_t)words[NEEDS + 2 * s],
                                                (uint64_t)words[NEEDS + 2 * s + 1]};
    return member;
}

// Collects the facts and the names of the members that may train.
static void collect(const struct cn_session *session, uint32_t train, int64_t (*words)[FACTS],
                    const char **names, struct cn_auto_facts *facts)
{
    const struct cn_session_sets *sets = session->planning.sets;
    const struct cn_member *members = session->config.settings->group.members;

    *facts = (struct cn_auto_facts){.gradients =
                                        cn_trainer_gradient_words(session->trainer) * sizeof(float),
                                    .micro = cn_job_accumulate(session->config.job)};
    for (uint32_t r = 0; r < sets->view.size; r++) {
        uint64_t kbps = sets->facts[r].link_kbps;

        if (!(train >> r & 1))
            continue;
        if (kbps && (!facts->link_kbps || kbps < facts->link_kbps))
            facts->link_kbps = kbps;
        names[facts->count] = members[sets->view.ranks[r]].name;
        facts->members[facts->count++] = get_member(words[r]);
    }
}

cn_err cn_session_choose_layout(struct cn_session *session, struct cn_collective *collective,
                                uint32_t train)
{
    struct cn_session_sets *sets = session->planning.sets;
    int64_t words[CN_GROUP_MAX][FACTS] = {0};
    const struct cn_collective_call call = {.kind = CN_COLLECTIVE_ALL_GATHER,
                                            .type = CN_INT64,
                                            .data = words,
                                            .count = (size_t)sets->view.size * FACTS,
                                            .fingerprint = FINGERPRINT};
    const char *names[CN_GROUP_MAX] = {NULL};
    uint32_t own = sets->view.rank;
    struct cn_auto_facts facts;
    cn_err err;

    if (!cn_session_is_automatic(session))
        return CN_OK;
    err = own_facts(session, train >> own & 1, words[own]);
    if (!err)
        err = collective->ops->run(collective, &call);
    if (err)
        return err;
    collect(session, train, words, names, &facts);
    cn_auto_layout_choose(&facts, &sets->layout);
    cn_auto_layout_text(&sets->layout, names, sets->why, sizeof(sets->why));
    cn_log(CN_LOG_INFO, "sets", "parallel: auto: %s", sets->why);
    return CN_OK;
}
