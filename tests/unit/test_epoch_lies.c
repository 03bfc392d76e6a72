// Rounds, versions, states and sizes that a member or the gateway names wrongly: the others do not
// obey, and take no memory for them.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <stdlib.h>

#include "runtime/round/epoch/epoch_limits.h"
#include "tests/unit/epoch_world.h"

#define FAR_ROUND 1000000

// The leader has other news than the member, which does not obey it then.
static void hear_a_lie(struct epoch_world *world, const struct cn_round_info *lie)
{
    world_start(world, 16, 0, NOBODY, 0);
    cn_mailbox_put_news(&world->boards[1].box, &world->news);
    cn_mailbox_put_news(&world->boards[0].box, lie);
    world_serve_version(world);
    board_join(&world->boards[1]);
    board_join(&world->boards[0]);
    assert_int_equal(world->boards[1].err, CN_EFORMAT);
}

static void a_leader_that_names_a_round_far_ahead_is_not_obeyed(void **state)
{
    struct epoch_world *world = *state;
    const struct cn_session *member = world->boards[1].session;
    struct cn_round_info lie;

    world->news.round = 7;
    lie = world->news;
    lie.round = FAR_ROUND;
    hear_a_lie(world, &lie);
    assert_int_equal(member->held.phase, CN_PHASE_BASE);
    assert_true(member->held.round < 7 && member->held.counted.round < 7);
}

// The board's own way to the aggregator may be cut while rounds go on.
static void the_older_the_news_the_more_rounds_are_believed(void **state)
{
    struct epoch_world *world = *state;
    struct epoch_board *board = &world->boards[1];

    assert_int_equal(cn_mailbox_init(&board->box), CN_OK);
    board->epoch = (struct cn_epoch){.session = board->session, .box = &board->box};
    assert_int_equal(cn_epoch_newest_round(&board->epoch), UINT32_MAX);
    cn_mailbox_put_news(&board->box, &world->news);
    assert_in_range(cn_epoch_newest_round(&board->epoch), 65, 165);
    board->box.news_ms -= 10000;
    assert_in_range(cn_epoch_newest_round(&board->epoch), 565, 665);
    board->box.news_ms -= 11000;
    assert_int_equal(cn_epoch_newest_round(&board->epoch), UINT32_MAX);
    cn_mailbox_deinit(&board->box);
}

static void a_version_far_ahead_is_not_taken(void **state)
{
    struct epoch_world *world = *state;
    struct cn_round_info lie = world->news;

    lie.version = FAR_ROUND;
    hear_a_lie(world, &lie);
    assert_int_equal(world->boards[1].session->held.phase, CN_PHASE_EMPTY);
}

static void a_state_far_ahead_is_not_taken(void **state)
{
    struct epoch_world *world = *state;
    uint8_t digest[CN_DIGEST_SIZE];

    world_train_round(world, digest);
    world_lose_second(world);
    world_open_session(world, 1);
    world->boards[0].session->held.round = FAR_ROUND;
    world_start(world, 32, 0, NOBODY, 0);
    cn_mailbox_put_news(&world->boards[1].box, &world->news);
    board_join(&world->boards[1]);
    board_join(&world->boards[0]);
    assert_int_equal(world->boards[1].err, CN_ERANGE);
    assert_int_equal(world->boards[1].session->held.round, 1);
}

static void lie_in_rule(struct cn_checkpoint *held)
{
    held->rule.mode = CN_UPDATE_AUTO; // which only jobs have
}

static void lie_in_change(struct cn_checkpoint *held)
{
    ((float *)held->change.data)[7] = NAN;
}

static void lie_in_size(struct cn_checkpoint *held)
{
    ((float *)held->change.data)[7] = 1e30f; // each update would send the largest value of it
}

static void lie_in_guard(struct cn_checkpoint *held)
{
    held->guard.factor = 1e-300;
}

static void lie_in_next_residual(struct cn_checkpoint *held)
{
    ((float *)held->next_residual.data)[7] = INFINITY;
}

