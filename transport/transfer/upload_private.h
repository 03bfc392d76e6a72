// upload_private.h - the state of an upload. upload.c, which sends, and upload_replies.c, which
// reads the replies, share it.
#pragma once

#include "transport/transfer/upload.h"
#include "transport/transfer/upload_status.h"

enum cn_upload_phase {
    CN_UPLOAD_DECLARING,
    CN_UPLOAD_SURVEYING, // asks for the rest of a long list of missing chunks
    CN_UPLOAD_SENDING,
    CN_UPLOAD_COMMITTING,
    CN_UPLOAD_FINISHED,
};

struct cn_upload {
    struct cn_transfer transfer;
    struct cn_link_upload frame;
    struct cn_in_flight flight;
    struct cn_backoff backoff;
    struct cn_request call; // declares, surveys or commits
    enum cn_upload_phase phase;
    struct cn_upload_status status;     // the last one received
    char id[2 * CN_UPLOAD_ID_SIZE + 1]; // in hexadecimal digits, as paths have it
    uint32_t chunk_count;
    uint8_t *settled;   // a bit per chunk that the aggregator had when it was declared or surveyed
    uint32_t surveyed;  // it is known of all chunks before this one whether the aggregator has them
    uint64_t sent_size; // bytes of the frame in all transmissions
    uint32_t unasked;   // parcels sent since one asked for the status
    uint64_t asked_us;  // when a parcel last asked for the status
    bool must_ask;      // the next parcel asks for the status
    bool early;         // parcels may go before the declaration is answered
    bool postponed;     // the aggregator answered the declaration with "later"
    bool stale;         // the aggregator counts another number of chunks
};

// Returns the chunks of a parcel that have to be sent, without the settled ones at its ends.
struct cn_chunk_range cn_upload_chunks_of(const struct cn_upload *upload, uint32_t parcel);

// Declares the upload; the answer tells which chunks the aggregator has.
void cn_upload_declare(struct cn_upload *upload);

// Asks which chunks the aggregator has, from upload->surveyed on.
void cn_upload_survey(struct cn_upload *upload);

// Makes all parcels unsent and all chunks missing.
void cn_upload_forget(struct cn_upload *upload);

// Forgets and declares again after max_age_s, or after a back-off when that is 0.
void cn_upload_start_over(struct cn_upload *upload, uint64_t now_us, uint32_t max_age_s);
