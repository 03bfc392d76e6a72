// The view of a run for the page, the report and scripts: JSON, CSV and alerts.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <cjson/cJSON.h>

#include "aggregator/ledger/rulings.h"
#include "aggregator/ledger/tally.h"
#include "aggregator/run/run_counts.h"
#include "aggregator/serve/status.h"
#include "aggregator/show/json_text.h"
#include "aggregator/show/reason.h"
#include "aggregator/show/show_csv.h"
#include "tests/unit/aggregator_world.h"

#define HOSTILE "</script><img src=x onerror=alert(1)> \x1b[31m \xe2\x80\xae\xff \"'&=cmd"

struct shown {
    struct aggregator_world world;
    struct cn_live_state live;
    struct cn_show_source source;
    struct cn_buffer out;
    cJSON *root;
};

// Groups a to d of one board each. Three are invited; the quorum is two.
static int open_round(void **state)
{
    static const char *const boards[] = {"a", "b", "c", "d"};
    struct shown *shown = calloc(1, sizeof(*shown));
    struct aggregator_world *world = &shown->world;
    struct cn_round_info info = {0};
    world_init(world);
    world->job.over_select = 1.5;
    for (size_t i = 0; i < 4; i++)
        assert_int_equal(world_enroll(world, boards[i], boards[i], 0), CN_OK);
    assert_int_equal(world_start(world), CN_OK);
    for (size_t i = 0; i < 4; i++)
        assert_true(world_get_round(world, boards[i], &info));
    assert_int_equal(world_tick(world, 50), CN_OK);
    cn_buffer_init(&shown->out, CN_SHOW_LIMIT);
    *state = shown;
    return 0;
}

static int close_world(void **state)
{
    struct shown *shown = *state;
    cJSON_Delete(shown->root);
    cn_buffer_deinit(&shown->out);
    cn_status_deinit(&shown->live);
    world_deinit(&shown->world);
    free(shown);
    return 0;
}

static const struct cn_show_source *look(struct shown *shown)
{
    struct cn_run_state run = {.phase = CN_RUN_OPEN};
    cn_status_deinit(&shown->live);
    assert_int_equal(cn_status_gather(shown->world.roster, &run, &shown->live), CN_OK);
    shown->live.opened_ms = WORLD_START_MS; // the roster has the real clock
    shown->source = (struct cn_show_source){
        .ledger = shown->world.ledger,
        .job = &shown->world.job,
        .live = &shown->live,
        .now_ms = world_now_ms,
        .date_ms = 1700000000000,
    };
    shown->out.size = 0;
    cJSON_Delete(shown->root);
    shown->root = NULL;
    return &shown->source;
}

static const cJSON *parse(struct shown *shown)
{
    shown->root = cJSON_ParseWithLength((const char *)shown->out.data, shown->out.size);
    if (!shown->root)
        fail_msg("no JSON: %.*s", (int)shown->out.size, (const char *)shown->out.data);
    return shown->root;
}

static const cJSON *show_state(struct shown *shown, struct cn_show_tracker *tracker, uint64_t since)
{
    assert_int_equal(cn_show_state(look(shown), tracker, since, &shown->out), CN_OK);
    return parse(shown);
}

static const cJSON *show_versions(struct shown *shown, uint32_t from)
{
    assert_int_equal(cn_show_versions(look(shown), from, &shown->out), CN_OK);
    return parse(shown);
}

static double number(const cJSON *object, const char *key)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(object, key);
    if (!cJSON_IsNumber(item))
        fail_msg("%s is missing", key);
    return item->valuedouble;
}

static const char *text(const cJSON *object, const char *key)
{
    const char *value = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(object, key));
    if (!value)
        fail_msg("%s is missing", key);
    return value;
}

static const cJSON *member(const cJSON *object, const char *key)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(object, key);
    if (!item)
        fail_msg("%s is missing", key);
    return item;
}

