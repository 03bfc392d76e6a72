// The link over a loopback that loses, repeats and reorders: what a board does, without a network.
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "fake_aggregator.h"
#include "runtime/base/log.h"
#include "runtime/port/platform.h"
#include "tests/support/flaky_store.h"
#include "tests/support/loopback.h"
#include "transport/board/board_link.h"

#define SIZE (300 * 1024 + 77)
#define WAIT_MS 10000

struct board_side {
    struct fake *fake;
    struct cn_exchange *exchange;
    struct cn_link *link;
    struct cn_link_event event;
    uint8_t *frame;
    struct cn_store *store; // of the board; NULL: none
};

static void start_lossy(struct board_side *side, uint32_t lost, uint32_t repeated,
                        uint32_t reordered)
{
    struct cn_loopback_config config = {
        .board = "board-1",
        .routes = fake_routes,
        .route_count = FAKE_ROUTE_COUNT,
        .seed = 7,
        .lost = lost,
        .repeated = repeated,
        .reordered = reordered,
    };

    cn_log_set_level(CN_LOG_ERROR);
    side->fake = fake_open(SIZE);
    config.context = side->fake;
    assert_int_equal(cn_loopback_open(&config, &side->exchange), CN_OK);
    assert_int_equal(
        cn_board_link_open_over(side->exchange,
                                &(struct cn_link_config){.board = "board-1", .store = side->store},
                                &side->link),
        CN_OK);
    side->frame = malloc(SIZE);
    fake_fill(side->frame, SIZE, 2);
}

static void start(struct board_side *side)
{
    start_lossy(side, 0, 0, 0);
}

static void stop(struct board_side *side)
{
    side->link->ops->close(side->link);
    fake_close(side->fake);
    free(side->frame);
}

// Waits as a program would, on the descriptor.
static cn_err next_event(struct board_side *side, uint32_t wait_ms)
{
    uint64_t end = cn_platform_now_ms() + wait_ms;
    cn_err err;

    while ((err = side->link->ops->poll(side->link, &side->event)) == CN_EAGAIN &&
           cn_platform_now_ms() < end) {
        struct pollfd descriptor = {.fd = side->link->ops->descriptor(side->link),
                                    .events = POLLIN};

        poll(&descriptor, 1, 100);
    }
    return err;
}

static void expect(struct board_side *side, enum cn_link_event_type type)
{
    assert_int_equal(next_event(side, WAIT_MS), CN_OK);
    assert_int_equal(side->event.type, type);
}

static void expect_nothing(struct board_side *side)
{
    assert_int_equal(next_event(side, 150), CN_EAGAIN);
}

static const struct cn_registration facts = {.cpu_count = 4,
                                             .board_type = "orin",
                                             .members = {"board-0", "board-1", "board-9"},
                                             .member_count = 3};

static void register_board(struct board_side *side)
{
    assert_int_equal(side->link->ops->register_board(side->link, &facts), CN_OK);
    expect(side, CN_LINK_REGISTERED);
}

static void upload(struct board_side *side)
{
    struct cn_link_upload frame = {.run = 7, .round = 3, .frame = side->frame, .size = SIZE};

    cn_crypto_digest(side->frame, SIZE, frame.digest);
    memset(frame.base, 9, sizeof(frame.base));
    assert_int_equal(side->link->ops->upload(side->link, &frame), CN_OK);
    assert_int_equal(side->link->ops->upload(side->link, &frame), CN_EAGAIN);
}

static void expect_receipt(struct board_side *side)
{
    expect(side, CN_LINK_RECEIPT);
    assert_int_equal(side->event.verdict, CN_VERDICT_ACCEPTED);
    assert_memory_equal(side->event.accepted, side->fake->declared.digest, CN_DIGEST_SIZE);
    assert_memory_equal(side->fake->received, side->frame, SIZE);
}

static void a_registration_brings_the_manifest_and_the_keys_of_the_pairs(void **state)
{
    struct board_side side = {0};
    uint8_t zeros[CN_KEY_SIZE] = {0};

    (void)state;
    start(&side);
    register_board(&side);
    assert_int_equal(side.event.manifest->run, 7);
    assert_string_equal(side.event.manifest->job.name, "digits");
    assert_int_equal(side.event.manifest->pair_keys[0][31], '0');
    assert_memory_equal(side.event.manifest->pair_keys[1], zeros, CN_KEY_SIZE);
    assert_memory_equal(side.event.manifest->pair_keys[2], zeros, CN_KEY_SIZE);
    expect_nothing(&side);
    stop(&side);
}

static const struct cn_health well = {.state = CN_HEALTH_TRAINING, .step = 5, .seq = 1};

static void tell_health(struct board_side *side)
{
    side->link->ops->tell(side->link, &well);
    expect_nothing(side);
}

