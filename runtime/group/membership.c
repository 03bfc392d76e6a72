#include "runtime/group/membership.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/group/membership_private.h"

#define JOIN_MS 100        // time between announcements
#define FRESH_MS 750       // time for which a member counts as present: three heartbeats
#define SUCCESSOR_MS 100   // added to FRESH_MS for each member before this one
#define BUSY_FRESH_MS 1500 // time for which a BUSY counts
#define BEACON_MS 1000     // time between BUSYs to members outside of the view
#define OPEN_TRIES 3       // failures to open because of a member, until it is ignored
#define SHUN_MIN_MS 10000  // time for which it is ignored first; doubles each time
#define SHUN_MAX_MS 160000 // longest time for which it is ignored
#define HEARD_MS 1000      // a member heard within this time is there
#define UNABLE_MS 5000     // time without leading after the disk took no epoch

static uint32_t all_members(const struct cn_membership *membership)
{
    return (uint32_t)((1ull << membership->config.count) - 1);
}

// Returns the position of a member among those of the set.
static uint32_t rank_of(uint32_t members, uint32_t index)
{
    return (uint32_t)__builtin_popcount(members & (cn_membership_bit(index) - 1));
}

bool cn_membership_same_stay(struct cn_stay a, struct cn_stay b)
{
    return a.boot_id == b.boot_id && a.number == b.number;
}

struct cn_stay cn_membership_stay_of(const struct cn_membership_message *message, uint32_t index)
{
    return message->stays[rank_of(message->members, index)];
}

// Returns when the wait ends at the latest, whatever other members say.
static uint64_t latest_ms(const struct cn_membership *membership)
{
    const struct cn_membership_config *config = &membership->config;

    return membership->joining_ms +
           (config->form_ms > config->rejoin_ms ? config->form_ms : config->rejoin_ms);
}

static uint32_t remaining_ms(uint64_t until_ms, uint64_t now_ms)
{
    uint64_t left = until_ms > now_ms ? until_ms - now_ms : 0;

    return left < UINT32_MAX ? (uint32_t)left : UINT32_MAX;
}

static void fill_join(const struct cn_membership *membership, uint64_t now_ms,
                      struct cn_membership_message *join)
{
    *join = (struct cn_membership_message){
        .type = CN_MEMBERSHIP_JOIN,
        .epoch = membership->epoch,
        .members = membership->had_view ? membership->expected : 0,
        .stay = membership->stay,
        .tag = membership->tag,
        .patience_ms = remaining_ms(membership->wait_until_ms, now_ms),
        .unable = now_ms < membership->unable_until_ms,
        .key_epoch = membership->key_epoch,
    };
    memcpy(join->job, membership->config.job, CN_DIGEST_SIZE);
}

static void begin_forming(struct cn_membership *membership, uint32_t expected, uint64_t wait_ms,
                          uint64_t now_ms)
{
    membership->member = false;
    membership->reform_requested = false;
    membership->hurried = false;
    membership->view_is_new = false;
    membership->proposal = (struct proposal){0};
    membership->stay.number++;
    membership->expected = expected;
    membership->wait_until_ms = now_ms + wait_ms;
    membership->joining_ms = now_ms;
    for (uint32_t i = 0; i < membership->config.count; i++) {
        membership->others[i].owes_busy = false;
        membership->others[i].owes_commit = false;
        membership->others[i].next_ms = now_ms;
    }
}

cn_err cn_membership_open(const struct cn_membership_config *config, uint64_t epoch,
                          const struct cn_state_tag *tag, uint64_t now_ms,
                          struct cn_membership **opened)
{
    struct cn_membership *membership;

    assert(config->count >= 1 && config->count <= CN_GROUP_MAX && config->self < config->count);
    membership = calloc(1, sizeof(*membership));
    if (!membership)
        return CN_ENOMEM;
    membership->config = *config;
    membership->epoch = membership->highest = epoch;
    cn_membership_begin_ceiling(membership);
    membership->tag = *tag;
    membership->stay.boot_id = config->boot_id;
    membership->blamed = membership->stalls.suspect = UINT32_MAX;
    membership->key_epoch = config->key_epoch;
    for (uint32_t i = 0; i < config->count; i++)
        membership->others[i].present_ms = now_ms;
    begin_forming(membership, all_members(membership), config->form_ms, now_ms);
    *opened = membership;
    return CN_OK;
}

void cn_membership_close(struct cn_membership *membership)
{
    free(membership);
}

