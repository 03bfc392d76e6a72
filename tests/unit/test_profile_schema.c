// The schema table against itself and the manual; numbers with units.
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "runtime/profile/profile_value.h"

// The text of PROFILES.md, to be freed.
static char *read_manual(void)
{
    FILE *file = fopen(CAIRN_TEST_DATA "/../../runtime/profile/PROFILES.md", "r");
    char *text = calloc(1, 65536);

    assert_non_null(file);
    assert_non_null(text);
    assert_true(fread(text, 1, 65535, file) > 0);
    fclose(file);
    return text;
}

// The manual's line for a row: "| `key` | value | default | set by | meaning |".
static void find_line(const char *manual, const struct cn_schema_row *row, char line[512])
{
    bool job = strncmp(row->path, "job.", 4) == 0;
    const char *section = strstr(manual, job ? "\n## Keys of a job" : "\n## Keys of a board");
    char start[80];
    const char *found;

    if (!section) {
        fail_msg("PROFILES.md lacks a section");
        return;
    }
    snprintf(start, sizeof(start), "\n| `%s` |", row->path + (job ? 4 : 0));
    found = strstr(section, start);
    if (!found) {
        fail_msg("PROFILES.md has no line for %s", row->path);
        return;
    }
    snprintf(line, 512, "%.*s", (int)strcspn(found + 1, "\n"), found + 1);
}

static void expect_in(const struct cn_schema_row *row, const char *line, const char *before,
                      const char *text)
{
    char cell[200];

    snprintf(cell, sizeof(cell), "%s%s%s", before, text, before[0] == '`' ? "`" : "");
    if (!strstr(line, cell))
        fail_msg("PROFILES.md, %s: expected %s in: %s", row->path, cell, line);
}

static void the_manual_has_every_key_with_its_default_and_layers(void **state)
{
    char *manual = read_manual(), line[512], layers[40];

    (void)state;
    for (size_t i = 0; i < cn_schema_count; i++) {
        const struct cn_schema_row *row = &cn_schema[i];

        find_line(manual, row, line);
        expect_in(row, line, "| ", row->about);
        if (row->initial)
            expect_in(row, line, "`", row->initial);
        if (row->zero)
            expect_in(row, line, "`", row->zero);
        for (size_t j = 0; row->choices && row->choices[j]; j++)
            expect_in(row, line, "`", row->choices[j]);
        if (row->layers == 1u << CN_LAYER_JOB)
            continue;
        layers[0] = '\0';
        for (int layer = 0; layer < CN_LAYER_COUNT; layer++)
            if (row->layers & (1u << layer))
                snprintf(layers + strlen(layers), sizeof(layers) - strlen(layers), "%s%s",
                         layers[0] ? ", " : "", cn_layer_name((enum cn_layer)layer));
        snprintf(layers + strlen(layers), sizeof(layers) - strlen(layers), " |");
        expect_in(row, line, "| ", layers);
    }
    free(manual);
}

static bool reads(const struct cn_schema_row *row, const char *text, struct cn_settings *settings)
{
    struct cn_diag diag;
    struct cn_diagnostics report = {&diag, "table", 0};
    struct cn_yaml_node node = {.plain = true, .text = (char *)text};

    cn_diag_init(&diag);
    return cn_value_read(&report, ".", row->path, row, &node, settings);
}

static void every_default_and_limit_is_a_valid_value(void **state)
{
    struct cn_settings *settings = calloc(1, sizeof(*settings));

    (void)state;
    assert_non_null(settings);
    for (size_t i = 0; i < cn_schema_count; i++) {
        const struct cn_schema_row *row = &cn_schema[i];

        if (row->initial && !reads(row, row->initial, settings))
            fail_msg("%s: the default '%s' is not valid", row->path, row->initial);
        if (row->zero && !reads(row, row->zero, settings))
            fail_msg("%s: the word '%s' is not valid", row->path, row->zero);
        assert_true(row->min <= row->max);
        assert_true(row->initial || row->example || strcmp(row->path, "schema") == 0);
        assert_true(row->about && row->uses && row->layers);
        assert_false((row->required & row->uses) != row->required);
    }
    free(settings);
}

static void every_path_is_there_once_and_sections_are_whole(void **state)
{
    (void)state;
    for (size_t i = 0; i < cn_schema_count; i++)
        assert_ptr_equal(cn_schema_find(cn_schema[i].path), &cn_schema[i]);
    assert_null(cn_schema_find("rounds.quorum"));
    assert_ptr_equal(cn_schema_resolve("job.threads", CN_LAYER_JOB), cn_schema_find("threads"));
    assert_null(cn_schema_resolve("job.data", CN_LAYER_JOB)); // a section, not the site's data
    assert_true(cn_schema_is_section("job.memory", CN_LAYER_JOB));
    assert_false(cn_schema_is_section("job.memory", CN_LAYER_SITE));
}

struct quantity_case {
    const char *text;
    const struct cn_unit *units;
    cn_err err;
    uint64_t value;
};

