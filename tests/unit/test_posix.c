// The store, the digests and the clock of ports/posix.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <dirent.h>
#include <mbedtls/sha256.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "runtime/port/crypto.h"
#include "runtime/port/platform.h"
#include "runtime/port/sensors.h"
#include "runtime/port/store.h"

static struct cn_store *open_in(const char *directory)
{
    struct cn_store *store = NULL;

    assert_int_equal(cn_platform_open_store(directory, &store), CN_OK);
    return store;
}

static int make_directory(void **state)
{
    char *path = strdup("/tmp/cairn-store-XXXXXX");

    if (!path || !mkdtemp(path)) {
        free(path);
        return -1;
    }
    *state = path;
    return 0;
}

static int remove_directory(void **state)
{
    char command[200];

    snprintf(command, sizeof(command), "rm -rf '%s'", (char *)*state);
    free(*state);
    return system(command);
}

static void a_replaced_file_reads_back(void **state)
{
    struct cn_store *store = open_in(*state);
    uint8_t *data = NULL;
    size_t size = 0;

    assert_int_equal(cn_store_replace(store, "model", "first", 5), CN_OK);
    assert_int_equal(cn_store_replace(store, "model", "second", 6), CN_OK);
    assert_int_equal(store->ops->load(store, "model", 5, &data, &size), CN_ERANGE);
    assert_int_equal(store->ops->load(store, "model", 6, &data, &size), CN_OK);
    assert_int_equal(size, 6);
    assert_memory_equal(data, "second", 6);
    free(data);
    assert_int_equal(store->ops->remove(store, "model"), CN_OK);
    assert_int_equal(store->ops->remove(store, "model"), CN_OK);
    assert_int_equal(store->ops->load(store, "model", 6, &data, &size), CN_ENOTFOUND);
    store->ops->close(store);
}

static void a_file_that_is_read_stays_what_it_was(void **state)
{
    struct cn_store *store = open_in(*state);
    struct cn_store_file *file;
    uint64_t size = 0;
    char part[4] = "";

    assert_int_equal(store->ops->open(store, "model", &file, &size), CN_ENOTFOUND);
    assert_int_equal(store->ops->open(store, "../model", &file, &size), CN_EINVAL);
    assert_int_equal(cn_store_replace(store, "model", "first", 5), CN_OK);
    assert_int_equal(store->ops->open(store, "model", &file, &size), CN_OK);
    assert_int_equal(size, 5);
    assert_int_equal(cn_store_replace(store, "model", "second", 6), CN_OK);
    assert_int_equal(store->ops->read(file, 2, part, 3), CN_OK);
    assert_string_equal(part, "rst");
    assert_int_equal(store->ops->read(file, 3, part, 3), CN_ERANGE);
    store->ops->abort(file);
    assert_int_equal(store->ops->open(store, "model", &file, &size), CN_OK); // it is still there
    assert_int_equal(size, 6);
    store->ops->abort(file);
    store->ops->close(store);
}

static cn_err count_one(void *context, const char *name)
{
    (void)name;
    ++*(int *)context;
    return CN_OK;
}

static void a_file_aside_is_invisible(void **state)
{
    struct cn_store *store = open_in(*state);
    struct cn_store_file *file;
    uint8_t *data;
    size_t size;
    int visible = 0;

    assert_int_equal(store->ops->create(store, "update", &file), CN_OK);
    assert_int_equal(store->ops->write(file, 3, "abc", 3), CN_OK);
    assert_int_equal(store->ops->load(store, "update", 10, &data, &size), CN_ENOTFOUND);
    assert_int_equal(store->ops->list(store, count_one, &visible), CN_OK);
    assert_int_equal(visible, 0);
    store->ops->abort(file);
    store->ops->close(store);
}

// The files in a directory, the lock aside, whether a store would list them or not.
static int count_files(const char *path)
{
    DIR *directory = opendir(path);
    int count = 0;

    assert_non_null(directory);
    for (struct dirent *entry; (entry = readdir(directory));)
        count += entry->d_type == DT_REG && strcmp(entry->d_name, ".lock") != 0;
    closedir(directory);
    return count;
}

