// epoch.h - runs a group with one set of members until the set changes.
//
// First all members take the newest state among them. Then rank 0 leads: it decides with round.h
// and broadcasts one command after the other, which all members carry out. While there is nothing
// to do it broadcasts IDLE, so that silence means a lost member. A group of one runs the same code.
// Threading: the worker thread of a node.
#pragma once

#include "runtime/port/collective.h"
#include "runtime/round/epoch/mailbox.h"
#include "runtime/round/session/session.h"

struct cn_epoch {
    struct cn_session *session;
    struct cn_collective *collective;
    const char *secure; // name of the backend that encrypts, for people; NULL: none
    struct cn_membership_view view;
    struct cn_mailbox *box;
    struct cn_log_quotas *lines; // of lines that members cause; borrowed; NULL: no limits
    uint64_t moved_ms;           // clock; when a step or command was done last
    bool ended;                  // the last command was END
    bool over;                   // a member knows that the run has ended; the caller keeps it
    uint64_t end_at_ms;          // leader: earliest time to end the run without news
    bool fresh;                  // the outbox was filled in this epoch and has not been sent
    bool avoid_delta;            // the last delta did not fit: fetch the full version
    bool base_failed;            // the profile's base gave no version 0: it is not read again
    struct cn_round_fetch asked; // leader: the fetch in progress
    size_t piece;                // bytes of a piece of a transferred state; 0: CN_HEAL_PIECE
    // Leader: version for which the members got the server's control variate in this epoch, and the
    // epoch of that variate; 0: none.
    uint32_t control_version, control_epoch;
    // Leader: earliest time of the next fetch, after one that could not be used.
    uint64_t fetch_at_ms;
    // Leader: reason of the newest receipt, if not ACCEPTED; "": none.
    char refusal[CN_VERDICT_REASON];
};

// Runs the epoch. Returns why it ended: CN_OK when a member asked to re-form, CN_EPEER or
// CN_ETIMEOUT when one was lost, CN_ECANCELED on stop, CN_ESTALE when the aggregator runs something
// else. Other errors are this board's own.
cn_err cn_epoch_run(struct cn_epoch *epoch);

// Tells the owner of the mailbox how far the session is.
void cn_epoch_tell_progress(struct cn_epoch *epoch);

// Fills in how new the state of a session is.
void cn_epoch_tag(const struct cn_session *session, struct cn_state_tag *tag);
