// Epochs of members that lie about how often their group has formed.
//
// Each epoch's number is above those before it, so a member that names a high one makes the others
// take it. If they took any, or refused what is far ahead, a liar could give one of them a number
// that the rest never believes. So there is a ceiling. While the group forms a number above it
// raises it, but slowly, so that the numbers last.
#include "runtime/group/membership_private.h"

#define EPOCH_LEAP (1ull << 32) // no honest group uses up as many numbers
#define EPOCH_MAX (1ull << 63)  // no number is believed beyond this one
#define RAISE_MS 1000           // least time between two rises of the ceiling

void cn_membership_begin_ceiling(struct cn_membership *membership)
{
    uint64_t epoch = membership->highest;

    membership->ceiling = epoch < EPOCH_MAX - EPOCH_LEAP ? epoch + EPOCH_LEAP : EPOCH_MAX;
}

bool cn_membership_believe(struct cn_membership *membership, uint32_t from, uint64_t epoch,
                           uint64_t now_ms)
{
    if (epoch > membership->ceiling) {
        membership->others[from].leaps = true;
        if (membership->member)
            return true;
        if (now_ms - membership->raised_ms >= RAISE_MS &&
            membership->ceiling <= EPOCH_MAX - EPOCH_LEAP) {
            membership->ceiling += EPOCH_LEAP;
            membership->raised_ms = now_ms;
        }
    }
    if (epoch > membership->ceiling)
        return false;
    if (epoch > membership->highest)
        membership->highest = epoch;
    return true;
}

bool cn_membership_leaps(struct cn_membership *membership, uint32_t *member)
{
    for (uint32_t i = 0; i < membership->config.count; i++) {
        struct other *other = &membership->others[i];

        if (!other->leaps || other->leap_told)
            continue;
        other->leap_told = true;
        *member = i;
        return true;
    }
    return false;
}
