#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
// cmocka.h needs the four above.
#include <cmocka.h>

#include "runtime/base/bytes.h"
#include "runtime/round/epoch/epoch_file.h"
#include "tests/support/flaky_store.h"

static void an_epoch_is_found_again(void **state)
{
    struct cn_flaky_store store;

    (void)state;
    cn_flaky_store_init(&store);
    assert_int_equal(cn_epoch_file_load(&store.store, 3, 17), 17);
    assert_int_equal(cn_epoch_file_save(&store.store, 3, 48), CN_OK);
    assert_int_equal(cn_epoch_file_load(&store.store, 3, 17), 48);
    cn_flaky_store_deinit(&store);
}

// Else a number that a revoked board drove up would stay for good.
static void newer_keys_begin_the_numbers_again(void **state)
{
    struct cn_flaky_store store;

    (void)state;
    cn_flaky_store_init(&store);
    assert_int_equal(cn_epoch_file_save(&store.store, 3, 5ull << 32), CN_OK);
    assert_int_equal(cn_epoch_file_load(&store.store, 4, 5ull << 32), 0);
    assert_int_equal(cn_epoch_file_save(&store.store, 4, 16), CN_OK);
    assert_int_equal(cn_epoch_file_load(&store.store, 4, 5ull << 32), 16);
    cn_flaky_store_deinit(&store);
}

static void older_keys_go_on_with_the_number(void **state)
{
    struct cn_flaky_store store;

    (void)state;
    cn_flaky_store_init(&store);
    assert_int_equal(cn_epoch_file_save(&store.store, 4, 48), CN_OK);
    assert_int_equal(cn_epoch_file_load(&store.store, 3, 0), 48);
    cn_flaky_store_deinit(&store);
}

static void a_file_of_an_older_release_is_read(void **state)
{
    struct cn_flaky_store store;
    uint8_t bytes[16];

    (void)state;
    cn_put_u64(bytes, 48);
    cn_put_u64(bytes + 8, ~48ull);
    cn_flaky_store_init(&store);
    assert_int_equal(cn_store_replace(&store.store, "group.epoch", bytes, sizeof(bytes)), CN_OK);
    assert_int_equal(cn_epoch_file_load(&store.store, 3, 17), 48);
    assert_int_equal(cn_epoch_file_load(&store.store, 3, 64), 64);
    cn_flaky_store_deinit(&store);
}

static void a_damaged_file_leaves_the_epoch_of_the_checkpoint(void **state)
{
    struct cn_flaky_store store;
    uint8_t bytes[32] = {1};

    (void)state;
    cn_flaky_store_init(&store);
    for (size_t size = 0; size <= sizeof(bytes); size++) {
        assert_int_equal(cn_store_replace(&store.store, "group.epoch", bytes, size), CN_OK);
        assert_int_equal(cn_epoch_file_load(&store.store, 3, 17), 17);
    }
    cn_flaky_store_deinit(&store);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_epoch_is_found_again),
        cmocka_unit_test(newer_keys_begin_the_numbers_again),
        cmocka_unit_test(older_keys_go_on_with_the_number),
        cmocka_unit_test(a_file_of_an_older_release_is_read),
        cmocka_unit_test(a_damaged_file_leaves_the_epoch_of_the_checkpoint),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
