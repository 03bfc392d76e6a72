#include "transport/transfer/upload.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/log.h"
#include "transport/transfer/upload_status.h"

#define ASK_PARCELS 16        // between two that ask for the status,
#define ASK_PARCELS_STARTUP 4 // so long as the rate is searched for,
#define ASK_MIN_US 10000      // or a quarter of the round trip within these limits
#define ASK_MAX_US 20000
#define PAUSE_MIN_MS 250
#define PAUSE_MAX_MS 30000
#define UNCONNECTED_US 50000
#define EARLY_PARCELS 8 // sent before its declaration is answered, until that goes a second time

enum phase {
    DECLARING,
    SURVEYING, // asks for the rest of a long list of missing chunks
    SENDING,
    COMMITTING,
    FINISHED,
};

struct cn_upload {
    struct cn_transfer transfer;
    struct cn_link_upload frame;
    struct cn_in_flight flight;
    struct cn_backoff backoff;
    struct cn_request call; // declare, survey or commit
    enum phase phase;
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

static bool is_settled(const struct cn_upload *upload, uint32_t chunk)
{
    return upload->settled[chunk / 8] >> (chunk % 8) & 1;
}

// The chunks of a parcel that have to be sent: without those at its ends that are there.
static struct cn_chunk_range chunks_of(const struct cn_upload *upload, uint32_t parcel)
{
    uint32_t first = parcel * upload->transfer.parcel_chunks;
    uint32_t end = upload->chunk_count - first > upload->transfer.parcel_chunks
                       ? first + upload->transfer.parcel_chunks
                       : upload->chunk_count;

    while (first < end && is_settled(upload, first))
        first++;
    while (end > first && is_settled(upload, end - 1))
        end--;
    return (struct cn_chunk_range){first, end - first};
}

static void declare(struct cn_upload *upload)
{
    struct cn_declare_request declaration = {
        .run = upload->frame.run,
        .round = upload->frame.round,
        .size = upload->frame.size,
        .held_out_loss = upload->frame.held_out_loss,
        .held_out_correct = upload->frame.held_out_correct,
        .held_out_count = upload->frame.held_out_count,
        .measures = upload->frame.measures,
        .train_loss = upload->frame.train_loss,
        .member_count = upload->frame.member_count,
    };
    uint8_t bytes[CN_MESSAGE_MAX];
    size_t size = 0;
    cn_err err;

    memcpy(declaration.members, upload->frame.members, sizeof(declaration.members));
    memcpy(declaration.digest, upload->frame.digest, CN_DIGEST_SIZE);
    memcpy(declaration.base, upload->frame.base, CN_DIGEST_SIZE);
    err = cn_message_put_declare(&declaration, bytes, &size);
    if (err) // cannot be: the message has a fixed size far below the limit
        cn_log(CN_LOG_ERROR, "link", "declaring an update: %s", cn_err_text(err));
    upload->phase = DECLARING;
    upload->early = false;
    upload->surveyed = 0;
    cn_request_start(&upload->call, CN_COAP_POST, "u", bytes, size);
}

static void forget_progress(struct cn_upload *upload)
{
    cn_in_flight_restart(&upload->flight);
    memset(upload->settled, 0, upload->chunk_count / 8 + 1);
}

// Declares again after a pause.
static void start_over(struct cn_upload *upload, uint64_t now_us, uint32_t max_age_s)
{
    uint64_t delay_ms = max_age_s ? 1000ull * max_age_s : cn_backoff_next_ms(&upload->backoff);

    forget_progress(upload);
    declare(upload);
    upload->call.due_us = now_us + 1000 * delay_ms;
}

// Cuts the frame into chunks and parcels. On an error what was there stays.
static cn_err cut(struct cn_upload *upload, uint32_t chunk_size, uint32_t parcel_chunks)
{
    uint64_t chunks = (upload->frame.size + chunk_size - 1) / chunk_size;
    struct cn_in_flight flight;
    uint8_t *settled;
    cn_err err;

    if (chunks >= CN_IN_FLIGHT_NONE)
        return CN_ERANGE;
    settled = calloc(chunks / 8 + 1, 1);
    if (!settled)
        return CN_ENOMEM;
    err = cn_in_flight_init(&flight, upload->transfer.controller,
                            (uint32_t)((chunks + parcel_chunks - 1) / parcel_chunks));
    if (err) {
        free(settled);
        return err;
    }
    cn_in_flight_deinit(&upload->flight);
    free(upload->settled);
    upload->flight = flight;
    upload->settled = settled;
    upload->chunk_count = (uint32_t)chunks;
    upload->surveyed = 0;
    upload->transfer.chunk_size = chunk_size;
    upload->transfer.parcel_chunks = parcel_chunks;
    return CN_OK;
}

cn_err cn_upload_open(const struct cn_transfer *transfer, const struct cn_link_upload *frame,
                      struct cn_upload **upload)
{
    uint8_t id[CN_UPLOAD_ID_SIZE];
    struct cn_upload *opened;
    cn_err err;

