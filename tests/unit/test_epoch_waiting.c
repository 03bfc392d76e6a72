// Three members with a part each train three rounds. What a round's update leaves out waits in
// files of its part, on the disks of two members. Whoever dies, the updates are those of an
// undisturbed run.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "runtime/round/epoch/round_file.h"
#include "runtime/round/session/session_chain.h"
#include "runtime/round/session/session_waiting.h"
#include "tests/unit/waiting_world.h"

#define IS_END(fingerprint) ((fingerprint) >= 0x70770000u && (fingerprint) < 0x707b0000u)

// The updates are those of one member that trains the same micro-batches alone.
static void compare_with_one(struct epoch_world *world)
{
    struct waiting_run undisturbed, alone;

    waiting_begin(world, &undisturbed);
    for (int i = 0; i < PARTS; i++)
        board_close_session(&world->boards[i]);
    world->count = 1;
    world->job.pipeline.parts = 1;
    world->job.pipeline.cut[0] = '\0';
    world->job.accumulate *= PARTS;
    world->boards[0].settings.group.member_count = 1;
    world_open_session(world, 0);
    alone = waiting_start(world);
    alone.no_copies = EVERYBODY;
    assert_true(waiting_train(world, &alone, ROUNDS, NOBODY, 0));
    waiting_expect_same(&alone, &undisturbed);
}

static void a_member_alone_makes_the_same_updates(void **state)
{
    compare_with_one(*state);
}

static void what_waits_in_halves_is_rounded_as_alone(void **state)
{
    struct epoch_world *world = *state;

    world->job.options.residual = CN_RESIDUAL_BF16;
    compare_with_one(world);
}

static void each_member_has_its_part_and_the_one_before(void **state)
{
    struct epoch_world *world = *state;
    struct waiting_run run;

    waiting_begin(world, &run);
    for (int i = 0; i < PARTS; i++) {
        const struct cn_checkpoint *held = &world->boards[i].session->held;

        assert_int_equal(waiting_count_named(world, i), 2);
        assert_true(waiting_has_copy(world, i, ROUNDS));
        assert_null(held->residual.data);
        assert_int_equal(held->phase, CN_PHASE_SEND);
        assert_int_equal(waiting_count(world, i, UINT32_MAX, UINT32_MAX), 4); // and of round 2
        cn_session_forget_waiting(world->boards[i].session);
        assert_int_equal(waiting_count(world, i, UINT32_MAX, UINT32_MAX), 2);
        assert_int_equal(waiting_count_named(world, i), 2);
    }
}

// A board whose disk refused a newer state decides an older round again, while a state of the
// others names what only it has.
static void files_of_later_rounds_stay(void **state)
{
    struct epoch_world *world = *state;
    struct waiting_run run;

    waiting_begin(world, &run);
    for (int i = 0; i < PARTS; i++) {
        struct cn_session *session = world->boards[i].session;

        session->held.waiting.set = session->disk.named = 0;
        session->held.round = ROUNDS - 1;
        cn_session_forget_waiting(session);
        assert_int_equal(waiting_count(world, i, UINT32_MAX, ROUNDS - 1), 0);
        assert_int_equal(waiting_count(world, i, UINT32_MAX, ROUNDS), 2);
        session->held.round = ROUNDS;
        cn_session_forget_waiting(session);
        assert_int_equal(waiting_count(world, i, UINT32_MAX, ROUNDS), 0);
    }
}

// One break, in the n-th of these calls of the victim; all rounds must come out as undisturbed.
static void break_call(struct epoch_world *world, const struct world_fault *fault, uint32_t call,
                       const struct waiting_run *undisturbed)
{
    struct waiting_run run = waiting_start(world);

    world->boards[fault->victim].mortal.hears = fault->hears;
    if (!waiting_train(world, &run, ROUNDS, fault->victim, call)) {
        world->boards[fault->victim].mortal.hears = false;
        if (fault->dies)
            waiting_restart(world, fault->victim);
        assert_true(waiting_train(world, &run, ROUNDS, NOBODY, 0));
    }
    world->boards[fault->victim].mortal.hears = false;
    waiting_expect_same(&run, undisturbed);
    for (int i = 0; i < world->count; i++)
        assert_int_equal(world->boards[i].session->held.resets, 0);
}

