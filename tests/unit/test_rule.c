#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
// cmocka.h needs the four above.
#include <cmocka.h>

#include <string.h>

#include "runtime/profile/notation/rule.h"

static const struct cn_rule_facts facts = {
    .name = "board-1",
    .address = "10.1.2.7:7101",
    .board = {.memory_mib = 8192,
              .cores = 6,
              .arch = 87,
              .link_kbps = 940000,
              .battery = 40,
              .left_kib = 10240},
    .round = 21,
    .step = 3,
    .epoch = 48,
    .phase = "fine_tuning",
};

static bool holds(const char *text)
{
    char reason[CN_DIAG_LINE_SIZE];
    struct cn_rule rule;

    if (cn_rule_parse(text, reason, &rule))
        fail_msg("'%s': %s", text, reason);
    return cn_rule_holds(&rule, &facts);
}

static void facts_are_compared_with_their_units(void **state)
{
    (void)state;
    assert_true(holds("memory >= 8 GiB"));
    assert_false(holds("memory > 8 GiB"));
    assert_true(holds("memory < 8193 MiB"));
    assert_true(holds("cores == 6"));
    assert_true(holds("arch >= 8.7"));
    assert_false(holds("arch >= 9.0"));
    assert_true(holds("link > 100 Mbit/s"));
    assert_true(holds("battery >= 40"));
    assert_false(holds("battery > 40"));
    assert_true(holds("bytes >= 10 MiB"));
    assert_false(holds("bytes > 10 MiB"));
    assert_true(holds("gpu == cuda"));
    assert_true(holds("gpu != none"));
    assert_true(holds("name == board-1"));
    assert_true(holds("address == 10.1.2.0/24"));
    assert_false(holds("address == 10.1.3.0/24"));
    assert_true(holds("address == 0.0.0.0/0"));
    assert_true(holds("address == 10.1.2.7"));
    assert_true(holds("round > 20"));
    assert_true(holds("step <= 3"));
    assert_true(holds("epoch != 47"));
    assert_true(holds("phase == fine_tuning"));
}

static void conditions_combine_as_in_most_languages(void **state)
{
    (void)state;
    assert_true(holds("round > 20 and cores == 6"));
    assert_false(holds("round > 20 and cores == 5"));
    assert_true(holds("round > 30 or cores == 6"));
    assert_true(holds("not round > 30"));
    // and binds tighter than or; not tighter than both.
    assert_true(holds("cores == 6 or round > 30 and cores == 5"));
    assert_false(holds("(cores == 6 or round > 30) and cores == 5"));
    assert_false(holds("not cores == 6 and round > 30"));
    assert_true(holds("not (cores == 6 and round > 30)"));
    assert_true(holds("not not cores == 6"));
}

static void an_unknown_fact_makes_its_condition_false(void **state)
{
    const struct cn_rule_facts nothing = {.name = "x", .address = "host:1", .phase = ""};
    static const char *const rules[] = {
        "memory < 1 GiB",        "memory >= 1 GiB", "cores < 4",      "link < 1 Mbit/s",
        "address == 10.0.0.0/8", "phase == a",      "gpu == cuda",    "address != 10.0.0.0/8",
        "battery <= 100",        "bytes >= 0 B",    "data.digits < 5"};

    (void)state;
    for (size_t i = 0; i < sizeof(rules) / sizeof(rules[0]); i++) {
        char reason[CN_DIAG_LINE_SIZE];
        struct cn_rule rule;

        assert_int_equal(cn_rule_parse(rules[i], reason, &rule), CN_OK);
        assert_false(cn_rule_holds(&rule, &nothing));
    }
}

static void a_rule_tells_which_facts_it_needs(void **state)
{
    static const struct {
        const char *text;
        bool gpu, of_registration;
    } cases[] = {
        {"gpu == none", true, true},
        {"memory >= 1 GiB or not arch >= 8.7", true, true},
        {"memory >= 1 GiB and name != a", false, true},
        {"cores > 2 or link > 1 Mbit/s", false, false},
        {"cores > 2 or data.digits >= 100", false, false},
    };
    char reason[CN_DIAG_LINE_SIZE];
    struct cn_rule rule;

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        assert_int_equal(cn_rule_parse(cases[i].text, reason, &rule), CN_OK);
        assert_int_equal(cn_rule_needs_gpu(&rule), cases[i].gpu);
        assert_int_equal(cn_rule_is_of_registration(&rule), cases[i].of_registration);
    }
}

