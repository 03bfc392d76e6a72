// Samples from CSV, IDX and texts, and what is refused. .npy has tests of its own.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "runtime/base/bytes.h"
#include "runtime/engine/source.h"

static struct cn_diag diag;

static cn_err read_text(const char *path, bool integers, const char *text, struct cn_source *source)
{
    cn_diag_init(&diag);
    return cn_source_read(path, integers, (const uint8_t *)text, strlen(text), &diag, source);
}

static void a_table_is_columns_of_numbers_below_a_heading(void **state)
{
    static const char table[] = "a,b,class\n1,2.5,0\n-3e1,4,2\n\n";
    struct cn_source source;

    (void)state;
    assert_int_equal(read_text("t.csv", false, table, &source), CN_OK);
    assert_int_equal(source.array.dims[0], 2);
    assert_int_equal(source.array.dims[1], 3);
    assert_true(cn_get_f32(source.array.data + 12) == -30);
    cn_source_deinit(&source);
    assert_int_equal(read_text("t.csv:1-2", false, table, &source), CN_OK);
    assert_int_equal(source.array.dims[1], 2);
    assert_true(cn_get_f32(source.array.data + 4) == 2.5f);
    cn_source_deinit(&source);
    assert_int_equal(read_text("t.csv:class", true, table, &source), CN_OK);
    assert_int_equal(source.array.rank, 1);
    assert_int_equal(source.array.kind, CN_NPY_INT);
    assert_int_equal(cn_npy_int(&source.array, 1), 2);
    cn_source_deinit(&source);
}

static void what_is_no_table_is_refused_with_its_place(void **state)
{
    static const char *const bad[] = {"1,2\n3,x\n", "1,2\n3\n", "1,2\n3,4,5\n", ""};
    struct cn_source source;

    (void)state;
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        assert_int_equal(read_text("t.csv", false, bad[i], &source), i < 3 ? CN_EFORMAT : CN_OK);
        if (i < 3)
            assert_non_null(strstr(diag.lines[0], "line 2"));
        cn_source_deinit(&source);
    }
    assert_int_equal(read_text("t.csv:9", false, "1,2\n", &source), CN_EFORMAT);
}

static void a_text_is_bytes_and_what_follows_them(void **state)
{
    struct cn_source source;

    (void)state;
    assert_int_equal(read_text("t.txt", true, "abc", &source), CN_OK);
    assert_int_equal(source.array.dims[0], 2);
    assert_int_equal(cn_npy_int(&source.array, 0), 'a');
    assert_int_equal(read_text("t.txt:next", true, "abc", &source), CN_OK);
    assert_int_equal(cn_npy_int(&source.array, 1), 'c');
    assert_int_equal(read_text("t.txt:last", true, "abc", &source), CN_EFORMAT);
}

static void idx_files_are_read_and_cut_ones_refused(void **state)
{
    static const uint8_t bytes[] = {0, 0, 8, 2, 0, 0, 0, 2, 0, 0, 0, 1, 7, 9};
    static const uint8_t shorts[] = {0, 0, 11, 1, 0, 0, 0, 2, 0xff, 0xfe, 1, 0};
    struct cn_source source;

    (void)state;
    cn_diag_init(&diag);
    assert_int_equal(cn_source_read("images-idx2", false, bytes, sizeof(bytes), &diag, &source),
                     CN_OK);
    assert_int_equal(source.array.dims[0], 2);
    assert_int_equal(cn_npy_int(&source.array, 1), 9);
    cn_source_deinit(&source);
    assert_int_equal(cn_source_read("labels", true, shorts, sizeof(shorts), &diag, &source), CN_OK);
    assert_int_equal(cn_npy_int(&source.array, 0), -2);
    assert_int_equal(cn_npy_int(&source.array, 1), 256);
    cn_source_deinit(&source);
    for (size_t size = 0; size < sizeof(shorts); size++)
        assert_int_not_equal(cn_source_read("labels", true, shorts, size, &diag, &source), CN_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_table_is_columns_of_numbers_below_a_heading),
        cmocka_unit_test(what_is_no_table_is_refused_with_its_place),
        cmocka_unit_test(a_text_is_bytes_and_what_follows_them),
        cmocka_unit_test(idx_files_are_read_and_cut_ones_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
