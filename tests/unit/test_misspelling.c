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
    static const struct option known[] = {{"rounds", required_argument, NULL, 'n'},
                                          {"report", required_argument, NULL, 'r'},
                                          {"hidden", no_argument, NULL, 'h'},
                                          {0}};
    (void)ports;
    opterr = 0;
    optind = 0; // begins again
    optopt = '?';
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

// Says whether the command line is answered with exactly one line, which has the text.
static bool says(const char *command, const char *argument, const char *text)
{
    struct log_capture capture;
    char program[] = "x", name[32], option[32];
    char *argv[] = {program, name, option, NULL};
    unsigned found, lines;
    snprintf(name, sizeof(name), "%s", command);
    snprintf(option, sizeof(option), "%s", argument);
    log_capture_begin(&capture);
    int code = cn_command_dispatch(program, commands, NULL, 3, argv);
    lines = log_capture_end(&capture, text, &found);
    return code == CN_EXIT_USAGE && lines == 1 && found == 1;
}

static void a_command_that_is_misspelt_is_answered_with_the_right_one(void **state)
{
    (void)state;
    assert_true(says("trian", "y", "'trian' is not a command; did you mean 'train'? 'x --help'"));
    assert_true(says("absolutely", "y", "'absolutely' is not a command; 'x --help' lists them"));
}

static void an_option_that_is_misspelt_is_answered_with_the_right_one(void **state)
{
    (void)state;
    assert_true(says("train", "--ruonds", "--ruonds: did you mean '--rounds'? 'x train --help'"));
    assert_true(says("train", "--repot=a", "did you mean '--report'?"));
    assert_true(says("train", "--absolutely", "is no option of it; 'x train --help' lists"));
}

static void known_options_are_not_spoken_of(void **state)
{
    (void)state;
    assert_false(says("train", "--rounds", ""));
    assert_false(says("train", "--rep=a", ""));  // getopt takes the beginning of an option
    assert_false(says("train", "--hidden", "")); // of which the help does not speak
    assert_false(says("train", "-", ""));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_command_that_is_misspelt_is_answered_with_the_right_one),
        cmocka_unit_test(an_option_that_is_misspelt_is_answered_with_the_right_one),
        cmocka_unit_test(known_options_are_not_spoken_of),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
