// Versions that the gate refuses or that a person goes back to: their weights, and that a kill
// changes no bit of them.
#include "aggregator/ledger/ancestry.h"
#include "aggregator/ledger/influence.h"
#include "tests/unit/rulings_world.h"

static void load(struct aggregator_world *world, uint32_t number, struct cn_model *model)
{
    assert_int_equal(cn_model_load(&world->flaky.store, world->ledger, &world->layout,
                                   cn_merge_state_rows(&world->job), number, model),
                     CN_OK);
}

static struct cn_merge_config merge_config(struct aggregator_world *world)
{
    return (struct cn_merge_config){
        .store = &world->flaky.store,
        .ledger = world->ledger,
        .layout = &world->layout,
        .job = &world->job,
        .graph = cn_model_store_graph_digest(world->models),
    };
}

static void assert_same_state(struct aggregator_world *world, const struct cn_model *a,
                              const struct cn_model *b)
{
    uint8_t one[CN_DIGEST_SIZE], other[CN_DIGEST_SIZE];
    cn_model_state_digest(a, &world->layout, one);
    cn_model_state_digest(b, &world->layout, other);
    assert_memory_equal(one, other, CN_DIGEST_SIZE);
}

static void a_refused_version_has_its_parents_weights_and_state(void **state)
{
    struct aggregator_world world;
    uint8_t digest[CN_DIGEST_SIZE];
    struct cn_model parent, refused, made;
    struct cn_ruling ruling;
    struct cn_ledger_version recorded, before;
    (void)state;
    begin(&world, 1);
    finish(&world, 0, digest);
    assert_int_equal(cn_ruling_find(world.ledger, 2, &ruling), CN_OK);
    assert_int_equal(ruling.kind, CN_RULING_REFUSED);
    assert_string_equal(ruling.reason, "its loss is 5, the best of the versions before it is 0.5 "
                                       "and gate.loss is 1");
    load(&world, 1, &parent);
    load(&world, 2, &refused);
    size_t size = world.layout.total * sizeof(float);
    assert_memory_equal(cn_model_weights(&parent), cn_model_weights(&refused), size);
    assert_memory_not_equal(parent.digest, refused.digest, CN_DIGEST_SIZE);
    assert_true(refused.delta_size > 0 && refused.delta_size <= 112);
    assert_same_state(&world, &parent, &refused);
    // Replay makes the same version, and boards apply the frame to what they have.
    const struct cn_merge_config config = merge_config(&world);
    assert_int_equal(cn_ruled_refuse(&config, &parent, &made), CN_OK);
    assert_memory_equal(made.digest, refused.digest, CN_DIGEST_SIZE);
    assert_memory_equal(made.delta_digest, refused.delta_digest, CN_DIGEST_SIZE);
    assert_int_equal(
        cn_update_apply(made.delta, made.delta_size, &world.layout, cn_model_weights(&parent)),
        CN_OK);
    assert_memory_equal(cn_model_weights(&parent), cn_model_weights(&refused), size);
    // Its measurement is that of the same weights. The next version counts.
    assert_int_equal(cn_ledger_find_version(world.ledger, 1, &before), CN_OK);
    assert_int_equal(cn_ledger_find_version(world.ledger, 2, &recorded), CN_OK);
    assert_true(recorded.central.count == before.central.count &&
                recorded.central.correct == before.central.correct);
    assert_int_equal(cn_ruling_find(world.ledger, 3, &ruling), CN_ENOTFOUND);
    cn_model_deinit(&made);
    cn_model_deinit(&refused);
    cn_model_deinit(&parent);
    world_deinit(&world);
}

static void assert_forget(struct aggregator_world *world, const char *group, uint32_t forget)
{
    struct cn_round_info info = {0};
    assert_true(world_get_round(world, group, &info));
    assert_int_equal(info.forget, forget);
}

