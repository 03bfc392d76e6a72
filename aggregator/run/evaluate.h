// evaluate.h - measures a version on the aggregator's own data set, in a child process.
//
// The server never waits for a forward pass, and a failure ends the child, not the run. The child
// has the data set and the engine, none of the parent's files and sockets, and a time limit.
// Threading: none; one evaluation at a time.
#pragma once

#include "aggregator/run/run.h"
#include "runtime/engine/trainer/trainer.h"
#include "runtime/profile/profile.h"

struct cn_evaluator_config {
    const struct cn_onnx *onnx; // borrowed, as all pointers here
    const struct cn_job *job;
    const struct cn_data_paths *files;
    // Compute ports in the order of preference, ending with NULL. The first that opens is used.
    const struct cn_compute_ops *const *computes;
    uint32_t threads;
    uint64_t timeout_ms; // limit for one evaluation
};

struct cn_evaluator;

// Opens model and data once to check them. Mistakes are in diag.
cn_err cn_evaluator_open(const struct cn_evaluator_config *config, struct cn_diag *diag,
                         struct cn_evaluator **evaluator);
// Frees the evaluator, and kills an evaluation under way.
void cn_evaluator_close(struct cn_evaluator *evaluator);

// Fills the functions that the run calls.
void cn_evaluator_measure(struct cn_evaluator *evaluator, struct cn_run_measure *measure);
