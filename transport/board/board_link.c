#include "transport/board/board_link.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "runtime/base/log_limit.h"
#include "runtime/port/crypto.h"
#include "runtime/port/platform.h"
#include "transport/board/health_report.h"
#include "transport/board/link_events.h"
#include "transport/board/order_answer.h"
#include "transport/board/registrar.h"
#include "transport/board/registration_file.h"
#include "transport/board/round_watch.h"
#include "transport/coap/coap_client.h"
#include "transport/transfer/download.h"
#include "transport/transfer/path_mtu.h"
#include "transport/transfer/path_stats.h"
#include "transport/transfer/upload.h"

#define CHUNK_DEFAULT 1024     // bytes, until the aggregator names the chunk size
#define WINDOW_DEFAULT 65536   // bytes
#define WINDOW_MAX (16u << 20) // bytes

enum kind { // first byte of a tag
    KIND_REGISTER = 1,
    KIND_KEY, // registrar.c: kind + 1
    KIND_ROUND,
    KIND_DOWNLOAD,
    KIND_UPLOAD,
    KIND_UPLOAD_CALL, // upload.c: kind + 1
    KIND_PROBE,
    KIND_HEALTH,
    KIND_HEALTH_NOTE, // health_report.c: kind + 1
    KIND_ORDER,
};

struct link {
    struct cn_link base;
    struct cn_exchange *exchange;
    char board[CN_NAME_SIZE];
    uint64_t uplink_bps;
    uint64_t seed;
    struct cn_rtt rtt;
    struct cn_path_mtu mtu;
    struct cn_controller up, down; // models of the path in each direction
    uint32_t parcel_size;          // bytes of a full parcel; 0: the controllers are not set up yet
    int epoll, timer;              // epoll watches the timer and the exchange

    enum cn_exchange_state told; // the last state reported by an event: UP, DOWN or REFUSED
    uint32_t session;            // value of exchange->sessions that was handled last

    struct cn_registrar registrar;
    struct cn_round_watch watch;
    struct cn_health_report health;
    struct cn_order_answer order;

    struct cn_download *download;
    struct cn_upload *upload;
    struct cn_path_stats measure;
    bool wants_stream;           // transport to use from the next pause between transfers on
    uint16_t generation;         // number of the newest transfer
    struct cn_download *fetched; // the finished download; kept until the poll after FETCHED

    struct cn_link_events events;
    struct cn_log_quota transfer_lines; // limits log lines about what the gateway sends
};

static struct cn_link_event *push(struct link *link, enum cn_link_event_type type)
{
    return cn_link_events_push(&link->events, type);
}

// --- transfers ---

static uint32_t chunk_size(const struct link *link)
{
    return link->registrar.reply.chunk_size ? link->registrar.reply.chunk_size : CHUNK_DEFAULT;
}

static uint32_t parcel_chunks(const struct link *link)
{
    uint32_t chunks = cn_path_mtu_body(&link->mtu) / chunk_size(link);

    return chunks ? chunks : 1;
}

static uint64_t window(const struct link *link)
{
    uint64_t bytes = (uint64_t)link->registrar.reply.window * link->registrar.reply.chunk_size;

    if (!bytes)
        return WINDOW_DEFAULT;
    return bytes < WINDOW_MAX ? bytes : WINDOW_MAX;
}

// Starts new models of the path, because it may be another one.
static void restart_controllers(struct link *link)
{
    uint32_t size = parcel_chunks(link) * chunk_size(link);

    link->parcel_size = size;
    cn_controller_init(&link->up, size + CN_TRANSFER_OVERHEAD, window(link), link->uplink_bps,
                       link->rtt.srtt_us);
    cn_controller_init(&link->down, size + CN_TRANSFER_OVERHEAD, window(link), 0,
                       link->rtt.srtt_us);
    link->up.stream = link->down.stream = link->exchange->stream;
}

