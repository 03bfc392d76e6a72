// The NCCL port over a fake library: that it reduces right, and what it does when the library
// hangs, fails or does not let go. The control is the real encrypted collective.
#include "tests/contract/collective_group.h"

#include <dirent.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "ports/nccl/abort.h"
#include "ports/nccl/collective_nccl.h"
#include "ports/nccl/failures.h"
#include "runtime/group/backend.h"
#include "runtime/port/platform.h"
#include "tests/support/fake_nccl.h"

#define RANKS 4
#define COUNT 60000
#define MANY                                                                                       \
    4300007 // more than a pass: float32 through 16 MiB, or shares of two members in 16 bits

static const struct fake_nccl_plan healthy = {.newer_version_rank = -1};

static const struct cn_set pair = {.id = 7, .size = 2, .ranks = {1, 3}};

// What a test wants of every rank, and what came of it.
static struct {
    const struct nccl_library *library;
    bool lacks_library[RANKS];
    cn_err opened[RANKS];
} trial;

static cn_err open_fake(const struct cn_collective_config *config,
                        struct cn_collective **collective, uint32_t *lost)
{
    uint32_t rank = config->view.rank;

    *lost = UINT32_MAX;
    fake_nccl_be((int)rank);
    trial.opened[rank] =
        cn_nccl_open_with(trial.lacks_library[rank] ? NULL : trial.library, config, collective);
    return trial.opened[rank];
}

static const struct cn_collective_ops fake_ops = {.name = "nccl", .open = open_fake};

static void group_of(struct fixture *fixture, const struct fake_nccl_plan *plan)
{
    assert_true(nccl_await_ends(GROUP_TIMEOUT_MS));
    memset(&trial, 0, sizeof(trial));
    trial.library = &fake_nccl;
    fake_nccl_reset(plan);
    group_set_up(fixture, RANKS);
    group_use_sets(fixture, &pair, 1);
}

// What the library has counted once all communicators have ended.
static struct fake_nccl_counts counts_at_end(void)
{
    assert_true(nccl_await_ends(GROUP_TIMEOUT_MS));
    return fake_nccl_counts();
}

// No rank ends with an error.
static void run_well(struct fixture *fixture, void (*run)(struct rank *))
{
    group_run(fixture, run);
    for (uint32_t r = 0; r < RANKS; r++)
        assert_int_equal(fixture->ranks[r].err, CN_OK);
}

// Opens NCCL beside the collective of the rank, runs body on it and closes it.
static void with_nccl(struct rank *rank, void (*body)(struct rank *rank))
{
    struct cn_collective_config config = rank->config;
    struct cn_collective *control = rank->collective;
    uint32_t lost;

    config.control = rank->config.control = control;
    config.open_timeout_ms = 300;
    rank->err = fake_ops.open(&config, &rank->collective, &lost);
    if (rank->err) {
        rank->collective = control;
        return;
    }
    rank->err = rank->collective->ops->prepare(rank->collective, rank->sets, rank->set_count);
    if (!rank->err)
        body(rank);
    rank->collective->ops->close(rank->collective);
    rank->collective = control;
}

static float value_of(uint32_t rank, size_t i)
{
    return (float)((i * 7 + rank * 13) % 101);
}

static void fill(struct rank *rank)
{
    for (size_t i = 0; i < COUNT; i++)
        rank->data[i] = value_of(rank->config.view.rank, i);
}

static cn_err compare(const struct rank *rank, const uint32_t *ranks, uint32_t size, size_t first,
                      size_t end)
{
    for (size_t i = first; i < end; i++) {
        float sum = 0;

        for (uint32_t p = 0; p < size; p++)
            sum += value_of(ranks[p], i);
        if (rank->data[i] != sum)
            return CN_EDIGEST;
    }
    return CN_OK;
}