static void health_is_told_to_an_aggregator_that_knows_it(void **state)
{
    struct board_side side = {0};

    (void)state;
    start(&side);
    tell_health(&side); // not registered yet
    assert_int_equal(side.fake->healths, 0);
    register_board(&side);
    tell_health(&side);
    assert_int_equal(side.fake->healths, 1);
    assert_int_equal(side.fake->health_answers, 1);
    assert_memory_equal(&side.fake->health, &well, sizeof(well));
    assert_int_equal(side.link->ops->watch(side.link, true), CN_OK);
    expect(&side, CN_LINK_ROUND);
    tell_health(&side);
    assert_int_equal(side.fake->healths, 2);
    assert_int_equal(side.fake->health_answers, 1); // the round's requests show that it lives
    stop(&side);
}

static void an_older_aggregator_is_told_once(void **state)
{
    (void)state;
    for (int watching = 0; watching < 2; watching++) {
        struct board_side side = {0};

        start(&side);
        side.fake->knows_no_health = true;
        register_board(&side);
        if (watching) {
            assert_int_equal(side.link->ops->watch(side.link, true), CN_OK);
            expect(&side, CN_LINK_ROUND);
        }
        for (int i = 0; i < 3; i++)
            tell_health(&side);
        assert_int_equal(side.fake->healths, 1);
        upload(&side); // all else goes on
        expect_receipt(&side);
        stop(&side);
    }
}

static void health_finds_an_aggregator_that_forgot_the_board(void **state)
{
    struct board_side side = {0};

    (void)state;
    start(&side);
    register_board(&side);
    side.fake->forgotten = true;
    side.link->ops->tell(side.link, &well);
    expect(&side, CN_LINK_REGISTERED);
    assert_int_equal(side.fake->registrations, 2);
    stop(&side);
}

static void keys_of_an_epoch_that_was_raised_meanwhile_are_asked_for_again(void **state)
{
    struct board_side side = {0};

    (void)state;
    start(&side);
    side.fake->key_epoch = 4;
    side.fake->raises_keys = true;
    register_board(&side);
    assert_int_equal(side.event.manifest->key_epoch, 5);
    assert_int_equal(side.event.manifest->pair_keys[0][31], '0');
    assert_int_equal(side.fake->registrations, 2);
    stop(&side);
}

static void a_board_that_hears_nothing_is_told_its_last_registration(void **state)
{
    struct cn_flaky_store disk;
    struct board_side side = {.store = &disk.store};
    struct cn_registration other = facts;
    unsigned operations;

    (void)state;
    cn_flaky_store_init(&disk);
    start(&side);
    register_board(&side);
    assert_false(side.event.remembered);
    operations = disk.operations;
    register_board(&side); // the same again: read, not written
    assert_int_equal(disk.operations, operations + 1);
    stop(&side);

    start_lossy(&side, 1000, 0, 0);
    register_board(&side);
    assert_true(side.event.remembered);
    assert_int_equal(side.event.manifest->run, 7);
    assert_string_equal(side.event.manifest->job.name, "digits");
    assert_int_equal(side.event.manifest->pair_keys[0][31], '0');
    assert_int_equal(next_event(&side, 1300), CN_EAGAIN);
    stop(&side);

    start_lossy(&side, 1000, 0, 0);
    other.member_count = 2;
    assert_int_equal(side.link->ops->register_board(side.link, &other), CN_OK);
    assert_int_equal(next_event(&side, 1300), CN_EAGAIN);
    stop(&side);
    cn_flaky_store_deinit(&disk);
}

static void versions_that_do_not_fit_are_told_once_with_the_reason(void **state)
{
    struct board_side side = {0};

    (void)state;
    start(&side);
    side.fake->refuses_versions = true;
    assert_int_equal(side.link->ops->register_board(side.link, &facts), CN_OK);
    expect(&side, CN_LINK_REFUSED);
    assert_string_equal(side.event.text,
                        "registration refused (4.22): protocol 9 to 9 wanted, 1 to 1 found");
    expect_nothing(&side);
    assert_int_equal(side.fake->registrations, 1);
    stop(&side);
}

