// Two members train a round; one is lost in its middle and returns. The update does not change.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/engine/trainer/trainer_parts.h"
#include "runtime/update/version.h"
#include "tests/unit/epoch_world.h"

static void assert_same_state(const struct epoch_world *world)
{
    const struct cn_checkpoint *a = &world->boards[0].session->held;
    const struct cn_checkpoint *b = &world->boards[1].session->held;

    assert_int_equal(a->phase, CN_PHASE_BASE);
    assert_int_equal(b->phase, CN_PHASE_BASE);
    assert_int_equal(a->round, b->round);
    assert_memory_equal(a->base_digest, b->base_digest, CN_DIGEST_SIZE);
    assert_memory_equal(a->base, b->base, a->total * sizeof(float));
    assert_memory_equal(a->residual.data, b->residual.data, a->total * sizeof(float));
    assert_memory_equal(a->frame_digest, b->frame_digest, CN_DIGEST_SIZE);
}

// Both go on from an outbox until the run is over: the same update is sent, and counts.
static void finish_run(struct epoch_world *world, uint64_t number,
                       const uint8_t digest[CN_DIGEST_SIZE])
{
    struct epoch_board *leader = &world->boards[0];
    struct cn_errand_request request;
    struct cn_errand_answer answer = {.kind = CN_ERRAND_UPLOAD, .verdict = CN_VERDICT_ACCEPTED};

    world_start(world, number, 0, NOBODY, 0);
    cn_mailbox_put_news(&leader->box, &world->news);
    board_await_errand(leader, CN_ERRAND_UPLOAD, &request);
    assert_memory_equal(request.upload.digest, digest, CN_DIGEST_SIZE);
    free((void *)request.upload.frame);
    answer.number = request.number;
    memcpy(answer.accepted, digest, CN_DIGEST_SIZE);
    cn_mailbox_put_answer(&leader->box, &answer);
    world->news.state = CN_ROUND_ENDED;
    world->news.decided_round = 1;
    world->news.decided_accepted = true;
    memcpy(world->news.decided_digest, digest, CN_DIGEST_SIZE);
    cn_mailbox_put_news(&leader->box, &world->news);
    for (int i = 0; i < world->count; i++)
        board_await_end(&world->boards[i]);
    world_end_epoch(world);
    assert_same_state(world);
}

static void a_member_that_lost_everything_heals_from_the_other(void **state)
{
    struct epoch_world *world = *state;
    uint8_t digest[CN_DIGEST_SIZE];
    char command[CN_PATH_SIZE + 32];

    world_train_round(world, digest);
    world_lose_second(world);
    snprintf(command, sizeof(command), "rm -rf %s", world->boards[1].settings.state);
    assert_int_equal(system(command), 0); // NOLINT(cert-env33-c)
    world_open_session(world, 1);
    assert_int_equal(world->boards[1].session->held.phase, CN_PHASE_EMPTY);
    finish_run(world, 32, digest);
    snprintf(command, sizeof(command), "%s/model.current.onnx", world->boards[1].settings.state);
    assert_int_equal(access(command, R_OK), 0); // applications get the version, too
}

// In a run the plan has room for copies of the model; what a board alone trains has none.
static void the_plan_of_a_run_has_room_for_copies_of_the_model(void **state)
{
    struct epoch_world *world = *state;
    struct epoch_board *board = &world->boards[0];
    struct cn_session *session = board->session;
    uint64_t row = session->layout->total * sizeof(float);
    uint64_t room = cn_version_memory(session->layout) + row, planned, limit;
    struct cn_progress progress = {0};
    struct cn_session_config config = session->config;
    static struct cn_diag diag;

    assert_true(room >= 2 * world->version_size + 2 * row);
    cn_session_fill_progress(session, &progress);
    assert_int_equal(progress.copies_memory, room);
    planned = progress.memory;
    limit = planned - room; // enough to train alone
    cn_session_close(session);
    board->session = NULL;
    board->settings.memory_limit = limit;
    config.alone = true;
    assert_int_equal(cn_session_open(&config, &diag, &session), CN_OK);
    assert_int_equal(cn_trainer_plan(session->trainer)->copies, 0);
    assert_int_equal(cn_trainer_memory(session->trainer), limit);
    cn_session_close(session);
    config.alone = false;
    assert_int_equal(cn_session_open(&config, &diag, &session), CN_ENOMEM);
    assert_non_null(strstr(cn_diag_first(&diag), "of them for copies"));
    board->settings.memory_limit = planned;
    assert_int_equal(cn_session_open(&config, &diag, &board->session), CN_OK);
    assert_int_equal(cn_trainer_memory(board->session->trainer), planned);
}

static void expect_rows(const struct cn_row *a, const struct cn_row *b, size_t total)
{
    assert_non_null(a->data);
    assert_memory_equal(a->data, b->data, total * cn_row_width(b));
}

