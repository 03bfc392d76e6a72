#include "transport/board_link.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "runtime/base/log.h"
#include "runtime/port/crypto.h"
#include "runtime/port/platform.h"
#include "transport/coap_client.h"
#include "transport/download.h"
#include "transport/link_events.h"
#include "transport/measure.h"
#include "transport/round_watch.h"
#include "transport/upload.h"

#define CHUNK_DEFAULT 1024     // until the aggregator has said
#define WINDOW_DEFAULT 65536   // bytes
#define WINDOW_MAX (16u << 20) // bytes
#define MISFIT_MIN_MS 30000    // a registration that was refused is repeated slowly
#define MISFIT_MAX_MS 600000

enum kind { // first byte of a tag
    KIND_REGISTER = 1,
    KIND_KEY,
    KIND_ROUND,
    KIND_DOWNLOAD,
    KIND_UPLOAD,
    KIND_UPLOAD_CALL, // upload.c: kind + 1
};

struct link {
    struct cn_link base;
    struct cn_exchange *exchange;
    char board[CN_NAME_SIZE];
    uint64_t uplink_bps;
    uint64_t seed;
    struct cn_rtt rtt;
    struct cn_controller up, down; // what is known of the path, each way
    uint32_t parcel_size;          // bytes that a message carries; 0: nothing is known yet
    int epoll, timer;

    enum cn_exchange_state told; // UP, DOWN or REFUSED
    uint32_t session;

    struct cn_registration facts;
    bool enlisted;      // enlist was called
    bool must_register; // 4.01, or another chunk size: due
    struct cn_call registering, keying;
    struct cn_backoff misfit;
    struct cn_register_reply reply; // chunk_size 0: never registered
    struct cn_manifest manifest;
    uint32_t next_key;

    struct cn_round_watch watch;

    struct cn_download *download;
    struct cn_upload *upload;
    uint64_t download_us, upload_us; // when they were begun
    struct cn_link_measure measure;
    uint16_t generation;
    struct cn_download *fetched; // finished; its data lives until the poll after FETCHED

    struct cn_link_events events;
};

static struct cn_link_event *push(struct link *link, enum cn_link_event_type type)
{
    return cn_link_events_push(&link->events, type);
}

// ---- registration

static void start_registration(struct link *link)
{
    struct cn_register_request request = {
        .protocol = {CN_PROTOCOL_MIN, CN_PROTOCOL_MAX},
        .update_format = {CN_UPDATE_FORMAT_MIN, CN_UPDATE_FORMAT_MAX},
        .graph_ops = {CN_GRAPH_OPS_MIN, CN_GRAPH_OPS_MAX},
        .facts = link->facts,
    };
    uint8_t bytes[CN_MESSAGE_MAX];
    size_t size = 0;
    cn_err err = cn_message_put_register(&request, bytes, &size);

    link->must_register = false;
    if (err) {
        cn_log(CN_LOG_ERROR, "link", "registration: %s", cn_err_text(err));
        return;
    }
    cn_call_stop(&link->keying);
    cn_call_start(&link->registering, CN_COAP_POST, "reg", bytes, size);
}

static uint32_t chunk_size(const struct link *link)
{
    return link->reply.chunk_size ? link->reply.chunk_size : CHUNK_DEFAULT;
}

static uint32_t parcel_chunks(const struct link *link)
{
    uint32_t chunks = link->exchange->ops->body_max(link->exchange) / chunk_size(link);

    return chunks ? chunks : 1;
}

static uint64_t window(const struct link *link)
{
    uint64_t bytes = (uint64_t)link->reply.window * link->reply.chunk_size;

    if (!bytes)
        return WINDOW_DEFAULT;
    return bytes < WINDOW_MAX ? bytes : WINDOW_MAX;
}

// Forgets what is known of the path: it may be another one.
static void restart_controllers(struct link *link)
{
    uint32_t size = parcel_chunks(link) * chunk_size(link);

    link->parcel_size = size;
    cn_controller_init(&link->up, size + CN_TRANSFER_OVERHEAD, window(link), link->uplink_bps,
                       link->rtt.srtt_us);
    cn_controller_init(&link->down, size + CN_TRANSFER_OVERHEAD, window(link), 0,
                       link->rtt.srtt_us);
}