static void a_round_is_told_when_it_changes(void **state)
{
    struct board_side side = {0};

    (void)state;
    start(&side);
    side.fake->round.remaining_ms = 60000;
    register_board(&side);
    assert_int_equal(side.link->ops->watch(side.link, true), CN_OK);
    expect(&side, CN_LINK_ROUND);
    assert_int_equal(side.event.round->round, 1);
    side.fake->round.remaining_ms = 60005;
    cn_loopback_notify(side.exchange, "r");
    expect_nothing(&side);
    side.fake->round.remaining_ms = 90000; // an operator gave it more time
    cn_loopback_notify(side.exchange, "r");
    expect(&side, CN_LINK_ROUND_TIME);
    assert_int_equal(side.event.round->remaining_ms, 90000);
    cn_loopback_notify(side.exchange, "r");
    expect_nothing(&side);
    side.fake->round.round = 2;
    cn_loopback_notify(side.exchange, "r");
    expect(&side, CN_LINK_ROUND);
    assert_int_equal(side.event.round->round, 2);
    register_board(&side);
    expect(&side, CN_LINK_ROUND);
    assert_int_equal(side.link->ops->watch(side.link, false), CN_OK);
    side.fake->round.round = 3;
    cn_loopback_notify(side.exchange, "r");
    expect_nothing(&side);
    stop(&side);
}

static void a_blob_is_fetched_and_checked(void **state)
{
    struct board_side side = {0};
    uint8_t other[CN_DIGEST_SIZE] = {1};

    (void)state;
    start(&side);
    assert_int_equal(side.link->ops->fetch(side.link, side.fake->blob_digest, SIZE, SIZE - 1),
                     CN_ERANGE);
    assert_int_equal(side.link->ops->fetch(side.link, side.fake->blob_digest, SIZE, SIZE), CN_OK);
    assert_int_equal(side.link->ops->fetch(side.link, side.fake->blob_digest, SIZE, SIZE),
                     CN_EAGAIN);
    expect(&side, CN_LINK_FETCHED);
    assert_int_equal(side.event.size, SIZE);
    // The next fetch may start before the data is let go.
    assert_int_equal(side.link->ops->fetch(side.link, other, 10, SIZE), CN_OK);
    assert_memory_equal(side.event.data, side.fake->blob, SIZE);
    expect(&side, CN_LINK_GONE);
    stop(&side);
}

static void a_frame_is_uploaded_and_the_receipt_names_it(void **state)
{
    struct board_side side = {0};

    (void)state;
    start(&side);
    upload(&side);
    expect_receipt(&side);
    assert_int_equal(side.fake->declared.round, 3);
    assert_int_equal(side.fake->declared.base[31], 9);
    assert_int_equal(side.fake->chunks, 301);
    upload(&side); // a repeated upload is answered from the record
    expect_receipt(&side);
    assert_int_equal(side.fake->chunks, 301);
    stop(&side);
}

static void both_ways_survive_a_bad_network(void **state)
{
    static const uint32_t rates[][3] = {{100, 0, 0}, {0, 200, 300}, {100, 100, 100}};

    (void)state;
    for (size_t i = 0; i < sizeof(rates) / sizeof(rates[0]); i++) {
        struct board_side side = {0};

        start_lossy(&side, rates[i][0], rates[i][1], rates[i][2]);
        register_board(&side);
        upload(&side);
        expect_receipt(&side);
        assert_int_equal(side.link->ops->fetch(side.link, side.fake->blob_digest, SIZE, SIZE),
                         CN_OK);
        expect(&side, CN_LINK_FETCHED);
        assert_memory_equal(side.event.data, side.fake->blob, SIZE);
        stop(&side);
    }
}

static void verdicts_and_reasons_are_passed_on(void **state)
{
    struct board_side side = {0};
    struct cn_link_upload huge = {.run = 7, .round = 3, .size = FAKE_SIZE_MAX + 1};

    (void)state;
    start(&side);
    side.fake->verdict = CN_VERDICT_LATE;
    upload(&side);
    expect(&side, CN_LINK_RECEIPT);
    assert_int_equal(side.event.verdict, CN_VERDICT_LATE);
    assert_string_equal(side.event.text, "for a reason");
    huge.frame = side.frame; // refused before a chunk is read
    assert_int_equal(side.link->ops->upload(side.link, &huge), CN_OK);
    expect(&side, CN_LINK_RECEIPT);
    assert_int_equal(side.event.verdict, CN_VERDICT_REJECTED);
    assert_string_equal(side.event.text, "at most 524288 bytes");
    stop(&side);
}

static void an_upload_starts_over_when_the_digest_is_another(void **state)
{
    struct board_side side = {0};

    (void)state;
    start(&side);
    side.fake->corrupt = 1;
    upload(&side);
    expect_receipt(&side);
    assert_int_equal(side.fake->chunks, 602);
    stop(&side);
}

static void chunks_the_aggregator_lost_are_sent_again(void **state)
{
    struct board_side side = {0};

    (void)state;
    start(&side);
    side.fake->regress = 2;
    upload(&side);
    expect_receipt(&side);
    assert_int_equal(side.fake->commits, 3);
    assert_int_equal(side.fake->chunks, 301 + 14);
    stop(&side);
}

static void forget_all(struct fake *fake)
{
    if (fake->chunks != 100)
        return;
    memset(fake->have, 0, sizeof(fake->have));
    fake->declared_any = false;
    fake->forgotten = true;
}

