// alone_begin.h - finds the run of a board that trains alone, and begins or resumes it.
//
// The model, the first weights and each value that changes the result identify a run. The stored
// state of another run stays unchanged, unless the caller asks to replace it. Threading: one
// thread.
#pragma once

#include "runtime/round/node/alone.h"

// Opens the session and stores the values that it is trained with. Logs when the samples have
// changed. CN_ECONFLICT: diag names the values that differ and how to continue. On an error
// *session may be set; the caller closes it.
cn_err cn_alone_begin(const struct cn_alone_config *config, struct cn_diag *diag,
                      struct cn_session **session);
