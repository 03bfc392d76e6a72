// Commands of the control service on a real ledger: done once, as a whole or not at all.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
// cmocka.h needs the four above.
#include <cmocka.h>

#include <sys/wait.h>

#include "aggregator/control/control.h"
#include "aggregator/ledger/ledger_sql.h"
#include "aggregator/ledger/staleness.h"
#include "aggregator/store/audit.h"
#include "runtime/port/platform.h"
#include "tests/unit/aggregator_world.h"
#include "transport/local/local_client.h"
#include "transport/local/local_listen.h"

#define KEY "5555555555555555555555555555555555555555555555555555555555555555"
#define OTHER_KEY "6666666666666666666666666666666666666666666666666666666666666666"

static struct cn_control_answer answer;

static int begin(void **state)
{
    static struct aggregator_world world;
    world_init(&world);
    assert_int_equal(world_enroll(&world, "a", "a", 0), CN_OK);
    assert_int_equal(cn_ledger_open(world.directory, &world.ledger), CN_OK);
    *state = &world;
    return 0;
}

static int end(void **state)
{
    static const char *const files[] = {"/" CN_AUDIT_FILE, ".revocations"};
    struct aggregator_world *world = *state;
    char path[128];
    for (size_t i = 0; i < 2; i++) {
        snprintf(path, sizeof(path), "%s%s", world->directory, files[i]);
        unlink(path);
    }
    world_deinit(world);
    return 0;
}

// Carries out the request in a line. Returns whether it was done.
static bool carry_out(const struct aggregator_world *world, const char *line)
{
    const struct cn_control_config config = {.state = world->directory, .job = &world->job};
    struct cn_control_request request;
    char reason[CN_CONTROL_REASON];
    assert_int_equal(cn_control_request_parse(line, strlen(line), &request, reason), CN_OK);
    cn_control_alone(&config, &request, &answer);
    return answer.ok;
}

static bool is_enrolled(const struct aggregator_world *world, const char *name)
{
    struct cn_ledger_board found;
    cn_err err = cn_ledger_find_board(world->ledger, name, &found);
    assert_true(!err || err == CN_ENOTFOUND);
    return !err && !found.revoked;
}

static uint64_t epoch_of(const struct aggregator_world *world, const char *group)
{
    uint64_t epoch;
    assert_int_equal(cn_ledger_key_epoch(world->ledger, group, &epoch), CN_OK);
    return epoch;
}

// What a kill between a command and its answer would part is undone together.
static void a_command_whose_answer_is_not_kept_did_not_happen(void **state)
{
    static const char enroll[] =
        "{\"id\":\"1\",\"command\":\"enroll\",\"board\":\"b\",\"key\":\"" KEY "\"}";
    static const char revoke[] = "{\"id\":\"2\",\"command\":\"revoke\",\"board\":\"a\"}";
    struct aggregator_world *world = *state;
    assert_int_equal(cn_ledger_sql_run(world->ledger, "CREATE TRIGGER lost BEFORE INSERT ON steered"
                                                      " BEGIN SELECT RAISE(ABORT,'lost'); END"),
                     CN_OK);
    assert_false(carry_out(world, enroll));
    assert_false(is_enrolled(world, "b"));
    assert_false(carry_out(world, revoke));
    assert_true(is_enrolled(world, "a"));
    assert_int_equal(cn_ledger_sql_run(world->ledger, "DROP TRIGGER lost"), CN_OK);
    assert_true(carry_out(world, enroll));
    assert_true(is_enrolled(world, "b"));
    assert_true(carry_out(world, revoke));
    assert_false(is_enrolled(world, "a"));
}

static void a_command_sent_again_is_known_on_another_way(void **state)
{
    struct aggregator_world *world = *state;
    char line[256];
    assert_true(carry_out(world, "{\"id\":\"1\",\"command\":\"revoke\",\"board\":\"a\"}"));
    uint64_t epoch = epoch_of(world, "a");
    snprintf(line, sizeof(line),
             "{\"state\":\"%s\",\"board\":\"a\",\"command\":\"revoke\",\"id\":\"1\"}",
             world->directory);
    assert_true(carry_out(world, line));
    assert_string_equal(answer.text, "revoked a");
    assert_int_equal(epoch_of(world, "a"), epoch);
    assert_false(carry_out(world, "{\"id\":\"1\",\"command\":\"revoke\",\"board\":\"b\"}"));
    assert_string_equal(answer.text, "id: it was the id of another command");
}

