// spool_lend.h - chunks that one board of a group lends to another for the same frame. For spool.c.
#pragma once

#include "aggregator/store/spool.h"

// Lends an upload chunks: copies to `to` the chunks of `from` that it lacks. On an error some
// chunks have been copied.
cn_err cn_spool_lend(const struct cn_spool_config *config, const struct cn_spooled *from,
                     struct cn_spooled *to);
// Notes that the board itself has sent these chunks, so they are no longer lent.
void cn_spool_own(struct cn_spooled *upload, uint32_t first, uint32_t count);
// Marks all lent chunks as missing. Returns whether there were any.
bool cn_spool_give_back(struct cn_spooled *upload);