static void what_groups_kept_of_a_refused_version_is_forgotten(void **state)
{
    struct aggregator_world world;
    struct cn_round_info info = {0};
    struct cn_ruling ruling;
    (void)state;
    begin(&world, 1);
    assert_int_equal(world_enroll(&world, "c", "c", 0), CN_OK); // never has a part in a version
    assert_int_equal(world_start(&world), CN_OK);
    for (int i = 0; i < 100 && info.version < 3; i++) {
        assert_forget(&world, "a", info.version < 2 ? 0 : 2);
        assert_int_equal(world_tick(&world, 500), CN_OK);
        for (size_t board = 0; board < 2; board++)
            world_take_part(&world, boards[board], boards[board]);
        world_get_round(&world, "a", &info);
    }
    assert_int_equal(cn_ruling_find(world.ledger, 2, &ruling), CN_OK);
    assert_int_equal(cn_ruling_find(world.ledger, 3, &ruling), CN_ENOTFOUND);
    assert_forget(&world, "a", 2);
    assert_forget(&world, "b", 2);
    assert_forget(&world, "c", 0);
    world_stop(&world);
    assert_int_equal(world_start(&world), CN_OK);
    assert_forget(&world, "b", 2);
    assert_forget(&world, "c", 0);
    assert_int_equal(cn_rulings_ask_rollback(world.ledger, 1, "a test"), CN_OK);
    for (int i = 0; i < 3; i++)
        assert_int_equal(world_tick(&world, 600), CN_OK);
    assert_forget(&world, "b", 4);
    assert_forget(&world, "c", 4);
    world_deinit(&world);
}

// A run with a refusal and a rollback; fails at operation number, if not 0.
static bool run_once(unsigned number, uint8_t digest[CN_DIGEST_SIZE])
{
    struct aggregator_world world;
    begin(&world, 1);
    cn_flaky_store_fail(&world.flaky, number, false, CN_EIO);
    world_keep_alive(&world);
    finish(&world, 2, digest);
    bool reached = world.flaky.operations >= number;
    struct cn_ruling ruling;
    assert_int_equal(cn_ruling_find(world.ledger, 2, &ruling), CN_OK);
    assert_int_equal(cn_ruling_find(world.ledger, 3, &ruling), CN_OK);
    assert_int_equal(ruling.kind, CN_RULING_ROLLBACK);
    assert_int_equal(cn_rulings_waiting_rollback(world.ledger, &ruling), CN_ENOTFOUND);
    world_deinit(&world);
    return reached;
}

static void kills_change_no_bit_of_a_run_with_rulings(void **state)
{
    uint8_t expected[CN_DIGEST_SIZE], digest[CN_DIGEST_SIZE];
    unsigned number = 1;
    (void)state;
    run_once(0, expected);
    for (bool reached = true; reached; number++) {
        assert_true(number < 10000);
        reached = run_once(number, digest);
        assert_memory_equal(digest, expected, CN_DIGEST_SIZE);
    }
    assert_true(number > 20);
}