static const cJSON *find(const cJSON *list, const char *key, const char *value)
{
    const cJSON *item;
    cJSON_ArrayForEach(item, list)
    {
        const char *found = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(item, key));
        if (found && strcmp(found, value) == 0)
            return item;
    }
    fail_msg("there is no %s %s", key, value);
    return NULL;
}

// What the ledger says of a group and a closed round, as a sign.
static char sign_of(struct aggregator_world *world, uint32_t round, const char *group)
{
    struct cn_ledger_contribution contribution;
    struct cn_tally tally;
    bool selected;
    assert_int_equal(cn_ledger_is_selected(world->ledger, round, group, &selected), CN_OK);
    assert_int_equal(cn_tally_read(world->ledger, group, &tally), CN_OK);
    if (!selected)
        return 'n';
    if (!cn_ledger_find_contribution(world->ledger, round, group, &contribution))
        return 'a';
    return tally.rejected_round == round ? 'r' : 'l';
}

// Of the three groups that are invited, the first sends the update of another group.
static void finish_round(struct aggregator_world *world)
{
    static const char *const boards[] = {"a", "b", "c", "d"};
    struct cn_round_info info = {0};
    bool spoiled = false;
    for (size_t i = 0; i < 4; i++) {
        assert_true(world_get_round(world, boards[i], &info));
        if (!info.invited)
            continue;
        struct cn_upload_status status = {0};
        struct cn_buffer frame;
        world_make_frame(world, &info, spoiled ? boards[i] : "z", 0, &frame);
        assert_true(world_send(world, boards[i], &info, &frame, &status));
        assert_int_equal(status.verdict, spoiled ? CN_VERDICT_ACCEPTED : CN_VERDICT_REJECTED);
        cn_buffer_deinit(&frame);
        spoiled = true;
    }
    for (int i = 0; i < 3; i++)
        assert_int_equal(world_tick(world, 50), CN_OK);
}

static void signs_are_those_of_the_ledger(void **state)
{
    struct shown *shown = *state;
    finish_round(&shown->world);
    const cJSON *root = show_versions(shown, 0);
    const cJSON *groups = member(root, "groups");
    const cJSON *first = cJSON_GetArrayItem(member(root, "versions"), 1);
    const char *signs = text(first, "signs");
    char seen[5] = "";
    assert_int_equal(number(first, "version"), 1);
    assert_int_equal(strlen(signs), 4);
    for (int i = 0; i < 4; i++) {
        seen[i] = sign_of(&shown->world, 1, cJSON_GetStringValue(cJSON_GetArrayItem(groups, i)));
        assert_int_equal(signs[i], seen[i]);
    }
    assert_non_null(strchr(seen, 'a'));
    assert_non_null(strchr(seen, 'r'));
    assert_non_null(strchr(seen, 'n'));
    assert_int_equal(number(first, "updates"), 2);
    assert_true(number(first, "opened_ms") > 0);
    assert_true(number(first, "last_ms") >= number(first, "first_ms"));
    assert_true(number(first, "made_ms") >= number(first, "closed_ms"));
    assert_false(cJSON_IsTrue(member(root, "more")));
}

// Three of four groups are invited, so each round another one waits.
static void a_group_that_waits_for_its_turn_is_told_when_the_last_one_was(void **state)
{
    struct shown *shown = *state;
    struct cn_round_info info = {0};
    const cJSON *waits = find(member(show_state(shown, NULL, 0), "boards"), "state", "left_out");
    const cJSON *asked;
    char first[CN_NAME_SIZE];
    snprintf(first, sizeof(first), "%s", text(waits, "name"));
    assert_string_equal(text(waits, "why"),
                        "its group was not invited to this round: 3 of 4 groups are, in turn; it "
                        "was in none of the last 64 rounds");
    asked = find(member(show_state(shown, NULL, 0), "boards"), "state", "awaited");
    assert_string_equal(text(asked, "why"), "in the round: its update is awaited"); // no turn yet
    finish_round(&shown->world);
    for (int i = 0; i < 100 && info.round < 2; i++) {
        assert_int_equal(world_tick(&shown->world, 500), CN_OK);
        assert_true(world_get_round(&shown->world, first, &info));
    }
    assert_int_equal(info.round, 2);
    assert_true(info.invited);
    waits = find(member(show_state(shown, NULL, 0), "boards"), "state", "left_out");
    assert_string_not_equal(text(waits, "name"), first);
    assert_string_equal(text(waits, "why"),
                        "its group was not invited to this round: 3 of 4 groups are, in turn; its "
                        "last one was round 1");
    asked = find(member(show_state(shown, NULL, 0), "boards"), "name", first);
    assert_string_equal(text(asked, "why"),
                        "in the round: its update is awaited; 3 of 4 groups are invited, in turn; "
                        "it was in none of the last 64 rounds");
}

