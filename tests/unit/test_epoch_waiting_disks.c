// What waits in files of a model's parts, where disks are lost, damaged or full: one lost disk
// takes nothing with it.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "runtime/round/session/session_waiting.h"
#include "tests/unit/waiting_world.h"

static void lose_each_disk(struct epoch_world *world, const struct waiting_run *undisturbed)
{
    for (int lost = 0; lost < world->count; lost++) {
        struct waiting_run run = waiting_start(world);

        run.no_copies = undisturbed->no_copies;
        assert_true(waiting_train(world, &run, 1, NOBODY, 0));
        for (int i = 0; i < world->count; i++)
            if (i == lost)
                waiting_lose_disk(world, i);
            else
                waiting_restart(world, i);
        assert_int_equal(waiting_count_named(world, lost), 0);
        assert_true(waiting_train(world, &run, 2, NOBODY, 0));
        assert_int_equal(waiting_count_named(world, lost), 2); // stored again
        waiting_lose_disk(world, (lost + 1) % world->count);
        assert_true(waiting_train(world, &run, ROUNDS, NOBODY, 0));
        waiting_expect_same(&run, undisturbed);
        assert_int_equal(world->boards[0].session->held.resets, 0);
    }
}

static void one_lost_disk_takes_nothing_with_it(void **state)
{
    struct waiting_run undisturbed;

    waiting_begin(*state, &undisturbed);
    lose_each_disk(*state, &undisturbed);
}

// The copies of halves are those of their owners, to the bit.
static void one_lost_disk_takes_no_halves_with_it(void **state)
{
    struct epoch_world *world = *state;
    struct waiting_run undisturbed;

    world->job.options.residual = CN_RESIDUAL_BF16;
    waiting_begin(world, &undisturbed);
    lose_each_disk(world, &undisturbed);
}

// Two members give each other their parts at the same time.
static void one_lost_disk_of_two_takes_nothing_with_it(void **state)
{
    struct epoch_world *world = *state;
    struct waiting_run undisturbed;

    waiting_take_rules(world);
    world_hold_two_parts(world, 2);
    undisturbed = waiting_start(world);
    undisturbed.no_copies = 1u << 2;
    assert_true(waiting_train(world, &undisturbed, ROUNDS, NOBODY, 0));
    lose_each_disk(world, &undisturbed);
}

// Two neighbours take the part of the first of them with them. It counts as lost; the run goes on.
static void two_lost_disks_lose_a_part_and_say_so(void **state)
{
    struct epoch_world *world = *state;
    struct waiting_run undisturbed, run;

    waiting_begin(world, &undisturbed);
    run = waiting_start(world);
    assert_true(waiting_train(world, &run, 1, NOBODY, 0));
    waiting_lose_disk(world, 0);
    waiting_lose_disk(world, 1);
    assert_true(waiting_train(world, &run, ROUNDS, NOBODY, 0));
    assert_memory_equal(run.digests[1], undisturbed.digests[1], CN_DIGEST_SIZE);
    assert_memory_not_equal(run.digests[2], undisturbed.digests[2], CN_DIGEST_SIZE);
    for (int i = 0; i < PARTS; i++)
        assert_int_equal(world->boards[i].session->held.resets, 1);
}

static void spoil_file(const char *path)
{
    FILE *file = fopen(path, "r+b");

    assert_non_null(file);
    assert_int_equal(fseek(file, -100, SEEK_END), 0);
    assert_int_equal(fputc(0x5a, file), 0x5a);
    assert_int_equal(fclose(file), 0);
}

static void a_damaged_file_is_taken_from_the_other_member(void **state)
{
    struct epoch_world *world = *state;
    struct waiting_run undisturbed, run;
    char name[CN_WAITING_NAME_SIZE], path[CN_PATH_SIZE + 32];

    waiting_begin(world, &undisturbed);
    run = waiting_start(world);
    assert_true(waiting_train(world, &run, 1, NOBODY, 0));
    cn_waiting_name(world->boards[1].session->held.waiting.set, 1, name);
    snprintf(path, sizeof(path), "%s/%s", world->boards[1].settings.state, name);
    spoil_file(path);
    waiting_restart(world, 1);
    assert_true(waiting_train(world, &run, ROUNDS, NOBODY, 0));
    waiting_expect_same(&run, &undisturbed);
    assert_int_equal(world->boards[0].session->held.resets, 0);
}

