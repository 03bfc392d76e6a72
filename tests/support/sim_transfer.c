#include "tests/support/sim_transfer.h"

#include <stdlib.h>
#include <string.h>

#include "runtime/port/crypto.h"
#include "tests/support/sim_gateway.h"
#include "transport/transfer/download.h"
#include "transport/transfer/upload.h"

#define BODY 1152
#define LIMIT_US 3600000000u
#define WINDOW (16u << 20)
#define KIND 4

struct board {
    struct cn_exchange *exchange;
    struct cn_rtt rtt;
    struct cn_controller controller;
    struct cn_upload *upload;
    struct cn_download *download;
};

static bool on_reply(void *context, const struct cn_exchange_reply *reply)
{
    struct board *board = context;
    uint64_t now_us = cn_sim_now_us(board->exchange);

    if (board->upload)
        return cn_upload_reply(board->upload, reply, now_us);
    return cn_download_reply(board->download, reply, now_us);
}

void cn_sim_link(struct cn_sim_case *one, uint64_t rate_bps, uint64_t rtt_us, double loss,
                 uint64_t queue_ms)
{
    one->up = (struct cn_link_shape){.rate_bps = rate_bps,
                                     .delay_us = rtt_us / 2,
                                     .queue_bytes = rate_bps / 8 * queue_ms / 1000,
                                     .loss = loss,
                                     .seed = 11};
    one->down = one->up;
    one->down.seed = 12;
}

static void start(struct board *board, const struct cn_sim_case *one, const uint8_t *data)
{
    struct cn_link_upload frame = {
        .run = 1, .round = 1, .frame = data, .size = one->size, .fresh = !one->again};
    uint32_t chunks = board->exchange->body_max / CN_SIM_CHUNK;
    struct cn_transfer transfer = {
        .exchange = board->exchange,
        .rtt = &board->rtt,
        .controller = &board->controller,
        .board = "board",
        .kind = KIND,
        .generation = 1,
        .chunk_size = CN_SIM_CHUNK,
        .parcel_chunks = chunks,
    };

    // A registration went before, so the round trip is roughly known.
    for (int i = 0; i < 5; i++)
        cn_rtt_add(&board->rtt, one->up.delay_us + one->down.delay_us);
    cn_controller_init(&board->controller, chunks * CN_SIM_CHUNK + CN_TRANSFER_OVERHEAD, WINDOW, 0,
                       board->rtt.srtt_us);
    board->exchange->sink = on_reply;
    board->exchange->context = board;
    cn_crypto_digest(data, one->size, frame.digest);
    if (one->download ? cn_download_open(&transfer, frame.digest, one->size, &board->download)
                      : cn_upload_open(&transfer, &frame, &board->upload))
        abort();
}

static bool is_done(const struct board *board)
{
    if (board->upload)
        return cn_upload_verdict(board->upload) != NULL;
    return cn_download_state(board->download) == CN_DOWNLOAD_FINISHED;
}

static uint64_t drive(struct board *board, struct cn_sim_gateway *gateway,
                      const struct cn_sim_case *one)
{
    uint64_t begin_us = cn_sim_now_us(board->exchange);
    uint64_t elapsed_us = 0;

    while (!is_done(board) && elapsed_us < LIMIT_US) {
        uint64_t wake_us = UINT64_MAX;

        if (board->upload)
            cn_upload_step(board->upload, cn_sim_now_us(board->exchange), &wake_us);
        else
            cn_download_step(board->download, cn_sim_now_us(board->exchange), &wake_us);
        cn_sim_advance(board->exchange, wake_us);
        elapsed_us = cn_sim_now_us(board->exchange) - begin_us;
        if (one->later_us)
            cn_sim_gateway_tick(gateway, elapsed_us / 1000);
        if (one->watch)
            one->watch(board->exchange, &board->controller, elapsed_us);
    }
    return elapsed_us;
}

static double share_of_ceiling(const struct cn_sim_case *one, const struct board *board,
                               uint64_t elapsed_us)
{
    const struct cn_link_shape *link = one->download ? &one->down : &one->up;
    size_t chunks = board->exchange->body_max / CN_SIM_CHUNK;
    double body = (double)(chunks * CN_SIM_CHUNK);
    double headers = (double)cn_sim_overhead(one->download ? "" : "u/0123456789abcdef/12345");
    double ceiling = (double)link->rate_bps / 8 * body / (body + headers) * (1 - link->loss) *
                     (1 - link->burst_loss);

    return (double)one->size / ((double)elapsed_us / 1e6) / ceiling;
}

void cn_sim_run(const struct cn_sim_case *one, struct cn_sim_result *result)
{
    struct board board = {0};
    struct cn_sim_config config = {
        .board = "board",
        .up = one->up,
        .down = one->down,
        .body_max = one->body_max ? one->body_max : BODY,
    };
    uint8_t *data = calloc(1, one->size);
    struct cn_sim_gateway *gateway = cn_sim_gateway_open(data, one->size);

    for (size_t i = 0; i < one->size; i++)
        data[i] = (uint8_t)(i * 2654435761u >> 11);
    config.routes = cn_sim_gateway_routes(&config.route_count);
    config.context = gateway;
    if (cn_sim_open(&config, &board.exchange))
        abort();
    cn_sim_gateway_postpone(gateway, one->later_us / 1000);
    start(&board, one, data);
    *result = (struct cn_sim_result){.elapsed_us = drive(&board, gateway, one)};
    result->done = is_done(&board);
    result->share = share_of_ceiling(one, &board, result->elapsed_us);
    result->repeats = cn_sim_gateway_repeats(gateway);
    result->controller = board.controller;
    result->up = *cn_sim_counts(board.exchange, true);
    result->down = *cn_sim_counts(board.exchange, false);
    if (board.upload)
        cn_upload_count(board.upload, &result->retransmissions, &result->spurious);
    cn_upload_close(board.upload);
    cn_download_close(board.download);
    board.exchange->ops->close(board.exchange);
    cn_sim_gateway_close(gateway);
    free(data);
}
