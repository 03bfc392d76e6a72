// Events of a gateway: in memory, in the file, for the site's program, and the list of kinds.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>
#include <sys/stat.h>

#include "aggregator/serve/event_service.h"
#include "aggregator/show/reason.h"
#include "log_capture.h"
#include "runtime/port/platform.h"
#include "runtime/round/upkeep/pause_rules.h"
#include "tests/unit/aggregator_world.h"

static char folder[64];

static uint64_t some_date(void)
{
    return 1800000000000;
}

static int make_folder(void **state)
{
    (void)state;
    snprintf(folder, sizeof(folder), "/tmp/cairn-events-XXXXXX");
    return mkdtemp(folder) ? 0 : 1;
}

static int remove_folder(void **state)
{
    char path[384];
    DIR *list = opendir(folder);
    (void)state;
    for (const struct dirent *entry; list && (entry = readdir(list));) {
        snprintf(path, sizeof(path), "%s/%s", folder, entry->d_name);
        if (entry->d_name[0] != '.')
            unlink(path);
    }
    if (list)
        closedir(list);
    return rmdir(folder);
}

// --- memory ---

static const char *write_from(const struct cn_events *events, uint64_t from, struct cn_buffer *out)
{
    struct cn_json_text json;
    cn_buffer_init(out, 1 << 20);
    cn_json_text_init(&json, out);
    cn_json_open(&json, NULL, '{');
    cn_events_write_from(events, NULL, from, &json);
    cn_json_close(&json, '}');
    assert_int_equal(json.err, CN_OK);
    assert_int_equal(cn_buffer_append(out, "", 1), CN_OK);
    return (const char *)out->data;
}

static void the_newest_events_are_kept_and_asked_for_by_number(void **state)
{
    struct cn_events events = {0};
    struct cn_buffer out;
    const struct cn_event_facts facts = {
        .kind = CN_EVENT_BOARD_FAILED, .subject = "b", .text = "what"};
    (void)state;
    assert_string_equal(write_from(&events, 0, &out), "{\"events\":[],\"next\":1,\"more\":false}");
    cn_buffer_deinit(&out);
    assert_null(cn_events_find(&events, 0));
    for (int i = 0; i < CN_EVENTS_KEPT + 10; i++)
        assert_non_null(cn_events_add(&events, &facts, 7));
    assert_null(cn_events_find(&events, 10));
    assert_int_equal(cn_events_find(&events, 11)->seq, 11);
    assert_int_equal(cn_events_find(&events, CN_EVENTS_KEPT + 10)->seq, CN_EVENTS_KEPT + 10);
    assert_null(cn_events_find(&events, CN_EVENTS_KEPT + 11));
    const char *text = write_from(&events, 0, &out);
    assert_non_null(strstr(text, "{\"events\":[{\"seq\":9811,"));
    assert_non_null(strstr(text, "],\"next\":10011,\"more\":false}"));
    cn_buffer_deinit(&out);
    text = write_from(&events, 1, &out); // what is gone is left out
    assert_non_null(strstr(text, "{\"events\":[{\"seq\":11,\"date_ms\":7,\"kind\":\"board_failed\","
                                 "\"alarm\":true,\"subject\":\"b\",\"text\":\"what\"}"));
    assert_non_null(strstr(text, "],\"next\":211,\"more\":true}"));
    cn_buffer_deinit(&out);
    text = write_from(&events, UINT64_MAX, &out);
    assert_non_null(strstr(text, "{\"events\":[],\"next\":10011,\"more\":false}"));
    cn_buffer_deinit(&out);
    cn_events_deinit(&events);
}

// --- the file ---

static void add(struct cn_event_file *file, struct cn_events *events, const char *text)
{
    const struct cn_event_facts facts = {
        .kind = CN_EVENT_BOARD_SILENT, .subject = "board-1", .text = text, .code = 18};
    const struct cn_event *event = cn_events_add(events, &facts, 1800000000000);
    assert_non_null(event);
    cn_event_file_add(file, event, 1);
}