// Adapts controllers and transfers after a registration, or when the path takes another size.
static void fit_transfers(struct link *link, uint64_t now_us)
{
    uint32_t chunks = parcel_chunks(link), size = chunks * chunk_size(link);

    link->parcel_size = size;
    cn_controller_fit(&link->up, size + CN_TRANSFER_OVERHEAD, link->exchange->stream);
    cn_controller_fit(&link->down, size + CN_TRANSFER_OVERHEAD, link->exchange->stream);
    link->up.window_max = link->down.window_max = window(link);
    // Without memory for new parcels the transfers keep the old ones.
    if ((link->upload && cn_upload_resize(link->upload, chunk_size(link), chunks, now_us)) ||
        (link->download && cn_download_resize(link->download, chunk_size(link), chunks)))
        cn_log(CN_LOG_WARN, "link", "no memory to divide a transfer again");
}

// --- replies ---

static bool on_reply(void *context, const struct cn_exchange_reply *reply)
{
    struct link *link = context;
    uint64_t now_us = cn_platform_now_us();
    enum cn_round_change change;
    bool mine, done;
    struct cn_order order;

    if (reply->code == CN_COAP_UNAUTHORIZED && link->registrar.has_facts &&
        !link->registrar.asking.active)
        link->registrar.due = true;
    switch (reply->tag >> 56) {
    case KIND_REGISTER:
    case KIND_KEY:
        mine = cn_registrar_reply(&link->registrar, reply, now_us, &done);
        if (done) {
            cn_round_watch_renew(&link->watch, now_us);
            fit_transfers(link, now_us);
        }
        return mine;
    case KIND_ROUND:
        mine = cn_round_watch_reply(&link->watch, reply, now_us, &change);
        if (change == CN_ROUND_CHANGED)
            push(link, CN_LINK_ROUND)->round = &link->watch.round;
        if (change == CN_ROUND_MOVED)
            push(link, CN_LINK_ROUND_TIME)->round = &link->watch.round;
        if (change == CN_ROUND_CHANGED && link->upload)
            cn_upload_hurry(link->upload);
        return mine;
    case KIND_DOWNLOAD:
        return link->download && cn_download_reply(link->download, reply, now_us);
    case KIND_UPLOAD:
    case KIND_UPLOAD_CALL:
        return link->upload && cn_upload_reply(link->upload, reply, now_us);
    case KIND_PROBE: // fits at once, because the answer to a declaration may come next
        mine = cn_path_mtu_reply(&link->mtu, reply, now_us);
        if (link->parcel_size != parcel_chunks(link) * chunk_size(link))
            fit_transfers(link, now_us);
        return mine;
    case KIND_HEALTH:
    case KIND_HEALTH_NOTE:
        mine = cn_health_report_reply(&link->health, reply, now_us, &order);
        if (order.seq)
            push(link, CN_LINK_ORDER)->order = order;
        return mine;
    case KIND_ORDER:
        return cn_order_answer_reply(&link->order, reply, now_us);
    default:
        return false;
    }
}

static void on_again(void *context, uint64_t tag)
{
    struct link *link = context;
    uint64_t now_us = cn_platform_now_us();

    cn_request_again(&link->registrar.asking, tag, now_us);
    cn_request_again(&link->registrar.keying, tag, now_us);
    cn_request_again(&link->watch.asking, tag, now_us);
    cn_request_again(&link->health.asking, tag, now_us);
    cn_request_again(&link->order.asking, tag, now_us);
    if (link->download)
        cn_download_again(link->download, tag, now_us);
    if (link->upload)
        cn_upload_again(link->upload, tag, now_us);
}

// --- poll ---

static void tell_state(struct link *link)
{
    enum cn_exchange_state state = link->exchange->state;
    struct cn_link_event *event;

    if (state == CN_EXCHANGE_CONNECTING || state == link->told)
        return;
    link->told = state;
    if (state == CN_EXCHANGE_UP) {
        push(link, CN_LINK_UP);
        return;
    }
    event = push(link, state == CN_EXCHANGE_DOWN ? CN_LINK_DOWN : CN_LINK_REFUSED);
    snprintf(event->text, sizeof(event->text), "%s", link->exchange->text);
}

// Repeats everything under way after a new session: messages and observations of the old one are
// lost.
static void check_session(struct link *link, uint64_t now_us)
{
    uint32_t session = link->exchange->sessions;

    if (session == link->session)
        return;
    link->session = session;
    link->wants_stream = link->exchange->stream;
    link->rtt = (struct cn_rtt){0};
    cn_registrar_reconnected(&link->registrar);
    cn_round_watch_reconnected(&link->watch, now_us);
    cn_health_report_reconnected(&link->health);
    cn_request_hurry(&link->order.asking);
    cn_path_mtu_restart(&link->mtu);
    restart_controllers(link);
    fit_transfers(link, now_us);
    if (link->download)
        cn_download_reconnected(link->download);
    if (link->upload)
        cn_upload_reconnected(link->upload);
}

