// upload_replies.c - reads the aggregator's replies to an upload: which chunks it has, and which
// phase follows.
#include <string.h>

#include "transport/transfer/upload_private.h"

// The transmission that a status answers.
struct answered {
    uint32_t parcel;
    uint8_t behind;  // the number of later transmissions of this parcel
    uint32_t order;  // number of the transmission; 0 when there are later ones
    uint64_t rtt_us; // round trip of the transmission; 0 when there are later ones
};

static bool mark_parcel(struct cn_upload *upload, const struct answered *answered, uint32_t parcel,
                        uint64_t now_us)
{
    uint8_t behind = parcel == answered->parcel ? answered->behind : CN_IN_FLIGHT_UNSURE;

    return cn_in_flight_arrived(&upload->flight, parcel, behind, now_us);
}

// Marks as arrived the parcels that came lately, and those that the list of missing chunks shows to
// be there. Returns the number of parcels whose arrival was not known before.
static uint32_t mark_arrived(struct cn_upload *upload, const struct answered *answered,
                             uint64_t now_us)
{
    const struct cn_upload_status *status = &upload->status;
    uint32_t per = upload->transfer.parcel_chunks;
    uint32_t arrived = 0;

    for (uint32_t i = 0; i < status->recent_count; i++) {
        const struct cn_chunk_range *range = &status->recent[i];
        uint32_t last = (range->first + range->count - 1) / per;

        for (uint32_t parcel = range->first / per; parcel <= last; parcel++) {
            struct cn_chunk_range chunks = cn_upload_chunks_of(upload, parcel);

            if (chunks.first >= range->first &&
                chunks.first + chunks.count <= range->first + range->count)
                arrived += mark_parcel(upload, answered, parcel, now_us);
        }
    }
    for (uint32_t parcel = upload->flight.base; parcel < upload->flight.count; parcel++) {
        struct cn_chunk_range chunks = cn_upload_chunks_of(upload, parcel);

        if (chunks.first + chunks.count > status->known)
            break;
        if (!cn_in_flight_is_done(&upload->flight, parcel) &&
            !cn_upload_status_lacks(status, &chunks))
            arrived += mark_parcel(upload, answered, parcel, now_us);
    }
    return arrived;
}

// Queues parcels again that the aggregator lost in a crash, because they were not durable. Only a
// parcel that was last sent before the transmission with the number `before` can be lost so.
static void reopen(struct cn_upload *upload, uint32_t before)
{
    for (uint32_t i = 0; i < upload->status.missing_count; i++) {
        const struct cn_chunk_range *range = &upload->status.missing[i];

        for (uint32_t chunk = range->first; chunk < range->first + range->count; chunk++) {
            uint32_t parcel = chunk / upload->transfer.parcel_chunks;

            if (parcel >= upload->flight.fresh)
                return;
            if (!cn_in_flight_is_done(&upload->flight, parcel) ||
                upload->flight.parcels[parcel].order >= before)
                continue;
            upload->settled[chunk / 8] &= (uint8_t) ~(1u << (chunk % 8));
            cn_in_flight_lose(&upload->flight, parcel);
        }
    }
}

static void use_status(struct cn_upload *upload, const struct answered *answered, uint64_t now_us)
{
    if (mark_arrived(upload, answered, now_us))
        upload->backoff.tries = 0;
    cn_in_flight_acked(&upload->flight, answered->rtt_us, now_us);
    reopen(upload, answered->order);
}

// Notes which chunks the aggregator has and thus need not be sent, from surveyed on as far as the
// status covers them.
static void settle(struct cn_upload *upload)
{
    cn_upload_status_mark(&upload->status, upload->surveyed, upload->settled);
    if (upload->status.known > upload->surveyed)
        upload->surveyed = upload->status.known;
    for (uint32_t i = 0; i < upload->flight.count; i++) {
        uint64_t end = (uint64_t)(i + 1) * upload->transfer.parcel_chunks;

        if (end > upload->surveyed && upload->surveyed < upload->chunk_count)
            break;
        if (!cn_upload_chunks_of(upload, i).count)
            cn_in_flight_settle(&upload->flight, i);
        else if (cn_in_flight_is_done(&upload->flight, i))
            cn_in_flight_lose(&upload->flight, i); // the aggregator lost it, as it was not durable
    }
}

// Reads the status in a reply. Returns false when it is no status, or one of another chunk count.
static bool read_status(struct cn_upload *upload, const struct cn_exchange_reply *reply)
{
    struct cn_upload_status status;

    if (cn_message_get_status(reply->body, reply->size, &status))
        return false;
    if (!status.decided && status.chunk_count != upload->chunk_count) {
        upload->stale = true;
        return false;
    }
    upload->status = status;
    if (status.decided)
        upload->phase = CN_UPLOAD_FINISHED;
    return true;
}

// Ends the upload, because the aggregator refused the frame itself: repeating it cannot help.
static void reject(struct cn_upload *upload, const struct cn_exchange_reply *reply)
{
    upload->status = (struct cn_upload_status){.decided = true, .verdict = CN_VERDICT_REJECTED};
    cn_message_copy_text(upload->status.reason, sizeof(upload->status.reason), reply->body,
                         reply->size);
    upload->phase = CN_UPLOAD_FINISHED;
}

static bool is_success(unsigned code)
{
    return code >= CN_COAP_CREATED && code < CN_COAP_BAD_REQUEST;
}

