// alone.h - training on one board without any network or keys.
//
// The same session as in a run: rounds of local_steps steps, a checkpoint after each, the held-out
// measurement, model.current.onnx. The weights of a round become the next base as they are. Between
// steps the board is cared for as in a run: pauses, hooks, status. Threading: one thread.
#pragma once

#include <stdatomic.h>
#include <stdbool.h>

#include "runtime/engine/onnx/onnx_file.h"
#include "runtime/port/store.h"
#include "runtime/profile/profile.h"
#include "runtime/round/node/alone_best.h"
#include "runtime/round/session/session.h"

struct cn_alone_report { // of one round
    uint32_t round;
    double train_loss; // mean over its samples
    struct cn_scores scores;
    double step_ms;  // mean
    double energy_j; // 0: no sensor
};

struct cn_alone_step {
    uint64_t step; // of the run, from 1
    double loss;   // mean over the step
    double rate;   // learning rate
    double ms;
};

struct cn_alone_config {
    const struct cn_settings *settings; // with a job; borrowed, as all pointers here
    const struct cn_compute_ops *compute;
    struct cn_store *store;
    const char *sysroot; // where sys/ and proc/ of the board are; "" on it
    const struct cn_onnx_file *model;
    const struct cn_onnx_file *from; // begin with the weights of this file; NULL: with the model's
    bool anew;                       // start over, whatever is stored
    const atomic_bool *stop;
    void (*report)(void *context, const struct cn_alone_report *report); // after each round
    void (*on_step)(void *context, const struct cn_alone_step *step);    // may be NULL
    void (*at_start)(void *context, const struct cn_session *session);   // may be NULL
    cn_err (*at_end)(void *context, struct cn_session *session); // may be NULL; not after an error
    void *context;
    uint64_t steps;               // of the run, after which to stop; 0: all
    bool sequential;              // samples in file order
    struct cn_timeline *timeline; // NULL for none
    struct cn_alone_best *best;   // set, also after an error, when training began; may be NULL
};

// Trains until the job's rounds are done or a stop rule holds; waits while a rule of the profile
// makes it pause. CN_ECANCELED on stop, after saving.
// CN_ECONFLICT: what is stored was trained with other values, which diag names; it stays as it is.
// CN_EDIVERGED: the last good checkpoint is kept; the log names round and step.
cn_err cn_alone_run(const struct cn_alone_config *config, struct cn_diag *diag);
