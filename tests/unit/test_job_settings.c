// The values of the job that hold in each round, and those that a profile may change.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "aggregator/ledger/job_reload.h"
#include "aggregator/ledger/job_settings.h"
#include "aggregator/ledger/ledger_sql.h"
#include "aggregator/run/live_job.h"
#include "runtime/profile/job_text.h"
#include "runtime/profile/schema.h"
#include "tests/unit/aggregator_world.h"

static const uint8_t graph[CN_DIGEST_SIZE] = {1};

static int open_world(void **state)
{
    struct aggregator_world *world = malloc(sizeof(*world));
    world_init(world);
    assert_int_equal(cn_ledger_open(world->directory, &world->ledger), CN_OK);
    *state = world;
    return 0;
}

// A profile's settings with these lines of job_text.h.
static struct cn_settings *job_of(const char *lines)
{
    struct cn_settings *settings = calloc(1, sizeof(*settings));
    struct cn_diag diag;
    char text[400];
    cn_diag_init(&diag);
    snprintf(text, sizeof(text), "name: job\ndata.set: digits\n%s", lines);
    if (cn_job_text_read(text, strlen(text), &diag, settings))
        fail_msg("%s", cn_diag_first(&diag));
    return settings;
}

static cn_err bind_job(struct aggregator_world *world, const char *lines,
                       struct cn_job_conflict *conflict)
{
    struct cn_settings *settings = job_of(lines);
    cn_err err = cn_job_settings_bind(world->ledger, graph, settings, conflict);
    free(settings);
    return err;
}

// The rounds of a job that holds in a round.
static uint32_t rounds_in(struct aggregator_world *world, uint32_t round)
{
    struct cn_job job, profile = {0};
    assert_int_equal(cn_job_settings_load(world->ledger, round, &profile, &job), CN_OK);
    return job.rounds;
}

static int64_t setting_count(struct aggregator_world *world)
{
    sqlite3_stmt *statement;
    assert_int_equal(
        cn_ledger_sql_prepare(world->ledger, &statement, "SELECT count(*) FROM setting", ""),
        CN_OK);
    assert_int_equal(cn_ledger_sql_step(world->ledger, statement), CN_OK);
    int64_t count = sqlite3_column_int64(statement, 0);
    sqlite3_finalize(statement);
    return count;
}

// Gives the row's value another one, whatever it is.
static void change(const struct cn_schema_row *row, struct cn_settings *settings)
{
    char *value = (char *)settings + row->offset;
    switch (row->type) {
    case CN_VALUE_NAME:
    case CN_VALUE_WORDS:
    case CN_VALUE_RULE:
    case CN_VALUE_SETS:
    case CN_VALUE_PHASES:
        strcpy(value, strcmp(value, "x") == 0 ? "y" : "x");
        break;
    case CN_VALUE_BOOL:
        *(bool *)value = !*(bool *)value;
        break;
    case CN_VALUE_NUMBER:
    case CN_VALUE_SHARE:
        *(double *)(void *)value += 0.125;
        break;
    case CN_VALUE_COUNT:
    case CN_VALUE_CHOICE:
        *(uint32_t *)(void *)value += 2;
        break;
    default:
        *(uint64_t *)(void *)value += 2;
    }
}

static void the_digest_is_over_the_values_that_must_not_change(void **state)
{
    uint8_t before[CN_DIGEST_SIZE], after[CN_DIGEST_SIZE];
    (void)state;
    for (size_t i = 0; i < cn_schema_count; i++) {
        const struct cn_schema_row *row = &cn_schema[i];
        if (strncmp(row->path, "job.", 4) != 0 || strcmp(row->path, "job.model") == 0)
            continue;
        struct cn_settings *settings = job_of("");
        // The values below rounds.async mean something then only.
        settings->job.async.mode = strstr(row->path, ".async.") ? CN_ROUNDS_ASYNCHRONOUS : 0;
        cn_job_settings_digest(&settings->job, before);
        change(row, settings);
        cn_job_settings_digest(&settings->job, after);
        bool same = memcmp(before, after, CN_DIGEST_SIZE) == 0;
        enum cn_change class = cn_job_change_of(row->path + 4);
        if (same != (class == CN_CHANGE_START || class == CN_CHANGE_RESTART))
            fail_msg("%s: the digest %s, job_changes.c says otherwise", row->path,
                     same ? "stays" : "changes");
        free(settings);
    }
}

