// What is on a board's disk after a kill, and a disk that is full.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#include "runtime/round/checkpoint/checkpoint_private.h"
#include "runtime/round/epoch/round_file.h"
#include "tests/unit/log_capture.h"
#include "tests/unit/session_world.h"

static unsigned full_for; // attempts to create a file that fail
static const struct cn_store_ops *disk;

static cn_err create_on_full_disk(struct cn_store *store, const char *name,
                                  struct cn_store_file **file)
{
    if (!full_for)
        return disk->create(store, name, file);
    full_for--;
    return CN_ENOSPC;
}

static void a_full_disk_is_said_once(void **state)
{
    struct session_world *world = *state;
    struct cn_store_ops full;
    struct log_capture capture;
    unsigned with_path;

    world_open_session(world);
    world_train(world, 1);
    disk = world->store->ops;
    full = *disk;
    full.create = create_on_full_disk;
    world->store->ops = &full;
    full_for = 2;
    log_capture_begin(&capture);
    assert_int_equal(cn_session_secure_outbox(world->session, world->alone), CN_OK);
    world->store->ops = disk;
    assert_int_equal(full_for, 0);
    // That it is full, with its path, and that updates can be stored again.
    assert_int_equal(log_capture_end(&capture, world->directory, &with_path), 2);
    assert_int_equal(with_path, 2);
}

static unsigned models_failed; // attempts to replace the model's file that failed

static cn_err create_but_no_model(struct cn_store *store, const char *name,
                                  struct cn_store_file **file)
{
    if (!full_for || strcmp(name, "model.current.onnx") != 0)
        return disk->create(store, name, file);
    models_failed++;
    return CN_ENOSPC;
}

static void a_model_file_that_cannot_be_replaced_is_said_once(void **state)
{
    struct session_world *world = *state;
    struct cn_store_ops full;
    struct log_capture capture;
    unsigned with_path;

    world_reopen(world); // a board that trains alone makes its versions itself
    disk = world->store->ops;
    full = *disk;
    full.create = create_but_no_model;
    world->store->ops = &full;
    full_for = 1;
    models_failed = 0;
    log_capture_begin(&capture);
    for (uint32_t version = 0; version < 3; version++)
        assert_int_equal(cn_session_adopt(world->session, world->alone, version), CN_OK);
    assert_int_equal(models_failed, 3);
    full_for = 0;
    for (uint32_t version = 3; version < 5; version++)
        assert_int_equal(cn_session_adopt(world->session, world->alone, version), CN_OK);
    world->store->ops = disk;
    // That it stays, and that it is replaced again.
    assert_int_equal(log_capture_end(&capture, world->directory, &with_path), 2);
    assert_int_equal(with_path, 2);
}

static void a_round_that_was_begun_begins_again_after_a_kill(void **state)
{
    struct session_world *world = *state;
    const struct cn_link_path_stats link = {0};
    struct cn_round_order order;

    world_open_session(world);
    cn_session_plan(world->session, 4, &link, 60000, &order);
    assert_int_equal(cn_session_begin(world->session, &order), CN_OK);
    world_kill_and_reopen(world); // before it was written
    assert_int_equal(cn_round_file_resume(world->session), CN_OK);
    assert_int_equal(world->session->held.phase, CN_PHASE_BASE);

    assert_int_equal(cn_session_begin(world->session, &order), CN_OK);
    cn_round_file_save(world->session, &order);
    world_kill_and_reopen(world);
    assert_int_equal(cn_round_file_resume(world->session), CN_OK);
    assert_int_equal(world->session->held.phase, CN_PHASE_TRAIN);
    assert_int_equal(world->session->held.round, 4);
    assert_int_equal(world->session->held.steps, order.steps);
    assert_int_equal(world->session->held.rule.mode, CN_UPDATE_Q8);

    // One that is over does not begin again, nor that of another state.
    assert_int_equal(cn_session_abandon(world->session, NULL), CN_OK);
    world_kill_and_reopen(world);
    assert_int_equal(cn_round_file_resume(world->session), CN_OK);
    assert_int_equal(world->session->held.phase, CN_PHASE_BASE);
    order.round = 5;
    cn_round_file_save(world->session, &order);
    world->session->held.base_digest[0] ^= 1;
    assert_int_equal(cn_round_file_resume(world->session), CN_OK);
    assert_int_equal(world->session->held.phase, CN_PHASE_BASE);
}

