// trial_faults.h - the boards of a trial that cannot train, as the gateway knows them.
//
// The gateway writes what boards report to its file of events (docs/events.md). A trial reads that
// file while it grows, so a person sees at once what otherwise stands only in a board's log.
// Threading: one thread.
#pragma once

#include <limits.h>

#include "aggregator/serve/event_file.h"
#include "aggregator/trial/trial_split.h"

struct cn_trial_faults {
    char path[PATH_MAX + sizeof(CN_EVENT_FILE)]; // the gateway's file of events
    long offset;                                 // bytes of the file that were read
    struct {
        bool failed;  // the board reports that it cannot train
        bool gave_up; // the board gave a round up: its numbers are not finite
        bool gone;    // the board's process failed
    } boards[CN_TRIAL_BOARDS_MAX];
};

// Begins behind the events that the gateway of this state directory has already written.
void cn_trial_faults_init(struct cn_trial_faults *faults, const char *state);

// Takes the next event of a board that failed or is back. Returns false when there is none yet.
bool cn_trial_faults_next(struct cn_trial_faults *faults, struct cn_event *event);

// Returns the number of groups that can still train. A group needs at least members boards, and
// none that gave its round up.
uint32_t cn_trial_faults_able(const struct cn_trial_faults *faults,
                              const struct cn_trial_split *split, uint32_t members);

// Returns whether a board gave its round up because a number is not finite.
bool cn_trial_faults_diverged(const struct cn_trial_faults *faults);
