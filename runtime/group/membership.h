// membership.h - who is in the group: agreement on epochs, without a master.
//
// A state machine over small messages (peer_link.h). It performs no I/O and reads no clock, so that
// it can be tested with a fake link and a fake time. Without a view a member announces itself to
// all others every 100 ms (JOIN, with its epoch and the state it holds). The lowest member that is
// heard leads. Once all members are there, or the waiting time is over, it asks them to be ready
// (PREPARE), and sends COMMIT with the view of those that answered. Members that are training
// answer JOIN with BUSY and end their epoch at the next step, to take the new member in. A loss
// ends the epoch on all survivors.
//
//   FORMING --commit received or sent--> MEMBER --a loss or a request to re-form--> FORMING
//
// The leader is part of the epoch: leader = epoch % CN_GROUP_MAX. So two leaders cannot issue the
// same epoch, and no epoch has two views. DESIGN.md has the messages and the reasons.
//
// The state tag describes the training state that a member has. The view names the source, the
// member whose state all others take. Times are milliseconds of any clock that never goes back.
// Threading: none.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "runtime/group/state_tag.h"
#include "runtime/port/collective.h"
#include "runtime/port/peer_link.h"

struct cn_membership_config {
    uint32_t self, count;        // this board's index in the member list; length of the list
    uint64_t form_ms;            // longest wait for all members at the first start
    uint64_t rejoin_ms;          // longest wait for the members of the last epoch
    uint32_t min_members;        // smallest group that trains; 0 and 1: any
    uint32_t keyless;            // bit per member without a pair key; these are not waited for
    uint64_t key_epoch;          // epoch of the pair keys in use
    uint64_t boot_id;            // random for each start of the process
    uint8_t job[CN_DIGEST_SIZE]; // digest of run, job and member list; members must agree on it
};

struct cn_membership_view {
    struct cn_view view;
    uint32_t source; // rank whose state all others take
    // By member index: the address where a member answers, if it differs from that in the list;
    // else "". Filled in by the node (peer_link.h).
    char moved[CN_GROUP_MAX][CN_ADDRESS_SIZE];
};

struct cn_membership;

// Begins in FORMING. config is copied. epoch is the highest epoch of config.key_epoch on this
// board's disk, tag its present state. Returns CN_ENOMEM.
cn_err cn_membership_open(const struct cn_membership_config *config, uint64_t epoch,
                          const struct cn_state_tag *tag, uint64_t now_ms,
                          struct cn_membership **membership);
void cn_membership_close(struct cn_membership *membership);

// Takes a message from members[member]. Malformed messages are dropped.
void cn_membership_receive(struct cn_membership *membership, uint32_t member,
                           const uint8_t *message, size_t size, uint64_t now_ms);

// Fills message, to be sent to member, and returns true as long as a message is due.
bool cn_membership_next(struct cn_membership *membership, uint64_t now_ms, uint32_t *member,
                        uint8_t message[CN_PEER_MESSAGE_MAX], size_t *size);

// Returns true once for each epoch that this board is about to propose. Write the epoch to disk
// before the next call of cn_membership_next: a number that another member has seen must never be
// issued again after a restart. If writing fails, call unable: another member leads then.
bool cn_membership_persist(struct cn_membership *membership, uint64_t *epoch);
void cn_membership_unable(struct cn_membership *membership, uint64_t now_ms);

// Returns true once for each new view. Persist view.epoch before acting on it.
bool cn_membership_view(struct cn_membership *membership, struct cn_membership_view *view);

// Returns true once in an epoch when a member of the view is lost: it gave no sign of life for a
// second and none within 150 ms of being asked. End the work in the epoch, then call leave. A
// member that works slowly but answers is not lost, nor is one that only other members miss.
bool cn_membership_lost(struct cn_membership *membership, uint32_t *member);