// After a registration, or when the path takes larger or smaller messages.
static void fit_transfers(struct link *link, uint64_t now_us)
{
    if (link->parcel_size != parcel_chunks(link) * chunk_size(link))
        restart_controllers(link);
    link->up.window_max = link->down.window_max = window(link);
    if (link->upload &&
        cn_upload_resize(link->upload, chunk_size(link), parcel_chunks(link), now_us))
        cn_log(CN_LOG_WARN, "link", "no memory to cut the update anew"); // goes on with the old
}

static void finish_registration(struct link *link, uint64_t now_us)
{
    push(link, CN_LINK_REGISTERED)->manifest = &link->manifest;
    cn_round_watch_renew(&link->watch, now_us);
    fit_transfers(link, now_us);
}

// Asks for the keys one after another: a group has at most 16 members.
static void ask_key(struct link *link, uint64_t now_us)
{
    char path[CN_NAME_SIZE + 4];

    while (link->next_key < link->facts.member_count &&
           strcmp(link->facts.members[link->next_key], link->board) == 0)
        link->next_key++;
    if (link->next_key >= link->facts.member_count) {
        finish_registration(link, now_us);
        return;
    }
    snprintf(path, sizeof(path), "k/%s", link->facts.members[link->next_key]);
    cn_call_start(&link->keying, CN_COAP_GET, path, NULL, 0);
}

// A member without a key is one that is not enrolled yet: it stays out, the others go on.
static void key_answered(struct link *link, const struct cn_exchange_reply *reply, uint64_t now_us)
{
    if (reply->code == CN_COAP_CONTENT && reply->size == CN_KEY_SIZE)
        memcpy(link->manifest.pair_keys[link->next_key], reply->body, CN_KEY_SIZE);
    else
        cn_log(CN_LOG_WARN, "link", "no key for the pair with %s (%u.%02u)",
               link->facts.members[link->next_key], reply->code >> 5, reply->code & 31);
    link->next_key++;
    ask_key(link, now_us);
}

static void registration_refused(struct link *link, const struct cn_exchange_reply *reply,
                                 uint64_t now_us)
{
    struct cn_link_event *event;
    char why[120] = "the manifest is malformed";

    if (!link->misfit.tries) {
        if (reply->code >= CN_COAP_BAD_REQUEST)
            cn_message_copy_text(why, sizeof(why), reply->body, reply->size);
        event = push(link, CN_LINK_REFUSED);
        snprintf(event->text, sizeof(event->text), "registration refused (%u.%02u): %s",
                 reply->code >> 5, reply->code & 31, why);
    }
    start_registration(link);
    link->registering.due_us = now_us + 1000 * cn_backoff_next_ms(&link->misfit);
}

static void registered(struct link *link, const struct cn_exchange_reply *reply, uint64_t now_us)
{
    struct cn_register_reply message;

    if (reply->code != CN_COAP_CONTENT ||
        cn_message_get_manifest(reply->body, reply->size, &message)) {
        registration_refused(link, reply, now_us);
        return;
    }
    link->misfit.tries = 0;
    link->reply = message;
    link->manifest = message.manifest;
    link->next_key = 0;
    ask_key(link, now_us);
}

// ---- replies

static bool on_reply(void *context, const struct cn_exchange_reply *reply)
{
    struct link *link = context;
    uint64_t now_us = cn_platform_now_us();
    bool mine, changed;

    if (reply->code == CN_COAP_UNAUTHORIZED && link->enlisted && !link->registering.active)
        link->must_register = true;
    switch (reply->tag >> 56) {
    case KIND_REGISTER:
        if (cn_call_answered(&link->registering, reply, now_us, &mine))
            registered(link, reply, now_us);
        return mine;
    case KIND_KEY:
        if (cn_call_answered(&link->keying, reply, now_us, &mine))
            key_answered(link, reply, now_us);
        return mine;
    case KIND_ROUND:
        mine = cn_round_watch_reply(&link->watch, reply, now_us, &changed);
        if (changed)
            push(link, CN_LINK_ROUND)->round = &link->watch.round;
        return mine;
    case KIND_DOWNLOAD:
        return link->download && cn_download_reply(link->download, reply, now_us);
    case KIND_UPLOAD:
    case KIND_UPLOAD_CALL:
        return link->upload && cn_upload_reply(link->upload, reply, now_us);
    default:
        return false;
    }
}