static void a_profile_with_the_same_values_goes_on(void **state)
{
    struct cn_job_conflict conflict;
    for (int i = 0; i < 3; i++)
        assert_int_equal(bind_job(*state, "rounds.count: 4\n", &conflict), CN_OK);
    assert_int_equal(setting_count(*state), 1);
    assert_int_equal(rounds_in(*state, 1), 4);
}

static void values_that_must_not_change_are_named_and_nothing_is_written(void **state)
{
    struct aggregator_world *world = *state;
    struct cn_job_conflict conflict;
    struct cn_settings *other = job_of("");
    const uint8_t other_graph[CN_DIGEST_SIZE] = {2};
    assert_int_equal(bind_job(world, "", &conflict), CN_OK);
    assert_int_equal(
        bind_job(world, "train.learning_rate: 0.04\nrounds.count: 9\nseed: 2\n", &conflict),
        CN_ECONFLICT);
    assert_true(conflict.values && !conflict.model && !conflict.unrecorded);
    assert_int_equal(conflict.lines.count, 2);
    assert_string_equal(conflict.lines.lines[0], "seed: 1 in the run, 2 in the profile");
    assert_int_equal(cn_job_settings_bind(world->ledger, other_graph, other, &conflict),
                     CN_ECONFLICT);
    assert_true(conflict.model && !conflict.values);
    assert_int_equal(rounds_in(world, 5), 30);
    assert_int_equal(setting_count(world), 1);
    free(other);
}

static void a_value_that_may_change_holds_from_the_round_that_is_not_closed(void **state)
{
    struct aggregator_world *world = *state;
    struct cn_job_conflict conflict;
    assert_int_equal(bind_job(world, "rounds.count: 3\n", &conflict), CN_OK);
    assert_int_equal(bind_job(world, "rounds.count: 4\n", &conflict), CN_OK);
    assert_int_equal(setting_count(world), 1); // no version was made with the first
    assert_int_equal(cn_ledger_open_round(world->ledger, 1), CN_OK);
    assert_int_equal(cn_ledger_close_round(world->ledger, 1), CN_OK);
    assert_int_equal(bind_job(world, "rounds.count: 5\n", &conflict), CN_OK);
    assert_int_equal(cn_ledger_open_round(world->ledger, 2), CN_OK);
    assert_int_equal(bind_job(world, "rounds.count: 6\n", &conflict), CN_OK);
    assert_int_equal(setting_count(world), 2);
    assert_int_equal(rounds_in(world, 1), 4);
    assert_int_equal(rounds_in(world, 2), 6);
    assert_int_equal(rounds_in(world, 1000), 6);
}

// What a program before schema 3 left: one digest for the whole run.
static void make_older(struct aggregator_world *world)
{
    static const char sql[] = "ALTER TABLE meta ADD COLUMN job BLOB;"
                              "UPDATE meta SET job=(SELECT digest FROM setting);"
                              "DROP INDEX contribution_version;"
                              "ALTER TABLE contribution DROP COLUMN version;"
                              "DROP TABLE training;"
                              "DROP TABLE setting; DROP TABLE ruling; DROP TABLE rollback;"
                              "PRAGMA user_version=2";
    assert_int_equal(cn_ledger_sql_run(world->ledger, sql), CN_OK);
    cn_ledger_close(world->ledger);
    assert_int_equal(cn_ledger_open(world->directory, &world->ledger), CN_OK);
}

