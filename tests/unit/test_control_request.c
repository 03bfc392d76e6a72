// Lines of a control socket: which are accepted and refused, and that no key reaches the audit.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
// cmocka.h needs the four above.
#include <cmocka.h>

#include <cjson/cJSON.h>
#include <stdio.h>
#include <string.h>

#include "aggregator/control/control_request.h"

static struct cn_control_request request;
static char reason[CN_CONTROL_REASON];

static cn_err parse(const char *line)
{
    return cn_control_request_parse(line, strlen(line), &request, reason);
}

static void a_request_is_read_with_its_members(void **state)
{
    (void)state;
    assert_int_equal(parse("{\"id\":\"x-1\",\"command\":\"drain\",\"group\":\"north\"}"), CN_OK);
    assert_string_equal(request.id, "x-1");
    assert_string_equal(request.command, "drain");
    assert_string_equal(request.group, "north");
    assert_int_equal(request.members, CN_CONTROL_GROUP);
    assert_int_equal(parse("{\"id\":\"2\",\"command\":\"pause\",\"now\":false}"), CN_OK);
    assert_false(request.now);
    assert_int_equal(request.members, CN_CONTROL_NOW);
    assert_int_equal(parse("{\"duration_ms\":90000,\"command\":\"extend-round\",\"id\":\"3\"}"),
                     CN_OK);
    assert_int_equal(request.duration_ms, 90000);
}

static void a_mistake_is_named_and_the_id_kept(void **state)
{
    static const struct {
        const char *line, *said;
    } cases[] = {
        {"", "no JSON object"},
        {"[]", "no JSON object"},
        {"{\"id\":\"a\",\"command\":\"x\"} {}", "no JSON object"},
        {"{\"command\":\"pause\"}", "has no id"},
        {"{\"id\":\"a\"}", "has no command"},
        {"{\"id\":\"a\",\"id\":\"b\",\"command\":\"x\"}", "id: expected"},
        {"{\"id\":\"a\",\"command\":\"x\",\"command\":\"y\"}", "command: expected"},
        {"{\"id\":\"a\",\"command\":\"a-name-of-more-than-24-bytes\"}", "command: expected"},
        {"{\"id\":\"q\\u0000z\",\"command\":\"pause\"}", "or holds \\u0000"},
        {"{\"id\":\"q\",\"command\":\"pause\",\"group\":\"a\\u0000\"}", "or holds \\u0000"},
        {"{\"id\":\"a\",\"command\":\"x\",\"now\":1}", "now: expected true or false"},
        {"{\"id\":\"a\",\"command\":\"x\",\"now\":true,\"now\":true}", "now: is there twice"},
        {"{\"id\":\"a\",\"command\":\"x\",\"board\":\"../x\"}", "board: expected a name"},
        {"{\"id\":\"a\",\"command\":\"x\",\"duration_ms\":1.5}", "duration_ms: expected a whole"},
        {"{\"id\":\"a\",\"command\":\"x\",\"duration_ms\":1e300}", "duration_ms: expected a whole"},
        {"{\"id\":\"a\",\"command\":\"x\",\"key\":\"00\"}", "key: expected 64"},
        {"{\"id\":\"a\",\"command\":\"x\",\"state\":\"a\\nb\"}", "state: expected a path"},
        {"{\"id\":\"a\",\"command\":\"x\",\"else\":{}}", "else: no request has this member"},
        {"{\"id\":\"a\",\"command\":\"x\",\"\\u001b[2J\":1}",
         "a member: no request has this member"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        assert_int_equal(parse(cases[i].line), CN_EFORMAT);
        if (!strstr(reason, cases[i].said))
            fail_msg("%s: '%s' was not said: %s", cases[i].line, cases[i].said, reason);
    }
    assert_int_equal(parse("{\"else\":1,\"id\":\"late\",\"command\":\"x\"}"), CN_EFORMAT);
    assert_string_equal(request.id, "late");
}

static void a_key_travels_and_is_not_shown(void **state)
{
    char line[256], key[2 * CN_KEY_SIZE + 1];
    uint8_t secret[CN_KEY_SIZE];
    (void)state;
    memset(secret, 0xa7, sizeof(secret));
    cn_hex(key, secret, sizeof(secret));
    snprintf(line, sizeof(line),
             "{\"id\":\"a\",\"command\":\"enroll\",\"board\":\"b\",\"key\":\"%s\"}", key);
    assert_int_equal(parse(line), CN_OK);
    assert_memory_equal(request.key, secret, sizeof(secret));
    char *whole = cn_control_request_print(&request);
    char *shown = cn_control_request_arguments(&request);
    assert_non_null(strstr(whole, key));
    assert_string_equal(shown, "{\"board\":\"b\"}");
    cJSON_free(whole);
    cJSON_free(shown);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_request_is_read_with_its_members),
        cmocka_unit_test(a_mistake_is_named_and_the_id_kept),
        cmocka_unit_test(a_key_travels_and_is_not_shown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