// ---- poll

static void tell_state(struct link *link)
{
    const char *text;
    enum cn_exchange_state state = link->exchange->ops->state(link->exchange, &text);
    struct cn_link_event *event;

    if (state == CN_EXCHANGE_CONNECTING || state == link->told)
        return;
    link->told = state;
    if (state == CN_EXCHANGE_UP) {
        push(link, CN_LINK_UP);
        return;
    }
    event = push(link, state == CN_EXCHANGE_DOWN ? CN_LINK_DOWN : CN_LINK_REFUSED);
    snprintf(event->text, sizeof(event->text), "%s", text);
}

// Whatever was on its way over the old session is lost, observations too.
static void check_session(struct link *link, uint64_t now_us)
{
    uint32_t session = link->exchange->ops->session(link->exchange);

    if (session == link->session)
        return;
    link->session = session;
    link->rtt = (struct cn_rtt){0};
    if (!link->misfit.tries)
        cn_call_hurry(&link->registering);
    cn_call_hurry(&link->keying);
    cn_round_watch_reconnected(&link->watch, now_us);
    restart_controllers(link);
    if (link->download)
        cn_download_reconnected(link->download);
    if (link->upload)
        cn_upload_reconnected(link->upload);
}

static void finish_transfers(struct link *link, uint64_t now_us)
{
    const struct cn_upload_status *status;
    struct cn_measure_sample sample;
    struct cn_link_event *event;

    if (link->download && cn_download_state(link->download) == CN_DOWNLOAD_FINISHED) {
        event = push(link, CN_LINK_FETCHED);
        event->data = cn_download_data(link->download, &event->size);
        cn_download_sample(link->download, &sample);
        sample.elapsed_us = now_us - link->download_us;
        cn_measure_down(&link->measure, &sample);
        link->fetched = link->download;
        link->download = NULL;
    } else if (link->download && cn_download_state(link->download) == CN_DOWNLOAD_GONE) {
        push(link, CN_LINK_GONE);
        cn_download_close(link->download);
        link->download = NULL;
    }
    status = link->upload ? cn_upload_verdict(link->upload) : NULL;
    if (status) {
        event = push(link, CN_LINK_RECEIPT);
        cn_upload_sample(link->upload, &sample);
        sample.elapsed_us = now_us - link->upload_us;
        cn_measure_up(&link->measure, &sample);
        event->verdict = status->verdict;
        memcpy(event->accepted, status->accepted, CN_DIGEST_SIZE);
        snprintf(event->text, sizeof(event->text), "%s", status->reason);
        cn_upload_close(link->upload);
        link->upload = NULL;
    }
}

static void set_timer(struct link *link, uint64_t wake_us, uint64_t now_us)
{
    uint64_t wait_us = wake_us > now_us ? wake_us - now_us : 1;
    struct itimerspec when = {0};

    if (wake_us != UINT64_MAX) {
        when.it_value.tv_sec = (time_t)(wait_us / 1000000);
        when.it_value.tv_nsec = (long)(wait_us % 1000000) * 1000;
    }
    timerfd_settime(link->timer, 0, &when, NULL);
}

static uint64_t drive(struct link *link, uint64_t now_us)
{
    uint64_t wake_us = UINT64_MAX;

    if (link->upload && cn_upload_is_stale(link->upload) && !link->registering.active &&
        !link->keying.active)
        link->must_register = true;
    if (link->must_register)
        start_registration(link);
    cn_call_step(&link->registering, now_us, &wake_us);
    cn_call_step(&link->keying, now_us, &wake_us);
    cn_round_watch_step(&link->watch, now_us, &wake_us);
    if (link->download)
        cn_download_step(link->download, now_us, &wake_us);
    if (link->upload)
        cn_upload_step(link->upload, now_us, &wake_us);
    return wake_us;
}