static void a_board_that_is_enrolled_with_this_key_is_no_conflict(void **state)
{
    struct aggregator_world *world = *state;
    assert_true(carry_out(
        world, "{\"id\":\"1\",\"command\":\"enroll\",\"board\":\"b\",\"key\":\"" KEY "\"}"));
    assert_true(carry_out(
        world, "{\"id\":\"2\",\"command\":\"enroll\",\"board\":\"b\",\"key\":\"" KEY "\"}"));
    assert_string_equal(answer.text, "enrolled b in group b");
    assert_int_equal(epoch_of(world, "b"), 0);
    assert_false(carry_out(
        world, "{\"id\":\"3\",\"command\":\"enroll\",\"board\":\"b\",\"key\":\"" OTHER_KEY "\"}"));
    assert_non_null(strstr(answer.text, "b is enrolled already, in group b"));
    assert_false(carry_out(world, "{\"id\":\"4\",\"command\":\"enroll\",\"board\":\"b\",\"group\":"
                                  "\"c\",\"key\":\"" KEY "\"}"));
}

static void a_board_moves_when_its_update_of_an_asynchronous_run_is_there(void **state)
{
    static const struct cn_staleness_begun begun = {.group = "a", .round = 3};
    struct aggregator_world *world = *state;
    world->job.async.mode = CN_ROUNDS_ASYNCHRONOUS;
    assert_int_equal(cn_staleness_begin(world->ledger, &begun, 1), CN_OK);
    assert_false(
        carry_out(world, "{\"id\":\"1\",\"command\":\"move\",\"board\":\"a\",\"group\":\"z\"}"));
    assert_non_null(strstr(answer.text, "group a trains from version 2"));
    assert_int_equal(cn_staleness_expire(world->ledger, 4), CN_OK); // nobody waits any more
    assert_true(
        carry_out(world, "{\"id\":\"2\",\"command\":\"move\",\"board\":\"a\",\"group\":\"z\"}"));
    assert_string_equal(answer.text, "a is in group z now; it was in a");
}

// Asks over the socket, from another process. Returns what was answered.
static const char *ask(struct aggregator_world *world, struct cn_control *control, const char *line)
{
    static char said[1024];
    size_t got = 0;
    int ends[2], status;
    assert_int_equal(pipe(ends), 0);
    pid_t child = fork();
    if (child == 0) {
        struct cn_buffer out;
        int descriptor;
        cn_buffer_init(&out, CN_LOCAL_ANSWER_MAX + 1);
        cn_err err = cn_local_connect(world->directory, CN_CONTROL_SOCKET, &descriptor);
        if (!err)
            err = cn_local_ask(descriptor, line, 10000, &out);
        _exit(err || write(ends[1], out.data, out.size) != (ssize_t)out.size);
    }
    close(ends[1]);
    while (waitpid(child, &status, WNOHANG) == 0) {
        cn_control_step(control, ++world_now_ms);
        cn_platform_sleep_ms(1);
    }
    assert_int_equal(status, 0);
    ssize_t size = read(ends[0], said, sizeof(said) - 1);
    got = size > 0 ? (size_t)size : 0;
    said[got] = '\0';
    close(ends[0]);
    return said;
}

// Where no submitted job can be found, the gateway's own run is not changed in its place.
static void a_command_about_a_job_is_never_one_about_the_gateway_s_own(void **state)
{
    struct aggregator_world *world = *state;
    const struct cn_control_config config = {.state = world->directory, .job = &world->job};
    struct cn_control *control;
    assert_int_equal(cn_control_open(&config, &control), CN_OK);
    const char *said =
        ask(world, control,
            "{\"id\":\"1\",\"command\":\"extend-round\",\"job\":\"next\",\"duration_ms\":1000}");
    assert_non_null(strstr(said, "the run of job next is not open now"));
    cn_control_close(control);
}

#define IN_WORLD(test) cmocka_unit_test_setup_teardown(test, begin, end)

int main(void)
{
    const struct CMUnitTest tests[] = {
        IN_WORLD(a_command_whose_answer_is_not_kept_did_not_happen),
        IN_WORLD(a_command_sent_again_is_known_on_another_way),
        IN_WORLD(a_board_that_is_enrolled_with_this_key_is_no_conflict),
        IN_WORLD(a_board_moves_when_its_update_of_an_asynchronous_run_is_there),
        IN_WORLD(a_command_about_a_job_is_never_one_about_the_gateway_s_own),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
