// recovery.h - decides what a member does at the start of an epoch with its state and with the step
// at which the last epoch was interrupted.
//
// A member that was cut off between the reduction of a step and its end holds the sums of the
// gradients apart from the state. It cannot know whether another member has applied them. In the
// next epoch all members tell each other (held, applied). A member that holds the sums of step k of
// epoch e acts by the state that counts:
//
// - The state is after step k, applied in epoch e: the member applies its sums (ROLL_FORWARD).
// - The state is after step k - 1: no member has applied the sums, so it drops them (DROP).
// - Any other state: it drops the sums (DROP).
//
// A member that has applied step k saw the votes of all members, so all members of that epoch hold
// the sums of step k. If none has applied it, all train it again. Remaining differences are taken
// from one member piece by piece (epoch_heal.h). These functions use no clock, network or memory of
// their own. Threading: none; pure.
#pragma once

#include "runtime/group/state_tag.h"

struct cn_recovery_row {
    struct cn_state_tag tag;
    uint64_t holds;   // epoch whose sums of the step after the state are held; 0: none
    uint64_t applied; // epoch whose sums made the last step of the state; 0: not known
    uint64_t busy_us; // computing time of a step: the member with least to do gives its state
    bool unable;      // the member lacks the memory to give its state
};

enum cn_recovery_action {
    CN_RECOVERY_NOTHING, // the member holds no sums
    CN_RECOVERY_ROLL_FORWARD,
    CN_RECOVERY_DROP,
};

// Decides what this member does. newest is the row of the state that counts.
enum cn_recovery_action cn_recovery_decide(const struct cn_recovery_row *own,
                                           const struct cn_recovery_row *newest);

// Returns the member that gives its state: the least busy one among those that have the same state
// as newest and can give it. Of equal ones it returns the last, because the first leads. Returns
// count if there is none.
uint32_t cn_recovery_source(const struct cn_recovery_row *rows, uint32_t count, uint32_t newest);
