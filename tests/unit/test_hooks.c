// Hooks get the facts, are ended in time, and never pile up.
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "runtime/port/platform.h"
#include "runtime/port/store.h"
#include "runtime/round/upkeep/hooks.h"

static char root[64];
static struct cn_settings settings;

static int make_root(void **state)
{
    (void)state;
    snprintf(root, sizeof(root), "/tmp/cairn-hooks-XXXXXX");
    assert_non_null(mkdtemp(root));
    settings = (struct cn_settings){.name = "press-01"};
    settings.care.hook_limit_ms = 10000;
    return 0;
}

static int remove_root(void **state)
{
    char command[128];

    (void)state;
    snprintf(command, sizeof(command), "rm -rf %s", root);
    return system(command);
}

// A program root/hook of these lines; $0 is its path.
static void put_hook(char path[CN_PATH_SIZE], const char *lines)
{
    FILE *file;

    snprintf(path, CN_PATH_SIZE, "%s/hook", root);
    file = fopen(path, "w");
    assert_non_null(file);
    fprintf(file, "#!/bin/sh\n%s\n", lines);
    fclose(file);
    assert_int_equal(chmod(path, 0700), 0);
}

// The content of root/name once it is there; "" when it does not come.
static void await_file(const char *name, char *text, size_t size)
{
    char path[128];
    FILE *file = NULL;
    size_t got = 0;

    snprintf(path, sizeof(path), "%s/%s", root, name);
    for (int i = 0; i < 200 && !(file = fopen(path, "r")); i++)
        cn_platform_sleep_ms(50);
    if (file) {
        got = fread(text, 1, size - 1, file);
        fclose(file);
    }
    text[got] = '\0';
}

static enum cn_hook_state await_end(int64_t hook, int *code)
{
    enum cn_hook_state state = CN_HOOK_RUNNING;

    for (int i = 0; i < 200 && state == CN_HOOK_RUNNING; i++) {
        cn_platform_sleep_ms(50);
        state = cn_platform_poll_hook(hook, code);
    }
    return state;
}

static void a_hook_says_how_it_ended(void **state)
{
    char path[CN_PATH_SIZE];
    char *environment[] = {"PATH=/usr/bin:/bin", NULL};
    int64_t hook;
    int code;

    (void)state;
    put_hook(path, "exit 0");
    assert_int_equal(cn_platform_start_hook(path, environment, 5, &hook), CN_OK);
    assert_int_equal(await_end(hook, &code), CN_HOOK_DONE);
    put_hook(path, "exit 7");
    assert_int_equal(cn_platform_start_hook(path, environment, 5, &hook), CN_OK);
    assert_int_equal(await_end(hook, &code), CN_HOOK_FAILED);
    assert_int_equal(code, 7);
    chmod(path, 0600);
    assert_int_equal(cn_platform_start_hook(path, environment, 5, &hook), CN_ENOTFOUND);
}

// Waits until nothing has root/fifo open for writing.
static void await_close_of_fifo(void)
{
    char path[96], byte;
    ssize_t got = -1;
    int reader;

    snprintf(path, sizeof(path), "%s/fifo", root);
    reader = open(path, O_RDONLY | O_NONBLOCK);
    assert_true(reader >= 0);
    for (int i = 0; i < 200 && (got = read(reader, &byte, 1)) < 0; i++)
        cn_platform_sleep_ms(10); // what is killed takes a moment to end
    assert_int_equal(got, 0);
    close(reader);
}

static void a_hook_that_hangs_is_ended_with_all_it_started(void **state)
{
    char path[CN_PATH_SIZE], lines[256];
    char *environment[] = {"PATH=/usr/bin:/bin", NULL};
    int64_t hook;
    int code;

    (void)state;
    // The fifo's end shows that nothing is left that has it open.
    snprintf(lines, sizeof(lines), "mkfifo %s/fifo; (sleep 60; echo) >%s/fifo & sleep 60", root,
             root);
    put_hook(path, lines);
    assert_int_equal(cn_platform_start_hook(path, environment, 1, &hook), CN_OK);
    assert_int_equal(await_end(hook, &code), CN_HOOK_LATE);
    await_close_of_fifo();
}