static void quantities_are_read_strictly(void **state)
{
    static const struct quantity_case cases[] = {
        {"8 GiB", cn_units_size, CN_OK, UINT64_C(8) << 30},
        {"8GiB", cn_units_size, CN_OK, UINT64_C(8) << 30},
        {"1.5 KiB", cn_units_size, CN_OK, 1536},
        {"0.5 B", cn_units_size, CN_EINVAL, 0},
        {"16777216 TiB", cn_units_size, CN_ERANGE, 0},
        {"16777215 TiB", cn_units_size, CN_OK, UINT64_C(16777215) << 40},
        {"8 GB", cn_units_size, CN_ENOTFOUND, 0},
        {"8", cn_units_size, CN_ENOTFOUND, 0},
        {"8 ", cn_units_size, CN_ENOTFOUND, 0},
        {"8  GiB", cn_units_size, CN_ENOTFOUND, 0},
        {"8 GiB ", cn_units_size, CN_ENOTFOUND, 0},
        {"", cn_units_size, CN_EFORMAT, 0},
        {"GiB", cn_units_size, CN_EFORMAT, 0},
        {"-1 B", cn_units_size, CN_EFORMAT, 0},
        {"+1 B", cn_units_size, CN_EFORMAT, 0},
        {"08 B", cn_units_size, CN_EFORMAT, 0},
        {"1. B", cn_units_size, CN_EFORMAT, 0},
        {".5 KiB", cn_units_size, CN_EFORMAT, 0},
        {"1.50000000000000000000000000000000 s", cn_units_time, CN_OK, 1500},
        {"0.0001 s", cn_units_time, CN_EINVAL, 0},
        {"0.1234567890123456789012345 s", cn_units_time, CN_EINVAL, 0},
        {"2.5 min", cn_units_time, CN_OK, 150000},
        {"25 W", cn_units_power, CN_OK, 25000},
        {"2 Mbit/s", cn_units_rate, CN_OK, 2000000},
        {"18446744073709551615", cn_units_none, CN_OK, UINT64_MAX},
        {"18446744073709551616", cn_units_none, CN_ERANGE, 0},
        {"0x10", cn_units_none, CN_ENOTFOUND, 0},
        {"1e3", cn_units_none, CN_ENOTFOUND, 0},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        uint64_t value = 0;
        cn_err err = cn_quantity_parse(cases[i].text, cases[i].units, &value);

        if (err != cases[i].err || value != cases[i].value)
            fail_msg("'%s': error %d, value %llu", cases[i].text, (int)err,
                     (unsigned long long)value);
    }
}

static void quantities_print_in_the_largest_unit_that_is_exact(void **state)
{
    char text[CN_QUANTITY_SIZE];

    (void)state;
    cn_quantity_print(text, cn_units_size, UINT64_C(1536) << 20);
    assert_string_equal(text, "1536 MiB");
    cn_quantity_print(text, cn_units_time, 90000);
    assert_string_equal(text, "90 s");
    cn_quantity_print(text, cn_units_time, 0);
    assert_string_equal(text, "0 ms");
    cn_quantity_print(text, cn_units_none, UINT64_MAX);
    assert_string_equal(text, "18446744073709551615");
}

static void numbers_that_are_none_are_refused(void **state)
{
    static const char *const bad[] = {"",   "nan", "inf", ".inf", ".nan", "-",
                                      "1e", "0x1", " 1",  "1 ",   "1.",   ".5",
                                      "01", "1_0", "1,5", "--1",  "1e+",  "+1"};
    double value;

    (void)state;
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        if (cn_number_parse(bad[i], &value) != CN_EFORMAT)
            fail_msg("'%s' was read as a number", bad[i]);
    assert_int_equal(cn_number_parse("1e400", &value), CN_ERANGE);
    assert_int_equal(cn_share_parse("0.05", &value), CN_ENOTFOUND);
    assert_int_equal(cn_share_parse("%", &value), CN_EFORMAT);
    assert_int_equal(cn_share_parse("nan %", &value), CN_EFORMAT);
}

static void numbers_and_shares_read_back_as_printed(void **state)
{
    static const double values[] = {0.0,   1.0,    0.1,       0.05, 1.3,   100.0,     1e9,
                                    1e-12, 0.9999, 1.0 / 3.0, -2.5, 1e300, 123456.789};
    char text[CN_QUANTITY_SIZE];
    double back = 0.0;

    (void)state;
    for (size_t i = 0; i < sizeof(values) / sizeof(values[0]); i++) {
        cn_number_print(text, values[i]);
        assert_int_equal(cn_number_parse(text, &back), CN_OK);
        assert_true(back == values[i]);
    }
    for (int i = 0; i <= 100000; i++) { // every share of 0.001 %
        char written[CN_QUANTITY_SIZE];
        double share = 0.0;

        snprintf(written, sizeof(written), "%d.%03d %%", i / 1000, i % 1000);
        assert_int_equal(cn_share_parse(written, &share), CN_OK);
        cn_share_print(text, share);
        assert_int_equal(cn_share_parse(text, &back), CN_OK);
        assert_true(back == share);
    }
    cn_share_print(text, 0.05);
    assert_string_equal(text, "5 %");
    cn_number_print(text, 100.0);
    assert_string_equal(text, "100");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_manual_has_every_key_with_its_default_and_layers),
        cmocka_unit_test(every_default_and_limit_is_a_valid_value),
        cmocka_unit_test(every_path_is_there_once_and_sections_are_whole),
        cmocka_unit_test(quantities_are_read_strictly),
        cmocka_unit_test(quantities_print_in_the_largest_unit_that_is_exact),
        cmocka_unit_test(numbers_that_are_none_are_refused),
        cmocka_unit_test(numbers_and_shares_read_back_as_printed),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
