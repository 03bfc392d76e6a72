// kill -9 of either end, and the loss of the session, after each message of an upload, in a
// simulation with the product's upload and spool. What is left of the gateway is what its store
// has; of the board, the frame.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>

#include "runtime/base/log.h"
#include "runtime/port/crypto.h"
#include "tests/support/sim_exchange.h"
#include "tests/support/sim_gateway.h"
#include "transport/transfer/upload.h"

#define KIND 4
#define WINDOW 65536
#define DOWN_US 1000000      // until who was killed is back
#define LIMIT_US 60000000000 // of the simulated clock

enum victim { BOARD, GATEWAY, SESSION };

struct sweep {
    size_t size;
    uint64_t rate_bps; // so thin that some of the frame becomes durable on the way: after 2 s
    double loss;
    uint32_t body_max;
};

struct interrupted_upload {
    const struct sweep *sweep;
    struct cn_exchange *exchange;
    struct cn_sim_gateway *gateway;
    struct cn_rtt rtt;
    struct cn_controller controller;
    struct cn_upload *upload;
    uint8_t *frame;
    uint16_t generation;
};

static struct cn_link_shape shape(const struct sweep *sweep, double loss, uint64_t seed)
{
    return (struct cn_link_shape){.rate_bps = sweep->rate_bps,
                                  .delay_us = 20000,
                                  .queue_bytes = sweep->rate_bps / 8 / 5,
                                  .loss = loss,
                                  .seed = seed};
}

static bool on_reply(void *context, const struct cn_exchange_reply *reply)
{
    struct interrupted_upload *interrupted = context;

    return interrupted->upload &&
           cn_upload_reply(interrupted->upload, reply, cn_sim_now_us(interrupted->exchange));
}

// A board that was just started: it has the frame and knows nothing of the path.
static void start_board(struct interrupted_upload *interrupted)
{
    struct cn_link_upload frame = {
        .run = 1, .round = 1, .frame = interrupted->frame, .size = interrupted->sweep->size};
    uint32_t chunks = interrupted->sweep->body_max / CN_SIM_CHUNK;
    struct cn_transfer transfer = {
        .exchange = interrupted->exchange,
        .rtt = &interrupted->rtt,
        .controller = &interrupted->controller,
        .board = "board",
        .kind = KIND,
        .generation = ++interrupted->generation,
        .chunk_size = CN_SIM_CHUNK,
        .parcel_chunks = chunks,
    };

    frame.fresh = interrupted->generation == 1; // not when it is back
    interrupted->rtt = (struct cn_rtt){0};
    cn_controller_init(&interrupted->controller, chunks * CN_SIM_CHUNK + CN_TRANSFER_OVERHEAD,
                       WINDOW, 0, 0);
    cn_crypto_digest(interrupted->frame, interrupted->sweep->size, frame.digest);
    assert_int_equal(cn_upload_open(&transfer, &frame, &interrupted->upload), CN_OK);
}

static void step(struct interrupted_upload *interrupted, uint64_t until_us)
{
    uint64_t wake_us = until_us;

    if (interrupted->upload)
        cn_upload_step(interrupted->upload, cn_sim_now_us(interrupted->exchange), &wake_us);
    cn_sim_advance(interrupted->exchange, wake_us);
    cn_sim_gateway_tick(interrupted->gateway, cn_sim_now_us(interrupted->exchange) / 1000);
}

static void pass_time(struct interrupted_upload *interrupted, uint64_t duration_us)
{
    uint64_t end_us = cn_sim_now_us(interrupted->exchange) + duration_us;

    while (cn_sim_now_us(interrupted->exchange) < end_us)
        step(interrupted, end_us);
}

// Nothing that is sent meanwhile arrives, as it would be of the old session.
static void interrupt(struct interrupted_upload *interrupted, enum victim victim)
{
    struct cn_link_shape up = shape(interrupted->sweep, 1, 1),
                         down = shape(interrupted->sweep, 1, 2);

    if (victim == BOARD) {
        cn_upload_close(interrupted->upload);
        interrupted->upload = NULL;
        pass_time(interrupted, DOWN_US);
        start_board(interrupted);
    } else {
        if (victim == GATEWAY)
            cn_sim_gateway_kill(interrupted->gateway);
        cn_sim_reshape(interrupted->exchange, &up, &down);
        pass_time(interrupted, DOWN_US);
        up.loss = down.loss = interrupted->sweep->loss;
        cn_sim_reshape(interrupted->exchange, &up, &down);
        if (victim == GATEWAY)
            cn_sim_gateway_start(interrupted->gateway);
        cn_upload_reconnected(interrupted->upload);
    }
    cn_sim_gateway_expect_renewal(interrupted->gateway);
}

