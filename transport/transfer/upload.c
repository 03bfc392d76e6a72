#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/log.h"
#include "transport/transfer/upload_private.h"

// A parcel asks for the status after this number of parcels, or after a quarter of the round trip
// within these limits.
#define ASK_PARCELS 16
#define ASK_PARCELS_STARTUP 4 // in STARTUP
#define ASK_MIN_US 10000
#define ASK_MAX_US 20000
#define PAUSE_MIN_MS 250
#define PAUSE_MAX_MS 30000
#define UNCONNECTED_US 50000
#define EARLY_PARCELS 8 // after this number of early parcels the declaration is repeated

static bool is_settled(const struct cn_upload *upload, uint32_t chunk)
{
    return upload->settled[chunk / 8] >> (chunk % 8) & 1;
}

struct cn_chunk_range cn_upload_chunks_of(const struct cn_upload *upload, uint32_t parcel)
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

void cn_upload_declare(struct cn_upload *upload)
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
        .steps = upload->frame.steps,
        .control_epoch = upload->frame.control_epoch,
        .control_count = upload->frame.control_count,
        .down_bps = upload->frame.down_bps,
    };
    uint8_t bytes[CN_MESSAGE_MAX];
    size_t size = 0;
    cn_err err;

    memcpy(declaration.members, upload->frame.members, sizeof(declaration.members));
    memcpy(declaration.digest, upload->frame.digest, CN_DIGEST_SIZE);
    memcpy(declaration.base, upload->frame.base, CN_DIGEST_SIZE);
    err = cn_message_put_declare(&declaration, bytes, &size);
    if (err) // cannot happen: the message has a fixed size far below the limit
        cn_log(CN_LOG_ERROR, "link", "declaring an update: %s", cn_err_text(err));
    upload->phase = CN_UPLOAD_DECLARING;
    upload->early = false;
    upload->postponed = false;
    upload->surveyed = 0;
    cn_request_start(&upload->call, CN_COAP_POST, "u", bytes, size);
}

void cn_upload_forget(struct cn_upload *upload)
{
    cn_in_flight_restart(&upload->flight);
    memset(upload->settled, 0, upload->chunk_count / 8 + 1);
}

void cn_upload_start_over(struct cn_upload *upload, uint64_t now_us, uint32_t max_age_s)
{
    uint64_t delay_ms = max_age_s ? 1000ull * max_age_s : cn_backoff_next_ms(&upload->backoff);

    cn_upload_forget(upload);
    cn_upload_declare(upload);
    upload->call.due_us = now_us + 1000 * delay_ms;
}

// Divides the frame into chunks and parcels. On an error the old division stays.
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
    cn_upload_declare(opened);
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
    if (upload->phase == CN_UPLOAD_FINISHED ||
        (upload->phase == CN_UPLOAD_DECLARING && same_chunks))
        return CN_OK;
    cn_upload_declare(upload);
    upload->call.due_us = now_us;
    return CN_OK;
}

// Returns whether the next parcel asks for the status, and counts it. About four answers come in a
// round trip, and one always when nothing more can be sent before it.
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
    struct cn_chunk_range chunks = cn_upload_chunks_of(upload, parcel);
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
    if (!exchange->ops->send(exchange, &request)) {
        upload->sent_size += request.size;
        return true;
    }
    cn_in_flight_lose_all(&upload->flight);
    return false;
}

static void send_parcels(struct cn_upload *upload, uint64_t now_us, uint64_t *wake_us)
{
    if (cn_in_flight_expire(&upload->flight, upload->transfer.rtt, now_us, wake_us))
        upload->must_ask = true;
    while (cn_in_flight_may_send(&upload->flight, now_us, wake_us)) {
        uint32_t parcel = cn_in_flight_next(&upload->flight);

        if (parcel == CN_IN_FLIGHT_NONE)
            break;
        if (!send_parcel(upload, parcel, now_us)) {
            *wake_us = now_us + UNCONNECTED_US < *wake_us ? now_us + UNCONNECTED_US : *wake_us;
            return;
        }
    }
    // A parcel sent just now may be the oldest in flight, so its time-out sets *wake_us.
    cn_in_flight_expire(&upload->flight, upload->transfer.rtt, now_us, wake_us);
}

static void commit(struct cn_upload *upload)
{
    char path[2 * CN_UPLOAD_ID_SIZE + 20];

    snprintf(path, sizeof(path), "u/%s/commit", upload->id);
    upload->phase = CN_UPLOAD_COMMITTING;
    cn_in_flight_next(
        &upload->flight); // moves fresh past all parcels, so that each may be reopened
    cn_request_start(&upload->call, CN_COAP_POST, path, NULL, 0);
}

void cn_upload_survey(struct cn_upload *upload)
{
    char path[2 * CN_UPLOAD_ID_SIZE + 20];

    snprintf(path, sizeof(path), "u/%s/%u", upload->id, upload->surveyed);
    upload->phase = CN_UPLOAD_SURVEYING;
    cn_request_start(&upload->call, CN_COAP_GET, path, NULL, 0);
}

void cn_upload_step(struct cn_upload *upload, uint64_t now_us, uint64_t *wake_us)
{
    if (upload->phase == CN_UPLOAD_SENDING && upload->flight.done == upload->flight.count)
        commit(upload);
    if (upload->early && upload->phase == CN_UPLOAD_DECLARING && upload->call.attempt == 1 &&
        upload->flight.next_order > EARLY_PARCELS)
        cn_request_hurry(&upload->call); // without the declaration all these parcels are lost
    cn_request_step(&upload->call, now_us, wake_us);
    if (upload->phase == CN_UPLOAD_SENDING || (upload->early && upload->call.sent_us))
        send_parcels(upload, now_us, wake_us);
}

void cn_upload_reconnected(struct cn_upload *upload)
{
    cn_in_flight_lose_all(&upload->flight);
    upload->must_ask = true;
    if (upload->phase == CN_UPLOAD_SENDING || upload->phase == CN_UPLOAD_SURVEYING)
        cn_upload_declare(upload); // some parcels that were in flight may have arrived
    cn_request_hurry(&upload->call);
}

void cn_upload_hurry(struct cn_upload *upload)
{
    if (upload->postponed && upload->phase == CN_UPLOAD_DECLARING)
        cn_request_hurry(&upload->call);
    upload->postponed = false;
}

bool cn_upload_is_stale(const struct cn_upload *upload)
{
    return upload->stale;
}

const struct cn_upload_status *cn_upload_verdict(const struct cn_upload *upload)
{
    return upload->phase == CN_UPLOAD_FINISHED ? &upload->status : NULL;
}

void cn_upload_count(const struct cn_upload *upload, uint64_t *retransmissions, uint64_t *spurious)
{
    *retransmissions = upload->flight.retransmissions;
    *spurious = upload->flight.spurious;
}

// Does not tell repetitions from first transmissions. A resumed upload sends less than the frame.
uint64_t cn_upload_sent_size(const struct cn_upload *upload)
{
    return upload->sent_size < upload->frame.size ? upload->sent_size : upload->frame.size;
}

bool cn_upload_take_gone(struct cn_upload *upload)
{
    return cn_in_flight_take_gone(&upload->flight);
}