static void a_rejected_update_is_an_alert_with_its_reason(void **state)
{
    struct shown *shown = *state;
    finish_round(&shown->world);
    const cJSON *alert = find(member(show_state(shown, NULL, 0), "alerts"), "kind", "rejected");
    assert_non_null(strstr(text(alert, "text"), "round 1: its update was rejected: "));
}

static void between_two_rounds_the_version_is_being_made(void **state)
{
    static struct cn_live_state live = {.running = true, .phase = CN_RUN_MEASURE};
    static struct cn_round_view view = {.round = {.number = 3, .state = CN_LEDGER_MERGED}};
    static const struct cn_ledger_board board = {.name = "a", .group = "north"};
    const struct cn_live_board found = {.heard_ms = 1000};
    const struct cn_reason_facts facts = {.view = &view, .live = &live, .now_ms = 1000};
    struct cn_reason reason = cn_reason_of(&facts, &board, &found);
    char said[CN_REASON_SIZE];
    (void)state;
    cn_reason_text(&reason, 1000, true, said);
    assert_string_equal(said, "no round is open: the version is being made");
    live.phase = CN_RUN_GATHER;
    assert_string_equal(cn_reason_word(cn_reason_of(&facts, &board, &found).kind), "waiting");
    live.phase = CN_RUN_OPEN; // what the file said before the version was made
    assert_string_equal(cn_reason_word(cn_reason_of(&facts, &board, &found).kind), "merging");
}

static void a_full_disk_is_known_to_be_full(void **state)
{
    (void)state;
    assert_int_equal(cn_show_disk_free("/proc"), 1); // which has no blocks at all
    assert_int_equal(cn_show_disk_free("/nowhere/at/all"), 0);
}

static void nobody_misses_a_board_when_the_run_is_over(void **state)
{
    static struct cn_live_state live = {.running = true, .phase = CN_RUN_ENDED};
    static struct cn_round_view view;
    static const struct cn_ledger_board board = {.name = "a", .group = "north"};
    static struct cn_round_error said = {"a", "labels.npy: not found"};
    const struct cn_reason_facts facts = {.view = &view, .live = &live, .now_ms = 1000};
    (void)state;
    assert_string_equal(cn_reason_word(cn_reason_of(&facts, &board, NULL).kind), "never");
    view.end_reason = "all rounds are done";
    assert_string_equal(cn_reason_word(cn_reason_of(&facts, &board, NULL).kind), "gone");
    view.errors = &said;
    view.error_count = 1;
    assert_string_equal(cn_reason_word(cn_reason_of(&facts, &board, NULL).kind), "never");
}

// When the aggregator has stopped, its ledger still has what ailed the boards.
static void the_last_error_of_a_board_outlives_the_aggregator(void **state)
{
    static struct cn_live_state live;
    static struct cn_round_error said = {"a", "labels.npy: not found"};
    static struct cn_round_view view = {.errors = &said, .error_count = 1};
    static const struct cn_ledger_board board = {.name = "a", .group = "north"};
    const struct cn_reason_facts facts = {.view = &view, .live = &live, .now_ms = 1000};
    struct cn_reason reason = cn_reason_of(&facts, &board, NULL);
    char sentence[CN_REASON_SIZE];
    (void)state;
    cn_reason_text(&reason, 1000, true, sentence);
    assert_string_equal(sentence, "the aggregator is not running; its last error was: "
                                  "labels.npy: not found");
    view.end_reason = "all rounds are done";
    reason = cn_reason_of(&facts, &board, NULL);
    cn_reason_text(&reason, 1000, true, sentence);
    assert_string_equal(sentence, "the run is over; its last error was: labels.npy: not found");
}

