// The audit: a chain of lines that crashes do not break and changes do.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
// cmocka.h needs the four above.
#include <cmocka.h>

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "aggregator/store/audit.h"

static char directory[64];

static int open_directory(void **state)
{
    (void)state;
    snprintf(directory, sizeof(directory), "%s/cairn-audit-XXXXXX",
             access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp"); // syncs cost nothing there
    return mkdtemp(directory) ? 0 : -1;
}

static void name_file(int age, char path[128])
{
    if (age)
        snprintf(path, 128, "%s/%s.%d", directory, CN_AUDIT_FILE, age);
    else
        snprintf(path, 128, "%s/%s", directory, CN_AUDIT_FILE);
}

static int remove_directory(void **state)
{
    char path[128];
    (void)state;
    for (int age = 0; age <= CN_AUDIT_KEPT + 1; age++) {
        name_file(age, path);
        unlink(path);
    }
    return rmdir(directory);
}

static uint64_t append(const char *what, const char *arguments)
{
    const struct cn_audit_entry entry = {
        .who = cn_audit_self("test"), .what = what, .arguments = arguments, .result = "asked"};
    uint64_t seq = 0;
    assert_int_equal(cn_audit_append(directory, &entry, &seq), CN_OK);
    return seq;
}

static struct cn_audit_verdict verify(const char *expected)
{
    struct cn_audit_verdict verdict;
    assert_int_equal(cn_audit_verify(directory, expected, &verdict), CN_OK);
    return verdict;
}

// Replaces the content of the file.
static void rewrite(const char *content, size_t size)
{
    char path[128];
    name_file(0, path);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    assert_int_equal(fwrite(content, 1, size, file), size);
    assert_int_equal(fclose(file), 0);
}

static size_t read_all(char *content, size_t room)
{
    char path[128];
    name_file(0, path);
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    size_t size = fread(content, 1, room, file);
    assert_true(size < room);
    fclose(file);
    content[size] = '\0';
    return size;
}

static void lines_are_numbered_and_chained(void **state)
{
    struct cn_audit_verdict verdict;
    struct stat info;
    char path[128], first[2 * CN_DIGEST_SIZE + 1];
    (void)state;
    assert_int_equal(cn_audit_verify(directory, NULL, &verdict), CN_ENOTFOUND);
    assert_int_equal(append("pause", "{\"now\":true}"), 1);
    verdict = verify(NULL);
    memcpy(first, verdict.newest, sizeof(first));
    assert_int_equal(append("resume", NULL), 2);
    assert_int_equal(append("stop", NULL), 3);
    verdict = verify(first);
    assert_string_equal(verdict.fault, "");
    assert_int_equal(verdict.lines, 3);
    assert_int_equal(verdict.last, 3);
    assert_true(verdict.expected_found);
    verdict = verify("no digest");
    assert_false(verdict.expected_found);
    name_file(0, path);
    assert_int_equal(stat(path, &info), 0);
    assert_int_equal(info.st_mode & 0777, 0640);
}

// The service writes as the user who owns the state, also after root has made the file.
static void a_file_that_root_made_belongs_to_the_owner_of_the_state(void **state)
{
    struct stat info;
    char path[128];
    (void)state;
    if (geteuid() != 0)
        skip();
    assert_int_equal(chown(directory, 65534, 65534), 0);
    append("pause", NULL);
    name_file(0, path);
    assert_int_equal(stat(path, &info), 0);
    assert_int_equal(info.st_uid, 65534);
    assert_int_equal(info.st_gid, 65534);
}

static void a_change_of_any_byte_is_found(void **state)
{
    char content[4096], changed[4096];
    (void)state;
    append("pause", NULL);
    append("revoke", "{\"board\":\"board-1\"}");
    append("resume", NULL);
    append("resume", NULL);
    size_t size = read_all(content, sizeof(content));
    char *last = memrchr(content, '\n', size - 1); // the newest line has no line behind it
    for (size_t i = 0; i < (size_t)(last - content); i++) {
        memcpy(changed, content, size);
        changed[i] = changed[i] == 'x' ? 'y' : 'x';
        rewrite(changed, size);
        struct cn_audit_verdict verdict = verify(NULL);
        if (!verdict.fault[0])
            fail_msg("byte %zu was changed and not missed", i);
    }
    char *second = memchr(content, '\n', size); // a line that is gone
    char *third = memchr(second + 1, '\n', size - (size_t)(second + 1 - content));
    size_t head = (size_t)(second + 1 - content), tail = size - (size_t)(third + 1 - content);
    memcpy(changed, content, head);
    memcpy(changed + head, third + 1, tail);
    rewrite(changed, head + tail);
    assert_non_null(strstr(verify(NULL).fault, CN_AUDIT_FILE ":2: "));
}

static void a_line_that_a_crash_cut_off_is_replaced(void **state)
{
    char content[4096];
    (void)state;
    append("pause", NULL);
    append("resume", NULL);
    size_t size = read_all(content, sizeof(content));
    size_t first = (size_t)((char *)memchr(content, '\n', size) - content) + 1;
    for (size_t cut = first + 1; cut < size; cut += 7) {
        rewrite(content, cut);
        assert_true(verify(NULL).torn);
        assert_int_equal(append("stop", NULL), 2);
        struct cn_audit_verdict verdict = verify(NULL);
        assert_string_equal(verdict.fault, "");
        assert_false(verdict.torn);
        assert_int_equal(verdict.lines, 2);
    }
    rewrite(content, first / 2); // the very first line
    assert_int_equal(append("stop", NULL), 1);
    assert_int_equal(verify(NULL).lines, 1);
}

static void the_size_is_bounded_and_the_chain_goes_on(void **state)
{
    static char arguments[CN_AUDIT_LINE_MAX];
    struct stat info;
    char path[128];
    (void)state;
    snprintf(arguments, sizeof(arguments), "{\"x\":\"%0*d\"}", CN_AUDIT_LINE_MAX - 600, 0);
    size_t lines = (CN_AUDIT_KEPT + 2) * (CN_AUDIT_SIZE / (CN_AUDIT_LINE_MAX - 600) + 2);
    for (size_t i = 1; i <= lines; i++)
        assert_int_equal(append("pause", arguments), i);
    struct cn_audit_verdict verdict = verify(NULL);
    assert_string_equal(verdict.fault, "");
    assert_int_equal(verdict.last, lines);
    assert_true(verdict.first > 1);
    for (int age = 0; age <= CN_AUDIT_KEPT; age++) {
        name_file(age, path);
        assert_int_equal(stat(path, &info), 0);
        assert_true(info.st_size < (off_t)CN_AUDIT_SIZE + CN_AUDIT_LINE_MAX);
    }
    name_file(CN_AUDIT_KEPT + 1, path);
    assert_int_not_equal(stat(path, &info), 0);
    name_file(0, path); // a crash between the rotation and the next line
    unlink(path);
    assert_true(append("resume", NULL) > 1);
    assert_string_equal(verify(NULL).fault, "");
}

// Damage stays to be found, and blocks no command.
static void the_chain_goes_on_after_a_damaged_line(void **state)
{
    static char long_line[3 * CN_AUDIT_LINE_MAX];
    char content[4096];
    (void)state;
    append("pause", NULL);
    append("resume", NULL);
    size_t size = read_all(content, sizeof(content));
    size_t first = (size_t)((char *)memchr(content, '\n', size) - content) + 1;
    content[first] = 'x'; // of the newest line
    rewrite(content, size);
    assert_int_equal(append("stop", NULL), 3);
    assert_int_equal(append("stop", NULL), 4);
    assert_non_null(
        strstr(verify(NULL).fault, CN_AUDIT_FILE ":2: was changed, or is of another file"));
    memset(content, 'x', first - 1); // both lines, so that no number is left
    rewrite(content, size);
    assert_int_equal(append("stop", NULL), 3);
    assert_non_null(
        strstr(verify(NULL).fault, CN_AUDIT_FILE ":1: was changed, or is of another file"));
    memset(long_line, '[', sizeof(long_line)); // longer than any line
    long_line[sizeof(long_line) - 1] = '\n';
    rewrite(long_line, sizeof(long_line));
    assert_int_equal(append("stop", NULL), 2);
    assert_int_equal(append("stop", NULL), 3);
}

static void the_number_goes_on_from_the_older_file(void **state)
{
    char path[128], older[128];
    (void)state;
    append("pause", NULL);
    append("resume", NULL);
    name_file(0, path);
    name_file(1, older);
    assert_int_equal(rename(path, older), 0);
    rewrite("damaged\n", 8);
    assert_int_equal(append("stop", NULL), 4);
    assert_non_null(
        strstr(verify(NULL).fault, CN_AUDIT_FILE ":1: was changed, or is of another file"));
}

static void a_line_that_is_too_long_is_refused(void **state)
{
    static char arguments[CN_AUDIT_LINE_MAX + 64];
    const struct cn_audit_entry entry = {
        .who = cn_audit_self("test"), .what = "x", .arguments = arguments, .result = "asked"};
    (void)state;
    append("pause", NULL);
    snprintf(arguments, sizeof(arguments), "{\"x\":\"%0*d\"}", CN_AUDIT_LINE_MAX, 0);
    assert_int_equal(cn_audit_append(directory, &entry, NULL), CN_ERANGE);
    assert_int_equal(verify(NULL).lines, 1);
}

#define IN_DIRECTORY(test) cmocka_unit_test_setup_teardown(test, open_directory, remove_directory)

int main(void)
{
    const struct CMUnitTest tests[] = {
        IN_DIRECTORY(lines_are_numbered_and_chained),
        IN_DIRECTORY(a_file_that_root_made_belongs_to_the_owner_of_the_state),
        IN_DIRECTORY(a_change_of_any_byte_is_found),
        IN_DIRECTORY(a_line_that_a_crash_cut_off_is_replaced),
        IN_DIRECTORY(the_size_is_bounded_and_the_chain_goes_on),
        IN_DIRECTORY(the_chain_goes_on_after_a_damaged_line),
        IN_DIRECTORY(the_number_goes_on_from_the_older_file),
        IN_DIRECTORY(a_line_that_is_too_long_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
