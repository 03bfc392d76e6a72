// reader.h - reads training batches ahead: a thread reads the next one while the caller uses one.
//
// A batch is a function of its number (dataset.h), so reading ahead changes no bit. Threading: one
// caller. The caller may read the data set at any time, but change it only after cn_reader_stop.
#pragma once

#include "runtime/engine/data/dataset.h"

struct cn_reader;

// Opens a reader of batches of size samples. dataset is borrowed until close. Takes the memory of
// two batches. CN_ENOMEM.
cn_err cn_reader_open(const struct cn_dataset *dataset, const struct cn_sample_shape *shape,
                      uint32_t size, struct cn_reader **reader);
void cn_reader_close(struct cn_reader *reader);

// Returns training batch number index, valid until the next call, and starts to read the batch
// after it. Blocks until the batch is read.
const struct cn_batch *cn_reader_take(struct cn_reader *reader, uint64_t index);

// Blocks until nothing is being read, and forgets what was read ahead.
void cn_reader_stop(struct cn_reader *reader);
