#include "runtime/group/membership_private.h"

#define ANSWER_MS 500      // longest wait for the answers to a PREPARE
#define REPEAT_MS 100      // time between repetitions of a PREPARE
#define COMMIT_MS 750      // longest wait for the COMMIT after an answer
#define PAUSE_MIN_MS 1000  // first pause for a member that did not answer twice; doubles each time
#define PAUSE_MAX_MS 16000 // longest pause

void cn_membership_propose(struct cn_membership *membership, uint32_t members, uint64_t now_ms)
{
    uint32_t self = membership->config.self;
    struct cn_membership_message *message = &membership->proposal.message;

    membership->proposal = (struct proposal){
        .leads = true,
        .unsaved = true,
        .ready = cn_membership_bit(self),
        .until_ms = now_ms + ANSWER_MS,
        .next_ms = now_ms,
    };
    message->type = CN_MEMBERSHIP_PREPARE;
    message->members = members;
    message->epoch = (membership->highest / CN_EPOCH_STRIDE + 1) * CN_EPOCH_STRIDE + self;
    membership->highest = message->epoch; // the next attempt has another number
    for (uint32_t i = 0, rank = 0; i < membership->config.count; i++)
        if (members & cn_membership_bit(i))
            message->stays[rank++] = i == self ? membership->stay : membership->others[i].join.stay;
}

static void receive_prepare(struct cn_membership *membership, uint32_t from,
                            const struct cn_membership_message *prepare, uint64_t now_ms)
{
    struct proposal *proposal = &membership->proposal;
    uint32_t self = membership->config.self;

    if (prepare->epoch % CN_EPOCH_STRIDE != from || prepare->epoch <= membership->epoch ||
        !(prepare->members & cn_membership_bit(from)) ||
        !(prepare->members & cn_membership_bit(self)) ||
        !cn_membership_same_stay(cn_membership_stay_of(prepare, self), membership->stay))
        return;
    // If two members lead at a time, every member answers the one with the higher epoch.
    if ((proposal->leads || proposal->answers) && prepare->epoch < proposal->message.epoch)
        return;
    *proposal = (struct proposal){
        .answers = true,
        .owes_ready = true,
        .message = *prepare,
        .until_ms = now_ms + COMMIT_MS,
    };
}

static void receive_ready(struct cn_membership *membership, uint32_t from,
                          const struct cn_membership_message *ready)
{
    struct proposal *proposal = &membership->proposal;

    if (proposal->leads && ready->epoch == proposal->message.epoch &&
        proposal->message.members & cn_membership_bit(from) &&
        cn_membership_same_stay(ready->stay, cn_membership_stay_of(&proposal->message, from)))
        proposal->ready |= cn_membership_bit(from);
}

void cn_membership_propose_receive(struct cn_membership *membership, uint32_t from,
                                   const struct cn_membership_message *message, uint64_t now_ms)
{
    if (membership->member || membership->others[from].refused)
        return;
    if (message->type == CN_MEMBERSHIP_PREPARE)
        receive_prepare(membership, from, message, now_ms);
    else
        receive_ready(membership, from, message);
}

bool cn_membership_propose_next(struct cn_membership *membership, uint32_t index, uint64_t now_ms,
                                struct cn_membership_message *message)
{
    struct proposal *proposal = &membership->proposal;

    if (proposal->answers && proposal->owes_ready &&
        index == proposal->message.epoch % CN_EPOCH_STRIDE) {
        proposal->owes_ready = false;
        *message = (struct cn_membership_message){
            .type = CN_MEMBERSHIP_READY,
            .epoch = proposal->message.epoch,
            .members = proposal->message.members,
            .stay = membership->stay,
        };
        return true;
    }
    if (!proposal->leads || proposal->unsaved)
        return false;
    if (now_ms >= proposal->next_ms) {
        proposal->owed = proposal->message.members & ~proposal->ready;
        proposal->next_ms = now_ms + REPEAT_MS;
    }
    if (!(proposal->owed & cn_membership_bit(index)))
        return false;
    proposal->owed &= ~cn_membership_bit(index);
    *message = proposal->message;
    return true;
}

// Each PREPARE has a number that goes to disk, and each request to re-form ends an epoch.
static void note_answers(struct cn_membership *membership, uint64_t now_ms)
{
    const struct proposal *proposal = &membership->proposal;

    for (uint32_t i = 0; i < membership->config.count; i++) {
        struct other *other = &membership->others[i];
        uint64_t pause_ms = PAUSE_MIN_MS;

        if (!(proposal->message.members & cn_membership_bit(i)))
            continue;
        if (proposal->ready & cn_membership_bit(i)) {
            other->unanswered = 0;
            continue;
        }
        if (++other->unanswered < 2)
            continue;
        for (uint32_t n = 2; n < other->unanswered && pause_ms < PAUSE_MAX_MS; n++)
            pause_ms *= 2;
        other->asked_again_ms = now_ms + pause_ms;
    }
}

bool cn_membership_propose_done(struct cn_membership *membership, uint64_t now_ms, uint32_t *ready)
{
    struct proposal *proposal = &membership->proposal;
    bool over = now_ms >= proposal->until_ms;

    if (proposal->answers && over)
        proposal->answers = false; // no COMMIT came: the leader is gone
    if (!proposal->leads || proposal->unsaved)
        return false;
    *ready = proposal->ready;
    if (proposal->ready != proposal->message.members && !over)
        return false;
    proposal->leads = false;
    note_answers(membership, now_ms);
    return true;
}

bool cn_membership_persist(struct cn_membership *membership, uint64_t *epoch)
{
    if (!membership->proposal.leads || !membership->proposal.unsaved)
        return false;
    membership->proposal.unsaved = false;
    *epoch = membership->proposal.message.epoch;
    return true;
}
