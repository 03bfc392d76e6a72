// Samples from CSV, IDX and texts, and what is refused. .npy has tests of its own.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "runtime/base/bytes.h"
#include "runtime/engine/data/source.h"

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

// Spreadsheets write such a mark before UTF-8.
static void a_byte_order_mark_is_no_part_of_a_table(void **state)
{
    struct cn_source source;

    (void)state;
    assert_int_equal(read_text("t.csv", false,
                               "\xef\xbb\xbf"
                               "1,2\n3,4\n",
                               &source),
                     CN_OK);
    assert_int_equal(source.array.dims[0], 2);
    assert_true(cn_get_f32(source.array.data) == 1);
    cn_source_deinit(&source);
    assert_int_equal(read_text("t.csv:a", false,
                               "\xef\xbb\xbf"
                               "a,b\n3,4\n",
                               &source),
                     CN_OK);
    assert_true(cn_get_f32(source.array.data) == 3);
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
    assert_non_null(strstr(diag.lines[0], "no column '9'; the file has 1 to 2"));
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

// numpy.savez_compressed of x = numpy.arange(300, dtype=numpy.int16) % 7.
static const uint8_t compressed[] = {
    0x50, 0x4b, 0x03, 0x04, 0x14, 0x00, 0x00, 0x00, 0x08, 0x00, 0x00, 0x00, 0x21, 0x00, 0xc8, 0xcb,
    0xfd, 0xe8, 0x5a, 0x00, 0x00, 0x00, 0xd8, 0x02, 0x00, 0x00, 0x05, 0x00, 0x14, 0x00, 0x78, 0x2e,
    0x6e, 0x70, 0x79, 0x01, 0x00, 0x10, 0x00, 0xd8, 0x02, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x5a,
    0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x9b, 0xec, 0x17, 0xea, 0x1b, 0x10, 0xc9, 0xc8, 0x50,
    0xc6, 0x50, 0xad, 0x9e, 0x92, 0x5a, 0x9c, 0x5c, 0xa4, 0x6e, 0xa5, 0xa0, 0x6e, 0x93, 0x69, 0xa4,
    0xae, 0xa3, 0xa0, 0x9e, 0x96, 0x5f, 0x54, 0x52, 0x94, 0x98, 0x17, 0x9f, 0x5f, 0x94, 0x92, 0x0a,
    0x12, 0x77, 0x4b, 0xcc, 0x29, 0x4e, 0x05, 0x8a, 0x17, 0x67, 0x24, 0x16, 0xa4, 0x02, 0xf9, 0x1a,
    0xc6, 0x06, 0x06, 0x3a, 0x9a, 0x3a, 0x0a, 0xb5, 0x0a, 0x64, 0x03, 0x2e, 0x06, 0x06, 0x46, 0x06,
    0x26, 0x06, 0x66, 0x06, 0x16, 0x06, 0x56, 0x06, 0x36, 0x86, 0x51, 0xde, 0x28, 0x8f, 0x3a, 0x3c,
    0x00, 0x50, 0x4b, 0x01, 0x02, 0x14, 0x03, 0x14, 0x00, 0x00, 0x00, 0x08, 0x00, 0x00, 0x00, 0x21,
    0x00, 0xc8, 0xcb, 0xfd, 0xe8, 0x5a, 0x00, 0x00, 0x00, 0xd8, 0x02, 0x00, 0x00, 0x05, 0x00, 0x00,
    0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x80, 0x01, 0x00, 0x00, 0x00, 0x00, 0x78,
    0x2e, 0x6e, 0x70, 0x79, 0x50, 0x4b, 0x05, 0x06, 0x00, 0x00, 0x00, 0x00, 0x01, 0x00, 0x01, 0x00,
    0x33, 0x00, 0x00, 0x00, 0x91, 0x00, 0x00, 0x00, 0x00, 0x00,
};

static void a_compressed_array_is_unpacked(void **state)
{
    struct cn_source source;

    (void)state;
    cn_diag_init(&diag);
    assert_int_equal(
        cn_source_read("t.npz:x", true, compressed, sizeof(compressed), &diag, &source), CN_OK);
    assert_int_equal(source.array.dims[0], 300);
    for (size_t i = 0; i < 300; i++)
        assert_int_equal(cn_npy_int(&source.array, i), i % 7);
    cn_source_deinit(&source);
}

static void a_compressed_array_with_any_bit_flipped_is_that_array_or_refused(void **state)
{
    uint8_t bytes[sizeof(compressed)];
    struct cn_source source;

    (void)state;
    for (size_t bit = 0; bit < 8 * sizeof(bytes); bit++) {
        memcpy(bytes, compressed, sizeof(bytes));
        bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
        cn_diag_init(&diag);
        if (cn_source_read("t.npz:x", true, bytes, sizeof(bytes), &diag, &source)) {
            assert_int_not_equal(diag.count, 0);
            continue;
        }
        for (size_t i = 0; i < 300; i++)
            assert_int_equal(cn_npy_int(&source.array, i), i % 7);
        cn_source_deinit(&source);
    }
}

static void another_file_of_an_archive_is_not_its_array(void **state)
{
    static const char *const names[] = {"x.txt", "x12.a"};
    uint8_t bytes[sizeof(compressed)];
    struct cn_source source;
    size_t entry = cn_get_u32(compressed + sizeof(compressed) - 22 + 16);

    (void)state;
    for (size_t i = 0; i < 2; i++) {
        memcpy(bytes, compressed, sizeof(bytes));
        memcpy(bytes + entry + 46, names[i], 5);
        cn_diag_init(&diag);
        assert_int_equal(cn_source_read("t.npz:x", true, bytes, sizeof(bytes), &diag, &source),
                         CN_EFORMAT);
        assert_non_null(strstr(diag.lines[0], "no such array"));
    }
}

static void an_archive_that_claims_more_than_its_bytes_hold_takes_no_memory(void **state)
{
    uint8_t bytes[sizeof(compressed)];
    struct cn_source source;
    size_t entry = cn_get_u32(compressed + sizeof(compressed) - 22 + 16);

    (void)state;
    memcpy(bytes, compressed, sizeof(bytes));
    cn_put_u32(bytes + entry + 24, 0xfffffff0);
    cn_diag_init(&diag);
    assert_int_equal(cn_source_read("t.npz:x", true, bytes, sizeof(bytes), &diag, &source),
                     CN_EFORMAT);
    assert_non_null(strstr(diag.lines[0], "more than its bytes can hold"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_table_is_columns_of_numbers_below_a_heading),
        cmocka_unit_test(a_byte_order_mark_is_no_part_of_a_table),
        cmocka_unit_test(what_is_no_table_is_refused_with_its_place),
        cmocka_unit_test(a_text_is_bytes_and_what_follows_them),
        cmocka_unit_test(idx_files_are_read_and_cut_ones_refused),
        cmocka_unit_test(a_compressed_array_is_unpacked),
        cmocka_unit_test(a_compressed_array_with_any_bit_flipped_is_that_array_or_refused),
        cmocka_unit_test(another_file_of_an_archive_is_not_its_array),
        cmocka_unit_test(an_archive_that_claims_more_than_its_bytes_hold_takes_no_memory),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
