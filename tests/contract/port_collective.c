// The contract of runtime/port/collective.h, against every port that this build has. The ranks are
// threads, or processes where one is killed.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
// cmocka.h needs the four above.
#include <cmocka.h>

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "ports/tcp/ring.h"
#include "runtime/port/platform.h"

#define RANKS_MAX 4
#define COUNT_MAX 65537

static const struct cn_collective_ops *const ops = &cn_collective_tcp;

// A rank of a test: its own member list, as each board has its own keys.
struct rank {
    struct cn_member members[RANKS_MAX];
    struct cn_collective_config config;
    struct cn_collective *collective;
    pthread_t thread;
    void (*body)(struct rank *rank);
    size_t count; // for the body
    float *data;
    cn_err err;
    uint32_t lost; // of open
    uint64_t took_ms;
};

struct fixture {
    struct rank ranks[RANKS_MAX];
    uint32_t size;
};

static void fill_key(uint8_t key[CN_KEY_SIZE], uint32_t a, uint32_t b)
{
    memset(key, (int)(1 + (a < b ? a * 16 + b : b * 16 + a)), CN_KEY_SIZE);
}

// Every process has loopback addresses of its own, so tests can run side by side.
static void set_up(struct fixture *fixture, uint32_t size)
{
    unsigned pid = (unsigned)getpid();

    memset(fixture, 0, sizeof(*fixture));
    fixture->size = size;
    for (uint32_t r = 0; r < size; r++) {
        struct rank *rank = &fixture->ranks[r];

        for (uint32_t m = 0; m < size; m++) {
            snprintf(rank->members[m].name, CN_NAME_SIZE, "board-%u", m);
            snprintf(rank->members[m].address, sizeof(rank->members[m].address),
                     "127.%u.%u.%u:7400", 100 + (pid >> 14) % 100, (pid >> 6) & 255,
                     1 + (pid & 63) * RANKS_MAX % 250 + m);
            if (m != r)
                fill_key(rank->members[m].pair_key, r, m);
        }
        rank->config.members = rank->members;
        rank->config.member_count = size;
        rank->config.view.epoch = 7;
        rank->config.view.size = size;
        rank->config.view.rank = r;
        for (uint32_t m = 0; m < size; m++)
            rank->config.view.ranks[m] = m;
        rank->config.open_timeout_ms = 5000;
        rank->config.progress_timeout_ms = 5000;
        rank->config.cancel_fd = -1;
        rank->data = calloc(COUNT_MAX, sizeof(float));
        assert_non_null(rank->data);
    }
}

static void tear_down(struct fixture *fixture)
{
    for (uint32_t r = 0; r < fixture->size; r++)
        free(fixture->ranks[r].data);
}

static void *run_rank(void *context)
{
    struct rank *rank = context;
    uint64_t begin_ms = cn_platform_now_ms();

    rank->err = ops->open(&rank->config, &rank->collective, &rank->lost);
    if (!rank->err) {
        rank->body(rank);
        ops->close(rank->collective);
    }
    rank->took_ms = cn_platform_now_ms() - begin_ms;
    return NULL;
}

static void run_all(struct fixture *fixture, void (*body)(struct rank *rank))
{
    for (uint32_t r = 0; r < fixture->size; r++) {
        fixture->ranks[r].body = body;
        assert_int_equal(
            pthread_create(&fixture->ranks[r].thread, NULL, run_rank, &fixture->ranks[r]), 0);
    }
    for (uint32_t r = 0; r < fixture->size; r++)
        pthread_join(fixture->ranks[r].thread, NULL);
}

// Small integers: sums are exact in any order.
static float sample(uint32_t rank, size_t index)
{
    return (float)((index * 7 + rank * 13 + 3) % 101) - 50.0f;
}

static float expected(uint32_t size, size_t index, enum cn_reduce how)
{
    float result = sample(0, index);

    for (uint32_t r = 1; r < size; r++) {
        float value = sample(r, index);

        if (how == CN_REDUCE_SUM)
            result += value;
        else if (value > result)
            result = value;
    }
    return result;
}