    if (!frame->size)
        return CN_ERANGE;
    opened = calloc(1, sizeof(*opened));
    if (!opened)
        return CN_ENOMEM;
    opened->transfer = *transfer;
    opened->frame = *frame;
    err = cut(opened, transfer->chunk_size, transfer->parcel_chunks);
    if (err) {
        free(opened);
        return err;
    }
    opened->backoff =
        (struct cn_backoff){.min_ms = PAUSE_MIN_MS, .max_ms = PAUSE_MAX_MS, .seed = transfer->seed};
    cn_request_init(&opened->call, transfer->exchange, transfer->rtt, transfer->kind + 1,
                    transfer->seed);
    opened->call.number = (uint32_t)transfer->generation << 8;
    declare(opened);
    if (frame->fresh && transfer->board) {
        cn_message_upload_id(transfer->board, frame->run, frame->round, frame->digest, id);
        cn_hex(opened->id, id, CN_UPLOAD_ID_SIZE);
        opened->early = true;
    }
    *upload = opened;
    return CN_OK;
}

void cn_upload_close(struct cn_upload *upload)
{
    if (!upload)
        return;
    cn_in_flight_deinit(&upload->flight);
    free(upload->settled);
    free(upload);
}

cn_err cn_upload_resize(struct cn_upload *upload, uint32_t chunk_size, uint32_t parcel_chunks,
                        uint64_t now_us)
{
    bool same_chunks = chunk_size == upload->transfer.chunk_size;
    cn_err err;

    upload->stale = false;
    if (same_chunks && parcel_chunks == upload->transfer.parcel_chunks)
        return CN_OK;
    err = cut(upload, chunk_size, parcel_chunks);
    if (err)
        return err;
    upload->transfer.generation++;
    if (upload->phase == FINISHED || (upload->phase == DECLARING && same_chunks))
        return CN_OK;
    declare(upload);
    upload->call.due_us = now_us;
    return CN_OK;
}

// ---- sending

// Often enough that four answers come in a round trip, and always when nothing more can be sent
// before one.
static bool must_ask(struct cn_upload *upload, uint64_t now_us)
{
    const struct cn_controller *controller = upload->transfer.controller;
    uint64_t pause_us = controller->min_rtt_us / 4;
    uint32_t parcels =
        controller->phase == CN_CONTROLLER_STARTUP ? ASK_PARCELS_STARTUP : ASK_PARCELS;

    if (pause_us < ASK_MIN_US)
        pause_us = ASK_MIN_US;
    if (pause_us > ASK_MAX_US)
        pause_us = ASK_MAX_US;
    upload->unasked++;
    if (!upload->must_ask && upload->unasked < parcels && now_us - upload->asked_us < pause_us &&
        upload->flight.in_flight + controller->unit <= cn_controller_window(controller) &&
        cn_in_flight_next(&upload->flight) != CN_IN_FLIGHT_NONE)
        return false;
    upload->unasked = 0;
    upload->asked_us = now_us;
    upload->must_ask = false;
    return true;
}

static bool send_parcel(struct cn_upload *upload, uint32_t parcel, uint64_t now_us)
{
    struct cn_exchange *exchange = upload->transfer.exchange;
    struct cn_chunk_range chunks = chunks_of(upload, parcel);
    size_t offset = (size_t)chunks.first * upload->transfer.chunk_size;
    size_t size = (size_t)chunks.count * upload->transfer.chunk_size;
    size_t rest = upload->frame.size - offset;
    char path[2 * CN_UPLOAD_ID_SIZE + 20];
    struct cn_exchange_request request = {
        .method = CN_COAP_PUT,
        .path = path,
        .body = upload->frame.frame + offset,
        .size = rest < size ? rest : size,
    };

    snprintf(path, sizeof(path), "u/%s/%u", upload->id, chunks.first);
    cn_in_flight_sent(&upload->flight, parcel, (uint32_t)request.size + CN_TRANSFER_OVERHEAD,
                      now_us);
    request.silent = !must_ask(upload, now_us);
    request.tag = cn_transfer_tag(&upload->transfer, upload->flight.parcels[parcel].tries, parcel);
    if (!exchange->ops->send(exchange, &request))
        return true;
    cn_in_flight_lose_all(&upload->flight);
    return false;
}

static void send_parcels(struct cn_upload *upload, uint64_t now_us, uint64_t *wake_us)
{
    struct cn_controller *controller = upload->transfer.controller;

    if (cn_in_flight_expire(&upload->flight, upload->transfer.rtt, now_us, wake_us))
        upload->must_ask = true;
    while (cn_controller_may_send(controller, upload->flight.in_flight, now_us, wake_us)) {
        uint32_t parcel = cn_in_flight_next(&upload->flight);

        if (parcel == CN_IN_FLIGHT_NONE)
            break;
        if (!send_parcel(upload, parcel, now_us)) {
            *wake_us = now_us + UNCONNECTED_US < *wake_us ? now_us + UNCONNECTED_US : *wake_us;
            return;
        }
    }
    // What was sent just now may be the oldest in flight.
    cn_in_flight_expire(&upload->flight, upload->transfer.rtt, now_us, wake_us);
}

static void commit(struct cn_upload *upload)
{
    char path[2 * CN_UPLOAD_ID_SIZE + 20];

    snprintf(path, sizeof(path), "u/%s/commit", upload->id);
    upload->phase = COMMITTING;
    cn_in_flight_next(&upload->flight); // passes all parcels, so that each may be reopened
    cn_request_start(&upload->call, CN_COAP_POST, path, NULL, 0);
}

static void survey(struct cn_upload *upload)
{
    char path[2 * CN_UPLOAD_ID_SIZE + 20];

    snprintf(path, sizeof(path), "u/%s/%u", upload->id, upload->surveyed);
    upload->phase = SURVEYING;
    cn_request_start(&upload->call, CN_COAP_GET, path, NULL, 0);
}

void cn_upload_step(struct cn_upload *upload, uint64_t now_us, uint64_t *wake_us)
{
    if (upload->phase == SENDING && upload->flight.done == upload->flight.count)
        commit(upload);
    if (upload->early && upload->phase == DECLARING && upload->call.attempt == 1 &&
        upload->flight.next_order > EARLY_PARCELS)
        cn_request_hurry(&upload->call); // lost, it would take all these with it
    cn_request_step(&upload->call, now_us, wake_us);
    if (upload->phase == SENDING || (upload->early && upload->call.sent_us))
        send_parcels(upload, now_us, wake_us);
}

void cn_upload_reconnected(struct cn_upload *upload)
{
    cn_in_flight_lose_all(&upload->flight);
    upload->must_ask = true;
    if (upload->phase == SENDING || upload->phase == SURVEYING)
        declare(upload); // some of what was in flight may be there
    cn_request_hurry(&upload->call);
}

// ---- what a status says

// The transmission that a status answers.
struct answered {
    uint32_t parcel;
    uint8_t behind;  // the number of later transmissions of this parcel
    uint32_t order;  // 0 when there are any
    uint64_t rtt_us; // likewise
};

static bool mark_parcel(struct cn_upload *upload, const struct answered *answered, uint32_t parcel,
                        uint64_t now_us)
{
    uint8_t behind = parcel == answered->parcel ? answered->behind : CN_IN_FLIGHT_UNSURE;

    return cn_in_flight_arrived(&upload->flight, parcel, behind, now_us);
}

// What came lately, and what is there in the part that the list of missing chunks covers.
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
            struct cn_chunk_range chunks = chunks_of(upload, parcel);

