// upload.h - sends a frame: declare, chunks, commit. PROTOCOL.md has the rules.
//
//   DECLARING --status--> SENDING --all there--> COMMITTING --verdict--> FINISHED
//       ^      SURVEYING     |        <--chunks missing--|
//       +--unknown upload, digest mismatch, "later"------+
//
// A frame that was made just now follows its declaration at once: nothing of it can be there, and
// its id is known (cn_message_upload_id). Parcels are not answered one by one: every so often one
// asks for the status, which names the missing ranges and what came lately. A repeated declaration
// continues where the aggregator is. Threading: none.
#pragma once

#include "runtime/port/link.h"
#include "transport/transfer/in_flight.h"
#include "transport/transfer/request.h"

struct cn_upload;

// frame->frame is borrowed until close.
cn_err cn_upload_open(const struct cn_transfer *transfer, const struct cn_link_upload *frame,
                      struct cn_upload **upload);
void cn_upload_close(struct cn_upload *upload);

// Sends what is due; lowers *wake_us to when there will be more.
void cn_upload_step(struct cn_upload *upload, uint64_t now_us, uint64_t *wake_us);

// The session is a new one: what is in flight will not be answered.
void cn_upload_reconnected(struct cn_upload *upload);

// A registration gave another chunk size, or the path takes other parcels: goes on from what the
// aggregator has when they differ.
cn_err cn_upload_resize(struct cn_upload *upload, uint32_t chunk_size, uint32_t parcel_chunks,
                        uint64_t now_us);

// Returns false when the reply is not for this upload.
bool cn_upload_reply(struct cn_upload *upload, const struct cn_exchange_reply *reply,
                     uint64_t now_us);

// The request with this tag has to be sent again at once (cn_exchange_again).
void cn_upload_again(struct cn_upload *upload, uint64_t tag, uint64_t now_us);

// The aggregator counts other chunks than this board: its chunk size has changed.
bool cn_upload_is_stale(const struct cn_upload *upload);

// As cn_in_flight_take_gone.
bool cn_upload_take_gone(struct cn_upload *upload);

// The verdict, or NULL while there is none.
const struct cn_upload_status *cn_upload_verdict(const struct cn_upload *upload);

// Parcels that were sent again, and losses that were none.
void cn_upload_count(const struct cn_upload *upload, uint64_t *retransmissions, uint64_t *spurious);

// Parcels that were sent so far, repetitions included, and bytes of the frame in them.
uint32_t cn_upload_sent(const struct cn_upload *upload, uint64_t *size);
