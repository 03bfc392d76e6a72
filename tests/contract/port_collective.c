// The contract of runtime/port/collective.h: who is lost, silent, unwelcome or in disagreement. The
// ranks are threads, or processes where one is killed.
#include <arpa/inet.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "runtime/port/platform.h"
#include "tests/contract/collective_group.h"

#ifndef SETTLE_MS // until all are connected and at work; an emulator needs longer
#define SETTLE_MS 300
#endif
#define KILLED_RANKS 4

static void reduce_until_error(struct rank *rank)
{
    while (!rank->err)
        rank->err = cn_all_reduce(rank->collective, CN_REDUCE_SUM, rank->data, COUNT_MAX);
    rank->count = group_ops->lost(rank->collective);
    if (rank->err && cn_barrier(rank->collective) == CN_OK)
        rank->err = CN_OK; // a dead collective stays dead
}

// Runs one rank in a child; its exit status tells whether it noticed the loss and named a member.
static pid_t fork_rank(struct rank *rank)
{
    pid_t pid = fork();

    if (pid)
        return pid;
    rank->body = reduce_until_error;
    group_run_rank(rank);
    _exit(rank->err != CN_EPEER ? 255 : rank->count == UINT32_MAX ? 254 : (int)rank->count);
}

static void survivors_of_a_killed_rank_name_it(void **state)
{
    (void)state;
    for (uint32_t victim = 0; victim < KILLED_RANKS; victim++) {
        struct fixture fixture;
        pid_t pids[KILLED_RANKS];
        uint64_t killed_ms;
        uint32_t named = 0;

        group_set_up(&fixture, KILLED_RANKS);
        for (uint32_t r = 0; r < KILLED_RANKS; r++)
            pids[r] = fork_rank(&fixture.ranks[r]);
        usleep(SETTLE_MS * 1000);
        kill(pids[victim], SIGKILL);
        killed_ms = cn_platform_now_ms();
        for (uint32_t r = 0; r < KILLED_RANKS; r++) {
            int status = 0;

            assert_int_equal(waitpid(pids[r], &status, 0), pids[r]);
            if (r == victim)
                assert_true(WIFSIGNALED(status));
            else
                named += WIFEXITED(status) && WEXITSTATUS(status) == (int)victim;
            // A busy machine may show the end of the victim late; nobody else is named instead.
            if (r != victim)
                assert_true(WIFEXITED(status) &&
                            (WEXITSTATUS(status) == (int)victim || WEXITSTATUS(status) == 254));
        }
        assert_true(named > 0);
        // Far below the progress time-out: the loss was noticed, not waited for.
        assert_true(cn_platform_now_ms() - killed_ms < 3000);
        group_tear_down(&fixture);
    }
}

// Rank 2 ends; rank 0 notices, closes, and only then rank 1 looks at its connections.
static atomic_bool rank_0_gave_up;

static void end_one_after_the_other(struct rank *rank)
{
    uint32_t self = rank->config.view.rank;

    rank->err = cn_barrier(rank->collective);
    while (self == 1 && !atomic_load(&rank_0_gave_up))
        usleep(1000);
    if (self == 2)
        return;
    reduce_until_error(rank);
    if (self == 0)
        atomic_store(&rank_0_gave_up, true);
}

static void a_rank_that_gave_up_is_not_named(void **state)
{
    struct fixture fixture;

    (void)state;
    atomic_store(&rank_0_gave_up, false);
    group_set_up(&fixture, 3);
    group_run(&fixture, end_one_after_the_other);
    for (uint32_t r = 0; r < 2; r++) {
        assert_int_equal(fixture.ranks[r].err, CN_EPEER);
        assert_int_equal(fixture.ranks[r].count, 2);
    }
    group_tear_down(&fixture);
}

static void stall_rank_one(struct rank *rank)
{
    if (rank->config.view.rank == 1)
        usleep(1500000);
    else
        reduce_until_error(rank);
}