static cn_err check_reduce(struct rank *rank, enum cn_reduce how, size_t count)
{
    uint32_t size = rank->config.view.size;
    cn_err err;

    for (size_t i = 0; i < count; i++)
        rank->data[i] = sample(rank->config.view.rank, i);
    err = ops->all_reduce(rank->collective, how, rank->data, count);
    for (size_t i = 0; !err && i < count; i++)
        if (rank->data[i] != expected(size, i, how))
            err = CN_EDIGEST;
    return err;
}

static void reduce_all_counts(struct rank *rank)
{
    size_t n = rank->config.view.size;
    const size_t counts[] = {0, 1, n - 1, n, n + 1, 3 * n + 1, COUNT_MAX};

    for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]) && !rank->err; i++) {
        rank->err = check_reduce(rank, CN_REDUCE_SUM, counts[i]);
        if (!rank->err)
            rank->err = check_reduce(rank, CN_REDUCE_MAX, counts[i]);
        if (!rank->err)
            rank->err = ops->barrier(rank->collective);
    }
}

static void all_reduce_agrees_with_the_serial_result(void **state)
{
    (void)state;
    for (uint32_t size = 1; size <= RANKS_MAX; size++) {
        struct fixture fixture;

        set_up(&fixture, size);
        run_all(&fixture, reduce_all_counts);
        for (uint32_t r = 0; r < size; r++)
            assert_int_equal(fixture.ranks[r].err, CN_OK);
        tear_down(&fixture);
    }
}

static void reduce_fractions(struct rank *rank)
{
    for (size_t i = 0; i < COUNT_MAX; i++)
        rank->data[i] = 1.0f / (float)(1 + i * 3 + rank->config.view.rank * 7);
    rank->err = ops->all_reduce(rank->collective, CN_REDUCE_SUM, rank->data, COUNT_MAX);
}

static void every_rank_and_every_run_get_the_same_bits(void **state)
{
    struct fixture first, second;

    (void)state;
    set_up(&first, RANKS_MAX);
    set_up(&second, RANKS_MAX);
    run_all(&first, reduce_fractions);
    run_all(&second, reduce_fractions);
    for (uint32_t r = 0; r < RANKS_MAX; r++) {
        const size_t size = COUNT_MAX * sizeof(float);

        assert_int_equal(first.ranks[r].err, CN_OK);
        assert_memory_equal(first.ranks[r].data, first.ranks[0].data, size);
        assert_memory_equal(second.ranks[r].data, first.ranks[0].data, size);
    }
    tear_down(&first);
    tear_down(&second);
}

static void reduce_a_nan(struct rank *rank)
{
    for (size_t i = 0; i < 8; i++)
        rank->data[i] = rank->config.view.rank == 1 && i == 5 ? (float)(0.0 / 0.0) : 1.0f;
    rank->err = ops->all_reduce(rank->collective, CN_REDUCE_MAX, rank->data, 8);
}

static void every_rank_sees_a_nan_of_one(void **state)
{
    struct fixture fixture;

    (void)state;
    set_up(&fixture, 3);
    run_all(&fixture, reduce_a_nan);
    for (uint32_t r = 0; r < 3; r++) {
        assert_int_equal(fixture.ranks[r].err, CN_OK);
        assert_true(fixture.ranks[r].data[5] != fixture.ranks[r].data[5]);
        assert_true(fixture.ranks[r].data[4] == 1.0f);
    }
    tear_down(&fixture);
}

static void broadcast_from_each(struct rank *rank)
{
    const size_t sizes[] = {0, 1, 17, COUNT_MAX * sizeof(float)};

    for (uint32_t root = 0; root < rank->config.view.size; root++) {
        for (size_t k = 0; k < sizeof(sizes) / sizeof(sizes[0]) && !rank->err; k++) {
            uint8_t *bytes = (uint8_t *)rank->data;

            for (size_t i = 0; i < sizes[k]; i++)
                bytes[i] = rank->config.view.rank == root ? (uint8_t)(i * 31 + root) : 0;
            rank->err = ops->broadcast(rank->collective, root, bytes, sizes[k]);
            for (size_t i = 0; i < sizes[k] && !rank->err; i++)
                if (bytes[i] != (uint8_t)(i * 31 + root))
                    rank->err = CN_EDIGEST;
        }
    }
}

