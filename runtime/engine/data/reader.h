// reader.h - training batches, each read by a thread of its own while the one before is in use.
//
// A batch is a function of its number (dataset.h), so reading ahead changes no bit. Threading: one
// caller; the data set may be read by the caller at any time, and changed after stop.
#pragma once

#include "runtime/engine/data/dataset.h"

struct cn_reader;

// dataset is borrowed. Takes the memory of two batches of size samples.
cn_err cn_reader_open(const struct cn_dataset *dataset, const struct cn_sample_shape *shape,
                      uint32_t size, struct cn_reader **reader);
void cn_reader_close(struct cn_reader *reader);

// Training batch number index, valid until the next call; the batch after it is begun.
const struct cn_batch *cn_reader_take(struct cn_reader *reader, uint64_t index);

// Returns when nothing is being read, and forgets what was read ahead.
void cn_reader_stop(struct cn_reader *reader);
