#include "transport/board/round_watch.h"

#include <string.h>

#include "transport/message/message.h"

#define PAUSE_MIN_MS 1000
#define PAUSE_MAX_MS 8000
#define MOVED_MS 1000 // a deadline that moved less is not told: the link's delay moves it, too

void cn_round_watch_init(struct cn_round_watch *watch, struct cn_exchange *exchange,
                         struct cn_rtt *rtt, uint8_t kind, uint64_t seed)
{
    *watch = (struct cn_round_watch){0};
    watch->pause =
        (struct cn_backoff){.min_ms = PAUSE_MIN_MS, .max_ms = PAUSE_MAX_MS, .seed = ~seed};
    cn_request_init(&watch->asking, exchange, rtt, kind, seed);
    watch->asking.observe = true;
}

void cn_round_watch_set(struct cn_round_watch *watch, bool on)
{
    if (on == watch->on)
        return;
    watch->on = on;
    watch->forced = true;
    watch->due_us = 0;
    watch->pause.tries = 0;
    if (!on)
        cn_request_stop(
            &watch->asking); // the next notification is refused, which ends the observation
}

void cn_round_watch_renew(struct cn_round_watch *watch, uint64_t now_us)
{
    watch->forced = true;
    watch->due_us = now_us;
}

void cn_round_watch_reconnected(struct cn_round_watch *watch, uint64_t now_us)
{
    watch->has_sequence = false;
    watch->due_us = now_us;
    cn_request_hurry(&watch->asking);
}

static void pause_asking(struct cn_round_watch *watch, uint64_t now_us)
{
    watch->due_us = now_us + 1000 * cn_backoff_next_ms(&watch->pause);
}

static bool same_round(const struct cn_round_info *a, const struct cn_round_info *b)
{
    return a->run == b->run && a->lineage == b->lineage && a->state == b->state &&
           a->round == b->round && a->invited == b->invited && a->version == b->version &&
           memcmp(a->version_digest, b->version_digest, CN_DIGEST_SIZE) == 0 &&
           a->delta_size == b->delta_size && memcmp(&a->chain, &b->chain, sizeof(a->chain)) == 0 &&
           memcmp(a->delta_digest, b->delta_digest, CN_DIGEST_SIZE) == 0 &&
           a->key_epoch == b->key_epoch && a->forget == b->forget && a->oldest == b->oldest &&
           a->control.epoch == b->control.epoch && a->control.size == b->control.size &&
           memcmp(a->control.digest, b->control.digest, CN_DIGEST_SIZE) == 0 &&
           a->order.seq == b->order.seq && a->group_boards == b->group_boards &&
           a->decided_round == b->decided_round && a->decided_accepted == b->decided_accepted &&
           memcmp(a->decided_digest, b->decided_digest, CN_DIGEST_SIZE) == 0;
}

// Stores the deadline of a round. Returns whether it differs from the one before.
static bool move_deadline(struct cn_round_watch *watch, const struct cn_round_info *round,
                          uint64_t now_ms)
{
    uint64_t expected_ms = watch->deadline_ms > now_ms ? watch->deadline_ms - now_ms : 0;
    uint64_t told_ms = round->remaining_ms;

    if ((told_ms > expected_ms ? told_ms - expected_ms : expected_ms - told_ms) <= MOVED_MS)
        return false;
    watch->deadline_ms = told_ms < UINT64_MAX - now_ms ? now_ms + told_ms : UINT64_MAX;
    return true;
}

// Stores the round of a reply.
static enum cn_round_change use_round(struct cn_round_watch *watch,
                                      const struct cn_exchange_reply *reply, uint64_t now_us)
{
    struct cn_round_info round;
    bool same, moved;

    if (reply->observed) {
        // RFC 7641, 3.4: an older notification that arrives late has no news.
        if (watch->has_sequence && ((watch->sequence - reply->sequence - 1) & 0xffffff) < 0x7fffff)
            return CN_ROUND_SAME;
        watch->sequence = reply->sequence;
        watch->has_sequence = true;
    }
    if (reply->code != CN_COAP_CONTENT || cn_message_get_round(reply->body, reply->size, &round))
        return CN_ROUND_SAME;
    same = watch->has_round && !watch->forced && same_round(&round, &watch->round);
    moved = move_deadline(watch, &round, now_us / 1000);
    watch->round = round;
    if (same)
        return moved ? CN_ROUND_MOVED : CN_ROUND_SAME;
    watch->pause.tries = 0;
    pause_asking(watch, now_us);
    watch->has_round = true;
    watch->forced = false;
    return CN_ROUND_CHANGED;
}

bool cn_round_watch_reply(struct cn_round_watch *watch, const struct cn_exchange_reply *reply,
                          uint64_t now_us, enum cn_round_change *change)
{
    bool mine;

    *change = CN_ROUND_SAME;
    if (cn_request_answered(&watch->asking, reply, now_us, &mine))
        pause_asking(watch, now_us);
    // Notifications come after the answer, under the same tag.
    if (watch->on && reply->code != CN_COAP_UNAUTHORIZED)
        *change = use_round(watch, reply, now_us);
    return watch->on;
}

void cn_round_watch_step(struct cn_round_watch *watch, uint64_t now_us, uint64_t *wake_us)
{
    if (watch->on && !watch->asking.active) {
        if (now_us >= watch->due_us)
            cn_request_start(&watch->asking, CN_COAP_GET, "r", NULL, 0);
        else if (watch->due_us < *wake_us)
            *wake_us = watch->due_us;
    }
    cn_request_step(&watch->asking, now_us, wake_us);
}