uint32_t cn_membership_forming(const struct cn_membership *membership, uint64_t now_ms)
{
    uint32_t members = cn_membership_bit(membership->config.self);

    for (uint32_t i = 0; i < membership->config.count; i++) {
        const struct other *other = &membership->others[i];

        if (other->seen == SEEN_FORMING && !other->refused && now_ms - other->seen_ms < FRESH_MS)
            members |= cn_membership_bit(i);
    }
    return members;
}

static bool hears_busy(const struct cn_membership *membership, uint64_t now_ms)
{
    for (uint32_t i = 0; i < membership->config.count; i++) {
        const struct other *other = &membership->others[i];

        if (other->seen == SEEN_BUSY && !other->refused && now_ms - other->seen_ms < BUSY_FRESH_MS)
            return true;
    }
    return false;
}

// Returns a bit for each member that is not waited for: it has another job or no key, or cannot be
// reached.
static uint32_t hopeless_members(const struct cn_membership *membership, uint64_t now_ms)
{
    uint32_t members = membership->config.keyless;

    for (uint32_t i = 0; i < membership->config.count; i++) {
        const struct other *other = &membership->others[i];
        bool away = (other->refused || other->left) && !cn_membership_job_changes(other, now_ms);

        if (away || now_ms < other->shunned_until_ms)
            members |= cn_membership_bit(i);
    }
    return members;
}

// Returns a bit for each member that announces itself but did not answer a PREPARE.
static uint32_t silent_members(const struct cn_membership *membership, uint64_t now_ms)
{
    uint32_t members = 0;

    for (uint32_t i = 0; i < membership->config.count; i++)
        if (now_ms < membership->others[i].asked_again_ms)
            members |= cn_membership_bit(i);
    return members;
}

// Returns true when no member except these is waited for. Of these, the one with the highest epoch
// says which members were in the group: a restarted leader has forgotten it.
static bool waited_enough(const struct cn_membership *membership, uint32_t members, uint64_t now_ms)
{
    uint32_t forming = cn_membership_forming(membership, now_ms);
    uint32_t expected = membership->expected;
    uint64_t until_ms = membership->wait_until_ms;
    uint64_t best = membership->had_view ? membership->epoch : 0;

    if (membership->config.count == 1 || membership->hurried)
        return true;
    for (uint32_t i = 0; i < membership->config.count; i++) {
        const struct other *other = &membership->others[i];

        if (!(members & cn_membership_bit(i)) || i == membership->config.self ||
            other->join.members == 0 || other->join.epoch <= best)
            continue;
        best = other->join.epoch;
        expected = other->join.members;
        until_ms = other->seen_ms + other->join.patience_ms;
    }
    if (until_ms > latest_ms(membership))
        until_ms = latest_ms(membership);
    expected &= ~hopeless_members(membership, now_ms);
    if (expected & cn_membership_lively(membership, now_ms) & ~forming)
        return false;
    return (members & expected) == expected || now_ms >= until_ms;
}

static void enter_view(struct cn_membership *membership, const struct cn_membership_message *commit,
                       uint64_t now_ms)
{
    membership->commit = *commit;
    membership->epoch = commit->epoch;
    if (membership->highest < commit->epoch)
        membership->highest = commit->epoch;
    membership->expected = commit->members;
    membership->member = membership->had_view = membership->view_is_new = true;
    membership->few_told = false;
    membership->proposal = (struct proposal){0};
    membership->reform_requested = false;
    membership->view_ms = now_ms;
    membership->stalls.changed |= commit->members != membership->stalls.members;
    cn_membership_watch_begin(membership, now_ms);
    for (uint32_t i = 0; i < membership->config.count; i++) {
        membership->others[i].owes_busy = false;
        membership->others[i].next_ms = now_ms + BEACON_MS;
        if (i == membership->config.self || !(commit->members & cn_membership_bit(i)))
            continue;
        membership->others[i].seen = SEEN_BUSY; // a JOIN counts for one view only
        membership->others[i].seen_ms = now_ms;
    }
}

