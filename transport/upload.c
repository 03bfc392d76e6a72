#include "transport/upload.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/log.h"

#define ASK_MAX 16 // chunks between two that ask for the status
#define PAUSE_MIN_MS 250
#define PAUSE_MAX_MS 30000
#define UNCONNECTED_US 50000
#define OVERHEAD 100 // bytes of IP, UDP, DTLS and CoAP around a chunk, for the uplink's rate

enum phase {
    DECLARING,
    SENDING,
    COMMITTING,
    FINISHED,
};

struct cn_upload {
    struct cn_transfer transfer;
    struct cn_link_upload frame;
    struct cn_flight flight;
    struct cn_pacer pacer;
    struct cn_backoff backoff;
    struct cn_call call; // declare or commit
    enum phase phase;
    struct cn_upload_status status; // the last one
    char id[2 * CN_UPLOAD_ID_SIZE + 1];
    uint32_t unasked; // chunks sent since one asked
    bool stale;
};

static uint32_t count_chunks(const struct cn_upload *upload, uint32_t chunk_size)
{
    return (uint32_t)((upload->frame.size + chunk_size - 1) / chunk_size);
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
        .train_loss = upload->frame.train_loss,
    };
    uint8_t bytes[CN_MESSAGE_MAX];
    size_t size = 0;
    cn_err err;

    memcpy(declaration.digest, upload->frame.digest, CN_DIGEST_SIZE);
    memcpy(declaration.base, upload->frame.base, CN_DIGEST_SIZE);
    err = cn_message_put_declare(&declaration, bytes, &size);
    if (err) // cannot be: the message has a fixed size far below the limit
        cn_log(CN_LOG_ERROR, "link", "declaring an update: %s", cn_err_text(err));
    upload->phase = DECLARING;
    cn_call_start(&upload->call, CN_COAP_POST, "u", bytes, size);
}

// Declares again after a pause.
static void start_over(struct cn_upload *upload, uint64_t now_us, uint32_t max_age_s)
{
    uint64_t delay_ms = max_age_s ? 1000ull * max_age_s : cn_backoff_next_ms(&upload->backoff);

    cn_flight_restart(&upload->flight);
    declare(upload);
    upload->call.due_us = now_us + 1000 * delay_ms;
}

cn_err cn_upload_open(const struct cn_transfer *transfer, const struct cn_link_upload *frame,
                      uint64_t now_us, struct cn_upload **upload)
{
    struct cn_upload *opened;

    if (!frame->size || frame->size / transfer->chunk_size >= CN_FLIGHT_NONE - 1)
        return CN_ERANGE;
    opened = calloc(1, sizeof(*opened));
    if (!opened)
        return CN_ENOMEM;
    opened->transfer = *transfer;
    opened->frame = *frame;
    if (cn_flight_init(&opened->flight, count_chunks(opened, transfer->chunk_size))) {
        free(opened);
        return CN_ENOMEM;
    }
    cn_pacer_init(&opened->pacer, transfer->window, transfer->rate_bps, now_us);
    opened->backoff =
        (struct cn_backoff){.min_ms = PAUSE_MIN_MS, .max_ms = PAUSE_MAX_MS, .seed = transfer->seed};
    cn_call_init(&opened->call, transfer->exchange, transfer->rtt, transfer->kind + 1,
                 transfer->seed);
    opened->call.number = (uint32_t)transfer->generation << 8;
    declare(opened);
    *upload = opened;
    return CN_OK;
}

void cn_upload_close(struct cn_upload *upload)
{
    if (!upload)
        return;
    cn_flight_deinit(&upload->flight);
    free(upload);
}

cn_err cn_upload_set_chunk_size(struct cn_upload *upload, uint32_t chunk_size, uint64_t now_us)
{
    struct cn_flight flight;
    cn_err err;

    upload->stale = false;
    if (chunk_size == upload->transfer.chunk_size)
        return CN_OK;
    err = cn_flight_init(&flight, count_chunks(upload, chunk_size));
    if (err)
        return err;
    cn_flight_deinit(&upload->flight);
    upload->flight = flight;
    upload->transfer.chunk_size = chunk_size;
    upload->transfer.generation++;
    if (upload->phase != FINISHED)
        start_over(upload, now_us, 0);
    return CN_OK;
}