static void a_board_apart_from_its_group_is_named_by_the_rejection(void **state)
{
    struct shown *shown = *state;
    finish_round(&shown->world);
    assert_int_equal(
        cn_tally_reject(shown->world.ledger, "z-apart", 1, cn_run_refusal_text(CN_REFUSAL_OTHER)),
        CN_OK);
    const cJSON *alert, *alerts = member(show_state(shown, NULL, 0), "alerts");
    bool said = false;
    cJSON_ArrayForEach(alert, alerts) said =
        said || strstr(text(alert, "text"), "a board trains apart from its group");
    assert_true(said);
}

static void a_rejection_of_a_late_update_is_an_alert(void **state)
{
    struct shown *shown = *state;
    world_refuse_old(&shown->world, "a", "b");
    const cJSON *alert = find(member(show_state(shown, NULL, 0), "alerts"), "kind", "rejected");
    assert_string_equal(text(alert, "group"), "a");
    assert_non_null(strstr(text(alert, "text"), "round 1: its update was rejected: "));
}

static void a_group_that_the_robust_rule_refuses_is_an_alert(void **state)
{
    struct shown *shown = *state;
    uint32_t in_a_row;
    shown->world.job.robust.rule = CN_ROBUST_MULTI_KRUM;
    for (uint32_t round = 1; round <= CN_TALLY_REFUSED; round++) {
        const cJSON *item, *alerts = member(show_state(shown, NULL, 0), "alerts");
        cJSON_ArrayForEach(item, alerts) assert_string_not_equal(text(item, "kind"), "distrusted");
        assert_int_equal(cn_tally_judge(shown->world.ledger, "b", round, 0.25, true, &in_a_row),
                         CN_OK);
    }
    const cJSON *alert = find(member(show_state(shown, NULL, 0), "alerts"), "kind", "distrusted");
    assert_string_equal(text(alert, "level"), "warning");
    assert_string_equal(text(alert, "group"), "b");
    assert_string_equal(text(alert, "text"), "the robust rule refused its last 5 updates; that of "
                                             "round 5 counted for 25 %");
    assert_int_equal(cn_show_board(look(shown), "b", &shown->out), CN_OK);
    const cJSON *group = member(parse(shown), "group");
    assert_int_equal(number(group, "judged_round"), 5);
    assert_int_equal(100 * number(group, "factor"), 25);
    assert_int_equal(number(group, "refused_in_a_row"), 5);
}

static void a_hostile_text_of_a_board_is_harmless(void **state)
{
    struct shown *shown = *state;
    cn_roster_blame(shown->world.roster, "b", HOSTILE, 0, world_now_ms);
    const cJSON *root = show_state(shown, NULL, 0);
    for (size_t i = 0; i < shown->out.size; i++)
        if (shown->out.data[i] < ' ' || strchr("<>&\x7f", shown->out.data[i]))
            fail_msg("byte %u at %zu", shown->out.data[i], i);
    const cJSON *board = find(member(root, "boards"), "name", "b");
    assert_string_equal(text(board, "state"), "failed");
    assert_string_equal(text(board, "why"), "error: </script><img src=x onerror=alert(1)> "
                                            "?[31m ?? \"'&=cmd");
    const cJSON *alert = find(member(root, "alerts"), "board", "b");
    assert_string_equal(text(alert, "level"), "error");
    assert_string_equal(text(alert, "kind"), "failed");
}

