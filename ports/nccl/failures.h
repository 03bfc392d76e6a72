// failures.h - NCCL that fails in one epoch after the other is left alone: groups would form anew
// for ever.
#pragma once

#include <stdbool.h>

// A call of NCCL, or of the device for it, failed while all members were there. After three, each
// within a minute of the one before, NCCL is given up, and the log says so.
void nccl_note_failure(void);

// True until the process ends; this board keeps its groups from NCCL then.
bool nccl_is_given_up(void);
