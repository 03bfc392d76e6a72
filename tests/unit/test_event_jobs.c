// Events of submitted jobs: they name the job, and can be asked for alone.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "aggregator/serve/event_service.h"
#include "tests/unit/aggregator_world.h"

static void add_of(struct cn_events *events, const char *job, const char *text)
{
    const struct cn_event_facts facts = {
        .kind = CN_EVENT_VERSION_MADE, .job = job, .subject = "", .text = text};
    assert_non_null(cn_events_add(events, &facts, 7));
}

static void events_of_one_job_are_asked_for_alone(void **state)
{
    static const char *const wanted[] = {"{\"seq\":1,\"date_ms\":7,\"kind\":\"version_made\","
                                         "\"text\":\"own\"}",
                                         "\"job\":\"next\",\"text\":\"first\"}"};
    struct cn_events events = {0};
    (void)state;
    add_of(&events, NULL, "own");
    add_of(&events, "next", "first");
    for (int i = 0; i < CN_EVENTS_ANSWER + 5; i++)
        add_of(&events, i % 2 ? "other" : "", "more");
    for (int i = 0; i < 2; i++) {
        struct cn_buffer out;
        struct cn_json_text json;
        cn_buffer_init(&out, 1 << 20);
        cn_json_text_init(&json, &out);
        cn_json_open(&json, NULL, '{');
        cn_events_write_from(&events, i ? "next" : "", 0, &json);
        cn_json_close(&json, '}');
        assert_int_equal(cn_buffer_append(&out, "", 1), CN_OK);
        assert_non_null(strstr((const char *)out.data, wanted[i])); // far back, but of this job
        assert_null(strstr((const char *)out.data, "other"));
        assert_non_null(strstr((const char *)out.data, "],\"next\":208,\"more\":false}"));
        cn_buffer_deinit(&out);
    }
    cn_events_deinit(&events);
}

// --- the run of a job ---

static uint64_t some_date(void)
{
    return 1800000000000;
}

struct fixture {
    struct aggregator_world world;
    struct cn_settings settings;
    struct cn_event_service service;
    struct cn_event_run watch; // the world's run as that of job next
};

// Sets state to that of the run. Returns what events are made of; borrows f and state.
static struct cn_event_run_source run_source(const struct fixture *f, struct cn_run_state *state)
{
    const struct aggregator_world *world = &f->world;
    cn_run_get_state(world->run, world_now_ms, state);
    return (struct cn_event_run_source){.job = &world->job,
                                        .ledger = world->ledger,
                                        .models = world->models,
                                        .run = world->run,
                                        .state = state};
}

static void look(struct fixture *f)
{
    struct cn_run_state run;
    world_now_ms += CN_EVENT_LOOK_MS;
    const struct cn_event_run_source from = run_source(f, &run);
    f->service.looked_ms = world_now_ms; // as after a step
    cn_event_service_job(&f->service, &f->watch, "next", &from, world_now_ms);
}

// Returns the newest event of a kind; NULL: there is none.
static const struct cn_event *newest(const struct fixture *f, enum cn_event_kind kind)
{
    const struct cn_events *events = &f->service.events;
    for (uint64_t seq = events->newest; seq; seq--)
        if (cn_events_find(events, seq)->kind == kind)
            return cn_events_find(events, seq);
    return NULL;
}

// Looks as before the run is closed.
static void look_last(struct fixture *f)
{
    struct cn_run_state run;
    const struct cn_event_run_source from = run_source(f, &run);
    cn_event_service_job_last(&f->watch, &from, world_now_ms);
}

static void train(struct aggregator_world *world, uint32_t version)
{
    for (int i = 0; i < 200 && cn_model_store_newest(world->models)->number < version; i++) {
        world_take_part(world, "a", "a");
        world_take_part(world, "b", "b");
        assert_int_equal(world_tick(world, 50), CN_OK);
    }
}

static void what_happens_in_the_run_of_a_job_names_it(void **state)
{
    struct fixture *f = calloc(1, sizeof(*f));
    struct aggregator_world *world = &f->world;
    char path[sizeof(world->directory) + sizeof("/" CN_EVENT_FILE)];
    (void)state;
    world_init(world);
    assert_int_equal(world_enroll(world, "a", "a", 0), CN_OK);
    assert_int_equal(world_enroll(world, "b", "b", 0), CN_OK);
    assert_int_equal(world_start(world), CN_OK);
    snprintf(f->settings.state, sizeof(f->settings.state), "%s", world->directory);
    const struct cn_event_sources sources = {.settings = &f->settings,
                                             .job = &world->job,
                                             .ledger = world->ledger,
                                             .roster = world->roster,
                                             .models = world->models,
                                             .run = world->run};
    cn_event_service_open(&f->service, &sources, some_date, world_now_ms);
    train(world, 1);
    look(f); // what was before is no event
    assert_null(newest(f, CN_EVENT_VERSION_MADE));
    train(world, 2);
    look_last(f); // between two looks
    assert_string_equal(newest(f, CN_EVENT_VERSION_MADE)->text,
                        "round 2 made version 2 of 2 updates");
    train(world, world->job.rounds);
    look(f);
    assert_string_equal(newest(f, CN_EVENT_VERSION_MADE)->job, "next");
    assert_true(newest(f, CN_EVENT_VERSION_MADE)->run == cn_ledger_identity(world->ledger)->run);
    assert_string_equal(newest(f, CN_EVENT_VERSION_MADE)->text,
                        "round 3 made version 3 of 2 updates");
    look(f);
    assert_null(newest(f, CN_EVENT_RUN_ENDED)); // the queue tells the end of a job
    cn_event_service_note(&f->service, "job-hold", "next", "done: held");
    assert_string_equal(newest(f, CN_EVENT_COMMAND)->job, "next");
    cn_event_service_note(&f->service, "pause", NULL, "done: paused");
    assert_string_equal(newest(f, CN_EVENT_COMMAND)->job, "");
    cn_event_service_close(&f->service, world_now_ms);
    snprintf(path, sizeof(path), "%s/" CN_EVENT_FILE, world->directory);
    unlink(path);
    world_deinit(world);
    free(f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(events_of_one_job_are_asked_for_alone),
        cmocka_unit_test(what_happens_in_the_run_of_a_job_names_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