static void a_silent_rank_is_a_timeout(void **state)
{
    struct fixture fixture;
    bool timed_out = false;

    (void)state;
    group_set_up(&fixture, 3);
    for (uint32_t r = 0; r < 3; r++)
        fixture.ranks[r].config.progress_timeout_ms = 400;
    group_run(&fixture, stall_rank_one);
    // The first to run out of patience closes; whoever notices that sees a lost peer.
    for (uint32_t r = 0; r < 3; r += 2) {
        assert_true(fixture.ranks[r].err == CN_ETIMEOUT || fixture.ranks[r].err == CN_EPEER);
        timed_out |= fixture.ranks[r].err == CN_ETIMEOUT;
    }
    assert_true(timed_out);
    group_tear_down(&fixture);
}

static void do_nothing(struct rank *rank)
{
    (void)rank;
}

static void a_wrong_pair_key_is_refused(void **state)
{
    cn_err first = CN_ETIMEOUT, second = CN_ETIMEOUT;

    (void)state;
    // Who has not seen a handshake to its end knows of no key: a busy machine gets more time.
    for (uint32_t wait_ms = 2 * SETTLE_MS; wait_ms < GROUP_TIMEOUT_MS; wait_ms *= 2) {
        struct fixture fixture;

        group_set_up(&fixture, 2);
        for (uint32_t r = 0; r < 2; r++)
            fixture.ranks[r].config.open_timeout_ms = wait_ms;
        fixture.ranks[1].members[0].pair_key[31] ^= 1;
        group_run(&fixture, do_nothing);
        first = fixture.ranks[0].err;
        second = fixture.ranks[1].err;
        group_tear_down(&fixture);
        if (first != CN_ETIMEOUT && second != CN_ETIMEOUT)
            break;
    }
    assert_int_equal(first, CN_EAUTH);
    assert_int_equal(second, CN_EAUTH);
}

// The other rank gives up first and closes its port, so that the last attempts find nobody.
static void a_wrong_pair_key_is_named_after_the_other_rank_has_left(void **state)
{
    cn_err first = CN_ETIMEOUT, second = CN_ETIMEOUT;

    (void)state;
    for (uint32_t wait_ms = 2 * SETTLE_MS; wait_ms < GROUP_TIMEOUT_MS && first == CN_ETIMEOUT;
         wait_ms *= 2) {
        struct fixture fixture;

        group_set_up(&fixture, 2);
        fixture.ranks[0].config.open_timeout_ms = wait_ms;
        fixture.ranks[1].config.open_timeout_ms = GROUP_TIMEOUT_MS;
        fixture.ranks[1].members[0].pair_key[31] ^= 1;
        group_run(&fixture, do_nothing);
        first = fixture.ranks[0].err;
        second = fixture.ranks[1].err;
        assert_int_equal(fixture.ranks[1].lost, 0);
        group_tear_down(&fixture);
    }
    assert_int_equal(first, CN_EAUTH);
    assert_int_equal(second, CN_EAUTH);
}

static void a_key_of_zeros_is_refused(void **state)
{
    struct fixture fixture;

    (void)state;
    group_set_up(&fixture, 2);
    for (uint32_t r = 0; r < 2; r++) {
        fixture.ranks[r].config.open_timeout_ms = 2 * SETTLE_MS;
        memset(fixture.ranks[r].members[1 - r].pair_key, 0, CN_KEY_SIZE);
    }
    group_run(&fixture, do_nothing);
    assert_int_equal(fixture.ranks[0].err, CN_EAUTH);
    assert_int_equal(fixture.ranks[1].err, CN_EAUTH);
    group_tear_down(&fixture);
}

static void a_rank_of_an_older_epoch_is_refused(void **state)
{
    struct fixture fixture;

    (void)state;
    group_set_up(&fixture, 2);
    for (uint32_t r = 0; r < 2; r++)
        fixture.ranks[r].config.open_timeout_ms = 2 * SETTLE_MS;
    fixture.ranks[1].config.view.epoch = 6;
    group_run(&fixture, do_nothing);
    assert_int_equal(fixture.ranks[0].err, CN_ETIMEOUT); // it waits for the other to follow
    assert_int_equal(fixture.ranks[1].err, CN_ESTALE);
    group_tear_down(&fixture);
}

