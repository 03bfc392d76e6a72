// The link over DTLS on the loopback interface, with the server in this thread: what the port does
// when servers restart and boards are revoked.
#include <arpa/inet.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#define FAKE_SIZE_MAX (2 * 1024 * 1024)
#include "fake_aggregator.h"
#include "runtime/base/log.h"
#include "runtime/port/platform.h"
#include "tests/support/free_address.h"
#include "transport/board/board_link.h"
#include "transport/coap/security.h"

#define SIZE (300 * 1024 + 77)
#define LONG (3 * 512 * 1024) // so long that it tells which way carries more
#define WAIT_MS 5000

struct coap_board_side {
    char address[32];
    struct fake *fake;
    struct cn_coap_server *server;
    struct cn_link *link;
    struct cn_link_event event;
    uint8_t *frame;
    bool revoked, only_udp;
    enum cn_link_transport transport;
    enum { NOTHING, RESTART, DROP } plan; // after 100 chunks
};

static cn_err find_key(void *context, const char *board, uint8_t key[CN_KEY_SIZE])
{
    struct fake *fake = context;
    const struct coap_board_side *side = fake->owner;
    struct cn_board_key board_key = {.secret = {5}};

    if (side->revoked || strcmp(board, "board-1") != 0)
        return CN_EAUTH;
    return cn_security_dtls_key(&board_key, key);
}

static void open_server(struct coap_board_side *side)
{
    const char *listen[] = {side->address};
    struct cn_coap_server_config config = {
        .listen = listen,
        .listen_count = 1,
        .only_udp = side->only_udp,
        .routes = fake_routes,
        .route_count = FAKE_ROUTE_COUNT,
        .context = side->fake,
        .find_key = find_key,
        .handshakes_max = 10,
        .sessions_max = 10,
    };

    assert_int_equal(cn_coap_server_open(&config, &side->server), CN_OK);
}

static void start_with(struct coap_board_side *side, const char *board, uint8_t key)
{
    struct cn_link_config config = {
        .board = board,
        .addresses = {side->address},
        .address_count = 1,
        .transport = side->transport,
    };
    struct cn_board_key board_key = {.secret = {key}};

    assert_int_equal(cn_security_dtls_key(&board_key, config.key), CN_OK);
    cn_log_set_level(CN_LOG_ERROR);
    side->fake = fake_open(SIZE);
    side->fake->owner = side;
    free_address(side->address);
    open_server(side);
    assert_int_equal(cn_board_link.open(&config, &side->link), CN_OK);
    side->frame = malloc(LONG);
    fake_fill(side->frame, LONG, 2);
}

static void start(struct coap_board_side *side)
{
    start_with(side, "board-1", 5);
}

static void stop(struct coap_board_side *side)
{
    side->link->ops->close(side->link);
    cn_coap_server_close(side->server);
    fake_close(side->fake);
    free(side->frame);
}

static void interfere(struct coap_board_side *side)
{
    if (side->plan == NOTHING || side->fake->chunks < 100)
        return;
    if (side->plan == RESTART) {
        cn_coap_server_close(side->server);
        open_server(side);
    } else {
        side->revoked = true;
        cn_coap_server_drop(side->server, "board-1");
    }
    side->plan = NOTHING;
}

static cn_err next_event(struct coap_board_side *side, uint32_t wait_ms)
{
    uint64_t end = cn_platform_now_ms() + wait_ms;
    cn_err err;

    while ((err = side->link->ops->poll(side->link, &side->event)) == CN_EAGAIN &&
           cn_platform_now_ms() < end) {
        assert_int_equal(cn_coap_server_step(side->server, 1), CN_OK);
        interfere(side);
    }
    return err;
}

static void expect(struct coap_board_side *side, enum cn_link_event_type type)
{
    assert_int_equal(next_event(side, WAIT_MS), CN_OK);
    assert_int_equal(side->event.type, type);
}

static void upload_bytes(struct coap_board_side *side, uint32_t round, size_t size)
{
    struct cn_link_upload frame = {.run = 7, .round = round, .frame = side->frame, .size = size};

    cn_crypto_digest(side->frame, size, frame.digest);
    assert_int_equal(side->link->ops->upload(side->link, &frame), CN_OK);
}

static void upload(struct coap_board_side *side)
{
    upload_bytes(side, 3, SIZE);
}

