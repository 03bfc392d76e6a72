// download.h - fetches a blob by its digest, with a paced GET b/DIGEST/N/COUNT for every parcel
// (in_flight.h).
//
// The controller paces requests as if they had the size of their answers, because those fill the
// link. Threading: none.
#pragma once

#include "runtime/base/bytes.h"
#include "transport/transfer/in_flight.h"

enum cn_download_state {
    CN_DOWNLOAD_RUNNING,
    CN_DOWNLOAD_FINISHED, // the content is complete and matches the digest
    CN_DOWNLOAD_GONE,     // the aggregator lacks the blob, or what it sent was wrong three times
};

struct cn_download;

// Starts the download of a blob of size bytes and allocates memory for it. Copies transfer. Returns
// CN_ERANGE for a size of 0 or of too many chunks, and CN_ENOMEM.
cn_err cn_download_open(const struct cn_transfer *transfer, const uint8_t digest[CN_DIGEST_SIZE],
                        uint64_t size, struct cn_download **download);
void cn_download_close(struct cn_download *download);

// Sends the requests that are due; lowers *wake_us to the time of the next.
void cn_download_step(struct cn_download *download, uint64_t now_us, uint64_t *wake_us);

// Requests again what was in flight, because a new session does not answer the old one's requests.
void cn_download_reconnected(struct cn_download *download);

// Takes a reply. Returns false when it is not for this download.
bool cn_download_reply(struct cn_download *download, const struct cn_exchange_reply *reply,
                       uint64_t now_us);

// Repeats the request with this tag at once (cn_exchange_again).
void cn_download_again(struct cn_download *download, uint64_t tag, uint64_t now_us);

enum cn_download_state cn_download_state(const struct cn_download *download);

// Returns the content, valid from CN_DOWNLOAD_FINISHED until close.
const uint8_t *cn_download_data(const struct cn_download *download, size_t *size);

// Divides the blob again when a registration gave another chunk size or the path takes other
// parcels. Does nothing when both sizes stay. What complete parcels brought stays. Returns
// CN_ERANGE for too many chunks, and CN_ENOMEM; both change nothing.
cn_err cn_download_resize(struct cn_download *download, uint32_t chunk_size,
                          uint32_t parcel_chunks);

// Returns true once each time that the link counted as gone (cn_in_flight_take_gone).
bool cn_download_take_gone(struct cn_download *download);
