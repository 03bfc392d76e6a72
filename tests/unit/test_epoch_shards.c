// Two members hold a round's state in shards: deaths, losses, and disks and memories that fail.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>

#include "tests/unit/epoch_world.h"

// What members without shards come to is what members in shards do, disturbed or not.
static void sweep_shards(struct epoch_world *world, bool hears, bool dies)
{
    uint8_t undisturbed[CN_DIGEST_SIZE];

    world->job.local_steps = 2;
    world_train_round(world, undisturbed);
    world_end_epoch(world);
    world_store_each_step(world);
    world->job.parallel.shard = 2;
    for (int stage = CN_SHARING_OPTIMIZER; stage <= CN_SHARING_WEIGHTS; stage++) {
        world->job.parallel.stage = (enum cn_sharing)stage;
        world->middles = 0;
        assert_int_equal(world_sweep_calls(world, hears, dies, undisturbed), 0);
        assert_true(world->middles > 0);
    }
}

static void a_death_after_any_call_of_shards_changes_nothing_in_the_update(void **state)
{
    sweep_shards(*state, true, true);
}

static void a_loss_in_any_call_of_shards_changes_nothing_in_the_update(void **state)
{
    sweep_shards(*state, false, false);
}

// A member whose disk does not take the state of the shards trains on, with the others that have
// it: in one case a save fails, in the other it knows before and holds the state in memory.
static void a_disk_that_takes_nothing_of_shards_changes_nothing_in_the_update(void **state)
{
    struct epoch_world *world = *state;
    struct epoch_board *full = &world->boards[1];
    uint8_t undisturbed[CN_DIGEST_SIZE], digest[CN_DIGEST_SIZE];
    char command[CN_PATH_SIZE + 16];

    world_train_round(world, undisturbed);
    world_end_epoch(world);
    world->job.parallel.shard = 2;
    world->job.parallel.stage = CN_SHARING_WEIGHTS;
    for (uint32_t knows = 0; knows < 2; knows++) {
        world_begin_anew(world);
        full->settings.reserve = knows ? UINT64_MAX : 0;
        snprintf(command, sizeof(command), "rm -rf %s", full->settings.state);
        if (!knows)
            assert_int_equal(system(command), 0); // NOLINT(cert-env33-c)
        world_train_round(world, digest);
        world_end_epoch(world);
        assert_memory_equal(digest, undisturbed, CN_DIGEST_SIZE);
        assert_int_equal(full->session->held.phase, CN_PHASE_SEND);
        assert_true(full->session->disk.full);
    }
    full->settings.reserve = 0;
}

// Begins both boards from the start, with empty disks that fail when the test says so.
static void begin_flaky(struct epoch_world *world)
{
    for (int i = 0; i < world->count; i++) {
        struct epoch_board *board = &world->boards[i];

        board_close_session(board);
        if (board->flaky.store.ops)
            cn_flaky_store_deinit(&board->flaky);
        cn_flaky_store_init(&board->flaky);
        board->mortal.stores = true;
        world_open_session(world, i);
    }
}

static void end_flaky(struct epoch_world *world)
{
    for (int i = 0; i < world->count; i++) {
        struct epoch_board *board = &world->boards[i];

        board_close_session(board);
        cn_flaky_store_deinit(&board->flaky);
        board->flaky = (struct cn_flaky_store){0};
        board->mortal.stores = false;
        world_open_session(world, i);
    }
}

static void share_state(struct epoch_world *world, uint8_t undisturbed[CN_DIGEST_SIZE])
{
    world->job.local_steps = 2;
    world_train_round(world, undisturbed);
    world_end_epoch(world);
    world->job.parallel.shard = 2;
    world->job.parallel.stage = CN_SHARING_WEIGHTS;
}

// A round in shards that one leaves in this call of its collective; both processes live on.
static void break_off(struct epoch_world *world, uint32_t calls)
{
    uint8_t digest[CN_DIGEST_SIZE];

    begin_flaky(world);
    world_start(world, 32, 0, 1, calls);
    cn_mailbox_put_news(&world->boards[0].box, &world->news);
    assert_false(world_serve_until_upload(world, digest));
    world_end_epoch(world);
    world->boards[0].session->measured.busy_ms = 0; // so that it is the source
    world->boards[1].session->measured.busy_ms = 1e3;
}

// The call in which both have a state of the middle of the round, and on their disks only.
static uint32_t find_middle(struct epoch_world *world)
{
    uint32_t calls = 0;

    do
        break_off(world, ++calls);
    while (!world->boards[0].session->sharing.let_go || !world->boards[0].session->held.step ||
           !world->boards[1].session->sharing.let_go || !world->boards[1].session->held.step);
    return calls;
}