static void reduce_all(struct rank *rank)
{
    static const uint32_t everyone[] = {0, 1, 2, 3};
    uint32_t self = rank->config.view.rank;
    struct cn_collective_call call = {
        .kind = CN_COLLECTIVE_ALL_REDUCE, .data = rank->data, .count = COUNT};

    fill(rank);
    rank->err = rank->collective->ops->run(rank->collective, &call);
    if (!rank->err)
        rank->err = compare(rank, everyone, RANKS, 0, COUNT);
    fill(rank);
    call.kind = CN_COLLECTIVE_REDUCE_SCATTER;
    if (!rank->err)
        rank->err = rank->collective->ops->run(rank->collective, &call);
    if (!rank->err)
        rank->err =
            compare(rank, everyone, RANKS, self * COUNT / RANKS, (self + 1) * COUNT / RANKS);
    call.kind = CN_COLLECTIVE_ALL_GATHER;
    if (!rank->err)
        rank->err = rank->collective->ops->run(rank->collective, &call);
    if (!rank->err)
        rank->err = compare(rank, everyone, RANKS, 0, COUNT);
    call = (struct cn_collective_call){
        .kind = CN_COLLECTIVE_ALL_REDUCE, .set = &pair, .data = rank->data, .count = COUNT};
    fill(rank);
    if (!rank->err && self % 2 == 1)
        rank->err = rank->collective->ops->run(rank->collective, &call);
    if (!rank->err && self % 2 == 1)
        rank->err = compare(rank, pair.ranks, 2, 0, COUNT);
    if (!rank->err)
        rank->err = cn_barrier(rank->collective);
}

static void open_and_reduce(struct rank *rank)
{
    rank->config.device = 3 + rank->config.view.rank;
    with_nccl(rank, reduce_all);
}

static void large_sums_travel_over_nccl(void **state)
{
    struct fake_nccl_counts counts;
    struct fixture fixture;

    (void)state;
    group_of(&fixture, &healthy);
    run_well(&fixture, open_and_reduce);
    counts = counts_at_end();
    assert_int_equal(counts.ids, 1);
    assert_int_equal(counts.comms, RANKS + pair.size);
    assert_int_equal(counts.warm_ups, counts.comms);
    assert_int_equal(counts.destroys, counts.comms);
    assert_int_equal(counts.aborts, 0);
    assert_false(counts.child_aborted_last);
    assert_false(counts.out_of_turn);
    for (uint32_t r = 0; r < RANKS; r++)
        assert_int_equal(counts.devices[r], 1 + 3 + r);
    assert_int_equal(counts.streams + counts.events + counts.memories, 0);
    group_tear_down(&fixture);
}

static bool same_bits(const void *a, const void *b, size_t count)
{
    return memcmp(a, b, count * sizeof(float)) == 0;
}

// The same call over NCCL and over its control, from the same numbers.
static cn_err run_both(struct rank *rank, struct cn_collective_call call, float *over_nccl,
                       float *over_tcp)
{
    cn_err err;

    for (size_t i = 0; i < call.count; i++)
        over_nccl[i] = over_tcp[i] = 0.37f * value_of(rank->config.view.rank, i) - 11;
    call.data = over_nccl;
    err = rank->collective->ops->run(rank->collective, &call);
    call.data = over_tcp;
    return err ? err : rank->config.control->ops->run(rank->config.control, &call);
}

static void narrow_both(struct rank *rank)
{
    float *over_nccl = rank->data, *over_tcp = over_nccl + COUNT;
    uint32_t self = rank->config.view.rank;
    size_t first = self * COUNT / RANKS, end = (self + 1) * COUNT / RANKS;
    struct cn_collective_call call = {
        .kind = CN_COLLECTIVE_ALL_REDUCE, .wire = CN_BFLOAT16, .count = COUNT};

    rank->err = run_both(rank, call, over_nccl, over_tcp);
    if (!rank->err && !same_bits(over_nccl, over_tcp, COUNT))
        rank->err = CN_EDIGEST;
    call.kind = CN_COLLECTIVE_REDUCE_SCATTER;
    if (!rank->err)
        rank->err = run_both(rank, call, over_nccl, over_tcp);
    if (!rank->err && !same_bits(over_nccl + first, over_tcp + first, end - first))
        rank->err = CN_EDIGEST;
    call.set = &pair;
    if (!rank->err && self % 2 == 1)
        rank->err = run_both(rank, call, over_nccl, over_tcp);
    first = self / 2 * COUNT / 2;
    if (!rank->err && self % 2 == 1 && !same_bits(over_nccl + first, over_tcp + first, COUNT / 2))
        rank->err = CN_EDIGEST;
    if (!rank->err)
        rank->err = cn_barrier(rank->collective);
}

