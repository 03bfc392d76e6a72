// membership_private.h - what the files of membership share: membership.c decides who is in,
// membership_watch.c who still lives, membership_text.c says so.
#pragma once

#include "runtime/group/membership.h"
#include "runtime/group/membership_wire.h"

#define CN_EPOCH_STRIDE CN_GROUP_MAX

enum seen {
    SEEN_NOTHING,
    SEEN_FORMING, // its last message was a JOIN
    SEEN_BUSY,    // a BUSY or a COMMIT
};

// Of a member of the view: does it live?
struct watched {
    uint64_t alive_ms;                        // when it was last heard
    uint64_t beat_ms;                         // when the next heartbeat to it is due
    uint64_t probe_ms;                        // it was asked for a sign; 0: it was not
    bool owes_probe, owes_beat, owes_suspect; // messages to send to it
};

// Why a member takes no part.
enum cn_refusal {
    CN_REFUSAL_NONE,
    CN_REFUSAL_JOB,     // or run
    CN_REFUSAL_RELEASE, // of Cairn
    CN_REFUSAL_TWINS,   // two boards have its name
};

// A process, by its JOINs.
struct boot {
    uint64_t id; // 0: none
    uint64_t first_ms, last_ms;
    uint32_t stay;    // the last one
    uint64_t stay_ms; // when that began
    uint64_t view_ms; // in it: when an older view was first heard of; 0: of none
};

// What is known of one member; for this board itself only the fields of its own JOIN.
struct other {
    enum seen seen;
    uint64_t seen_ms;
    uint64_t present_ms;               // last sign of it, views included
    bool lively;                       // that sign was a message of its own, and it is not lost
    struct cn_membership_message join; // the last one
    enum cn_refusal refused;
    bool refusal_told;
    uint64_t job_ms;      // refused for its job: since when
    bool job_doubted;     // cn_membership_doubts_job said so
    uint16_t release;     // that it runs, if that is why
    struct boot boots[2]; // the last ones of that name
    uint64_t twins_until_ms;
    bool owes_busy, owes_commit; // messages to send to it
    uint64_t next_ms;            // next JOIN or beacon to it
    uint32_t unanswered;         // PREPAREs in a row, in this stay of it
    uint64_t asked_again_ms;     // not asked, nor a knock, before
    uint32_t unopened;           // rings in a row that failed because of it
    uint64_t shunned_until_ms;
    struct watched watched;
    uint64_t key_epoch, key_ms; // that it says it holds, and when it said so; 0: never
    bool left;                  // it said BYE, and is not waited for until it is heard again
};

// A leader's attempt at the next epoch, or a member's answer to one.
struct proposal {
    bool leads, answers;                  // at most one of them
    bool unsaved;                         // leader: the epoch is not on disk yet
    bool owes_ready;                      // member: to the leader
    struct cn_membership_message message; // the PREPARE
    uint32_t ready;                       // leader: members that answered, itself among them
    uint32_t owed;                        // leader: members to send it to
    uint64_t until_ms, next_ms;           // its end, its next repetition
};

struct cn_membership {
    struct cn_membership_config config;
    uint64_t epoch;   // highest accepted; only grows
    uint64_t highest; // heard of
    struct cn_stay stay;
    struct cn_state_tag tag;
    bool member;      // else FORMING
    bool view_is_new; // not taken yet
    bool knocked;
    bool had_view;
    bool hurried;             // nobody is waited for any more
    uint64_t key_epoch;       // the newest that this board holds
    bool few_told;            // that there are fewer than min_members
    bool unopened;            // the ring of the view failed: told by unreachable
    uint32_t expected;        // members that are waited for
    uint64_t unable_until_ms; // to lead
    struct proposal proposal;
    uint64_t wait_until_ms;              // for them
    uint64_t joining_ms;                 // since when this board announces itself
    uint64_t view_ms;                    // when the view began
    struct cn_membership_message commit; // the view
    uint32_t lost;                       // a member that gave no sign; UINT32_MAX: none
    uint32_t blamed;                     // for the end of the last epoch; UINT32_MAX: none
    bool lost_told;                      // by cn_membership_lost
    uint64_t polled_ms;                  // when next was last called
    struct other others[CN_GROUP_MAX];
};

static inline uint32_t cn_membership_bit(uint32_t index)
{
    return 1u << index;
}

// A member of the view other than this board.
static inline bool cn_membership_sees(const struct cn_membership *membership, uint32_t index)
{
    return membership->member && index != membership->config.self &&
           membership->commit.members & cn_membership_bit(index);
}

// As leader: asks the members to be ready for the next epoch, the one after all heard of.
void cn_membership_propose(struct cn_membership *membership, uint32_t members, uint64_t now_ms);

// PREPARE or READY, while there is no view.
void cn_membership_propose_receive(struct cn_membership *membership, uint32_t from,
                                   const struct cn_membership_message *message, uint64_t now_ms);

// The PREPARE or READY that is due to one member.
bool cn_membership_propose_next(struct cn_membership *membership, uint32_t index, uint64_t now_ms,
                                struct cn_membership_message *message);

// True when the leader has asked long enough, or all have answered: ready are the members of the
// view, and the proposal is over. Ends proposals that nothing came of.
// Of the members that were asked, who did not answer although it announces itself is asked again
// after a while, longer each time.
bool cn_membership_propose_done(struct cn_membership *membership, uint64_t now_ms, uint32_t *ready);

// True when the message does not count: it is not understood, its sender has another release or
// shares its name with another board.
bool cn_membership_refuse(struct cn_membership *membership, uint32_t from,
                          const struct cn_membership_message *message, bool understood,
                          uint64_t now_ms);

// A member of another job must not take part. JOIN or BUSY.
bool cn_membership_refuse_job(struct cn_membership *membership, uint32_t from,
                              const struct cn_membership_message *message, uint64_t now_ms);

// A member whose job is another since a moment ago is waited for: of a gateway that was restarted
// with other settings the members hear one after the other.
bool cn_membership_job_changes(const struct other *other, uint64_t now_ms);

bool cn_membership_same_stay(struct cn_stay a, struct cn_stay b);

// The stay of a member in a PREPARE or COMMIT that names it.
struct cn_stay cn_membership_stay_of(const struct cn_membership_message *message, uint32_t index);

// Members that announce themselves now, this board among them.
uint32_t cn_membership_forming(const struct cn_membership *membership, uint64_t now_ms);

// Members that are heard and only have not come yet, while this board announces itself.
uint32_t cn_membership_lively(const struct cn_membership *membership, uint64_t now_ms);

// What a JOIN or HEARTBEAT says of the sender's pair keys.
void cn_membership_note_keys(struct other *other, const struct cn_membership_message *message,
                             uint64_t now_ms);

// A new view: everybody in it counts as heard now.
void cn_membership_watch_begin(struct cn_membership *membership, uint64_t now_ms);

// A sign of life in the epoch of the view.
void cn_membership_watch_hear(struct cn_membership *membership, uint32_t from, uint64_t now_ms);

void cn_membership_watch_receive(struct cn_membership *membership, uint32_t from,
                                 const struct cn_membership_message *message, uint64_t now_ms);

// Finds members that are silent. At each poll.
void cn_membership_watch_poll(struct cn_membership *membership, uint64_t now_ms);

// The heartbeat, probe or suspicion that is due to one member.
bool cn_membership_watch_next(struct cn_membership *membership, uint32_t index, uint64_t now_ms,
                              struct cn_membership_message *message);