static void finish_download(struct link *link, uint64_t now_us)
{
    enum cn_download_state state = cn_download_state(link->download);
    struct cn_link_event *event;

    if (state == CN_DOWNLOAD_RUNNING)
        return;
    if (state == CN_DOWNLOAD_FINISHED) {
        event = push(link, CN_LINK_FETCHED);
        event->data = cn_download_data(link->download, &event->size);
        link->wants_stream = cn_path_stats_end(&link->measure, false, &link->down, event->size,
                                               link->parcel_size, now_us);
        link->fetched = link->download;
    } else {
        push(link, CN_LINK_GONE);
        cn_download_close(link->download);
    }
    link->download = NULL;
}

static void finish_upload(struct link *link, uint64_t now_us)
{
    const struct cn_upload_status *status = cn_upload_verdict(link->upload);
    struct cn_link_event *event;

    if (!status)
        return;
    event = push(link, CN_LINK_RECEIPT);
    link->wants_stream =
        cn_path_stats_end(&link->measure, true, &link->up, cn_upload_sent_size(link->upload),
                          link->parcel_size, now_us);
    event->verdict = status->verdict;
    memcpy(event->accepted, status->accepted, CN_DIGEST_SIZE);
    snprintf(event->text, sizeof(event->text), "%s", status->reason);
    cn_upload_close(link->upload);
    link->upload = NULL;
}

static void finish_transfers(struct link *link, uint64_t now_us)
{
    if (link->download)
        finish_download(link, now_us);
    if (link->upload)
        finish_upload(link, now_us);
    if (!link->download && !link->upload && link->wants_stream != link->exchange->stream &&
        link->exchange->state == CN_EXCHANGE_UP &&
        link->exchange->ops->use_stream(link->exchange, link->wants_stream))
        link->wants_stream = link->exchange->stream; // the profile leaves no choice
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

    if (link->upload && cn_upload_is_stale(link->upload) && !cn_registrar_is_busy(&link->registrar))
        link->registrar.due = true;
    if ((link->upload && cn_upload_take_gone(link->upload)) ||
        (link->download && cn_download_take_gone(link->download)))
        cn_path_mtu_doubt(&link->mtu);
    cn_path_mtu_step(&link->mtu, now_us, &wake_us);
    if (link->parcel_size != parcel_chunks(link) * chunk_size(link))
        fit_transfers(link, now_us);
    cn_registrar_step(&link->registrar, now_us, &wake_us);
    cn_round_watch_step(&link->watch, now_us, &wake_us);
    cn_health_report_step(&link->health, now_us, &wake_us);
    cn_order_answer_step(&link->order, now_us, &wake_us);
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

    if (link->events.count) // reports all events before it does more work
        return cn_link_events_pop(&link->events, event);
    cn_download_close(link->fetched);
    link->fetched = NULL;
    wake_us = link->exchange->ops->step(link->exchange);
    now_us = cn_platform_now_us();
    tell_state(link);
    check_session(link, now_us);
    drive_us = drive(link, now_us);
    finish_transfers(link, now_us);
    set_timer(link, link->events.count ? 0 : drive_us < wake_us ? drive_us : wake_us, now_us);
    return cn_link_events_pop(&link->events, event);
}

// --- requests ---

