// upload.h - sends a frame: declare, chunks, commit. PROTOCOL.md has the rules.
//
//   DECLARING --status--> SENDING --all there--> COMMITTING --verdict--> FINISHED
//       ^                    |        <--chunks missing--|
//       +--unknown upload, digest mismatch, "later"------+
//
// Chunks are not answered one by one: every so often one asks for the status, which names the
// missing ranges. A repeated declaration continues where the aggregator is. Threading: none.
#pragma once

#include "runtime/port/link.h"
#include "transport/call.h"
#include "transport/flight.h"
#include "transport/measure.h"

struct cn_upload;

// frame->frame is borrowed until close.
cn_err cn_upload_open(const struct cn_transfer *transfer, const struct cn_link_upload *frame,
                      uint64_t now_us, struct cn_upload **upload);
void cn_upload_close(struct cn_upload *upload);

// Sends what is due; lowers *wake_us to when there will be more.
void cn_upload_step(struct cn_upload *upload, uint64_t now_us, uint64_t *wake_us);

// The session is a new one: what is in flight will not be answered.
void cn_upload_reconnected(struct cn_upload *upload, uint64_t now_us);

// A registration gave another chunk size: starts over when it differs.
cn_err cn_upload_set_chunk_size(struct cn_upload *upload, uint32_t chunk_size, uint64_t now_us);

// Returns false when the reply is not for this upload.
bool cn_upload_reply(struct cn_upload *upload, const struct cn_exchange_reply *reply,
                     uint64_t now_us);

// The aggregator counts other chunks than this board: its chunk size has changed.
bool cn_upload_is_stale(const struct cn_upload *upload);

// The verdict, or NULL while there is none.
const struct cn_upload_status *cn_upload_verdict(const struct cn_upload *upload);

// What was sent of it, without the time.
void cn_upload_sample(const struct cn_upload *upload, struct cn_measure_sample *sample);