static void broadcast_brings_the_bytes_of_the_root_to_all(void **state)
{
    (void)state;
    for (uint32_t size = 1; size <= RANKS_MAX; size++) {
        struct fixture fixture;

        set_up(&fixture, size);
        run_all(&fixture, broadcast_from_each);
        for (uint32_t r = 0; r < size; r++)
            assert_int_equal(fixture.ranks[r].err, CN_OK);
        tear_down(&fixture);
    }
}

static void reduce_until_error(struct rank *rank)
{
    while (!rank->err)
        rank->err = ops->all_reduce(rank->collective, CN_REDUCE_SUM, rank->data, COUNT_MAX);
    rank->count = ops->lost(rank->collective);
    if (rank->err && ops->barrier(rank->collective) == CN_OK)
        rank->err = CN_OK; // a dead collective stays dead
}

// Runs one rank in a child; its exit status tells whether it noticed the loss and named a member.
static pid_t fork_rank(struct rank *rank)
{
    pid_t pid = fork();

    if (pid)
        return pid;
    rank->body = reduce_until_error;
    run_rank(rank);
    _exit(rank->err == CN_EPEER && rank->count < rank->config.member_count &&
                  rank->count != rank->config.view.rank
              ? 0
              : 1);
}

static void survivors_of_a_killed_rank_name_a_member(void **state)
{
    (void)state;
    for (uint32_t victim = 0; victim < RANKS_MAX; victim++) {
        struct fixture fixture;
        pid_t pids[RANKS_MAX];
        uint64_t killed_ms;

        set_up(&fixture, RANKS_MAX);
        for (uint32_t r = 0; r < RANKS_MAX; r++)
            pids[r] = fork_rank(&fixture.ranks[r]);
        usleep(300000);
        kill(pids[victim], SIGKILL);
        killed_ms = cn_platform_now_ms();
        for (uint32_t r = 0; r < RANKS_MAX; r++) {
            int status = 0;

            assert_int_equal(waitpid(pids[r], &status, 0), pids[r]);
            if (r == victim)
                assert_true(WIFSIGNALED(status));
            else
                assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
        }
        // Far below the progress time-out: the loss was noticed, not waited for.
        assert_true(cn_platform_now_ms() - killed_ms < 3000);
        tear_down(&fixture);
    }
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
    set_up(&fixture, 3);
    for (uint32_t r = 0; r < 3; r++)
        fixture.ranks[r].config.progress_timeout_ms = 400;
    run_all(&fixture, stall_rank_one);
    // The first to run out of patience closes; whoever notices that sees a lost peer.
    for (uint32_t r = 0; r < 3; r += 2) {
        assert_true(fixture.ranks[r].err == CN_ETIMEOUT || fixture.ranks[r].err == CN_EPEER);
        timed_out |= fixture.ranks[r].err == CN_ETIMEOUT;
    }
    assert_true(timed_out);
    tear_down(&fixture);
}

static void do_nothing(struct rank *rank)
{
    (void)rank;
}

static void a_wrong_pair_key_is_refused(void **state)
{
    struct fixture fixture;

    (void)state;
    set_up(&fixture, 2);
    for (uint32_t r = 0; r < 2; r++)
        fixture.ranks[r].config.open_timeout_ms = 600;
    fixture.ranks[1].members[0].pair_key[31] ^= 1;
    run_all(&fixture, do_nothing);
    assert_int_equal(fixture.ranks[0].err, CN_EAUTH);
    assert_int_equal(fixture.ranks[1].err, CN_EAUTH);
    tear_down(&fixture);
}

static void a_key_of_zeros_is_refused(void **state)
{
    struct fixture fixture;

    (void)state;
    set_up(&fixture, 2);
    for (uint32_t r = 0; r < 2; r++) {
        fixture.ranks[r].config.open_timeout_ms = 600;
        memset(fixture.ranks[r].members[1 - r].pair_key, 0, CN_KEY_SIZE);
    }
    run_all(&fixture, do_nothing);
    assert_int_equal(fixture.ranks[0].err, CN_EAUTH);
    assert_int_equal(fixture.ranks[1].err, CN_EAUTH);
    tear_down(&fixture);
}

