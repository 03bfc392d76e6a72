// Messages between worker and owner: none is lost, and none is mistaken for another.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/port/platform.h"
#include "runtime/round/epoch/mailbox.h"

static int set_up(void **state)
{
    struct cn_mailbox *box = calloc(1, sizeof(*box));

    *state = box;
    return box ? cn_mailbox_init(box) : -1;
}

static int tear_down(void **state)
{
    cn_mailbox_deinit(*state);
    free(*state);
    return 0;
}

static void request(struct cn_mailbox *box, enum cn_errand kind, uint8_t *frame, size_t size)
{
    struct cn_errand_request wanted = {.kind = kind, .upload = {.frame = frame, .size = size}};

    assert_int_equal(cn_mailbox_request(box, &wanted), CN_OK);
}

// The number of the request that the owner found, its frame freed.
static uint32_t take(struct cn_mailbox *box)
{
    struct cn_errand_request taken;

    assert_true(cn_mailbox_take_request(box, &taken));
    free((void *)taken.upload.frame);
    return taken.number;
}

static void answer_upload(struct cn_mailbox *box, uint32_t number, enum cn_verdict verdict)
{
    struct cn_errand_answer answer = {
        .kind = CN_ERRAND_UPLOAD, .number = number, .verdict = verdict};

    cn_mailbox_put_answer(box, &answer);
}

static void an_answer_reaches_the_errand_it_belongs_to_once(void **state)
{
    struct cn_mailbox *box = *state;
    struct cn_errand_answer answer;
    uint8_t frame[3] = {1, 2, 3};

    request(box, CN_ERRAND_UPLOAD, frame, sizeof(frame));
    assert_false(cn_mailbox_take_answer(box, CN_ERRAND_UPLOAD, &answer));
    answer_upload(box, take(box), CN_VERDICT_LATE);
    assert_true(cn_mailbox_requested(box, CN_ERRAND_UPLOAD));
    assert_false(cn_mailbox_take_answer(box, CN_ERRAND_FETCH, &answer));
    assert_true(cn_mailbox_take_answer(box, CN_ERRAND_UPLOAD, &answer));
    assert_int_equal(answer.verdict, CN_VERDICT_LATE);
    assert_false(cn_mailbox_take_answer(box, CN_ERRAND_UPLOAD, &answer));
    assert_false(cn_mailbox_requested(box, CN_ERRAND_UPLOAD));
}

static void time_that_a_round_is_given_reaches_the_worker(void **state)
{
    struct cn_mailbox *box = *state;
    struct cn_round_info news = {.run = 1, .round = 3, .remaining_ms = 60000}, other = news, seen;

    cn_mailbox_put_remaining(box, &news);
    assert_false(cn_mailbox_news(box, &seen));
    cn_mailbox_put_news(box, &news);
    news.remaining_ms = 900000;
    cn_mailbox_put_remaining(box, &news);
    assert_true(cn_mailbox_news(box, &seen));
    assert_in_range(seen.remaining_ms, 800000, 900000);
    other.round = 4;
    cn_mailbox_put_remaining(box, &other); // another round's time
    assert_true(cn_mailbox_news(box, &seen));
    assert_in_range(seen.remaining_ms, 800000, 900000);
    news.remaining_ms = UINT64_MAX;
    cn_mailbox_put_remaining(box, &news);
    assert_true(cn_mailbox_news(box, &seen));
    assert_true(seen.remaining_ms > UINT64_MAX / 2);
}

static void a_late_receipt_is_not_taken_for_that_of_another_update(void **state)
{
    struct cn_mailbox *box = *state;
    struct cn_errand_answer answer;
    uint8_t frame[1] = {0};
    uint32_t first;

    request(box, CN_ERRAND_UPLOAD, frame, 1);
    first = take(box);
    cn_mailbox_drop_errand(box); // the outcome came with the news
    answer_upload(box, first, CN_VERDICT_ACCEPTED);
    request(box, CN_ERRAND_UPLOAD, frame, 1);
    assert_false(cn_mailbox_take_answer(box, CN_ERRAND_UPLOAD, &answer));
    answer_upload(box, first, CN_VERDICT_ACCEPTED);
    assert_false(cn_mailbox_take_answer(box, CN_ERRAND_UPLOAD, &answer));
    answer_upload(box, take(box), CN_VERDICT_REJECTED);
    assert_true(cn_mailbox_take_answer(box, CN_ERRAND_UPLOAD, &answer));
    assert_int_equal(answer.verdict, CN_VERDICT_REJECTED);
}