static void bytes_that_are_no_text_become_replacement_characters(void **state)
{
    struct cn_buffer out;
    struct cn_json_text json;
    (void)state;
    cn_buffer_init(&out, 1000);
    cn_json_text_init(&json, &out);
    cn_json_open(&json, NULL, '[');
    cn_json_string(&json, NULL, "\xc3\xa4\xff\xe2\x80\xa8\x01\"\\<");
    cn_json_real(&json, NULL, 1.0 / 0.0);
    cn_json_close(&json, ']');
    assert_int_equal(json.err, CN_OK);
    assert_int_equal(cn_buffer_append(&out, "", 1), CN_OK);
    assert_string_equal((char *)out.data,
                        "[\"\xc3\xa4\\ufffd\\u2028\\u0001\\u0022\\u005c\\u003c\",null]");
    cn_buffer_deinit(&out);
}

static void only_boards_that_changed_are_told_again(void **state)
{
    struct shown *shown = *state;
    struct cn_show_tracker tracker = {0};
    const cJSON *root = show_state(shown, &tracker, 0);
    uint64_t seq = (uint64_t)number(root, "seq");
    assert_int_equal(cJSON_GetArraySize(member(root, "boards")), 4);
    assert_true(cJSON_IsTrue(member(root, "boards_all")));

    root = show_state(shown, &tracker, seq);
    assert_int_equal(cJSON_GetArraySize(member(root, "boards")), 0);
    assert_false(cJSON_IsTrue(member(root, "boards_all")));
    assert_int_equal(number(root, "boards_count"), 4);
    assert_int_equal(number(root, "seq"), seq);

    cn_roster_blame(shown->world.roster, "c", "no data", 0, world_now_ms);
    root = show_state(shown, &tracker, seq);
    assert_int_equal(cJSON_GetArraySize(member(root, "boards")), 1);
    assert_string_equal(text(cJSON_GetArrayItem(member(root, "boards"), 0), "name"), "c");

    root = show_state(shown, &tracker, seq + 1000); // of another gateway
    assert_int_equal(cJSON_GetArraySize(member(root, "boards")), 4);
    cn_show_tracker_deinit(&tracker);
}

static void a_running_gateway_and_its_file_say_the_same(void **state)
{
    struct shown *shown = *state;
    struct cn_run_state run = {.phase = CN_RUN_OPEN, .remaining_ms = 1234};
    char path[128], *live;
    cn_roster_blame(shown->world.roster, "c", HOSTILE, 0, world_now_ms);
    look(shown);
    shown->live.remaining_ms = run.remaining_ms;
    assert_int_equal(cn_show_state(&shown->source, NULL, 0, &shown->out), CN_OK);
    live = strndup((char *)shown->out.data, shown->out.size);
    cn_status_deinit(&shown->live);
    assert_int_equal(
        cn_status_write(shown->world.directory, shown->world.roster, &run, world_now_ms), CN_OK);
    assert_int_equal(cn_status_read(shown->world.directory, world_now_ms, &shown->live), CN_OK);
    snprintf(path, sizeof(path), "%s/%s", shown->world.directory, CN_STATUS_FILE);
    unlink(path);
    assert_int_equal(shown->live.opened_ms, cn_roster_opened_ms(shown->world.roster));
    shown->out.size = 0;
    assert_int_equal(cn_show_state(&shown->source, NULL, 0, &shown->out), CN_OK);
    assert_int_equal(cn_buffer_append(&shown->out, "", 1), CN_OK);
    assert_string_equal((char *)shown->out.data, live);
    free(live);
}

static void a_board_is_shown_with_its_newest_rounds(void **state)
{
    struct shown *shown = *state;
    finish_round(&shown->world);
    assert_int_equal(cn_show_board(look(shown), "a", &shown->out), CN_OK);
    const cJSON *root = parse(shown);
    assert_string_equal(text(member(root, "board"), "name"), "a");
    assert_int_equal(text(member(root, "group"), "signs")[0], sign_of(&shown->world, 1, "a"));
    assert_int_equal(cn_show_board(look(shown), "nobody", &shown->out), CN_ENOTFOUND);
    assert_int_equal(cn_show_board(look(shown), "../x", &shown->out), CN_ENOTFOUND);
}