static void append_bytes(const char *bytes)
{
    char path[128];
    snprintf(path, sizeof(path), "%s/" CN_EVENT_FILE, folder);
    FILE *stream = fopen(path, "a");
    assert_non_null(stream);
    fputs(bytes, stream);
    fclose(stream);
}

static void numbers_go_on_after_a_restart_whatever_the_file_has(void **state)
{
    struct cn_events events = {0};
    struct cn_event_file file = {0};
    (void)state;
    cn_event_file_open(&file, folder, &events);
    add(&file, &events, "\x1b[31mone\n\xff");
    add(&file, &events, "two");
    cn_event_file_close(&file);
    cn_events_deinit(&events);
    append_bytes(
        "nonsense\n{\"seq\":-3}\n{\"seq\":9,\"kind\":\"x\",\"text\":\"\"}\n[]\n\n"
        "{\"seq\":1e300,\"kind\":\"board_back\",\"text\":\"\"}\n{\"seq\":3,\"kind\":\"boa");
    file = (struct cn_event_file){0};
    cn_event_file_open(&file, folder, &events);
    assert_int_equal(events.newest, 2);
    assert_string_equal(cn_events_find(&events, 1)->text, "?[31mone??");
    assert_string_equal(cn_events_find(&events, 2)->subject, "board-1");
    assert_int_equal(cn_events_find(&events, 2)->code, 18);
    add(&file, &events, "three");
    cn_event_file_close(&file);
    cn_events_deinit(&events);
    file = (struct cn_event_file){0};
    cn_event_file_open(&file, folder, &events);
    assert_int_equal(events.newest, 3); // its line was not lost in the one that was cut off
    assert_string_equal(cn_events_find(&events, 3)->text, "three");
    cn_event_file_close(&file);
    cn_events_deinit(&events);
}

// A crash can leave the newest file empty, or with a line that is cut off, or missing.
static void numbers_go_on_after_a_crash_behind_a_rotation(void **state)
{
    static const char *const left[] = {NULL, "", "{\"seq\":4,\"kind\":\"boa"};
    char path[128], older[sizeof(path) + 2];
    (void)state;
    snprintf(path, sizeof(path), "%s/" CN_EVENT_FILE, folder);
    snprintf(older, sizeof(older), "%s.1", path);
    for (size_t i = 0; i < sizeof(left) / sizeof(left[0]); i++) {
        struct cn_events events = {0};
        struct cn_event_file file = {0};
        cn_event_file_open(&file, folder, &events);
        for (int n = 0; n < 3; n++)
            add(&file, &events, "what");
        uint64_t newest = events.newest;
        cn_event_file_close(&file);
        cn_events_deinit(&events);
        assert_int_equal(rename(path, older), 0);
        if (left[i])
            append_bytes(left[i]);
        file = (struct cn_event_file){0};
        cn_event_file_open(&file, folder, &events);
        assert_int_equal(events.newest, newest);
        add(&file, &events, "after");
        assert_int_equal(cn_events_find(&events, newest + 1)->seq, newest + 1);
        cn_event_file_close(&file);
        cn_events_deinit(&events);
    }
}

static void the_file_is_bounded(void **state)
{
    struct cn_events events = {0};
    struct cn_event_file file = {.size_max = 2000};
    char path[128];
    struct stat status;
    (void)state;
    cn_event_file_open(&file, folder, &events);
    for (int i = 0; i < 200; i++)
        add(&file, &events, "the board was not heard for 120 s");
    cn_event_file_close(&file);
    cn_events_deinit(&events);
    for (int number = 1; number <= CN_EVENT_FILES_KEPT + 1; number++) {
        snprintf(path, sizeof(path), "%s/" CN_EVENT_FILE ".%d", folder, number);
        assert_int_equal(stat(path, &status), number <= CN_EVENT_FILES_KEPT ? 0 : -1);
        if (number <= CN_EVENT_FILES_KEPT)
            assert_in_range(status.st_size, 2000, 2300);
    }
    assert_int_equal(status.st_mode & 0777, 0600);
}

