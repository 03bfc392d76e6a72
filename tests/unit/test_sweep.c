// A sweep without its processes: the values of trials, which of them go on, the record, the job
// files.
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "aggregator/sweep/halving.h"
#include "aggregator/sweep/sweep_job.h"
#include "aggregator/sweep/sweep_record.h"
#include "aggregator/sweep/sweep_space.h"
#include "runtime/port/platform.h"

// --- values ---

static void assert_trial(const struct cn_sweep_space *space, uint32_t trial, const char *wanted)
{
    char text[CN_SWEEP_VALUES_SIZE];

    cn_sweep_space_values(space, trial, text);
    assert_string_equal(text, wanted);
}

static void a_grid_has_each_combination_once(void **state)
{
    static struct cn_sweep_space space;
    struct cn_diag diag;

    (void)state;
    cn_diag_init(&diag);
    space = (struct cn_sweep_space){0};
    assert_int_equal(cn_sweep_space_add_list(&space, "train.learning_rate=0.1,1e-2", &diag), CN_OK);
    assert_int_equal(
        cn_sweep_space_add_list(&space, "server.optimizer=fedavg,fedadam,nesterov", &diag), CN_OK);
    assert_int_equal(cn_sweep_space_check(&space, &diag), CN_OK);
    assert_int_equal(space.trials, 6);
    assert_trial(&space, 0, "train.learning_rate=0.1 server.optimizer=fedavg");
    assert_trial(&space, 1, "train.learning_rate=0.1 server.optimizer=fedadam");
    assert_trial(&space, 3, "train.learning_rate=1e-2 server.optimizer=fedavg");
    assert_trial(&space, 5, "train.learning_rate=1e-2 server.optimizer=nesterov");
}

// The values are those of Philox (random.h), so they are the same on every machine.
static void draws_follow_from_the_seed(void **state)
{
    static struct cn_sweep_space space;
    struct cn_diag diag;
    char first[CN_SWEEP_VALUES_SIZE], other[CN_SWEEP_VALUES_SIZE];

    (void)state;
    cn_diag_init(&diag);
    space = (struct cn_sweep_space){.draws = 200, .seed = 7};
    assert_int_equal(cn_sweep_space_add_range(&space, "train.learning_rate=1e-4..1", true, &diag),
                     CN_OK);
    assert_int_equal(cn_sweep_space_add_range(&space, "train.local_steps=5..9", false, &diag),
                     CN_OK);
    assert_int_equal(cn_sweep_space_add_list(&space, "train.nesterov=true,false", &diag), CN_OK);
    assert_int_equal(cn_sweep_space_check(&space, &diag), CN_OK);
    assert_int_equal(space.trials, 200);
    int small = 0, nesterov = 0;
    for (uint32_t i = 0; i < space.trials; i++) {
        char rate[CN_SWEEP_VALUE_SIZE], steps[CN_SWEEP_VALUE_SIZE], word[CN_SWEEP_VALUE_SIZE];
        cn_sweep_space_value(&space, i, 0, rate);
        cn_sweep_space_value(&space, i, 1, steps);
        cn_sweep_space_value(&space, i, 2, word);
        assert_true(strtod(rate, NULL) >= 1e-4 && strtod(rate, NULL) <= 1);
        assert_int_equal(strlen(steps), 1);
        assert_in_range(strtoul(steps, NULL, 10), 5, 9);
        small += strtod(rate, NULL) < 1e-2; // half of the logarithm's range
        nesterov += strcmp(word, "true") == 0;
    }
    assert_in_range(small, 80, 120);
    assert_in_range(nesterov, 80, 120);
    cn_sweep_space_values(&space, 0, first);
    space.seed = 8;
    cn_sweep_space_values(&space, 0, other);
    assert_string_not_equal(first, other);
    space.seed = 7;
    assert_trial(&space, 0, first);
}

