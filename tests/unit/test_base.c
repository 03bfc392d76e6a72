// Bytes, names, random numbers and lines of files.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/base/bytes.h"
#include "runtime/base/diag.h"
#include "runtime/base/log_limit.h"
#include "runtime/base/name.h"
#include "runtime/base/printable.h"
#include "runtime/base/random.h"
#include "runtime/base/text_file.h"

static void hex_takes_exactly_the_digits_it_needs(void **state)
{
    uint8_t bytes[2];
    char text[5];

    (void)state;
    assert_int_equal(cn_hex_parse("0aF9", bytes, 2), CN_OK);
    cn_hex(text, bytes, 2);
    assert_string_equal(text, "0af9");
    assert_int_equal(cn_hex_parse("0aF", bytes, 2), CN_EFORMAT);
    assert_int_equal(cn_hex_parse("0aF90", bytes, 2), CN_EFORMAT);
    assert_int_equal(cn_hex_parse("0aG9", bytes, 2), CN_EFORMAT);
}

static void a_buffer_keeps_its_limit(void **state)
{
    struct cn_buffer buffer;

    (void)state;
    cn_buffer_init(&buffer, 10);
    assert_int_equal(cn_buffer_append(&buffer, "123456", 6), CN_OK);
    assert_int_equal(cn_buffer_append(&buffer, "78901", 5), CN_ERANGE);
    assert_int_equal(cn_buffer_append(&buffer, "7890", 4), CN_OK);
    assert_int_equal(buffer.size, 10);
    assert_memory_equal(buffer.data, "1234567890", 10);
    assert_int_equal(cn_buffer_resize(&buffer, 11), CN_ERANGE);
    cn_buffer_deinit(&buffer);
}

static void names_are_safe_as_files_and_segments(void **state)
{
    (void)state;
    assert_true(cn_name_valid("board-1"));
    assert_true(cn_name_valid("a"));
    assert_false(cn_name_valid(""));
    assert_false(cn_name_valid("../x"));
    assert_false(cn_name_valid(".x"));
    assert_false(cn_name_valid("Board"));
    assert_false(cn_name_valid("a/b"));
    assert_false(cn_name_valid("0123456789012345678901234567890123456789012345678901234567890123"));
}

// Known answers of the Random123 distribution, philox4x32 with 10 rounds.
static void philox_gives_its_known_answers(void **state)
{
    static const uint32_t zeros[] = {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8};
    static const uint32_t ones[] = {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd};
    uint32_t out[4];

    (void)state;
    cn_random_block(0, 0, 0, out);
    assert_memory_equal(out, zeros, sizeof(out));
    cn_random_block(UINT64_MAX, UINT64_MAX, UINT64_MAX, out);
    assert_memory_equal(out, ones, sizeof(out));
}

static void a_permutation_hits_each_position_once(void **state)
{
    (void)state;
    for (uint64_t count = 1; count < 70; count++) {
        uint8_t seen[70] = {0};

        for (uint64_t i = 0; i < count; i++) {
            uint64_t to = cn_random_permute(42, count, i);

            assert_true(to < count);
            assert_int_equal(seen[to]++, 0);
        }
    }
}

static void diagnostics_count_beyond_what_they_keep(void **state)
{
    static struct cn_diag diag;

    (void)state;
    cn_diag_init(&diag);
    for (int i = 0; i < CN_DIAG_LINES + 5; i++)
        cn_diag_add(&diag, "line %d", i);
    assert_int_equal(diag.count, CN_DIAG_LINES + 5);
    assert_string_equal(cn_diag_first(&diag), "line 0");
    cn_diag_add(NULL, "dropped");
}

static void the_first_line_of_a_file_comes_without_its_end(void **state)
{
    char folder[] = "/tmp/cairn-base-XXXXXX", path[64], line[6];
    FILE *file;

    (void)state;
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof(path), "%s/temp", folder);
    file = fopen(path, "w");
    assert_non_null(file);
    fputs("42 \t\n43\n", file);
    fclose(file);
    assert_true(cn_text_file_line(folder, "temp", line, sizeof(line)));
    assert_string_equal(line, "42");
    assert_int_equal(truncate(path, 0), 0);
    assert_false(cn_text_file_line(folder, "temp", line, sizeof(line)));
    assert_string_equal(line, "");
    assert_false(cn_text_file_line(folder, "none", line, sizeof(line)));
    unlink(path);
    rmdir(folder);
}

static void lines_of_a_kind_have_a_quota(void **state)
{
    struct cn_log_quotas quotas = {0};
    struct cn_log_quota *quota = cn_log_quota_of(&quotas, "board-1");
    uint64_t left_out, written = 0;

    (void)state;
    for (int i = 0; i < 60001; i++)
        written += cn_log_quota_take(quota, 5000, &left_out);
    assert_int_equal(written, CN_LOG_QUOTA_BURST);
    assert_true(cn_log_quota_take(cn_log_quota_of(&quotas, "board-2"), 5000, &left_out));
    assert_false(cn_log_quota_take(quota, 5000 + CN_LOG_QUOTA_MS - 1, &left_out));
    assert_true(cn_log_quota_take(quota, 5000 + CN_LOG_QUOTA_MS, &left_out));
    assert_int_equal(left_out, 60001 - CN_LOG_QUOTA_BURST + 1);
    assert_true(cn_log_quota_take(quota, 5000 + 3 * CN_LOG_QUOTA_MS, &left_out));
    assert_int_equal(left_out, 0);
}

static void a_limited_line_is_written_at_once_and_then_seldom(void **state)
{
    struct cn_log_limit limit = {0};
    uint64_t count = 0;

    (void)state;
    assert_true(cn_log_limit_due(&limit, 5000, &count));
    assert_int_equal(count, 1);
    for (uint64_t now_ms = 5001; now_ms < 5000 + CN_LOG_LIMIT_MS; now_ms += 100)
        assert_false(cn_log_limit_due(&limit, now_ms, &count));
    assert_true(cn_log_limit_due(&limit, 5000 + CN_LOG_LIMIT_MS, &count));
    assert_int_equal(count, 101);
}

static void what_a_terminal_would_obey_becomes_a_question_mark(void **state)
{
    char text[] = "\033[2J a  b\t\xc3\xa4\xff\xe2\x80\xaeq\xc2\x9b\n";

    (void)state;
    cn_printable_clean(text);
    assert_string_equal(text, "?[2J a  b?\xc3\xa4??q??");
}

static void ends_of_lines_may_stay(void **state)
{
    char text[] = "\033[2Jone\n\ntwo\xc2\x9b\n";

    (void)state;
    cn_printable_clean_lines(text);
    assert_string_equal(text, "?[2Jone\n\ntwo?\n");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ends_of_lines_may_stay),
        cmocka_unit_test(hex_takes_exactly_the_digits_it_needs),
        cmocka_unit_test(a_buffer_keeps_its_limit),
        cmocka_unit_test(names_are_safe_as_files_and_segments),
        cmocka_unit_test(philox_gives_its_known_answers),
        cmocka_unit_test(a_permutation_hits_each_position_once),
        cmocka_unit_test(diagnostics_count_beyond_what_they_keep),
        cmocka_unit_test(the_first_line_of_a_file_comes_without_its_end),
        cmocka_unit_test(lines_of_a_kind_have_a_quota),
        cmocka_unit_test(a_limited_line_is_written_at_once_and_then_seldom),
        cmocka_unit_test(what_a_terminal_would_obey_becomes_a_question_mark),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
