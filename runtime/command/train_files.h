// train_files.h - the files of "cairn-node train --save" and "--ops".
#pragma once

#include "runtime/engine/onnx/export.h"
#include "runtime/round/session/session.h"

// Returns whether the name ends in .onnx or .safetensors. If not, prints an error.
bool cn_train_files_known(const char *path);

// Writes the newest weights to path: as ONNX in this form when the name ends in .onnx, else as
// safetensors. When path cannot be written, adds a line to diag.
cn_err cn_train_files_save(struct cn_session *session, const char *path, enum cn_export_form form,
                           struct cn_diag *diag);

// Runs a step on the first batch, drops its result and writes the times of its operations to path
// as a Chrome trace. On an error adds a line to diag.
cn_err cn_train_files_ops(struct cn_session *session, const char *path, struct cn_diag *diag);