static void what_cannot_be_swept_is_refused_with_one_line(void **state)
{
    static const struct {
        const char *text;
        bool range;
        const char *says;
    } wrong[] = {
        {"train.learning_rate", false, "expected KEY=VALUES"},
        {"=1,2", false, "expected KEY=VALUES"},
        {"train.learning_rat=1,2", false, "did you mean 'train.learning_rate'?"},
        {"trian.learning_rate=1,2", false, "did you mean 'train.learning_rate'?"},
        {"learning_rate=1,2", false, "did you mean"},
        {"qqqqq.zzzzzz=1,2", false, "is no key of a job; see cairn-profile(5)"},
        {"gateway.listen=1", false, "is no key of a job"},
        {"train=1", false, "is a section of a job"},
        {"loss=mse,l1", false, "trials with other values could not be compared"},
        {"rounds.count=1,2", false, "cannot be swept"},
        {"model=a,b", false, "cannot be swept"},
        {"loss.kind=mse", false, "cannot be swept"},
        {"seed=1,2", false, "cannot be swept"},
        {"train.learning_rate=0.1,,0.2", false, "'' is no value"},
        {"train.learning_rate=0.1,\"x\"", false, "is no value"},
        {"train.learning_rate=0.1\nmodel: x", false, "is no value"},
        {"train.learning_rate=0.1,0.1", false, "in the list twice"},
        {"train.learning_rate=1", true, "expected KEY=LOW..HIGH"},
        {"train.learning_rate=2..1", true, "expected KEY=LOW..HIGH"},
        {"train.learning_rate=0..1", true, "and above 0"},
        {"train.learning_rate=nan..1", true, "expected KEY=LOW..HIGH"},
        {"train.optimizer=0..1", true, "is no plain number"},
    };
    static struct cn_sweep_space space;

    (void)state;
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        struct cn_diag diag;
        cn_diag_init(&diag);
        space = (struct cn_sweep_space){0};
        assert_int_equal(wrong[i].range
                             ? cn_sweep_space_add_range(&space, wrong[i].text, true, &diag)
                             : cn_sweep_space_add_list(&space, wrong[i].text, &diag),
                         CN_EINVAL);
        assert_int_equal(diag.count, 1);
        assert_non_null(strstr(cn_diag_first(&diag), wrong[i].says));
        assert_int_equal(space.count, 0);
    }
}

static void too_many_trials_and_ranges_without_draws_are_refused(void **state)
{
    static struct cn_sweep_space space;
    struct cn_diag diag;

    (void)state;
    cn_diag_init(&diag);
    space = (struct cn_sweep_space){0};
    assert_int_equal(cn_sweep_space_check(&space, &diag), CN_EINVAL);
    for (int key = 0; key < 2; key++)
        assert_int_equal(cn_sweep_space_add_list(
                             &space,
                             key ? "train.batch=1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16"
                                 : "train.local_steps=1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16",
                             &diag),
                         CN_OK);
    assert_int_equal(cn_sweep_space_check(&space, &diag), CN_EINVAL); // 256
    space.draws = 10;
    assert_int_equal(cn_sweep_space_check(&space, &diag), CN_OK);
    space.draws = CN_SWEEP_TRIALS_MAX + 1;
    assert_int_equal(cn_sweep_space_check(&space, &diag), CN_EINVAL);
    assert_int_equal(cn_sweep_space_add_range(&space, "train.momentum=0..0.9", false, &diag),
                     CN_OK);
    space.draws = 0;
    assert_int_equal(cn_sweep_space_check(&space, &diag), CN_EINVAL);
    assert_int_equal(cn_sweep_space_add_list(&space, "train.batch=1", &diag), CN_EINVAL); // twice
    assert_int_equal(diag.count, 5);
}

// --- halving ---

static void a_third_goes_on_until_one_is_left(void **state)
{
    const struct cn_halving plan = {.trials = 9, .first = 3, .factor = 3};
    double losses[9] = {0.5, 0.1, 0.9, 0.3, 0.2, 0.8, 0.7, 0.6, 0.4};
    bool in[9];
    uint32_t rounds = 0, trained = 0;

    (void)state;
    memset(in, true, sizeof(in));
    assert_int_equal(cn_halving_rungs(&plan), 3);
    for (uint32_t rung = 0; rung < 3; rung++) {
        uint32_t count = 0, more = cn_halving_rounds(&plan, rung) - trained;
        for (int i = 0; i < 9; i++)
            count += in[i];
        rounds += count * more;
        trained += more;
        if (rung < 2)
            cn_halving_select(&plan, rung, losses, in);
    }
    assert_int_equal(rounds, 9 * 3 + 3 * 6 + 1 * 18);
    assert_int_equal(cn_halving_best(9, losses, in), 1);
    for (int i = 0; i < 9; i++)
        assert_int_equal(in[i], i == 1);
}

