// Keys of a terminal: which bytes mean what, and its modes before, meanwhile and after.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>
#include <unistd.h>

#include "runtime/command/terminal/keys.h"

static void the_bytes_of_a_terminal_are_keys(void **state)
{
    static const struct {
        const char *bytes;
        enum cn_key key;
        size_t used;
    } cases[] = {
        {"q", CN_KEY_QUIT, 1},          {" ", CN_KEY_PAUSE, 1},
        {"p", CN_KEY_PAUSE, 1},         {"k", CN_KEY_UP, 1},
        {"jj", CN_KEY_DOWN, 1},         {"\033[A", CN_KEY_UP, 3},
        {"\033[Bq", CN_KEY_DOWN, 3},    {"\033OA", CN_KEY_UP, 3},
        {"\033[5~", CN_KEY_PAGE_UP, 4}, {"\033[6~", CN_KEY_PAGE_DOWN, 4},
        {"\033[1;5A", CN_KEY_UP, 6},    {"\033[15~q", CN_KEY_OTHER, 5},
        {"\033q", CN_KEY_OTHER, 1},     {"\033", CN_KEY_OTHER, 1},
        {"\033[", CN_KEY_OTHER, 2},     {"\033[200", CN_KEY_OTHER, 5},
        {"\xc3\xa4", CN_KEY_OTHER, 1},  {"\032", CN_KEY_SUSPEND, 1},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        size_t used = 0;
        assert_int_equal(cn_keys_parse(cases[i].bytes, strlen(cases[i].bytes), &used),
                         cases[i].key);
        assert_int_equal(used, cases[i].used);
    }
}

static void without_a_terminal_there_are_no_keys(void **state)
{
    struct cn_keys keys = {0};
    int ends[2], input = dup(STDIN_FILENO);
    (void)state;
    assert_int_equal(pipe(ends), 0);
    assert_true(dup2(ends[0], STDIN_FILENO) >= 0);
    assert_false(cn_keys_open(&keys));
    cn_keys_close(&keys);
    if (input >= 0)
        assert_true(dup2(input, STDIN_FILENO) >= 0);
    close(input);
    close(ends[0]);
    close(ends[1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_bytes_of_a_terminal_are_keys),
        cmocka_unit_test(without_a_terminal_there_are_no_keys),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