// One of so many chunks asks: often enough that four answers come in a round trip, and always when
// nothing more can be sent before an answer.
static bool must_ask(struct cn_upload *upload)
{
    uint32_t window = (uint32_t)upload->pacer.window;
    uint32_t every = window / 4 < ASK_MAX ? window / 4 : ASK_MAX;

    upload->unasked++;
    if (upload->unasked < every && upload->flight.in_flight < window &&
        cn_flight_next(&upload->flight) != CN_FLIGHT_NONE)
        return false;
    upload->unasked = 0;
    return true;
}

static bool send_chunk(struct cn_upload *upload, uint32_t chunk, uint64_t now_us)
{
    struct cn_exchange *exchange = upload->transfer.exchange;
    size_t offset = (size_t)chunk * upload->transfer.chunk_size;
    size_t rest = upload->frame.size - offset;
    char path[2 * CN_UPLOAD_ID_SIZE + 20];
    struct cn_exchange_request request = {
        .method = CN_COAP_PUT,
        .path = path,
        .body = upload->frame.frame + offset,
        .size = rest < upload->transfer.chunk_size ? rest : upload->transfer.chunk_size,
    };

    snprintf(path, sizeof(path), "u/%s/%u", upload->id, chunk);
    cn_flight_sent(&upload->flight, chunk, now_us);
    request.silent = !must_ask(upload);
    request.tag = cn_transfer_tag(&upload->transfer, upload->flight.chunks[chunk].tries, chunk);
    if (exchange->ops->send(exchange, &request)) {
        cn_flight_lose(&upload->flight, chunk);
        return false;
    }
    cn_pacer_sent(&upload->pacer, (uint32_t)request.size + OVERHEAD);
    return true;
}

static void send_chunks(struct cn_upload *upload, uint64_t now_us, uint64_t *wake_us)
{
    cn_flight_expire(&upload->flight, upload->transfer.rtt, &upload->pacer, now_us, wake_us);
    while (cn_pacer_may_send(&upload->pacer, upload->flight.in_flight, now_us, wake_us)) {
        uint32_t chunk = cn_flight_next(&upload->flight);

        if (chunk == CN_FLIGHT_NONE)
            break;
        if (!send_chunk(upload, chunk, now_us)) {
            *wake_us = now_us + UNCONNECTED_US < *wake_us ? now_us + UNCONNECTED_US : *wake_us;
            return;
        }
    }
    // What was sent just now may be the oldest in flight.
    if (upload->flight.in_flight)
        cn_flight_expire(&upload->flight, upload->transfer.rtt, &upload->pacer, now_us, wake_us);
}

static void commit(struct cn_upload *upload)
{
    char path[2 * CN_UPLOAD_ID_SIZE + 20];

    snprintf(path, sizeof(path), "u/%s/commit", upload->id);
    upload->phase = COMMITTING;
    cn_flight_next(&upload->flight); // passes all chunks, so that each may be reopened
    cn_call_start(&upload->call, CN_COAP_POST, path, NULL, 0);
}

void cn_upload_step(struct cn_upload *upload, uint64_t now_us, uint64_t *wake_us)
{
    if (upload->phase == SENDING && upload->flight.done == upload->flight.count)
        commit(upload);
    if (upload->phase == SENDING)
        send_chunks(upload, now_us, wake_us);
    cn_call_step(&upload->call, now_us, wake_us);
}

void cn_upload_reconnected(struct cn_upload *upload, uint64_t now_us)
{
    cn_flight_lose_all(&upload->flight);
    cn_pacer_init(&upload->pacer, upload->transfer.window, upload->transfer.rate_bps, now_us);
    upload->unasked = 0;
    cn_call_hurry(&upload->call);
}

// A status lists the first missing ranges only: chunks from here on may be missing although
// unlisted.
static uint32_t horizon(const struct cn_upload_status *status)
{
    const struct cn_chunk_range *last = &status->missing[CN_RANGE_MAX - 1];

    return status->missing_count < CN_RANGE_MAX ? CN_FLIGHT_NONE : last->first + last->count;
}

static bool is_missing(const struct cn_upload_status *status, uint32_t chunk)
{
    uint32_t low = 0;
    uint32_t high = status->missing_count;

    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        const struct cn_chunk_range *range = &status->missing[middle];

        if (chunk < range->first)
            high = middle;
        else if (chunk - range->first >= range->count)
            low = middle + 1;
        else
            return true;
    }
    return false;
}

