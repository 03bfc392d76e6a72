// Members hold parts of a model, as a chain: two parts on two members, or on four that hold each
// part in two shares.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "runtime/engine/trainer/trainer_parts.h"
#include "tests/unit/epoch_world.h"

// Each board holds half of the model. With own samples those of the first are trained, else both
// have them.
static void cut_in_two(struct epoch_world *world, enum cn_scope scope)
{
    world->job.parallel.scope = scope;
    world->job.pipeline.parts = 2;
    world->job.accumulate = 2;
    world->job.rules.clip = 1;
    if (scope == CN_SCOPE_SHARED)
        world->boards[1].settings.data[0] = world->boards[0].settings.data[0];
    for (int i = 0; i < world->count; i++) {
        board_close_session(&world->boards[i]);
        world_open_session(world, i);
    }
}

// A model whose state takes a minute to store does not spend all its time on that.
static void a_divided_state_is_stored_at_most_a_tenth_of_the_time(void **state)
{
    struct epoch_world *world = *state;
    struct cn_session *session;
    uint8_t digest[CN_DIGEST_SIZE];

    cut_in_two(world, CN_SCOPE_SHARED);
    world_train_round(world, digest);
    world_end_epoch(world);
    session = world->boards[0].session;
    session->disk.saved_ms = cn_platform_now_ms() - 60000;
    session->disk.store_took_ms = 0;
    assert_true(cn_session_store_due(session));
    session->disk.store_took_ms = 60000;
    assert_false(cn_session_store_due(session));
}

// Allocations of nearly this size are counted.
static atomic_size_t watched, taken;

void *__real_malloc(size_t size);
void *__wrap_malloc(size_t size);

void *__wrap_malloc(size_t size)
{
    size_t wanted = atomic_load(&watched);

    if (wanted && size >= wanted && size <= wanted + sizeof(float))
        atomic_fetch_add(&taken, 1);
    return __real_malloc(size);
}

// The buffers of messages are taken with the trainer, in whose plan they are.
static void take_messages(struct epoch_world *world, enum cn_scope scope)
{
    uint8_t digest[CN_DIGEST_SIZE];
    struct cn_session *session;
    size_t bytes = 0;

    // By its name a board knows its part when it opens the model.
    for (int i = 0; i < world->count; i++)
        snprintf(world->boards[i].settings.name, CN_NAME_SIZE, "board-%d", i + 1);
    world->job.batch = 13; // no other array has a size of this kind
    cut_in_two(world, scope);
    session = world->boards[0].session;
    atomic_store(&taken, 0);
    atomic_store(&watched, session->chain.lanes[CN_BOUNDARY_OUTPUTS].words * session->cut.slots *
                               sizeof(float));
    assert_true(watched > 0);
    world_train_round(world, digest);
    world_end_epoch(world);
    atomic_store(&watched, 0);
    assert_int_equal(taken, 0);
    for (int which = 0; which < CN_BOUNDARY_COUNT; which++)
        bytes +=
            session->chain.lanes[which].words * session->chain.lanes[which].count * sizeof(float);
    assert_true(bytes > 0);
    assert_int_equal(cn_trainer_plan(session->trainer)->messages, bytes);
}

static void a_step_of_a_chain_takes_no_memory_for_its_messages(void **state)
{
    take_messages(*state, CN_SCOPE_SHARED);
}

static void the_labels_that_travel_are_in_the_plan_as_well(void **state)
{
    struct epoch_world *world = *state;
    const struct cn_session *session;

    take_messages(world, CN_SCOPE_OWN);
    session = world->boards[0].session;
    assert_int_equal(session->chain.lanes[CN_BOUNDARY_OUTPUTS].words,
                     (cn_trainer_boundary_words(session->trainer, CN_BOUNDARY_OUTPUTS) + 1) *
                         world->job.batch);
}

static void sweep_chain(struct epoch_world *world, enum cn_scope scope, bool hears, bool dies)
{
    uint8_t undisturbed[CN_DIGEST_SIZE];

    world->job.local_steps = 2;
    cut_in_two(world, scope);
    world_store_each_step(world);
    world_train_round(world, undisturbed);
    world_end_epoch(world);
    assert_int_equal(world->boards[0].session->cut.part, 0);
    assert_int_equal(world->boards[1].session->cut.part, 1);
    assert_int_equal(world_sweep_calls(world, hears, dies, undisturbed), 0);
    assert_true(world->middles > 0);
}