// Ends the epoch on this board and goes back to FORMING: a member was lost, another one wants to
// join, or the collective did not open. lost is the index of the member that failed, or UINT32_MAX.
// tag is this member's present state.
void cn_membership_leave(struct cn_membership *membership, uint32_t lost,
                         const struct cn_state_tag *tag, uint64_t now_ms);

// Call before leave when the collective did not open because of this member, although it is heard.
// After the third time in a row its messages are ignored for a while, longer each time, so that the
// others continue without it. Returns that time in ms; 0 before.
uint64_t cn_membership_unreachable(struct cn_membership *membership, uint32_t member,
                                   uint64_t now_ms);

// Call before leave when a call waited in vain for waited_ms although all members answer. hint is
// the member that was waited for, if this board knows it, else UINT32_MAX. After the third time in
// a row one member's messages are ignored for a while, longer each time, so that the others
// continue without it. Sets *member to it and returns that time in ms; 0: nobody is left out.
uint64_t cn_membership_stalled(struct cn_membership *membership, uint32_t waited_ms, uint32_t hint,
                               uint64_t now_ms, uint32_t *member);

// Makes the message that tells all others that this board leaves in good order, so that they do not
// wait for it. Returns its size.
size_t cn_membership_bye(const struct cn_membership *membership,
                         uint8_t message[CN_PEER_MESSAGE_MAX]);

// Ends all waiting for other members: those that are there form the group. Call it when nothing is
// left to train.
void cn_membership_hurry(struct cn_membership *membership);

// Returns true when a member outside of the view wants to join. The leader then ends the epoch at
// the next step. Only the leader's result matters: a member that it does not hear cannot join.
bool cn_membership_has_reform_request(const struct cn_membership *membership);

// Returns true once for each member that begins to name another job. This board's own job may be
// the outdated one.
bool cn_membership_doubts_job(struct cn_membership *membership);

// Returns true once for each member that is refused: it has another job and is not waited for any
// more, it has another release, or two boards have its name. Tell the operator.
bool cn_membership_refused(struct cn_membership *membership, uint64_t now_ms, uint32_t *member);

// Writes why a member is refused, as a sentence with its name.
#define CN_REFUSAL_SIZE 160
void cn_membership_explain(const struct cn_membership *membership, const struct cn_member *members,
                           uint32_t member, char *text, size_t size);

// Returns true once for each member that names an epoch which no honest group can have reached, or
// passes on such a number. Tell the operator.
bool cn_membership_leaps(struct cn_membership *membership, uint32_t *member);

// Returns true once when fewer members than min_members are there and no other is waited for;
// *present is their number. After a view it can do so again.
bool cn_membership_few(struct cn_membership *membership, uint64_t now_ms, uint32_t *present);

// Sets the newest key epoch whose pair keys this board holds. Later messages tell the others.
void cn_membership_hold_keys(struct cn_membership *membership, uint64_t key_epoch);

// Returns a bit for each member that was heard in the last 2 s and holds only keys older than this
// epoch.
uint32_t cn_membership_keys_behind(const struct cn_membership *membership, uint64_t key_epoch,
                                   uint64_t now_ms);

// Returns the newest key epoch that this board, or any member heard in the last 2 s, claims to
// hold. The claim is only a reason to ask the aggregator.
uint64_t cn_membership_newest_keys(const struct cn_membership *membership, uint64_t now_ms);

// Returns the member that leads the epoch, or UINT32_MAX while the group forms.
uint32_t cn_membership_leader(const struct cn_membership *membership);

// Writes for each member the seconds since its last sign of life, at least 1; 0 where it is in the
// view.
void cn_membership_silence(const struct cn_membership *membership, uint64_t now_ms,
                           uint32_t silent_s[CN_GROUP_MAX]);

// Writes one line for status: "epoch 7: board-1 (leads), board-2; board-3 is missing since 12 s".
void cn_membership_describe(const struct cn_membership *membership, const struct cn_member *members,
                            uint64_t now_ms, char *text, size_t size);