static cn_err poll_link(struct cn_link *base, struct cn_link_event *event)
{
    struct link *link = (struct link *)base;
    uint64_t wake_us, drive_us, now_us;

    if (link->events.count) // all events of one round of work come before the next
        return cn_link_events_pop(&link->events, event);
    cn_download_close(link->fetched);
    link->fetched = NULL;
    wake_us = link->exchange->ops->step(link->exchange);
    now_us = cn_platform_now_us();
    tell_state(link);
    check_session(link, now_us);
    drive_us = drive(link, now_us);
    link->measure.rtt_us = link->rtt.srtt_us ? link->rtt.srtt_us : link->measure.rtt_us;
    finish_transfers(link, now_us);
    set_timer(link, link->events.count ? 0 : drive_us < wake_us ? drive_us : wake_us, now_us);
    return cn_link_events_pop(&link->events, event);
}

// ---- requests

static cn_err enlist(struct cn_link *base, const struct cn_registration *registration)
{
    struct link *link = (struct link *)base;

    if (registration->member_count > CN_GROUP_MAX)
        return CN_EINVAL;
    for (uint32_t i = 0; i < registration->member_count; i++) {
        if (!cn_name_valid(registration->members[i]))
            return CN_EINVAL;
    }
    if (link->registering.active || link->keying.active)
        return CN_EAGAIN;
    link->facts = *registration;
    link->enlisted = true;
    link->misfit.tries = 0;
    start_registration(link);
    set_timer(link, 0, 0);
    return CN_OK;
}

static cn_err watch(struct cn_link *base, bool on)
{
    struct link *link = (struct link *)base;

    cn_round_watch_set(&link->watch, on);
    set_timer(link, 0, 0);
    return CN_OK;
}

static struct cn_transfer transfer_of(struct link *link, enum kind kind)
{
    struct cn_controller *controller = kind == KIND_UPLOAD ? &link->up : &link->down;

    if (!link->parcel_size)
        restart_controllers(link);
    if (controller->bandwidth == 0)
        controller->srtt_us = link->rtt.srtt_us;
    return (struct cn_transfer){
        .exchange = link->exchange,
        .rtt = &link->rtt,
        .controller = controller,
        .kind = (uint8_t)kind,
        .generation = ++link->generation,
        .chunk_size = chunk_size(link),
        .parcel_chunks = parcel_chunks(link),
        .seed = link->seed + link->generation,
    };
}

static cn_err fetch(struct cn_link *base, const uint8_t digest[CN_DIGEST_SIZE], uint64_t size,
                    uint64_t limit)
{
    struct link *link = (struct link *)base;
    struct cn_transfer transfer;
    cn_err err;

    if (size > limit)
        return CN_ERANGE;
    if (link->download)
        return CN_EAGAIN;
    transfer = transfer_of(link, KIND_DOWNLOAD);
    link->download_us = cn_platform_now_us();
    err = cn_download_open(&transfer, digest, size, &link->download);
    set_timer(link, 0, 0);
    return err;
}

static cn_err upload(struct cn_link *base, const struct cn_link_upload *frame)
{
    struct link *link = (struct link *)base;
    struct cn_transfer transfer;
    cn_err err;

    if (link->upload)
        return CN_EAGAIN;
    transfer = transfer_of(link, KIND_UPLOAD);
    link->upload_us = cn_platform_now_us();
    err = cn_upload_open(&transfer, frame, &link->upload);
    set_timer(link, 0, 0);
    return err;
}

static void abandon(struct cn_link *base)
{
    struct link *link = (struct link *)base;

    cn_link_events_forget_transfers(&link->events);
    cn_download_close(link->download);
    cn_download_close(link->fetched);
    link->download = link->fetched = NULL;
    cn_upload_close(link->upload);
    link->upload = NULL;
}

