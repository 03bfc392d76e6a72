// alone_best.h - the best model of training alone, beside the last.
//
// The best version is the one with the highest accuracy on the held-out samples, or the lowest loss
// where the job's loss has no accuracy; of equal ones the first. Its model is a file of its own,
// replaced as a whole before the record that names it, so that after a kill at any moment the file
// is whole and the record is not newer. A job without held-out samples has no best model.
// CHECKPOINT.md specifies the record. Threading: none.
#pragma once

#include "runtime/round/session/session.h"

#define CN_ALONE_BEST_FILE "model.best.onnx"

struct cn_alone_best {
    uint32_t version; // best so far; 0: none yet
    uint32_t kept;    // version in the file; 0: there is no file
    double value;     // accuracy, or minus the mean loss
};

// Removes what an earlier run has left. Call it when a run begins.
void cn_alone_best_begin(const struct cn_session *session);

// Reads the record. best is zero when there is none of this run.
void cn_alone_best_load(const struct cn_session *session, struct cn_alone_best *best);

// Compares the version that was measured last, which the trainer holds unless a round has begun.
// Stores the model and the record of a better one. A disk that fails is a warning.
void cn_alone_best_note(struct cn_session *session, struct cn_alone_best *best);