static uint32_t mark_arrived(struct cn_upload *upload, const struct cn_flight_list *list)
{
    uint32_t end = horizon(&upload->status);
    uint32_t arrived = 0;
    uint32_t next;

    for (uint32_t chunk = list->first; chunk != CN_FLIGHT_NONE; chunk = next) {
        next = upload->flight.chunks[chunk].next;
        if (chunk < end && !is_missing(&upload->status, chunk))
            arrived += cn_flight_arrived(&upload->flight, chunk);
    }
    return arrived;
}

// Chunks that the aggregator had when it crashed and that were not durable are missing once more.
static void reopen(struct cn_upload *upload, uint32_t before)
{
    for (uint32_t i = 0; i < upload->status.missing_count; i++) {
        const struct cn_chunk_range *range = &upload->status.missing[i];

        for (uint32_t j = 0; j < range->count && range->first + j < upload->flight.fresh; j++) {
            uint32_t chunk = range->first + j;

            if (cn_flight_is_done(&upload->flight, chunk) &&
                upload->flight.chunks[chunk].order < before)
                cn_flight_lose(&upload->flight, chunk);
        }
    }
}

// before: the transmission that the status answers.
static void use_status(struct cn_upload *upload, uint32_t before, uint64_t now_us)
{
    uint32_t arrived = mark_arrived(upload, &upload->flight.sent);

    arrived += mark_arrived(upload, &upload->flight.lost);
    cn_pacer_acked(&upload->pacer, arrived);
    if (arrived)
        upload->backoff.tries = 0;
    cn_flight_detect(&upload->flight, before, horizon(&upload->status), upload->transfer.rtt,
                     &upload->pacer, now_us);
    reopen(upload, before);
}

// Reads the body of a reply. False when it is none of ours: the aggregator is another, or confused.
static bool read_status(struct cn_upload *upload, const struct cn_exchange_reply *reply)
{
    struct cn_upload_status status;

    if (cn_message_get_status(reply->body, reply->size, &status))
        return false;
    if (!status.decided && status.chunk_count != upload->flight.count) {
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

static void declared(struct cn_upload *upload, const struct cn_exchange_reply *reply,
                     uint64_t now_us)
{
    uint32_t end;

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
    end = horizon(&upload->status);
    for (uint32_t i = 0; i < upload->flight.count && i < end; i++) {
        if (!is_missing(&upload->status, i))
            cn_flight_arrived(&upload->flight, i);
    }
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

static void chunk_answered(struct cn_upload *upload, const struct cn_exchange_reply *reply,
                           uint8_t tries, uint32_t chunk, uint64_t now_us)
{
    const struct cn_flight_chunk *entry = &upload->flight.chunks[chunk];
    bool exact = entry->tries == tries;

    if (upload->phase != SENDING)
        return;
    if (!is_success(reply->code) || !read_status(upload, reply)) {
        start_over(upload, now_us, reply->max_age_s);
        return;
    }
    if (upload->phase == FINISHED)
        return;
    if (exact)
        cn_rtt_add(upload->transfer.rtt, now_us - entry->sent_us);
    use_status(upload, exact ? entry->order : 0, now_us);
}

bool cn_upload_reply(struct cn_upload *upload, const struct cn_exchange_reply *reply,
                     uint64_t now_us)
{
    uint32_t chunk;
    uint8_t tries;
    bool mine;

    if (cn_call_answered(&upload->call, reply, now_us, &mine)) {
        if (upload->phase == DECLARING)
            declared(upload, reply, now_us);
        else if (upload->phase == COMMITTING)
            committed(upload, reply, now_us);
        return true;
    }
    if (mine)
        return true;
    if (!cn_transfer_read_tag(&upload->transfer, reply->tag, &tries, &chunk) ||
        chunk >= upload->flight.count)
        return false;
    chunk_answered(upload, reply, tries, chunk, now_us);
    return true;
}

bool cn_upload_is_stale(const struct cn_upload *upload)
{
    return upload->stale;
}

const struct cn_upload_status *cn_upload_verdict(const struct cn_upload *upload)
{
    return upload->phase == FINISHED ? &upload->status : NULL;
}

// A resumed upload sends less than the frame.
void cn_upload_sample(const struct cn_upload *upload, struct cn_measure_sample *sample)
{
    uint32_t sent = upload->flight.next_order - 1;
    uint32_t chunks = sent < upload->flight.count ? sent : upload->flight.count;
    uint64_t size = (uint64_t)chunks * upload->transfer.chunk_size;

    *sample = (struct cn_measure_sample){
        .size = size < upload->frame.size ? size : upload->frame.size,
        .chunks = chunks,
        .sent = sent,
    };
}
