// Which lines of the audit are told: those of commands of other processes.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "aggregator/serve/event_audit.h"

struct told {
    unsigned count;
    char newest[64];
};

static void take(void *context, const char *command, const char *job, const char *result)
{
    struct told *told = context;
    told->count++;
    snprintf(told->newest, sizeof(told->newest), "%s%s%s: %s", job ? job : "", job ? " " : "",
             command, result);
}

static void write_line(const char *folder, struct cn_audit_who who, const char *what)
{
    const struct cn_audit_entry entry = {.who = who, .what = what, .result = "done: it was asked"};
    assert_int_equal(cn_audit_append(folder, &entry, NULL), CN_OK);
}

// In two containers with one state directory both programs may be process 1.
static void a_process_with_the_same_number_is_another_one(void **state)
{
    char folder[] = "/tmp/cairn-audit-XXXXXX", path[64];
    const struct cn_audit_who self = cn_audit_self("command");
    struct cn_audit_who other = self;
    struct cn_event_audit audit;
    struct told told = {0};
    (void)state;
    assert_non_null(mkdtemp(folder));
    assert_true(self.start > 0);
    cn_event_audit_open(&audit, folder);
    write_line(folder, self, "start");
    cn_event_audit_look(&audit, take, &told);
    assert_int_equal(told.count, 0);
    other.start++;
    write_line(folder, other, "enroll");
    cn_event_audit_look(&audit, take, &told);
    assert_int_equal(told.count, 1);
    assert_string_equal(told.newest, "enroll: done: it was asked");
    other.start = 0; // of an older release
    write_line(folder, other, "revoke");
    cn_event_audit_look(&audit, take, &told);
    assert_int_equal(told.count, 2);
    snprintf(path, sizeof(path), "%s/" CN_AUDIT_FILE, folder);
    FILE *file = fopen(path, "a");
    assert_non_null(file);
    fprintf(file, "{\"who\":{\"pid\":%d,\"start\":-1,\"by\":\"command\"},\"what\":\"job-submit\",",
            self.pid);
    fputs("\"arguments\":{\"file\":\"/home/me/x.yaml\",\"job\":\"next\"},\"result\":\"done\"}\n",
          file);
    fclose(file);
    cn_event_audit_look(&audit, take, &told);
    assert_int_equal(told.count, 3);
    assert_string_equal(told.newest, "next job-submit: done: file x.yaml, job next");
    cn_event_audit_close(&audit);
    snprintf(path, sizeof(path), "%s/" CN_AUDIT_FILE, folder);
    unlink(path);
    assert_int_equal(rmdir(folder), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_process_with_the_same_number_is_another_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
