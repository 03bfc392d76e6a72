// The parent of a board's members, where the system has no process left for one.
#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
// cmocka.h needs the four above.
#include <cmocka.h>
#include <stdio.h>
#include <unistd.h>

#include "runtime/command/command.h"
#include "runtime/command/node_gpus.h"

static unsigned forks, runs;

// In place of the C library's. The program is told to stop with the last one.
pid_t fork(void)
{
    if (++forks == 2)
        raise(SIGTERM);
    errno = EAGAIN;
    return -1;
}

static int run(void *context, uint32_t place)
{
    (void)context;
    (void)place;
    runs++;
    return CN_EXIT_FAILED;
}

static void name(void *context, uint32_t place, char *text, uint32_t size)
{
    (void)context;
    snprintf(text, size, "board-1.%u", place);
}

static void the_parent_becomes_no_member_where_none_can_be_started(void **state)
{
    (void)state;
    assert_int_equal(cn_command_run_each(2, run, name, NULL), CN_EXIT_INTERRUPTED);
    assert_int_equal(forks, 2);
    assert_int_equal(runs, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_parent_becomes_no_member_where_none_can_be_started),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