static void the_values_of_an_older_ledger_are_unknown_until_a_profile_has_their_digest(void **state)
{
    struct aggregator_world *world = *state;
    struct cn_job_conflict conflict;
    struct cn_job job;
    struct cn_settings *same = job_of("rounds.count: 8\n"), *other = job_of("train.batch: 64\n");
    assert_int_equal(bind_job(world, "", &conflict), CN_OK);
    make_older(world);
    assert_int_equal(setting_count(world), 1);
    assert_int_equal(cn_job_settings_load(world->ledger, 3, &same->job, &job), CN_OK);
    assert_int_equal(job.rounds, 8);
    assert_int_equal(cn_job_settings_load(world->ledger, 3, &other->job, &job), CN_ECONFLICT);
    assert_int_equal(bind_job(world, "train.batch: 64\n", &conflict), CN_ECONFLICT);
    assert_true(conflict.values && conflict.unrecorded);
    assert_int_equal(conflict.lines.count, 0);
    assert_int_equal(bind_job(world, "rounds.count: 8\n", &conflict), CN_OK);
    assert_int_equal(bind_job(world, "train.batch: 64\n", &conflict), CN_ECONFLICT);
    assert_false(conflict.unrecorded);
    assert_string_equal(conflict.lines.lines[0], "train.batch: 32 in the run, 64 in the profile");
    assert_int_equal(rounds_in(world, 1), 8);
    free(same);
    free(other);
}

static void a_ledger_that_was_never_run_stays_free_when_it_is_brought_up(void **state)
{
    struct cn_job_conflict conflict;
    make_older(*state);
    assert_int_equal(setting_count(*state), 0);
    assert_int_equal(bind_job(*state, "", &conflict), CN_OK);
}

static void a_setting_that_does_not_have_its_digest_is_damaged(void **state)
{
    struct aggregator_world *world = *state;
    struct cn_job_conflict conflict;
    struct cn_job job, profile = {0};
    assert_int_equal(bind_job(world, "", &conflict), CN_OK);
    assert_int_equal(cn_ledger_sql_run(world->ledger, "UPDATE setting SET job=replace(job,"
                                                      "'train.batch: 32','train.batch: 33')"),
                     CN_OK);
    assert_int_equal(cn_job_settings_load(world->ledger, 1, &profile, &job), CN_EFORMAT);
    assert_int_equal(bind_job(world, "", &conflict), CN_EFORMAT);
}

static uint32_t buffer_in(struct aggregator_world *world, uint32_t round)
{
    struct cn_job job, profile = {0};
    assert_int_equal(cn_job_settings_load(world->ledger, round, &profile, &job), CN_OK);
    return cn_job_updates_needed(&job);
}

// Its buffer was three quarters of the quorum. The rounds that it trained keep that.
static void an_asynchronous_run_of_an_earlier_program_goes_on(void **state)
{
    struct aggregator_world *world = *state;
    struct cn_job_conflict conflict;
    struct cn_job job, profile = {0};
    const char *by_quorum = "rounds.quorum: 10\nrounds.mode: asynchronous\n";
    const char *rounds = "rounds.quorum: 10\nrounds.mode: asynchronous\nrounds.async.buffer: 8\n";
    assert_int_equal(bind_job(world, rounds, &conflict), CN_OK);
    assert_int_equal(cn_ledger_sql_run(world->ledger,
                                       "UPDATE setting SET job=replace(job,'async.buffer: 8',"
                                       "'async.buffer: by quorum')"),
                     CN_OK);
    assert_int_equal(buffer_in(world, 1), 8);
    assert_int_equal(cn_ledger_open_round(world->ledger, 1), CN_OK);
    assert_int_equal(cn_ledger_close_round(world->ledger, 1), CN_OK);
    assert_int_equal(bind_job(world, by_quorum, &conflict), CN_OK);
    assert_int_equal(setting_count(world), 2);
    assert_int_equal(buffer_in(world, 1), 8);
    assert_int_equal(buffer_in(world, 2), 7);
    assert_int_equal(bind_job(world, by_quorum, &conflict), CN_OK);
    assert_int_equal(setting_count(world), 2);
    assert_int_equal(cn_ledger_sql_run(world->ledger, "UPDATE setting SET job=replace(job,"
                                                      "'quorum: 10','quorum: 11')"),
                     CN_OK);
    assert_int_equal(cn_job_settings_load(world->ledger, 1, &profile, &job), CN_EFORMAT);
}

// --- reload ---

static cn_err reload_job(struct aggregator_world *world, const char *lines,
                         struct cn_job_reload *reload)
{
    struct cn_settings *settings = job_of(lines);
    cn_err err = cn_job_reload(world->ledger, settings, reload);
    free(settings);
    return err;
}