            if (chunks.first >= range->first &&
                chunks.first + chunks.count <= range->first + range->count)
                arrived += mark_parcel(upload, answered, parcel, now_us);
        }
    }
    for (uint32_t parcel = upload->flight.base; parcel < upload->flight.count; parcel++) {
        struct cn_chunk_range chunks = chunks_of(upload, parcel);

        if (chunks.first + chunks.count > status->known)
            break;
        if (!cn_in_flight_is_done(&upload->flight, parcel) &&
            !cn_upload_status_lacks(status, &chunks))
            arrived += mark_parcel(upload, answered, parcel, now_us);
    }
    return arrived;
}

// Chunks that the aggregator had when it crashed and that were not durable are missing once more.
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

// Notes what is there before anything is sent, of the chunks from surveyed on that the list covers.
static void settle(struct cn_upload *upload)
{
    cn_upload_status_mark(&upload->status, upload->surveyed, upload->settled);
    if (upload->status.known > upload->surveyed)
        upload->surveyed = upload->status.known;
    for (uint32_t i = 0; i < upload->flight.count; i++) {
        uint64_t end = (uint64_t)(i + 1) * upload->transfer.parcel_chunks;

        if (end > upload->surveyed && upload->surveyed < upload->chunk_count)
            break;
        if (!chunks_of(upload, i).count)
            cn_in_flight_settle(&upload->flight, i);
        else if (cn_in_flight_is_done(&upload->flight, i))
            cn_in_flight_lose(&upload->flight, i); // it was not durable, and is gone
    }
}

