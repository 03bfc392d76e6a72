// membership_private.h - declarations that the files of membership share. membership.c decides
// which members are in the view, membership_watch.c which of them live; membership_text.c describes
// both.
#pragma once

#include "runtime/group/membership.h"
#include "runtime/group/membership_wire.h"

#define CN_EPOCH_STRIDE CN_GROUP_MAX

enum seen {
    SEEN_NOTHING,
    SEEN_FORMING, // its last message was a JOIN
    SEEN_BUSY,    // its last message was a BUSY or a COMMIT
};

// The signs of life of a member of the view.
struct watched {
    uint64_t alive_ms;                        // when it was last heard
    uint64_t beat_ms;                         // when the next heartbeat to it is due
    uint64_t probe_ms;                        // when it was asked for a sign; 0: it was not
    bool owes_probe, owes_beat, owes_suspect; // messages that this board has to send to it
};

// The reason why a member takes no part.
enum cn_refusal {
    CN_REFUSAL_NONE,
    CN_REFUSAL_JOB,     // it has another job or run
    CN_REFUSAL_RELEASE, // it has another release of Cairn
    CN_REFUSAL_TWINS,   // two boards have its name
};

// A process of a member, as its JOINs show it.
struct boot {
    uint64_t id;                // boot id; 0: none
    uint64_t first_ms, last_ms; // when its first and last JOIN arrived
    uint32_t stay;              // number of its last stay
    uint64_t stay_ms;           // when that stay began
    uint64_t view_ms;           // when an older view was first heard of in that stay; 0: never
};

// The knowledge about one member. For this board itself only the fields of its own JOIN are set.
struct other {
    enum seen seen;
    uint64_t seen_ms;                  // when seen was set
    uint64_t present_ms;               // its last sign, views that name it included
    bool lively;                       // its last sign was its own message, and it is not lost
    struct cn_membership_message join; // its last JOIN
    enum cn_refusal refused;
    bool refusal_told;           // cn_membership_refused has returned it
    uint64_t job_ms;             // time since which it is refused for its job
    bool job_doubted;            // cn_membership_doubts_job has returned true for it
    uint16_t release;            // its release of Cairn, if it is refused for that
    struct boot boots[2];        // the last processes with its name
    uint64_t twins_until_ms;     // end of its refusal as two boards of one name
    bool owes_busy, owes_commit; // messages that this board has to send to it
    uint64_t next_ms;            // when the next JOIN or BUSY to it is due
    uint32_t unanswered;         // PREPAREs in a row that it did not answer in its stay
    uint64_t asked_again_ms;     // before this time it is neither asked nor lets an epoch end
    uint32_t unopened;           // collectives in a row that failed because of it
    uint64_t shunned_until_ms;   // end of the time in which its messages are ignored
    uint32_t left_out;           // times in a row that it was left out because calls waited
    struct watched watched;
    uint64_t key_epoch, key_ms; // newest key epoch it claims to hold, and when; 0: never
    bool left;                  // it sent BYE; nobody waits for it until it is heard again
    bool leaps;                 // it named an epoch above the ceiling
    bool leap_told;             // cn_membership_leaps has returned it
};

// A leader's attempt at the next epoch, or a member's answer to one.
struct proposal {
    bool leads, answers;                  // at most one of them
    bool unsaved;                         // leader: the epoch is not on disk yet
    bool owes_ready;                      // member: a READY is due to the leader
    struct cn_membership_message message; // the PREPARE
    uint32_t ready;                       // leader: bit per member that answered, its own included
    uint32_t owed;                        // leader: bit per member to send the PREPARE to
    uint64_t until_ms, next_ms;           // when the proposal ends; when it is repeated next
};

// Epochs in which calls waited in vain although all members answered (membership_stall.c).
struct stalls {
    uint32_t count;   // of them in a row
    uint32_t members; // bit per member of the last one
    bool changed;     // a view since the last one had other members
    uint32_t tried;   // bit per member that was left out in vain
    uint32_t suspect; // member that was left out last; UINT32_MAX: none
    uint64_t last_ms; // when the last one ended
};

