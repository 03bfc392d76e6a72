// Fingerprints of collective calls: no two purposes share one.
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "runtime/group/purpose.h"

struct row {
    const char *name;
    enum cn_purpose purpose;
    uint64_t first, count, step;
};

#define ROW(name, first, count, step) {#name, CN_PURPOSE_##name, first, count, step},
static const struct row rows[] = {CN_PURPOSES(ROW)};
#define ROW_COUNT (sizeof(rows) / sizeof(rows[0]))

static bool has_value(const struct row *row, uint64_t value)
{
    return value >= row->first && (value - row->first) % row->step == 0 &&
           (value - row->first) / row->step < row->count;
}

static void no_two_purposes_share_a_value(void **state)
{
    (void)state;
    for (size_t a = 0; a < ROW_COUNT; a++) {
        assert_true(rows[a].first > 0);
        assert_true(rows[a].first + (rows[a].count - 1) * rows[a].step <= UINT32_MAX);
        for (size_t b = 0; b < ROW_COUNT; b++)
            for (uint64_t i = 0; a != b && i < rows[a].count && rows[a].count <= rows[b].count; i++)
                if (has_value(&rows[b], rows[a].first + i * rows[a].step))
                    fail_msg("%s and %s share a value", rows[a].name, rows[b].name);
    }
}

static void an_index_beyond_its_purpose_stays_in_it(void **state)
{
    static const uint32_t indices[] = {0, 1, 255, 256, 0x700, 65536, UINT32_MAX};

    (void)state;
    for (size_t r = 0; r < ROW_COUNT; r++)
        for (size_t i = 0; i < sizeof(indices) / sizeof(indices[0]); i++)
            assert_true(has_value(&rows[r], cn_purpose_at(rows[r].purpose, indices[i])));
    assert_int_equal(cn_purpose_at(CN_PURPOSE_ACTIVATIONS, 3), 0x70700301);
    assert_int_equal(cn_purpose_at(CN_PURPOSE_SHARE_BUCKET, 2 + (3 << 8)), 0x73680307);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_two_purposes_share_a_value),
        cmocka_unit_test(an_index_beyond_its_purpose_stays_in_it),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