static void open_and_narrow(struct rank *rank)
{
    with_nccl(rank, narrow_both);
}

static void narrow_sums_travel_in_16_bits_and_have_the_bits_of_the_encrypted_ones(void **state)
{
    struct fake_nccl_counts counts;
    struct fixture fixture;

    (void)state;
    group_of(&fixture, &healthy);
    run_well(&fixture, open_and_narrow);
    counts = counts_at_end();
    assert_false(counts.out_of_turn);
    assert_true(counts.narrow > 0);
    assert_true(counts.wide == 0);
    group_tear_down(&fixture);
}

static void sum_many(struct rank *rank)
{
    float *over_nccl = calloc(2 * (size_t)MANY, sizeof(*over_nccl)), *over_tcp = over_nccl + MANY;
    struct cn_collective_call call = {
        .kind = CN_COLLECTIVE_ALL_REDUCE, .set = &pair, .count = MANY};

    for (int narrow = 0; narrow < 2 && !rank->err; narrow++) {
        call.wire = narrow ? CN_BFLOAT16 : CN_FLOAT32;
        rank->err = run_both(rank, call, over_nccl, over_tcp);
        if (!rank->err && !same_bits(over_nccl, over_tcp, MANY))
            rank->err = CN_EDIGEST;
    }
    free(over_nccl);
}

static void sum_many_or_wait(struct rank *rank)
{
    if (rank->config.view.rank % 2 == 1)
        sum_many(rank);
    if (!rank->err)
        rank->err = cn_barrier(rank->collective);
}

static void open_and_sum_many(struct rank *rank)
{
    with_nccl(rank, sum_many_or_wait);
}

static void sums_larger_than_the_devices_memory_go_in_passes(void **state)
{
    struct fixture fixture;

    (void)state;
    group_of(&fixture, &healthy);
    run_well(&fixture, open_and_sum_many);
    assert_false(counts_at_end().out_of_turn);
    group_tear_down(&fixture);
}

static void expect_no_nccl(struct fixture *fixture, cn_err wanted)
{
    group_run(fixture, open_and_reduce);
    for (uint32_t r = 0; r < RANKS; r++)
        assert_int_equal(fixture->ranks[r].err, wanted);
    group_tear_down(fixture);
}

static void one_member_without_it_keeps_all_from_it(void **state)
{
    struct fixture fixture;

    (void)state;
    group_of(&fixture, &healthy);
    trial.lacks_library[2] = true;
    expect_no_nccl(&fixture, CN_ENOTSUP);
    assert_int_equal(counts_at_end().ids, 0); // an unused id leaks
}

static void another_version_keeps_all_from_it(void **state)
{
    struct fake_nccl_plan plan = {.newer_version_rank = 1};
    struct fixture fixture;

    (void)state;
    group_of(&fixture, &plan);
    expect_no_nccl(&fixture, CN_ENOTSUP);
    assert_int_equal(counts_at_end().ids, 0);
}

static void communicators_that_do_not_form_are_given_up(void **state)
{
    struct fake_nccl_plan plan = {.init_hangs = true, .newer_version_rank = -1};
    struct fake_nccl_counts counts;
    struct fixture fixture;

    (void)state;
    group_of(&fixture, &plan);
    expect_no_nccl(&fixture, CN_ENOTSUP);
    counts = counts_at_end();
    assert_int_equal(counts.comms, RANKS);
    assert_int_equal(counts.aborts, RANKS);
}

// The sums are right, whatever they travel over.
static void expect_without_nccl(const struct fake_nccl_plan *plan, const struct cn_set *sets,
                                uint32_t count)
{
    struct fake_nccl_counts counts;
    struct fixture fixture;

    group_of(&fixture, plan);
    group_use_sets(&fixture, sets, count);
    run_well(&fixture, open_and_reduce);
    counts = counts_at_end();
    assert_true(counts.wide == 0);
    assert_int_equal(counts.aborts + counts.destroys, counts.comms);
    assert_false(counts.child_aborted_last);
    group_tear_down(&fixture);
}

static void a_set_that_does_not_form_leaves_the_epoch_to_the_encrypted_pairs(void **state)
{
    const struct fake_nccl_plan plan = {.split_hangs = true, .newer_version_rank = -1};

    (void)state;
    expect_without_nccl(&plan, &pair, 1);
}

