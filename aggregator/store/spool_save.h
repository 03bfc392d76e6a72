// spool_save.h - when the parts of uploads are saved, for spool.c.
//
// A part is written whole, and synced, two seconds after the first of its chunks that was not saved
// yet. An upload that goes on in order has one or two such parts. One whose chunks are scattered
// over all parts would make the gateway write thousands of times what it receives. So each save
// takes a part of the upload's credit, which grows by one part a second, and by eight chunks for
// each chunk received, up to four parts. What there is no credit for waits.
#pragma once

#include "aggregator/store/spool.h"

// Adds chunks that came, none of which was there, to the credit.
void cn_spool_save_earn(struct cn_spooled *upload, uint32_t count);
// Saves the parts whose chunks have waited for two seconds, as far as the credit goes. An error is
// only logged: if the program then dies, the board sends the chunks again.
void cn_spool_save_due(const struct cn_spool_config *config, struct cn_spooled *upload,
                       uint64_t now_ms);
// Saves all parts that have something new, because the program ends.
void cn_spool_save_all(const struct cn_spool_config *config, struct cn_spooled *upload);