static void open_interrupted(struct interrupted_upload *interrupted, const struct sweep *sweep)
{
    struct cn_sim_config config = {.board = "board",
                                   .up = shape(sweep, sweep->loss, 1),
                                   .down = shape(sweep, sweep->loss, 2),
                                   .body_max = sweep->body_max};

    *interrupted = (struct interrupted_upload){.sweep = sweep, .frame = malloc(sweep->size)};
    for (size_t i = 0; i < sweep->size; i++)
        interrupted->frame[i] = (uint8_t)(i * 2654435761u >> 11);
    interrupted->gateway = cn_sim_gateway_open(interrupted->frame, sweep->size);
    config.routes = cn_sim_gateway_routes(&config.route_count);
    config.context = interrupted->gateway;
    assert_int_equal(cn_sim_open(&config, &interrupted->exchange), CN_OK);
    interrupted->exchange->sink = on_reply;
    interrupted->exchange->context = interrupted;
    start_board(interrupted);
}

// Kills the victim after at messages with chunks and sees the upload through. The number of
// messages without an interruption is far below UINT64_MAX. Adds to *known what was found.
static uint64_t upload(const struct sweep *sweep, enum victim victim, uint64_t at, uint64_t *known)
{
    bool killed = false;
    struct interrupted_upload interrupted;
    uint64_t messages, repeats;

    open_interrupted(&interrupted, sweep);
    while (!cn_upload_verdict(interrupted.upload)) {
        assert_true(cn_sim_now_us(interrupted.exchange) < LIMIT_US);
        if (!killed && cn_sim_gateway_messages(interrupted.gateway) >= at) {
            interrupt(&interrupted, victim);
            killed = true;
            continue;
        }
        step(&interrupted, UINT64_MAX);
    }
    // The gateway ends the test when the frame's digest is another, and decides once.
    *known += cn_sim_gateway_known(interrupted.gateway, &repeats);
    assert_int_equal(repeats, 0);
    messages = cn_sim_gateway_messages(interrupted.gateway);
    cn_upload_close(interrupted.upload);
    interrupted.exchange->ops->close(interrupted.exchange);
    cn_sim_gateway_close(interrupted.gateway);
    free(interrupted.frame);
    return messages;
}

static void sweep_all(const struct sweep *sweep, enum victim victim)
{
    uint64_t known = 0, count = upload(sweep, victim, UINT64_MAX, &known);

    assert_true(count >= 40);
    for (uint64_t at = 0; at <= count; at++)
        upload(sweep, victim, at, &known);
    assert_true(known > 10 * count); // there was something to send twice
}

static const struct sweep chunk_by_chunk = {6400, 25000, 0, CN_SIM_CHUNK};
static const struct sweep parcels = {45000, 64000, 0, 1088};
static const struct sweep with_loss = {45000, 64000, 0.05, 1088};

static void a_board_killed_at_any_chunk_sends_nothing_twice(void **state)
{
    (void)state;
    sweep_all(&chunk_by_chunk, BOARD);
    sweep_all(&parcels, BOARD);
    sweep_all(&with_loss, BOARD);
}

static void a_gateway_killed_at_any_chunk_asks_for_nothing_durable(void **state)
{
    (void)state;
    sweep_all(&chunk_by_chunk, GATEWAY);
    sweep_all(&parcels, GATEWAY);
    sweep_all(&with_loss, GATEWAY);
}

static void a_session_lost_at_any_chunk_costs_none_that_arrived(void **state)
{
    (void)state;
    sweep_all(&chunk_by_chunk, SESSION);
    sweep_all(&parcels, SESSION);
    sweep_all(&with_loss, SESSION);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_board_killed_at_any_chunk_sends_nothing_twice),
        cmocka_unit_test(a_gateway_killed_at_any_chunk_asks_for_nothing_durable),
        cmocka_unit_test(a_session_lost_at_any_chunk_costs_none_that_arrived),
    };

    cn_log_set_level(CN_LOG_ERROR);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
