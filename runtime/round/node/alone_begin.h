// alone_begin.h - which run a board that trains alone is in, and what it begins or goes on with.
//
// A run is told by its model, its first weights and each value that changes the result. What was
// trained in another one stays as it is, unless the caller says otherwise. Threading: one thread.
#pragma once

#include "runtime/round/node/alone.h"

// Opens the session and stores what it is trained with. Logs when the samples are others than
// before. CN_ECONFLICT: diag names the values that differ and the ways on. On an error *session may
// be set; the caller closes it.
cn_err cn_alone_begin(const struct cn_alone_config *config, struct cn_diag *diag,
                      struct cn_session **session);
