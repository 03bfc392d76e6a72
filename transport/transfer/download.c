#include "transport/transfer/download.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/log_limit.h"
#include "runtime/port/crypto.h"
#include "runtime/port/scratch.h"

#define PAUSE_MIN_MS 250
#define PAUSE_MAX_MS 30000
#define UNCONNECTED_US 50000
#define MISMATCHES_MAX 3

struct cn_download {
    struct cn_transfer transfer;
    struct cn_in_flight flight;
    struct cn_backoff backoff;
    enum cn_download_state state;
    uint8_t digest[CN_DIGEST_SIZE];
    char digest_text[2 * CN_DIGEST_SIZE + 1];
    uint8_t *data;
    size_t size;
    uint32_t chunk_count;
    struct cn_sha256 sha; // digest of the parcels before hashed
    uint32_t hashed;      // number of parcels in sha
    uint32_t mismatches;
    uint64_t paused_until_us;
};

cn_err cn_download_open(const struct cn_transfer *transfer, const uint8_t digest[CN_DIGEST_SIZE],
                        uint64_t size, struct cn_download **download)
{
    uint64_t chunks = (size + transfer->chunk_size - 1) / transfer->chunk_size;
    uint64_t count = (chunks + transfer->parcel_chunks - 1) / transfer->parcel_chunks;
    struct cn_download *opened;

    if (!size || chunks >= CN_IN_FLIGHT_NONE || size > SIZE_MAX)
        return CN_ERANGE;
    opened = calloc(1, sizeof(*opened));
    if (!opened)
        return CN_ENOMEM;
    opened->transfer = *transfer;
    opened->size = (size_t)size;
    opened->chunk_count = (uint32_t)chunks;
    opened->data = cn_scratch_allocate(opened->size);
    if (!opened->data ||
        cn_in_flight_init(&opened->flight, transfer->controller, (uint32_t)count)) {
        cn_download_close(opened);
        return CN_ENOMEM;
    }
    memcpy(opened->digest, digest, CN_DIGEST_SIZE);
    cn_hex(opened->digest_text, digest, CN_DIGEST_SIZE);
    opened->backoff =
        (struct cn_backoff){.min_ms = PAUSE_MIN_MS, .max_ms = PAUSE_MAX_MS, .seed = transfer->seed};
    cn_sha256_init(&opened->sha);
    *download = opened;
    return CN_OK;
}

void cn_download_close(struct cn_download *download)
{
    if (!download)
        return;
    cn_in_flight_deinit(&download->flight);
    cn_scratch_free(download->data);
    free(download);
}

static size_t parcel_bytes(const struct cn_download *download, uint32_t parcel)
{
    size_t full = (size_t)download->transfer.parcel_chunks * download->transfer.chunk_size;
    size_t rest = download->size - parcel * full;

    return rest < full ? rest : full;
}

static size_t offset_of(const struct cn_download *download, uint32_t parcel)
{
    return (size_t)parcel * download->transfer.parcel_chunks * download->transfer.chunk_size;
}

static bool send_request(struct cn_download *download, uint32_t parcel, uint64_t now_us)
{
    struct cn_exchange *exchange = download->transfer.exchange;
    struct cn_exchange_request request = {.method = CN_COAP_GET};
    uint32_t per = download->transfer.parcel_chunks;
    uint32_t first = parcel * per;
    uint32_t rest = download->chunk_count - first;
    char path[2 * CN_DIGEST_SIZE + 32];

    cn_in_flight_sent(&download->flight, parcel,
                      (uint32_t)parcel_bytes(download, parcel) + CN_TRANSFER_OVERHEAD, now_us);
    snprintf(path, sizeof(path), "b/%s/%u/%u", download->digest_text, first,
             rest < per ? rest : per);
    request.path = path;
    request.tag =
        cn_transfer_tag(&download->transfer, download->flight.parcels[parcel].tries, parcel);
    if (!exchange->ops->send(exchange, &request))
        return true;
    cn_in_flight_lose_all(&download->flight);
    return false;
}

static void send_requests(struct cn_download *download, uint64_t now_us, uint64_t *wake_us)
{
    struct cn_in_flight *flight = &download->flight;

    cn_in_flight_expire(flight, download->transfer.rtt, now_us, wake_us);
    while (cn_in_flight_may_send(flight, now_us, wake_us)) {
        uint32_t parcel = cn_in_flight_next(flight);

        if (parcel == CN_IN_FLIGHT_NONE)
            break;
        if (!send_request(download, parcel, now_us)) {
            *wake_us = now_us + UNCONNECTED_US < *wake_us ? now_us + UNCONNECTED_US : *wake_us;
            return;
        }
    }
    cn_in_flight_expire(flight, download->transfer.rtt, now_us, wake_us);
}

void cn_download_step(struct cn_download *download, uint64_t now_us, uint64_t *wake_us)
{
    if (download->state != CN_DOWNLOAD_RUNNING)
        return;
    if (now_us >= download->paused_until_us)
        send_requests(download, now_us, wake_us);
    else if (download->paused_until_us < *wake_us)
        *wake_us = download->paused_until_us;
}

void cn_download_reconnected(struct cn_download *download)
{
    cn_in_flight_lose_all(&download->flight);
    download->paused_until_us = 0;
}

static void pause_until(struct cn_download *download, uint64_t now_us, uint32_t max_age_s)
{
    uint64_t delay_ms = max_age_s ? 1000ull * max_age_s : cn_backoff_next_ms(&download->backoff);

    cn_in_flight_lose_all(&download->flight);
    download->paused_until_us = now_us + 1000 * delay_ms;
}

static void hash_begin(struct cn_download *download)
{
    cn_sha256_init(&download->sha);
    download->hashed = 0;
}

