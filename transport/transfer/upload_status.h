// upload_status.h - what the status of an upload says about chunks.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "transport/message/message.h"

// Returns whether the status names any of these chunks as missing.
bool cn_upload_status_lacks(const struct cn_upload_status *status,
                            const struct cn_chunk_range *chunks);

// Sets the bits of those chunks from first on that are there, as far as the status knows, and
// clears the bits of those that are missing. bits: one for each chunk of the upload, at least
// status->known.
void cn_upload_status_mark(const struct cn_upload_status *status, uint32_t first, uint8_t *bits);
