// updates.h - the optimizer's calls of a program, in few launches.
//
// The engine has a call for each range of parameters or statistics. Calls that differ in nothing
// but their range become one launch. Its threads find their range in a table on the device.
#pragma once

#include "ports/cuda/device.h"

// Returns whether a call is one of these: CN_OP_SGD, CN_OP_ADAM, CN_OP_STATISTIC.
bool cuda_is_update(const struct cn_call *call);

// Brings calls that can share a launch together, if only such calls are between them. Their order
// has no meaning, because ranges do not overlap.
void cuda_updates_sort(struct cn_call *calls, size_t count);

// Makes the table of sorted calls, with an entry for each call, or sets *table to 0 if none is an
// update. Not while a graph is captured. The caller releases the table.
cn_err cuda_updates_make_table(struct cuda *cuda, const struct cn_call *calls, size_t count,
                               CUdeviceptr *table);

// Queues a launch for calls[*next] and those after it that share it, and moves *next behind them.
cn_err cuda_updates_queue(struct cuda *cuda, const struct cn_call *calls, size_t count,
                          CUdeviceptr table, bool clipped, size_t *next);