static void a_rollback_ends_the_open_round(void **state)
{
    struct aggregator_world world;
    struct cn_round_info info = {0};
    struct cn_model first, made, stored;
    struct cn_ledger_round round;
    struct cn_ruling ruling;
    (void)state;
    begin(&world, 0);
    assert_int_equal(world_start(&world), CN_OK);
    for (int i = 0; i < 100 && info.round < 3; i++) {
        assert_int_equal(world_tick(&world, 500), CN_OK);
        for (size_t board = 0; board < 2; board++)
            world_take_part(&world, boards[board], boards[board]);
        world_get_round(&world, "a", &info);
    }
    for (int i = 0; info.state != CN_ROUND_OPEN; i++) {
        assert_true(i < 100);
        assert_int_equal(world_tick(&world, 500), CN_OK);
        world_get_round(&world, "a", &info);
    }
    assert_int_equal(info.round, 3);
    assert_true(world_take_part(&world, "a", "a"));
    assert_int_equal(cn_rulings_ask_rollback(world.ledger, 1, "it was better"), CN_OK);
    assert_int_equal(cn_rulings_ask_rollback(world.ledger, 0, "no"), CN_EEXIST);
    assert_int_equal(world_tick(&world, 500), CN_OK);
    assert_true(world_get_round(&world, "a", &info));
    assert_int_equal(info.version, 3);
    assert_int_equal(info.delta_size, 0);
    assert_int_equal(info.forget, 3); // also after a restart
    world_stop(&world);
    assert_int_equal(world_start(&world), CN_OK);
    assert_true(world_get_round(&world, "a", &info));
    assert_int_equal(info.forget, 3);
    assert_int_equal(info.round, 4);
    assert_true(info.decided_round == 3 && info.decided_accepted); // its group need not repeat it
    assert_int_equal(cn_ledger_newest_round(world.ledger, &round), CN_OK);
    assert_true(round.number == 3 && round.state == CN_LEDGER_MERGED);
    load(&world, 1, &first);
    load(&world, 3, &stored);
    assert_memory_equal(cn_model_weights(&first), cn_model_weights(&stored),
                        world.layout.total * sizeof(float));
    for (size_t i = 0; i < world.layout.total; i++)
        assert_true(stored.residual[i] == 0 && stored.state[i] == 0);
    const struct cn_merge_config config = merge_config(&world);
    struct cn_model parent;
    load(&world, 2, &parent);
    assert_int_equal(cn_ruled_roll_back(&config, &parent, cn_model_weights(&first), &made), CN_OK);
    assert_memory_equal(made.digest, stored.digest, CN_DIGEST_SIZE);
    assert_same_state(&world, &made, &stored);
    assert_int_equal(cn_ruling_find(world.ledger, 3, &ruling), CN_OK);
    assert_string_equal(ruling.reason, "it was better");
    cn_model_deinit(&parent);
    cn_model_deinit(&made);
    cn_model_deinit(&stored);
    cn_model_deinit(&first);
    world_deinit(&world);
}

static void a_rollback_to_what_is_gone_is_given_up(void **state)
{
    struct aggregator_world world;
    uint8_t digest[CN_DIGEST_SIZE];
    struct cn_ruling ruling;
    (void)state;
    begin(&world, 0);
    assert_int_equal(world_start(&world), CN_OK);
    assert_int_equal(cn_rulings_ask_rollback(world.ledger, 77, "lost"), CN_OK);
    finish(&world, 0, digest);
    assert_int_equal(cn_rulings_waiting_rollback(world.ledger, &ruling), CN_ENOTFOUND);
    assert_int_equal(cn_ruling_newest(world.ledger, CN_RULING_ROLLBACK, &ruling), CN_ENOTFOUND);
    world_deinit(&world);
}

// Of the round's row, or -1 when there is none.
static int64_t read_round(struct aggregator_world *world, const char *column)
{
    char sql[96];
    sqlite3_stmt *statement;
    snprintf(sql, sizeof(sql), "SELECT %s FROM round ORDER BY number DESC LIMIT 1", column);
    assert_int_equal(cn_ledger_sql_prepare(world->ledger, &statement, sql, ""), CN_OK);
    int64_t value = cn_ledger_sql_step(world->ledger, statement) == CN_OK
                        ? sqlite3_column_int64(statement, 0)
                        : -1;
    sqlite3_finalize(statement);
    return value;
}

// A reload in the meantime writes for the round after: the settings of an open round are final.
static void a_rollback_opens_the_round_that_it_ends(void **state)
{
    struct aggregator_world world;
    struct cn_round_info info = {0};
    struct cn_ruling ruling;
    (void)state;
    begin(&world, 0);
    world.measured = false;
    assert_int_equal(world_start(&world), CN_OK);
    assert_int_equal(cn_rulings_ask_rollback(world.ledger, 0, "a test"), CN_OK);
    world.flaky.operations = 0;
    cn_flaky_store_fail(&world.flaky, 4, true, CN_ENOSPC); // it can be read, but not stored
    for (int i = 0; i < 2; i++) {
        assert_int_equal(world_tick(&world, 600), CN_ENOSPC);
        assert_int_equal(read_round(&world, "number"), 1);
        assert_int_equal(read_round(&world, "state"), CN_LEDGER_OPEN);
        assert_int_equal(cn_rulings_waiting_rollback(world.ledger, &ruling), CN_OK);
        world.flaky.operations = 0;
    }
    world_stop(&world); // what a kill at this point leaves
    cn_flaky_store_fail(&world.flaky, 0, false, CN_OK);
    assert_int_equal(world_start(&world), CN_OK);
    assert_int_equal(world_tick(&world, 600), CN_OK);
    assert_int_equal(read_round(&world, "number"), 1);
    assert_int_equal(read_round(&world, "state"), CN_LEDGER_MERGED);
    assert_true(read_round(&world, "opened_ms") > 0 && read_round(&world, "closed_ms") > 0);
    assert_true(world_get_round(&world, "a", &info));
    assert_int_equal(info.version, 1);
    world_deinit(&world);
}

