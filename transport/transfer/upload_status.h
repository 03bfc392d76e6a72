// upload_status.h - which chunks of an upload the aggregator has, according to its status.
//
// Pure functions.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "transport/message/message.h"

// Returns whether the status names any of the given chunks as missing.
bool cn_upload_status_lacks(const struct cn_upload_status *status,
                            const struct cn_chunk_range *chunks);

// Sets the bit of each chunk that the aggregator has and clears the bits of the missing ones, for
// the chunks from first up to status->known. bits has one bit for each chunk of the upload.
void cn_upload_status_mark(const struct cn_upload_status *status, uint32_t first, uint8_t *bits);
