// The search for the size of messages that a path takes, over a loopback that drops larger ones.
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#define FAKE_CHUNK 64 // as the aggregator's
#include "fake_aggregator.h"
#include "runtime/base/log.h"
#include "runtime/port/platform.h"
#include "tests/support/loopback.h"
#include "transport/board/board_link.h"
#include "transport/transfer/path_mtu.h"

#define SIZE (200 * 1024 + 77)
#define WAIT_MS 20000
#define AROUND 144 // of a body, as the search counts

struct probed_link {
    struct fake *fake;
    struct cn_exchange *exchange;
    struct cn_link *link;
    struct cn_link_event event;
    uint8_t *frame;
};

static void start(struct probed_link *probed, uint32_t mtu, uint32_t lost)
{
    struct cn_loopback_config config = {
        .board = "board-1",
        .routes = fake_routes,
        .route_count = FAKE_ROUTE_COUNT,
        .seed = 7,
        .lost = lost,
        .body_max = 1424,
        .mtu = mtu - AROUND + 64, // the probe of a size has some of its headers' bytes in the body
    };

    cn_log_set_level(CN_LOG_ERROR);
    probed->fake = fake_open(SIZE);
    config.context = probed->fake;
    assert_int_equal(cn_loopback_open(&config, &probed->exchange), CN_OK);
    assert_int_equal(cn_board_link_open_over(probed->exchange,
                                             &(struct cn_link_config){.board = "board-1"},
                                             &probed->link),
                     CN_OK);
    probed->frame = malloc(SIZE);
    fake_fill(probed->frame, SIZE, 2);
}

static void stop(struct probed_link *probed)
{
    probed->link->ops->close(probed->link);
    fake_close(probed->fake);
    free(probed->frame);
}

static cn_err next_event(struct probed_link *probed, uint32_t wait_ms)
{
    uint64_t end = cn_platform_now_ms() + wait_ms;
    cn_err err;

    while ((err = probed->link->ops->poll(probed->link, &probed->event)) == CN_EAGAIN &&
           cn_platform_now_ms() < end) {
        struct pollfd descriptor = {.fd = probed->link->ops->descriptor(probed->link),
                                    .events = POLLIN};

        poll(&descriptor, 1, 100);
    }
    return err;
}

// No event is due meanwhile, and one would not matter.
static void let_it_search(struct probed_link *probed, uint32_t wait_ms)
{
    cn_err err = next_event(probed, wait_ms);

    (void)err;
}

static void expect(struct probed_link *probed, enum cn_link_event_type type)
{
    assert_int_equal(next_event(probed, WAIT_MS), CN_OK);
    assert_int_equal(probed->event.type, type);
}

static void register_board(struct probed_link *probed)
{
    static const struct cn_registration facts = {
        .cpu_count = 1, .members = {"board-1"}, .member_count = 1};

    assert_int_equal(probed->link->ops->register_board(probed->link, &facts), CN_OK);
    expect(probed, CN_LINK_REGISTERED);
}

static void upload(struct probed_link *probed)
{
    struct cn_link_upload frame = {.run = 7, .round = 3, .frame = probed->frame, .size = SIZE};

    cn_crypto_digest(probed->frame, SIZE, frame.digest);
    assert_int_equal(probed->link->ops->upload(probed->link, &frame), CN_OK);
    expect(probed, CN_LINK_RECEIPT);
    assert_memory_equal(probed->fake->received, probed->frame, SIZE);
}

static void fetch(struct probed_link *probed)
{
    assert_int_equal(probed->link->ops->fetch(probed->link, probed->fake->blob_digest, SIZE, SIZE),
                     CN_OK);
    expect(probed, CN_LINK_FETCHED);
    assert_memory_equal(probed->event.data, probed->fake->blob, SIZE);
}