static void a_file_aside_is_gone_after_a_crash_and_a_restart(void **state)
{
    pid_t child = fork();
    int status;

    if (child == 0) {
        struct cn_store *store;
        struct cn_store_file *file;

        _exit(cn_platform_open_store(*state, &store) ||
              store->ops->create(store, "update", &file) ||
              store->ops->write(file, 0, "abc", 3)); // neither committed nor aborted
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_int_equal(count_files(*state), 1);
    struct cn_store *store = open_in(*state);
    assert_int_equal(count_files(*state), 0);
    store->ops->close(store);
}

static void a_second_process_is_kept_out(void **state)
{
    struct cn_store *store = open_in(*state);
    struct cn_store *second = NULL;

    assert_int_equal(cn_platform_open_store(*state, &second), CN_EEXIST);
    store->ops->close(store);
    second = open_in(*state);
    second->ops->close(second);
}

static void names_cannot_leave_the_directory(void **state)
{
    struct cn_store *store = open_in(*state);
    struct cn_store_file *file;

    assert_int_equal(store->ops->create(store, "../x", &file), CN_EINVAL);
    assert_int_equal(store->ops->create(store, ".hidden", &file), CN_EINVAL);
    assert_int_equal(store->ops->create(store, "", &file), CN_EINVAL);
    store->ops->close(store);
}

static void digests_and_derived_keys_equal_known_ones(void **state)
{
    // FIPS 180-4 example "abc"; the derived key was computed with Python's hmac module.
    static const char *const abc =
        "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
    static const char *const dtls =
        "43937f6f23fbd06b6777124bc2f5f7e34ea6fb41caf0155a9bc484cb8574e7ba";
    uint8_t key[CN_KEY_SIZE], out[CN_DIGEST_SIZE];
    char text[2 * CN_DIGEST_SIZE + 1];

    (void)state;
    cn_crypto_digest("abc", 3, out);
    cn_hex(text, out, sizeof(out));
    assert_string_equal(text, abc);
    for (size_t i = 0; i < sizeof(key); i++)
        key[i] = (uint8_t)i;
    assert_int_equal(cn_crypto_derive(key, "cairn/1 dtls", out), CN_OK);
    cn_hex(text, out, sizeof(out));
    assert_string_equal(text, dtls);
}

static void crc_gives_the_check_value_of_its_standard(void **state)
{
    (void)state;
    assert_int_equal(cn_crc32c(0, "123456789", 9), 0xe3069283u);
    assert_int_equal(cn_crc32c(cn_crc32c(0, "1234", 4), "56789", 5), 0xe3069283u);
    uint8_t bytes[32]; // RFC 3720, B.4
    memset(bytes, 0, sizeof(bytes));
    assert_int_equal(cn_crc32c(0, bytes, 32), 0x8a9136aau);
    memset(bytes, 0xff, sizeof(bytes));
    assert_int_equal(cn_crc32c(0, bytes, 32), 0x62a8ab43u);
    for (uint8_t i = 0; i < 32; i++)
        bytes[i] = i;
    assert_int_equal(cn_crc32c(0, bytes, 32), 0x46dd794eu);
}

// The digests come from mbedTLS, whatever instructions this processor has.
static void a_digest_does_not_depend_on_how_the_bytes_are_cut(void **state)
{
    static uint8_t bytes[1000];

    (void)state;
    for (size_t i = 0; i < sizeof(bytes); i++)
        bytes[i] = (uint8_t)(i * 151 + i / 7);
    for (size_t size = 0; size <= sizeof(bytes); size += size < 200 ? 1 : 37) {
        uint8_t expected[CN_DIGEST_SIZE], found[CN_DIGEST_SIZE];
        struct cn_sha256 sha;

        assert_int_equal(mbedtls_sha256(bytes, size, expected, 0), 0);
        cn_sha256_init(&sha);
        for (size_t done = 0, part; done < size; done += part) {
            part = size - done < size % 67 + 1 ? size - done : size % 67 + 1;
            cn_sha256_add(&sha, bytes + done, part);
        }
        cn_sha256_finish(&sha, found);
        assert_memory_equal(found, expected, CN_DIGEST_SIZE);
    }
}

static void the_clock_goes_forward(void **state)
{
    uint64_t before = cn_platform_now_us();

    (void)state;
    usleep(1000);
    assert_true(cn_platform_now_us() >= before + 1000);
    assert_true(cn_platform_cpu_count() >= 1);
    assert_true(cn_platform_peak_memory() > 100000);
}

#define FILLED_SIZE (16u << 20)

static long resident_pages(void)
{
    FILE *file = fopen("/proc/self/statm", "r");
    long size, resident;

    assert_non_null(file);
    assert_int_equal(fscanf(file, "%ld %ld", &size, &resident), 2); // NOLINT(cert-err34-c)
    fclose(file);
    return resident;
}

static cn_err write_ends(void *context, uint8_t *zeros)
{
    zeros[0] = 1;
    zeros[FILLED_SIZE - 1] = 2;
    return *(const cn_err *)context;
}

// A model's graph is such a file, and its weights need not be anywhere.
static void a_directory_and_the_parent_of_a_path_are_synced(void **state)
{
    (void)state;
    assert_int_equal(cn_platform_sync_directory("/tmp"), CN_OK);
    assert_int_equal(cn_platform_sync_directory("/tmp/not/there"), CN_ENOTFOUND);
    assert_int_equal(cn_platform_sync_parent("/tmp/any"), CN_OK);
    assert_int_equal(cn_platform_sync_parent("any"), CN_OK); // in the working directory
    assert_int_equal(cn_platform_sync_parent("/tmp/not/there/any"), CN_ENOTFOUND);
}

static void zeros_that_are_not_written_take_no_memory(void **state)
{
    struct cn_mapping mapping = {0};
    cn_err result = CN_OK;
    long before = resident_pages();
    size_t sum = 0;

    (void)state;
#ifdef __SANITIZE_THREAD__
    skip(); // its shadow of what is read counts as memory
#endif
    assert_int_equal(cn_platform_map_filled(FILLED_SIZE, write_ends, &result, &mapping), CN_OK);
    assert_int_equal(mapping.size, FILLED_SIZE);
    for (size_t i = 0; i < mapping.size; i++)
        sum += mapping.data[i];
    assert_int_equal(sum, 3);
    assert_true(resident_pages() - before < 256); // of 4096
    cn_platform_unmap(&mapping);
    assert_null(mapping.data);
    result = CN_EFORMAT;
    assert_int_equal(cn_platform_map_filled(FILLED_SIZE, write_ends, &result, &mapping),
                     CN_EFORMAT);
    assert_null(mapping.data);
}

// Maps a file of two pages, lets change write to it, and reads both pages. Returns what the process
// that did so ended with; text gets what it said.
static int end_of_a_reader(void (*change)(const char *path), char text[256])
{
    char path[] = "/tmp/cairn-posix-XXXXXX";
    int descriptor = mkstemp(path), said[2], status;
    struct cn_mapping mapping;
    ssize_t length;
    pid_t child;

    assert_true(descriptor >= 0);
    assert_int_equal(ftruncate(descriptor, 8192), 0);
    close(descriptor);
    assert_int_equal(pipe(said), 0);
    child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        dup2(said[1], STDERR_FILENO);
        if (cn_platform_map(path, SIZE_MAX, &mapping))
            _exit(2);
        change(path);
        _exit(((const volatile uint8_t *)mapping.data)[0] +
              ((const volatile uint8_t *)mapping.data)[4096]);
    }
    close(said[1]);
    assert_int_equal(waitpid(child, &status, 0), child);
    length = read(said[0], text, 255);
    assert_true(length >= 0);
    text[length] = '\0';
    close(said[0]);
    unlink(path);
    return status;
}

