// epoch.h - a group at work with one set of members, until the set changes.
//
// All members first take the newest state among them. Then rank 0 leads: it decides with round.h
// and broadcasts one command after the other; all members carry it out. While there is nothing to
// do it broadcasts IDLE, so that silence means loss. A group of one runs the same code. Threading:
// the worker thread of a node.
#pragma once

#include "runtime/port/collective.h"
#include "runtime/round/epoch/mailbox.h"
#include "runtime/round/session/session.h"

struct cn_epoch {
    struct cn_session *session;
    struct cn_collective *collective;
    const char *secure; // name of the backend that encrypts, for people; NULL: none does
    struct cn_membership_view view;
    struct cn_mailbox *box;
    bool ended;                      // the last command was END
    bool fresh;                      // the outbox was filled in this epoch and not sent yet
    bool avoid_delta;                // the last delta did not fit: fetch the full version
    struct cn_round_fetch asked;     // leader: what the fetch under way is for
    size_t piece;                    // bytes of one of a state; 0: CN_HEAL_PIECE
    uint64_t fetch_at_ms;            // leader: not before, after one that was of no use
    char refusal[CN_VERDICT_REASON]; // leader: why the newest receipt was not ACCEPTED; "": none
};

// Returns why the epoch ended: CN_OK when a member knocked, CN_EPEER and CN_ETIMEOUT when one was
// lost, CN_ECANCELED on stop, CN_ESTALE when the aggregator runs something else; other errors are
// this board's own.
cn_err cn_epoch_run(struct cn_epoch *epoch);

// How new the state of a session is.
void cn_epoch_tag(const struct cn_session *session, struct cn_state_tag *tag);
