// A version that is rounded to its snapshot: the same bits from either side.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "runtime/update/update.h"
#include "tests/support/layouts.h"

#define SIZE_LIMIT ((size_t)1 << 20)

// Large and trained, small, a statistic.
static const struct cn_test_tensor tensors[] = {{5000, CN_TENSOR_PARAM},
                                                {64, CN_TENSOR_PARAM},
                                                {3000, CN_TENSOR_STAT},
                                                {1024, CN_TENSOR_PARAM}};
#define TOTAL 9088

static const uint8_t parent[CN_DIGEST_SIZE] = {7};

static bool is_rounded(size_t i)
{
    return i < 5000 || i >= 8064;
}

// What came of a rounded delta is exactly what its snapshot decodes to, and that of itself.
static void a_rounded_version_is_its_own_snapshot(void **state)
{
    static float base[TOTAL], change[TOTAL], decoded[TOTAL], board[TOTAL], version[TOTAL];
    const struct cn_update_header header = {
        .round = 4, .weight = 1, .rule = {CN_UPDATE_TOPK, 0.05, 2}, .rounded = true};
    struct cn_layout layout = cn_test_layout(tensors, 4);
    struct cn_buffer delta, snapshot, again;
    struct cn_update_header found;

    (void)state;
    cn_buffer_init(&delta, SIZE_LIMIT);
    cn_buffer_init(&snapshot, SIZE_LIMIT);
    cn_buffer_init(&again, SIZE_LIMIT);
    cn_test_fill_tailed(base, TOTAL, 12, 0.3f);
    cn_test_fill(change, TOTAL, 13, 0.01f);
    assert_int_equal(cn_update_encode(&header, &layout, change, decoded, &delta), CN_OK);
    assert_int_equal(cn_update_check(delta.data, delta.size, &layout, NULL, &found), CN_OK);
    assert_true(found.rounded && !found.snapshot);
    memcpy(version, base, sizeof(version));
    assert_int_equal(cn_update_apply(delta.data, delta.size, &layout, version), CN_OK);
    for (size_t i = 0; i < TOTAL; i++)
        assert_true(is_rounded(i) || version[i] == base[i] + decoded[i]);

    memcpy(board, version, sizeof(board));
    assert_int_equal(cn_update_snapshot(1, 4, parent, &layout, board, &snapshot), CN_OK);
    assert_memory_equal(board, version, sizeof(board));
    memset(board, 0xff, sizeof(board)); // a board without a version
    assert_int_equal(cn_update_apply(snapshot.data, snapshot.size, &layout, board), CN_OK);
    assert_memory_equal(board, version, sizeof(board));
    assert_int_equal(cn_update_snapshot(1, 4, parent, &layout, board, &again), CN_OK);
    assert_int_equal(again.size, snapshot.size);
    assert_memory_equal(again.data, snapshot.data, again.size);
    assert_int_equal(cn_update_check(snapshot.data, snapshot.size, &layout, NULL, &found), CN_OK);
    assert_true(found.snapshot && found.round == 4);
    assert_memory_equal(found.base, parent, CN_DIGEST_SIZE);
    cn_buffer_deinit(&again);
    cn_buffer_deinit(&snapshot);
    cn_buffer_deinit(&delta);
    cn_test_layout_free(&layout);
}

static void weights_beyond_sixteen_have_no_snapshot(void **state)
{
    static float weights[TOTAL];
    struct cn_layout layout = cn_test_layout(tensors, 4);
    struct cn_buffer snapshot;

    (void)state;
    cn_buffer_init(&snapshot, SIZE_LIMIT);
    weights[5070] = 16.5f; // a running variance
    assert_int_equal(cn_update_snapshot(1, 4, parent, &layout, weights, &snapshot), CN_ERANGE);
    assert_true(weights[5070] == 16.5f && snapshot.size == 0);
    cn_test_layout_free(&layout);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_rounded_version_is_its_own_snapshot),
        cmocka_unit_test(weights_beyond_sixteen_have_no_snapshot),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
