// The copy of a state directory: which of its files it has.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
// cmocka.h needs the four above.
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "aggregator/store/state_copy.h"

static char place[64]; // has the state and the copy

static void name_file(char path[160], const char *directory, const char *name)
{
    snprintf(path, 160, "%s/%s/%s", place, directory, name);
}

static void write_file(const char *directory, const char *name)
{
    char path[160];
    name_file(path, directory, name);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    assert_int_equal(fputs("content", file) < 0, 0);
    assert_int_equal(fclose(file), 0);
}

// Removes a file and says whether it was there.
static bool take_away(const char *directory, const char *name)
{
    char path[160];
    name_file(path, directory, name);
    return unlink(path) == 0;
}

static cn_err accept_copy(void *context, const char *directory)
{
    (void)context, (void)directory;
    return CN_OK;
}

// A group's name may look like the end of a part's name.
static void updates_are_copied_and_unfinished_uploads_are_not(void **state)
{
    static const struct {
        const char *name;
        bool copied;
    } files[] = {
        {"round-1-a.update", true},         {"round-1-x.part-1.update", true},
        {"round-2-x.part-.update", true},   {"round-2-a.part-0", false},
        {"round-2-x.part-1.part-3", false}, {".round-3-a.update", false},
        {"version-1.model", true},
    };
    static const char *const others[] = {CN_LEDGER_FILE, CN_LEDGER_FILE "-wal",
                                         CN_LEDGER_FILE "-shm"};
    const size_t count = sizeof(files) / sizeof(files[0]);
    struct cn_ledger *ledger;
    char from[160], to[160], path[160];
    (void)state;
    snprintf(place, sizeof(place), "%s/cairn-copy-XXXXXX",
             access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp"); // syncs cost nothing there
    assert_non_null(mkdtemp(place));
    snprintf(from, sizeof(from), "%s/state", place);
    snprintf(to, sizeof(to), "%s/copy", place);
    name_file(path, "state", "files");
    assert_int_equal(mkdir(from, 0700), 0);
    assert_int_equal(mkdir(path, 0700), 0);
    for (size_t i = 0; i < count; i++)
        write_file("state/files", files[i].name);
    assert_int_equal(cn_ledger_open(from, &ledger), CN_OK);
    struct cn_state_copy copy = {.state = from, .ledger = ledger, .to = to, .check = accept_copy};
    assert_int_equal(cn_state_copy_make(&copy), CN_OK);
    cn_ledger_close(ledger);
    for (size_t i = 0; i < count; i++) {
        assert_true(take_away("state/files", files[i].name));
        if (take_away("copy/files", files[i].name) != files[i].copied)
            fail_msg("%s: wanted %s", files[i].name, files[i].copied ? "a copy" : "no copy");
    }
    for (size_t i = 0; i < 3; i++) {
        (void)take_away("state", others[i]);
        (void)take_away("copy", others[i]);
    }
    static const char *const folders[] = {"state/files", "state", "copy/files", "copy", ""};
    for (size_t i = 0; i < 5; i++) {
        snprintf(path, sizeof(path), "%s/%s", place, folders[i]);
        assert_int_equal(rmdir(path), 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(updates_are_copied_and_unfinished_uploads_are_not),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
