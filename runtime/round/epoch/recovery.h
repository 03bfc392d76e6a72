// recovery.h - what a member does at the beginning of an epoch about the state that it holds and
// the step at which the last epoch broke off, as a pure decision.
//
// A member that was cut off between the reduction of a step and its end holds the sums of the
// gradients, apart from the state: it cannot know whether another one has applied them. In the next
// epoch all tell each other (held, applied). Of a member that holds the sums of step k of epoch e:
//
// - The state that counts is after step k, applied in epoch e: it applies them (ROLL_FORWARD).
// - The state that counts is after step k - 1: nobody has applied them, it drops them (DROP).
// - The state that counts is any other: it drops them (DROP).
//
// Any member that has applied step k saw the votes of all, so all of that epoch hold its sums.
// Where nobody has applied it, all train it again. Whatever differs after that is taken from one
// member piece by piece (epoch_heal.h). No clock, no network and no memory in here. Threading:
// none.
#pragma once

#include "runtime/group/state_tag.h"

struct cn_recovery_row {
    struct cn_state_tag tag;
    uint64_t holds;   // epoch whose sums of the step after the state are held; 0: none
    uint64_t applied; // epoch whose sums made the last step of the state; 0: not known
    uint64_t busy_us; // that a step takes to compute: who has less to do gives its state
    bool unable;      // has no memory to give its state
};

enum cn_recovery_action {
    CN_RECOVERY_NOTHING, // no sums are held
    CN_RECOVERY_ROLL_FORWARD,
    CN_RECOVERY_DROP,
};

// newest is the row of the state that counts.
enum cn_recovery_action cn_recovery_decide(const struct cn_recovery_row *own,
                                           const struct cn_recovery_row *newest);

// Of the members that say the same of their state as the newest and can give it, the one that is
// least busy; of equal ones the last, as the first one leads. count: none can.
uint32_t cn_recovery_source(const struct cn_recovery_row *rows, uint32_t count, uint32_t newest);