// As the job says, three micro-batches are in flight in the first part. Its board gets less memory
// step by step, until fewer fit: all members keep to that, and the update is the same.
static void a_board_with_little_memory_has_fewer_micro_batches_in_flight(void **state)
{
    struct epoch_world *world = *state;
    uint8_t undisturbed[CN_DIGEST_SIZE], digest[CN_DIGEST_SIZE];
    struct cn_session *session;
    uint64_t whole;

    cut_in_two(world, CN_SCOPE_SHARED);
    world_train_round(world, undisturbed);
    world_end_epoch(world);
    session = world->boards[0].session;
    assert_int_equal(session->cut.slots, 3);
    assert_int_equal(session->chain.most, 0);
    whole = cn_trainer_memory(session->trainer);
    for (uint64_t limit = whole; session->cut.slots == 3; limit -= whole / 64) {
        world->boards[0].settings.memory_limit = limit;
        board_close_session(&world->boards[0]);
        world_open_session(world, 0);
        session = world->boards[0].session;
    }
    world_begin_anew(world);
    world_train_round(world, digest);
    world_end_epoch(world);
    assert_memory_equal(digest, undisturbed, CN_DIGEST_SIZE);
    for (int i = 0; i < world->count; i++)
        assert_int_equal(world->boards[i].session->chain.most, world->boards[0].session->cut.slots);
    assert_in_range(world->boards[0].session->cut.slots, 1, 2);
    assert_true(cn_trainer_memory(world->boards[0].session->trainer) < whole);
}

// The first stage of the sweeps over chains in shares; the last one has the calls of all.
static int first_stage = CN_SHARING_WEIGHTS;

#define FOUR 4 // members that hold two parts in two shares each

// They all have the samples of the first.
static void cut_in_shares(struct epoch_world *world, enum cn_sharing stage)
{
    world->job.parallel.stage = stage;
    if (world->count == FOUR)
        return;
    for (int i = 0; i < world->count; i++)
        board_close_session(&world->boards[i]);
    world->count = FOUR;
    world->job.parallel.shard = 2;
    world->job.parallel.scope = CN_SCOPE_SHARED;
    world->job.pipeline.parts = 2;
    world->job.accumulate = 1;
    world->job.rules.clip = 1;
    for (int i = 0; i < world->count; i++) {
        world_init_board(world, i);
        board_close_session(&world->boards[i]);
        world->boards[i].settings.data[0] = world->boards[0].settings.data[0];
        world->boards[i].mortal.stores = true;
        world_open_session(world, i);
    }
}

static void sweep_chains_in_shares(struct epoch_world *world, bool hears, bool dies)
{
    uint8_t undisturbed[CN_DIGEST_SIZE];

    world->job.local_steps = 2;
    for (int stage = first_stage; stage <= CN_SHARING_WEIGHTS; stage++) {
        cut_in_shares(world, (enum cn_sharing)stage);
        world_begin_anew(world);
        for (int i = 0; i < world->count; i++)
            world->boards[i].mortal.exchanged = 0;
        world_train_round(world, undisturbed);
        world_end_epoch(world);
        for (int i = 0; i < world->count; i++) {
            const struct cn_session *session = world->boards[i].session;

            assert_int_equal(session->cut.part, i / 2);
            assert_int_equal(session->sharing.shard, i % 2);
            assert_int_equal(cn_trainer_stage(session->trainer), stage + CN_STAGE_OPTIMIZER);
            assert_int_equal(world->boards[i].mortal.exchanged, stage ? 3 : 0);
        }
        assert_int_equal(world_sweep_calls(world, hears, dies, undisturbed), 0);
    }
}

static bool all_have_a_middle(const struct epoch_world *world)
{
    for (int i = 0; i < world->count; i++) {
        const struct cn_session *session = world->boards[i].session;

        if (session->held.step != 1 || !session->sharing.let_go)
            return false;
    }
    return true;
}

