// The values of a job as text, and which of them may change in a run.
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "runtime/profile/job_text.h"
#include "runtime/profile/schema.h"

static const char everything[] =
    "schema: cairn/site/v1\n"
    "name: board\n"
    "state: state\n"
    "job:\n"
    "  name: some-job\n"
    "  model: m.onnx\n"
    "  seed: 9007199254740991\n"
    "  loss: {kind: cross_entropy, weights: [1, 2.5, 0.1], ignore: [-100, 3], smoothing: 0.1}\n"
    "  data: {set: digits, scale: 0.0039215686274509803, mean: -3.5, normalize: channel,\n"
    "         window: 4, held_out: 12.3 %}\n"
    "  central: {set: test}\n"
    "  train: {learning_rate: 1e-07, optimizer: adam, beta1: 0.85, freeze: ['head.*', conv1],\n"
    "          schedule: {kind: cosine, factor: 0.1}, local_steps_max: 90, proximal: 0.01}\n"
    "  parallel: {sets: {late: phase == tuning or name != board-4, few: [board-1, board-2]},\n"
    "             phases: {start: 1, tuning: 8}, train: [late], measure: few, accumulate: 3}\n"
    "  update: {up: {mode: topk, density: 3.3 %, value_bits: 4}, down: {mode: q8},\n"
    "           densities: 'head.*=20%', priorities: ['conv1.*=4', 'x=0.5'], warm_up: 5}\n"
    "  rounds: {count: 7, quorum: 3, over_select: 1.7, deadline: 90 s}\n"
    "  limits: {max_norm: none, max_weight: 77}\n"
    "  stop: {patience: 3, target_accuracy: 97.5 %, metric: accuracy, target: 0.25}\n";

static struct cn_profile *load(const char *text)
{
    static struct cn_diag diag;
    struct cn_profile *profile = NULL;

    cn_diag_init(&diag);
    if (cn_profile_parse("site.yaml", text, strlen(text), &diag, &profile))
        fail_msg("%s", cn_diag_first(&diag));
    return profile;
}

static struct cn_settings *read_text(const char *text, cn_err expected)
{
    struct cn_settings *settings = calloc(1, sizeof(*settings));
    struct cn_diag diag;

    assert_non_null(settings);
    cn_diag_init(&diag);
    assert_int_equal(cn_job_text_read(text, strlen(text), &diag, settings), expected);
    return settings;
}

static void every_key_of_a_job_is_in_the_table_once(void **state)
{
    size_t keys = 0;

    (void)state;
    for (size_t i = 0; i < cn_schema_count; i++) {
        const char *key = cn_schema[i].path + 4;
        size_t found = 0;

        if (strncmp(cn_schema[i].path, "job.", 4) != 0)
            continue;
        for (size_t j = 0; j < cn_job_change_count; j++)
            found += strcmp(cn_job_changes[j].key, key) == 0;
        if (found != 1)
            fail_msg("job_changes.c has %zu rows for %s", found, key);
        keys++;
    }
    assert_int_equal(keys, cn_job_change_count);
    assert_int_equal(cn_job_change_of("no.key"), CN_CHANGE_NEVER);
}

static bool may_change(enum cn_change change, bool at_start)
{
    return at_start ? change == CN_CHANGE_START || change == CN_CHANGE_RESTART
                    : change == CN_CHANGE_ROUND;
}

// Compares a list of keys, which ends at the end of its paragraph.
static void check_list(char *list, bool at_start)
{
    char quoted[CN_NAME_SIZE], *end;

    assert_non_null(list);
    list = strstr(list, ":\n\n");
    assert_non_null(list);
    end = strstr(list, ".\n\n");
    assert_non_null(end);
    *end = '\0';
    for (size_t i = 0; i < cn_job_change_count; i++) {
        snprintf(quoted, sizeof(quoted), "`%s`", cn_job_changes[i].key);
        if ((strstr(list, quoted) != NULL) != may_change(cn_job_changes[i].change, at_start))
            fail_msg("PROFILES.md and job_changes.c differ about %s", quoted);
    }
    *end = '.';
}

