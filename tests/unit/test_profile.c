// Profiles: what loads, which value wins, what a program requires, and the messages of bad ones.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <dirent.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/unit/profile_text.h"

static void a_site_is_laid_over_its_board(void **state)
{
    struct cn_profile *profile = profile_load("good-board-1.yaml");
    const struct cn_settings *settings = cn_profile_settings(profile);

    (void)state;
    assert_string_equal(settings->name, "board-1");
    assert_string_equal(settings->board_type, "generic-x86-64");
    assert_int_equal(settings->threads, 2);
    assert_int_equal(settings->memory_limit, UINT64_C(4) << 30);
    assert_int_equal(settings->power_mw, 25000);
    assert_int_equal(settings->uplink_bps, 2000000);
    assert_int_equal(settings->group.rejoin_ms, 500);
    assert_string_equal(settings->state, "state/board-1");
    assert_false(settings->has_job);
    cn_profile_free(profile);
}

static void members_have_the_same_order_on_each_board(void **state)
{
    struct cn_profile *profile = profile_load("good-board-1.yaml");
    const struct cn_group_settings *group = &cn_profile_settings(profile)->group;

    (void)state;
    assert_int_equal(group->member_count, 2);
    assert_string_equal(group->members[0].name, "board-1");
    assert_string_equal(group->members[1].name, "board-2");
    assert_string_equal(group->members[1].address, "127.0.0.1:7103");
    cn_profile_free(profile);
}

static void a_gateway_takes_its_job_from_a_file(void **state)
{
    struct cn_profile *profile = profile_load("good-gateway.yaml");
    const struct cn_settings *settings = cn_profile_settings(profile);
    const struct cn_job *job = &settings->job;

    (void)state;
    assert_true(settings->has_job);
    assert_string_equal(settings->model, "jobs/digits-cnn.onnx");
    assert_string_equal(job->data_set, "digits");
    assert_true(job->held_out == 0.1 && job->up.density == 0.05 && job->scale == 0.0625);
    assert_int_equal(job->deadline_ms, 60000);
    assert_int_equal(job->up.mode, CN_UPDATE_TOPK);
    assert_int_equal(job->down.mode, CN_UPDATE_Q8);
    assert_int_equal(settings->gateway.listen_count, 2);
    assert_int_equal(settings->gateway.keep_rounds, 0);
    assert_int_equal(cn_profile_require(profile, CN_PROFILE_GATEWAY, &diag), CN_OK);
    cn_profile_free(profile);
}

static void paths_count_from_the_file_where_they_are_written(void **state)
{
    struct cn_profile *profile;

    (void)state;
    assert_int_equal(chdir("jobs"), 0);
    profile = profile_load("../good-gateway.yaml");
    assert_string_equal(cn_profile_settings(profile)->model, "../jobs/digits-cnn.onnx");
    cn_profile_free(profile);
    assert_int_equal(chdir(".."), 0);
}

static void a_section_is_laid_over_the_job_of_a_lower_site(void **state)
{
    struct cn_profile *profile = profile_parse("schema: cairn/site/v1\n"
                                               "extends: good-gateway.yaml\n"
                                               "job: {rounds: {count: 3}}\n");
    const struct cn_job *job = &cn_profile_settings(profile)->job;

    (void)state;
    assert_int_equal(job->rounds, 3);
    assert_int_equal(job->quorum, 2);
    cn_profile_free(profile);
}

static void what_a_program_requires_is_told_at_once(void **state)
{
    struct cn_profile *profile = profile_parse("schema: cairn/site/v1\nname: board-1\n");

    (void)state;
    cn_diag_init(&diag);
    assert_int_equal(cn_profile_require(profile, CN_PROFILE_NODE, &diag), CN_EINVAL);
    assert_int_equal(diag.count, 4);
    assert_string_equal(diag.lines[0], "test.yaml:1:1: error: state: not set; expected a path");
    assert_int_equal(cn_profile_use_key(profile, "board.key"), CN_OK);
    assert_string_equal(cn_profile_settings(profile)->key, "board.key");
    cn_diag_init(&diag);
    assert_int_equal(cn_profile_require(profile, CN_PROFILE_NODE, &diag), CN_EINVAL);
    assert_int_equal(diag.count, 3);
    cn_profile_free(profile);
}

static void a_profile_without_a_job_is_told_so_once(void **state)
{
    struct cn_profile *profile = profile_parse("schema: cairn/site/v1\nname: board-1\nstate: s\n");

    (void)state;
    cn_diag_init(&diag);
    assert_int_equal(cn_profile_require(profile, CN_PROFILE_TRAIN, &diag), CN_EINVAL);
    assert_int_equal(diag.count, 1);
    assert_non_null(strstr(diag.lines[0], "error: the profile names no job: expected"));
    cn_profile_free(profile);
}