static void a_dropped_errand_tells_the_owner_to_abandon_it(void **state)
{
    struct cn_mailbox *box = *state;
    struct cn_errand_request taken;
    uint8_t frame[1] = {0};

    request(box, CN_ERRAND_UPLOAD, frame, 1);
    take(box);
    cn_mailbox_drop_errand(box);
    assert_true(cn_mailbox_take_request(box, &taken));
    assert_int_equal(taken.kind, CN_ERRAND_NONE);
    assert_false(cn_mailbox_take_request(box, &taken));
}

static void the_owner_gets_a_frame_of_its_own(void **state)
{
    struct cn_mailbox *box = *state;
    struct cn_errand_request taken;
    uint8_t frame[2] = {7, 8};

    request(box, CN_ERRAND_UPLOAD, frame, sizeof(frame));
    frame[0] = 0;
    assert_true(cn_mailbox_take_request(box, &taken));
    assert_int_equal(taken.upload.frame[0], 7);
    free((void *)taken.upload.frame);
}

static void what_was_put_before_the_wait_ends_it(void **state)
{
    struct cn_mailbox *box = *state;
    struct cn_membership_view view = {.view = {.epoch = 3, .size = 1}}, taken;
    uint64_t begun = cn_platform_now_ms();

    assert_false(cn_mailbox_take_view(box, &taken));
    cn_mailbox_put_view(box, &view); // between the look and the wait
    cn_mailbox_wait(box, 600000);    // the test's own time-out is shorter
    assert_true(cn_mailbox_take_view(box, &taken));
    assert_int_equal(taken.view.epoch, 3);
    cn_mailbox_wait(box, 20);
    assert_true(cn_platform_now_ms() - begun >= 20); // nothing new: it waited
}

static void *stop_soon(void *context)
{
    cn_platform_sleep_ms(20);
    cn_mailbox_stop(context);
    return NULL;
}

static void stop_ends_every_wait(void **state)
{
    struct cn_mailbox *box = *state;
    struct pollfd stopped = {.fd = cn_mailbox_stop_fd(box), .events = POLLIN};
    pthread_t thread;

    assert_int_equal(poll(&stopped, 1, 0), 0);
    assert_int_equal(pthread_create(&thread, NULL, stop_soon, box), 0);
    while (!cn_mailbox_stopped(box))
        cn_mailbox_wait(box, 600000);
    pthread_join(thread, NULL);
    cn_mailbox_wait(box, 600000);
    assert_int_equal(poll(&stopped, 1, 0), 1);
}

static void a_word_of_the_worker_wakes_the_owner(void **state)
{
    struct cn_mailbox *box = *state;
    struct pollfd wake = {.fd = cn_mailbox_descriptor(box), .events = POLLIN};
    struct cn_left left = {.lost = 2, .unopened = true, .tag = {.round = 4}}, taken;

    assert_false(cn_mailbox_take_left(box, &taken));
    cn_mailbox_put_left(box, &left);
    assert_int_equal(poll(&wake, 1, 0), 1);
    cn_mailbox_drain(box);
    assert_int_equal(poll(&wake, 1, 0), 0);
    assert_true(cn_mailbox_take_left(box, &taken));
    assert_int_equal(taken.lost, 2);
    assert_true(taken.unopened);
    assert_int_equal(taken.tag.round, 4);
    assert_false(cn_mailbox_take_left(box, &taken));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(an_answer_reaches_the_errand_it_belongs_to_once, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(time_that_a_round_is_given_reaches_the_worker, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(a_late_receipt_is_not_taken_for_that_of_another_update,
                                        set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_dropped_errand_tells_the_owner_to_abandon_it, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(the_owner_gets_a_frame_of_its_own, set_up, tear_down),
        cmocka_unit_test_setup_teardown(what_was_put_before_the_wait_ends_it, set_up, tear_down),
        cmocka_unit_test_setup_teardown(stop_ends_every_wait, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_word_of_the_worker_wakes_the_owner, set_up, tear_down),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