// As leader: makes the view from the members that have answered.
static void commit_view(struct cn_membership *membership, uint32_t members, uint64_t now_ms)
{
    const struct cn_membership_message *prepare = &membership->proposal.message;
    struct cn_membership_message commit = {
        .type = CN_MEMBERSHIP_COMMIT, .members = members, .epoch = prepare->epoch};
    uint32_t self = membership->config.self;
    const struct cn_state_tag *tags[CN_GROUP_MAX];
    uint32_t rank = 0;

    for (uint32_t i = 0; i < membership->config.count; i++) {
        if (!(members & cn_membership_bit(i)))
            continue;
        commit.stays[rank] = cn_membership_stay_of(prepare, i);
        tags[rank++] = i == self ? &membership->tag : &membership->others[i].join.tag;
    }
    commit.source = cn_state_tag_choose(tags, rank);
    enter_view(membership, &commit, now_ms);
    for (uint32_t i = 0; i < membership->config.count; i++)
        membership->others[i].owes_commit = i != self && members & cn_membership_bit(i);
}

static bool enough(const struct cn_membership *membership, uint32_t members)
{
    return (uint32_t)__builtin_popcount(members) >= membership->config.min_members;
}

// A lower member that can lead does, until it has been silent for three heartbeats; the next one
// follows it a little sooner than the one after. A board that cannot lead leaves it to any other.
static bool another_leads(const struct cn_membership *membership, uint64_t now_ms)
{
    uint32_t self = membership->config.self;
    bool unable = now_ms < membership->unable_until_ms;

    for (uint32_t i = 0; i < membership->config.count; i++) {
        const struct other *other = &membership->others[i];
        uint64_t silent_ms = now_ms - other->seen_ms;

        if (other->seen != SEEN_FORMING || other->refused || other->join.unable)
            continue;
        if (silent_ms < FRESH_MS + (i < self ? SUCCESSOR_MS * self : 0) && (i < self || unable))
            return true;
    }
    return false;
}

static void decide(struct cn_membership *membership, uint64_t now_ms)
{
    uint32_t forming, ready;

    if (membership->member)
        return;
    if (cn_membership_propose_done(membership, now_ms, &ready) && enough(membership, ready) &&
        waited_enough(membership, ready, now_ms)) {
        commit_view(membership, ready, now_ms);
        return;
    }
    if (membership->proposal.leads || membership->proposal.answers ||
        another_leads(membership, now_ms))
        return;
    forming = cn_membership_forming(membership, now_ms) & ~silent_members(membership, now_ms);
    if (enough(membership, forming) && !hears_busy(membership, now_ms) &&
        waited_enough(membership, forming, now_ms))
        cn_membership_propose(membership, forming, now_ms);
}

static bool is_late(const struct other *other, struct cn_stay stay)
{
    return stay.boot_id == other->join.stay.boot_id && stay.number < other->join.stay.number;
}

static void receive_join(struct cn_membership *membership, uint32_t from,
                         const struct cn_membership_message *join, uint64_t now_ms)
{
    struct other *other = &membership->others[from];

    if (is_late(other, join->stay))
        return;
    if (cn_membership_refuse_job(membership, from, join, now_ms)) {
        other->owes_busy = membership->member; // the BUSY shows the member that the jobs differ
        return;
    }
    if (!cn_membership_same_stay(join->stay, other->join.stay)) {
        other->unanswered = 0;
        other->asked_again_ms = 0;
    }
    other->join = *join;
    other->left = false;
    other->seen = SEEN_FORMING;
    other->seen_ms = other->present_ms = now_ms;
    other->lively = true;
    if (!membership->member)
        return;
    if (membership->commit.members & cn_membership_bit(from) &&
        cn_membership_same_stay(
            join->stay, membership->commit.stays[rank_of(membership->commit.members, from)])) {
        // The member is in the view and does not know it yet. Only the leader repeats the COMMIT:
        // the leader knows that it has persisted the epoch.
        cn_membership_watch_hear(membership, from, now_ms);
        other->owes_commit = membership->commit.epoch % CN_EPOCH_STRIDE == membership->config.self;
        return;
    }
    if (now_ms >= other->asked_again_ms)
        membership->reform_requested = true;
    other->owes_busy = true;
}

static void receive_busy(struct cn_membership *membership, uint32_t from,
                         const struct cn_membership_message *busy, uint64_t now_ms)
{
    struct other *other = &membership->others[from];

    if (cn_membership_refuse_job(membership, from, busy, now_ms))
        return;
    other->seen = SEEN_BUSY;
    other->seen_ms = other->present_ms = now_ms;
    // Two views exist side by side, as after a split of the LAN. Both end, and one view follows.
    if (membership->member && busy->epoch != membership->epoch)
        membership->reform_requested = true;
}

static void receive_bye(struct cn_membership *membership, uint32_t from,
                        const struct cn_membership_message *bye)
{
    struct other *other = &membership->others[from];

    if (is_late(other, bye->stay))
        return;
    other->left = true;
    other->lively = false;
    other->seen = SEEN_NOTHING;
}