static void those_that_tie_go_on_and_those_that_failed_do_not(void **state)
{
    const struct cn_halving plan = {.trials = 4, .first = 1, .factor = 2};
    double losses[4] = {0.5, INFINITY, 0.5, 0.5}, failed[4] = {NAN, INFINITY, NAN, NAN};
    bool in[4] = {true, true, true, true};

    (void)state;
    cn_halving_select(&plan, 0, losses, in);
    assert_true(in[0] && !in[1] && in[2] && in[3]);
    cn_halving_select(&plan, 1, losses, in);
    assert_true(in[0] && !in[1] && in[2] && in[3]);
    assert_int_equal(cn_halving_best(4, losses, in), 0);
    cn_halving_select(&plan, 1, failed, in);
    for (int i = 0; i < 4; i++)
        assert_false(in[i]);
    assert_int_equal(cn_halving_best(4, failed, in), UINT32_MAX);
}

static void plans_of_every_size_end(void **state)
{
    (void)state;
    for (uint32_t trials = 1; trials <= CN_SWEEP_TRIALS_MAX; trials++)
        for (uint32_t factor = 2; factor < 6; factor++) {
            const struct cn_halving plan = {.trials = trials, .first = 1, .factor = factor};
            assert_in_range(cn_halving_rungs(&plan), 1, 9);
            assert_int_equal(cn_halving_rungs(&plan) == 1, trials == 1);
        }
    const struct cn_halving large = {.trials = 1, .first = 1000000, .factor = 100};
    assert_int_equal(cn_halving_rounds(&large, 3), UINT32_MAX);
}

// --- the record ---

static char folder[] = "/tmp/cairn-sweep-XXXXXX";

static int make_folder(void **state)
{
    (void)state;
    strcpy(folder, "/tmp/cairn-sweep-XXXXXX");
    return mkdtemp(folder) ? 0 : -1;
}

static int remove_folder(void **state)
{
    char command[sizeof(folder) + 16];

    (void)state;
    snprintf(command, sizeof(command), "rm -rf %s", folder);
    return system(command);
}

static cn_err open_record(struct cn_sweep_record *record, const char *settings)
{
    struct cn_diag diag;

    cn_diag_init(&diag);
    cn_err err = cn_sweep_record_open(record, folder, settings, &diag);
    assert_int_equal(diag.count, err != CN_OK);
    return err;
}

static void results_are_there_after_a_new_start(void **state)
{
    struct cn_sweep_record record, second;
    struct cn_sweep_result result = {.rounds = 3, .loss = 0.1, .accuracy = NAN, .bytes_up = 5};

    (void)state;
    assert_int_equal(open_record(&record, "first 3\nseed 1\n"), CN_OK);
    assert_int_equal(open_record(&second, "first 3\nseed 1\n"), CN_EEXIST); // runs there
    cn_sweep_record_close(&second);
    cn_sweep_record_close(&record);
    assert_int_equal(open_record(&record, "first 9\nseed 1\n"), CN_OK); // no trial has begun
    cn_sweep_record_close(&record);
    assert_int_equal(open_record(&record, "first 3\nseed 1\n"), CN_OK);
    strcpy(result.digest, "0123456789abcdef");
    for (uint32_t i = 0; i < 100; i++) {
        result.rung = i / 60;
        result.trial = i % 60;
        result.loss = i ? 1.0 / (i + 2) : INFINITY;
        assert_int_equal(cn_sweep_record_add(&record, &result), CN_OK);
    }
    cn_sweep_record_close(&record);
    assert_int_equal(open_record(&record, "first 3\nseed 2\n"), CN_EEXIST); // other settings
    cn_sweep_record_close(&record);
    assert_int_equal(open_record(&record, "first 3\n"), CN_EINVAL); // fewer
    cn_sweep_record_close(&record);
    assert_int_equal(open_record(&record, "first 3\nseed 1\n"), CN_OK);
    assert_int_equal(record.count, 100);
    assert_true(isinf(cn_sweep_record_find(&record, 0, 0)->loss));
    assert_true(cn_sweep_record_find(&record, 1, 39)->loss == 1.0 / 101);
    assert_true(isnan(cn_sweep_record_find(&record, 1, 39)->accuracy));
    assert_string_equal(cn_sweep_record_newest(&record, 7)->digest, result.digest);
    assert_int_equal(cn_sweep_record_newest(&record, 7)->rung, 1);
    assert_null(cn_sweep_record_find(&record, 1, 40));
    assert_null(cn_sweep_record_newest(&record, 60));
    cn_sweep_record_close(&record);
}