// Whoever took it could send nothing of use in any later round, and would give it to others.
static void a_state_that_does_harm_for_good_is_not_taken(void **state)
{
    static void (*const lies[])(struct cn_checkpoint *) = {lie_in_rule, lie_in_change, lie_in_size,
                                                           lie_in_guard, lie_in_next_residual};
    struct epoch_world *world = *state;
    uint8_t digest[CN_DIGEST_SIZE];

    for (size_t i = 0; i < sizeof(lies) / sizeof(lies[0]); i++) {
        world_begin_anew(world);
        world_train_round(world, digest);
        world_lose_second(world);
        snprintf(world->boards[1].settings.state, CN_PATH_SIZE, "%s/new-%zu", world->directory, i);
        world_open_session(world, 1); // with an empty disk
        assert_int_equal(world->boards[0].session->held.phase, CN_PHASE_SEND);
        lies[i](&world->boards[0].session->held);
        world_start(world, 32, 0, NOBODY, 0);
        cn_mailbox_put_news(&world->boards[1].box, &world->news);
        board_join(&world->boards[1]);
        board_join(&world->boards[0]);
        assert_int_equal(world->boards[1].err, CN_EFORMAT);
        assert_int_equal(world->boards[1].session->held.phase, CN_PHASE_EMPTY);
    }
}

static void a_round_of_too_many_steps_is_not_taken(void **state)
{
    struct epoch_world *world = *state;
    const struct cn_checkpoint *held;
    uint8_t digest[CN_DIGEST_SIZE];
    uint32_t call = 3;

    do { // the second member dies after the first step
        world_begin_anew(world);
        world_start(world, 16, 0, 1, call++);
        cn_mailbox_put_news(&world->boards[0].box, &world->news);
        assert_false(world_serve_until_upload(world, digest));
        world_end_epoch(world);
        held = &world->boards[0].session->held;
    } while (held->phase != CN_PHASE_TRAIN || held->step != 1);
    world->boards[0].session->held.steps = 17 * world->job.local_steps;
    board_close_session(&world->boards[1]);
    snprintf(world->boards[1].settings.state, CN_PATH_SIZE, "%s/new", world->directory);
    world_open_session(world, 1);
    world_start(world, 32, 0, NOBODY, 0);
    cn_mailbox_put_news(&world->boards[1].box, &world->news);
    board_join(&world->boards[1]);
    board_join(&world->boards[0]);
    assert_int_equal(world->boards[1].err, CN_EFORMAT);
}

// The sizes come from the gateway: 8 GiB for a model of 19 kB took the board's memory.
static void a_version_of_an_impossible_size_is_not_asked_for(void **state)
{
    struct epoch_world *world = *state;
    struct epoch_board *leader = &world->boards[0];
    struct cn_round_info lie = world->news;
    struct cn_errand_request request;

    lie.version_size = 8ull << 30;
    world_start(world, 16, 0, NOBODY, 0);
    cn_mailbox_put_news(&leader->box, &lie);
    cn_platform_sleep_ms(300);
    assert_false(cn_mailbox_requested(&leader->box, CN_ERRAND_FETCH));
    cn_mailbox_put_news(&leader->box, &world->news);
    board_await_errand(leader, CN_ERRAND_FETCH, &request);
    assert_int_equal(request.size, world->version_size);
    world_lose_second(world);
    world_open_session(world, 1);
    assert_true(cn_session_may_take(leader->session, 1, false, world->version_size));
    assert_false(cn_session_may_take(leader->session, 1, false, world->version_size - 1));
    assert_true(cn_session_may_take(leader->session, 1, true, 1000));
    assert_false(cn_session_may_take(leader->session, 1, true, 8ull << 30));
}

#define VOTES_OF_TWO 15         // floats of a step's votes in a group of two
#define SUMS_OF_DIGITS (6 + 30) // floats of the sums over held-out samples, with ten classes

// Trains a round with a second member that lies in all-reduces of so many floats.
static void train_with_lie(struct epoch_world *world, size_t floats, size_t at, float lie,
                           struct cn_errand_request *upload)
{
    struct epoch_board *leader = &world->boards[0];

    world->boards[1].mortal.lies_of = floats;
    world->boards[1].mortal.lie_at = at;
    world->boards[1].mortal.lie = lie;
    world_start(world, 16, 0, NOBODY, 0);
    cn_mailbox_put_news(&leader->box, &world->news);
    world_serve_version(world);
    board_await_errand(leader, CN_ERRAND_UPLOAD, upload);
    free((void *)upload->upload.frame);
    world_end_epoch(world);
    assert_true(world->boards[1].mortal.lies > 0);
    world->boards[1].mortal.lies = 0;
    world->boards[1].mortal.lies_of = 0;
}