static void a_file_that_cannot_be_written_is_said_once(void **state)
{
    struct cn_events events = {0};
    struct cn_event_file file = {0};
    struct log_capture capture;
    char path[128];
    unsigned said;
    (void)state;
    snprintf(path, sizeof(path), "%s/" CN_EVENT_FILE, folder);
    assert_int_equal(mkdir(path, 0700), 0);
    log_capture_begin(&capture);
    cn_event_file_open(&file, folder, &events);
    for (int i = 0; i < 100; i++)
        add(&file, &events, "what");
    log_capture_end(&capture, "cannot be written", &said);
    assert_int_equal(said, 1);
    assert_int_equal(events.count, 100);
    cn_event_file_close(&file);
    cn_events_deinit(&events);
    rmdir(path);
}

// --- kinds ---

static void kinds_are_chosen_by_words_and_patterns(void **state)
{
    char item[32];
    (void)state;
    for (enum cn_event_kind kind = 0; kind < CN_EVENT_KINDS; kind++)
        assert_int_equal(cn_event_kind_find(cn_event_kind_word(kind)), kind);
    assert_int_equal(cn_event_kind_find("board"), CN_EVENT_KINDS);
    assert_true(cn_event_kind_is_wanted("", CN_EVENT_BOARD_FAILED));
    assert_false(cn_event_kind_is_wanted("", CN_EVENT_VERSION_MADE));
    assert_true(cn_event_kind_is_wanted("run_ended board_*", CN_EVENT_BOARD_PAUSED));
    assert_false(cn_event_kind_is_wanted("run_ended board_*", CN_EVENT_DISK_LOW));
    assert_true(cn_event_kind_is_wanted("*", CN_EVENT_DISK_LOW));
    assert_false(cn_event_kind_unknown("run_ended board_*", item, sizeof(item)));
    assert_true(cn_event_kind_unknown("run_ended bord_*", item, sizeof(item)));
    assert_string_equal(item, "bord_*");
}

// --- the service ---

struct fixture {
    struct aggregator_world world;
    struct cn_settings settings;
    struct cn_event_service service;
};

static int open_service(void **state)
{
    struct fixture *f = calloc(1, sizeof(*f));
    assert_non_null(f);
    assert_int_equal(make_folder(state), 0);
    world_init(&f->world);
    assert_int_equal(world_enroll(&f->world, "a", "a", 30), CN_OK);
    assert_int_equal(world_enroll(&f->world, "b", "b", 0), CN_OK);
    assert_int_equal(world_start(&f->world), CN_OK);
    snprintf(f->settings.state, sizeof(f->settings.state), "%s", folder);
    snprintf(f->settings.name, sizeof(f->settings.name), "gateway");
    f->settings.care.hook_limit_ms = 1000;
    *state = f;
    return 0;
}

static int close_service(void **state)
{
    struct fixture *f = *state;
    cn_event_service_close(&f->service, world_now_ms);
    world_deinit(&f->world);
    free(f);
    return remove_folder(state);
}

static void begin(struct fixture *f)
{
    const struct cn_event_sources sources = {.settings = &f->settings,
                                             .job = &f->world.job,
                                             .ledger = f->world.ledger,
                                             .roster = f->world.roster,
                                             .models = f->world.models,
                                             .run = f->world.run};
    cn_event_service_open(&f->service, &sources, some_date, world_now_ms);
}

static void look(struct fixture *f, uint64_t later_ms)
{
    struct cn_run_state run;
    world_now_ms += later_ms;
    cn_run_get_state(f->world.run, world_now_ms, &run);
    cn_event_service_step(&f->service, &run, CN_OK, run.phase == CN_RUN_ENDED, world_now_ms);
}

