// What is printed of a profile, and the templates that a user edits.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit/profile_text.h"

static void a_printed_profile_loads_to_the_same(const char *path)
{
    struct cn_profile *profile = profile_load(path), *again;
    char *first = profile_print(profile, false), *second;

    again = profile_parse(first);
    second = profile_print(again, false);
    assert_string_equal(first, second);
    cn_profile_free(again);
    free(second);
    second = profile_print(profile, true);
    again = profile_parse(second); // comments do no harm
    cn_profile_free(again);
    free(second);
    free(first);
    cn_profile_free(profile);
}

static void every_good_profile_prints_to_what_loads_to_the_same(void **state)
{
    (void)state;
    a_printed_profile_loads_to_the_same("good-board-1.yaml");
    a_printed_profile_loads_to_the_same("good-gateway.yaml");
    a_printed_profile_loads_to_the_same("good-alone.yaml");
    a_printed_profile_loads_to_the_same("jobs/digits.yaml");
}

static void the_origin_of_each_value_is_printed(void **state)
{
    struct cn_profile *profile = profile_load("good-gateway.yaml");
    char *text = profile_print(profile, true);

    (void)state;
    assert_non_null(strstr(text, "deadline: 1 min                      # jobs/digits.yaml:10\n"));
    assert_non_null(strstr(text, "threads: all                             # default\n"));
    free(text);
    cn_profile_free(profile);
}

static void a_path_with_odd_characters_prints_and_loads(void **state)
{
    struct cn_profile *profile =
        profile_parse("schema: cairn/site/v1\nstate: '/a \"b\\: #c, {d}'\n");
    char *text = profile_print(profile, false);
    struct cn_profile *again = profile_parse(text);

    (void)state;
    assert_string_equal(cn_profile_settings(again)->state, "/a \"b\\: #c, {d}");
    cn_profile_free(again);
    free(text);
    cn_profile_free(profile);
}

static void a_template_loads_and_has_what_its_program_requires(void **state)
{
    static const struct cn_profile_entry entries[] = {
        {"extends", "generic-x86-64"},
        {"name", "null"}, // as a name it needs quotes
        {"memory.train_max", "2 GiB"},
        {"aggregator.address", "[\"a.lan:5684\", \"[fe80::7%eth0]:5684\"]"},
    };

    (void)state;
    for (int use = CN_PROFILE_TRAIN; use <= CN_PROFILE_GATEWAY; use++) {
        for (size_t count = 0; count <= 4; count += 4) {
            char *text = NULL;
            size_t size;
            FILE *stream = open_memstream(&text, &size);
            struct cn_profile *profile;

            assert_int_equal(cn_profile_template((enum cn_profile_use)use, entries, count, stream),
                             CN_OK);
            fclose(stream);
            profile = profile_parse(text);
            cn_diag_init(&diag);
            if (cn_profile_require(profile, (enum cn_profile_use)use, &diag))
                fail_msg("%s", cn_diag_first(&diag));
            if (count)
                assert_string_equal(cn_profile_settings(profile)->name, "null");
            cn_profile_free(profile);
            free(text);
        }
    }
}

// Takes "# " away from every line that is a key.
static void uncomment(char *text)
{
    char *to = text, *from = text;

    while (*from) {
        size_t length = strcspn(from, "\n");

        if (strncmp(from, "# ", 2) == 0 && memchr(from, ':', length)) {
            from += 2;
            length -= 2;
        }
        length += from[length] == '\n';
        memmove(to, from, length);
        to += length;
        from += length;
    }
    *to = '\0';
}

static void a_template_loads_with_all_comments_taken_away(void **state)
{
    static const struct cn_profile_entry entries[] = {{"job.update.down.mode", "topk"}};
    char *text = NULL;
    size_t size;
    FILE *stream;

    (void)state;
    for (int use = CN_PROFILE_TRAIN; use <= CN_PROFILE_GATEWAY; use++) {
        stream = open_memstream(&text, &size);
        assert_int_equal(cn_profile_template((enum cn_profile_use)use, entries,
                                             use == CN_PROFILE_GATEWAY, stream),
                         CN_OK);
        fclose(stream);
        uncomment(text);
        cn_profile_free(profile_parse(text));
        free(text);
    }
}

static void a_template_refuses_a_key_that_does_not_exist(void **state)
{
    static const struct cn_profile_entry entry = {"memory.max", "1 GiB"};

    (void)state;
    assert_int_equal(cn_profile_template(CN_PROFILE_NODE, &entry, 1, stdout), CN_EINVAL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_good_profile_prints_to_what_loads_to_the_same),
        cmocka_unit_test(the_origin_of_each_value_is_printed),
        cmocka_unit_test(a_path_with_odd_characters_prints_and_loads),
        cmocka_unit_test(a_template_loads_and_has_what_its_program_requires),
        cmocka_unit_test(a_template_loads_with_all_comments_taken_away),
        cmocka_unit_test(a_template_refuses_a_key_that_does_not_exist),
    };

    return cmocka_run_group_tests(tests, profile_enter_data, NULL);
}