static void sweep(struct epoch_world *world, bool all)
{
    static uint32_t calls[PARTS][CALLS];
    uint32_t count[PARTS] = {0}, trials = 0;
    struct waiting_run undisturbed;

    waiting_begin(world, &undisturbed);
    for (int i = 0; i < PARTS; i++)
        for (uint32_t c = 0; c < world->boards[i].mortal.called; c++)
            if (all || IS_END(world->boards[i].mortal.calls[c].fingerprint) ||
                (c > 0 && IS_END(world->boards[i].mortal.calls[c - 1].fingerprint)))
                calls[i][count[i]++] = c;
    assert_true(count[0] >= 8 * ROUNDS);
    for (uint32_t n = 0; n < count[0]; n++)
        for (int dies = 0; dies < 2; dies++) {
            const struct world_fault fault = {(int)(trials / 2 % PARTS), dies, dies};

            trials++;
            if (n < count[fault.victim])
                break_call(world, &fault, calls[fault.victim][n], &undisturbed);
        }
}

static void a_death_in_or_after_calls_of_a_rounds_end_changes_nothing(void **state)
{
    sweep(*state, false);
}

// Where the gateway closes a round, what it has trained so far goes into what waits.
static void a_closed_round_waits_as_a_whole(void **state)
{
    struct epoch_world *world = *state;
    struct waiting_run undisturbed, run;
    struct cn_round_info news = world->news;

    waiting_begin(world, &undisturbed);
    run = waiting_start(world);
    assert_true(waiting_train(world, &run, 1, NOBODY, 0));
    // The second round begins and is broken off after a step.
    assert_false(waiting_train(world, &run, 2, 1, 60));
    if (world->boards[0].session->held.phase != CN_PHASE_TRAIN)
        fail_msg("the round was not under way");
    run.round = 3;
    news = world->news;
    news.round = 3;
    world_start(world, run.number, world_newest(world), NOBODY, 0);
    run.number += 16;
    cn_mailbox_put_news(&world->boards[0].box, &news);
    assert_true(world_serve_until_upload(world, run.digests[3]));
    waiting_await_copies(world, 3, 0);
    world_end_epoch(world);
    for (int i = 0; i < PARTS; i++) {
        assert_int_equal(world->boards[i].session->held.resets, 0);
        assert_int_not_equal(world->boards[i].session->held.waiting.set, 0); // divided again
        assert_int_equal(waiting_count_named(world, i), 2);
    }
}

// A member that looks on has no part of what waits, and takes the place of one that is lost.
static void a_member_that_looks_on_gets_the_frame_only(void **state)
{
    struct epoch_world *world = *state;
    struct waiting_run run;

    waiting_hold_parts(world, PARTS + 1);
    run = waiting_start(world);
    run.no_copies = 1; // it is the one that looks on who has a copy of the last part
    assert_true(waiting_train(world, &run, 2, NOBODY, 0));
    assert_true(waiting_count_named(world, PARTS) <= 1);
    for (int i = 0; i <= PARTS; i++) {
        const struct cn_checkpoint *held = &world->boards[i].session->held;

        assert_int_equal(held->waiting.set, world->boards[0].session->held.waiting.set);
        assert_int_equal(held->samples, world->boards[0].session->held.samples);
        assert_int_equal(held->resets, 0);
    }
    waiting_restart(world, PARTS);
    assert_true(waiting_train(world, &run, ROUNDS, NOBODY, 0));
}

// Ends an epoch in which the last update is decided, and makes what waits so old that it decays.
static void make_stale(struct epoch_world *world, struct waiting_run *run)
{
    uint64_t until = cn_platform_now_ms() + 10000;
    struct cn_round_info news = world->news;
    int based = 0;

    news.round = 1;
    news.decided_round = 1;
    news.decided_accepted = true;
    memcpy(news.decided_digest, run->digests[1], CN_DIGEST_SIZE);
    world_start(world, run->number, world_newest(world), NOBODY, 0);
    run->number += 16;
    cn_mailbox_put_news(&world->boards[0].box, &news);
    while (based < world->count) {
        assert_true(cn_platform_now_ms() < until);
        cn_platform_sleep_ms(20);
        based = 0;
        for (int i = 0; i < world->count; i++)
            based += cn_mailbox_progress(&world->boards[i].box).phase == CN_PHASE_BASE;
    }
    world_end_epoch(world);
    for (int i = 0; i < world->count; i++) {
        assert_int_equal(world->boards[i].session->held.phase, CN_PHASE_BASE);
        world->boards[i].session->held.version = 5;
        assert_int_equal(cn_session_save(world->boards[i].session, 0), CN_OK);
        waiting_restart(world, i);
    }
    world->news.version = 5;
    world->job.stale_rounds = 3;
    world->job.stale_decay = 0.9;
}