static void a_full_buffer_is_an_error(void **state)
{
    struct shown *shown = *state;
    show_state(shown, NULL, 0);
    const size_t whole = shown->out.size;
    for (size_t limit = 0; limit < whole; limit += 7) {
        struct cn_buffer small;
        cn_buffer_init(&small, limit);
        assert_int_equal(cn_show_state(look(shown), NULL, 0, &small), CN_ERANGE);
        cn_buffer_deinit(&small);
    }
}

static void assert_holds(const struct cn_buffer *out, const char *words)
{
    if (!memmem(out->data, out->size, words, strlen(words)))
        fail_msg("'%s' is not in:\n%.*s", words, (int)out->size, (const char *)out->data);
}

static void a_spreadsheet_runs_no_text_of_a_board(void **state)
{
    struct shown *shown = *state;
    cn_roster_blame(shown->world.roster, "a", "=cmd|' /C calc'!A0", 0, world_now_ms);
    cn_roster_blame(shown->world.roster, "b", "@\"SUM\"(1,2)", 0, world_now_ms);
    cn_roster_blame(shown->world.roster, "c", "a,b", 0, world_now_ms);
    cn_roster_blame(shown->world.roster, "d", "x;=1+1;y", 0, world_now_ms);
    assert_int_equal(cn_show_csv_boards(look(shown), &shown->out), CN_OK);
    assert_holds(&shown->out, "name,group,state,why,error,version,");
    assert_holds(&shown->out, "\r\na,a,failed,error: =cmd|' /C calc'!A0,\"'=cmd|' /C calc'!A0\",");
    assert_holds(&shown->out, ",\"'@\"\"SUM\"\"(1,2)\",");
    assert_holds(&shown->out, ",\"error: a,b\",\"a,b\",");
    assert_holds(&shown->out, ",\"error: x,=1+1,y\",\"x,=1+1,y\",");
    assert_null(memchr(shown->out.data, ';', shown->out.size));
}

static void the_history_is_a_line_for_each_version(void **state)
{
    struct shown *shown = *state;
    finish_round(&shown->world);
    assert_int_equal(cn_show_csv_rounds(look(shown), &shown->out), CN_OK);
    size_t lines = 0;
    for (size_t i = 0; i < shown->out.size; i++)
        lines += shown->out.data[i] == '\n';
    assert_int_equal(lines, 3);
    assert_holds(&shown->out, "\r\n0,0.8,1,");
}

// Writes a version that the gate refused, or that went back, as the run does.
static void rule(struct shown *shown, uint32_t number, enum cn_ruling_kind kind, const char *reason)
{
    struct cn_ledger *ledger = shown->world.ledger;
    struct cn_ruling ruling = {.version = number, .kind = kind, .source = 1};
    struct cn_ledger_version version;
    assert_int_equal(cn_ledger_find_version(ledger, 1, &version), CN_OK);
    version.number = number;
    version.digest[0] ^= (uint8_t)number;
    snprintf(ruling.reason, sizeof(ruling.reason), "%s", reason);
    assert_int_equal(cn_ruling_add(ledger, &version, &ruling), CN_OK);
}

static void rulings_are_shown_and_refusals_in_a_row_are_an_alert(void **state)
{
    struct shown *shown = *state;
    finish_round(&shown->world);
    rule(shown, 2, CN_RULING_ROLLBACK, "<b>it got worse</b>");
    rule(shown, 3, CN_RULING_REFUSED, "its loss is 5");
    const cJSON *item, *root = show_state(shown, NULL, 0);
    cJSON_ArrayForEach(item, member(root, "alerts"))
    {
        assert_string_not_equal(text(item, "kind"), "refused"); // one may happen
    }
    rule(shown, 4, CN_RULING_REFUSED, "its loss is 6");
    root = show_state(shown, NULL, 0);
    item = find(member(root, "alerts"), "kind", "refused");
    assert_string_equal(text(item, "level"), "error");
    assert_string_equal(text(item, "text"), "the gate refused the newest 2 versions in a row; "
                                            "version 4: its loss is 6");
    root = show_versions(shown, 1);
    const cJSON *versions = member(root, "versions");
    assert_null(cJSON_GetObjectItemCaseSensitive(cJSON_GetArrayItem(versions, 0), "ruling"));
    item = member(cJSON_GetArrayItem(versions, 1), "ruling");
    assert_string_equal(text(item, "kind"), "rollback");
    assert_string_equal(text(item, "reason"), "<b>it got worse</b>");
    assert_int_equal((int)number(item, "source"), 1);
    item = member(cJSON_GetArrayItem(versions, 2), "ruling");
    assert_string_equal(text(item, "kind"), "refused");
}