static struct cn_job job_in(struct aggregator_world *world, uint32_t round)
{
    struct cn_job job, profile = {0};
    assert_int_equal(cn_job_settings_load(world->ledger, round, &profile, &job), CN_OK);
    return job;
}

static void begin_round(struct aggregator_world *world, uint32_t number)
{
    struct cn_job_conflict conflict;
    assert_int_equal(bind_job(world, "", &conflict), CN_OK);
    assert_int_equal(cn_ledger_open_round(world->ledger, number), CN_OK);
}

static void a_reload_holds_from_the_next_round_on(void **state)
{
    static struct cn_job_reload reload;
    begin_round(*state, 4);
    assert_int_equal(reload_job(*state, "train.batch: 64\nrounds.count: 9\n", &reload), CN_OK);
    assert_int_equal(reload.from_round, 5);
    assert_int_equal(reload.open_round, 0);
    assert_int_equal(reload.changed.count, 2);
    assert_string_equal(reload.changed.lines[0], "train.batch: 32, now 64");
    assert_int_equal(job_in(*state, 4).batch, 32);
    assert_int_equal(job_in(*state, 4).rounds, 30);
    assert_int_equal(job_in(*state, 5).batch, 64);
    assert_int_equal(job_in(*state, 5).rounds, 9);
    assert_int_equal(setting_count(*state), 2);
    // Once more before round 5 opens: the earlier values were never used.
    assert_int_equal(reload_job(*state, "train.batch: 16\n", &reload), CN_OK);
    assert_int_equal(setting_count(*state), 2);
    assert_int_equal(job_in(*state, 5).batch, 16);
    assert_int_equal(reload_job(*state, "train.batch: 16\n", &reload), CN_OK);
    assert_int_equal(reload.from_round, 0);
}

static void what_ends_the_open_round_changes_at_once(void **state)
{
    static struct cn_job_reload reload;
    begin_round(*state, 2);
    assert_int_equal(reload_job(*state, "rounds.quorum: 5\ntrain.batch: 64\n", &reload), CN_OK);
    assert_int_equal(reload.from_round, 3);
    assert_int_equal(reload.open_round, 2);
    assert_int_equal(job_in(*state, 1).quorum, 1);
    assert_int_equal(job_in(*state, 2).quorum, 5);
    assert_int_equal(job_in(*state, 2).batch, 32); // the version of round 2 does not depend on it
    assert_int_equal(job_in(*state, 3).batch, 64);
    assert_int_equal(job_in(*state, 3).quorum, 5);
}

#define CHAIN(parts) "data.scope: shared\nparallel.pipeline: " parts "\n"

// Begins round 3 by a reload whose pipeline no board can form.
static void begin_bad_round(struct aggregator_world *world)
{
    static struct cn_job_reload reload;
    begin_round(world, 2);
    assert_int_equal(reload_job(world, "train.batch: 64\n" CHAIN("3"), &reload), CN_OK);
    assert_int_equal(reload.from_round, 3);
    assert_int_equal(reload.open_round, 0); // with the batch of round 2 it might not be possible
    assert_true(job_in(world, 2).pipeline.parts <= 1);
    assert_int_equal(cn_ledger_close_round(world->ledger, 2), CN_OK);
    assert_int_equal(cn_ledger_open_round(world->ledger, 3), CN_OK);
    assert_int_equal(job_in(world, 3).pipeline.parts, 3);
}

static void another_layout_holds_at_once_in_a_round_without_updates(void **state)
{
    static struct cn_job_reload reload;
    struct aggregator_world *world = *state;
    begin_bad_round(world);
    assert_int_equal(reload_job(world, "train.batch: 64\n" CHAIN("2"), &reload), CN_OK);
    assert_int_equal(reload.from_round, 4);
    assert_int_equal(reload.open_round, 3);
    assert_string_equal(reload.at_once.lines[0], "parallel.pipeline: 3, now 2");
    assert_true(job_in(world, 2).pipeline.parts <= 1);
    assert_int_equal(job_in(world, 3).pipeline.parts, 2);
    assert_int_equal(job_in(world, 3).batch, 64);
    assert_int_equal(job_in(world, 4).pipeline.parts, 2);
}