struct cn_membership {
    struct cn_membership_config config;
    uint64_t epoch;     // highest epoch accepted; only grows
    uint64_t highest;   // highest epoch heard of and believed
    uint64_t ceiling;   // highest epoch that is believed now
    uint64_t raised_ms; // when the ceiling was raised last; 0: never
    struct cn_stay stay;
    struct cn_state_tag tag;
    bool member;           // has a view; false: FORMING
    bool view_is_new;      // cn_membership_view has not returned it yet
    bool reform_requested; // a member outside of the view wants to join
    bool had_view;
    bool hurried;             // no member is waited for any more
    uint64_t key_epoch;       // newest key epoch that this board holds
    bool few_told;            // cn_membership_few has returned true
    bool unopened;            // the collective of the view failed: unreachable was called
    uint32_t expected;        // bit per member that is waited for
    uint64_t unable_until_ms; // end of the time in which this board cannot lead
    struct proposal proposal;
    uint64_t wait_until_ms;              // end of the wait for the expected members
    uint64_t joining_ms;                 // time since which this board announces itself
    uint64_t view_ms;                    // when the view began
    struct cn_membership_message commit; // the COMMIT that made the view
    uint32_t lost;                       // a member that gave no sign; UINT32_MAX: none
    uint32_t blamed; // member blamed for the end of the last epoch; UINT32_MAX: none
    bool lost_told;  // cn_membership_lost has returned it
    struct stalls stalls;
    uint64_t polled_ms; // when cn_membership_next was last called
    struct other others[CN_GROUP_MAX];
};

static inline uint32_t cn_membership_bit(uint32_t index)
{
    return 1u << index;
}

// Returns true for a member of the view other than this board.
static inline bool cn_membership_sees(const struct cn_membership *membership, uint32_t index)
{
    return membership->member && index != membership->config.self &&
           membership->commit.members & cn_membership_bit(index);
}

// As leader: begins to ask the members (a bit each) to be ready for the next epoch, whose number is
// above all that were heard of.
void cn_membership_propose(struct cn_membership *membership, uint32_t members, uint64_t now_ms);

// Takes a PREPARE or READY, while there is no view.
void cn_membership_propose_receive(struct cn_membership *membership, uint32_t from,
                                   const struct cn_membership_message *message, uint64_t now_ms);

// Fills message and returns true when a PREPARE or READY is due to the member index.
bool cn_membership_propose_next(struct cn_membership *membership, uint32_t index, uint64_t now_ms,
                                struct cn_membership_message *message);

// Returns true when the leader has asked long enough, or all have answered. The proposal is over
// then, and *ready has a bit for each member of the view. A member that announces itself but did
// not answer is asked again after a while, longer each time. Also ends this board's answer to a
// proposal that brought no COMMIT.
bool cn_membership_propose_done(struct cn_membership *membership, uint64_t now_ms, uint32_t *ready);

// Returns true when the message must be ignored: it is not understood, or its sender has another
// release or shares its name with another board.
bool cn_membership_refuse(struct cn_membership *membership, uint32_t from,
                          const struct cn_membership_message *message, bool understood,
                          uint64_t now_ms);

// Takes a JOIN or BUSY. Returns true when its sender has another job and must not take part.
bool cn_membership_refuse_job(struct cn_membership *membership, uint32_t from,
                              const struct cn_membership_message *message, uint64_t now_ms);

// Returns true for a member whose job has differed only for a moment. It is waited for: when a
// gateway restarts with other settings, the members hear of them one after the other.
bool cn_membership_job_changes(const struct other *other, uint64_t now_ms);

bool cn_membership_same_stay(struct cn_stay a, struct cn_stay b);

// Returns the stay of a member that a PREPARE or COMMIT names.
struct cn_stay cn_membership_stay_of(const struct cn_membership_message *message, uint32_t index);

// Returns a bit for each member that announces itself now, this board included.
uint32_t cn_membership_forming(const struct cn_membership *membership, uint64_t now_ms);

// Returns a bit for each member that is alive but still at the end of a step, while this board
// announces itself.
uint32_t cn_membership_lively(const struct cn_membership *membership, uint64_t now_ms);

// Stores what a JOIN or HEARTBEAT says about the sender's pair keys.
void cn_membership_note_keys(struct other *other, const struct cn_membership_message *message,
                             uint64_t now_ms);

// Begins to watch a new view. All its members count as heard now.
void cn_membership_watch_begin(struct cn_membership *membership, uint64_t now_ms);

// Notes a sign of life in the epoch of the view.
void cn_membership_watch_hear(struct cn_membership *membership, uint32_t from, uint64_t now_ms);

// Takes a HEARTBEAT or SUSPECT.
void cn_membership_watch_receive(struct cn_membership *membership, uint32_t from,
                                 const struct cn_membership_message *message, uint64_t now_ms);

// Finds members that are silent. Call it at each poll.
void cn_membership_watch_poll(struct cn_membership *membership, uint64_t now_ms);

// Fills message and returns true when a heartbeat, probe or suspicion is due to the member index.
bool cn_membership_watch_next(struct cn_membership *membership, uint32_t index, uint64_t now_ms,
                              struct cn_membership_message *message);

// Sets the ceiling of the epochs that are believed, from the highest that is known.
void cn_membership_begin_ceiling(struct cn_membership *membership);

// Returns whether a message with this epoch counts, and takes note of the epoch. In a view nothing
// is proposed, and a message with too high an epoch counts without it.
bool cn_membership_believe(struct cn_membership *membership, uint32_t from, uint64_t epoch,
                           uint64_t now_ms);