static void a_kill_before_the_rollback_of_the_last_version_is_recovered(void **state)
{
    struct aggregator_world world;
    struct cn_ruling ruling;
    uint8_t digest[CN_DIGEST_SIZE];
    (void)state;
    begin(&world, 0);
    world.measured = false;
    world.job.rounds = 1;
    finish(&world, 0, digest);
    assert_int_equal(cn_rulings_ask_rollback(world.ledger, 0, "a test"), CN_OK);
    assert_int_equal(cn_ledger_open_round(world.ledger, 2), CN_OK); // what the kill left
    world_stop(&world);
    assert_int_equal(world_start(&world), CN_OK);
    assert_int_equal(world_tick(&world, 600), CN_OK);
    assert_int_equal(cn_ruling_find(world.ledger, 2, &ruling), CN_OK);
    assert_int_equal(read_round(&world, "state"), CN_LEDGER_MERGED);
    world_deinit(&world);
}

static void a_rollback_that_cannot_be_read_is_given_up(void **state)
{
    static const struct {
        cn_err err;
        int ticks;
    } cases[] = {{CN_ERANGE, 1}, {CN_EFORMAT, 1}, {CN_EIO, 3}};
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct aggregator_world world;
        struct cn_ruling ruling;
        begin(&world, 0);
        world.measured = false;
        assert_int_equal(world_start(&world), CN_OK);
        assert_int_equal(cn_rulings_ask_rollback(world.ledger, 0, "a test"), CN_OK);
        world.flaky.operations = 0;
        cn_flaky_store_fail(&world.flaky, 1, true, cases[i].err);
        for (int tick = 1; tick < cases[i].ticks; tick++) {
            assert_int_equal(world_tick(&world, 600), cases[i].err);
            assert_int_equal(cn_rulings_waiting_rollback(world.ledger, &ruling), CN_OK);
        }
        assert_int_equal(world_tick(&world, 600), CN_OK);
        assert_int_equal(cn_rulings_waiting_rollback(world.ledger, &ruling), CN_ENOTFOUND);
        assert_int_equal(read_round(&world, "number"), -1);
        world_deinit(&world);
    }
}

static void a_rollback_waits_for_memory(void **state)
{
    struct aggregator_world world;
    struct cn_ruling ruling;
    (void)state;
    begin(&world, 0);
    world.measured = false;
    assert_int_equal(world_start(&world), CN_OK);
    assert_int_equal(cn_rulings_ask_rollback(world.ledger, 0, "a test"), CN_OK);
    world.flaky.operations = 0;
    cn_flaky_store_fail(&world.flaky, 1, false, CN_ENOMEM);
    assert_int_equal(world_tick(&world, 600), CN_EAGAIN);
    assert_int_equal(cn_rulings_waiting_rollback(world.ledger, &ruling), CN_OK);
    assert_int_equal(world_tick(&world, 600), CN_OK);
    assert_int_equal(cn_ruling_find(world.ledger, 1, &ruling), CN_OK);
    world_deinit(&world);
}