static cn_err register_board(struct cn_link *base, const struct cn_registration *registration)
{
    struct link *link = (struct link *)base;

    if (registration->member_count > CN_GROUP_MAX)
        return CN_EINVAL;
    for (uint32_t i = 0; i < registration->member_count; i++) {
        if (!cn_name_valid(registration->members[i]))
            return CN_EINVAL;
    }
    if (cn_registrar_is_busy(&link->registrar) && !registration->fault[0] &&
        !link->registrar.announces)
        return CN_EAGAIN;
    link->registrar.facts = *registration;
    link->registrar.has_facts = true;
    link->registrar.mismatch.tries = 0;
    cn_registrar_start(&link->registrar);
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

static void tell(struct cn_link *base, const struct cn_health *health)
{
    struct link *link = (struct link *)base;

    if (link->exchange->state == CN_EXCHANGE_UP && link->registrar.is_registered)
        cn_health_report_send(&link->health, health, !link->watch.on);
    set_timer(link, 0, 0);
}

static void answer(struct cn_link *base, uint32_t seq, bool refused, const void *text, size_t size)
{
    struct link *link = (struct link *)base;

    cn_order_answer_start(&link->order, seq, refused, text, size);
    set_timer(link, 0, 0);
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
        .board = link->board,
        .kind = (uint8_t)kind,
        .generation = ++link->generation,
        .chunk_size = chunk_size(link),
        .parcel_chunks = parcel_chunks(link),
        .seed = link->seed + link->generation,
        .lines = &link->transfer_lines,
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
    cn_path_stats_begin(&link->measure, false, &link->down, cn_platform_now_us());
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
    cn_path_stats_begin(&link->measure, true, &link->up, cn_platform_now_us());
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
    const struct cn_exchange *exchange = ((const struct link *)base)->exchange;

    *result = (struct cn_link_stats){exchange->stats.up, exchange->stats.down, exchange->stream};
}

static void measure(const struct cn_link *base, struct cn_link_path_stats *result)
{
    const struct link *link = (const struct link *)base;

    *result = link->measure.figures;
    if (!result->rtt_us) // no transfer yet
        result->rtt_us = link->rtt.srtt_us;
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
    cn_crypto_wipe(&link->registrar, sizeof(link->registrar)); // it holds the pair keys
    free(link);
}

static cn_err open_descriptors(struct link *link)
{
    struct epoll_event event = {.events = EPOLLIN};

    link->epoll = epoll_create1(EPOLL_CLOEXEC);
    link->timer = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
    if (link->epoll < 0 || link->timer < 0 ||
        epoll_ctl(link->epoll, EPOLL_CTL_ADD, link->timer, &event) ||
        epoll_ctl(link->epoll, EPOLL_CTL_ADD, link->exchange->descriptor, &event))
        return CN_EIO;
    return CN_OK;
}

static cn_err keep_registration(struct link *link, const struct cn_link_config *config)
{
    uint8_t origin[CN_DIGEST_SIZE];
    cn_err err = config->store ? cn_registration_origin(config, origin) : CN_OK;

    if (!err && config->store)
        cn_registrar_keep(&link->registrar, config->store, origin, cn_platform_now_us());
    return err;
}

static void init(struct link *link, const struct cn_link_config *config)
{
    snprintf(link->board, sizeof(link->board), "%s", config->board);
    link->uplink_bps = config->uplink_bps;
    link->exchange->sink = on_reply;
    link->exchange->again = on_again;
    link->exchange->context = link;
    link->told = CN_EXCHANGE_UP; // no event for a link that works from the start
    cn_registrar_init(&link->registrar, link->board, &link->events, link->exchange, &link->rtt,
                      KIND_REGISTER, link->seed);
    cn_round_watch_init(&link->watch, link->exchange, &link->rtt, KIND_ROUND, link->seed);
    cn_path_mtu_init(&link->mtu, link->exchange, &link->rtt, KIND_PROBE);
    cn_health_report_init(&link->health, link->exchange, &link->rtt, KIND_HEALTH, link->seed);
    cn_order_answer_init(&link->order, link->exchange, &link->rtt, KIND_ORDER, link->seed);
    link->wants_stream = link->exchange->stream;
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
    err = keep_registration(opened, config);
    if (err) {
        close_link(&opened->base);
        return err;
    }
    *link = &opened->base;
    return CN_OK;
}

static cn_err open_link(const struct cn_link_config *config, struct cn_link **link)
{
    struct cn_coap_client_config client = {
        .board = config->board,
        .addresses = config->addresses,
        .address_count = config->address_count,
        .transport = config->transport,
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
    .register_board = register_board,
    .watch = watch,
    .fetch = fetch,
    .upload = upload,
    .tell = tell,
    .answer = answer,
    .abandon = abandon,
    .stats = stats,
    .measure = measure,
};