// Each member has the same rows, and in the optimizer's the values of both shares.
static void expect_whole_state(const struct epoch_world *world)
{
    const struct cn_layout *layout = world->boards[0].session->layout;
    const struct cn_checkpoint *first = &world->boards[0].session->held;

    for (int i = 0; i < world->count; i++) {
        const struct cn_checkpoint *held = &world->boards[i].session->held;

        assert_int_equal(cn_session_recall(world->boards[i].session), CN_OK);
        assert_memory_equal(held->weights, first->weights, held->total * sizeof(float));
        assert_memory_equal(held->optimizer, first->optimizer, held->total * sizeof(float));
    }
    for (size_t t = 0; t < layout->tensor_count; t++) {
        size_t moved = 0;

        for (size_t i = 0; i < layout->tensors[t].count; i++)
            moved += first->optimizer[layout->tensors[t].offset + i] != 0.0f;
        assert_true(moved > layout->tensors[t].count / 2);
    }
}

// Whoever comes next may hold another part, or another share of it. The optimizer's state is kept,
// so that the state before the first step does not follow from the version.
static void each_member_of_chains_in_shares_stores_the_whole_state(void **state)
{
    struct epoch_world *world = *state;
    uint8_t digest[CN_DIGEST_SIZE];

    world->job.local_steps = 2;
    world->job.keep_optimizer = true;
    for (int stage = CN_SHARING_OPTIMIZER; stage <= CN_SHARING_WEIGHTS; stage++) {
        uint32_t calls = 0;

        cut_in_shares(world, (enum cn_sharing)stage);
        do {
            world_begin_anew(world);
            world_start(world, 32, 0, 3, ++calls);
            cn_mailbox_put_news(&world->boards[0].box, &world->news);
            assert_false(world_serve_until_upload(world, digest));
            world_end_epoch(world);
        } while (!all_have_a_middle(world));
        expect_whole_state(world);
    }
}

// In both cases it is a member of each part, with each share.
static void a_death_after_any_call_of_a_chain_in_shares_changes_nothing(void **state)
{
    struct epoch_world *world = *state;

    world->victims = 1u << 0 | 1u << 3;
    sweep_chains_in_shares(world, true, true);
}

static void a_loss_in_any_call_of_a_chain_in_shares_changes_nothing(void **state)
{
    struct epoch_world *world = *state;

    world->victims = 1u << 1 | 1u << 2;
    sweep_chains_in_shares(world, false, false);
}

static void a_death_after_any_call_of_a_chain_changes_nothing_in_the_update(void **state)
{
    sweep_chain(*state, CN_SCOPE_SHARED, true, true);
}

static void a_loss_in_any_call_of_a_chain_changes_nothing_in_the_update(void **state)
{
    sweep_chain(*state, CN_SCOPE_SHARED, false, false);
}

static void a_death_after_any_call_of_a_chain_with_own_samples_changes_nothing(void **state)
{
    sweep_chain(*state, CN_SCOPE_OWN, true, true);
}

// With "all": each stage of chains in shares.
int main(int argc, char **argv)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, epoch_world_set_up, epoch_world_tear_down)
    const struct CMUnitTest tests[] = {
        TEST(a_divided_state_is_stored_at_most_a_tenth_of_the_time),
        TEST(a_step_of_a_chain_takes_no_memory_for_its_messages),
        TEST(the_labels_that_travel_are_in_the_plan_as_well),
        TEST(a_board_with_little_memory_has_fewer_micro_batches_in_flight),
        TEST(a_death_after_any_call_of_a_chain_changes_nothing_in_the_update),
        TEST(a_death_after_any_call_of_a_chain_with_own_samples_changes_nothing),
        TEST(a_loss_in_any_call_of_a_chain_changes_nothing_in_the_update),
        TEST(a_death_after_any_call_of_a_chain_in_shares_changes_nothing),
        TEST(each_member_of_chains_in_shares_stores_the_whole_state),
        TEST(a_loss_in_any_call_of_a_chain_in_shares_changes_nothing),
    };

    if (argc > 1 && strcmp(argv[1], "all") == 0)
        first_stage = CN_SHARING_OPTIMIZER;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