static void add_rollback(struct aggregator_world *world, uint32_t version, uint32_t source)
{
    char sql[160];
    snprintf(sql, sizeof(sql),
             "INSERT INTO ruling(version,kind,source,loss,accuracy,reason) VALUES(%u,2,%u,0,0,'x')",
             version, source);
    assert_int_equal(cn_ledger_sql_run(world->ledger, sql), CN_OK);
}

static void assert_gap(struct aggregator_world *world, uint32_t number, uint32_t source,
                       uint32_t version)
{
    struct cn_ancestry_gap gap;
    assert_int_equal(cn_ancestry_find_gap(world->ledger, number, &gap), CN_OK);
    assert_int_equal(gap.source, source);
    assert_int_equal(gap.version, version);
}

static void a_rollback_that_was_given_up_gives_nothing_up(void **state)
{
    struct aggregator_world world;
    struct cn_ancestry_gap gap;
    (void)state;
    begin(&world, 0);
    assert_int_equal(world_start(&world), CN_OK);
    assert_int_equal(cn_ancestry_find_gap(world.ledger, 0, &gap), CN_ENOTFOUND);
    add_rollback(&world, 6, 3);
    assert_gap(&world, 0, 3, 6);
    add_rollback(&world, 8, 5); // takes back that 4 and 5 were given up
    assert_gap(&world, 0, 5, 8);
    add_rollback(&world, 12, 9);
    assert_gap(&world, 0, 5, 8);
    assert_gap(&world, 7, 5, 8);
    assert_gap(&world, 8, 9, 12);
    assert_int_equal(cn_ancestry_find_gap(world.ledger, 12, &gap), CN_ENOTFOUND);
    add_rollback(&world, 20, 2);
    assert_gap(&world, 0, 2, 20);
    assert_int_equal(cn_ledger_sql_run(world.ledger, "UPDATE ruling SET source=30 WHERE kind=2"),
                     CN_OK);
    assert_int_equal(cn_ancestry_find_gap(world.ledger, 0, &gap), CN_EFORMAT);
    world_deinit(&world);
}

static void a_rollback_comes_before_the_end(void **state)
{
    struct aggregator_world world;
    struct cn_ruling ruling;
    struct cn_ledger_version newest;
    uint8_t digest[CN_DIGEST_SIZE];
    (void)state;
    begin(&world, 0);
    finish(&world, 4, digest); // asked for while the last version is measured
    assert_int_equal(cn_rulings_waiting_rollback(world.ledger, &ruling), CN_ENOTFOUND);
    assert_int_equal(cn_ruling_find(world.ledger, 5, &ruling), CN_OK);
    assert_int_equal(ruling.kind, CN_RULING_ROLLBACK);
    assert_int_equal(cn_ledger_newest_version(world.ledger, &newest), CN_OK);
    assert_int_equal(newest.number, 5);
    world_deinit(&world);
}

static void a_group_has_a_part_in_what_was_made_of_its_updates(void **state)
{
    struct aggregator_world world;
    uint8_t digest[CN_DIGEST_SIZE];
    struct cn_influence influence;
    (void)state;
    begin(&world, 1);
    finish(&world, 3, digest); // version 2 is refused, 4 has the weights of 0
    assert_int_equal(cn_influence_load(world.ledger, "a", 0, &influence), CN_OK);
    assert_int_equal(influence.count, 5);
    assert_int_equal(influence.first, 1);
    for (uint32_t version = 0; version < 5; version++)
        assert_int_equal(influence.touched[version], version >= 1 && version <= 3);
    cn_influence_deinit(&influence);
    assert_int_equal(cn_influence_load(world.ledger, "a", 2, &influence), CN_OK);
    assert_int_equal(influence.first, 3); // what it sent for version 2 was refused
    cn_influence_deinit(&influence);
    assert_int_equal(cn_influence_load(world.ledger, "c", 0, &influence), CN_OK);
    assert_int_equal(influence.first, 0);
    cn_influence_deinit(&influence);
    world_deinit(&world);
}