static void a_missing_rank_ends_open_at_its_time(void **state)
{
    struct fixture fixture;

    (void)state;
    group_set_up(&fixture, 3);
    fixture.size = 2; // nobody plays rank 2
    for (uint32_t r = 0; r < 2; r++)
        fixture.ranks[r].config.open_timeout_ms = SETTLE_MS;
    group_run(&fixture, do_nothing);
    for (uint32_t r = 0; r < 2; r++) {
        assert_true(fixture.ranks[r].err == CN_ETIMEOUT || fixture.ranks[r].err == CN_EPEER);
        assert_true(fixture.ranks[r].took_ms >= SETTLE_MS - 50 || fixture.ranks[r].err == CN_EPEER);
        assert_int_equal(fixture.ranks[r].lost, 2);
    }
    fixture.size = 3;
    group_tear_down(&fixture);
}

static void open_ends_when_it_is_canceled(void **state)
{
    struct fixture fixture;

    (void)state;
    group_set_up(&fixture, 2);
    fixture.size = 1; // nobody plays rank 1
    fixture.ranks[0].config.cancel_fd = eventfd(1, EFD_CLOEXEC);
    group_run(&fixture, do_nothing);
    assert_int_equal(fixture.ranks[0].err, CN_ECANCELED);
    assert_int_equal(fixture.ranks[0].lost, UINT32_MAX);
    close(fixture.ranks[0].config.cancel_fd);
    fixture.size = 2;
    group_tear_down(&fixture);
}

static void *write_soon(void *context)
{
    usleep(SETTLE_MS * 1000);
    (void)eventfd_write(*(int *)context, 1);
    return NULL;
}

// Rank 1 gives up while all wait for rank 2, whom nobody plays.
static void a_rank_that_is_gone_ends_the_open_of_the_others(void **state)
{
    struct fixture fixture;
    pthread_t thread;
    int gone = eventfd(0, EFD_CLOEXEC);

    (void)state;
    group_set_up(&fixture, 3);
    fixture.size = 2;
    fixture.ranks[1].config.cancel_fd = gone;
    pthread_create(&thread, NULL, write_soon, &gone);
    group_run(&fixture, do_nothing);
    pthread_join(thread, NULL);
    assert_int_equal(fixture.ranks[1].err, CN_ECANCELED);
    assert_int_equal(fixture.ranks[0].err, CN_EPEER);
    assert_true(fixture.ranks[0].took_ms < fixture.ranks[0].config.open_timeout_ms);
    close(gone);
    fixture.size = 3;
    group_tear_down(&fixture);
}

// Takes one connection and ends, as a process that is killed.
static void *listen_once(void *context)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(7400)};
    char host[16] = "";
    int listener = socket(AF_INET, SOCK_STREAM, 0), on = 1, taken;

    (void)sscanf(context, "%15[^:]", host);
    inet_pton(AF_INET, host, &address.sin_addr);
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    if (bind(listener, (struct sockaddr *)&address, sizeof(address)) == 0 &&
        listen(listener, 1) == 0) {
        taken = accept(listener, NULL, NULL);
        close(listener);
        close(taken);
    }
    return NULL;
}

static void a_rank_that_dies_before_it_is_connected_ends_the_open(void **state)
{
    struct fixture fixture;
    struct rank *rank = &fixture.ranks[1];
    pthread_t thread;

    (void)state;
    group_set_up(&fixture, 2);
    rank->body = do_nothing;
    pthread_create(&thread, NULL, listen_once, rank->members[0].address);
    group_run_rank(rank);
    pthread_join(thread, NULL);
    assert_int_equal(rank->err, CN_EPEER);
    assert_int_equal(rank->lost, 0);
    assert_true(rank->took_ms < rank->config.open_timeout_ms);
    group_tear_down(&fixture);
}

