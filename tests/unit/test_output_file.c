// The file that a command was asked for: whole, with the user's mode, and never through a link.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "aggregator/command/output_file.h"

static void assert_content(const char *path, const char *wanted)
{
    char content[64] = "";
    int file = open(path, O_RDONLY | O_CLOEXEC);
    assert_true(file >= 0);
    assert_int_equal(read(file, content, sizeof(content) - 1), strlen(wanted));
    assert_string_equal(content, wanted);
    close(file);
}

static void a_planted_link_is_not_followed(void **state)
{
    char folder[] = "/tmp/cairn-output-XXXXXX", path[64], aside[64], victim[64];
    struct cn_buffer buffer;
    struct stat info;
    (void)state;
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof(path), "%s/run.html", folder);
    snprintf(aside, sizeof(aside), "%s/run.html.new", folder);
    snprintf(victim, sizeof(victim), "%s/victim", folder);
    cn_buffer_init(&buffer, 64);
    assert_int_equal(cn_buffer_append(&buffer, "first", 5), CN_OK);
    assert_int_equal(cn_output_file_write(victim, &buffer), 0);
    assert_int_equal(symlink(victim, aside), 0);
    assert_int_equal(cn_buffer_append(&buffer, " second", 7), CN_OK);
    mode_t mask = umask(027);
    assert_int_equal(cn_output_file_write(path, &buffer), 0);
    umask(mask);
    assert_content(victim, "first");
    assert_content(path, "first second");
    assert_int_equal(lstat(path, &info), 0);
    assert_true(S_ISREG(info.st_mode));
    assert_int_equal(info.st_mode & 0777, 0640);
    assert_int_not_equal(lstat(aside, &info), 0);
    unlink(path);
    unlink(victim);
    rmdir(folder);
    cn_buffer_deinit(&buffer);
}

// As root a command would put a file in place of /dev/null.
static void what_is_no_file_stays(void **state)
{
    char folder[] = "/tmp/cairn-output-XXXXXX", pipe[64], at[64], nowhere[64], path[64];
    struct cn_buffer buffer;
    struct stat info;
    (void)state;
    assert_non_null(mkdtemp(folder));
    snprintf(pipe, sizeof(pipe), "%s/pipe", folder);
    snprintf(at, sizeof(at), "%s/link", folder);
    snprintf(nowhere, sizeof(nowhere), "%s/nowhere", folder);
    snprintf(path, sizeof(path), "%s/pipe.new", folder);
    cn_buffer_init(&buffer, 64);
    assert_int_equal(cn_buffer_append(&buffer, "text", 4), CN_OK);
    assert_int_equal(mkfifo(pipe, 0600), 0);
    assert_int_equal(symlink(nowhere, at), 0);
    assert_int_not_equal(cn_output_file_write(pipe, &buffer), 0);
    assert_int_not_equal(cn_output_file_write(at, &buffer), 0);
    assert_int_not_equal(cn_output_file_write(folder, &buffer), 0);
    assert_int_equal(lstat(pipe, &info), 0);
    assert_true(S_ISFIFO(info.st_mode));
    assert_int_equal(lstat(at, &info), 0);
    assert_true(S_ISLNK(info.st_mode));
    assert_int_not_equal(lstat(nowhere, &info), 0);
    assert_int_not_equal(lstat(path, &info), 0);
    unlink(pipe);
    unlink(at);
    rmdir(folder);
    cn_buffer_deinit(&buffer);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_planted_link_is_not_followed),
        cmocka_unit_test(what_is_no_file_stays),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