// Returns the number of events of a kind, and the newest of them.
static unsigned count(const struct fixture *f, enum cn_event_kind kind,
                      const struct cn_event **newest)
{
    const struct cn_events *events = &f->service.events;
    unsigned found = 0;
    for (uint64_t seq = 1; seq <= events->newest; seq++) {
        const struct cn_event *event = cn_events_find(events, seq);
        if (!event || event->kind != kind)
            continue;
        found++;
        if (newest)
            *newest = event;
    }
    return found;
}

static void rounds_versions_and_the_end_are_events(void **state)
{
    struct fixture *f = *state;
    struct aggregator_world *world = &f->world;
    const struct cn_event *event = NULL;
    begin(f);
    look(f, 0);
    assert_int_equal(count(f, CN_EVENT_GATEWAY_STARTED, NULL), 1);
    for (uint32_t round = 1; round <= world->job.rounds; round++) {
        for (int i = 0; i < 200 && cn_model_store_newest(world->models)->number < round; i++) {
            world_take_part(world, "a", "a");
            world_take_part(world, "b", "b");
            assert_int_equal(world_tick(world, 50), CN_OK);
        }
        look(f, 1000);
    }
    assert_int_equal(count(f, CN_EVENT_VERSION_MADE, &event), 3);
    assert_string_equal(event->text, "round 3 made version 3 of 2 updates");
    assert_int_equal(count(f, CN_EVENT_RUN_ENDED, &event), 1);
    assert_string_equal(event->text, "the run has ended after 3 rounds: all rounds are done");
    assert_int_equal(count(f, CN_EVENT_BOARD_JOINED, NULL), 2);
    look(f, 600000); // boards leave after the end
    assert_int_equal(count(f, CN_EVENT_BOARD_SILENT, NULL), 0);
}

static void a_rejection_of_a_late_update_is_an_event(void **state)
{
    struct fixture *f = *state;
    const struct cn_event *event = NULL;
    world_refuse_old(&f->world, "a", "b");
    begin(f);
    look(f, 0); // what happened before is no event
    assert_int_equal(count(f, CN_EVENT_UPDATE_REJECTED, NULL), 0);
    assert_int_equal(count(f, CN_EVENT_ROUND_OPENED, &event), 1);
    assert_string_equal(event->text, "round 6 is open, 2 groups are invited");
    assert_int_equal(cn_tally_reject(f->world.ledger, "b", 1, "its bytes are wrong"), CN_OK);
    f->service.run.rejected = UINT64_MAX; // the run counts those that it judges itself
    look(f, 1000);
    assert_int_equal(count(f, CN_EVENT_UPDATE_REJECTED, &event), 1);
    assert_string_equal(event->subject, "b");
    assert_string_equal(event->text, "round 1: its update was rejected: its bytes are wrong");
}

static void a_board_that_fails_falls_silent_and_comes_back_is_told(void **state)
{
    struct fixture *f = *state;
    const struct cn_event *event = NULL;
    begin(f);
    look(f, 0);
    world_register(&f->world, "a");
    cn_roster_blame(f->world.roster, "a", "labels.npy: 12 rows", 4, world_now_ms);
    look(f, 1000);
    assert_int_equal(count(f, CN_EVENT_BOARD_FAILED, &event), 1);
    assert_string_equal(event->subject, "a");
    assert_string_equal(event->text, "labels.npy: 12 rows");
    assert_int_equal(event->code, 4);
    world_register(&f->world, "a");
    cn_roster_blame(f->world.roster, "a", "", 0, world_now_ms);
    cn_roster_work(f->world.roster, "a", world_now_ms);
    look(f, 1000);
    assert_int_equal(count(f, CN_EVENT_BOARD_BACK, NULL), 1);
    look(f, CN_REASON_SILENT_MS + 1000);
    assert_int_equal(count(f, CN_EVENT_BOARD_SILENT, &event), 1);
    assert_string_equal(event->text, "the board was not heard for 122 s");
    look(f, 1000);
    assert_int_equal(count(f, CN_EVENT_BOARD_SILENT, NULL), 1);
}

