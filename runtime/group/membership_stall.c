// Members that answer but hold up every call of the group.
//
// Nobody can tell from one wait in vain which member caused it, and none is believed about another.
// So the leader leaves one member out and looks whether the waits end: the one that it waited for
// itself, if any, else the one that was left out most often, else the last. If they do not end,
// that member is innocent and the next one is left out. If the leader leaves out nobody, or the
// waits do not end for longer than it needs to try all, it is the leader that the others leave out.
#include "runtime/group/membership_private.h"

#define STALLS 3           // waits in vain until a member is left out
#define CALM_MS 3600000    // without one for this time, they count from the start
#define OUT_MIN_MS 60000   // time for which a member is left out first; doubles each time
#define OUT_MAX_MS 3600000 // longest such time

static uint32_t choose(const struct cn_membership *membership, uint32_t candidates, uint32_t hint)
{
    uint32_t chosen = UINT32_MAX;

    if (hint < membership->config.count && candidates & cn_membership_bit(hint))
        return hint;
    for (uint32_t i = 0; i < membership->config.count; i++)
        if (candidates & cn_membership_bit(i) &&
            (chosen == UINT32_MAX ||
             membership->others[i].left_out >= membership->others[chosen].left_out))
            chosen = i;
    return chosen;
}

// Takes back the suspicion of a member without which the group had to wait, too.
static void clear_suspect(struct cn_membership *membership)
{
    struct stalls *stalls = &membership->stalls;

    membership->others[stalls->suspect].shunned_until_ms = 0;
    membership->others[stalls->suspect].left_out = 0;
    stalls->tried |= cn_membership_bit(stalls->suspect);
    stalls->suspect = UINT32_MAX;
}

static uint64_t leave_out(struct other *other, uint32_t waited_ms, uint64_t now_ms)
{
    uint64_t pause_ms = 2 * (uint64_t)waited_ms; // longer than it takes to see whether it helps

    if (pause_ms < OUT_MIN_MS)
        pause_ms = OUT_MIN_MS;
    for (uint32_t i = 0; i < other->left_out && pause_ms < OUT_MAX_MS; i++)
        pause_ms *= 2;
    other->left_out++;
    other->shunned_until_ms = now_ms + pause_ms;
    other->seen = SEEN_NOTHING;
    return pause_ms;
}

// Returns the number of waits in vain after which this board leaves a member out.
static uint32_t patience(bool leads, uint32_t others, bool same_members)
{
    if (leads)
        return STALLS;
    return STALLS + (same_members ? 1 : (uint32_t)__builtin_popcount(others));
}

uint64_t cn_membership_stalled(struct cn_membership *membership, uint32_t waited_ms, uint32_t hint,
                               uint64_t now_ms, uint32_t *member)
{
    uint32_t self = membership->config.self, present = membership->commit.members;
    uint32_t leader = (uint32_t)(membership->commit.epoch % CN_EPOCH_STRIDE);
    uint32_t others = present & ~cn_membership_bit(self);
    struct stalls *stalls = &membership->stalls;
    bool same_members;

    *member = UINT32_MAX;
    if (!membership->member || !others)
        return 0;
    if (stalls->count && now_ms - stalls->last_ms > CALM_MS + (uint64_t)waited_ms)
        stalls->count = stalls->tried = 0;
    stalls->last_ms = now_ms;
    stalls->count++;
    if (stalls->suspect != UINT32_MAX && !(present & cn_membership_bit(stalls->suspect)))
        clear_suspect(membership);
    else if (stalls->suspect != UINT32_MAX)
        hint = stalls->suspect; // it is back, and so are the waits
    same_members = !stalls->changed;
    stalls->members = present;
    stalls->changed = false;
    if (stalls->count < patience(leader == self, others, same_members))
        return 0;
    stalls->count = STALLS - 1;
    *member = leader == self ? choose(membership, others & ~stalls->tried, hint) : leader;
    stalls->suspect = *member;
    if (*member != UINT32_MAX)
        return leave_out(&membership->others[*member], waited_ms, now_ms);
    stalls->tried = 0; // all were tried: none of them alone is the reason
    stalls->count = 0;
    return 0;
}