static int descriptor(const struct cn_link *base)
{
    return ((const struct link *)base)->epoll;
}

static void stats(const struct cn_link *base, struct cn_link_stats *result)
{
    const struct link *link = (const struct link *)base;
    struct cn_exchange_stats exchange;

    link->exchange->ops->stats(link->exchange, &exchange);
    *result = (struct cn_link_stats){exchange.bytes_up, exchange.bytes_down};
}

static void measure(const struct cn_link *base, struct cn_link_measure *result)
{
    *result = ((const struct link *)base)->measure;
}

static void close_link(struct cn_link *base)
{
    struct link *link = (struct link *)base;

    if (!link)
        return;
    abandon(base);
    link->exchange->ops->close(link->exchange);
    if (link->timer >= 0)
        close(link->timer);
    if (link->epoll >= 0)
        close(link->epoll);
    cn_crypto_wipe(link->manifest.pair_keys, sizeof(link->manifest.pair_keys));
    free(link);
}

static cn_err open_descriptors(struct link *link)
{
    struct epoll_event event = {.events = EPOLLIN};

    link->epoll = epoll_create1(EPOLL_CLOEXEC);
    link->timer = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
    if (link->epoll < 0 || link->timer < 0 ||
        epoll_ctl(link->epoll, EPOLL_CTL_ADD, link->timer, &event) ||
        epoll_ctl(link->epoll, EPOLL_CTL_ADD, link->exchange->ops->descriptor(link->exchange),
                  &event))
        return CN_EIO;
    return CN_OK;
}

static void init(struct link *link, const struct cn_link_config *config)
{
    snprintf(link->board, sizeof(link->board), "%s", config->board);
    link->uplink_bps = config->uplink_bps;
    link->exchange->sink = on_reply;
    link->exchange->context = link;
    link->told = CN_EXCHANGE_UP; // nothing to tell about a link that just works
    link->misfit =
        (struct cn_backoff){.min_ms = MISFIT_MIN_MS, .max_ms = MISFIT_MAX_MS, .seed = link->seed};
    cn_call_init(&link->registering, link->exchange, &link->rtt, KIND_REGISTER, link->seed);
    cn_call_init(&link->keying, link->exchange, &link->rtt, KIND_KEY, link->seed);
    cn_round_watch_init(&link->watch, link->exchange, &link->rtt, KIND_ROUND, link->seed);
    link->base.ops = &cn_board_link;
}

cn_err cn_board_link_open_over(struct cn_exchange *exchange, const struct cn_link_config *config,
                               struct cn_link **link)
{
    struct link *opened = calloc(1, sizeof(*opened));
    cn_err err;

    if (!opened) {
        exchange->ops->close(exchange);
        return CN_ENOMEM;
    }
    opened->exchange = exchange;
    opened->epoll = opened->timer = -1;
    err = cn_crypto_random(&opened->seed, sizeof(opened->seed));
    if (!err)
        err = open_descriptors(opened);
    if (err) {
        close_link(&opened->base);
        return err;
    }
    init(opened, config);
    *link = &opened->base;
    return CN_OK;
}

static cn_err open_link(const struct cn_link_config *config, struct cn_link **link)
{
    struct cn_coap_client_config client = {
        .board = config->board,
        .addresses = config->addresses,
        .address_count = config->address_count,
    };
    struct cn_exchange *exchange;
    cn_err err;

    memcpy(client.key, config->key, CN_KEY_SIZE);
    err = cn_coap_client_open(&client, &exchange);
    cn_crypto_wipe(client.key, sizeof(client.key));
    return err ? err : cn_board_link_open_over(exchange, config, link);
}

const struct cn_link_ops cn_board_link = {
    .open = open_link,
    .close = close_link,
    .descriptor = descriptor,
    .poll = poll_link,
    .enlist = enlist,
    .watch = watch,
    .fetch = fetch,
    .upload = upload,
    .abandon = abandon,
    .stats = stats,
    .measure = measure,
};
