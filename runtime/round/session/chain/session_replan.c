// session_replan.c - "parallel: auto": notices that the boards of a chain no longer compute as they
// did when the model was cut, or that a link has become slow.
#include <math.h>
#include <string.h>

#include "runtime/base/log.h"
#include "runtime/port/platform.h"
#include "runtime/round/session/session_chain.h"

#define SETTLED 8         // steps of an epoch after which the speeds are kept for comparison
#define CHANGED 1.3       // least change of one board's speed beside another's that counts
#define SMALL 0.05        // share of the largest part's time below which a part does not count
#define SHORTEST_MS 20000 // least time between two cuts

void cn_session_note_speeds(struct cn_session *session)
{
    struct cn_session_sets *sets = session->planning.sets;

    if (!sets || sets->layout.parts <= 1)
        return;
    if (++sets->steps == SETTLED)
        memcpy(sets->settled_ms, session->measured.split.member_ms, sizeof(sets->settled_ms));
    if (!sets->formed_ms)
        sets->formed_ms = cn_platform_now_ms();
}

// Returns how many times as long a rank takes now as after the first steps; 0 for a part with too
// little work to tell.
static double change_of(const struct cn_session *session, uint32_t rank)
{
    const struct cn_session_sets *sets = session->planning.sets;
    double settled = sets->settled_ms[rank], largest = 0;

    for (uint32_t p = 0; p < sets->layout.count; p++)
        largest = fmax(largest, sets->settled_ms[sets->layout.ranks[p]]);
    return settled > SMALL * largest ? session->measured.split.member_ms[rank] / settled : 0;
}

bool cn_session_wants_layout(const struct cn_session *session)
{
    const struct cn_session_sets *sets = session->planning.sets;
    uint32_t slowed = 0, quickest = 0;
    double most = 0, least = HUGE_VAL;

    if (!sets || sets->layout.parts <= 1 || sets->steps < 2 * SETTLED ||
        cn_platform_now_ms() - sets->formed_ms < SHORTEST_MS)
        return false;
    if (cn_session_has_slow_link(session)) {
        cn_log(CN_LOG_INFO, "sets", "parallel: auto: a link has become slow: choosing again");
        return true;
    }
    for (uint32_t p = 0; p < sets->layout.count; p++) {
        uint32_t rank = sets->layout.ranks[p];
        double change = change_of(session, rank);

        if (change > most) {
            most = change;
            slowed = rank;
        }
        if (change > 0 && change < least) {
            least = change;
            quickest = rank;
        }
    }
    if (most < CHANGED * least)
        return false;
    cn_log(CN_LOG_INFO, "sets",
           "parallel: auto: %s takes %.2f times as long for its part as when the model was cut, %s "
           "%.2f times: choosing again",
           cn_session_member(session, slowed)->name, most,
           cn_session_member(session, quickest)->name, least);
    return true;
}
