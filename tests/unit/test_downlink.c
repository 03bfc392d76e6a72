// How versions go down by the measured links: the choice, its record, and that a kill changes no
// bit of a version.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "aggregator/ledger/ledger_sql.h"
#include "aggregator/merge/downlink.h"
#include "tests/unit/aggregator_world.h"

// --- the choice ---

struct links {
    struct cn_layout layout;
    struct cn_job job;
    struct cn_downlink newest;
};

static const struct cn_test_tensor tensors[] = {{1000000, CN_TENSOR_PARAM}};

static void begin_links(struct links *links)
{
    *links = (struct links){.layout = cn_test_layout(tensors, 1),
                            .job = {.down.mode = CN_UPDATE_AUTO, .deadline_ms = 80000}};
}

// Chooses for links that carry this number of bytes in a tenth of the deadline, 8 s.
static void choose(struct links *links, uint64_t bytes)
{
    struct cn_downlink next = {.version = links->newest.version + 1, .link_bps = bytes};
    cn_downlink_next(&links->layout, &links->job, links->newest.version ? &links->newest : NULL,
                     &next);
    assert_int_equal(next.budget, bytes);
    links->newest = next;
}

static void assert_rule(const struct links *links, enum cn_update_mode mode, unsigned per_mille)
{
    assert_int_equal(links->newest.rule.mode, mode);
    assert_int_equal((unsigned)(1000 * links->newest.rule.density + 0.5), per_mille);
}

static void a_slower_link_gets_the_largest_encoding_that_fits(void **state)
{
    static const struct {
        uint64_t bytes;
        enum cn_update_mode mode;
        unsigned per_mille;
    } cases[] = {
        {1100000, CN_UPDATE_Q8, 0},    {900000, CN_UPDATE_Q4, 0},   {400000, CN_UPDATE_TOPK, 250},
        {150000, CN_UPDATE_TOPK, 100}, {80000, CN_UPDATE_TOPK, 50}, {40000, CN_UPDATE_TOPK, 20},
        {20000, CN_UPDATE_TOPK, 10},   {10, CN_UPDATE_TOPK, 10},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct links links;
        begin_links(&links);
        choose(&links, cases[i].bytes);
        assert_rule(&links, cases[i].mode, cases[i].per_mille);
        assert_true(links.newest.size <= cases[i].bytes || cases[i].bytes == 10);
        cn_test_layout_free(&links.layout);
    }
}

// A board may say anything; its longest time for a transfer is that of the job.
static void a_link_beyond_all_bounds_gets_the_largest_encoding(void **state)
{
    struct cn_downlink next = {.version = 1, .link_bps = INT64_MAX};
    struct links links;
    (void)state;
    begin_links(&links);
    links.job.deadline_ms = 86400000;
    cn_downlink_next(&links.layout, &links.job, NULL, &next);
    assert_true(next.budget >= (uint64_t)1 << 50);
    assert_int_equal(next.rule.mode, CN_UPDATE_Q8);
    cn_test_layout_free(&links.layout);
}

static void the_first_rule_is_q8_and_unknown_links_change_nothing(void **state)
{
    struct links links;
    (void)state;
    begin_links(&links);
    choose(&links, 0);
    assert_rule(&links, CN_UPDATE_Q8, 0);
    choose(&links, 400000);
    assert_rule(&links, CN_UPDATE_TOPK, 250);
    choose(&links, 0);
    assert_rule(&links, CN_UPDATE_TOPK, 250);
    cn_test_layout_free(&links.layout);
}

static void links_that_vary_do_not_change_the_rule(void **state)
{
    struct links links;
    (void)state;
    begin_links(&links);
    choose(&links, 900000); // q8 takes a million bytes
    assert_rule(&links, CN_UPDATE_Q4, 0);
    for (int i = 0; i < 20; i++) {
        choose(&links, 1200000); // q8 fits, but takes more than three quarters
        assert_rule(&links, CN_UPDATE_Q4, 0);
    }
    for (int i = 0; i < 20; i++) {
        choose(&links, i % 3 == 2 ? 900000 : 2000000); // never three in a row
        assert_rule(&links, CN_UPDATE_Q4, 0);
    }
    cn_test_layout_free(&links.layout);
}

static void three_versions_with_room_go_one_step_up(void **state)
{
    struct links links;
    (void)state;
    begin_links(&links);
    choose(&links, 150000);
    assert_rule(&links, CN_UPDATE_TOPK, 100);
    for (unsigned i = 1; i <= 9; i++) {
        choose(&links, 10000000);
        assert_rule(&links,
                    i < 6   ? CN_UPDATE_TOPK
                    : i < 9 ? CN_UPDATE_Q4
                            : CN_UPDATE_Q8,
                    i < 3   ? 100
                    : i < 6 ? 250
                            : 0);
    }
    choose(&links, 80000); // down in one go
    assert_rule(&links, CN_UPDATE_TOPK, 50);
    cn_test_layout_free(&links.layout);
}

