// membership.h - who is in the group: agreement on epochs, without a master.
//
// A state machine over small messages (peer_link.h); it performs no I/O and reads no clock, so it
// is tested with a fake link and a fake time. Until it has a view a member announces itself to all
// others (JOIN, with its epoch and the state it holds) every 100 ms. The lowest member that is
// heard leads: when all members are there, or its waiting time is over, it counts the epoch up and
// sends COMMIT with the view. Members that are training answer JOIN with BUSY and end their epoch
// at the next step, so that the returning member is taken in. A loss ends the epoch on all
// survivors.
//
//   FORMING --commit received or sent--> MEMBER --lost or knocked--> FORMING
//
// The leader is part of the epoch: leader = epoch % CN_GROUP_MAX. So two leaders cannot issue the
// same epoch, and no two views of one epoch exist. DESIGN.md has the messages and the reasons.
//
// The state tag says what training state a member has; the view names the source to heal from.
// Threading: none.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "runtime/group/state_tag.h"
#include "runtime/port/collective.h"
#include "runtime/port/peer_link.h"

struct cn_membership_config {
    uint32_t self, count;        // index in the member list, members
    uint64_t form_ms;            // waits for all members at the first start
    uint64_t rejoin_ms;          // waits for a lost one
    uint32_t min_members;        // fewer do not work: 0 or 1 for any
    uint32_t keyless;            // members without a pair key, a bit each: they are not waited for
    uint64_t key_epoch;          // of the pair keys in use
    uint64_t boot_id;            // random for each start of the process
    uint8_t job[CN_DIGEST_SIZE]; // of run, job and member list: who has another one is refused
};

struct cn_membership_view {
    struct cn_view view;
    uint32_t source; // rank whose state the group goes on with; all others take it
    // By index: where a member answers, if not at its address in the list, else "". Filled in by
    // the node (peer_link.h).
    char moved[CN_GROUP_MAX][CN_ADDRESS_SIZE];
};

struct cn_membership;

cn_err cn_membership_open(const struct cn_membership_config *config, uint64_t epoch,
                          const struct cn_state_tag *tag, uint64_t now_ms,
                          struct cn_membership **membership);
void cn_membership_close(struct cn_membership *membership);

// A message from members[member]. Malformed ones are dropped.
void cn_membership_receive(struct cn_membership *membership, uint32_t member,
                           const uint8_t *message, size_t size, uint64_t now_ms);

// What is due: fills message for member and returns true as long as there is one to send.
bool cn_membership_next(struct cn_membership *membership, uint64_t now_ms, uint32_t *member,
                        uint8_t message[CN_PEER_MESSAGE_MAX], size_t *size);

// True once for each epoch that this board is about to propose: put it on disk before the next call
// of cn_membership_next, so that a number that another member has seen is never issued again after
// a restart. When that fails call unable: another member leads.
bool cn_membership_persist(struct cn_membership *membership, uint64_t *epoch);
void cn_membership_unable(struct cn_membership *membership, uint64_t now_ms);

// True once for each new view. Persist view.epoch before acting on it.
bool cn_membership_view(struct cn_membership *membership, struct cn_membership_view *view);

// True once in an epoch, when a member of the view gave no sign of life for a second and none
// within 150 ms of being asked: end the work in the epoch, then leave. A member that works slowly
// but answers is not lost, nor one that only others miss.
bool cn_membership_lost(struct cn_membership *membership, uint32_t *member);

// The epoch ended here (a member was lost, a knock was honoured, the ring did not open): back to
// FORMING. lost is the member index that failed, or UINT32_MAX. The tag is this member's state now.
void cn_membership_leave(struct cn_membership *membership, uint32_t lost,
                         const struct cn_state_tag *tag, uint64_t now_ms);

// Before leave: the ring did not open because of this member, although it is heard. After the third
// time in a row it is not heard for a while, longer each time, and the others go on without it:
// returns for how long, in ms, else 0.
uint64_t cn_membership_unreachable(struct cn_membership *membership, uint32_t member,
                                   uint64_t now_ms);

// The message to all others with which this board leaves for a while in good order: they do not
// wait for it. Returns its size.
size_t cn_membership_bye(const struct cn_membership *membership,
                         uint8_t message[CN_PEER_MESSAGE_MAX]);

// There is nothing left to train: whoever is there forms the group, nobody else is waited for.
void cn_membership_hurry(struct cn_membership *membership);

// A member outside of the view knocks: the leader ends the epoch at the next step boundary. What
// others hear does not matter: the leader hears it too, or cannot take it in.
bool cn_membership_knocked(const struct cn_membership *membership);

// True once for each member that begins to have another job: it may be this board's that is old.
bool cn_membership_doubts_job(struct cn_membership *membership);

// True once for each member that is refused for a reason: it has another job and is not waited for
// any more, or another release, or two boards have its name. Say so and go on without it.
bool cn_membership_refused(struct cn_membership *membership, uint64_t now_ms, uint32_t *member);

// Why a member is refused, in words that name it.
#define CN_REFUSAL_SIZE 160
void cn_membership_explain(const struct cn_membership *membership, const struct cn_member *members,
                           uint32_t member, char *text, size_t size);

// True once when fewer members than min_members are there and nobody else is waited for: present is
// how many. Again after a view.
bool cn_membership_few(struct cn_membership *membership, uint64_t now_ms, uint32_t *present);

// The newest key epoch of which this board holds the pair keys; the others hear of it.
void cn_membership_hold_keys(struct cn_membership *membership, uint64_t key_epoch);

// Members, a bit each, that were heard in the last 2 s and hold only keys older than this epoch.
uint32_t cn_membership_keys_behind(const struct cn_membership *membership, uint64_t key_epoch,
                                   uint64_t now_ms);

// The newest key epoch that any member heard in the last 2 s says it holds, this board included: a
// reason to ask the aggregator, never to believe.
uint64_t cn_membership_newest_keys(const struct cn_membership *membership, uint64_t now_ms);

// The member that leads the epoch, or UINT32_MAX while the group forms.
uint32_t cn_membership_leader(const struct cn_membership *membership);

// One line for status: "epoch 7: board-1 (leads), board-2; board-3 is missing since 12 s".
void cn_membership_describe(const struct cn_membership *membership, const struct cn_member *members,
                            uint64_t now_ms, char *text, size_t size);