// Takes a message of a member with a view. If this board has none, the group is busy. But a
// heartbeat of the epoch that ended here does not show that: its sender may have died since. A
// living sender answers JOINs and joins.
static void receive_sign(struct cn_membership *membership, uint32_t from,
                         const struct cn_membership_message *sign, uint64_t now_ms)
{
    struct other *other = &membership->others[from];

    if (other->refused || (!membership->member && sign->epoch <= membership->epoch))
        return;
    other->present_ms = now_ms;
    other->lively = true;
    if (membership->member) {
        cn_membership_watch_receive(membership, from, sign, now_ms);
        return;
    }
    other->seen = SEEN_BUSY;
    other->seen_ms = now_ms;
}

static void receive_commit(struct cn_membership *membership, uint32_t from,
                           const struct cn_membership_message *commit, uint64_t now_ms)
{
    uint32_t self = membership->config.self;

    if (commit->epoch % CN_EPOCH_STRIDE != from || !(commit->members & cn_membership_bit(from)) ||
        !(commit->members & cn_membership_bit(self)))
        return;
    if (membership->proposal.answers && commit->epoch < membership->proposal.message.epoch)
        return; // this board has answered a later proposal
    if (membership->member || commit->epoch <= membership->epoch ||
        !cn_membership_same_stay(commit->stays[rank_of(commit->members, self)], membership->stay))
        return; // a repetition, or an answer to an earlier stay
    enter_view(membership, commit, now_ms);
}

void cn_membership_receive(struct cn_membership *membership, uint32_t member,
                           const uint8_t *message, size_t size, uint64_t now_ms)
{
    struct cn_membership_message decoded;
    cn_err err;

    if (member >= membership->config.count || member == membership->config.self)
        return;
    err = cn_membership_decode(message, size, membership->config.count, &decoded);
    if (err && err != CN_ENOTSUP)
        return;
    if (cn_membership_refuse(membership, member, &decoded, !err, now_ms) ||
        !cn_membership_believe(membership, member, decoded.epoch, now_ms) ||
        now_ms < membership->others[member].shunned_until_ms)
        return;
    cn_membership_note_keys(&membership->others[member], &decoded, now_ms);
    if (decoded.type == CN_MEMBERSHIP_JOIN)
        receive_join(membership, member, &decoded, now_ms);
    else if (decoded.type == CN_MEMBERSHIP_BUSY)
        receive_busy(membership, member, &decoded, now_ms);
    else if (decoded.type == CN_MEMBERSHIP_COMMIT)
        receive_commit(membership, member, &decoded, now_ms);
    else if (decoded.type == CN_MEMBERSHIP_BYE)
        receive_bye(membership, member, &decoded);
    else if (decoded.type == CN_MEMBERSHIP_PREPARE || decoded.type == CN_MEMBERSHIP_READY)
        cn_membership_propose_receive(membership, member, &decoded, now_ms);
    else
        receive_sign(membership, member, &decoded, now_ms);
    decide(membership, now_ms);
}

static void fill_busy(const struct cn_membership *membership, uint64_t now_ms,
                      struct cn_membership_message *busy)
{
    *busy = (struct cn_membership_message){
        .type = CN_MEMBERSHIP_BUSY,
        .epoch = membership->epoch,
        .members = membership->commit.members,
        .since_ms = remaining_ms(now_ms, membership->view_ms),
    };
    memcpy(busy->job, membership->config.job, CN_DIGEST_SIZE);
}

// Finds the next message that is due to one member.
static bool next_to(struct cn_membership *membership, uint32_t index, uint64_t now_ms,
                    struct cn_membership_message *message)
{
    struct other *other = &membership->others[index];
    bool outside = !(membership->commit.members & cn_membership_bit(index));

    if (!membership->member) {
        if (cn_membership_propose_next(membership, index, now_ms, message))
            return true;
        if (now_ms < other->next_ms)
            return false;
        other->next_ms = now_ms + JOIN_MS;
        fill_join(membership, now_ms, message);
        return true;
    }
    if (membership->view_is_new)
        return false; // an epoch is sent only after it is on disk
    if (other->owes_commit) {
        other->owes_commit = false;
        *message = membership->commit;
        return true;
    }
    if (cn_membership_watch_next(membership, index, now_ms, message))
        return true;
    if (!other->owes_busy && !(outside && now_ms >= other->next_ms))
        return false;
    other->owes_busy = false;
    other->next_ms = now_ms + BEACON_MS;
    fill_busy(membership, now_ms, message);
    return true;
}