// Starts again because the content is wrong, and gives up after MISMATCHES_MAX times.
static void start_over(struct cn_download *download, uint64_t now_us, const char *why)
{
    cn_log_within(download->transfer.lines, now_us / 1000, CN_LOG_WARN, "link", "%.12s: %s",
                  download->digest_text, why);
    if (++download->mismatches == MISMATCHES_MAX) {
        download->state = CN_DOWNLOAD_GONE;
        return;
    }
    cn_in_flight_restart(&download->flight);
    hash_begin(download);
    pause_until(download, now_us, 0);
}

// Hashes the complete parcels at the start of the blob, so that little is left to hash at the end.
static void hash(struct cn_download *download, uint64_t now_us)
{
    uint8_t digest[CN_DIGEST_SIZE];

    while (download->hashed < download->flight.count &&
           cn_in_flight_is_done(&download->flight, download->hashed)) {
        cn_sha256_add(&download->sha, download->data + offset_of(download, download->hashed),
                      parcel_bytes(download, download->hashed));
        download->hashed++;
    }
    if (download->hashed < download->flight.count)
        return;
    cn_sha256_finish(&download->sha, digest);
    if (memcmp(digest, download->digest, CN_DIGEST_SIZE) == 0)
        download->state = CN_DOWNLOAD_FINISHED;
    else
        start_over(download, now_us, "what came does not match its digest");
}

static void accept(struct cn_download *download, const struct cn_exchange_reply *reply,
                   uint8_t tries, uint32_t parcel, uint64_t now_us)
{
    const struct cn_in_flight_parcel *entry = &download->flight.parcels[parcel];
    uint64_t rtt_us = entry->tries == tries ? now_us - entry->mark.sent_us : 0;

    if (reply->size != parcel_bytes(download, parcel)) {
        start_over(download, now_us, "a chunk has the wrong size");
        return;
    }
    if (!cn_in_flight_arrived(&download->flight, parcel, (uint8_t)(entry->tries - tries), now_us))
        return;
    memcpy(download->data + offset_of(download, parcel), reply->body, reply->size);
    download->backoff.tries = 0;
    if (rtt_us)
        cn_rtt_add(download->transfer.rtt, rtt_us);
    cn_in_flight_acked(&download->flight, rtt_us, now_us);
    hash(download, now_us);
}

bool cn_download_reply(struct cn_download *download, const struct cn_exchange_reply *reply,
                       uint64_t now_us)
{
    uint8_t tries;
    uint32_t parcel;

    if (!cn_transfer_read_tag(&download->transfer, reply->tag, &tries, &parcel) ||
        parcel >= download->flight.count)
        return false;
    if (download->state != CN_DOWNLOAD_RUNNING || now_us < download->paused_until_us)
        return true;
    if (reply->code == CN_COAP_CONTENT)
        accept(download, reply, tries, parcel, now_us);
    else if (reply->code == CN_COAP_NOT_FOUND || reply->code == CN_COAP_GONE)
        download->state = CN_DOWNLOAD_GONE;
    else
        pause_until(download, now_us, reply->max_age_s);
    return true;
}

void cn_download_again(struct cn_download *download, uint64_t tag, uint64_t now_us)
{
    uint8_t tries;
    uint32_t parcel;

    if (!cn_transfer_read_tag(&download->transfer, tag, &tries, &parcel) ||
        parcel >= download->flight.count || download->flight.parcels[parcel].tries != tries)
        return;
    cn_rtt_add(download->transfer.rtt, now_us - download->flight.parcels[parcel].mark.sent_us);
    cn_in_flight_again(&download->flight, parcel, now_us);
}

enum cn_download_state cn_download_state(const struct cn_download *download)
{
    return download->state;
}

const uint8_t *cn_download_data(const struct cn_download *download, size_t *size)
{
    *size = download->size;
    return download->data;
}

// Returns whether the bytes from first to end have all arrived.
static bool had_come(const struct cn_download *download, size_t first, size_t end)
{
    uint32_t parcel = (uint32_t)(first / offset_of(download, 1));

    for (; offset_of(download, parcel) < end; parcel++) {
        if (!cn_in_flight_is_done(&download->flight, parcel))
            return false;
    }
    return true;
}

cn_err cn_download_resize(struct cn_download *download, uint32_t chunk_size, uint32_t parcel_chunks)
{
    struct cn_transfer *transfer = &download->transfer;
    size_t chunks = (download->size - 1) / chunk_size + 1;
    size_t full = (size_t)parcel_chunks * chunk_size;
    struct cn_in_flight flight;
    cn_err err;

    if (download->state != CN_DOWNLOAD_RUNNING ||
        (chunk_size == transfer->chunk_size && parcel_chunks == transfer->parcel_chunks))
        return CN_OK;
    if (chunks >= CN_IN_FLIGHT_NONE)
        return CN_ERANGE;
    err = cn_in_flight_init(&flight, transfer->controller,
                            (uint32_t)((chunks - 1) / parcel_chunks + 1));
    if (err)
        return err;
    for (uint32_t i = 0; i < flight.count; i++) {
        size_t first = i * full, rest = download->size - first;

        if (had_come(download, first, first + (rest < full ? rest : full)))
            cn_in_flight_settle(&flight, i);
    }
    cn_in_flight_deinit(&download->flight);
    download->flight = flight;
    download->chunk_count = (uint32_t)chunks;
    transfer->chunk_size = chunk_size;
    transfer->parcel_chunks = parcel_chunks;
    transfer->generation++; // replies under way have the old parcel size
    hash_begin(download);
    return CN_OK;
}

bool cn_download_take_gone(struct cn_download *download)
{
    return cn_in_flight_take_gone(&download->flight);
}