static void a_mistake_is_named_where_it_is(void **state)
{
    static const struct {
        const char *text, *reason;
    } mistakes[] = {
        {"", "at the end: wanted a fact"},
        {"data >= 5", "at 'data': wanted a fact"},
        {"data. >= 5", "at 'data.': wanted a fact"},
        {"data.a/b >= 5", "at 'data.a/b': wanted a fact"},
        {"data.a >= many", "'many' is not a number"},
        {"memry >= 1 GiB", "at 'memry': wanted a fact"},
        {"memory", "at the end: wanted =="},
        {"memory =< 1 GiB", "at '=': wanted =="},
        {"memory >=", "at the end: wanted a value for 'memory'"},
        {"memory >= 8", "'8 ' is not a number of bytes"},
        {"memory >= 8 GB/s", "'8 GB/s' is not a number of bytes"},
        {"cores > six", "'six' is not a number"},
        {"arch > 87", "wanted a compute capability"},
        {"arch > 8.75", "wanted a compute capability"},
        {"gpu == rocm", "wanted cuda or none"},
        {"name > board-1", "can be compared with == and != only"},
        {"address == 10.1.2.0/33", "wanted an IPv4 address"},
        {"address == host", "wanted an IPv4 address"},
        {"(cores == 6", "at the end: wanted )"},
        {"cores == 6 )", "at ')': wanted 'and' or 'or'"},
        {"cores == 6 cores == 7", "at 'cores': wanted 'and' or 'or'"},
        {"not", "at the end: wanted a fact"},
        {"((((((((((((((((((cores == 6", "nested more than 16 deep"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(mistakes) / sizeof(mistakes[0]); i++) {
        char reason[CN_DIAG_LINE_SIZE];
        struct cn_rule rule;

        assert_int_equal(cn_rule_parse(mistakes[i].text, reason, &rule), CN_EINVAL);
        if (!strstr(reason, mistakes[i].reason))
            fail_msg("'%s': %s", mistakes[i].text, reason);
    }
}

static void a_rule_with_too_many_parts_is_refused(void **state)
{
    char text[1024] = "cores == 1", reason[CN_DIAG_LINE_SIZE];
    struct cn_rule rule;

    (void)state;
    for (int i = 0; i < 11; i++)
        strcat(text, " or cores == 1");
    assert_int_equal(cn_rule_parse(text, reason, &rule), CN_OK);
    assert_int_equal(rule.count, 23);
    strcat(text, " or cores == 1");
    assert_int_equal(cn_rule_parse(text, reason, &rule), CN_EINVAL);
    assert_non_null(strstr(reason, "more than 24 parts"));
}

static void a_rule_knows_what_must_be_measured_and_when(void **state)
{
    char reason[CN_DIAG_LINE_SIZE];
    struct cn_rule rule;

    (void)state;
    assert_int_equal(cn_rule_parse("cores > 2 and round != 3", reason, &rule), CN_OK);
    assert_false(cn_rule_needs_step(&rule) || cn_rule_needs_link(&rule));
    assert_int_equal(cn_rule_parse("cores > 2 or not step < 5", reason, &rule), CN_OK);
    assert_true(cn_rule_needs_step(&rule));
    assert_int_equal(cn_rule_parse("link > 10 Mbit/s", reason, &rule), CN_OK);
    assert_true(cn_rule_needs_link(&rule));
    assert_false(cn_rule_needs_live(&rule));
    assert_int_equal(cn_rule_parse("cores > 2 or battery > 10", reason, &rule), CN_OK);
    assert_true(cn_rule_needs_live(&rule));
    assert_int_equal(cn_rule_parse("not bytes < 1 MiB", reason, &rule), CN_OK);
    assert_true(cn_rule_needs_live(&rule));
}

// Without a limit of the day any number of bytes is left.
static void a_board_without_a_limit_has_any_number_of_bytes_left(void **state)
{
    struct cn_rule_facts unlimited = {.name = "a", .board = {.left_kib = UINT32_MAX}};
    char reason[CN_DIAG_LINE_SIZE];
    struct cn_rule rule;

    (void)state;
    assert_int_equal(cn_rule_parse("bytes >= 8192 GiB", reason, &rule), CN_OK);
    assert_true(cn_rule_holds(&rule, &unlimited));
    unlimited.board.left_kib = 1;
    assert_false(cn_rule_holds(&rule, &unlimited));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(facts_are_compared_with_their_units),
        cmocka_unit_test(conditions_combine_as_in_most_languages),
        cmocka_unit_test(an_unknown_fact_makes_its_condition_false),
        cmocka_unit_test(a_rule_tells_which_facts_it_needs),
        cmocka_unit_test(a_mistake_is_named_where_it_is),
        cmocka_unit_test(a_rule_with_too_many_parts_is_refused),
        cmocka_unit_test(a_board_without_a_limit_has_any_number_of_bytes_left),
        cmocka_unit_test(a_rule_knows_what_must_be_measured_and_when),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