// Registers a board and starts the aggregator again.
static void restart_after(struct fixture *f, const char *board)
{
    begin(f);
    look(f, 0);
    world_register(&f->world, board);
    look(f, 1000);
    cn_event_service_close(&f->service, world_now_ms);
    world_stop(&f->world);
    assert_int_equal(world_start(&f->world), CN_OK);
    f->service = (struct cn_event_service){0};
    begin(f);
    look(f, 1000);
}

static void a_restart_makes_no_noise(void **state)
{
    struct fixture *f = *state;
    restart_after(f, "a");
    world_register(&f->world, "a");
    look(f, 1000);
    assert_int_equal(count(f, CN_EVENT_BOARD_JOINED, NULL), 1); // from the file
    assert_int_equal(count(f, CN_EVENT_BOARD_BACK, NULL), 0);
    assert_int_equal(count(f, CN_EVENT_GATEWAY_STARTED, NULL), 2);
    look(f, CN_EVENT_RESTART_MS);
    world_register(&f->world, "b");
    look(f, 1000);
    assert_int_equal(count(f, CN_EVENT_BOARD_BACK, NULL), 1);
}

// The whole site lost its power, and one board does not start again. Nobody has heard the other
// since it was enrolled.
static void a_board_that_a_restart_loses_is_told(void **state)
{
    struct fixture *f = *state;
    const struct cn_event *event;
    restart_after(f, "a");
    look(f, CN_EVENT_RESTART_MS - 2000);
    assert_int_equal(count(f, CN_EVENT_BOARD_SILENT, NULL), 0);
    look(f, 2000);
    assert_int_equal(count(f, CN_EVENT_BOARD_SILENT, &event), 1);
    assert_string_equal(event->subject, "a");
    assert_string_equal(event->text, "the board was not heard since the aggregator started");
    look(f, 1000);
    assert_int_equal(count(f, CN_EVENT_BOARD_SILENT, NULL), 1);
    world_register(&f->world, "a");
    look(f, 1000);
    assert_int_equal(count(f, CN_EVENT_BOARD_BACK, NULL), 1);
}

// Boards start one after the other, and the first ones miss the rest.
static void a_board_that_others_miss_has_time_to_come_back(void **state)
{
    struct fixture *f = *state;
    const struct cn_member_sign sign = {.id = cn_name_hash("a"), .missing_s = 5};
    const struct cn_event *event;
    restart_after(f, "a");
    cn_roster_tell(f->world.roster, "b", cn_roster_find(f->world.roster, "a")->enrolled.group,
                   &sign, 1, world_now_ms);
    assert_true(cn_roster_find(f->world.roster, "a")->missing_ms > 0);
    look(f, 1000);
    assert_int_equal(count(f, CN_EVENT_BOARD_SILENT, NULL), 0);
    look(f, CN_EVENT_RESTART_MS);
    assert_int_equal(count(f, CN_EVENT_BOARD_SILENT, &event), 1);
    assert_string_equal(event->text, "the board is missing in its group");
}

static void put_hook(struct fixture *f, const char *lines)
{
    char *path = f->settings.event_hook.path;
    snprintf(path, sizeof(f->settings.event_hook.path), "%s/hook", folder);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fprintf(file, "#!/bin/sh\n%s\n", lines);
    fclose(file);
    chmod(path, 0700);
}

// Waits until the hook has ended and none waits.
static void drain(struct fixture *f)
{
    for (int i = 0; i < 600 && (f->service.hook.running || f->service.hook.count); i++) {
        cn_platform_sleep_ms(50);
        cn_event_hook_step(&f->service.hook, world_now_ms);
    }
    assert_false(f->service.hook.running);
}

