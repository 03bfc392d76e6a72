// alone_best.h - keeps the best model of training alone, beside the last one.
//
// The best version is that by stop.metric on the held-out samples, and of those with the same
// accuracy the one with the lowest loss. Of equal versions the first is best. Its model is a file
// of its own, which is replaced as a whole before the record that names it. So after a kill at any
// moment the file is whole and the record is not newer than the file. A job without held-out
// samples has no best model. CHECKPOINT.md specifies the record. Threading: none.
#pragma once

#include "runtime/round/session/session.h"

#define CN_ALONE_BEST_FILE "model.best.onnx"

struct cn_alone_best {
    uint32_t version; // the best version so far; 0: none yet
    uint32_t kept;    // the version in the file; 0: there is no file
    double value;     // accuracy of the best version, or minus its mean loss
    double loss;      // mean loss of the best version
};

// Removes the file and the record of an earlier run. Call it when a run begins.
void cn_alone_best_begin(const struct cn_session *session);

// Reads the record. Sets best to zeros when there is none of this run.
void cn_alone_best_load(const struct cn_session *session, struct cn_alone_best *best);

// Forgets the measure of the best version, because it comes from other samples. The next version
// that is measured becomes the best. Patience counts from the present version on.
cn_err cn_alone_best_forget(const struct cn_session *session);

// Returns what the version that was measured last has of the job's metric, which is accuracy or
// loss; NAN when it was not measured.
double cn_alone_value(const struct cn_session *session);

// Compares the version that was measured last with the best. Stores the record of a better one, and
// its model if no round has begun: until then the trainer holds it. Logs a warning when the disk
// fails.
void cn_alone_best_note(struct cn_session *session, struct cn_alone_best *best);