static void a_layout_that_waits_for_the_next_round_is_taken_by_a_second_reload(void **state)
{
    static struct cn_job_reload reload;
    struct aggregator_world *world = *state;
    struct cn_ledger_setting bad;
    begin_bad_round(world);
    assert_int_equal(cn_ledger_find_setting(world->ledger, 3, &bad), CN_OK);
    assert_int_equal(reload_job(world, "train.batch: 16\n" CHAIN("2"), &reload), CN_OK);
    assert_int_equal(reload.open_round, 0);
    assert_int_equal(reload_job(world, "train.batch: 64\n" CHAIN("2"), &reload), CN_OK);
    assert_int_equal(reload.open_round, 3);
    assert_int_equal(reload.changed.count, 2); // what the open round takes now is told, too
    assert_string_equal(reload.changed.lines[1], "parallel.pipeline: 3, now 2");
    assert_int_equal(job_in(world, 3).pipeline.parts, 2);
    assert_int_equal(reload_job(world, "train.batch: 64\n" CHAIN("2"), &reload), CN_OK);
    assert_int_equal(reload.from_round, 0);
    assert_int_equal(reload.changed.count, 0);
    // An older program left the open round as it was, and wrote only the values of the next one.
    assert_int_equal(cn_ledger_put_setting(world->ledger, &bad), CN_OK);
    cn_ledger_setting_deinit(&bad);
    assert_int_equal(reload_job(world, "train.batch: 64\n" CHAIN("2"), &reload), CN_OK);
    assert_int_equal(reload.from_round, 0);
    assert_int_equal(reload.open_round, 3);
    assert_string_equal(reload.changed.lines[0], "parallel.pipeline: 3, now 2");
    assert_int_equal(job_in(world, 3).pipeline.parts, 2);
}

static void a_round_with_an_update_keeps_its_layout(void **state)
{
    static struct cn_job_reload reload;
    struct aggregator_world *world = *state;
    struct cn_ledger_contribution made = {
        .round = 3, .size = 10, .weight = 3, .group = "g", .board = "a"};
    begin_bad_round(world);
    assert_int_equal(cn_ledger_accept(world->ledger, &made), CN_OK);
    assert_int_equal(reload_job(world, "train.batch: 64\n" CHAIN("2"), &reload), CN_OK);
    assert_int_equal(reload.open_round, 0);
    assert_int_equal(job_in(world, 3).pipeline.parts, 3);
    assert_int_equal(job_in(world, 4).pipeline.parts, 2);
}

static void boards_are_told_of_another_layout_in_the_open_round(void **state)
{
    static struct cn_job_reload reload;
    struct aggregator_world *world = *state;
    struct cn_live_job live = {
        .ledger = world->ledger, .layout = &world->layout, .job = &world->job};
    begin_bad_round(world);
    assert_int_equal(cn_live_job_follow(&live, 3, false), CN_OK);
    uint32_t number = live.number;
    assert_int_equal(reload_job(world, "train.batch: 64\n" CHAIN("2"), &reload), CN_OK);
    assert_int_equal(cn_live_job_follow(&live, 3, true), CN_OK);
    assert_int_equal(live.number, number + 1);
    assert_int_equal(world->job.pipeline.parts, 2);
}