static char *read_told(void)
{
    static char text[16384];
    char path[128];
    snprintf(path, sizeof(path), "%s/told", folder);
    FILE *file = fopen(path, "r");
    size_t got = file ? fread(text, 1, sizeof(text) - 1, file) : 0;
    if (file)
        fclose(file);
    text[got] = '\0';
    return text;
}

static void flap(struct fixture *f)
{
    const struct cn_health paused = {.state = CN_HEALTH_PAUSED,
                                     .flags = CN_PAUSE_HEAT << CN_HEALTH_PAUSE_SHIFT};
    const struct cn_health well = {.state = CN_HEALTH_TRAINING};
    cn_roster_report(f->world.roster, "a", &paused, world_now_ms);
    look(f, 3000);
    cn_roster_report(f->world.roster, "a", &well, world_now_ms);
    look(f, 3000);
}

static void a_board_that_flaps_is_told_to_the_hook_once_in_ten_minutes(void **state)
{
    struct fixture *f = *state;
    char *at;
    unsigned told = 0;
    put_hook(f, "echo \"$CAIRN_EVENT $CAIRN_SUBJECT $(cat)\" >>\"${0%hook}told\"");
    snprintf(f->settings.event_hook.events, sizeof(f->settings.event_hook.events), "board_*");
    begin(f);
    look(f, 0);
    world_register(&f->world, "a");
    for (int i = 0; i < 200; i++) // 20 minutes
        flap(f);
    drain(f);
    look(f, 1000); // nobody hears when it is over: the board is well, as was told
    drain(f);
    for (at = read_told(); (at = strstr(at, "\"event\":")); at++)
        told++;
    assert_in_range(told, 1, 3);
    assert_non_null(strstr(read_told(), "board_paused a {\"v\":1,\"gateway\":\"gateway\","));
    assert_in_range(f->service.events.newest, 8, 3 * CN_EVENT_BOARD_MAX + 3);
}

static void a_hook_that_hangs_is_ended_and_said_and_the_next_event_is_told(void **state)
{
    struct fixture *f = *state;
    const struct cn_event_facts facts = {.kind = CN_EVENT_COMMAND, .subject = "", .text = "what"};
    struct log_capture capture;
    unsigned said;
    put_hook(f, "echo \"$CAIRN_EVENT\" >>\"${0%hook}told\"; [ \"$CAIRN_SEQ\" -gt 1 ] || sleep 600");
    snprintf(f->settings.event_hook.events, sizeof(f->settings.event_hook.events), "*");
    begin(f);
    log_capture_begin(&capture);
    look(f, 0);
    look(f, 1); // starts it
    for (int i = 0; i < 200; i++)
        cn_event_service_add(&f->service, &facts, world_now_ms);
    assert_true(f->service.hook.left_out >= 100); // only so many wait
    f->service.hook.count = 1;
    drain(f);
    log_capture_end(&capture, "was ended after 1 s", &said);
    assert_int_equal(said, 1);
    assert_string_equal(read_told(), "gateway_started\ncommand\n");
}

static void a_hook_is_told_of_the_run_where_it_is_known(void **state)
{
    struct fixture *f = *state;
    put_hook(f, "echo \"$CAIRN_JOB ${CAIRN_RUN:-none} $CAIRN_TEXT\" >>\"${0%hook}told\"");
    snprintf(f->settings.event_hook.events, sizeof(f->settings.event_hook.events), "command");
    begin(f);
    look(f, 0);
    cn_event_service_note(&f->service, "close-round", "next", "done: closed");
    cn_event_service_note(&f->service, "pause", NULL, "done: paused");
    look(f, 1000);
    drain(f);
    assert_non_null(strstr(read_told(), "next none close-round: done: closed\n"));
    assert_non_null(strstr(read_told(), " pause: done: paused\n"));
    assert_null(strstr(read_told(), "none pause: "));
}

