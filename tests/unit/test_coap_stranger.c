// Clients of the CoAP server that do what a board does not: observe again and again, make
// handshakes without a request, or connect and say nothing.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "coap_world.h"
#include "transport/coap/coap_common.h"

#define REQUESTS 50

// The clock, which a test may move on.
uint64_t __real_cn_platform_now_ms(void);
uint64_t __wrap_cn_platform_now_ms(void);
static uint64_t moved_ms;

uint64_t __wrap_cn_platform_now_ms(void)
{
    return __real_cn_platform_now_ms() + moved_ms;
}

struct stranger {
    coap_context_t *coap;
    coap_session_t *session;
    int answers, bad_options, contents;
};

static coap_response_t note(coap_session_t *session, const coap_pdu_t *sent,
                            const coap_pdu_t *received, const coap_mid_t mid)
{
    struct stranger *stranger = coap_context_get_app_data(coap_session_get_context(session));

    (void)sent;
    (void)mid;
    stranger->answers++;
    stranger->bad_options += coap_pdu_get_code(received) == COAP_RESPONSE_CODE_BAD_OPTION;
    stranger->contents += coap_pdu_get_code(received) == COAP_RESPONSE_CODE_CONTENT;
    return COAP_RESPONSE_OK;
}

static void both_turn(struct coap_world *world, struct stranger *stranger)
{
    turn(world);
    coap_io_process(stranger->coap, COAP_IO_NO_WAIT);
}

// Makes a handshake with the key of board-1.
static void begin(struct coap_world *world, struct stranger *stranger)
{
    uint8_t key[CN_KEY_SIZE];
    coap_dtls_cpsk_t setup = {.version = COAP_DTLS_CPSK_SETUP_VERSION};
    struct cn_address address;
    coap_address_t peer;
    uint64_t end = cn_platform_now_ms() + WAIT_MS;

    memset(key, '1', sizeof(key));
    setup.psk_info.identity = (coap_bin_const_t){7, (const uint8_t *)"board-1"};
    setup.psk_info.key = (coap_bin_const_t){sizeof(key), key};
    assert_int_equal(cn_address_parse(world->address, &address), CN_OK);
    cn_coap_address(&address, &peer);
    stranger->coap = coap_new_context(NULL);
    assert_non_null(stranger->coap);
    coap_context_set_app_data(stranger->coap, stranger);
    coap_register_response_handler(stranger->coap, note);
    stranger->session = coap_new_client_session_psk2(
        stranger->coap, NULL, &peer,
        world->transport == CN_LINK_TCP ? COAP_PROTO_TLS : COAP_PROTO_DTLS, &setup);
    assert_non_null(stranger->session);
    while (coap_session_get_state(stranger->session) != COAP_SESSION_STATE_ESTABLISHED &&
           cn_platform_now_ms() < end)
        both_turn(world, stranger);
}

static void end(struct stranger *stranger)
{
    coap_session_release(stranger->session);
    coap_free_context(stranger->coap);
}

// Observes "r" with one more option.
static void observe(struct stranger *stranger, int number, uint16_t option, const char *value)
{
    coap_pdu_t *pdu = coap_pdu_init(COAP_MESSAGE_NON, COAP_REQUEST_CODE_GET,
                                    coap_new_message_id(stranger->session), 512);
    uint8_t token[8] = {(uint8_t)(number + 1), (uint8_t)(number >> 8)};

    assert_non_null(pdu);
    assert_true(coap_add_token(pdu, sizeof(token), token));
    assert_true(coap_add_option(pdu, COAP_OPTION_OBSERVE, 0, NULL));
    assert_true(coap_add_option(pdu, COAP_OPTION_URI_PATH, 1, (const uint8_t *)"r"));
    if (option)
        assert_true(coap_add_option(pdu, option, strlen(value), (const uint8_t *)value));
    coap_send(stranger->session, pdu);
}

static void observe_often(struct coap_world *world, struct stranger *stranger, uint16_t option)
{
    char value[16];

    for (int i = 0; i < REQUESTS; i++) {
        snprintf(value, sizeof(value), "%d", i);
        observe(stranger, i, option, value);
        for (int turns = 0; turns < 200 && stranger->answers <= i; turns++)
            both_turn(world, stranger);
    }
}

// Returns the number of observers that are told of a change.
static int count_told(struct coap_world *world, struct stranger *stranger)
{
    int before = world->notifications;

    cn_coap_server_notify(world->server, "r");
    for (int i = 0; i < 100; i++)
        both_turn(world, stranger);
    return world->notifications - before;
}

static void start_alone(struct coap_world *world)
{
    start(world);
    world->client->ops->close(world->client);
    world->client = NULL;
}

static void a_session_observes_once_whatever_its_tokens_are(void **state)
{
    struct coap_world world = {0};
    struct stranger stranger = {0};

    (void)state;
    start_alone(&world);
    begin(&world, &stranger);
    observe_often(&world, &stranger, 0);
    assert_int_equal(stranger.contents, REQUESTS);
    assert_int_equal(count_told(&world, &stranger), 1);
    end(&stranger);
    stop(&world);
}

static void an_observation_with_a_query_is_refused_and_forgotten(void **state)
{
    static const uint16_t options[] = {COAP_OPTION_URI_QUERY, COAP_OPTION_URI_HOST,
                                       COAP_OPTION_ACCEPT, 2048};

    (void)state;
    for (size_t i = 0; i < sizeof(options) / sizeof(options[0]); i++) {
        for (int tcp = 0; tcp < 2; tcp++) {
            struct coap_world world = {.transport = tcp ? CN_LINK_TCP : CN_LINK_UDP};
            struct stranger stranger = {0};

            start_alone(&world);
            begin(&world, &stranger);
            observe_often(&world, &stranger, options[i]);
            assert_int_equal(stranger.bad_options, REQUESTS);
            assert_int_equal(count_told(&world, &stranger), 0);
            end(&stranger);
            stop(&world);
        }
    }
}