// Each alone is in time, one after the other they are not.
static void all_sets_together_have_one_deadline(void **state)
{
    static const struct cn_set sets[] = {{.id = 7, .size = 2, .ranks = {1, 3}},
                                         {.id = 8, .size = 3, .ranks = {1, 2, 3}}};
    const struct fake_nccl_plan plan = {.form_ms = 250, .newer_version_rank = -1};

    (void)state;
    expect_without_nccl(&plan, sets, 2);
}

// Nor is all of the group, or one member: their communicators would pile up.
static void sets_that_come_again_are_not_formed_again(void **state)
{
    static const struct cn_set again[] = {{.id = 7, .size = 2, .ranks = {1, 3}},
                                          {.id = 7, .size = 2, .ranks = {1, 3}},
                                          {.id = 9, .size = 4, .ranks = {0, 1, 2, 3}},
                                          {.id = 10, .size = 1, .ranks = {2}}};
    struct fake_nccl_counts counts;
    struct fixture fixture;

    (void)state;
    group_of(&fixture, &healthy);
    group_use_sets(&fixture, again, 4);
    run_well(&fixture, open_and_reduce);
    counts = counts_at_end();
    assert_int_equal(counts.comms, RANKS + pair.size);
    assert_true(counts.wide > 0);
    group_tear_down(&fixture);
}

static void reduce_once(struct rank *rank)
{
    rank->err = cn_all_reduce(rank->collective, CN_REDUCE_SUM, rank->data, COUNT);
    if (rank->err && cn_barrier(rank->collective) == CN_OK)
        rank->err = CN_OK; // a dead collective stays dead
}

static void open_and_reduce_once(struct rank *rank)
{
    with_nccl(rank, reduce_once);
}

static void a_remote_error_is_a_lost_peer(void **state)
{
    struct fake_nccl_plan plan = {.remote_error_at = 1, .newer_version_rank = -1};
    struct fake_nccl_counts counts;
    struct fixture fixture;

    (void)state;
    group_of(&fixture, &plan);
    group_run(&fixture, open_and_reduce_once);
    for (uint32_t r = 0; r < RANKS; r++)
        assert_int_equal(fixture.ranks[r].err, CN_EPEER);
    counts = counts_at_end();
    assert_int_equal(counts.aborts + counts.destroys, counts.comms);
    assert_false(counts.child_aborted_last);
    group_tear_down(&fixture);
}

// Rank 3 leaves without a word, as a process that is killed; the others are in a sum.
static void leave_or_reduce(struct rank *rank)
{
    if (rank->config.view.rank != 3)
        reduce_once(rank);
    else
        cn_platform_sleep_ms(100);
}

static void open_and_leave(struct rank *rank)
{
    with_nccl(rank, leave_or_reduce);
}

static void a_member_that_is_gone_ends_the_sum(void **state)
{
    struct fixture fixture;

    (void)state;
    group_of(&fixture, &healthy);
    group_run(&fixture, open_and_leave);
    for (uint32_t r = 0; r < 3; r++) {
        assert_int_equal(fixture.ranks[r].err, CN_EPEER);
        assert_true(fixture.ranks[r].took_ms < 3000);
    }
    assert_true(counts_at_end().aborts >= 3); // who lost a member does not finalize
    group_tear_down(&fixture);
}

static void a_sum_that_stands_still_is_a_timeout(void **state)
{
    struct fake_nccl_plan plan = {.stands_still_at = 1, .newer_version_rank = -1};
    struct fixture fixture;
    bool timed_out = false;

    (void)state;
    group_of(&fixture, &plan);
    for (uint32_t r = 0; r < RANKS; r++)
        fixture.ranks[r].config.progress_timeout_ms = 300;
    group_run(&fixture, open_and_reduce_once);
    for (uint32_t r = 0; r < RANKS; r++) {
        assert_true(fixture.ranks[r].err == CN_ETIMEOUT || fixture.ranks[r].err == CN_EPEER);
        timed_out |= fixture.ranks[r].err == CN_ETIMEOUT;
    }
    assert_true(timed_out);
    group_tear_down(&fixture);
}

static int count_entries(const char *path)
{
    DIR *directory = opendir(path);
    int count = 0;

    assert_non_null(directory);
    while (readdir(directory))
        count++;
    closedir(directory);
    return count;
}