// The disk has the update and what may become the residual before anything is sent.
static void a_killed_member_has_the_outbox_on_disk(void **state)
{
    struct epoch_world *world = *state;
    uint8_t digest[CN_DIGEST_SIZE];

    world_train_round(world, digest);
    world_lose_second(world);
    world_open_session(world, 1);
    assert_int_equal(world->boards[1].session->held.phase, CN_PHASE_SEND);
    assert_memory_equal(world->boards[1].session->held.frame_digest, digest, CN_DIGEST_SIZE);
    assert_null(world->boards[1].session->held.residual.data);
    expect_rows(&world->boards[1].session->held.next_residual,
                &world->boards[0].session->held.next_residual,
                world->boards[0].session->held.total);
    expect_rows(&world->boards[1].session->held.change, &world->boards[0].session->held.change,
                world->boards[0].session->held.total);
    finish_run(world, 32, digest);
}

static void sweep(struct epoch_world *world, bool hears, bool dies)
{
    uint8_t undisturbed[CN_DIGEST_SIZE];
    uint32_t rolled;

    world_train_round(world, undisturbed);
    world_end_epoch(world);
    rolled = world_sweep_calls(world, hears, dies, undisturbed);
    // Between the votes and the optimizer of a step, on the other as a step that is done: of each
    // step where the other is quick enough to hear the votes before the loss.
    assert_true(rolled >= (hears ? 1 : 0));
}

static void a_death_in_any_call_changes_nothing_in_the_update(void **state)
{
    sweep(*state, false, true);
}

static void a_death_after_any_call_changes_nothing_in_the_update(void **state)
{
    sweep(*state, true, true);
}

static void a_loss_in_any_call_changes_nothing_in_the_update(void **state)
{
    sweep(*state, false, false);
}

static void a_loss_after_any_call_changes_nothing_in_the_update(void **state)
{
    sweep(*state, true, false);
}

// Pieces of the state that are not all zeros: those need not travel.
static uint32_t pieces_of(const struct cn_buffer *state)
{
    static const uint8_t zeros[PIECE];
    uint32_t count = 0;

    for (size_t at = 0; at + PIECE <= state->size; at += PIECE)
        count += memcmp(state->data + at, zeros, PIECE) != 0;
    return count;
}

static void a_transfer_that_was_cut_is_resumed(void **state)
{
    struct epoch_world *world = *state;
    const uint32_t before = 4, came = 10; // calls before the pieces, pieces until it is cut
    struct epoch_board *joins = &world->boards[1];
    uint8_t digest[CN_DIGEST_SIZE], again[CN_DIGEST_SIZE];
    char command[CN_PATH_SIZE + 16];
    struct cn_buffer whole;

    world_train_round(world, digest);
    world_lose_second(world);
    cn_buffer_init(&whole, SIZE_MAX);
    assert_int_equal(cn_checkpoint_encode(&world->boards[0].session->held, &whole), CN_OK);
    assert_true(pieces_of(&whole) > 2 * came);
    snprintf(command, sizeof(command), "rm -rf %s", joins->settings.state);
    assert_int_equal(system(command), 0); // NOLINT(cert-env33-c)
    world_open_session(world, 1);

    world_start(world, 32, 0, 1, before + came);
    board_join(&world->boards[1]);
    board_join(&world->boards[0]);
    assert_int_equal(joins->mortal.pieces, came);
    assert_int_equal(joins->session->held.phase, CN_PHASE_EMPTY);

    world_start(world, 48, 0, NOBODY, 0);
    cn_mailbox_put_news(&world->boards[0].box, &world->news);
    assert_true(world_serve_until_upload(world, again));
    assert_memory_equal(again, digest, CN_DIGEST_SIZE);
    world_end_epoch(world);
    assert_int_equal(joins->mortal.pieces, pieces_of(&whole) - came);
    assert_null(joins->session->arriving.part.data);
    cn_buffer_deinit(&whole);
}

static void a_member_that_lacks_nothing_takes_nothing(void **state)
{
    struct epoch_world *world = *state;
    uint8_t digest[CN_DIGEST_SIZE];

    world_train_round(world, digest);
    world_end_epoch(world);
    world_start(world, 32, 0, NOBODY, 0);
    cn_mailbox_put_news(&world->boards[0].box, &world->news);
    assert_true(world_serve_until_upload(world, digest));
    world_end_epoch(world);
    for (int i = 0; i < world->count; i++)
        assert_int_equal(world->boards[i].mortal.pieces, 0);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, epoch_world_set_up, epoch_world_tear_down)
    const struct CMUnitTest tests[] = {
        TEST(a_member_that_lost_everything_heals_from_the_other),
        TEST(the_plan_of_a_run_has_room_for_copies_of_the_model),
        TEST(a_killed_member_has_the_outbox_on_disk),
        TEST(a_death_in_any_call_changes_nothing_in_the_update),
        TEST(a_death_after_any_call_changes_nothing_in_the_update),
        TEST(a_loss_in_any_call_changes_nothing_in_the_update),
        TEST(a_loss_after_any_call_changes_nothing_in_the_update),
        TEST(a_transfer_that_was_cut_is_resumed),
        TEST(a_member_that_lacks_nothing_takes_nothing),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
