// What is said about commands and options that are not known.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <getopt.h>

#include "runtime/command/misspelling.h"
#include "tests/unit/log_capture.h"

static int read_options(const struct cn_ports *ports, int argc, char **argv)
{
    static const struct option known[] = {
        {"rounds", required_argument, NULL, 'n'}, {"report", required_argument, NULL, 'r'}, {0}};
    (void)ports;
    optind = 0; // begins again
    while (getopt_long(argc, argv, "", known, NULL) != -1)
        ;
    return CN_EXIT_USAGE;
}

static const struct cn_command train = {
    .name = "train",
    .help = "Usage: x train [--report FILE]\n  --rounds N   so many\n",
    .run = read_options,
};
static const struct cn_command *const commands[] = {&train, NULL};

// Returns the number of lines that answer the command line, and of those that have the text.
static unsigned answer(const char *command, const char *argument, const char *text,
                       unsigned *with_text)
{
    struct log_capture capture;
    char program[] = "x", name[32], option[32];
    char *argv[] = {program, name, option, NULL};
    unsigned lines;
    snprintf(name, sizeof(name), "%s", command);
    snprintf(option, sizeof(option), "%s", argument);
    log_capture_begin(&capture);
    int code = cn_command_dispatch(program, commands, NULL, 3, argv);
    lines = log_capture_end(&capture, text, with_text);
    assert_int_equal(code, CN_EXIT_USAGE);
    return lines;
}

static void expect_answer(const char *command, const char *argument, unsigned lines,
                          const char *text)
{
    unsigned found;
    assert_int_equal(answer(command, argument, text, &found), lines);
    assert_int_equal(found, 1);
}

static void a_command_that_is_misspelt_is_answered_with_the_right_one(void **state)
{
    (void)state;
    expect_answer("trian", "y", 1, "'trian' is not a command; did you mean 'train'? 'x --help'");
    expect_answer("absolutely", "y", 1, "'absolutely' is not a command; 'x --help' lists them");
}

static void the_error_about_an_option_is_followed_by_a_hint(void **state)
{
    static const char *const cases[][2] = {
        {"--ruonds", "did you mean '--rounds'? 'x train --help' lists the options\n"},
        {"--repot=a", "did you mean '--report'? 'x train --help' lists the options\n"},
        {"--absolutely", "'x train --help' lists the options\n"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        expect_answer("train", cases[i][0], 2, "x train: unrecognized option");
        expect_answer("train", cases[i][0], 2, cases[i][1]);
    }
}

static void known_options_are_not_spoken_of(void **state)
{
    unsigned found;
    (void)state;
    assert_int_equal(answer("train", "--rep=a", "", &found), 0); // the beginning of an option
    assert_int_equal(answer("train", "-", "", &found), 0);
    expect_answer("train", "--rounds", 1, "requires an argument"); // getopt's error is enough
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_command_that_is_misspelt_is_answered_with_the_right_one),
        cmocka_unit_test(the_error_about_an_option_is_followed_by_a_hint),
        cmocka_unit_test(known_options_are_not_spoken_of),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