static void empty_file(const char *path)
{
    if (truncate(path, 0))
        _exit(3);
}

static void remove_file(const char *path)
{
    if (unlink(path))
        _exit(3);
}

static void a_file_that_is_cut_off_while_it_is_mapped_is_named(void **state)
{
    char text[256];
    int status = end_of_a_reader(empty_file, text);

    (void)state;
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 1);
    assert_non_null(strstr(text, "error: /tmp/cairn-posix-"));
    assert_non_null(strstr(text, " changed while it was used"));
}

static void *read_both_pages(void *data)
{
    const volatile uint8_t *pages = data;

    _exit(4 + pages[0] + pages[4096]);
}

// Ends with 1 when the thread waits, says why, and ends the process once it need not wait.
static void hold_a_reader(const char *path)
{
    struct cn_mapping mapping;
    pthread_t thread;

    if (cn_platform_map(path, SIZE_MAX, &mapping) || truncate(path, 0))
        _exit(2);
    cn_platform_hold_faults(true);
    if (cn_platform_fault() || pthread_create(&thread, NULL, read_both_pages, (void *)mapping.data))
        _exit(3);
    while (!cn_platform_fault())
        usleep(1000);
    if (strncmp(cn_platform_fault(), path, strlen(path)) != 0 ||
        !strstr(cn_platform_fault(), " changed while it was used"))
        _exit(5);
    cn_platform_hold_faults(false);
    pthread_join(thread, NULL);
    _exit(6);
}