static void impossible_results_of_a_member_leave_a_version_unmeasured(void **state)
{
    static const struct {
        size_t at; // loss, right, rows
        float lie;
    } lies[] = {{1, 1e6f}, {1, -1e30f}, {1, NAN}, {2, NAN}, {2, -1e9f}, {0, 3e38f}, {0, -1e9f}};
    struct epoch_world *world = *state;
    struct cn_errand_request request;

    for (size_t i = 0; i < sizeof(lies) / sizeof(lies[0]); i++) {
        world_begin_anew(world);
        train_with_lie(world, SUMS_OF_DIGITS, lies[i].at, lies[i].lie, &request);
        assert_int_equal(request.upload.held_out_count, 0);
        assert_int_equal(request.upload.held_out_correct, 0);
        assert_true(request.upload.held_out_loss == 0);
        assert_true(request.upload.measures.top5 == 0 && request.upload.measures.f1 == 0);
    }
}

// A loss of 0 would make a diverged version the best of all.
static void a_version_whose_loss_is_not_finite_counts_as_not_measured(void **state)
{
    static const float losses[] = {INFINITY, -INFINITY, NAN};
    struct epoch_world *world = *state;
    const struct cn_checkpoint *held;
    struct cn_errand_request request;

    for (size_t i = 0; i < sizeof(losses) / sizeof(losses[0]); i++) {
        world_begin_anew(world);
        train_with_lie(world, SUMS_OF_DIGITS, 0, losses[i], &request);
        held = &world->boards[0].session->held;
        assert_true(held->held_out_count == 0 && held->held_out_correct == 0);
        assert_int_equal(request.upload.held_out_count, 0);
        assert_true(request.upload.measures.top5 == 0 && request.upload.measures.f1 == 0);
    }
}

static void impossible_shares_are_not_measured(void **state)
{
    struct epoch_world *world = *state;
    struct cn_errand_request request;

    train_with_lie(world, SUMS_OF_DIGITS, 3, 1e6f, &request);
    assert_true(request.upload.held_out_count > 0);
    assert_true(request.upload.measures.top5 == 0 && request.upload.measures.f1 > 0);
    world_begin_anew(world);
    train_with_lie(world, SUMS_OF_DIGITS, 6, 1e6f, &request);
    assert_true(request.upload.measures.top5 > 0 && request.upload.measures.f1 == 0);
}

static void impossible_votes_of_a_member_do_not_stop_the_round(void **state)
{
    static const struct {
        size_t at; // samples, weight, loss, ..., bucket, window, ..., computing times
        float lie;
    } lies[] = {{0, NAN},   {0, -1e6f},  {0, 1e30f}, {1, NAN}, {2, NAN},
                {2, 3e38f}, {2, -3e38f}, {8, NAN},   {9, -5},  {12, NAN}};
    struct epoch_world *world = *state;
    struct cn_errand_request request;

    for (size_t i = 0; i < sizeof(lies) / sizeof(lies[0]); i++) {
        world_begin_anew(world);
        train_with_lie(world, VOTES_OF_TWO, lies[i].at, lies[i].lie, &request);
        assert_true(fabs(request.upload.train_loss) < 100);
        assert_in_range(world->boards[0].session->held.samples, 1, 6 * 16 * 2);
    }
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, epoch_world_set_up, epoch_world_tear_down)
    const struct CMUnitTest tests[] = {
        TEST(a_leader_that_names_a_round_far_ahead_is_not_obeyed),
        TEST(the_older_the_news_the_more_rounds_are_believed),
        TEST(a_version_far_ahead_is_not_taken),
        TEST(a_state_far_ahead_is_not_taken),
        TEST(a_state_that_does_harm_for_good_is_not_taken),
        TEST(a_round_of_too_many_steps_is_not_taken),
        TEST(a_version_of_an_impossible_size_is_not_asked_for),
        TEST(impossible_results_of_a_member_leave_a_version_unmeasured),
        TEST(a_version_whose_loss_is_not_finite_counts_as_not_measured),
        TEST(impossible_shares_are_not_measured),
        TEST(impossible_votes_of_a_member_do_not_stop_the_round),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
