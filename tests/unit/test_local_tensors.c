// Tensors that never travel: which they are, and that no frame has them.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "runtime/update/local_tensors.h"
#include "runtime/update/rate.h"
#include "runtime/update/tensor_rules.h"
#include "runtime/update/update.h"
#include "tests/support/layouts.h"

// t0 and t3 are sparse with top-k.
static const struct cn_test_tensor tensors[] = {{8000, CN_TENSOR_PARAM},
                                                {100, CN_TENSOR_PARAM},
                                                {100, CN_TENSOR_STAT},
                                                {2000, CN_TENSOR_PARAM}};
#define TENSORS 4
#define TOTAL 10200

static cn_err set(struct cn_layout *layout, const struct cn_job *job, struct cn_diag *diag)
{
    *layout = cn_test_layout(tensors, TENSORS);
    cn_diag_init(diag);
    return cn_tensor_rules_set(layout, job, diag);
}

// Returns a letter for each tensor: l local, s stays as well, f stays but is the same everywhere.
static const char *classes(const struct cn_job *job)
{
    static const char letters[2][2] = {{'-', 'f'}, {'l', 's'}}; // by local, then stays
    static char text[TENSORS + 1];
    struct cn_layout layout;
    struct cn_diag diag;

    assert_int_equal(set(&layout, job, &diag), CN_OK);
    for (size_t t = 0; t < TENSORS; t++)
        text[t] = letters[layout.tensors[t].local][layout.tensors[t].stays];
    cn_test_layout_free(&layout);
    return text;
}

static void job_and_layout_say_which_tensors_never_travel(void **state)
{
    struct cn_job job = {0};

    (void)state;
    assert_string_equal(classes(&job), "----");
    job.statistics = CN_STATISTICS_LOCAL;
    assert_string_equal(classes(&job), "--l-");
    snprintf(job.options.local, CN_WORDS_SIZE, "t1 *3");
    assert_string_equal(classes(&job), "-sls");
    job.statistics = CN_STATISTICS_SHARED;
    snprintf(job.options.local, CN_WORDS_SIZE, "t2"); // a statistic by its name
    assert_string_equal(classes(&job), "--s-");
    snprintf(job.rules.freeze, CN_WORDS_SIZE, "t0 t2");
    assert_string_equal(classes(&job), "--s-");
    job.options.frozen = CN_FROZEN_LOCAL;
    assert_string_equal(classes(&job), "f-s-");
    job.options.local[0] = '\0';
    assert_string_equal(classes(&job), "f---"); // a statistic moves also when it is frozen
}

static void what_the_model_lacks_or_needs_is_refused(void **state)
{
    static const struct {
        const char *local, *densities, *text;
    } cases[] = {
        {"t1 head.*", "", "update.local: the model has no tensor 'head.*'"},
        {"t0 t1 t3", "", "they name all tensors of the model"},
        {"t3", "t3=20%", "no trained tensor 't3' of 1024 values or more that travels"},
    };
    struct cn_layout layout;
    struct cn_diag diag;

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct cn_job job = {0};

        snprintf(job.options.local, CN_WORDS_SIZE, "%s", cases[i].local);
        snprintf(job.options.densities, CN_WORDS_SIZE, "%s", cases[i].densities);
        assert_int_not_equal(set(&layout, &job, &diag), CN_OK);
        assert_non_null(strstr(cn_diag_first(&diag), cases[i].text));
        cn_test_layout_free(&layout);
    }
}

static void long_lists_end_with_their_number(void **state)
{
    struct cn_layout layout = cn_test_layout(tensors, TENSORS);
    char text[CN_LOCAL_TEXT_SIZE];

    (void)state;
    cn_local_tensors_text(&layout, text);
    assert_string_equal(text, "");
    layout.tensors[1].local = layout.tensors[3].local = true;
    cn_local_tensors_text(&layout, text);
    assert_string_equal(text, "2 tensors of 2100 values: t1, t3");
    free(layout.tensors[1].name);
    layout.tensors[1].name = calloc(1, 2 * CN_LOCAL_TEXT_SIZE);
    assert_non_null(layout.tensors[1].name);
    memset(layout.tensors[1].name, 'x', 2 * CN_LOCAL_TEXT_SIZE - 1);
    cn_local_tensors_text(&layout, text);
    assert_string_equal(text, "2 tensors of 2100 values:  and 2 more");
    cn_test_layout_free(&layout);
}

struct fixture {
    struct cn_layout layout;
    struct cn_update_header header;
    float values[TOTAL], decoded[TOTAL], weights[TOTAL];
    struct cn_buffer frame;
};

static int set_up(void **state)
{
    struct fixture *f = calloc(1, sizeof(*f));
    struct cn_job job = {0};
    struct cn_diag diag;

    assert_non_null(f);
    snprintf(job.options.local, CN_WORDS_SIZE, "t0 t2");
    assert_int_equal(set(&f->layout, &job, &diag), CN_OK);
    f->header =
        (struct cn_update_header){.run = 7, .round = 3, .weight = 12, .leave_staying = true};
    cn_test_fill(f->values, TOTAL, 5, 0.1f);
    cn_test_fill(f->weights, TOTAL, 6, 0.5f);
    cn_buffer_init(&f->frame, (size_t)1 << 20);
    *state = f;
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *f = *state;

    cn_buffer_deinit(&f->frame);
    cn_test_layout_free(&f->layout);
    free(f);
    return 0;
}

// Says whether the tensors that stay, and no others, have the values of before.
static bool only_others_moved(const struct fixture *f, const float *before)
{
    for (size_t t = 0; t < TENSORS; t++) {
        const struct cn_tensor_info *tensor = &f->layout.tensors[t];
        bool same = memcmp(f->weights + tensor->offset, before + tensor->offset,
                           tensor->count * sizeof(float)) == 0;

        if (same != tensor->stays)
            return false;
    }
    return true;
}

