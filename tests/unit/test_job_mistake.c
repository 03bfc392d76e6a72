// What everybody is told of a mistake in the profile of a submitted job.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "aggregator/daemon/job_mistake.h"
#include "runtime/profile/profile.h"

#define JOB "schema: cairn/job/v1\n"
#define SEE_LOG "the gateway's log says what is wrong"

static void a_mistake_is_told_without_paths_and_values(void **state)
{
    static const struct {
        const char *line, *wanted;
    } cases[] = {
        {"/var/lib/c/jobs/a/submitted.yaml:3:8: error: rounds.deadline: '1 parsec'; expected a "
         "time",
         "submitted.yaml:3: rounds.deadline: expected a time"},
        {"s/jobs/a/profile.yaml:2:1: error: http.token: '5f; expected x'; expected a file",
         "profile.yaml:2: http.token: expected a file"},
        {"/a/p.yaml:2:1: error: rounds.quorum: '9' is more than the site allows; expected at most "
         "the value at /etc/gateway.yaml:4",
         "p.yaml:2: rounds.quorum: " SEE_LOG},
        {"/a/p.yaml:2:1: error: http.s3cret: unknown key; did you mean 'http.names'?",
         "p.yaml:2: unknown key"},
        {"/a/p.yaml:7:1: error: not YAML: did not find expected key", "p.yaml:7: " SEE_LOG},
        {"/a/p.yaml:1:1: error: /etc/secret: cannot be read", "p.yaml:1: " SEE_LOG},
        {"p.yaml:1:1: error: model: 'm.onnx' is missing", "p.yaml:1: model: " SEE_LOG},
        {"/a/p.yaml: out of memory", "its profile cannot be read; " SEE_LOG},
        {": error: ", "its profile cannot be read; " SEE_LOG},
        {"1:1: error: ", "its profile cannot be read; " SEE_LOG},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct cn_diag diag;
        char text[CN_JOB_REASON];
        cn_diag_init(&diag);
        cn_diag_add(&diag, "/a/p.yaml:9:9: warning: not this one");
        cn_diag_add(&diag, "%s", cases[i].line);
        cn_job_mistake_text(&diag, text);
        assert_string_equal(text, cases[i].wanted);
    }
}

// The lines are those that the parser writes: "s3cret" stands for what only the job's owner knows.
static void a_profile_that_is_read_with_mistakes_keeps_its_values_for_itself(void **state)
{
    static const struct {
        const char *profile, *wanted;
    } cases[] = {
        {JOB "rounds:\n  deadline: s3cret\n", "submitted.yaml:3: rounds.deadline: "},
        {JOB "rounds:\n  deadline: 'no; expected s3cret'\n", "submitted.yaml:3: rounds.deadline: "},
        {JOB "s3cret: 1\n", "submitted.yaml:2: "},
        {JOB "stop:\n  s3cret: 1\n", "submitted.yaml:3: "},
        {JOB "stop: {patience: s3cret\n", "submitted.yaml:"},
        {"schema: s3cret\n", "submitted.yaml:1: schema: "},
        {"s3cret\n", "submitted.yaml:1: "},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct cn_profile *profile = NULL;
        struct cn_diag diag;
        char text[CN_JOB_REASON];
        cn_diag_init(&diag);
        cn_err err = cn_profile_parse("/somewhere/submitted.yaml", cases[i].profile,
                                      strlen(cases[i].profile), &diag, &profile);
        assert_int_equal(err, CN_EINVAL);
        cn_job_mistake_text(&diag, text);
        assert_null(strstr(text, "s3cret"));
        assert_null(strstr(text, "somewhere"));
        if (strncmp(text, cases[i].wanted, strlen(cases[i].wanted)) != 0)
            fail_msg("%s, of: %s", text, cn_diag_first(&diag));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_mistake_is_told_without_paths_and_values),
        cmocka_unit_test(a_profile_that_is_read_with_mistakes_keeps_its_values_for_itself),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