bool cn_membership_next(struct cn_membership *membership, uint64_t now_ms, uint32_t *member,
                        uint8_t message[CN_PEER_MESSAGE_MAX], size_t *size)
{
    struct cn_membership_message due;

    decide(membership, now_ms);
    cn_membership_watch_poll(membership, now_ms);
    for (uint32_t i = 0; i < membership->config.count; i++) {
        if (i == membership->config.self || !next_to(membership, i, now_ms, &due))
            continue;
        *size = cn_membership_encode(&due, message);
        *member = i;
        return true;
    }
    return false;
}

bool cn_membership_view(struct cn_membership *membership, struct cn_membership_view *view)
{
    const struct cn_membership_message *commit = &membership->commit;

    if (!membership->view_is_new)
        return false;
    membership->view_is_new = false;
    *view = (struct cn_membership_view){.source = commit->source};
    view->view.epoch = commit->epoch;
    view->view.rank = rank_of(commit->members, membership->config.self);
    for (uint32_t i = 0; i < membership->config.count; i++)
        if (commit->members & cn_membership_bit(i))
            view->view.ranks[view->view.size++] = i;
    return true;
}

void cn_membership_leave(struct cn_membership *membership, uint32_t lost,
                         const struct cn_state_tag *tag, uint64_t now_ms)
{
    membership->tag = *tag;
    for (uint32_t i = 0; i < membership->config.count; i++) {
        if (!membership->member || !(membership->commit.members & cn_membership_bit(i)))
            continue;
        if (membership->others[i].seen == SEEN_BUSY)
            membership->others[i].seen = SEEN_NOTHING; // busy in the epoch that ended
        if (!membership->unopened)
            membership->others[i].unopened = 0;
    }
    membership->unopened = false;
    membership->blamed = lost < membership->config.count ? lost : UINT32_MAX;
    // Only its own next message brings a lost member back, not one from before the loss.
    if (lost < membership->config.count) {
        membership->others[lost].seen = SEEN_NOTHING;
        membership->others[lost].lively = false;
    }
    begin_forming(membership, membership->expected, membership->config.rejoin_ms, now_ms);
}

uint64_t cn_membership_unreachable(struct cn_membership *membership, uint32_t member,
                                   uint64_t now_ms)
{
    struct other *other;
    uint64_t pause_ms = SHUN_MIN_MS;

    if (member >= membership->config.count || member == membership->config.self)
        return 0;
    other = &membership->others[member];
    if (now_ms - other->present_ms >= HEARD_MS)
        return 0; // the member is dead, not unreachable
    membership->unopened = true;
    if (++other->unopened < OPEN_TRIES)
        return 0;
    for (uint32_t i = OPEN_TRIES; i < other->unopened && pause_ms < SHUN_MAX_MS; i++)
        pause_ms *= 2;
    other->shunned_until_ms = now_ms + pause_ms;
    other->seen = SEEN_NOTHING;
    return pause_ms;
}

void cn_membership_hurry(struct cn_membership *membership)
{
    membership->hurried = true;
}

bool cn_membership_has_reform_request(const struct cn_membership *membership)
{
    return membership->reform_requested;
}

bool cn_membership_few(struct cn_membership *membership, uint64_t now_ms, uint32_t *present)
{
    uint32_t forming = cn_membership_forming(membership, now_ms);

    *present = (uint32_t)__builtin_popcount(forming);
    if (membership->member || membership->few_told || enough(membership, forming) ||
        now_ms < membership->wait_until_ms)
        return false;
    membership->few_told = true;
    return true;
}

void cn_membership_unable(struct cn_membership *membership, uint64_t now_ms)
{
    if (membership->proposal.message.members == cn_membership_bit(membership->config.self))
        return; // with one member there is no other to mislead
    membership->proposal = (struct proposal){0};
    membership->unable_until_ms = now_ms + UNABLE_MS;
}

size_t cn_membership_bye(const struct cn_membership *membership,
                         uint8_t message[CN_PEER_MESSAGE_MAX])
{
    const struct cn_membership_message bye = {
        .type = CN_MEMBERSHIP_BYE,
        .epoch = membership->epoch,
        .members = membership->had_view ? membership->commit.members : 0,
        .stay = membership->stay,
    };

    return cn_membership_encode(&bye, message);
}