static void a_full_disk_stops_nobody(void **state)
{
    struct epoch_world *world = *state;
    struct waiting_run undisturbed, run;

    waiting_begin(world, &undisturbed);
    world->boards[2].settings.reserve = UINT64_MAX;
    run = waiting_start(world);
    run.no_copies = EVERYBODY;
    assert_true(waiting_train(world, &run, ROUNDS, NOBODY, 0));
    waiting_expect_same(&run, &undisturbed);
    world->boards[2].settings.reserve = 0;
}

static void make_room(struct mortal *mortal, const struct cn_collective_call *call)
{
    (void)call;
    ((struct epoch_board *)mortal)->settings.reserve = 0;
    mortal->lies++;
}

// Neither of the two members that should store a part has room for it. The others wait for them.
static void a_part_that_no_disk_takes_is_stored_again(void **state)
{
    struct epoch_world *world = *state;
    struct waiting_run undisturbed, run;

    waiting_begin(world, &undisturbed);
    run = waiting_start(world);
    for (int i = 1; i < PARTS; i++) {
        world->boards[i].settings.reserve = UINT64_MAX;
        world->boards[i].mortal.changes = STORED;
        world->boards[i].mortal.change = make_room;
        world->boards[i].mortal.lies = 0;
    }
    assert_true(waiting_train(world, &run, ROUNDS, NOBODY, 0));
    waiting_expect_same(&run, &undisturbed);
    for (int i = 1; i < PARTS; i++) {
        world->boards[i].mortal.change = NULL;
        assert_int_equal(world->boards[i].mortal.lies, ROUNDS + 1);
        assert_int_equal(waiting_count_named(world, i), 2);
    }
}

// Whether the next array that the thread asks for cannot be had.
static _Thread_local bool lacks_memory;

void *__real_cn_scratch_allocate(size_t size);
void *__wrap_cn_scratch_allocate(size_t size);

void *__wrap_cn_scratch_allocate(size_t size)
{
    bool lacks = lacks_memory;

    lacks_memory = false;
    return lacks ? NULL : __real_cn_scratch_allocate(size);
}

static void take_memory(struct mortal *mortal, const struct cn_collective_call *call)
{
    lacks_memory = mortal->lies == 0;
    make_room(mortal, call);
}

// The member that gives its part would wait for the other one until the time of the group is over.
static void a_member_without_memory_for_a_part_holds_nobody_up(void **state)
{
    struct epoch_world *world = *state;
    struct waiting_run undisturbed, run;

    waiting_begin(world, &undisturbed);
    run = waiting_start(world);
    for (int i = 1; i < PARTS; i++) {
        world->boards[i].settings.reserve = UINT64_MAX;
        world->boards[i].mortal.changes = STORED;
        world->boards[i].mortal.change = i == 2 ? take_memory : make_room;
        world->boards[i].mortal.lies = 0;
    }
    assert_true(waiting_train(world, &run, ROUNDS, NOBODY, 0));
    waiting_expect_same(&run, &undisturbed);
    for (int i = 1; i < PARTS; i++) {
        world->boards[i].mortal.change = NULL;
        assert_int_equal(waiting_count_named(world, i), 2);
    }
}

// Files that nothing names go even where the state after the decision could not be stored.
static void a_full_disk_does_not_keep_old_files(void **state)
{
    struct epoch_world *world = *state;
    struct waiting_run run;

    waiting_hold_parts(world, PARTS);
    run = waiting_start(world);
    assert_true(waiting_train(world, &run, 2, NOBODY, 0));
    world->boards[2].settings.reserve = UINT64_MAX;
    run.no_copies = EVERYBODY;
    assert_true(waiting_train(world, &run, ROUNDS, NOBODY, 0));
    world->boards[2].settings.reserve = 0;
    assert_int_equal(waiting_count(world, 2, UINT32_MAX, 1), 0);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, epoch_world_set_up, epoch_world_tear_down)
    const struct CMUnitTest tests[] = {
        TEST(one_lost_disk_takes_nothing_with_it),
        TEST(one_lost_disk_takes_no_halves_with_it),
        TEST(one_lost_disk_of_two_takes_nothing_with_it),
        TEST(two_lost_disks_lose_a_part_and_say_so),
        TEST(a_damaged_file_is_taken_from_the_other_member),
        TEST(a_full_disk_stops_nobody),
        TEST(a_part_that_no_disk_takes_is_stored_again),
        TEST(a_member_without_memory_for_a_part_holds_nobody_up),
        TEST(a_full_disk_does_not_keep_old_files),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
