// alone.h - training on one board without network or keys.
//
// It uses the same session as a run: rounds of local_steps steps, a checkpoint after each round,
// the held-out measurement and model.current.onnx. The weights of a round become the next base
// unchanged. Pauses, hooks and status work between steps as they do in a run. Threading: one
// thread.
#pragma once

#include <stdatomic.h>
#include <stdbool.h>

#include "runtime/engine/onnx/onnx_file.h"
#include "runtime/port/store.h"
#include "runtime/profile/profile.h"
#include "runtime/round/node/alone_best.h"
#include "runtime/round/session/session.h"

// The results of one round.
struct cn_alone_report {
    uint32_t round;
    double train_loss;       // mean over the round's samples
    struct cn_scores scores; // of the held-out samples
    double step_ms;          // mean time of a step, without pauses
    double energy_j;         // energy of the round; 0: no sensor
};

struct cn_alone_step {
    uint64_t step; // number of the step in the run, from 1
    double loss;   // mean over the step's samples
    double rate;   // learning rate
    double ms;     // time of the step
};

struct cn_alone_config {
    const struct cn_settings *settings; // with a job; borrowed, as are all pointers here
    const struct cn_compute_ops *compute;
    struct cn_store *store;
    const char *sysroot; // directory with the board's sys/ and proc/; "" on the board itself
    const struct cn_onnx_file *model;
    const struct cn_onnx_file *from; // gives the first weights; NULL: the model does
    bool anew;                       // start over and ignore the stored state
    bool trained; // a round was trained here: without its state, training begins only anew or from
    const atomic_bool *stop; // set from outside to end training
    // Called after each round, before it is stored: a round is reported again after a crash.
    void (*report)(void *context, const struct cn_alone_report *report);
    void (*on_step)(void *context, const struct cn_alone_step *step);  // may be NULL
    void (*at_start)(void *context, const struct cn_session *session); // may be NULL
    cn_err (*at_end)(void *context, struct cn_session *session); // may be NULL; not after an error
    void *context;
    uint64_t steps;               // stop after this step of the run; 0: train all rounds
    bool sequential;              // take samples in file order
    struct cn_timeline *timeline; // NULL for none
    struct cn_alone_best *best;   // result, set if the session opened, even on error; may be NULL
};

// Trains until the job's rounds are done or a stop rule holds. Waits while a rule of the profile
// makes it pause. Returns CN_ECANCELED on stop, after saving.
//
// CN_ECONFLICT: the stored state was trained with other values, which diag names; it is unchanged.
// CN_EDIVERGED: the last good checkpoint is kept; the log names round and step.
cn_err cn_alone_run(const struct cn_alone_config *config, struct cn_diag *diag);
