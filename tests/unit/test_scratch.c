// test_scratch.c - arrays that lie in files: their contents, when they stay in memory, and what is
// left of them.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <dirent.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "runtime/port/scratch.h"

#define SIZE (3 * CN_SCRATCH_LEAST + 5)

static char folder[] = "scratch-XXXXXX";

// A folder of the build's, since the one for temporary files may lie in memory.
static int make_folder(void **state)
{
    (void)state;
    return mkdtemp(folder) ? 0 : -1;
}

static int remove_folder(void **state)
{
    (void)state;
    cn_scratch_use(NULL, 0);
    return rmdir(folder); // fails if a file was left
}

// Skips the test where the file system cannot reserve blocks for a file.
static uint8_t *allocate_in_file(void)
{
    uint8_t *array;

    cn_scratch_use(folder, 0);
    array = cn_scratch_allocate(SIZE);
    assert_non_null(array);
    if (cn_scratch_in_files() == 0) {
        cn_scratch_free(array);
        skip();
    }
    return array;
}

static uint32_t count_files(void)
{
    DIR *files = opendir(folder);
    uint32_t count = 0;

    assert_non_null(files);
    while (readdir(files))
        count++;
    closedir(files);
    return count - 2; // "." and ".."
}

static void expect_zeros(const uint8_t *array)
{
    for (size_t i = 0; i < SIZE; i++)
        assert_int_equal(array[i], 0);
}

static void an_array_in_a_file_begins_as_zeros_and_keeps_what_is_written(void **state)
{
    uint8_t *first = allocate_in_file(), *second = allocate_in_file();

    (void)state;
    assert_true(cn_scratch_has_room(folder, 0, SIZE));
    assert_true(cn_scratch_in_files() >= 2 * SIZE);
    expect_zeros(first);
    expect_zeros(second);
    memset(first, 1, SIZE);
    memset(second, 2, SIZE);
    assert_int_equal(first[0], 1);
    assert_int_equal(first[SIZE - 1], 1);
    assert_int_equal(second[SIZE - 1], 2);
    cn_scratch_free(first);
    expect_zeros(first = allocate_in_file());
    assert_int_equal(second[0], 2);
    cn_scratch_free(first);
    cn_scratch_free(second);
    assert_int_equal(cn_scratch_in_files(), 0);
}

static void no_file_can_be_seen_while_an_array_lives(void **state)
{
    uint8_t *array = allocate_in_file();

    (void)state;
    assert_int_equal(count_files(), 0);
    cn_scratch_free(array);
}

static void a_killed_process_leaves_no_file(void **state)
{
    uint8_t *array = allocate_in_file();
    pid_t child = fork();
    int status;

    (void)state;
    assert_true(child >= 0);
    if (child == 0) {
        memset(allocate_in_file(), 1, SIZE);
        raise(SIGKILL);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status));
    assert_int_equal(count_files(), 0);
    cn_scratch_free(array);
}

static void small_arrays_and_those_without_a_folder_lie_in_memory(void **state)
{
    uint8_t *small, *large;

    (void)state;
    cn_scratch_use(folder, 0);
    small = cn_scratch_allocate(CN_SCRATCH_LEAST - 1);
    cn_scratch_use(NULL, 0);
    large = cn_scratch_allocate(SIZE);
    assert_non_null(small);
    assert_non_null(large);
    assert_int_equal(cn_scratch_in_files(), 0);
    expect_zeros(large);
    memset(large, 1, SIZE);
    cn_scratch_free(small);
    cn_scratch_free(large);
    cn_scratch_free(NULL);
    cn_scratch_free(cn_scratch_allocate(0));
}

static void an_array_lies_in_memory_where_the_disk_has_no_room(void **state)
{
    uint8_t *array;

    (void)state;
    cn_scratch_free(allocate_in_file());
    cn_scratch_use(folder, UINT64_MAX / 2); // more is to stay free than any disk has
    array = cn_scratch_allocate(SIZE);
    assert_non_null(array);
    assert_int_equal(cn_scratch_in_files(), 0);
    assert_false(cn_scratch_has_room(folder, UINT64_MAX / 2, SIZE));
    assert_false(cn_scratch_has_room("no/such/folder", 0, SIZE));
    expect_zeros(array);
    cn_scratch_free(array);
    cn_scratch_use("no/such/folder", 0);
    array = cn_scratch_allocate(SIZE);
    assert_non_null(array);
    assert_int_equal(cn_scratch_in_files(), 0);
    cn_scratch_free(array);
}

static void a_size_that_cannot_be_is_refused(void **state)
{
    (void)state;
    cn_scratch_use(folder, 0);
    assert_null(cn_scratch_allocate(SIZE_MAX));
    assert_null(cn_scratch_allocate(SIZE_MAX / 2));
}

// Whatever cn_scratch_use said, and quietly in memory where the folder cannot have it.
static void one_array_lies_in_a_file_of_its_own(void **state)
{
    uint8_t *array, *other;

    (void)state;
    cn_scratch_free(allocate_in_file()); // skips where no file is possible
    cn_scratch_use(NULL, 0);
    array = cn_scratch_allocate_in(folder, 0, SIZE);
    assert_non_null(array);
    assert_true(cn_scratch_in_files() >= SIZE);
    assert_int_equal(array[SIZE - 1], 0);
    array[SIZE - 1] = 7;
    other = cn_scratch_allocate_in(folder, UINT64_MAX, SIZE);
    assert_non_null(other);
    other[SIZE - 1] = 8;
    assert_true(cn_scratch_in_files() < 2 * SIZE);
    cn_scratch_free(array);
    assert_int_equal(cn_scratch_in_files(), 0);
    cn_scratch_free(other);
    array = cn_scratch_allocate_in("not/there", 0, SIZE);
    assert_non_null(array);
    cn_scratch_free(array);
    assert_null(cn_scratch_allocate_in(folder, 0, SIZE_MAX));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_array_lies_in_a_file_of_its_own),
        cmocka_unit_test(an_array_in_a_file_begins_as_zeros_and_keeps_what_is_written),
        cmocka_unit_test(no_file_can_be_seen_while_an_array_lives),
        cmocka_unit_test(a_killed_process_leaves_no_file),
        cmocka_unit_test(small_arrays_and_those_without_a_folder_lie_in_memory),
        cmocka_unit_test(an_array_lies_in_memory_where_the_disk_has_no_room),
        cmocka_unit_test(a_size_that_cannot_be_is_refused),
    };

    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