static void a_rank_of_an_older_epoch_is_refused(void **state)
{
    struct fixture fixture;

    (void)state;
    set_up(&fixture, 2);
    for (uint32_t r = 0; r < 2; r++)
        fixture.ranks[r].config.open_timeout_ms = 600;
    fixture.ranks[1].config.view.epoch = 6;
    run_all(&fixture, do_nothing);
    assert_int_equal(fixture.ranks[0].err, CN_ETIMEOUT); // it waits for the other to follow
    assert_int_equal(fixture.ranks[1].err, CN_ESTALE);
    tear_down(&fixture);
}

static void a_missing_rank_ends_open_at_its_time(void **state)
{
    struct fixture fixture;

    (void)state;
    set_up(&fixture, 3);
    fixture.size = 2; // nobody plays rank 2
    for (uint32_t r = 0; r < 2; r++)
        fixture.ranks[r].config.open_timeout_ms = 300;
    run_all(&fixture, do_nothing);
    for (uint32_t r = 0; r < 2; r++) {
        assert_true(fixture.ranks[r].err == CN_ETIMEOUT || fixture.ranks[r].err == CN_EPEER);
        assert_true(fixture.ranks[r].took_ms >= 250 || fixture.ranks[r].err == CN_EPEER);
        assert_int_equal(fixture.ranks[r].lost, 2);
    }
    fixture.size = 3;
    tear_down(&fixture);
}

static void open_ends_when_it_is_canceled(void **state)
{
    struct fixture fixture;

    (void)state;
    set_up(&fixture, 2);
    fixture.size = 1; // nobody plays rank 1
    fixture.ranks[0].config.cancel_fd = eventfd(1, EFD_CLOEXEC);
    run_all(&fixture, do_nothing);
    assert_int_equal(fixture.ranks[0].err, CN_ECANCELED);
    assert_int_equal(fixture.ranks[0].lost, UINT32_MAX);
    close(fixture.ranks[0].config.cancel_fd);
    fixture.size = 2;
    tear_down(&fixture);
}

static void *cancel_soon(void *context)
{
    usleep(200000);
    ops->cancel(context);
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
    rank->err = ops->all_reduce(rank->collective, CN_REDUCE_SUM, rank->data, COUNT_MAX);
    pthread_join(thread, NULL);
}

static void cancel_ends_a_running_call(void **state)
{
    struct fixture fixture;

    (void)state;
    set_up(&fixture, 2);
    run_all(&fixture, cancel_while_waiting);
    assert_int_equal(fixture.ranks[0].err, CN_ECANCELED);
    tear_down(&fixture);
}

static void issue_different_calls(struct rank *rank)
{
    rank->err = ops->all_reduce(rank->collective, CN_REDUCE_SUM, rank->data,
                                rank->config.view.rank == 0 ? 10 : 11);
}

static void different_calls_end_in_an_error(void **state)
{
    struct fixture fixture;

    (void)state;
    set_up(&fixture, 2);
    run_all(&fixture, issue_different_calls);
    assert_true(fixture.ranks[0].err == CN_ECONFLICT || fixture.ranks[0].err == CN_EPEER);
    assert_true(fixture.ranks[1].err == CN_ECONFLICT || fixture.ranks[1].err == CN_EPEER);
    tear_down(&fixture);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_reduce_agrees_with_the_serial_result),
        cmocka_unit_test(every_rank_and_every_run_get_the_same_bits),
        cmocka_unit_test(every_rank_sees_a_nan_of_one),
        cmocka_unit_test(broadcast_brings_the_bytes_of_the_root_to_all),
        cmocka_unit_test(survivors_of_a_killed_rank_name_a_member),
        cmocka_unit_test(a_silent_rank_is_a_timeout),
        cmocka_unit_test(a_wrong_pair_key_is_refused),
        cmocka_unit_test(a_key_of_zeros_is_refused),
        cmocka_unit_test(a_rank_of_an_older_epoch_is_refused),
        cmocka_unit_test(a_missing_rank_ends_open_at_its_time),
        cmocka_unit_test(open_ends_when_it_is_canceled),
        cmocka_unit_test(cancel_ends_a_running_call),
        cmocka_unit_test(different_calls_end_in_an_error),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