// Goes on to sending once it is known for all chunks whether the aggregator has them, so that none
// is sent twice.
static void go_on(struct cn_upload *upload)
{
    settle(upload);
    upload->phase = CN_UPLOAD_SENDING;
    if (upload->surveyed < upload->chunk_count)
        cn_upload_survey(upload);
}

static void declared(struct cn_upload *upload, const struct cn_exchange_reply *reply,
                     uint64_t now_us)
{
    if (reply->code == CN_COAP_BAD_REQUEST || reply->code == CN_COAP_FORBIDDEN ||
        reply->code == CN_COAP_TOO_LARGE) {
        reject(upload, reply);
        return;
    }
    if (!read_status(upload, reply)) {
        cn_upload_start_over(upload, now_us, reply->max_age_s);
        return;
    }
    if (upload->phase == CN_UPLOAD_FINISHED)
        return;
    cn_hex(upload->id, upload->status.id, CN_UPLOAD_ID_SIZE);
    go_on(upload);
}

static void surveyed(struct cn_upload *upload, const struct cn_exchange_reply *reply,
                     uint64_t now_us)
{
    uint32_t before = upload->surveyed;

    if (!is_success(reply->code) || !read_status(upload, reply)) {
        cn_upload_start_over(upload, now_us, reply->max_age_s);
        return;
    }
    if (upload->phase == CN_UPLOAD_FINISHED)
        return;
    go_on(upload);
    if (upload->surveyed == before) // the status covers no further chunks: do not ask without end
        upload->phase = CN_UPLOAD_SENDING;
}

static void committed(struct cn_upload *upload, const struct cn_exchange_reply *reply,
                      uint64_t now_us)
{
    if (reply->code == CN_COAP_UNPROCESSABLE || !read_status(upload, reply)) {
        cn_upload_start_over(upload, now_us, reply->max_age_s);
        return;
    }
    if (upload->phase == CN_UPLOAD_FINISHED)
        return;
    if (!upload->status.missing_count) { // no verdict yet, and no chunk to send
        cn_upload_start_over(upload, now_us, reply->max_age_s);
        return;
    }
    upload->phase = CN_UPLOAD_SENDING;
    reopen(upload, upload->flight.next_order);
}

static void parcel_answered(struct cn_upload *upload, const struct cn_exchange_reply *reply,
                            uint8_t tries, uint32_t parcel, uint64_t now_us)
{
    const struct cn_in_flight_parcel *entry = &upload->flight.parcels[parcel];
    bool newest = entry->tries == tries;
    struct answered answered = {
        .parcel = parcel,
        .behind = (uint8_t)(entry->tries - tries),
        .order = newest ? entry->order : 0,
        .rtt_us = newest ? now_us - entry->mark.sent_us : 0,
    };

    if (upload->phase != CN_UPLOAD_SENDING)
        return;
    // The upload was decided or forgotten there: declare it at once, the next time after a pause.
    if (reply->code == CN_COAP_NOT_FOUND && !upload->backoff.tries) {
        upload->backoff.tries = 1;
        cn_upload_forget(upload);
        cn_upload_declare(upload);
        return;
    }
    if (!is_success(reply->code) || !read_status(upload, reply)) {
        cn_upload_start_over(upload, now_us, reply->max_age_s);
        return;
    }
    if (upload->phase == CN_UPLOAD_FINISHED)
        return;
    if (newest)
        cn_rtt_add(upload->transfer.rtt, answered.rtt_us);
    use_status(upload, &answered, now_us);
}

// Handles "later": the aggregator does not take the update yet. It has no upload that parcels could
// belong to until it has accepted the declaration, so no parcel is sent before.
static void put_off(struct cn_upload *upload)
{
    if (upload->phase != CN_UPLOAD_DECLARING)
        return;
    upload->postponed = true;
    if (upload->early)
        cn_upload_forget(upload);
    upload->early = false;
}

bool cn_upload_reply(struct cn_upload *upload, const struct cn_exchange_reply *reply,
                     uint64_t now_us)
{
    uint32_t parcel;
    uint8_t tries;
    bool mine;

    if (cn_request_answered(&upload->call, reply, now_us, &mine)) {
        if (upload->phase == CN_UPLOAD_DECLARING)
            declared(upload, reply, now_us);
        else if (upload->phase == CN_UPLOAD_SURVEYING)
            surveyed(upload, reply, now_us);
        else if (upload->phase == CN_UPLOAD_COMMITTING)
            committed(upload, reply, now_us);
        return true;
    }
    if (mine) {
        put_off(upload);
        return true;
    }
    if (!cn_transfer_read_tag(&upload->transfer, reply->tag, &tries, &parcel) ||
        parcel >= upload->flight.count)
        return false;
    parcel_answered(upload, reply, tries, parcel, now_us);
    return true;
}

// Repeats a parcel: its chunks arrived, but the status that it asked for was held back.
void cn_upload_again(struct cn_upload *upload, uint64_t tag, uint64_t now_us)
{
    uint8_t tries;
    uint32_t parcel;

    cn_request_again(&upload->call, tag, now_us);
    if (cn_transfer_read_tag(&upload->transfer, tag, &tries, &parcel) &&
        parcel < upload->flight.count && upload->flight.parcels[parcel].tries == tries) {
        upload->must_ask = true;
        cn_in_flight_again(&upload->flight, parcel, now_us);
    }
}
