// Curves in a line of text, and times that are left.
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "runtime/command/terminal/screen.h"
#include "runtime/command/terminal/sparkline.h"

static void a_curve_goes_from_the_lowest_block_to_the_highest(void **state)
{
    const double values[] = {0, 1, 2, 3, 4, 5, 6, 7};
    char text[CN_SPARKLINE_SIZE];
    (void)state;
    cn_sparkline_draw(values, 8, 40, true, text);
    assert_string_equal(text, "▁▂▃▄▅▆▇█");
    cn_sparkline_draw(values, 8, 40, false, text);
    assert_string_equal(text, "_.-:=+*#");
}

static void a_column_is_the_mean_of_several_values(void **state)
{
    const double values[] = {0, 2, 8, 8, 0, 2};
    char text[CN_SPARKLINE_SIZE];
    (void)state;
    cn_sparkline_draw(values, 6, 3, false, text);
    assert_string_equal(text, "_#_");
}

static void what_is_not_known_is_a_gap(void **state)
{
    const double values[] = {NAN, 1, NAN, INFINITY, 2};
    const double none[] = {NAN, NAN};
    const double equal[] = {3, 3};
    char text[CN_SPARKLINE_SIZE];
    (void)state;
    cn_sparkline_draw(values, 5, 40, false, text);
    assert_string_equal(text, " _  #");
    cn_sparkline_draw(none, 2, 40, true, text);
    assert_string_equal(text, "  ");
    cn_sparkline_draw(equal, 2, 40, false, text);
    assert_string_equal(text, "==");
    cn_sparkline_draw(NULL, 0, 40, true, text);
    assert_string_equal(text, "");
}

static void a_curve_never_leaves_its_text(void **state)
{
    static double values[10 * CN_SPARKLINE_WIDTH];
    char text[CN_SPARKLINE_SIZE];
    (void)state;
    cn_sparkline_draw(values, 10 * CN_SPARKLINE_WIDTH, 5000, true, text);
    assert_int_equal(strlen(text), CN_SPARKLINE_SIZE - 1);
}

static void a_bar_is_filled_by_its_share(void **state)
{
    char text[CN_SPARKLINE_SIZE];
    (void)state;
    cn_sparkline_bar(0.5, 10, text);
    assert_string_equal(text, "[####....]");
    cn_sparkline_bar(7, 6, text);
    assert_string_equal(text, "[####]");
    cn_sparkline_bar(NAN, 6, text);
    assert_string_equal(text, "[....]");
    cn_sparkline_bar(1, 0, text);
    assert_string_equal(text, "[#]");
}

static void the_rest_takes_as_long_as_what_is_done(void **state)
{
    char text[CN_SCREEN_LEFT_SIZE];
    (void)state;
    cn_screen_time_left(30000, 1, 4, text);
    assert_string_equal(text, "about 90 s left");
    cn_screen_time_left(60000, 1, 6, text);
    assert_string_equal(text, "about 5 min left");
    cn_screen_time_left(3600000, 2, 20, text);
    assert_string_equal(text, "about 9 h left");
    cn_screen_time_left(86400000, 1, 1000000, text);
    assert_string_equal(text, "about 999999 days left");
    cn_screen_time_left(86400000, 1, UINT64_MAX, text);
    assert_int_equal(text[0], 'a');
}

static void nothing_is_said_of_a_time_that_is_not_known(void **state)
{
    char text[CN_SCREEN_LEFT_SIZE];
    (void)state;
    cn_screen_time_left(30000, 0, 4, text);
    assert_string_equal(text, "");
    cn_screen_time_left(30000, 4, 4, text);
    assert_string_equal(text, "");
    cn_screen_time_left(30000, 4, 0, text);
    assert_string_equal(text, "");
    cn_screen_time_left(900, 1, 2, text);
    assert_string_equal(text, "");
}

static void a_text_is_cut_between_characters(void **state)
{
    (void)state;
    assert_int_equal(cn_screen_fit("▁▂▃", 2), 6);
    assert_int_equal(cn_screen_fit("ab", 80), 2);
    assert_int_equal(cn_screen_fit("ab", 0), 0);
}

static void the_first_variable_that_is_set_says_which_characters_there_are(void **state)
{
    (void)state;
    setenv("LANG", "de_DE.UTF-8", 1);
    setenv("LC_CTYPE", "", 1);
    unsetenv("LC_ALL");
    assert_true(cn_screen_has_blocks());
    setenv("LC_ALL", "C", 1);
    assert_false(cn_screen_has_blocks());
    setenv("LC_ALL", "C.utf8", 1);
    assert_true(cn_screen_has_blocks());
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_curve_goes_from_the_lowest_block_to_the_highest),
        cmocka_unit_test(a_column_is_the_mean_of_several_values),
        cmocka_unit_test(what_is_not_known_is_a_gap),
        cmocka_unit_test(a_curve_never_leaves_its_text),
        cmocka_unit_test(a_bar_is_filled_by_its_share),
        cmocka_unit_test(the_rest_takes_as_long_as_what_is_done),
        cmocka_unit_test(nothing_is_said_of_a_time_that_is_not_known),
        cmocka_unit_test(a_text_is_cut_between_characters),
        cmocka_unit_test(the_first_variable_that_is_set_says_which_characters_there_are),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