static void a_reload_is_refused_as_a_whole(void **state)
{
    static const struct {
        const char *lines, *reason;
        unsigned count; // lines of the answer
    } cases[] = {
        {"seed: 2\ntrain.batch: 64\n", "seed: 1 in the run, 2 in the profile", 2},
        {"central.set: other\n",
         "central.set: not set in the run, other in the profile: it may change only when the "
         "aggregator is started",
         1},
        {"update.residual: bf16\n", "update.residual: fp32 in the run, bf16 in the profile", 2},
        {"train.optimizer: adam\ntrain.keep_optimizer: true\n",
         "train.optimizer: it may not change while train.keep_optimizer is true, because boards "
         "keep the optimizer's state",
         1},
    };
    static struct cn_job_reload reload;
    struct cn_job_conflict conflict;
    struct aggregator_world *world = *state;
    assert_int_equal(reload_job(world, "", &reload), CN_ECONFLICT);
    assert_string_equal(reload.refused.lines[0], "no run was ever started here");
    assert_int_equal(bind_job(world, "train.keep_optimizer: true\n", &conflict), CN_OK);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        assert_int_equal(reload_job(world, cases[i].lines, &reload), CN_ECONFLICT);
        assert_int_equal(reload.refused.count, cases[i].count);
        assert_string_equal(reload.refused.lines[0], cases[i].reason);
        if (cases[i].count > 1) // what to do instead
            assert_non_null(strstr(reload.refused.lines[1], "these values hold for the whole"));
        assert_int_equal(reload.from_round, 0);
    }
    assert_int_equal(setting_count(world), 1);
    make_older(world);
    assert_int_equal(reload_job(world, "train.batch: 64\n", &reload), CN_ECONFLICT);
    assert_non_null(strstr(reload.refused.lines[0], "recorded only the digest"));
}

static void a_start_does_not_put_a_reload_before_its_round(void **state)
{
    static struct cn_job_reload reload;
    struct cn_job_conflict conflict;
    begin_round(*state, 2);
    assert_int_equal(reload_job(*state, "train.batch: 64\n", &reload), CN_OK);
    assert_int_equal(bind_job(*state, "train.batch: 64\nrounds.count: 9\n", &conflict), CN_OK);
    assert_int_equal(job_in(*state, 2).batch, 32);
    assert_int_equal(job_in(*state, 3).batch, 64);
    assert_int_equal(job_in(*state, 3).rounds, 9);
    // What only a reload may change is refused, and the answer says so.
    assert_int_equal(bind_job(*state, "train.batch: 16\n", &conflict), CN_ECONFLICT);
    assert_true(conflict.values && conflict.reloadable);
    assert_int_equal(bind_job(*state, "train.batch: 16\nseed: 5\n", &conflict), CN_ECONFLICT);
    assert_true(conflict.values && !conflict.reloadable);
}

static void another_optimizer_of_the_server_is_noticed(void **state)
{
    static struct cn_job_reload reload;
    struct aggregator_world *world = *state;
    bool keep;
    begin_round(world, 1);
    assert_int_equal(reload_job(world, "server.optimizer: fedadam\n", &reload), CN_OK);
    assert_int_equal(cn_ledger_close_round(world->ledger, 1), CN_OK);
    assert_int_equal(cn_ledger_open_round(world->ledger, 2), CN_OK);
    assert_int_equal(
        reload_job(world, "server.optimizer: fedadam\nserver.learning_rate: 0.1\n", &reload),
        CN_OK);
    for (uint32_t round = 1; round <= 4; round++) {
        assert_int_equal(cn_job_settings_keep_optimizer(world->ledger, round, &keep), CN_OK);
        assert_int_equal(keep, round != 2);
    }
}

static void boards_are_told_again_only_of_what_they_use(void **state)
{
    static struct cn_job_reload reload;
    struct aggregator_world *world = *state;
    struct cn_live_job live = {
        .ledger = world->ledger, .layout = &world->layout, .job = &world->job};
    begin_round(world, 1);
    assert_int_equal(cn_live_job_follow(&live, 1, false), CN_OK);
    assert_int_equal(live.number, 1);
    assert_int_equal(reload_job(world, "rounds.quorum: 5\nrounds.deadline: 7 s\n", &reload), CN_OK);
    assert_int_equal(cn_live_job_follow(&live, 1, true), CN_OK);
    assert_int_equal(world->job.quorum, 5);
    assert_int_equal(world->job.deadline_ms, 7000);
    assert_int_equal(live.number, 1);
    assert_int_equal(cn_live_job_follow(&live, 2, false), CN_OK); // they divide by the deadline
    assert_int_equal(live.number, 2);
    assert_int_equal(cn_live_job_follow(&live, 2, false), CN_OK);
    assert_int_equal(live.number, 2);
    assert_int_equal(live.told.deadline_ms, 7000);
}