static void a_damaged_record_and_a_strange_folder_are_refused(void **state)
{
    static const char *const damaged[] = {"",
                                          "first 3\n",
                                          "first 3\nresults\n0 0 1",
                                          "first 3\nresults\n0 0 1 x y 1 2 ab\n",
                                          "first 3\nresults\n99 0 1 1 1 1 1 ab\n",
                                          "first 3\nresults\n0 999 1 1 1 1 1 ab\n",
                                          "first 3\nresults\n0 0 1 1 1 1 1 \n"};
    struct cn_sweep_record record;
    char path[64];

    (void)state;
    snprintf(path, sizeof(path), "%s/%s", folder, CN_SWEEP_FILE);
    for (size_t i = 0; i < sizeof(damaged) / sizeof(damaged[0]); i++) {
        FILE *file = fopen(path, "w");
        assert_non_null(file);
        fputs(damaged[i], file);
        fclose(file);
        assert_int_not_equal(open_record(&record, "first 3\n"), CN_OK);
        cn_sweep_record_close(&record);
    }
    unlink(path);
    snprintf(path, sizeof(path), "%s/else", folder);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fclose(file);
    assert_int_equal(open_record(&record, "first 3\n"), CN_EEXIST);
    cn_sweep_record_close(&record);
    unlink(path);
    assert_int_equal(chmod(folder, 0777), 0);
    assert_int_equal(open_record(&record, "first 3\n"), CN_EEXIST);
    cn_sweep_record_close(&record);
}

// --- job files ---

static void a_job_file_has_each_section_once(void **state)
{
    static struct cn_sweep_space space;
    static const char wanted[] = "# Written by cairn-aggregator sweep: trial 1.\n"
                                 "schema: cairn/job/v1\n"
                                 "extends: \"/base.yaml\"\n"
                                 "rounds:\n"
                                 "  count: 12\n"
                                 "train:\n"
                                 "  batch: 16\n"
                                 "  learning_rate: 0.1\n"
                                 "update:\n"
                                 "  up:\n"
                                 "    density: 5 %\n"
                                 "    mode: topk\n";
    struct cn_store *store;
    struct cn_diag diag;
    uint8_t *text;
    size_t size;
    char path[64];

    (void)state;
    cn_diag_init(&diag);
    space = (struct cn_sweep_space){0};
    assert_int_equal(cn_sweep_space_add_list(&space, "update.up.mode=topk", &diag), CN_OK);
    assert_int_equal(cn_sweep_space_add_list(&space, "train.learning_rate=0.1", &diag), CN_OK);
    assert_int_equal(cn_sweep_space_add_list(&space, "update.up.density=5 %", &diag), CN_OK);
    assert_int_equal(cn_sweep_space_add_list(&space, "train.batch=16,0", &diag), CN_OK);
    assert_int_equal(cn_platform_open_store(folder, &store), CN_OK);
    assert_int_equal(cn_sweep_job_write(&space, 0, "/base.yaml", 12, store, "a.yaml"), CN_OK);
    assert_int_equal(store->ops->load(store, "a.yaml", 4096, &text, &size), CN_OK);
    assert_int_equal(size, strlen(wanted));
    assert_memory_equal(text, wanted, size);
    free(text);
    for (uint32_t trial = 0; trial < 2; trial++) {
        assert_int_equal(cn_sweep_job_write(&space, trial, NULL, 0, store, "b.yaml"), CN_OK);
        snprintf(path, sizeof(path), "%s/b.yaml", folder);
        cn_diag_init(&diag);
        assert_int_equal(cn_sweep_job_check(path, &diag), trial ? CN_EINVAL : CN_OK);
    }
    assert_non_null(strstr(cn_diag_first(&diag), "batch"));
    store->ops->close(store);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_grid_has_each_combination_once),
        cmocka_unit_test(draws_follow_from_the_seed),
        cmocka_unit_test(what_cannot_be_swept_is_refused_with_one_line),
        cmocka_unit_test(too_many_trials_and_ranges_without_draws_are_refused),
        cmocka_unit_test(a_third_goes_on_until_one_is_left),
        cmocka_unit_test(those_that_tie_go_on_and_those_that_failed_do_not),
        cmocka_unit_test(plans_of_every_size_end),
        cmocka_unit_test_setup_teardown(results_are_there_after_a_new_start, make_folder,
                                        remove_folder),
        cmocka_unit_test_setup_teardown(a_damaged_record_and_a_strange_folder_are_refused,
                                        make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(a_job_file_has_each_section_once, make_folder,
                                        remove_folder),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