// The processes stand in sessions of their own, below a parent that has ended and one that has not.
static void what_leaves_the_session_of_a_hook_is_ended_in_time(void **state)
{
    static const char *const lasts[] = {"exit 0", "sleep 60"};
    char path[CN_PATH_SIZE], lines[512], text[16];
    char *environment[] = {"PATH=/usr/bin:/bin", NULL};
    int64_t hook;
    int code, unused;

    (void)state;
    if (prctl(PR_GET_CHILD_SUBREAPER, &unused))
        skip(); // QEMU's emulation of a process has no subreapers
    for (size_t i = 0; i < 2; i++) {
        snprintf(lines, sizeof(lines),
                 "rm -f %s/fifo $0.left; mkfifo %s/fifo; exec 3<>%s/fifo\n"
                 "(trap '' TERM; setsid sh -c 'setsid sleep 60 & >'$0'.left; sleep 60') &\n"
                 "while [ ! -e $0.left ]; do sleep 0.02; done; %s",
                 root, root, root, lasts[i]);
        put_hook(path, lines);
        assert_int_equal(cn_platform_start_hook(path, environment, 2, &hook), CN_OK);
        await_file("hook.left", text, sizeof(text));
        assert_int_equal(await_end(hook, &code), CN_HOOK_LATE);
        await_close_of_fifo();
    }
}

static void what_leaves_the_session_of_a_hook_may_end_in_its_time(void **state)
{
    char path[CN_PATH_SIZE], text[16];
    char *environment[] = {"PATH=/usr/bin:/bin", NULL};
    int64_t hook;
    int code;

    (void)state;
    put_hook(path, "setsid sh -c '>'$0'.begun; sleep 0.3; echo done >'$0'.left' &\n"
                   "while [ ! -e $0.begun ]; do sleep 0.02; done; exit 7");
    assert_int_equal(cn_platform_start_hook(path, environment, 20, &hook), CN_OK);
    assert_int_equal(await_end(hook, &code), CN_HOOK_FAILED);
    assert_int_equal(code, 7);
    await_file("hook.left", text, sizeof(text));
    assert_string_equal(text, "done\n");
}

// Else a node that was killed could not be started again before the time of its hooks was over.
static void a_hook_keeps_no_lock_of_the_store(void **state)
{
    char path[CN_PATH_SIZE], directory[96], text[16];
    char *environment[] = {"PATH=/usr/bin:/bin", NULL};
    struct cn_store *store;
    int64_t hook;
    int code;

    (void)state;
    snprintf(directory, sizeof(directory), "%s/state", root);
    put_hook(path, ">$0.begun; sleep 60");
    assert_int_equal(cn_platform_open_store(directory, &store), CN_OK);
    assert_int_equal(cn_platform_start_hook(path, environment, 1, &hook), CN_OK);
    await_file("hook.begun", text, sizeof(text));
    store->ops->close(store);
    assert_int_equal(cn_platform_poll_hook(hook, &code), CN_HOOK_RUNNING);
    assert_int_equal(cn_platform_open_store(directory, &store), CN_OK);
    store->ops->close(store);
    assert_int_equal(await_end(hook, &code), CN_HOOK_LATE);
}

static void tell_version(struct cn_hooks *hooks, uint32_t version)
{
    static struct cn_hook_facts facts;
    struct cn_progress progress = {.round = 7, .version = version};

    progress.scores = (struct cn_scores){
        .rows = 20, .loss = 0.25, .accuracy = NAN, .top5 = NAN, .f1 = NAN, .mae = 0.125};
    progress.scores.perplexity = NAN;
    cn_hook_facts_init(&facts, &settings, "version", &progress);
    cn_hooks_tell(hooks, CN_HOOK_VERSION, &facts);
}

static void the_facts_are_in_the_environment(void **state)
{
    static struct cn_hooks hooks;
    char text[1024];

    (void)state;
    put_hook(settings.care.on_version, "env | grep CAIRN >$0.new; mv $0.new $0.said");
    cn_hooks_init(&hooks, &settings);
    tell_version(&hooks, 6);
    await_file("hook.said", text, sizeof(text));
    assert_non_null(strstr(text, "CAIRN_EVENT=version\n"));
    assert_non_null(strstr(text, "CAIRN_BOARD=press-01\n"));
    assert_non_null(strstr(text, "CAIRN_ROUND=7\n"));
    assert_non_null(strstr(text, "CAIRN_VERSION=6\n"));
    assert_non_null(strstr(text, "CAIRN_LOSS=0.25\n"));
    assert_non_null(strstr(text, "CAIRN_MAE=0.125\n"));
    assert_null(strstr(text, "CAIRN_ACCURACY")); // what was not measured is not told
    cn_hooks_deinit(&hooks);
}

// Some shells put many folders before those of the system.
static void a_long_path_is_passed_on_whole(void **state)
{
    static struct cn_hooks hooks;
    char before[4096], path[8192], text[8300];
    size_t length = 0;

    (void)state;
    snprintf(before, sizeof(before), "%s", getenv("PATH"));
    while (length < 3000)
        length += (size_t)snprintf(path + length, sizeof(path) - length, "/home/somebody/tools:");
    snprintf(path + length, sizeof(path) - length, "%s", before);
    setenv("PATH", path, 1);
    put_hook(settings.care.on_version, "echo \"$PATH\" >$0.new; mv $0.new $0.said");
    cn_hooks_init(&hooks, &settings);
    tell_version(&hooks, 6);
    setenv("PATH", before, 1);
    await_file("hook.said", text, sizeof(text));
    strcat(path, "\n");
    assert_string_equal(text, path);
    cn_hooks_deinit(&hooks);
}

