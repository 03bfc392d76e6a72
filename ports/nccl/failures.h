// failures.h - NCCL that fails in one epoch after the other is left alone: groups would form anew
// for ever.
#pragma once

#include <stdbool.h>

// A call of NCCL, or of the device for it, failed without a member being lost. The third one with
// less than a minute between each two is told and is the last: see below.
void nccl_note_failure(void);

// True until the process ends; this board keeps its groups from NCCL then.
bool nccl_is_given_up(void);