static void open_many_times(struct rank *rank)
{
    for (int i = 0; i < 200 && !rank->err; i++) {
        // open waits for this by itself, but on a busy machine not long enough.
        if (!nccl_await_ends(GROUP_TIMEOUT_MS))
            rank->err = CN_ETIMEOUT;
        if (!rank->err)
            with_nccl(rank, reduce_once);
    }
}

// A thread is listed for a moment after it was joined.
static bool shrinks_to(const char *folder, int count)
{
    for (int i = 0; i < 200 && count_entries(folder) > count; i++)
        usleep(10000);
    return count_entries(folder) <= count;
}

static void two_hundred_epochs_leave_nothing_behind(void **state)
{
    struct fake_nccl_counts counts;
    struct fixture fixture;
    int descriptors, threads;

    (void)state;
    group_of(&fixture, &healthy);
    descriptors = count_entries("/proc/self/fd");
    threads = count_entries("/proc/self/task");
    run_well(&fixture, open_many_times);
    counts = counts_at_end();
    assert_int_equal(counts.ids, 200);
    assert_int_equal(counts.aborts + counts.destroys, counts.comms);
    assert_int_equal(counts.streams + counts.events + counts.memories, 0);
    assert_true(shrinks_to("/proc/self/fd", descriptors));
    assert_true(shrinks_to("/proc/self/task", threads));
    group_tear_down(&fixture);
}

static bool all_end_with(struct fixture *fixture, cn_err wanted)
{
    bool all = true;

    group_run(fixture, open_and_reduce_once);
    for (uint32_t r = 0; r < RANKS; r++)
        all = all && fixture->ranks[r].err == wanted;
    return all;
}

// The abort goes on while the error is told and while the next epoch forms, which then goes without
// NCCL. The one after that has it again.
static void an_abort_that_takes_long_keeps_nobody_waiting(void **state)
{
    struct fake_nccl_plan plan = {.remote_error_at = 1, .newer_version_rank = -1};
    struct fixture fixture;

    (void)state;
    group_of(&fixture, &plan);
    fake_nccl_hold_aborts(true);
    assert_true(all_end_with(&fixture, CN_EPEER));
    assert_int_equal(fake_nccl_counts().aborts, 0);
    assert_true(all_end_with(&fixture, CN_ENOTSUP));
    assert_int_equal(fake_nccl_counts().aborts, 0);
    assert_false(cn_nccl_wedged());
    fake_nccl_hold_aborts(false);
    group_tear_down(&fixture);
    group_of(&fixture, &healthy);
    run_well(&fixture, open_and_reduce);
    assert_true(counts_at_end().wide > 0);
    group_tear_down(&fixture);
}

static void communicators_that_cannot_be_finalized_are_aborted(void **state)
{
    struct fake_nccl_plan plan = {.finalize_hangs = true, .newer_version_rank = -1};
    struct fake_nccl_counts counts;
    struct fixture fixture;

    (void)state;
    group_of(&fixture, &plan);
    run_well(&fixture, open_and_reduce);
    counts = counts_at_end();
    assert_int_equal(counts.aborts, counts.comms);
    assert_false(counts.child_aborted_last);
    assert_int_equal(counts.streams + counts.events + counts.memories, 0);
    group_tear_down(&fixture);
}

// The aborts never end, and the library allows them less time.
static bool wedges(void)
{
    struct fake_nccl_plan plan = {.remote_error_at = 1, .newer_version_rank = -1};
    struct nccl_library hasty = fake_nccl;
    struct fixture fixture;

    hasty.abort_ms = 100;
    group_of(&fixture, &plan);
    trial.library = &hasty;
    fake_nccl_hold_aborts(true);
    if (cn_nccl_wedged() || !all_end_with(&fixture, CN_EPEER))
        return false;
    for (int i = 0; i < GROUP_TIMEOUT_MS / 10 && !cn_nccl_wedged(); i++)
        cn_platform_sleep_ms(10);
    return all_end_with(&fixture, CN_EWEDGED);
}