// --- the goodput that the groups say ---

static int open_world(void **state)
{
    struct aggregator_world *world = malloc(sizeof(*world));
    world_init(world);
    world->job.down.mode = CN_UPDATE_AUTO;
    assert_int_equal(cn_ledger_open(world->directory, &world->ledger), CN_OK);
    *state = world;
    return 0;
}

static void accept_from(struct aggregator_world *world, uint32_t round, unsigned group,
                        uint64_t bps)
{
    struct cn_ledger_contribution made = {.round = round, .size = 10, .weight = 3, .down_bps = bps};
    snprintf(made.group, sizeof(made.group), "g%u", group);
    snprintf(made.board, sizeof(made.board), "b%u", group);
    memset(made.digest, (int)(round * 16 + group), sizeof(made.digest));
    assert_int_equal(cn_ledger_accept(world->ledger, &made), CN_OK);
}

static void open_next(struct aggregator_world *world, uint32_t round)
{
    struct cn_ledger_version version = {.number = round - 1};
    memset(version.digest, (int)round, sizeof(version.digest));
    if (round > 1) {
        assert_int_equal(cn_ledger_close_round(world->ledger, round - 1), CN_OK);
        assert_int_equal(cn_ledger_add_version(world->ledger, &version), CN_OK);
    }
    assert_int_equal(cn_ledger_open_round(world->ledger, round), CN_OK);
}

static uint64_t goodput(struct aggregator_world *world, uint32_t version)
{
    uint64_t bps;
    assert_int_equal(cn_downlinks_goodput(world->ledger, version, &bps), CN_OK);
    return bps;
}

static void the_slowest_quarter_counts_with_its_newest_word(void **state)
{
    struct aggregator_world *world = *state;
    char board[8], group[8];
    for (unsigned i = 0; i < 8; i++) {
        snprintf(board, sizeof(board), "b%u", i);
        snprintf(group, sizeof(group), "g%u", i);
        assert_int_equal(world_enroll(world, board, group, 0), CN_OK);
    }
    open_next(world, 1);
    assert_int_equal(goodput(world, 1), 0);
    accept_from(world, 1, 0, 0); // says nothing
    assert_int_equal(goodput(world, 1), 0);
    for (unsigned i = 1; i < 4; i++)
        accept_from(world, 1, i, 1000 * i);
    assert_int_equal(goodput(world, 1), 1000); // the slowest of three
    for (unsigned i = 4; i < 8; i++)
        accept_from(world, 1, i, 1000 * i);
    assert_int_equal(goodput(world, 1), 2000); // of seven, one may be slower
    open_next(world, 2);
    accept_from(world, 2, 1, 9000);
    accept_from(world, 2, 2, 0); // its word of round 1 still counts
    assert_int_equal(goodput(world, 2), 3000);
    assert_int_equal(goodput(world, 1), 2000);
    assert_int_equal(goodput(world, 2 + CN_DOWNLINKS_RECENT), 0);
}

// --- versions ---

static const char *const boards[] = {"a", "b"};

static void begin_run(struct aggregator_world *world)
{
    world_init(world);
    world->job.rounds = 4;
    world->job.down.mode = CN_UPDATE_AUTO;
    world->down_bps = 4000; // 3000 bytes in a tenth of the deadline; q8 takes 5300, q4 2700
    for (size_t i = 0; i < 2; i++)
        assert_int_equal(world_enroll(world, boards[i], boards[i], 0), CN_OK);
}

// Works until the run is over. The aggregator is killed whenever a store operation fails.
static void finish(struct aggregator_world *world, uint8_t digest[CN_DIGEST_SIZE])
{
    struct cn_round_info info = {0};
    for (int i = 0; i < 600 && info.state != CN_ROUND_ENDED; i++) {
        world_keep_alive(world);
        unsigned before = world->flaky.fail_at;
        bool fine = world_tick(world, 500) == CN_OK;
        for (size_t board = 0; board < 2; board++)
            world_take_part(world, boards[board], boards[board]);
        if (!fine || (before && world->flaky.operations >= before)) {
            cn_flaky_store_fail(&world->flaky, 0, false, CN_OK);
            world_stop(world);
            world_keep_alive(world);
        }
        world_get_round(world, "a", &info);
    }
    assert_int_equal(info.state, CN_ROUND_ENDED);
    memcpy(digest, info.version_digest, CN_DIGEST_SIZE);
}

// Makes a version of the run again, as replay does.
static cn_err make_again(struct aggregator_world *world, uint32_t number, struct cn_model *next)
{
    const struct cn_merge_config config = {
        .store = &world->flaky.store,
        .ledger = world->ledger,
        .layout = &world->layout,
        .job = &world->job,
        .graph = cn_model_store_graph_digest(world->models),
    };
    struct cn_model parent;
    assert_int_equal(
        cn_model_load(&world->flaky.store, world->ledger, &world->layout, 0, number - 1, &parent),
        CN_OK);
    cn_err err = cn_merge_round(&config, &parent, next);
    cn_model_deinit(&parent);
    return err;
}