static void use_everything(enum cn_link_transport transport)
{
    struct coap_board_side side = {.transport = transport};
    struct cn_registration facts = {
        .cpu_count = 1, .members = {"board-1", "board-2"}, .member_count = 2};
    struct cn_link_stats stats;

    start(&side);
    assert_int_equal(side.link->ops->register_board(side.link, &facts), CN_OK);
    expect(&side, CN_LINK_REGISTERED);
    assert_int_equal(side.event.manifest->pair_keys[1][0], '2');
    assert_int_equal(side.link->ops->watch(side.link, true), CN_OK);
    expect(&side, CN_LINK_ROUND);
    side.fake->round.round = 2;
    cn_coap_server_notify(side.server, "r");
    expect(&side, CN_LINK_ROUND);
    assert_int_equal(side.event.round->round, 2);
    assert_int_equal(side.link->ops->fetch(side.link, side.fake->blob_digest, SIZE, SIZE), CN_OK);
    expect(&side, CN_LINK_FETCHED);
    assert_memory_equal(side.event.data, side.fake->blob, SIZE);
    upload(&side);
    expect(&side, CN_LINK_RECEIPT);
    assert_memory_equal(side.fake->received, side.frame, SIZE);
    assert_in_range(side.fake->largest, transport == CN_LINK_TCP ? 8192 : 1024,
                    transport == CN_LINK_TCP ? 8192 : 1024);
    side.link->ops->stats(side.link, &stats);
    assert_true(stats.up.messages > SIZE && stats.up.messages < SIZE * 6 / 5);
    assert_true(stats.down.messages > SIZE && stats.down.messages < SIZE * 6 / 5);
    stop(&side);
}

static void a_board_registers_watches_fetches_and_uploads(void **state)
{
    (void)state;
    use_everything(CN_LINK_UDP);
}

static void over_tcp_all_is_the_same_with_larger_messages(void **state)
{
    (void)state;
    use_everything(CN_LINK_TCP);
}

// Where a stream is no use the next upload goes over UDP again, and after it no stream is tried.
static void a_stream_is_tried_for_a_long_upload_and_left_where_there_is_none(void **state)
{
    (void)state;
    for (int closed = 0; closed < 2; closed++) {
        struct coap_board_side side = {.transport = CN_LINK_AUTO, .only_udp = closed};
        size_t largest[3];

        start(&side);
        for (uint32_t i = 0; i < 3; i++) {
            side.fake->largest = 0;
            side.fake->decided = side.fake->declared_any = false;
            memset(side.fake->have, 0, sizeof(side.fake->have));
            upload_bytes(&side, i + 1, LONG);
            expect(&side, CN_LINK_RECEIPT);
            assert_memory_equal(side.fake->received, side.frame, LONG);
            largest[i] = side.fake->largest;
        }
        assert_in_range(largest[0], 1, 1280);
        assert_true(closed ? largest[1] <= 1280 : largest[1] > 1280);
        assert_true(!closed || largest[2] <= 1280);
        stop(&side);
    }
}

static void an_upload_goes_on_where_a_restarted_server_is(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        struct coap_board_side side = {.plan = RESTART, .transport = i ? CN_LINK_TCP : CN_LINK_UDP};

        start(&side);
        upload(&side);
        expect(&side, CN_LINK_RECEIPT);
        assert_int_equal(side.event.verdict, CN_VERDICT_ACCEPTED);
        assert_memory_equal(side.fake->received, side.frame, SIZE);
        assert_true(side.fake->chunks < 301 + 70); // at most a window twice
        stop(&side);
    }
}

static void a_board_revoked_in_the_middle_of_an_upload_is_told_so(void **state)
{
    struct coap_board_side side = {.plan = DROP};
    uint32_t chunks;

    (void)state;
    start(&side);
    upload(&side);
    expect(&side, CN_LINK_REFUSED);
    assert_non_null(strstr(side.event.text, "revoked"));
    chunks = side.fake->chunks;
    assert_true(chunks < 301);
    assert_int_equal(next_event(&side, 300), CN_EAGAIN);
    assert_int_equal(side.fake->chunks, chunks);
    stop(&side);
}

static void a_wrong_key_and_an_unknown_name_are_refused_once(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        struct coap_board_side side = {0};

        start_with(&side, i ? "board-7" : "board-1", i ? 5 : 6);
        expect(&side, CN_LINK_REFUSED);
        assert_int_equal(next_event(&side, 300), CN_EAGAIN);
        stop(&side);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_board_registers_watches_fetches_and_uploads),
        cmocka_unit_test(over_tcp_all_is_the_same_with_larger_messages),
        cmocka_unit_test(a_stream_is_tried_for_a_long_upload_and_left_where_there_is_none),
        cmocka_unit_test(an_upload_goes_on_where_a_restarted_server_is),
        cmocka_unit_test(a_board_revoked_in_the_middle_of_an_upload_is_told_so),
        cmocka_unit_test(a_wrong_key_and_an_unknown_name_are_refused_once),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