// A silent board is told of after two minutes, and so is one that was not heard since the start.
static void boards_that_are_not_heard_are_alerts(void **state)
{
    struct shown *shown = *state;
    assert_int_equal(world_enroll(&shown->world, "e", "e", 0), CN_OK);
    assert_int_equal(cn_roster_refresh(shown->world.roster, NULL, NULL), CN_OK);
    const cJSON *root = show_state(shown, NULL, 0);
    const cJSON *board = find(member(root, "boards"), "name", "e");
    assert_string_equal(text(board, "state"), "expected");
    assert_string_equal(text(board, "why"), "not heard yet: the aggregator has just started");
    assert_int_equal(cJSON_GetArraySize(member(root, "alerts")), 0);
    assert_string_equal(text(find(member(root, "boards"), "name", "b"), "state"), "awaited");
    world_now_ms += CN_REASON_SILENT_MS + 1;
    root = show_state(shown, NULL, 0);
    assert_string_equal(text(find(member(root, "alerts"), "kind", "never"), "board"), "e");
    assert_string_equal(text(find(member(root, "boards"), "name", "b"), "state"), "silent");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(signs_are_those_of_the_ledger, open_round, close_world),
        cmocka_unit_test_setup_teardown(
            a_group_that_waits_for_its_turn_is_told_when_the_last_one_was, open_round, close_world),
        cmocka_unit_test_setup_teardown(a_group_that_the_robust_rule_refuses_is_an_alert,
                                        open_round, close_world),
        cmocka_unit_test(between_two_rounds_the_version_is_being_made),
        cmocka_unit_test(a_full_disk_is_known_to_be_full),
        cmocka_unit_test(nobody_misses_a_board_when_the_run_is_over),
        cmocka_unit_test(the_last_error_of_a_board_outlives_the_aggregator),
        cmocka_unit_test_setup_teardown(a_board_apart_from_its_group_is_named_by_the_rejection,
                                        open_round, close_world),
        cmocka_unit_test_setup_teardown(a_rejected_update_is_an_alert_with_its_reason, open_round,
                                        close_world),
        cmocka_unit_test_setup_teardown(a_rejection_of_a_late_update_is_an_alert, open_round,
                                        close_world),
        cmocka_unit_test_setup_teardown(a_hostile_text_of_a_board_is_harmless, open_round,
                                        close_world),
        cmocka_unit_test(bytes_that_are_no_text_become_replacement_characters),
        cmocka_unit_test_setup_teardown(only_boards_that_changed_are_told_again, open_round,
                                        close_world),
        cmocka_unit_test_setup_teardown(a_running_gateway_and_its_file_say_the_same, open_round,
                                        close_world),
        cmocka_unit_test_setup_teardown(a_board_is_shown_with_its_newest_rounds, open_round,
                                        close_world),
        cmocka_unit_test_setup_teardown(a_full_buffer_is_an_error, open_round, close_world),
        cmocka_unit_test_setup_teardown(a_spreadsheet_runs_no_text_of_a_board, open_round,
                                        close_world),
        cmocka_unit_test_setup_teardown(the_history_is_a_line_for_each_version, open_round,
                                        close_world),
        cmocka_unit_test_setup_teardown(rulings_are_shown_and_refusals_in_a_row_are_an_alert,
                                        open_round, close_world),
        cmocka_unit_test_setup_teardown(boards_that_are_not_heard_are_alerts, open_round,
                                        close_world),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