// Runs a job of five rounds. Once the round is open, or the version of that number is the newest
// and no round is open, writes other settings. Returns the number of the last version.
static uint32_t run_with_reload(struct aggregator_world *world, uint32_t round, bool open,
                                const char *lines)
{
    static struct cn_job_reload reload;
    static const char *const boards[] = {"a", "b"};
    struct cn_job_conflict conflict;
    struct cn_live_job live = {0};
    struct cn_run_state seen = {0};
    bool done = false;
    assert_int_equal(bind_job(world, "rounds.quorum: 2\nrounds.count: 5\n", &conflict), CN_OK);
    world_stop(world);
    world->live = &live;
    for (size_t i = 0; i < 2; i++)
        assert_int_equal(world_enroll(world, boards[i], boards[i], 0), CN_OK);
    assert_int_equal(cn_ledger_open(world->directory, &live.ledger), CN_OK);
    live.layout = &world->layout;
    live.job = &world->job;
    assert_int_equal(world_start(world), CN_OK);
    for (int i = 0; i < 400 && seen.phase != CN_RUN_ENDED; i++) {
        assert_int_equal(world_tick(world, 500), CN_OK);
        cn_run_get_state(world->run, world_now_ms, &seen);
        if (!done && seen.round == round && seen.phase == (open ? CN_RUN_OPEN : CN_RUN_GATHER)) {
            assert_int_equal(reload_job(world, lines, &reload), CN_OK);
            done = true;
        }
        for (size_t board = 0; board < 2; board++)
            world_take_part(world, boards[board], boards[board]);
    }
    assert_int_equal(seen.phase, CN_RUN_ENDED);
    cn_ledger_close(live.ledger);
    return cn_model_store_newest(world->models)->number;
}

static void more_rounds_hold_while_the_last_one_is_open(void **state)
{
    assert_int_equal(run_with_reload(*state, 5, true, "rounds.quorum: 2\nrounds.count: 7\n"), 7);
}

static void a_run_ends_with_the_open_round_that_is_now_the_last(void **state)
{
    assert_int_equal(run_with_reload(*state, 3, true, "rounds.quorum: 2\nrounds.count: 3\n"), 3);
}

static void a_run_ends_before_a_round_that_is_too_many_now(void **state)
{
    assert_int_equal(run_with_reload(*state, 3, false, "rounds.quorum: 2\nrounds.count: 2\n"), 2);
}

#define WITH_WORLD(test) cmocka_unit_test_setup_teardown(test, open_world, world_close)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_digest_is_over_the_values_that_must_not_change),
        WITH_WORLD(a_profile_with_the_same_values_goes_on),
        WITH_WORLD(values_that_must_not_change_are_named_and_nothing_is_written),
        WITH_WORLD(a_value_that_may_change_holds_from_the_round_that_is_not_closed),
        WITH_WORLD(the_values_of_an_older_ledger_are_unknown_until_a_profile_has_their_digest),
        WITH_WORLD(a_ledger_that_was_never_run_stays_free_when_it_is_brought_up),
        WITH_WORLD(a_setting_that_does_not_have_its_digest_is_damaged),
        WITH_WORLD(an_asynchronous_run_of_an_earlier_program_goes_on),
        WITH_WORLD(a_reload_holds_from_the_next_round_on),
        WITH_WORLD(what_ends_the_open_round_changes_at_once),
        WITH_WORLD(another_layout_holds_at_once_in_a_round_without_updates),
        WITH_WORLD(a_layout_that_waits_for_the_next_round_is_taken_by_a_second_reload),
        WITH_WORLD(a_round_with_an_update_keeps_its_layout),
        WITH_WORLD(boards_are_told_of_another_layout_in_the_open_round),
        WITH_WORLD(a_reload_is_refused_as_a_whole),
        WITH_WORLD(a_start_does_not_put_a_reload_before_its_round),
        WITH_WORLD(another_optimizer_of_the_server_is_noticed),
        WITH_WORLD(boards_are_told_again_only_of_what_they_use),
        WITH_WORLD(more_rounds_hold_while_the_last_one_is_open),
        WITH_WORLD(a_run_ends_with_the_open_round_that_is_now_the_last),
        WITH_WORLD(a_run_ends_before_a_round_that_is_too_many_now),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