static void versions_are_made_by_the_record(void **state)
{
    struct aggregator_world world;
    struct cn_downlink row;
    struct cn_ledger_version recorded;
    struct cn_model next;
    uint8_t digest[CN_DIGEST_SIZE];
    uint32_t since;
    (void)state;
    begin_run(&world);
    finish(&world, digest);
    for (uint32_t number = 1; number <= 4; number++) {
        assert_int_equal(cn_downlinks_find(world.ledger, number, &row), CN_OK);
        assert_int_equal(row.rule.mode, CN_UPDATE_Q4);
        assert_int_equal(row.link_bps, 4000);
    }
    assert_int_equal(cn_downlinks_newest(world.ledger, &row), CN_OK);
    assert_int_equal(row.version, 4);
    assert_int_equal(cn_downlinks_since(world.ledger, &since), CN_OK);
    assert_int_equal(since, 1);
    // What is recorded holds, not what would be chosen.
    assert_int_equal(make_again(&world, 4, &next), CN_OK);
    assert_int_equal(cn_ledger_find_version(world.ledger, 4, &recorded), CN_OK);
    assert_memory_equal(next.digest, recorded.digest, CN_DIGEST_SIZE);
    cn_model_deinit(&next);
    assert_int_equal(cn_ledger_sql_run(world.ledger, "UPDATE downlink SET mode=1 WHERE version=4"),
                     CN_OK);
    assert_int_equal(cn_downlinks_since(world.ledger, &since), CN_OK);
    assert_int_equal(since, 4);
    assert_int_equal(make_again(&world, 4, &next), CN_OK);
    assert_memory_not_equal(next.digest, recorded.digest, CN_DIGEST_SIZE);
    cn_model_deinit(&next);
    assert_int_equal(cn_ledger_sql_run(world.ledger, "DELETE FROM downlink WHERE version=4"),
                     CN_OK);
    assert_int_equal(make_again(&world, 4, &next), CN_EFORMAT);
    world_deinit(&world);
}

static void what_is_recorded_is_not_chosen_again(void **state)
{
    struct aggregator_world *world = *state;
    struct cn_downlink row;
    assert_int_equal(world_enroll(world, "b0", "g0", 0), CN_OK);
    open_next(world, 1);
    accept_from(world, 1, 0, 4000);
    assert_int_equal(cn_downlink_decide(world->ledger, &world->layout, &world->job, 1), CN_OK);
    assert_int_equal(cn_downlinks_find(world->ledger, 1, &row), CN_OK);
    assert_int_equal(row.rule.mode, CN_UPDATE_Q4);
    assert_int_equal(cn_ledger_sql_run(world->ledger, "UPDATE contribution SET down_bps=10"),
                     CN_OK);
    assert_int_equal(cn_downlink_decide(world->ledger, &world->layout, &world->job, 1), CN_OK);
    assert_int_equal(cn_downlinks_find(world->ledger, 1, &row), CN_OK);
    assert_int_equal(row.rule.mode, CN_UPDATE_Q4);
    open_next(world, 2);
    assert_int_equal(cn_downlink_decide(world->ledger, &world->layout, &world->job, 2), CN_OK);
    assert_int_equal(cn_downlinks_find(world->ledger, 2, &row), CN_OK);
    assert_int_equal(row.rule.mode, CN_UPDATE_TOPK);
}

static void a_kill_at_any_operation_changes_no_version(void **state)
{
    uint8_t undisturbed[CN_DIGEST_SIZE], digest[CN_DIGEST_SIZE];
    struct aggregator_world world;
    (void)state;
    begin_run(&world);
    finish(&world, undisturbed);
    unsigned operations = world.flaky.operations;
    world_deinit(&world);
    for (unsigned at = 1; at <= operations; at += 3) {
        begin_run(&world);
        assert_int_equal(world_start(&world), CN_OK);
        cn_flaky_store_fail(&world.flaky, at, true, CN_EIO);
        finish(&world, digest);
        assert_memory_equal(digest, undisturbed, CN_DIGEST_SIZE);
        world_deinit(&world);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_slower_link_gets_the_largest_encoding_that_fits),
        cmocka_unit_test(a_link_beyond_all_bounds_gets_the_largest_encoding),
        cmocka_unit_test(the_first_rule_is_q8_and_unknown_links_change_nothing),
        cmocka_unit_test(links_that_vary_do_not_change_the_rule),
        cmocka_unit_test(three_versions_with_room_go_one_step_up),
        cmocka_unit_test_setup_teardown(the_slowest_quarter_counts_with_its_newest_word, open_world,
                                        world_close),
        cmocka_unit_test(versions_are_made_by_the_record),
        cmocka_unit_test_setup_teardown(what_is_recorded_is_not_chosen_again, open_world,
                                        world_close),
        cmocka_unit_test(a_kill_at_any_operation_changes_no_version),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
