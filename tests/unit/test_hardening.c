// The protections that the compiler adds to every program, as far as a running program shows them.
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "runtime/port/platform.h"

static volatile size_t room = 24, wanted = 25; // nothing that is known when this is compiled
static char *volatile kept;                    // so that nothing that is written there is left out

// A block of memory whose size is known only now: _FORTIFY_SOURCE=2 does not look at those.
static void write_beyond_a_block(void)
{
    char *block = malloc(room);

    kept = block;
    if (block)
        memset(block, 1, wanted);
    free(kept);
}

static void a_write_beyond_a_block_of_computed_size_ends_the_program(void **state)
{
    int status = 0;
    pid_t child;

    (void)state;
#if !defined(_FORTIFY_SOURCE) || _FORTIFY_SOURCE < 3
    skip();
#endif
    child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        cn_platform_hide_memory(); // no core of what is meant to fail
        signal(SIGABRT, SIG_DFL);
        (void)close(STDERR_FILENO);
        write_beyond_a_block();
        _exit(0);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status));
    assert_int_equal(WTERMSIG(status), SIGABRT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_write_beyond_a_block_of_computed_size_ends_the_program),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