static void *cancel_soon(void *context)
{
    usleep(200000);
    group_ops->cancel(context, false);
    return NULL;
}

static void cancel_while_waiting(struct rank *rank)
{
    pthread_t thread;

    if (rank->config.view.rank == 1) {
        usleep(1000000); // never takes part
        return;
    }
    pthread_create(&thread, NULL, cancel_soon, rank->collective);
    rank->err = cn_all_reduce(rank->collective, CN_REDUCE_SUM, rank->data, COUNT_MAX);
    pthread_join(thread, NULL);
}

static void cancel_ends_a_running_call(void **state)
{
    struct fixture fixture;

    (void)state;
    group_set_up(&fixture, 2);
    group_run(&fixture, cancel_while_waiting);
    assert_int_equal(fixture.ranks[0].err, CN_ECANCELED);
    group_tear_down(&fixture);
}

// Rank 2 is silent, rank 0 hears elsewhere that it is lost and gives up; rank 1 sees only rank 0.
static atomic_uint ended;

static void *give_up_soon(void *context)
{
    usleep(SETTLE_MS * 1000);
    group_ops->cancel(context, true);
    return NULL;
}

static void give_up_because_of_rank_two(struct rank *rank)
{
    uint32_t self = rank->config.view.rank;
    pthread_t thread;

    if (self == 2) {
        for (int i = 0; atomic_load(&ended) < 2 && i < 60000; i++)
            usleep(1000);
        return;
    }
    if (self == 0)
        pthread_create(&thread, NULL, give_up_soon, rank->collective);
    reduce_until_error(rank);
    if (self == 0)
        pthread_join(thread, NULL);
    atomic_fetch_add(&ended, 1);
}

static void a_rank_that_is_canceled_because_of_another_is_not_named(void **state)
{
    struct fixture fixture;

    (void)state;
    atomic_store(&ended, 0);
    group_set_up(&fixture, 3);
    group_run(&fixture, give_up_because_of_rank_two);
    assert_int_equal(fixture.ranks[0].err, CN_ECANCELED);
    assert_int_equal(fixture.ranks[1].err, CN_EPEER);
    assert_int_not_equal(fixture.ranks[1].count, 0);
    group_tear_down(&fixture);
}

static void issue_different_calls(struct rank *rank)
{
    rank->err = cn_all_reduce(rank->collective, CN_REDUCE_SUM, rank->data,
                              rank->config.view.rank == 0 ? 10 : 11);
}

static void different_calls_end_in_an_error(void **state)
{
    struct fixture fixture;

    (void)state;
    group_set_up(&fixture, 2);
    group_run(&fixture, issue_different_calls);
    assert_true(fixture.ranks[0].err == CN_ECONFLICT || fixture.ranks[0].err == CN_EPEER);
    assert_true(fixture.ranks[1].err == CN_ECONFLICT || fixture.ranks[1].err == CN_EPEER);
    group_tear_down(&fixture);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(survivors_of_a_killed_rank_name_it),
        cmocka_unit_test(a_rank_that_gave_up_is_not_named),
        cmocka_unit_test(a_silent_rank_is_a_timeout),
        cmocka_unit_test(a_wrong_pair_key_is_refused),
        cmocka_unit_test(a_wrong_pair_key_is_named_after_the_other_rank_has_left),
        cmocka_unit_test(a_key_of_zeros_is_refused),
        cmocka_unit_test(a_rank_of_an_older_epoch_is_refused),
        cmocka_unit_test(a_missing_rank_ends_open_at_its_time),
        cmocka_unit_test(open_ends_when_it_is_canceled),
        cmocka_unit_test(a_rank_that_is_gone_ends_the_open_of_the_others),
        cmocka_unit_test(a_rank_that_dies_before_it_is_connected_ends_the_open),
        cmocka_unit_test(cancel_ends_a_running_call),
        cmocka_unit_test(a_rank_that_is_canceled_because_of_another_is_not_named),
        cmocka_unit_test(different_calls_end_in_an_error),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
