// download.h - fetches a blob by its digest: GET b/DIGEST/N/COUNT for every parcel, paced.
//
// The controller paces the requests as if they were the answers, whose way is the bottleneck.
//
// Threading: none.
#pragma once

#include "runtime/base/bytes.h"
#include "transport/transfer/in_flight.h"

enum cn_download_state {
    CN_DOWNLOAD_RUNNING,
    CN_DOWNLOAD_FINISHED, // the digest is right
    CN_DOWNLOAD_GONE,     // the aggregator does not have it
};

struct cn_download;

// Allocates size bytes.
cn_err cn_download_open(const struct cn_transfer *transfer, const uint8_t digest[CN_DIGEST_SIZE],
                        uint64_t size, struct cn_download **download);
void cn_download_close(struct cn_download *download);

// Sends what is due; lowers *wake_us to when there will be more.
void cn_download_step(struct cn_download *download, uint64_t now_us, uint64_t *wake_us);

// The session is a new one: what is in flight will not be answered.
void cn_download_reconnected(struct cn_download *download);

// Returns false when the reply is not for this download.
bool cn_download_reply(struct cn_download *download, const struct cn_exchange_reply *reply,
                       uint64_t now_us);

// The request with this tag has to be sent again at once (cn_exchange_again).
void cn_download_again(struct cn_download *download, uint64_t tag, uint64_t now_us);

enum cn_download_state cn_download_state(const struct cn_download *download);

// The content, when finished; valid until close.
const uint8_t *cn_download_data(const struct cn_download *download, size_t *size);

// The path takes other parcels: what came stays. CN_ENOMEM changes nothing.
cn_err cn_download_resize(struct cn_download *download, uint32_t parcel_chunks);

// As cn_in_flight_take_gone.
bool cn_download_take_gone(struct cn_download *download);
