// session_auto.c - "parallel: auto" at work: gathers the facts and has the layout chosen.
#include <stdlib.h>

#include "runtime/base/log.h"
#include "runtime/port/platform.h"
#include "runtime/round/session_sets.h"

#define FINGERPRINT 0x73617501
#define TIMED 3 // evaluations, of which the quickest counts

enum fact { LIMIT, NEEDS, STATE, MICRO_US, FACTS };

bool cn_session_is_automatic(const struct cn_session *session)
{
    return session->config.job->parallel.kind == CN_PARALLEL_AUTO;
}

uint32_t cn_session_accumulates(const struct cn_session *session)
{
    const struct cn_session_sets *sets = session->sets;

    return sets && sets->layout.micro ? sets->layout.micro : cn_job_accumulate(session->config.job);
}

// Evaluating changes no weight, gradient or statistic; what it counted is taken away again.
static cn_err time_micro(struct cn_session *session, int64_t *micro_us)
{
    const struct cn_batch *batch =
        cn_reader_take(session->reader, session->held.cursor + session->since.cursor);
    size_t classes = cn_trainer_classes(session->trainer);
    float *counts = calloc(3 * classes + 1, sizeof(*counts));
    double forward, step, least = 0;
    cn_err err = counts ? CN_OK : CN_ENOMEM;

    for (int i = 0; !err && i < TIMED; i++) {
        uint64_t begun_us = cn_platform_now_us();
        struct cn_metrics metrics = {0};
        double took;

        err = cn_trainer_evaluate(session->trainer, batch, &metrics);
        took = (double)(cn_platform_now_us() - begun_us);
        least = i == 0 || took < least ? took : least;
    }
    if (!err)
        cn_trainer_take_counts(session->trainer, counts);
    free(counts);
    cn_trainer_flops(session->trainer, &forward, &step);
    *micro_us = (int64_t)(least * (forward > 0 ? step / forward : 1)) + 1;
    return err;
}

// What a board has without a limit in its profile; of a GPU it is not known here.
static uint64_t limit_of(const struct cn_session *session)
{
    const struct cn_settings *settings = session->config.settings;

    if (settings->memory_limit || cn_trainer_capability(session->trainer))
        return settings->memory_limit;
    return settings->memory_size ? settings->memory_size : cn_platform_memory_size();
}

static cn_err own_facts(struct cn_session *session, bool trains, int64_t words[FACTS])
{
    uint64_t state;

    words[LIMIT] = (int64_t)limit_of(session);
    words[NEEDS] = (int64_t)cn_trainer_needs(session->trainer, &state);
    words[STATE] = (int64_t)state;
    return trains ? time_micro(session, &words[MICRO_US]) : CN_OK;
}

// The facts of those that may train; seats are their ranks.
static void collect(const struct cn_session *session, uint32_t train, int64_t (*words)[FACTS],
                    uint32_t *ranks, struct cn_auto_facts *facts)
{
    const struct cn_session_sets *sets = session->sets;

    *facts = (struct cn_auto_facts){.gradients =
                                        cn_trainer_gradient_words(session->trainer) * sizeof(float),
                                    .micro = cn_job_accumulate(session->config.job)};
    for (uint32_t r = 0; r < sets->view.size; r++) {
        uint64_t kbps = sets->facts[r].link_kbps;

        if (!(train >> r & 1))
            continue;
        if (kbps && (!facts->link_kbps || kbps < facts->link_kbps))
            facts->link_kbps = kbps;
        ranks[facts->count] = r;
        facts->members[facts->count++] = (struct cn_auto_member){
            .limit = (uint64_t)words[r][LIMIT],
            .needs = (uint64_t)words[r][NEEDS],
            .state = (uint64_t)words[r][STATE],
            .micro_us = (uint64_t)words[r][MICRO_US],
        };
    }
}

cn_err cn_session_choose_layout(struct cn_session *session, struct cn_collective *collective,
                                uint32_t train)
{
    struct cn_session_sets *sets = session->sets;
    int64_t words[CN_GROUP_MAX][FACTS] = {0};
    const struct cn_collective_call call = {.kind = CN_COLLECTIVE_ALL_GATHER,
                                            .type = CN_INT64,
                                            .data = words,
                                            .count = (size_t)sets->view.size * FACTS,
                                            .fingerprint = FINGERPRINT};
    uint32_t own = sets->view.rank, ranks[CN_GROUP_MAX] = {0};
    struct cn_auto_facts facts;
    cn_err err;

    if (!cn_session_is_automatic(session))
        return CN_OK;
    err = own_facts(session, train >> own & 1, words[own]);
    if (!err)
        err = collective->ops->run(collective, &call);
    if (err)
        return err;
    collect(session, train, words, ranks, &facts);
    cn_auto_layout_choose(&facts, &sets->layout);
    cn_auto_layout_text(
        &sets->layout,
        session->config.settings->group.members[sets->view.ranks[ranks[sets->layout.tightest]]]
            .name,
        sets->why, sizeof(sets->why));
    cn_log(CN_LOG_INFO, "sets", "parallel: auto: %s", sets->why);
    return CN_OK;
}
