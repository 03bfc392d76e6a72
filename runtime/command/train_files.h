// train_files.h - what "cairn-node train" writes beside its state.
#pragma once

#include "runtime/engine/onnx/export.h"
#include "runtime/round/session/session.h"

// Whether a file with this name can be saved; a line on standard error when not.
bool cn_train_files_known(const char *path);

// The weights that were trained last, as .onnx of that form or .safetensors by the name.
cn_err cn_train_files_save(struct cn_session *session, const char *path, enum cn_export_form form,
                           struct cn_diag *diag);

// The times of a step's operations, as a Chrome trace.
cn_err cn_train_files_ops(struct cn_session *session, const char *path, struct cn_diag *diag);
