// upload_private.h - an upload as upload.c, which sends, and upload_replies.c, which reads what
// comes back, share it.
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
    struct cn_request call; // declare, survey or commit
    enum cn_upload_phase phase;
    struct cn_upload_status status; // the last one
    char id[2 * CN_UPLOAD_ID_SIZE + 1];
    uint32_t chunk_count;
    uint8_t *settled;  // bit for each chunk that was there before this board sent it
    uint32_t surveyed; // chunks below are known
    uint32_t unasked;  // parcels sent since one asked
    uint64_t asked_us;
    bool must_ask; // the next parcel
    bool early;    // parcels may go before the declaration is answered
    bool stale;
};

// The chunks of a parcel that have to be sent: without those at its ends that are there.
struct cn_chunk_range cn_upload_chunks_of(const struct cn_upload *upload, uint32_t parcel);

// Asks for the chunks that are there: all, or those from upload->surveyed on.
void cn_upload_declare(struct cn_upload *upload);
void cn_upload_survey(struct cn_upload *upload);

// Nothing counts as sent or as there any more.
void cn_upload_forget(struct cn_upload *upload);
// Forgets and declares again after max_age_s, or after a pause when that is 0.
void cn_upload_start_over(struct cn_upload *upload, uint64_t now_us, uint32_t max_age_s);