static void messages_are_as_large_as_the_path_takes(void **state)
{
    // UDP payload that the path takes, and the largest body that should be sent over it.
    static const struct {
        uint32_t mtu;
        size_t body;
    } paths[] = {{1500, 1280}, {1400, 1216}, {1250, 1088}, {1000, 640}, {548, 384}};

    (void)state;
    for (size_t i = 0; i < sizeof(paths) / sizeof(paths[0]); i++) {
        struct probed_link probed = {0};

        start(&probed, paths[i].mtu, 0);
        register_board(&probed);
        let_it_search(&probed, paths[i].mtu < 1424 ? 3000 : 50); // what is lost is tried thrice
        upload(&probed);
        assert_int_equal(probed.fake->largest, paths[i].body);
        fetch(&probed);
        stop(&probed);
    }
}

static void a_search_survives_loss(void **state)
{
    struct probed_link probed = {0};

    (void)state;
    start(&probed, 1500, 100);
    register_board(&probed);
    let_it_search(&probed, 1500);
    upload(&probed);
    assert_int_equal(probed.fake->largest, 1280);
    stop(&probed);
}

static void shrink(struct fake *fake)
{
    struct probed_link *probed = fake->owner;

    if (fake->chunks > 1000)
        cn_loopback_set_mtu(probed->exchange, 548 - AROUND + 64);
}

// Full messages vanish from some point on: a black hole (RFC 8899, 4.3).
static void a_path_that_gets_narrower_in_the_middle_of_a_transfer_is_survived(void **state)
{
    struct probed_link probed = {0};

    (void)state;
    start(&probed, 1500, 0);
    register_board(&probed);
    probed.fake->owner = &probed;
    probed.fake->on_chunk = shrink;
    upload(&probed);
    probed.fake->on_chunk = NULL;
    assert_int_equal(probed.fake->largest, 1280);
    cn_loopback_set_mtu(probed.exchange, 1500);
    fetch(&probed);
    stop(&probed);
}

static void an_aggregator_that_does_not_know_probes_gets_messages_of_the_base(void **state)
{
    struct cn_loopback_config config = {
        .board = "board-1",
        .routes = fake_routes,
        .route_count = FAKE_ROUTES_BEFORE_PROBES,
        .body_max = 1424,
        .mtu = 1424,
    };
    struct probed_link probed = {0};

    (void)state;
    probed.fake = fake_open(SIZE);
    config.context = probed.fake;
    assert_int_equal(cn_loopback_open(&config, &probed.exchange), CN_OK);
    assert_int_equal(cn_board_link_open_over(probed.exchange,
                                             &(struct cn_link_config){.board = "board-1"},
                                             &probed.link),
                     CN_OK);
    probed.frame = malloc(SIZE);
    fake_fill(probed.frame, SIZE, 2);
    register_board(&probed);
    upload(&probed);
    assert_int_equal(probed.fake->largest, 1088);
    stop(&probed);
}

static cn_err note_probe(struct cn_exchange *exchange, const struct cn_exchange_request *request)
{
    *(bool *)exchange->context = request->probe;
    return CN_OK;
}

static void a_probe_is_said_to_be_one(void **state)
{
    static const struct cn_exchange_ops ops = {.send = note_probe};
    bool probe = false;
    struct cn_exchange exchange = {
        .ops = &ops, .context = &probe, .state = CN_EXCHANGE_UP, .searches_mtu = true};
    struct cn_rtt rtt = {0};
    struct cn_path_mtu search;
    uint64_t wake_us = UINT64_MAX;

    (void)state;
    cn_path_mtu_init(&search, &exchange, &rtt, 1);
    cn_path_mtu_step(&search, 1000000, &wake_us);
    assert_true(probe);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(messages_are_as_large_as_the_path_takes),
        cmocka_unit_test(a_search_survives_loss),
        cmocka_unit_test(a_path_that_gets_narrower_in_the_middle_of_a_transfer_is_survived),
        cmocka_unit_test(an_aggregator_that_does_not_know_probes_gets_messages_of_the_base),
        cmocka_unit_test(a_probe_is_said_to_be_one),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