// libcoap forgets no observation whose error is not sent.
static void an_observer_that_wants_no_errors_loses_its_session(void **state)
{
    struct coap_world world = {0};
    struct stranger stranger = {0};

    (void)state;
    start_alone(&world);
    begin(&world, &stranger);
    for (int i = 0; i < REQUESTS; i++) // No-Response 26: neither 2.xx nor 4.xx nor 5.xx
        observe(&stranger, i, COAP_OPTION_NORESPONSE, i % 2 ? "\x1a" : "\x1b");
    for (int i = 0; i < 100; i++)
        both_turn(&world, &stranger);
    assert_int_equal(stranger.answers, 0);
    assert_int_equal(count_told(&world, &stranger), 0);
    end(&stranger);
    stop(&world);
}

// --- handshakes without a request ---

static uint64_t count_ended(struct coap_world *world, enum cn_coap_handshake result)
{
    struct cn_coap_server_stats stats;

    idle(world, 20);
    cn_coap_server_stats(world->server, &stats);
    return stats.handshakes[result];
}

#define STRANGERS 5

static void of_handshakes_without_a_request_the_newest_of_a_board_stays(void **state)
{
    (void)state;
    for (int tcp = 0; tcp < 2; tcp++) {
        struct coap_world world = {.transport = tcp ? CN_LINK_TCP : CN_LINK_UDP};
        struct stranger strangers[STRANGERS] = {0};

        start_alone(&world);
        for (int i = 0; i < STRANGERS; i++)
            begin(&world, &strangers[i]);
        assert_int_equal(count_ended(&world, CN_COAP_HANDSHAKE_FAILED), STRANGERS - 1);
        observe_often(&world, &strangers[STRANGERS - 1], 0);
        assert_int_equal(strangers[STRANGERS - 1].contents, REQUESTS);
        end(&strangers[0]);
        begin(&world, &strangers[0]); // beside a session that is served
        assert_int_equal(count_ended(&world, CN_COAP_HANDSHAKE_FAILED), STRANGERS - 1);
        for (int i = 0; i < STRANGERS; i++)
            end(&strangers[i]);
        stop(&world);
    }
}

static void a_session_without_a_request_ends_after_ten_seconds(void **state)
{
    struct coap_world world = {0};
    struct stranger silent = {0};

    (void)state;
    start_alone(&world);
    begin(&world, &silent);
    moved_ms += 8000;
    assert_int_equal(count_ended(&world, CN_COAP_HANDSHAKE_FAILED), 0);
    moved_ms += 3000;
    assert_int_equal(count_ended(&world, CN_COAP_HANDSHAKE_FAILED), 1);
    end(&silent);
    stop(&world);
}

// --- connections that say nothing ---

static int connect_from(struct coap_world *world, uint32_t source)
{
    struct sockaddr_in from = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(source)};
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM, 0);

    to.sin_port = htons((uint16_t)atoi(strchr(world->address, ':') + 1));
    assert_int_equal(bind(fd, (struct sockaddr *)&from, sizeof(from)), 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&to, sizeof(to)), 0);
    idle(world, 2);
    return fd;
}

static bool is_open(int fd)
{
    char byte;

    return recv(fd, &byte, 1, MSG_DONTWAIT) < 0;
}

static void connections_of_one_host_end_none_of_another(void **state)
{
    struct coap_world world = {.transport = CN_LINK_TCP};
    int boards[3], idle_fds[30], open = 0;

    (void)state;
    start_alone(&world);
    for (uint32_t i = 0; i < 3; i++)
        boards[i] = connect_from(&world, INADDR_LOOPBACK + 1 + i % 2);
    for (int i = 0; i < 30; i++)
        idle_fds[i] = connect_from(&world, INADDR_LOOPBACK + 3);
    for (int i = 0; i < 30; i++) {
        open += is_open(idle_fds[i]);
        close(idle_fds[i]);
    }
    assert_in_range(open, 1, 7);
    for (int i = 0; i < 3; i++) {
        assert_true(is_open(boards[i]));
        close(boards[i]);
    }
    stop(&world);
}

// Of 10 that may wait; each source has one.
static void when_all_are_taken_the_oldest_of_the_largest_source_makes_room(void **state)
{
    struct coap_world world = {.transport = CN_LINK_TCP};
    int fds[12];

    (void)state;
    start_alone(&world);
    for (uint32_t i = 0; i < 12; i++)
        fds[i] = connect_from(&world, INADDR_LOOPBACK + 1 + (i == 4 ? 3 : i));
    assert_true(is_open(fds[11]));
    assert_false(is_open(fds[3]));
    for (int i = 0; i < 12; i++)
        close(fds[i]);
    stop(&world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_session_observes_once_whatever_its_tokens_are),
        cmocka_unit_test(an_observation_with_a_query_is_refused_and_forgotten),
        cmocka_unit_test(an_observer_that_wants_no_errors_loses_its_session),
        cmocka_unit_test(of_handshakes_without_a_request_the_newest_of_a_board_stays),
        cmocka_unit_test(a_session_without_a_request_ends_after_ten_seconds),
        cmocka_unit_test(connections_of_one_host_end_none_of_another),
        cmocka_unit_test(when_all_are_taken_the_oldest_of_the_largest_source_makes_room),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