static void no_mode_moves_a_tensor_that_never_travels(void **state)
{
    static const enum cn_update_mode modes[] = {CN_UPDATE_RAW32, CN_UPDATE_Q8, CN_UPDATE_TOPK,
                                                CN_UPDATE_BF16,  CN_UPDATE_Q4, CN_UPDATE_SIGN};
    struct fixture *f = *state;
    struct cn_update_header found;
    float before[TOTAL];

    for (size_t i = 0; i < sizeof(modes) / sizeof(modes[0]); i++) {
        f->header.rule = (struct cn_update_rule){modes[i], 0.1, 2};
        f->header.rounded = i % 2;
        f->frame.size = 0;
        memcpy(before, f->weights, sizeof(before));
        assert_int_equal(cn_update_encode(&f->header, &f->layout, f->values, f->decoded, &f->frame),
                         CN_OK);
        assert_memory_equal(f->frame.data, "cairnup3", 8);
        assert_int_equal(cn_update_check(f->frame.data, f->frame.size, &f->layout, NULL, &found),
                         CN_OK);
        assert_true(found.leave_staying);
        assert_int_equal(cn_update_apply(f->frame.data, f->frame.size, &f->layout, f->weights),
                         CN_OK);
        assert_true(only_others_moved(f, before));
    }
}

static void top_k_does_not_count_them(void **state)
{
    struct fixture *f = *state;
    size_t sent = 0;

    f->header.rule = (struct cn_update_rule){CN_UPDATE_TOPK, 0.1, 2};
    assert_int_equal(cn_update_encode(&f->header, &f->layout, f->values, f->decoded, &f->frame),
                     CN_OK);
    for (size_t i = 0; i < 2000; i++)
        sent += f->decoded[f->layout.tensors[3].offset + i] != 0;
    assert_int_equal(sent, 200); // of t3 alone; it would be 1000 of t0 and t3
}

static void a_snapshot_lacks_them_and_leaves_them_as_they_are(void **state)
{
    struct fixture *f = *state;
    uint8_t parent[CN_DIGEST_SIZE] = {1};
    float before[TOTAL], version[TOTAL];

    memcpy(before, f->weights, sizeof(before));
    memcpy(version, f->values, sizeof(version));
    assert_int_equal(cn_update_snapshot(7, 8, parent, &f->layout, version, &f->frame), CN_OK);
    assert_true(f->frame.size < 2600); // t3 in 8 bits and t1 in 32
    for (size_t i = 0; i < 8000; i++)
        assert_true(version[i] == f->values[i]);
    assert_int_equal(cn_update_apply(f->frame.data, f->frame.size, &f->layout, f->weights), CN_OK);
    assert_true(only_others_moved(f, before));
    assert_memory_equal(f->weights + 8200, version + 8200, 2000 * sizeof(float));
}

static void a_frame_says_by_its_digit_and_flag_that_they_are_missing(void **state)
{
    struct fixture *f = *state;
    struct cn_update_header found;

    f->header.rule.mode = CN_UPDATE_Q8;
    assert_int_equal(cn_update_encode(&f->header, &f->layout, f->values, f->decoded, &f->frame),
                     CN_OK);
    f->frame.data[7] = '2';
    assert_int_equal(cn_update_check(f->frame.data, f->frame.size, &f->layout, NULL, &found),
                     CN_EFORMAT);
    f->frame.data[11] = 0; // then the blocks of t0 would be missing
    assert_int_not_equal(cn_update_check(f->frame.data, f->frame.size, &f->layout, NULL, &found),
                         CN_OK);
    f->frame.data[7] = '3';
    assert_int_equal(cn_update_check(f->frame.data, f->frame.size, &f->layout, NULL, &found),
                     CN_EFORMAT);
}

static void their_digest_depends_on_no_other_tensor(void **state)
{
    struct fixture *f = *state;
    const uint8_t graph[CN_DIGEST_SIZE] = {1}, other[CN_DIGEST_SIZE] = {2};
    uint8_t digest[CN_DIGEST_SIZE], again[CN_DIGEST_SIZE];

    cn_local_tensors_digest(&f->layout, graph, f->weights, digest);
    f->weights[f->layout.tensors[1].offset]++;
    cn_local_tensors_digest(&f->layout, graph, f->weights, again);
    assert_memory_equal(digest, again, CN_DIGEST_SIZE);
    cn_local_tensors_digest(&f->layout, other, f->weights, again);
    assert_memory_not_equal(digest, again, CN_DIGEST_SIZE);
    f->weights[f->layout.tensors[2].offset]++;
    cn_local_tensors_digest(&f->layout, graph, f->weights, again);
    assert_memory_not_equal(digest, again, CN_DIGEST_SIZE);
}

static void they_take_no_share_of_a_links_bytes(void **state)
{
    struct fixture *f = *state;
    struct cn_rate_spectrum spectrum;

    cn_rate_measure(&f->layout, f->values, &spectrum);
    assert_int_equal(spectrum.total, 2000);
    assert_int_equal(spectrum.others, 100);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(job_and_layout_say_which_tensors_never_travel),
        cmocka_unit_test(what_the_model_lacks_or_needs_is_refused),
        cmocka_unit_test(long_lists_end_with_their_number),
        TEST(no_mode_moves_a_tensor_that_never_travels),
        TEST(top_k_does_not_count_them),
        TEST(a_snapshot_lacks_them_and_leaves_them_as_they_are),
        TEST(a_frame_says_by_its_digit_and_flag_that_they_are_missing),
        TEST(their_digest_depends_on_no_other_tensor),
        TEST(they_take_no_share_of_a_links_bytes),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