// Reads the body of a reply. False when it is none of ours: the aggregator is another, or confused.
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
        upload->phase = FINISHED;
    return true;
}

// The aggregator refused the frame as such: repeating it cannot help.
static void reject(struct cn_upload *upload, const struct cn_exchange_reply *reply)
{
    upload->status = (struct cn_upload_status){.decided = true, .verdict = CN_VERDICT_REJECTED};
    cn_message_copy_text(upload->status.reason, sizeof(upload->status.reason), reply->body,
                         reply->size);
    upload->phase = FINISHED;
}

static bool is_success(unsigned code)
{
    return code >= CN_COAP_CREATED && code < CN_COAP_BAD_REQUEST;
}

// All that is there has to be known before something is sent, so that nothing is sent twice.
static void go_on(struct cn_upload *upload)
{
    settle(upload);
    upload->phase = SENDING;
    if (upload->surveyed < upload->chunk_count)
        survey(upload);
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
        start_over(upload, now_us, reply->max_age_s);
        return;
    }
    if (upload->phase == FINISHED)
        return;
    cn_hex(upload->id, upload->status.id, CN_UPLOAD_ID_SIZE);
    go_on(upload);
}

static void surveyed(struct cn_upload *upload, const struct cn_exchange_reply *reply,
                     uint64_t now_us)
{
    uint32_t before = upload->surveyed;

    if (!is_success(reply->code) || !read_status(upload, reply)) {
        start_over(upload, now_us, reply->max_age_s);
        return;
    }
    if (upload->phase == FINISHED)
        return;
    go_on(upload);
    if (upload->surveyed == before) // it says nothing new: without end
        upload->phase = SENDING;
}

static void committed(struct cn_upload *upload, const struct cn_exchange_reply *reply,
                      uint64_t now_us)
{
    if (reply->code == CN_COAP_UNPROCESSABLE || !read_status(upload, reply)) {
        start_over(upload, now_us, reply->max_age_s);
        return;
    }
    if (upload->phase == FINISHED)
        return;
    if (!upload->status.missing_count) { // no verdict yet, and nothing that could be sent
        start_over(upload, now_us, reply->max_age_s);
        return;
    }
    upload->phase = SENDING;
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

    if (upload->phase != SENDING)
        return;
    if (reply->code == CN_COAP_NOT_FOUND && !upload->backoff.tries) { // decided, or forgotten
        upload->backoff.tries = 1;
        forget_progress(upload);
        declare(upload);
        return;
    }
    if (!is_success(reply->code) || !read_status(upload, reply)) {
        start_over(upload, now_us, reply->max_age_s);
        return;
    }
    if (upload->phase == FINISHED)
        return;
    if (newest)
        cn_rtt_add(upload->transfer.rtt, answered.rtt_us);
    use_status(upload, &answered, now_us);
}

bool cn_upload_reply(struct cn_upload *upload, const struct cn_exchange_reply *reply,
                     uint64_t now_us)
{
    uint32_t parcel;
    uint8_t tries;
    bool mine;

    if (cn_request_answered(&upload->call, reply, now_us, &mine)) {
        if (upload->phase == DECLARING)
            declared(upload, reply, now_us);
        else if (upload->phase == SURVEYING)
            surveyed(upload, reply, now_us);
        else if (upload->phase == COMMITTING)
            committed(upload, reply, now_us);
        return true;
    }
    if (mine)
        return true;
    if (!cn_transfer_read_tag(&upload->transfer, reply->tag, &tries, &parcel) ||
        parcel >= upload->flight.count)
        return false;
    parcel_answered(upload, reply, tries, parcel, now_us);
    return true;
}

// What it carried is there; the status that was asked for is not.
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

bool cn_upload_is_stale(const struct cn_upload *upload)
{
    return upload->stale;
}

const struct cn_upload_status *cn_upload_verdict(const struct cn_upload *upload)
{
    return upload->phase == FINISHED ? &upload->status : NULL;
}

void cn_upload_count(const struct cn_upload *upload, uint64_t *retransmissions, uint64_t *spurious)
{
    *retransmissions = upload->flight.retransmissions;
    *spurious = upload->flight.spurious;
}

// A resumed upload sends less than the frame.
uint32_t cn_upload_sent(const struct cn_upload *upload, uint64_t *size)
{
    uint32_t sent = upload->flight.next_order - 1;
    uint32_t parcels = sent < upload->flight.count ? sent : upload->flight.count;

    *size = (uint64_t)parcels * upload->transfer.parcel_chunks * upload->transfer.chunk_size;
    if (*size > upload->frame.size)
        *size = upload->frame.size;
    return sent;
}

bool cn_upload_take_gone(struct cn_upload *upload)
{
    return cn_in_flight_take_gone(&upload->flight);
}