static void a_source_without_memory_for_its_state_leaves_it_to_another(void **state)
{
    struct epoch_world *world = *state;
    uint8_t undisturbed[CN_DIGEST_SIZE], digest[CN_DIGEST_SIZE];

    share_state(world, undisturbed);
    find_middle(world);
    cn_flaky_store_fail(&world->boards[0].flaky, 1, false, CN_ENOMEM);
    world_start(world, 48, 0, NOBODY, 0);
    cn_mailbox_put_news(&world->boards[0].box, &world->news);
    assert_true(world_serve_until_upload(world, digest));
    world_end_epoch(world);
    assert_true(world->boards[0].mortal.pieces > 0);
    assert_memory_equal(digest, undisturbed, CN_DIGEST_SIZE);
    end_flaky(world);
}

static void where_none_has_memory_for_the_state_the_epoch_ends_on_all(void **state)
{
    struct epoch_world *world = *state;
    uint8_t undisturbed[CN_DIGEST_SIZE], digest[CN_DIGEST_SIZE];

    share_state(world, undisturbed);
    find_middle(world);
    for (int i = 0; i < world->count; i++)
        cn_flaky_store_fail(&world->boards[i].flaky, 1, false, CN_ENOMEM);
    world_start(world, 48, 0, NOBODY, 0);
    for (int i = 0; i < world->count; i++)
        board_join(&world->boards[i]);
    for (int i = 0; i < world->count; i++)
        assert_int_equal(world->boards[i].err, CN_ENOMEM);
    world_start(world, 64, 0, NOBODY, 0); // as soon as there is some
    cn_mailbox_put_news(&world->boards[0].box, &world->news);
    assert_true(world_serve_until_upload(world, digest));
    world_end_epoch(world);
    assert_memory_equal(digest, undisturbed, CN_DIGEST_SIZE);
    end_flaky(world);
}

// After a round was broken off one disk fails in one of its operations, once or from there on until
// the epoch is over. False when it had fewer.
static bool fail_disk(struct epoch_world *world, uint32_t calls, unsigned number, bool lasting,
                      const uint8_t undisturbed[CN_DIGEST_SIZE])
{
    struct epoch_board *victim = &world->boards[number % 2];
    uint8_t digest[CN_DIGEST_SIZE];
    bool sent, failed;

    break_off(world, calls);
    victim->flaky.operations = 0;
    cn_flaky_store_fail(&victim->flaky, number, lasting, CN_EIO);
    world_start(world, 48, world_newest(world), NOBODY, 0);
    cn_mailbox_put_news(&world->boards[0].box, &world->news);
    sent = world_serve_until_upload(world, digest);
    world_end_epoch(world);
    failed = victim->flaky.operations >= number;
    cn_flaky_store_fail(&victim->flaky, 0, false, CN_OK);
    if (!sent) { // its process ends and starts again from its stored state
        assert_int_equal(victim->err, CN_EWEDGED);
        assert_int_equal(world->boards[1 - number % 2].err, CN_EPEER);
        board_close_session(victim);
        world_open_session(world, (int)(number % 2));
        world_start(world, 64, world_newest(world), NOBODY, 0);
        cn_mailbox_put_news(&world->boards[0].box, &world->news);
        assert_true(world_serve_until_upload(world, digest));
        world_end_epoch(world);
    }
    assert_memory_equal(digest, undisturbed, CN_DIGEST_SIZE);
    assert_int_equal(victim->flaky.open_count, 0);
    return failed;
}

static void a_disk_that_fails_in_any_operation_loses_nothing_of_shards(void **state)
{
    struct epoch_world *world = *state;
    uint8_t undisturbed[CN_DIGEST_SIZE];
    uint32_t calls;

    share_state(world, undisturbed);
    calls = find_middle(world);
    for (int lasting = 0; lasting < 2; lasting++) {
        unsigned number = 1;

        while (fail_disk(world, calls, number, lasting != 0, undisturbed))
            number++;
        assert_true(number > 40);
    }
    end_flaky(world);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, epoch_world_set_up, epoch_world_tear_down)
    const struct CMUnitTest tests[] = {
        TEST(a_death_after_any_call_of_shards_changes_nothing_in_the_update),
        TEST(a_loss_in_any_call_of_shards_changes_nothing_in_the_update),
        TEST(a_disk_that_takes_nothing_of_shards_changes_nothing_in_the_update),
        TEST(a_source_without_memory_for_its_state_leaves_it_to_another),
        TEST(where_none_has_memory_for_the_state_the_epoch_ends_on_all),
        TEST(a_disk_that_fails_in_any_operation_loses_nothing_of_shards),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
