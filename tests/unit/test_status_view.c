// A page on a terminal: which signals end it.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "aggregator/command/view/status_view.h"

static void note(int signal)
{
    (void)signal;
}

static bool is_handled_by(int signal, void (*handler)(int))
{
    struct sigaction action;
    return sigaction(signal, NULL, &action) == 0 && action.sa_handler == handler;
}

// Opens a page on a terminal, as after nohup. Returns whether signals are handled as wanted.
static bool opens_with_signals(int screen)
{
    struct cn_status_view view = {0};
    int terminal = open(ptsname(screen), O_RDWR | O_NOCTTY);
    setenv("TERM", "xterm", 1);
    if (terminal < 0 || dup2(terminal, STDOUT_FILENO) != STDOUT_FILENO)
        return false;
    signal(SIGINT, note); // as the program catches Ctrl-C
    signal(SIGQUIT, SIG_DFL);
    signal(SIGHUP, SIG_IGN);
    cn_status_view_open(&view);
    bool right = view.live && is_handled_by(SIGQUIT, note) && is_handled_by(SIGHUP, SIG_IGN);
    cn_status_view_close(&view);
    return right;
}

static void a_signal_that_is_ignored_does_not_end_the_page(void **state)
{
    int status, screen = posix_openpt(O_RDWR | O_NOCTTY);
    (void)state;
    assert_true(screen >= 0 && grantpt(screen) == 0 && unlockpt(screen) == 0);
    pid_t child = fork();
    if (child == 0)
        _exit(opens_with_signals(screen) ? 0 : 1);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    close(screen);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_signal_that_is_ignored_does_not_end_the_page),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