// A hook may change its directory before it reads the model.
static void a_relative_state_is_told_as_an_absolute_path(void **state)
{
    static struct cn_hook_facts facts;
    const struct cn_progress progress = {.round = 1};
    char directory[CN_PATH_SIZE], wanted[2 * CN_PATH_SIZE];
    bool told = false;

    (void)state;
    assert_non_null(getcwd(directory, sizeof(directory)));
    assert_int_equal(chdir(root), 0);
    assert_int_equal(mkdir("state", 0700), 0);
    snprintf(settings.state, sizeof(settings.state), "state");
    cn_hook_facts_init(&facts, &settings, "version", &progress);
    assert_int_equal(chdir(directory), 0);
    snprintf(wanted, sizeof(wanted), "CAIRN_MODEL=%s/state/model.current.onnx", root);
    for (size_t i = 0; i < facts.count; i++)
        told = told || strcmp(facts.lines[i], wanted) == 0;
    assert_true(told);
}

static void while_one_runs_only_the_newest_waits(void **state)
{
    static struct cn_hooks hooks;
    char text[256];

    (void)state;
    put_hook(settings.care.on_version, "echo $CAIRN_VERSION >>$0.told; sleep 0.3\n"
                                       "[ $CAIRN_VERSION = 9 ] && >$0.last");
    cn_hooks_init(&hooks, &settings);
    for (uint32_t version = 1; version <= 9; version++)
        tell_version(&hooks, version);
    for (int i = 0; i < 40; i++) {
        cn_platform_sleep_ms(50);
        cn_hooks_poll(&hooks);
    }
    await_file("hook.last", text, sizeof(text));
    await_file("hook.told", text, sizeof(text));
    assert_string_equal(text, "1\n9\n");
    cn_hooks_deinit(&hooks);
}

static void the_last_version_is_told_at_the_end(void **state)
{
    static struct cn_hooks hooks;
    char text[256];

    (void)state;
    put_hook(settings.care.on_version, "[ $CAIRN_VERSION = 1 ] && sleep 60\n"
                                       "echo $CAIRN_VERSION >$0.new; mv $0.new $0.told");
    settings.care.hook_limit_ms = 1000;
    cn_hooks_init(&hooks, &settings);
    tell_version(&hooks, 1);
    tell_version(&hooks, 2);
    cn_hooks_deinit(&hooks);
    await_file("hook.told", text, sizeof(text));
    assert_string_equal(text, "2\n");
}

// Returns the number of descriptors above standard error that a child has which keeps one of them;
// 99 if it lost that one.
static int count_kept(int keep)
{
    pid_t child = fork();
    int count = 0, status;

    if (child == 0) {
        cn_platform_close_inherited(keep);
        for (int descriptor = STDERR_FILENO + 1; descriptor < 1024; descriptor++)
            count += fcntl(descriptor, F_GETFD) != -1;
        _exit(keep >= 0 && fcntl(keep, F_GETFD) == -1 ? 99 : count);
    }
    assert_true(child > 0);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static void a_child_keeps_only_the_descriptor_that_it_needs(void **state)
{
    int first = fcntl(STDOUT_FILENO, F_DUPFD, STDERR_FILENO + 1);
    int last = fcntl(STDOUT_FILENO, F_DUPFD, 500);

    (void)state;
    assert_true(first > STDERR_FILENO && last >= 500);
    assert_int_equal(count_kept(first), 1);
    assert_int_equal(count_kept(last), 1);
    assert_int_equal(count_kept(-1), 0);
    assert_int_equal(count_kept(STDOUT_FILENO), 0);
    close(first);
    close(last);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, make_root, remove_root)
    const struct CMUnitTest tests[] = {
        CASE(a_child_keeps_only_the_descriptor_that_it_needs),
        CASE(a_hook_says_how_it_ended),
        CASE(a_hook_that_hangs_is_ended_with_all_it_started),
        CASE(what_leaves_the_session_of_a_hook_is_ended_in_time),
        CASE(what_leaves_the_session_of_a_hook_may_end_in_its_time),
        CASE(a_hook_keeps_no_lock_of_the_store),
        CASE(the_facts_are_in_the_environment),
        CASE(a_long_path_is_passed_on_whole),
        CASE(a_relative_state_is_told_as_an_absolute_path),
        CASE(while_one_runs_only_the_newest_waits),
        CASE(the_last_version_is_told_at_the_end),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