static void a_thread_waits_while_a_program_tells_of_its_fault(void **state)
{
    char path[] = "/tmp/cairn-posix-XXXXXX";
    int descriptor = mkstemp(path), status;
    pid_t child;

    (void)state;
    assert_true(descriptor >= 0);
    assert_int_equal(ftruncate(descriptor, 8192), 0);
    close(descriptor);
    child = fork();
    assert_true(child >= 0);
    if (child == 0)
        hold_a_reader(path);
    assert_int_equal(waitpid(child, &status, 0), child);
    unlink(path);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 1);
}

static void a_file_that_is_removed_while_it_is_mapped_stays_readable(void **state)
{
    char text[256];

    (void)state;
    assert_int_equal(end_of_a_reader(remove_file, text), 0);
    assert_string_equal(text, "");
}

static void a_mapped_file_that_is_written_to_has_changed(void **state)
{
    char path[] = "/tmp/cairn-posix-XXXXXX", other[] = "/tmp/cairn-posix-XXXXXX";
    int descriptor = mkstemp(path), replacing = mkstemp(other);
    const struct timespec times[2] = {{.tv_sec = 1}, {.tv_sec = 1}};
    struct cn_mapping mapping;
    const char *changed = NULL;

    (void)state;
    assert_true(descriptor >= 0 && replacing >= 0);
    assert_int_equal(ftruncate(descriptor, 10), 0);
    assert_int_equal(cn_platform_map(path, SIZE_MAX, &mapping), CN_OK);
    assert_false(cn_platform_mapping_changed(&mapping, &changed));
    assert_int_equal(futimens(descriptor, times), 0); // as a write does, whatever the clock's grain
    assert_true(cn_platform_mapping_changed(&mapping, &changed));
    assert_string_equal(changed, path);
    assert_int_equal(rename(other, path), 0);
    assert_false(cn_platform_mapping_changed(&mapping, &changed));
    cn_platform_unmap(&mapping);
    close(descriptor);
    close(replacing);
    unlink(path);
}

// The next write then has another time, although the clock of files stands still between its ticks.
static void a_file_is_mapped_after_the_tick_of_its_last_write(void **state)
{
    char path[] = "/tmp/cairn-posix-XXXXXX";
    int descriptor = mkstemp(path);
    struct timespec times[2], after;
    struct cn_mapping mapping;

    (void)state;
    assert_true(descriptor >= 0);
    assert_int_equal(pwrite(descriptor, "before", 6, 0), 6);
    for (int i = 0; i < 20; i++) {
        assert_int_equal(clock_gettime(CLOCK_REALTIME_COARSE, &times[0]), 0);
        times[1] = times[0];
        assert_int_equal(futimens(descriptor, times), 0);
        assert_int_equal(cn_platform_map(path, SIZE_MAX, &mapping), CN_OK);
        assert_int_equal(clock_gettime(CLOCK_REALTIME_COARSE, &after), 0);
        assert_true(after.tv_sec != times[0].tv_sec || after.tv_nsec != times[0].tv_nsec);
        cn_platform_unmap(&mapping);
    }
    times[1].tv_sec += 86400; // of a machine whose clock is ahead: not waited for
    assert_int_equal(futimens(descriptor, times), 0);
    assert_int_equal(cn_platform_map(path, SIZE_MAX, &mapping), CN_OK);
    cn_platform_unmap(&mapping);
    close(descriptor);
    unlink(path);
}

