// When registrations of boards have it decided again which job each group serves.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "aggregator/daemon/job_set.h"
#include "aggregator/run/run_private.h"
#include "runtime/port/platform.h"
#include "tests/unit/aggregator_world.h"

// The boards a and b are alone in their groups; a round is open.
static int open_round(void **state)
{
    struct aggregator_world *world = malloc(sizeof(*world));
    struct cn_round_info info = {0};
    world_init(world);
    assert_int_equal(world_enroll(world, "a", "a", 0), CN_OK);
    assert_int_equal(world_enroll(world, "b", "b", 0), CN_OK);
    assert_int_equal(world_start(world), CN_OK);
    assert_true(world_get_round(world, "b", &info));
    assert_int_equal(world_tick(world, 50), CN_OK);
    *state = world;
    return 0;
}

// Registers the board, with the reason why it gives up a run; "": it gives up none.
static void register_after(struct aggregator_world *world, const char *board, const char *fault,
                           struct cn_coap_reply *reply)
{
    struct cn_register_request request = {.protocol = {2, CN_PROTOCOL_MAX},
                                          .update_format = {1, CN_UPDATE_FORMAT_MAX},
                                          .graph_ops = {1, CN_GRAPH_OPS_MAX},
                                          .facts = {.cpu_count = 1, .fault_run = 7}};
    uint8_t bytes[CN_MESSAGE_MAX];
    size_t size;
    snprintf(request.facts.fault, sizeof(request.facts.fault), "%s", fault);
    assert_int_equal(cn_message_put_register(&request, bytes, &size), CN_OK);
    world_ask(world, board, CN_COAP_POST, "reg", bytes, size, reply);
}

struct jobs {
    struct cn_resources *serving;
    enum cn_replan made;
    int plans;
};

static struct cn_resources *serve_same(void *context, const char *group)
{
    (void)group;
    return ((struct jobs *)context)->serving;
}

static enum cn_replan decide(void *context)
{
    struct jobs *jobs = context;
    jobs->plans++;
    return jobs->made;
}

static void a_board_is_not_told_a_run_that_is_over_before_the_next_job_is_decided(void **state)
{
    struct aggregator_world *world = *state;
    struct jobs jobs = {.serving = &world->resources};
    struct cn_coap_reply reply;
    world->resources.serving = serve_same;
    world->resources.replan = decide;
    world->resources.context = &jobs;
    register_after(world, "b", "", &reply);
    assert_int_equal(reply.code, CN_COAP_CONTENT); // the run is under way
    world->run->phase = CN_RUN_ENDED;
    register_after(world, "b", "", &reply);
    assert_int_equal(reply.code, CN_COAP_UNAVAILABLE);
    assert_int_equal(reply.max_age_s, 1);
    jobs.made = CN_REPLAN_DONE;
    register_after(world, "b", "", &reply);
    assert_int_equal(reply.code, CN_COAP_CONTENT);
}

static void a_board_has_the_jobs_decided_again_once_a_second(void **state)
{
    struct aggregator_world *world = *state;
    struct jobs jobs = {.serving = &world->resources, .made = CN_REPLAN_DONE};
    struct cn_coap_reply reply;
    world->resources.serving = serve_same;
    world->resources.replan = decide;
    world->resources.context = &jobs;
    for (int i = 0; i < 100; i++, world_now_ms += 20) {
        register_after(world, "b", "no data", &reply);
        assert_int_equal(reply.code, i % 50 ? CN_COAP_UNAVAILABLE : CN_COAP_CONTENT);
    }
    assert_int_equal(jobs.plans, 2);
    register_after(world, "a", "no data", &reply); // another board
    assert_int_equal(reply.code, CN_COAP_CONTENT);
    assert_int_equal(jobs.plans, 3);
}

static void drop_nothing(void *context, const char *board)
{
    (void)context, (void)board;
}

// Moves the board as another program does, and has the roster learn of it.
static void move_board(struct aggregator_world *world, const char *board, const char *group)
{
    struct cn_ledger *ledger;
    assert_int_equal(cn_ledger_open(world->directory, &ledger), CN_OK);
    assert_int_equal(cn_ledger_move(ledger, board, group), CN_OK);
    cn_ledger_close(ledger);
    assert_int_equal(cn_roster_refresh(world->roster, drop_nothing, NULL), CN_OK);
}

// The last board of a group is moved, and the job's ledger cannot be written: the disk is full.
static void a_board_comes_back_while_the_job_has_it_in_another_group(void **state)
{
    struct aggregator_world *world = *state;
    struct aggregator_world *job;
    struct jobs jobs = {0};
    struct cn_coap_reply reply;
    open_round((void **)&job);
    jobs.serving = &job->resources;
    job->resources.gateway = &world->resources;
    world->resources.serving = serve_same;
    world->resources.context = &jobs;
    register_after(world, "b", "", &reply);
    assert_int_equal(reply.code, CN_COAP_CONTENT);
    move_board(world, "b", "c");
    register_after(world, "b", "", &reply);
    assert_int_equal(reply.code, CN_COAP_UNAVAILABLE);
    assert_int_equal(reply.max_age_s, 1);
    world_ask(world, "b", CN_COAP_GET, "r", NULL, 0, &reply);
    assert_int_equal(reply.code, CN_COAP_UNAVAILABLE);
    world_ask(world, "b", CN_COAP_GET, "k/a", NULL, 0, &reply);
    assert_int_equal(reply.code, CN_COAP_UNAVAILABLE);
    move_board(job, "b", "c");
    register_after(world, "b", "", &reply);
    assert_int_equal(reply.code, CN_COAP_CONTENT);
    world_close((void **)&job);
}

static void jobs_are_decided_again_at_most_every_few_milliseconds(void **state)
{
    struct cn_job_set set = {.count = 0}; // there is little to decide
    uint64_t plans = 0, begun_ms = cn_platform_now_ms(), spent_ms;
    (void)state;
    assert_int_equal(cn_job_set_replan(&set), CN_REPLAN_DONE);
    do {
        plans += cn_job_set_replan(&set) != CN_REPLAN_LATER;
        spent_ms = cn_platform_now_ms() - begun_ms;
    } while (spent_ms < 100);
    assert_in_range(plans, 1, spent_ms / 4);
}

// A group's boards ask at the same moment when a run is over: none of them waits a second.
static void with_one_job_all_boards_are_answered_at_once(void **state)
{
    static struct cn_job_slot slot;
    struct cn_job_set set = {.slots = &slot, .count = 1};
    (void)state;
    for (int i = 0; i < 100; i++)
        assert_int_equal(cn_job_set_replan(&set), CN_REPLAN_DONE);
}

#define ROUND_TEST(name) cmocka_unit_test_setup_teardown(name, open_round, world_close)

int main(void)
{
    const struct CMUnitTest tests[] = {
        ROUND_TEST(a_board_is_not_told_a_run_that_is_over_before_the_next_job_is_decided),
        ROUND_TEST(a_board_has_the_jobs_decided_again_once_a_second),
        ROUND_TEST(a_board_comes_back_while_the_job_has_it_in_another_group),
        cmocka_unit_test(jobs_are_decided_again_at_most_every_few_milliseconds),
        cmocka_unit_test(with_one_job_all_boards_are_answered_at_once),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