static void a_round_can_be_merged_without_a_group(void **state)
{
    struct aggregator_world world;
    uint8_t digest[CN_DIGEST_SIZE];
    struct cn_model parent, all, without;
    (void)state;
    begin(&world, 0);
    finish(&world, 0, digest);
    struct cn_merge_config config = merge_config(&world);
    load(&world, 0, &parent);
    assert_int_equal(cn_merge_round(&config, &parent, &all), CN_OK);
    config.without = "c";
    assert_int_equal(cn_merge_round(&config, &parent, &without), CN_OK);
    assert_memory_equal(all.digest, without.digest, CN_DIGEST_SIZE);
    cn_model_deinit(&without);
    config.without = "a";
    assert_int_equal(cn_merge_round(&config, &parent, &without), CN_OK);
    assert_memory_not_equal(all.digest, without.digest, CN_DIGEST_SIZE);
    cn_model_deinit(&without);
    assert_int_equal(cn_ledger_sql_run(world.ledger, "DELETE FROM contribution WHERE grp='b'"),
                     CN_OK);
    assert_int_equal(cn_merge_round(&config, &parent, &without), CN_ERANGE);
    cn_model_deinit(&all);
    cn_model_deinit(&parent);
    world_deinit(&world);
}

static void a_ledger_of_schema_3_is_brought_up(void **state)
{
    struct aggregator_world world;
    struct cn_ruling ruling;
    uint32_t streak;
    uint8_t digest[CN_DIGEST_SIZE];
    (void)state;
    begin(&world, 0);
    finish(&world, 0, digest);
    assert_int_equal(cn_ledger_sql_run(world.ledger, "DROP INDEX contribution_version;"
                                                     "ALTER TABLE contribution DROP COLUMN version;"
                                                     "DROP TABLE training; DROP TABLE ruling;"
                                                     "DROP TABLE rollback;"
                                                     "PRAGMA user_version=3"),
                     CN_OK);
    world_stop(&world);
    assert_int_equal(world_start(&world), CN_OK);
    assert_int_equal(cn_ruling_find(world.ledger, 2, &ruling), CN_ENOTFOUND);
    assert_int_equal(cn_ruling_streak(world.ledger, &streak), CN_OK);
    assert_int_equal(streak, 0);
    world_deinit(&world);
}

static void a_reason_is_one_printable_line(void **state)
{
    char longest[CN_RULING_TEXT + 1];
    (void)state;
    memset(longest, 'x', sizeof(longest));
    longest[CN_RULING_TEXT - 1] = '\0';
    assert_true(cn_ruling_reason_valid("it got worse, Zoë said"));
    assert_true(cn_ruling_reason_valid(longest));
    longest[CN_RULING_TEXT - 1] = 'x';
    longest[CN_RULING_TEXT] = '\0';
    assert_false(cn_ruling_reason_valid(longest));
    assert_false(cn_ruling_reason_valid(""));
    assert_false(cn_ruling_reason_valid("two\nlines"));
    assert_false(cn_ruling_reason_valid("\033[31m"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_refused_version_has_its_parents_weights_and_state),
        cmocka_unit_test(what_groups_kept_of_a_refused_version_is_forgotten),
        cmocka_unit_test(kills_change_no_bit_of_a_run_with_rulings),
        cmocka_unit_test(a_rollback_ends_the_open_round),
        cmocka_unit_test(a_rollback_to_what_is_gone_is_given_up),
        cmocka_unit_test(a_rollback_opens_the_round_that_it_ends),
        cmocka_unit_test(a_kill_before_the_rollback_of_the_last_version_is_recovered),
        cmocka_unit_test(a_rollback_that_cannot_be_read_is_given_up),
        cmocka_unit_test(a_rollback_waits_for_memory),
        cmocka_unit_test(a_rollback_that_was_given_up_gives_nothing_up),
        cmocka_unit_test(a_rollback_comes_before_the_end),
        cmocka_unit_test(a_group_has_a_part_in_what_was_made_of_its_updates),
        cmocka_unit_test(a_round_can_be_merged_without_a_group),
        cmocka_unit_test(a_ledger_of_schema_3_is_brought_up),
        cmocka_unit_test(a_reason_is_one_printable_line),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
