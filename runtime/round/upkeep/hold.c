#include "runtime/round/upkeep/hold.h"

#include <stdio.h>
#include <unistd.h>

static bool is_between_rounds(const struct cn_hold *hold, const struct cn_progress *progress)
{
    // A group may begin the next round before anybody looks. Its first steps are saved, too.
    return progress->phase == CN_PHASE_EMPTY || progress->phase == CN_PHASE_BASE ||
           progress->round != hold->round;
}

bool cn_hold_decide(struct cn_hold *hold, bool wanted, const struct cn_progress *progress,
                    uint64_t now_ms)
{
    if (!wanted) {
        *hold = (struct cn_hold){0};
        return false;
    }
    if (!hold->wanted) {
        hold->wanted = true;
        hold->wanted_ms = now_ms;
        hold->round = progress->round;
    }
    hold->tired = now_ms - hold->wanted_ms > CN_HOLD_LONGEST_MS;
    hold->held = !hold->tired && (hold->held || is_between_rounds(hold, progress));
    return hold->held;
}

bool cn_hold_is_wanted(const char *sysroot)
{
    char path[1024];

    snprintf(path, sizeof(path), "%s" CN_HOLD_FILE, sysroot);
    return access(path, F_OK) == 0;
}