static void store_seldom(struct epoch_world *world)
{
    for (int i = 0; i < world->count; i++) {
        world->boards[i].mortal.stores = false;
        world->boards[i].session->disk.saved_ms = cn_platform_now_ms();
    }
}

// A board that is killed in a round before which what waited was gathered begins it again when the
// gateway tells of it: alone it cannot gather.
static void a_round_that_began_with_stale_parts_is_not_resumed_alone(void **state)
{
    struct epoch_world *world = *state;
    struct waiting_run run;

    waiting_hold_parts(world, PARTS);
    run = waiting_start(world);
    assert_true(waiting_train(world, &run, 1, NOBODY, 0));
    make_stale(world, &run);
    store_seldom(world);
    (void)waiting_train(world, &run, 2, 1, 34);
    waiting_restart(world, 0);
    assert_int_equal(cn_round_file_resume(world->boards[0].session), CN_OK);
    store_seldom(world);
    run.no_copies = EVERYBODY;
    run.round = run.round > 2 ? run.round : 2;
    assert_true(waiting_train(world, &run, ROUNDS, NOBODY, 0));
    assert_int_equal(world->boards[0].session->held.resets, 0);
}

static void die_next(struct mortal *mortal, const struct cn_collective_call *call)
{
    (void)call;
    mortal->calls_left = 0;
}

// What was gathered into memory still lies in the files that the disk's state names.
static void files_that_the_disk_names_stay_when_what_waits_was_gathered(void **state)
{
    struct epoch_world *world = *state;
    struct waiting_run run;

    waiting_take_rules(world);
    world_hold_two_parts(world, 4);
    run = waiting_start(world);
    run.no_copies = EVERYBODY;
    assert_true(waiting_train(world, &run, 1, NOBODY, 0));
    make_stale(world, &run);
    store_seldom(world);
    world->boards[0].mortal.changes = STORED;
    world->boards[0].mortal.change = die_next;
    assert_false(waiting_train(world, &run, 2, NOBODY, 0));
    world->boards[0].mortal.change = NULL;
    for (int i = 0; i < world->count; i++)
        waiting_restart(world, i);
    store_seldom(world);
    assert_true(waiting_train(world, &run, 2, NOBODY, 0));
    for (int i = 0; i < world->count; i++)
        assert_int_equal(world->boards[i].session->held.resets, 0);
}

// A member is replaced after the copies were stored, and the parts are held by others: copies are
// made again, and none is overwritten.
static void a_new_member_gets_a_copy_that_takes_no_place(void **state)
{
    struct epoch_world *world = *state;
    struct waiting_run run;

    waiting_hold_parts(world, PARTS + 1);
    run = waiting_start(world);
    run.no_copies = 1;
    assert_true(waiting_train(world, &run, 1, NOBODY, 0));
    waiting_lose_disk(world, 1);
    world->boards[1].session->chain.samples ^= 1; // it looks on
    run.no_copies = EVERYBODY;
    assert_true(waiting_train(world, &run, 2, NOBODY, 0));
    for (int i = 0; i < world->count; i++)
        assert_int_equal(world->boards[i].session->held.resets, 0);
}

static void a_death_after_any_call_changes_nothing(void **state)
{
    sweep(*state, true);
}

// With "all": in and after each call of three rounds, not only in those of their ends.
int main(int argc, char **argv)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, epoch_world_set_up, epoch_world_tear_down)
    const struct CMUnitTest tests[] = {
        TEST(a_member_alone_makes_the_same_updates),
        TEST(what_waits_in_halves_is_rounded_as_alone),
        TEST(each_member_has_its_part_and_the_one_before),
        TEST(files_of_later_rounds_stay),
        TEST(a_death_in_or_after_calls_of_a_rounds_end_changes_nothing),
        TEST(a_closed_round_waits_as_a_whole),
        TEST(a_member_that_looks_on_gets_the_frame_only),
        TEST(a_round_that_began_with_stale_parts_is_not_resumed_alone),
        TEST(files_that_the_disk_names_stay_when_what_waits_was_gathered),
        TEST(a_new_member_gets_a_copy_that_takes_no_place),
    };
    const struct CMUnitTest all[] = {
        TEST(a_death_after_any_call_changes_nothing),
    };

    return argc > 1 && strcmp(argv[1], "all") == 0 ? cmocka_run_group_tests(all, NULL, NULL)
                                                   : cmocka_run_group_tests(tests, NULL, NULL);
}