static void a_job_is_no_profile_of_a_board(void **state)
{
    struct cn_profile *profile = profile_parse("schema: cairn/job/v1\nname: j\nmodel: m.onnx\n");

    (void)state;
    cn_diag_init(&diag);
    assert_int_equal(cn_profile_require(profile, CN_PROFILE_NODE, &diag), CN_EINVAL);
    assert_int_equal(diag.count, 1);
    assert_string_equal(diag.lines[0], "test.yaml:1:1: error: schema: this file is a job; expected "
                                       "the profile of a site, which names it: 'job: FILE'");
    cn_profile_free(profile);
}

static void a_job_needs_a_mapped_data_set_to_train(void **state)
{
    struct cn_profile *profile = profile_parse("schema: cairn/site/v1\n"
                                               "state: s\n"
                                               "data: {a: {inputs: i.npy, labels: l.npy}}\n"
                                               "job: {name: j, model: m.onnx, data: {set: b}}\n");

    (void)state;
    cn_diag_init(&diag);
    assert_int_equal(cn_profile_require(profile, CN_PROFILE_TRAIN, &diag), CN_EINVAL);
    assert_string_equal(diag.lines[0], "test.yaml:4:43: error: data.set: 'b' is not among the data "
                                       "sets here; expected it below data");
    assert_null(cn_profile_data(cn_profile_settings(profile), "b"));
    assert_string_equal(cn_profile_data(cn_profile_settings(profile), "a")->labels, "l.npy");
    cn_profile_free(profile);
}

static void held_out_names_another_data_set(void **state)
{
    static const char good[] = "schema: cairn/site/v1\n"
                               "data: {a: {inputs: i.npy, labels: l.npy, held_out: b},\n"
                               "       b: {inputs: j.npy, labels: m.npy}}\n";
    static const char *const bad[] = {"held_out: c", "held_out: a"};
    struct cn_profile *profile = profile_parse(good);
    char text[200], *printed = profile_print(profile, false);

    (void)state;
    assert_string_equal(cn_profile_data(cn_profile_settings(profile), "a")->held_out, "b");
    assert_non_null(strstr(printed, "held_out: b"));
    free(printed);
    cn_profile_free(profile);
    for (size_t i = 0; i < 2; i++) {
        snprintf(text, sizeof(text),
                 "schema: cairn/site/v1\ndata: {a: {inputs: i.npy, labels: l.npy, %s}}\n", bad[i]);
        cn_diag_init(&diag);
        assert_int_equal(cn_profile_parse("t.yaml", text, strlen(text), &diag, &profile),
                         CN_EINVAL);
        assert_non_null(strstr(diag.lines[0], "expected the name of another data set"));
    }
}

// The messages of a bad profile, as one text.
static void collect(const char *path, char *text, size_t size)
{
    struct cn_profile *profile;
    size_t length = 0;

    cn_diag_init(&diag);
    assert_int_equal(cn_profile_load(path, &diag, &profile), CN_EINVAL);
    assert_true(diag.count > 0 && diag.count <= CN_DIAG_LINES);
    for (size_t i = 0; i < diag.count; i++)
        length += (size_t)snprintf(text + length, size - length, "%s\n", diag.lines[i]);
}

static void every_bad_profile_has_the_expected_messages(void **state)
{
    DIR *directory = opendir(".");
    struct dirent *entry;
    size_t seen = 0;

    (void)state;
    assert_non_null(directory);
    while ((entry = readdir(directory))) {
        static char found[CN_DIAG_LINES * CN_DIAG_LINE_SIZE], wanted[sizeof(found)];
        size_t length = strlen(entry->d_name);
        char path[PATH_MAX];
        FILE *file;

        if (strncmp(entry->d_name, "bad-", 4) != 0 || length < 5 ||
            strcmp(entry->d_name + length - 5, ".yaml") != 0)
            continue;
        collect(entry->d_name, found, sizeof(found));
        snprintf(path, sizeof(path), "%.*s.expected", (int)length - 5, entry->d_name);
        file = fopen(path, "r");
        if (!file)
            fail_msg("%s is missing; found:\n%s", path, found);
        wanted[fread(wanted, 1, sizeof(wanted) - 1, file)] = '\0';
        fclose(file);
        assert_string_equal(found, wanted);
        seen++;
    }
    closedir(directory);
    assert_true(seen >= 15);
}

