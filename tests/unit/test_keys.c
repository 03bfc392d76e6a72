// Keys of a terminal: which bytes mean what, and its modes before, meanwhile and after.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
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

// --- a program of a shell with job control ---

// In a child process, where cmocka must not fail: the exit code says which line did not hold.
#define HOLDS(condition)                                                                           \
    do {                                                                                           \
        if (!(condition))                                                                          \
            _exit(__LINE__ % 256);                                                                 \
    } while (0)

// Tells each key as a byte, and ends after that of a terminal that is gone.
static void run_program(int told)
{
    struct cn_keys keys = {0};
    signal(SIGTTOU, SIG_DFL);
    for (int i = 0; i < 500 && tcgetpgrp(STDIN_FILENO) != getpgrp(); i++)
        usleep(10000);
    HOLDS(cn_keys_open(&keys));
    char key = 'o';
    while (write(told, &key, 1) == 1 && key != CN_KEY_QUIT)
        do
            key = (char)cn_keys_wait(&keys, 20);
        while (key == CN_KEY_NONE);
    _exit(0);
}

// Waits until the terminal hands over keys at once, or lines.
static bool has_lines(bool wanted)
{
    struct termios modes;
    for (int i = 0; i < 500; i++) {
        if (tcgetattr(STDIN_FILENO, &modes) == 0 && ((modes.c_lflag & ICANON) != 0) == wanted)
            return true;
        usleep(10000);
    }
    return false;
}

static bool tells(int told, char wanted)
{
    char key;
    return read(told, &key, 1) == 1 && key == wanted;
}

// Types a line while the program is in the background. Returns whether that goes on.
static bool goes_on_in_background(int screen, pid_t program)
{
    HOLDS(tcsetpgrp(STDIN_FILENO, getpgrp()) == 0);
    HOLDS(kill(-program, SIGCONT) == 0);
    HOLDS(write(screen, "k\n", 2) == 2);
    usleep(200000);
    HOLDS(tcflush(STDIN_FILENO, TCIFLUSH) == 0);
    return waitpid(program, NULL, WNOHANG | WUNTRACED) == 0;
}

static void run_shell(int screen)
{
    int ends[2], status;
    setsid();
    signal(SIGTTOU, SIG_IGN);
    signal(SIGHUP, SIG_IGN); // and so the program's
    int terminal = open(ptsname(screen), O_RDWR);
    HOLDS(terminal >= 0 && dup2(terminal, STDIN_FILENO) == STDIN_FILENO && pipe(ends) == 0);
    pid_t program = fork();
    if (program == 0) {
        close(screen);
        run_program(ends[1]);
    }
    HOLDS(setpgid(program, program) == 0 && tcsetpgrp(STDIN_FILENO, program) == 0);
    HOLDS(tells(ends[0], 'o') && has_lines(false));
    HOLDS(write(screen, "\032", 1) == 1); // Ctrl-Z
    HOLDS(waitpid(program, &status, WUNTRACED) == program && WIFSTOPPED(status));
    HOLDS(has_lines(true));
    HOLDS(goes_on_in_background(screen, program));
    HOLDS(tells(ends[0], CN_KEY_SUSPEND));
    HOLDS(tcsetpgrp(STDIN_FILENO, program) == 0); // fg
    HOLDS(has_lines(false));
    HOLDS(write(screen, "j", 1) == 1 && tells(ends[0], CN_KEY_DOWN));
    close(screen);
    HOLDS(tells(ends[0], CN_KEY_QUIT));
    HOLDS(waitpid(program, &status, 0) == program && status == 0);
    _exit(0);
}

static void a_program_that_was_in_the_background_has_its_keys_again(void **state)
{
    int status, screen = posix_openpt(O_RDWR | O_NOCTTY);
    (void)state;
    assert_true(screen >= 0 && grantpt(screen) == 0 && unlockpt(screen) == 0);
    pid_t shell = fork();
    if (shell == 0) {
        alarm(20);
        run_shell(screen);
    }
    close(screen);
    assert_int_equal(waitpid(shell, &status, 0), shell);
    assert_int_equal(WIFEXITED(status) ? WEXITSTATUS(status) : -1, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_bytes_of_a_terminal_are_keys),
        cmocka_unit_test(without_a_terminal_there_are_no_keys),
        cmocka_unit_test(a_program_that_was_in_the_background_has_its_keys_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
