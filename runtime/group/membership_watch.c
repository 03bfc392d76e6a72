#include "runtime/group/membership_private.h"

#define HEARTBEAT_MS 250
#define SILENT_MS (4 * HEARTBEAT_MS)  // a member silent for this time is asked for a sign
#define DOUBTED_MS (2 * HEARTBEAT_MS) // as SILENT_MS, for one that another member suspects
#define PROBE_MS 150                  // longest wait for the sign
#define LIVELY_MS 400                 // a member heard within this time is alive
#define STOOD_STILL_MS 400            // time between two polls in which this board was not run

void cn_membership_watch_begin(struct cn_membership *membership, uint64_t now_ms)
{
    membership->lost = UINT32_MAX;
    membership->lost_told = false;
    membership->polled_ms = now_ms;
    for (uint32_t i = 0; i < membership->config.count; i++)
        membership->others[i].watched =
            (struct watched){.alive_ms = now_ms, .beat_ms = now_ms + HEARTBEAT_MS};
}

void cn_membership_watch_hear(struct cn_membership *membership, uint32_t from, uint64_t now_ms)
{
    struct other *other = &membership->others[from];

    other->watched.alive_ms = other->present_ms = now_ms;
    other->watched.probe_ms = 0;
}

static void probe(struct watched *watched, uint64_t now_ms)
{
    watched->probe_ms = now_ms;
    watched->owes_probe = true;
}

static void lose(struct cn_membership *membership, uint32_t member)
{
    membership->lost = member;
    for (uint32_t i = 0; i < membership->config.count; i++)
        membership->others[i].watched.owes_suspect =
            i != member && cn_membership_sees(membership, i);
}

// A board that was not run for a while may have missed signs of the others: it gives them that
// time.
static uint64_t time_lost(struct cn_membership *membership, uint64_t now_ms)
{
    uint64_t gap_ms = now_ms - membership->polled_ms;

    membership->polled_ms = now_ms;
    return gap_ms > STOOD_STILL_MS ? gap_ms : 0;
}

void cn_membership_watch_poll(struct cn_membership *membership, uint64_t now_ms)
{
    uint64_t lost_ms = time_lost(membership, now_ms);

    for (uint32_t i = 0; i < membership->config.count; i++) {
        struct watched *watched = &membership->others[i].watched;

        if (!cn_membership_sees(membership, i))
            continue;
        watched->alive_ms += lost_ms;
        if (watched->probe_ms)
            watched->probe_ms += lost_ms;
        if (watched->alive_ms > now_ms)
            watched->alive_ms = now_ms;
        if (membership->lost != UINT32_MAX)
            continue;
        if (watched->probe_ms && now_ms - watched->probe_ms >= PROBE_MS)
            lose(membership, i);
        else if (!watched->probe_ms && now_ms - watched->alive_ms >= SILENT_MS)
            probe(watched, now_ms);
    }
}

// A suspicion of another member is only a reason to ask the suspect.
static void doubt(struct cn_membership *membership, uint32_t accused, uint64_t now_ms)
{
    struct watched *watched;

    if (!cn_membership_sees(membership, accused))
        return;
    watched = &membership->others[accused].watched;
    if (!watched->probe_ms && now_ms >= watched->alive_ms + DOUBTED_MS)
        probe(watched, now_ms);
}

void cn_membership_watch_receive(struct cn_membership *membership, uint32_t from,
                                 const struct cn_membership_message *message, uint64_t now_ms)
{
    if (!cn_membership_sees(membership, from) || message->epoch != membership->epoch)
        return;
    cn_membership_watch_hear(membership, from, now_ms);
    if (message->type == CN_MEMBERSHIP_SUSPECT)
        doubt(membership, message->accused, now_ms);
    else if (message->wants_sign)
        membership->others[from].watched.owes_beat = true;
}

bool cn_membership_watch_next(struct cn_membership *membership, uint32_t index, uint64_t now_ms,
                              struct cn_membership_message *message)
{
    struct watched *watched = &membership->others[index].watched;

    if (!cn_membership_sees(membership, index))
        return false;
    *message = (struct cn_membership_message){
        .type = CN_MEMBERSHIP_HEARTBEAT,
        .epoch = membership->epoch,
        .members = membership->commit.members,
        .key_epoch = membership->key_epoch,
    };
    if (watched->owes_suspect) {
        watched->owes_suspect = false;
        message->type = CN_MEMBERSHIP_SUSPECT;
        message->accused = membership->lost;
        return true;
    }
    if (!watched->owes_probe && !watched->owes_beat && now_ms < watched->beat_ms)
        return false;
    message->wants_sign = watched->owes_probe;
    watched->owes_probe = watched->owes_beat = false;
    watched->beat_ms = now_ms + HEARTBEAT_MS;
    return true;
}

bool cn_membership_lost(struct cn_membership *membership, uint32_t *member)
{
    if (!membership->member || membership->lost == UINT32_MAX || membership->lost_told)
        return false;
    membership->lost_told = true;
    *member = membership->lost;
    return true;
}

// Returns whether the member that was blamed for the end of the epoch is indeed silent. Then the
// end is explained, and another member that is silent for a moment is only late.
static bool is_explained(const struct cn_membership *membership)
{
    return membership->blamed != UINT32_MAX && !membership->others[membership->blamed].lively;
}

// Returns true for a member that is not lost but still in a step, which is longer than this
// board's. A living member answers a JOIN at once. So one that has been silent since this board
// began to announce itself has died, even if it was heard shortly before, unless another member
// explains the end of the epoch.
static bool is_lively(const struct cn_membership *membership, const struct other *other,
                      uint64_t now_ms)
{
    if (other->present_ms > membership->joining_ms)
        return other->lively && now_ms - other->present_ms < LIVELY_MS;
    return other->lively &&
           now_ms - membership->joining_ms < (is_explained(membership) ? SILENT_MS : PROBE_MS);
}

uint32_t cn_membership_lively(const struct cn_membership *membership, uint64_t now_ms)
{
    uint32_t members = 0;

    for (uint32_t i = 0; i < membership->config.count; i++)
        if (is_lively(membership, &membership->others[i], now_ms))
            members |= cn_membership_bit(i);
    return members;
}
