#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
// cmocka.h needs the four above.
#include <cmocka.h>

#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

#include "runtime/group/queue.h"

// A collective that writes down its calls, stands still while it is held, and fails at one of them.
struct fake {
    struct cn_collective base;
    pthread_mutex_t mutex;
    pthread_cond_t released;
    bool held;
    uint32_t ran[200]; // fingerprints
    uint32_t count;
    uint32_t fails_at; // fingerprint; 0 for never
};

static cn_err fake_run(struct cn_collective *collective, const struct cn_collective_call *call)
{
    struct fake *fake = (struct fake *)collective;

    pthread_mutex_lock(&fake->mutex);
    while (fake->held)
        pthread_cond_wait(&fake->released, &fake->mutex);
    fake->ran[fake->count++] = call->fingerprint;
    pthread_mutex_unlock(&fake->mutex);
    return fake->fails_at == call->fingerprint && fake->fails_at ? CN_EPEER : CN_OK;
}

static void fake_hold(struct fake *fake, bool hold)
{
    pthread_mutex_lock(&fake->mutex);
    fake->held = hold;
    pthread_cond_broadcast(&fake->released);
    pthread_mutex_unlock(&fake->mutex);
}

static void fake_cancel(struct cn_collective *collective, bool gives_up)
{
    (void)gives_up;
    fake_hold((struct fake *)collective, false);
}

static const struct cn_collective_ops fake_ops = {
    .name = "fake", .run = fake_run, .cancel = fake_cancel};

struct queue_world {
    struct fake fake;
    struct cn_queue *queue;
};

static int set_up(void **state)
{
    struct queue_world *world = calloc(1, sizeof(*world));

    assert_non_null(world);
    world->fake.base.ops = &fake_ops;
    pthread_mutex_init(&world->fake.mutex, NULL);
    pthread_cond_init(&world->fake.released, NULL);
    assert_int_equal(cn_queue_open(&world->fake.base, &world->queue), CN_OK);
    *state = world;
    return 0;
}

static int tear_down(void **state)
{
    struct queue_world *world = *state;

    fake_hold(&world->fake, false);
    cn_queue_close(world->queue);
    pthread_mutex_destroy(&world->fake.mutex);
    pthread_cond_destroy(&world->fake.released);
    free(world);
    return 0;
}

static cn_err post(struct queue_world *world, uint32_t fingerprint, struct cn_work *work)
{
    const struct cn_collective_call call = {.kind = CN_COLLECTIVE_BARRIER,
                                            .fingerprint = fingerprint};

    return cn_queue_post(world->queue, &call, work);
}

static void calls_run_in_the_order_in_which_they_were_posted(void **state)
{
    struct queue_world *world = *state;
    struct cn_work work = {0};

    for (uint32_t i = 1; i <= 150; i++)
        while (post(world, i, &work) == CN_EAGAIN)
            assert_int_equal(cn_queue_wait(world->queue, work, 5000), CN_OK);
    assert_int_equal(cn_queue_wait(world->queue, work, 5000), CN_OK);
    assert_true(cn_queue_test(world->queue, work));
    assert_int_equal(world->fake.count, 150);
    for (uint32_t i = 0; i < 150; i++)
        assert_int_equal(world->fake.ran[i], i + 1);
}

static void posting_does_not_wait_for_the_call(void **state)
{
    struct queue_world *world = *state;
    struct cn_work work;

    fake_hold(&world->fake, true);
    assert_int_equal(post(world, 1, &work), CN_OK);
    assert_false(cn_queue_test(world->queue, work));
    assert_int_equal(cn_queue_wait(world->queue, work, 30), CN_ETIMEOUT);
    fake_hold(&world->fake, false);
    assert_int_equal(cn_queue_wait(world->queue, work, 5000), CN_OK);
}

static void a_full_queue_says_so(void **state)
{
    struct queue_world *world = *state;
    struct cn_work first, work;

    fake_hold(&world->fake, true);
    assert_int_equal(post(world, 1, &first), CN_OK);
    for (uint32_t i = 2; i <= CN_QUEUE_SIZE; i++)
        assert_int_equal(post(world, i, &work), CN_OK);
    assert_int_equal(post(world, 99, &work), CN_EAGAIN);
    fake_hold(&world->fake, false);
    assert_int_equal(cn_queue_wait(world->queue, first, 5000), CN_OK);
    assert_int_equal(post(world, 99, &work), CN_OK);
    assert_int_equal(cn_queue_wait(world->queue, work, 5000), CN_OK);
}

static void a_failure_ends_what_is_behind_it(void **state)
{
    struct queue_world *world = *state;
    struct cn_work before, failing, behind;

    world->fake.fails_at = 2;
    fake_hold(&world->fake, true);
    assert_int_equal(post(world, 1, &before), CN_OK);
    assert_int_equal(post(world, 2, &failing), CN_OK);
    assert_int_equal(post(world, 3, &behind), CN_OK);
    fake_hold(&world->fake, false);
    assert_int_equal(cn_queue_wait(world->queue, behind, 5000), CN_EPEER);
    assert_int_equal(cn_queue_wait(world->queue, failing, 5000), CN_EPEER);
    assert_int_equal(cn_queue_wait(world->queue, before, 5000), CN_OK);
    assert_int_equal(post(world, 4, &behind), CN_OK);
    assert_int_equal(cn_queue_wait(world->queue, behind, 5000), CN_EPEER);
    assert_int_equal(world->fake.count, 2); // the third was not tried
}

static void *cancel_later(void *context)
{
    struct queue_world *world = context;

    usleep(50000);
    world->fake.base.ops->cancel(&world->fake.base, false);
    return NULL;
}

static void closing_waits_for_the_call_in_progress_only(void **state)
{
    struct queue_world *world = *state;
    struct cn_work work;
    pthread_t thread;

    fake_hold(&world->fake, true);
    for (uint32_t i = 1; i <= 5; i++)
        assert_int_equal(post(world, i, &work), CN_OK);
    usleep(50000); // the first has begun
    pthread_create(&thread, NULL, cancel_later, world);
    cn_queue_close(world->queue);
    pthread_join(thread, NULL);
    world->queue = NULL;
    assert_int_equal(world->fake.count, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(calls_run_in_the_order_in_which_they_were_posted, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(posting_does_not_wait_for_the_call, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_full_queue_says_so, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_failure_ends_what_is_behind_it, set_up, tear_down),
        cmocka_unit_test_setup_teardown(closing_waits_for_the_call_in_progress_only, set_up,
                                        tear_down),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
