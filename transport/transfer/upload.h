// upload.h - sends a frame: declare, chunks, commit. PROTOCOL.md has the rules.
//
//   DECLARING --status--> SENDING --all there--> COMMITTING --verdict--> FINISHED
//       ^      SURVEYING     |        <--chunks missing--|
//       +--unknown upload, digest mismatch, "later"------+
//
// A fresh frame follows its declaration at once: the aggregator cannot have any of its chunks, and
// its id is known (cn_message_upload_id). The aggregator does not answer each parcel. Now and then
// a parcel asks for the status, which names the missing ranges and the chunks that came lately. A
// repeated declaration resumes the upload with the chunks that the aggregator has. After "later" to
// a declaration only declarations are sent until one is answered. Threading: none.
#pragma once

#include "runtime/port/link.h"
#include "transport/transfer/in_flight.h"
#include "transport/transfer/request.h"

struct cn_upload;

// Starts an upload. Copies transfer and frame; frame->frame is borrowed until close. Returns
// CN_ERANGE for an empty frame or one of too many chunks, and CN_ENOMEM.
cn_err cn_upload_open(const struct cn_transfer *transfer, const struct cn_link_upload *frame,
                      struct cn_upload **upload);
void cn_upload_close(struct cn_upload *upload);

// Sends what is due; lowers *wake_us to the time of the next transmission.
void cn_upload_step(struct cn_upload *upload, uint64_t now_us, uint64_t *wake_us);

// Resumes in a new session, which does not answer what was in flight.
void cn_upload_reconnected(struct cn_upload *upload);

// Divides the frame again when a registration gave another chunk size or the path takes other
// parcels, and asks which chunks the aggregator has. Does nothing when both sizes stay. On an error
// the old division stays.
cn_err cn_upload_resize(struct cn_upload *upload, uint32_t chunk_size, uint32_t parcel_chunks,
                        uint64_t now_us);

// Takes a reply. Returns false when it is not for this upload.
bool cn_upload_reply(struct cn_upload *upload, const struct cn_exchange_reply *reply,
                     uint64_t now_us);

// Repeats the request with this tag at once (cn_exchange_again).
void cn_upload_again(struct cn_upload *upload, uint64_t tag, uint64_t now_us);

// Repeats a declaration at once that was answered with "later": the round has changed since.
void cn_upload_hurry(struct cn_upload *upload);

// Returns whether the aggregator counts another number of chunks: its chunk size has changed.
bool cn_upload_is_stale(const struct cn_upload *upload);

// Returns true once each time that the link counted as gone (cn_in_flight_take_gone).
bool cn_upload_take_gone(struct cn_upload *upload);

// Returns the verdict, or NULL while there is none.
const struct cn_upload_status *cn_upload_verdict(const struct cn_upload *upload);

// Sets the numbers of repeated transmissions and of losses that were none, since the frame was last
// divided (cn_upload_resize).
void cn_upload_count(const struct cn_upload *upload, uint64_t *retransmissions, uint64_t *spurious);

// Returns the bytes of the frame that were sent, repetitions included: at most the frame's size.
uint64_t cn_upload_sent_size(const struct cn_upload *upload);
