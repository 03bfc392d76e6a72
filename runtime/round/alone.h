// alone.h - training on one board without any network or keys.
//
// The same session as in a run: rounds of local_steps steps, a checkpoint after each, the held-out
// measurement, model.current.onnx. The weights of a round become the next base as they are.
// Threading: one thread.
#pragma once

#include <stdatomic.h>
#include <stdbool.h>

#include "runtime/engine/onnx.h"
#include "runtime/port/store.h"
#include "runtime/profile/profile.h"
#include "runtime/round/session.h"

struct cn_alone_report { // of one round
    uint32_t round;
    double train_loss; // mean over its samples
    double held_out_loss, held_out_accuracy;
    uint64_t held_out_count;
    double step_ms; // mean
};

struct cn_alone_config {
    const struct cn_settings *settings; // with a job; borrowed, as all pointers here
    const struct cn_compute_ops *compute;
    struct cn_store *store;
    const uint8_t *model;
    size_t model_size;
    const atomic_bool *stop;
    void (*report)(void *context, const struct cn_alone_report *report); // after each round
    void *context;
};

// Trains until the job's rounds are done or a stop rule holds. CN_ECANCELED on stop, after saving.
// CN_EDIVERGED: the last good checkpoint is kept; the log names round and step.
cn_err cn_alone_run(const struct cn_alone_config *config, struct cn_diag *diag);