static void audit_line(const char *by, const char *what, const char *result)
{
    const struct cn_audit_who who = {.uid = 1000, .pid = 1, .by = by};
    const struct cn_audit_entry entry = {
        .who = who, .what = what, .arguments = "{\"file\":\"next.yaml\"}", .result = result};
    assert_int_equal(cn_audit_append(folder, &entry, NULL), CN_OK);
}

static void a_command_beside_the_gateway_is_an_event(void **state)
{
    struct fixture *f = *state;
    const struct cn_event *event;
    char from[128], to[160];
    audit_line("command", "enroll", "done: before");
    begin(f);
    look(f, 0);
    audit_line("command", "job-submit", "asked");
    audit_line("command", "job-submit", "refused");
    audit_line("admin.sock", "pause", "done: is told already");
    look(f, 1000);
    assert_int_equal(count(f, CN_EVENT_COMMAND, NULL), 0);
    audit_line("command", "job-submit", "done");
    look(f, 1000);
    assert_int_equal(count(f, CN_EVENT_COMMAND, &event), 1);
    assert_string_equal(event->text, "job-submit: done: file next.yaml");
    audit_line("command", "revoke", "done: board-1 is revoked");
    snprintf(from, sizeof(from), "%s/%s", folder, CN_AUDIT_FILE);
    snprintf(to, sizeof(to), "%s.1", from);
    assert_int_equal(rename(from, to), 0);
    audit_line("command", "move", "done: board-2 is in group b");
    look(f, 1000);
    look(f, 1000);
    assert_int_equal(count(f, CN_EVENT_COMMAND, &event), 3);
    assert_string_equal(event->text, "move: done: board-2 is in group b");
}

static void a_hook_that_cannot_be_run_is_said_at_the_start(void **state)
{
    struct fixture *f = *state;
    struct log_capture capture;
    unsigned said;
    snprintf(f->settings.event_hook.path, sizeof(f->settings.event_hook.path), "%s/absent", folder);
    log_capture_begin(&capture);
    begin(f);
    log_capture_end(&capture, "absent cannot be run: No such file", &said);
    assert_int_equal(said, 1);
    assert_int_equal(f->service.hook.count, 0);
}

#define FOLDER_TEST(test) cmocka_unit_test_setup_teardown(test, make_folder, remove_folder)
#define SERVICE_TEST(test) cmocka_unit_test_setup_teardown(test, open_service, close_service)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_newest_events_are_kept_and_asked_for_by_number),
        FOLDER_TEST(numbers_go_on_after_a_restart_whatever_the_file_has),
        FOLDER_TEST(numbers_go_on_after_a_crash_behind_a_rotation),
        FOLDER_TEST(the_file_is_bounded),
        FOLDER_TEST(a_file_that_cannot_be_written_is_said_once),
        cmocka_unit_test(kinds_are_chosen_by_words_and_patterns),
        SERVICE_TEST(rounds_versions_and_the_end_are_events),
        SERVICE_TEST(a_rejection_of_a_late_update_is_an_event),
        SERVICE_TEST(a_board_that_fails_falls_silent_and_comes_back_is_told),
        SERVICE_TEST(a_restart_makes_no_noise),
        SERVICE_TEST(a_board_that_a_restart_loses_is_told),
        SERVICE_TEST(a_board_that_others_miss_has_time_to_come_back),
        SERVICE_TEST(a_board_that_flaps_is_told_to_the_hook_once_in_ten_minutes),
        SERVICE_TEST(a_command_beside_the_gateway_is_an_event),
        SERVICE_TEST(a_hook_is_told_of_the_run_where_it_is_known),
        SERVICE_TEST(a_hook_that_cannot_be_run_is_said_at_the_start),
        SERVICE_TEST(a_hook_that_hangs_is_ended_and_said_and_the_next_event_is_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