static void a_round_given_up_is_remembered_after_a_restart(void **state)
{
    struct session_world *world = *state;

    world_open_session(world);
    world_begin(world, 4);
    assert_int_equal(cn_session_abandon(world->session, NULL), CN_OK);
    assert_int_equal(world->given_up, 4);
    world->given_up = 0; // as in a new process
    world_kill_and_reopen(world);
    assert_int_equal(world->given_up, 4);

    // Not after a later round, nor in another run.
    world_begin(world, 5);
    assert_int_equal(cn_session_save(world->session, 0), CN_OK);
    world->given_up = 0;
    world_kill_and_reopen(world);
    assert_int_equal(world->given_up, 0);
    assert_int_equal(cn_session_abandon(world->session, NULL), CN_OK);
    world->given_up = 0;
    world->run = 10;
    world_kill_and_reopen(world);
    assert_int_equal(world->given_up, 0);
}

// Breaks all stored states.
static void damage(const struct session_world *world)
{
    for (int slot = 0; slot < 2; slot++) {
        char path[CN_PATH_SIZE + 32];
        FILE *file;

        snprintf(path, sizeof(path), "%s/%s", world->settings.state, cn_checkpoint_slots[slot]);
        file = fopen(path, "w");
        assert_non_null(file);
        fputs("nonsense", file);
        fclose(file);
    }
}

static void a_personal_layer_that_is_lost_is_named(void **state)
{
    struct session_world *world = *state;
    struct log_capture capture;
    unsigned said;

    snprintf(world->job.options.local, CN_WORDS_SIZE, "5.*");
    log_capture_begin(&capture);
    world_open_session(world);
    log_capture_end(&capture, "begins as in version 0", &said);
    assert_int_equal(said, 0); // it has not been trained
    damage(world);
    log_capture_begin(&capture);
    world_kill_and_reopen(world);
    log_capture_end(&capture,
                    "the residual is lost unless another member has it, and so is what the group "
                    "keeps for itself: 2 tensors of ",
                    &said);
    assert_int_equal(said, 1);
    log_capture_begin(&capture);
    world_install(world, 3);
    log_capture_end(&capture, "so it begins as in version 0: 2 tensors of ", &said);
    assert_int_equal(said, 1);
    log_capture_begin(&capture);
    world_install(world, 4);
    log_capture_end(&capture, "begins as in version 0", &said);
    assert_int_equal(said, 0);
}

static void another_run_counts_its_states_on(void **state)
{
    struct session_world *world = *state;
    uint64_t counter;

    world_open_session(world);
    counter = world->session->held.counter;
    assert_true(counter > 0);
    world->run = 10;
    world_kill_and_reopen(world);
    assert_int_equal(world->session->held.phase, CN_PHASE_EMPTY);
    assert_int_equal(world->session->held.counter, counter); // without a look at both slots
    world_install(world, 0);
    assert_int_equal(world->session->held.counter, counter + 1);
    world_kill_and_reopen(world);
    assert_int_equal(world->session->held.phase, CN_PHASE_BASE);
}

int main(void)
{
#define TEST(name)                                                                                 \
    cmocka_unit_test_setup_teardown(name, session_world_set_up, session_world_tear_down)
    const struct CMUnitTest tests[] = {
        TEST(a_full_disk_is_said_once),
        TEST(a_model_file_that_cannot_be_replaced_is_said_once),
        TEST(a_personal_layer_that_is_lost_is_named),
        TEST(a_round_that_was_begun_begins_again_after_a_kill),
        TEST(a_round_given_up_is_remembered_after_a_restart),
        TEST(another_run_counts_its_states_on),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