// In a process of its own, since it cannot go on afterwards. It runs before the others: their
// threads would not be in the child.
static void an_abort_that_hangs_is_told(void **state)
{
    int status = 0;
    pid_t pid;

    (void)state;
    pid = fork();
    if (!pid)
        _exit(wedges() ? 0 : 1);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

// Ranks that come to this in an epoch.
static uint32_t ranks_with(const struct fake_nccl_plan *plan, cn_err err)
{
    struct fixture fixture;
    uint32_t count = 0;

    group_of(&fixture, plan);
    group_run(&fixture, open_and_reduce_once);
    for (uint32_t r = 0; r < RANKS; r++)
        count += fixture.ranks[r].err == err;
    group_tear_down(&fixture);
    return count;
}

// In a process of its own, as above.
static void a_device_that_always_fails_is_given_up(void **state)
{
    struct fake_nccl_plan plan = {.copies_fail = true, .newer_version_rank = -1};
    int status = 0;
    pid_t pid;

    (void)state;
    pid = fork();
    if (!pid) {
        bool right = true;

        // Of an epoch in which it cannot be opened in time, on a busy machine, nothing is known.
        for (int epoch = 0; right && !nccl_is_given_up() && epoch < 20; epoch++)
            right = ranks_with(&plan, CN_OK) == 0;
        _exit(right && nccl_is_given_up() && ranks_with(&plan, CN_ENOTSUP) == RANKS ? 0 : 1);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

// The backend's view: what the members want decides.

static void open_backend(struct rank *rank)
{
    // The rank's own collective holds the addresses; the backend opens one in the next epoch.
    bool wants = rank->count == 0 || rank->config.view.rank != 1;
    const struct cn_backend_ports ports = {group_ops, wants ? &fake_ops : NULL};
    struct cn_collective_config config = rank->config;
    struct cn_collective *collective;
    const char *why;
    uint32_t lost;

    config.view.epoch++;
    rank->err = cn_backend_open(&ports, &config, &collective, &lost);
    if (rank->err)
        return;
    rank->count = strcmp(cn_backend_name(collective, &why), "nccl") == 0;
    if ((why != NULL) == (rank->count || !wants)) // who wants it learns why it has it not
        rank->err = CN_EINVAL;
    rank->err = cn_all_reduce(collective, CN_REDUCE_SUM, rank->data, COUNT);
    if (!rank->err)
        rank->err = cn_barrier(collective);
    collective->ops->close(collective);
}

static void the_fast_one_is_used_when_all_want_it(void **state)
{
    (void)state;
    for (size_t reluctant = 0; reluctant < 2; reluctant++) {
        struct fixture fixture;

        group_of(&fixture, &healthy);
        for (uint32_t r = 0; r < RANKS; r++)
            fixture.ranks[r].count = reluctant;
        group_run(&fixture, open_backend);
        for (uint32_t r = 0; r < RANKS; r++) {
            assert_int_equal(fixture.ranks[r].err, CN_OK);
            assert_int_equal(fixture.ranks[r].count, reluctant ? 0 : 1);
        }
        group_tear_down(&fixture);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_abort_that_hangs_is_told),
        cmocka_unit_test(a_device_that_always_fails_is_given_up),
        cmocka_unit_test(large_sums_travel_over_nccl),
        cmocka_unit_test(narrow_sums_travel_in_16_bits_and_have_the_bits_of_the_encrypted_ones),
        cmocka_unit_test(sums_larger_than_the_devices_memory_go_in_passes),
        cmocka_unit_test(one_member_without_it_keeps_all_from_it),
        cmocka_unit_test(another_version_keeps_all_from_it),
        cmocka_unit_test(communicators_that_do_not_form_are_given_up),
        cmocka_unit_test(a_set_that_does_not_form_leaves_the_epoch_to_the_encrypted_pairs),
        cmocka_unit_test(all_sets_together_have_one_deadline),
        cmocka_unit_test(sets_that_come_again_are_not_formed_again),
        cmocka_unit_test(a_remote_error_is_a_lost_peer),
        cmocka_unit_test(a_member_that_is_gone_ends_the_sum),
        cmocka_unit_test(a_sum_that_stands_still_is_a_timeout),
        cmocka_unit_test(two_hundred_epochs_leave_nothing_behind),
        cmocka_unit_test(an_abort_that_takes_long_keeps_nobody_waiting),
        cmocka_unit_test(communicators_that_cannot_be_finalized_are_aborted),
        cmocka_unit_test(the_fast_one_is_used_when_all_want_it),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
