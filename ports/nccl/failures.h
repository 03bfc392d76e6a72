// failures.h - gives up NCCL when it fails in several epochs in a row.
//
// Otherwise the group would re-form for ever. The count belongs to the process. Threading: any.
#pragma once

#include <stdbool.h>

// Notes that a call of NCCL, or of the device for it, failed while all members were there. After
// three, each within a minute of the one before, NCCL is given up, and the log says so.
void nccl_note_failure(void);

// Returns true from the third failure until the process ends. This board declines NCCL then.
bool nccl_is_given_up(void);
