// spool_parts.h - saves the parts of uploads as files, which continue after a crash. For spool.c.
#pragma once

#include "aggregator/store/spool.h"

// Returns the number of parts of an upload.
uint32_t cn_spool_part_count(const struct cn_spooled *upload);

// Saves one part as a file, in place of the one that it has. Errors are those of the store.
cn_err cn_spool_part_save(const struct cn_spool_config *config, struct cn_spooled *upload,
                          uint32_t part);
// Removes the files of all parts of the upload, without a sync: a file that comes back after a
// power cut continues the upload, or is removed when another one is declared.
void cn_spool_parts_remove(const struct cn_spool_config *config, const struct cn_spooled *upload);

// Receives a saved part: its bitmap, and the bytes of all its chunks in data. declared has run,
// round, size, digest and base.
typedef cn_err cn_spool_part_visit(void *context, const char *board, const char *group,
                                   const struct cn_declare_request *declared, uint32_t part,
                                   const uint8_t *bitmap, const uint8_t *data);
// Calls visit for each saved part that can be used. Removes the files of other parts.
cn_err cn_spool_parts_load(const struct cn_spool_config *config, cn_spool_part_visit *visit,
                           void *context);
