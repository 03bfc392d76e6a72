// session_waits.c - notices that the members of a chain wait for messages: a link is slower than
// the cut allows, or than it was when the chain formed.
//
// The parts of a chain compute while messages travel. What a step takes beyond the time of its
// passes and its bubble is the time that the members wait for messages and sums.
#include <math.h>
#include <stdio.h>

#include "runtime/base/log.h"
#include "runtime/round/session/session_chain.h"

#define LEAST_MS 50.0 // shorter waits in a step are of no importance
#define MOST 0.5      // largest share of a step that members may wait without a word
#define GROWN 0.5     // the same for the growth of the wait, as a share of the step before
#define SETTLED 16    // steps of an epoch after which the wait is kept for comparison
#define LASTS 8       // steps in a row that must have waited longer

double cn_session_pipeline_ms(const double *part_ms, uint32_t parts, uint32_t micro)
{
    double sum = 0, slowest = 0;

    for (uint32_t p = 0; p < parts; p++) {
        sum += part_ms[p];
        slowest = fmax(slowest, part_ms[p]);
    }
    return micro ? (sum + (micro - 1) * slowest) / micro : 0;
}

// Returns the time of a step that its passes and their bubble do not explain.
static double waited_ms(const struct cn_session *session)
{
    const struct cn_chain_place *place = &session->plan.chain;
    const struct cn_step_split *split = &session->measured.split;
    double part_ms[CN_CUT_PARTS_MAX] = {0};

    // The slowest of the members with one part: its chain is the last to vote.
    for (uint32_t i = 0; i < place->all.size; i++)
        part_ms[i / place->chains] =
            fmax(part_ms[i / place->chains], split->member_ms[place->ranks[i]]);
    return fmax(
        split->voted_ms - cn_session_pipeline_ms(part_ms, place->parts, session->plan.micro), 0);
}

// Returns the bits that this board sends and receives in a step: messages, and the sums of its part
// over the chains. Where gradients or weights are held in shares, these travel in each pass.
static double own_bits(const struct cn_session *session)
{
    const struct cn_session_cut *cut = &session->cut;
    const struct cn_chain_place *place = &session->plan.chain;
    double gradients = (double)cn_trainer_gradient_words(session->trainer);
    double passes = place->shards < 2 || session->sharing.stage < CN_STAGE_GRADIENTS ? 2
                    : session->sharing.stage < CN_STAGE_WEIGHTS ? session->plan.micro + 1.0
                                                                : 3.0 * session->plan.micro;
    double words = 0;

    if (place->part)
        words += (double)cut->words[place->part - 1];
    if (place->part + 1 < place->parts)
        words += (double)cut->words[place->part];
    words *= session->plan.micro * (double)session->config.job->batch;
    return 32 * (words + passes * (place->chains - 1) / place->chains * gradients);
}

// Returns the slowest of the links that were measured when the chain formed; 0: none was.
static uint32_t slowest_kbps(const struct cn_session_sets *sets, const struct cn_chain_place *place)
{
    uint32_t least = 0;

    for (uint32_t i = 0; i < place->all.size; i++) {
        uint32_t kbps = sets->facts[place->ranks[i]].link_kbps;

        if (kbps && (!least || kbps < least))
            least = kbps;
    }
    return least;
}

// Tells people of a wait: what is measured, and what was assumed. The log has it once in an epoch.
static void say(struct cn_session *session, double waited, const char *since)
{
    struct cn_session_sets *sets = session->planning.sets;
    uint32_t kbps = slowest_kbps(sets, &session->plan.chain);
    char assumed[80] = "the cut assumes that messages travel while parts compute";

    if (kbps)
        snprintf(assumed, sizeof(assumed), "the slowest link had %.3g Mbit/s when the chain formed",
                 kbps / 1e3);
    snprintf(sets->slow_link, sizeof(sets->slow_link),
             "members wait %.3g ms of a step of %.3g ms for messages and sums%s, as this board's "
             "would take at %.2g Mbit/s, both ways together; %s",
             waited, session->measured.split.voted_ms, since, own_bits(session) / waited / 1e3,
             assumed);
    if (!sets->slow_told)
        cn_log(CN_LOG_WARN, "chain", "%s", sets->slow_link);
    sets->slow_told = true;
}

void cn_session_note_waits(struct cn_session *session)
{
    struct cn_session_sets *sets = session->planning.sets;
    double step = session->measured.split.voted_ms, waited, grown;
    char since[64];

    if (!sets || session->plan.chain.parts <= 1 || session->plan.chain.idle)
        return;
    if (session->chain.most) // parts wait for each other longer than the bubble says
        return;
    waited = waited_ms(session);
    if (++sets->waits == SETTLED) {
        sets->settled_wait_ms = waited;
        sets->settled_step_ms = step;
        if (waited > MOST * step && waited > LEAST_MS)
            say(session, waited, "");
    }
    if (sets->waits <= SETTLED)
        return;
    grown = waited - sets->settled_wait_ms;
    if (grown < GROWN * sets->settled_step_ms || grown < LEAST_MS) {
        if (sets->slow_steps >= LASTS || waited <= MOST * step) // it is over
            sets->slow_link[0] = '\0';
        sets->slow_steps = 0;
        return;
    }
    if (++sets->slow_steps != LASTS)
        return;
    snprintf(since, sizeof(since), ", %.3g ms when the chain formed", sets->settled_wait_ms);
    say(session, waited, since);
}

bool cn_session_has_slow_link(const struct cn_session *session)
{
    const struct cn_session_sets *sets = session->planning.sets;

    return sets && sets->slow_steps >= LASTS;
}