static void a_byte_order_mark_is_passed_over_and_a_binary_file_named(void **state)
{
    static const char binary[] = "\tELF\0\n\t\n\t";
    struct cn_profile *profile = NULL;

    (void)state;
    cn_profile_free(profile_parse("\xef\xbb\xbf"
                                  "schema: cairn/site/v1\nextends: good-gateway.yaml\n"));
    cn_diag_init(&diag);
    assert_int_equal(cn_profile_parse("test.yaml", binary, sizeof(binary), &diag, &profile),
                     CN_EINVAL);
    assert_string_equal(cn_diag_first(&diag),
                        "test.yaml:1:1: error: not a text file; expected YAML");
    assert_int_equal(diag.count, 1);
}

static void a_file_that_is_too_large_or_none_is_refused(void **state)
{
    size_t size = 1024 * 1024 + 1;
    char *text = malloc(size);
    struct cn_profile *profile;

    (void)state;
    assert_non_null(text);
    memset(text, '#', size);
    cn_diag_init(&diag);
    assert_int_equal(cn_profile_parse("big.yaml", text, size, &diag, &profile), CN_EINVAL);
    assert_non_null(strstr(cn_diag_first(&diag), "more than 1 MiB"));
    free(text);
    cn_diag_init(&diag);
    assert_int_equal(cn_profile_load("/dev/zero", &diag, &profile), CN_EINVAL);
    assert_non_null(strstr(cn_diag_first(&diag), "it is not a file"));
    assert_int_equal(cn_profile_load("jobs", NULL, &profile), CN_EINVAL);
}

static void mistakes_beyond_the_first_lines_are_counted(void **state)
{
    char text[4096] = "schema: cairn/site/v1\n";

    (void)state;
    for (int i = 0; i < 100; i++)
        snprintf(text + strlen(text), sizeof(text) - strlen(text), "unknown-%d: 1\n", i);
    (void)profile_mistake(text);
    assert_int_equal(diag.count, 100);
}

static void more_entries_than_allowed_are_refused(void **state)
{
    char text[8192] = "schema: cairn/site/v1\ngroup: {members: {";

    (void)state;
    for (int i = 0; i < 17; i++)
        snprintf(text + strlen(text), sizeof(text) - strlen(text), "b%d: \"h%d:1000\", ", i, i);
    snprintf(text + strlen(text), sizeof(text) - strlen(text), "}}\n");
    assert_non_null(strstr(profile_mistake(text), "group.members: a map with too many entries"));
}

static void every_board_loads(void **state)
{
    DIR *directory = opendir("../../../boards");
    struct dirent *entry;
    size_t seen = 0;

    (void)state;
    assert_non_null(directory);
    while ((entry = readdir(directory))) {
        char path[PATH_MAX];
        struct stat status;
        struct cn_profile *profile;

        snprintf(path, sizeof(path), "../../../boards/%s/board.yaml", entry->d_name);
        if (entry->d_name[0] == '.' || stat(path, &status) != 0)
            continue;
        profile = profile_load(path);
        assert_string_equal(cn_profile_settings(profile)->board_type, entry->d_name);
        cn_profile_free(profile);
        seen++;
    }
    closedir(directory);
    assert_true(seen >= 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_site_is_laid_over_its_board),
        cmocka_unit_test(members_have_the_same_order_on_each_board),
        cmocka_unit_test(a_gateway_takes_its_job_from_a_file),
        cmocka_unit_test(paths_count_from_the_file_where_they_are_written),
        cmocka_unit_test(a_section_is_laid_over_the_job_of_a_lower_site),
        cmocka_unit_test(what_a_program_requires_is_told_at_once),
        cmocka_unit_test(a_profile_without_a_job_is_told_so_once),
        cmocka_unit_test(a_job_is_no_profile_of_a_board),
        cmocka_unit_test(a_job_needs_a_mapped_data_set_to_train),
        cmocka_unit_test(held_out_names_another_data_set),
        cmocka_unit_test(every_bad_profile_has_the_expected_messages),
        cmocka_unit_test(a_byte_order_mark_is_passed_over_and_a_binary_file_named),
        cmocka_unit_test(a_file_that_is_too_large_or_none_is_refused),
        cmocka_unit_test(mistakes_beyond_the_first_lines_are_counted),
        cmocka_unit_test(more_entries_than_allowed_are_refused),
        cmocka_unit_test(every_board_loads),
    };

    return cmocka_run_group_tests(tests, profile_enter_data, NULL);
}