static void a_board_that_was_forgotten_registers_again_and_goes_on(void **state)
{
    struct board_side side = {0};

    (void)state;
    start(&side);
    register_board(&side);
    side.fake->on_chunk = forget_all;
    upload(&side);
    expect(&side, CN_LINK_REGISTERED);
    expect_receipt(&side);
    assert_int_equal(side.fake->registrations, 2);
    assert_int_equal(side.fake->declarations, 2);
    stop(&side);
}

static void a_busy_aggregator_is_asked_later(void **state)
{
    struct board_side side = {0};

    (void)state;
    start(&side);
    side.fake->busy = true;
    upload(&side);
    assert_int_equal(side.link->ops->fetch(side.link, side.fake->blob_digest, SIZE, SIZE), CN_OK);
    expect_nothing(&side);
    side.fake->busy = false;
    assert_int_equal(next_event(&side, WAIT_MS), CN_OK);
    assert_int_equal(next_event(&side, WAIT_MS), CN_OK);
    stop(&side);
}

static void an_update_put_off_is_declared_again_when_the_round_changes(void **state)
{
    struct board_side side = {0};

    (void)state;
    start(&side);
    register_board(&side);
    assert_int_equal(side.link->ops->watch(side.link, true), CN_OK);
    expect(&side, CN_LINK_ROUND);
    side.fake->postpones = true;
    upload(&side);
    for (int i = 0; i < 600 && !side.fake->postponed; i++)
        assert_int_equal(next_event(&side, 100), CN_EAGAIN);
    assert_int_equal(side.fake->postponed, 1);
    assert_int_equal(side.fake->chunks, 0);
    side.fake->postpones = false;
    side.fake->round.round++;
    assert_int_equal(next_event(&side, 60000), CN_OK);
    assert_int_equal(side.event.type, CN_LINK_ROUND);
    expect_receipt(&side);
    stop(&side);
}

static void an_outage_is_told_once_and_transfers_go_on_after_it(void **state)
{
    struct board_side side = {0};

    (void)state;
    start(&side);
    upload(&side);
    for (int i = 0; i < 3; i++)
        assert_int_equal(side.link->ops->poll(side.link, &side.event), CN_EAGAIN);
    cn_loopback_set_state(side.exchange, CN_EXCHANGE_DOWN, "nobody");
    expect(&side, CN_LINK_DOWN);
    assert_string_equal(side.event.text, "nobody");
    expect_nothing(&side);
    cn_loopback_set_state(side.exchange, CN_EXCHANGE_UP, "");
    expect(&side, CN_LINK_UP);
    expect_receipt(&side);
    stop(&side);
}

static void abandoned_transfers_end_without_an_event(void **state)
{
    struct board_side side = {0};

    (void)state;
    start(&side);
    upload(&side);
    assert_int_equal(side.link->ops->fetch(side.link, side.fake->blob_digest, SIZE, SIZE), CN_OK);
    for (int i = 0; i < 2; i++)
        assert_int_equal(side.link->ops->poll(side.link, &side.event), CN_EAGAIN);
    side.link->ops->abandon(side.link);
    expect_nothing(&side);
    upload(&side);
    expect_receipt(&side);
    stop(&side);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_registration_brings_the_manifest_and_the_keys_of_the_pairs),
        cmocka_unit_test(health_is_told_to_an_aggregator_that_knows_it),
        cmocka_unit_test(an_older_aggregator_is_told_once),
        cmocka_unit_test(health_finds_an_aggregator_that_forgot_the_board),
        cmocka_unit_test(keys_of_an_epoch_that_was_raised_meanwhile_are_asked_for_again),
        cmocka_unit_test(a_board_that_hears_nothing_is_told_its_last_registration),
        cmocka_unit_test(versions_that_do_not_fit_are_told_once_with_the_reason),
        cmocka_unit_test(a_round_is_told_when_it_changes),
        cmocka_unit_test(a_blob_is_fetched_and_checked),
        cmocka_unit_test(a_frame_is_uploaded_and_the_receipt_names_it),
        cmocka_unit_test(both_ways_survive_a_bad_network),
        cmocka_unit_test(verdicts_and_reasons_are_passed_on),
        cmocka_unit_test(an_upload_starts_over_when_the_digest_is_another),
        cmocka_unit_test(chunks_the_aggregator_lost_are_sent_again),
        cmocka_unit_test(a_board_that_was_forgotten_registers_again_and_goes_on),
        cmocka_unit_test(a_busy_aggregator_is_asked_later),
        cmocka_unit_test(an_update_put_off_is_declared_again_when_the_round_changes),
        cmocka_unit_test(an_outage_is_told_once_and_transfers_go_on_after_it),
        cmocka_unit_test(abandoned_transfers_end_without_an_event),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
