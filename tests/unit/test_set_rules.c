#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
// cmocka.h needs the four above.
#include <cmocka.h>

#include <string.h>

#include "runtime/profile/notation/set_rules.h"

static bool is_in(const struct cn_set_rules *rules, const char *set, const char *board)
{
    const struct cn_set_rule *rule = cn_set_rules_find(rules, set);
    struct cn_rule_facts facts = {.name = board, .address = "10.0.0.1:1", .phase = ""};

    assert_non_null(rule);
    return cn_set_rule_holds(rule, &facts);
}

static void a_set_is_a_list_or_a_rule(void **state)
{
    static struct cn_set_rules rules;
    char reason[CN_DIAG_LINE_SIZE];

    (void)state;
    assert_int_equal(cn_set_rules_add("first: [a b]; other: name != a", reason, &rules), CN_OK);
    assert_int_equal(rules.count, 2);
    assert_true(is_in(&rules, "first", "a") && is_in(&rules, "first", "b"));
    assert_false(is_in(&rules, "first", "c"));
    assert_true(is_in(&rules, "other", "b"));
    assert_false(is_in(&rules, "other", "a"));
    assert_null(cn_set_rules_find(&rules, "third"));
}

static void a_set_that_comes_later_replaces_one_of_its_name(void **state)
{
    static struct cn_set_rules rules;
    char reason[CN_DIAG_LINE_SIZE];

    (void)state;
    assert_int_equal(cn_set_rules_add("first: [a]", reason, &rules), CN_OK);
    assert_int_equal(cn_set_rules_add("first: [b]", reason, &rules), CN_OK);
    assert_int_equal(rules.count, 1);
    assert_true(is_in(&rules, "first", "b"));
    assert_false(is_in(&rules, "first", "a"));
}

static void a_text_that_is_no_set_is_refused_by_name(void **state)
{
    static const struct {
        const char *text, *reason;
    } mistakes[] = {
        {"big: data.digits >= 5", "set 'big': data.NAME is for rounds.select only"},
        {"a", "set 'a': wanted NAME: RULE"},
        {"A: name == b", "set 'A': is not a valid name"},
        {"a: memry > 1", "set 'a': at 'memry': wanted a fact"},
        {"a: []", "set 'a': wanted a list of boards"},
        {"a: [b", "set 'a': wanted a list of boards"},
        {"a: [b] c", "set 'a': wanted a list of boards"},
        {"a: [B]", "set 'a': a board's name is not valid"},
        {"a: [1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17]", "set 'a': too many boards"},
        {"1: [a]; 2: [a]; 3: [a]; 4: [a]; 5: [a]; 6: [a]; 7: [a]; 8: [a]; 9: [a]",
         "set '9': too many sets"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(mistakes) / sizeof(mistakes[0]); i++) {
        struct cn_set_rules rules = {0};
        char reason[CN_DIAG_LINE_SIZE];

        assert_int_equal(cn_set_rules_add(mistakes[i].text, reason, &rules), CN_EINVAL);
        if (!strstr(reason, mistakes[i].reason))
            fail_msg("'%s': %s", mistakes[i].text, reason);
    }
}

static void a_phase_lasts_until_the_next_begins(void **state)
{
    static const char phases[] = "late=8 early=2";
    char phase[CN_NAME_SIZE];

    (void)state;
    cn_phase_of(phases, 1, phase);
    assert_string_equal(phase, "");
    cn_phase_of(phases, 2, phase);
    assert_string_equal(phase, "early");
    cn_phase_of(phases, 7, phase);
    assert_string_equal(phase, "early");
    cn_phase_of(phases, 8, phase);
    assert_string_equal(phase, "late");
    cn_phase_of("broken late=x =3", 9, phase);
    assert_string_equal(phase, "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_set_is_a_list_or_a_rule),
        cmocka_unit_test(a_set_that_comes_later_replaces_one_of_its_name),
        cmocka_unit_test(a_text_that_is_no_set_is_refused_by_name),
        cmocka_unit_test(a_phase_lasts_until_the_next_begins),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