// As a service, which is not root.
static int written_by_a_hidden_process(void)
{
    struct cn_reading before = {0}, after = {0};
    struct cn_sensors *sensors;
    char block[1 << 16] = {0};
    FILE *file = tmpfile();

    if (geteuid() == 0 && setuid(12345)) // which hides the memory, too
        return 1;
    if (prctl(PR_SET_DUMPABLE, 1))
        return 2;
    cn_platform_hide_memory();
    if (prctl(PR_GET_DUMPABLE) != 0)
        return 3;
    if (cn_sensors_open("", "", "", &sensors))
        return 4;
    cn_sensors_read(sensors, &before);
    if (!file || fwrite(block, sizeof(block), 1, file) != 1 || fflush(file) || fsync(fileno(file)))
        return 5;
    cn_sensors_read(sensors, &after);
    cn_sensors_close(sensors);
    if (!before.has_written || !after.has_written || after.written < before.written)
        return 6;
    return cn_platform_peak_memory() > 0 ? 0 : 7;
}

static void a_process_that_hides_its_memory_still_knows_what_it_wrote(void **state)
{
    int status;
    pid_t child = fork();

    (void)state;
    assert_true(child >= 0);
    if (child == 0)
        _exit(written_by_a_hidden_process());
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}

static void developers_may_have_a_core(void **state)
{
    int before = prctl(PR_GET_DUMPABLE);

    (void)state;
    assert_int_equal(setenv("CAIRN_CORE_DUMPS", "1", 1), 0);
    cn_platform_hide_memory();
    assert_int_equal(prctl(PR_GET_DUMPABLE), before);
    assert_int_equal(unsetenv("CAIRN_CORE_DUMPS"), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_replaced_file_reads_back, make_directory,
                                        remove_directory),
        cmocka_unit_test_setup_teardown(a_file_that_is_read_stays_what_it_was, make_directory,
                                        remove_directory),
        cmocka_unit_test_setup_teardown(a_file_aside_is_invisible, make_directory,
                                        remove_directory),
        cmocka_unit_test_setup_teardown(a_file_aside_is_gone_after_a_crash_and_a_restart,
                                        make_directory, remove_directory),
        cmocka_unit_test_setup_teardown(a_second_process_is_kept_out, make_directory,
                                        remove_directory),
        cmocka_unit_test_setup_teardown(names_cannot_leave_the_directory, make_directory,
                                        remove_directory),
        cmocka_unit_test(digests_and_derived_keys_equal_known_ones),
        cmocka_unit_test(crc_gives_the_check_value_of_its_standard),
        cmocka_unit_test(a_digest_does_not_depend_on_how_the_bytes_are_cut),
        cmocka_unit_test(the_clock_goes_forward),
        cmocka_unit_test(a_file_that_is_cut_off_while_it_is_mapped_is_named),
        cmocka_unit_test(a_thread_waits_while_a_program_tells_of_its_fault),
        cmocka_unit_test(a_file_that_is_removed_while_it_is_mapped_stays_readable),
        cmocka_unit_test(a_mapped_file_that_is_written_to_has_changed),
        cmocka_unit_test(a_file_is_mapped_after_the_tick_of_its_last_write),
        cmocka_unit_test(a_directory_and_the_parent_of_a_path_are_synced),
        cmocka_unit_test(zeros_that_are_not_written_take_no_memory),
        cmocka_unit_test(a_process_that_hides_its_memory_still_knows_what_it_wrote),
        cmocka_unit_test(developers_may_have_a_core),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