// The manual lists what may change by a reload and at a start of the aggregator, and nothing else.
static void the_manual_lists_what_may_change(void **state)
{
    FILE *file = fopen(CAIRN_TEST_DATA "/../../runtime/profile/PROFILES.md", "r");
    char *text = calloc(1, 131072), *section;

    (void)state;
    assert_non_null(file);
    assert_non_null(text);
    assert_true(fread(text, 1, 131071, file) > 0);
    fclose(file);
    section = strstr(text, "\n## What may change in a run");
    assert_non_null(section);
    check_list(strstr(section, "By `reload`"), false);
    check_list(strstr(section, "By `reload` and at a start"), true);
    free(text);
}

static void a_text_reads_back_as_the_same_job(void **state)
{
    struct cn_profile *profile = load(everything);
    const struct cn_settings *settings = cn_profile_settings(profile);
    struct cn_settings *read;
    struct cn_diag diag;
    char *text, *again;

    (void)state;
    cn_diag_init(&diag);
    assert_int_equal(cn_job_text_make(settings, &text), CN_OK);
    assert_non_null(strstr(text, "train.learning_rate: 1e-07\n"));
    assert_null(strstr(text, "model: "));
    read = read_text(text, CN_OK);
    assert_int_equal(cn_job_text_compare(settings, read, ~0u, cn_job_text_conflict, &diag), 0);
    assert_memory_equal(&read->job.learning_rate, &settings->job.learning_rate, sizeof(double));
    assert_memory_equal(&read->job.scale, &settings->job.scale, sizeof(double));
    assert_memory_equal(&read->job.up.density, &settings->job.up.density, sizeof(double));
    assert_string_equal(read->job.parallel.sets, settings->job.parallel.sets);
    assert_string_equal(read->job.parallel.phases, settings->job.parallel.phases);
    assert_int_equal(cn_job_text_make(read, &again), CN_OK);
    assert_string_equal(text, again);
    free(text);
    free(again);
    free(read);
    cn_profile_free(profile);
}

static void a_text_that_is_damaged_or_of_a_later_program_is_refused(void **state)
{
    static const char *const texts[] = {"",
                                        "[1, 2]",
                                        "train.batch: 0\n",
                                        "train.batch: 1\ntrain.",
                                        "train.rest: 5\n",
                                        "state: /tmp\n",
                                        "\x01"};

    (void)state;
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++)
        free(read_text(texts[i], CN_EFORMAT));
}

static void a_key_that_a_text_lacks_has_its_default(void **state)
{
    struct cn_settings *read = read_text("train.batch: 64\n", CN_OK);

    (void)state;
    assert_int_equal(read->job.batch, 64);
    assert_int_equal(read->job.local_steps, 20);
    assert_int_equal(read->job.rounds, 30);
    free(read);
}

static void values_that_differ_are_named_unless_they_may_change_or_have_no_effect(void **state)
{
    struct cn_settings *run = read_text("name: a\ndata.set: d\nupdate.up.mode: q8\n", CN_OK),
                       *other = read_text("name: a\ndata.set: e\ntrain.learning_rate: 0.04\n"
                                          "update.up.mode: q8\nupdate.up.density: 7 %\n"
                                          "rounds.count: 5\ncentral.set: test\n",
                                          CN_OK);
    struct cn_diag diag;

    (void)state;
    cn_diag_init(&diag);
    assert_int_equal(
        cn_job_text_compare(run, other,
                            CN_CHANGE_BIT(CN_CHANGE_NEVER) | CN_CHANGE_BIT(CN_CHANGE_ROUND),
                            cn_job_text_conflict, &diag),
        2);
    assert_string_equal(diag.lines[0], "data.set: d in the run, e in the profile");
    assert_string_equal(diag.lines[1], "train.learning_rate: 0.05 in the run, 0.04 in the profile");
    cn_diag_init(&diag);
    assert_int_equal(
        cn_job_text_compare(run, other, CN_CHANGE_BIT(CN_CHANGE_START), cn_job_text_change, &diag),
        1);
    assert_string_equal(diag.lines[0], "rounds.count: 30, now 5");
    free(run);
    free(other);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_key_of_a_job_is_in_the_table_once),
        cmocka_unit_test(the_manual_lists_what_may_change),
        cmocka_unit_test(a_text_reads_back_as_the_same_job),
        cmocka_unit_test(a_text_that_is_damaged_or_of_a_later_program_is_refused),
        cmocka_unit_test(a_key_that_a_text_lacks_has_its_default),
        cmocka_unit_test(values_that_differ_are_named_unless_they_may_change_or_have_no_effect),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
