// train_files.h - the files of "cairn-node train --save" and "--ops".
#pragma once

#include "runtime/engine/onnx/export.h"
#include "runtime/round/session/session.h"

// Returns whether the name ends in .onnx or .safetensors. If not, prints an error.
bool cn_train_files_known(const char *path);

// Saves the newest weights. The name says whether as .onnx, in this form, or as .safetensors.
cn_err cn_train_files_save(struct cn_session *session, const char *path, enum cn_export_form form,
                           struct cn_diag *diag);

// Writes the times of a step's operations as a Chrome trace.
cn_err cn_train_files_ops(struct cn_session *session, const char *path, struct cn_diag *diag);
