// What uploads may cost the gateway: time to describe them, writes, room.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "aggregator/store/spool.h"
#include "aggregator/store/spool_bits.h"
#include "tests/support/flaky_store.h"

#define CHUNK 16

struct world {
    struct cn_flaky_store flaky;
    struct cn_spool *spool;
};

static void open_world(struct world *world, size_t frame_max, uint64_t limit)
{
    cn_flaky_store_init(&world->flaky);
    const struct cn_spool_config config = {.store = &world->flaky.store,
                                           .frame_max = frame_max,
                                           .limit = limit,
                                           .chunk_size = CHUNK,
                                           .expiry_ms = 600000};
    assert_int_equal(cn_spool_open(&config, &world->spool), CN_OK);
}

static void close_world(struct world *world)
{
    cn_spool_close(world->spool);
    cn_flaky_store_deinit(&world->flaky);
}

static cn_err declare(struct world *world, const char *board, uint64_t size, uint64_t now_ms,
                      struct cn_spooled **upload)
{
    struct cn_declare_request declared = {.run = 1, .round = 3, .size = size, .digest = {1}};
    return cn_spool_declare(world->spool, board, board, &declared, now_ms, upload);
}

static void put(struct world *world, struct cn_spooled *upload, uint32_t index, uint64_t now_ms)
{
    const uint8_t chunk[CHUNK] = {0};
    assert_int_equal(cn_spool_put(world->spool, upload, index, chunk, CHUNK, now_ms), CN_OK);
}

static uint32_t find_slowly(const uint8_t *bits, bool set, uint32_t from, uint32_t end)
{
    while (from < end && (bits[from / 8] >> (from % 8) & 1) != set)
        from++;
    return from;
}

static void bits_are_found_as_one_by_one(void **state)
{
    uint8_t bits[64];
    (void)state;
    srand(7);
    for (int round = 0; round < 2000; round++) {
        memset(bits, round % 2 ? 0xff : 0, sizeof(bits));
        for (int i = 0; i < round % 5; i++)
            bits[rand() % (int)sizeof(bits)] ^= (uint8_t)(1 << rand() % 8);
        uint32_t end = (uint32_t)rand() % (8 * sizeof(bits) + 1);
        uint32_t from = (uint32_t)rand() % (end + 1);
        for (int set = 0; set < 2; set++)
            assert_int_equal(cn_spool_bits_find(bits, set, from, end),
                             find_slowly(bits, set, from, end));
    }
}

static void a_description_looks_at_a_part_of_a_huge_upload(void **state)
{
    const uint32_t chunks = (1u << 22) + 1000;
    struct cn_upload_status status = {0};
    struct world world = {0};
    struct cn_spooled *upload;
    (void)state;
    open_world(&world, (size_t)chunks * CHUNK, 0);
    assert_int_equal(declare(&world, "a", (uint64_t)chunks * CHUNK, 10, &upload), CN_OK);
    cn_spool_describe(upload, 0, CN_RANGE_MAX, &status);
    assert_int_equal(status.known, 1u << 22);
    assert_int_equal(status.missing_count, 1);
    assert_int_equal(status.missing[0].count, 1u << 22);
    cn_spool_describe(upload, status.known, CN_RANGE_MAX, &status);
    assert_int_equal(status.known, chunks);
    assert_int_equal(status.missing[0].first, 1u << 22);
    assert_int_equal(status.missing[0].count, 1000);
    close_world(&world);
}

static void a_description_ends_where_the_next_gap_begins(void **state)
{
    struct cn_upload_status status = {0};
    struct world world = {0};
    struct cn_spooled *upload;
    (void)state;
    open_world(&world, 1000 * CHUNK, 0);
    assert_int_equal(declare(&world, "a", 1000 * CHUNK, 10, &upload), CN_OK);
    for (uint32_t i = 0; i < 1000; i++)
        if (i % 100 != 7)
            put(&world, upload, i, 10);
    cn_spool_describe(upload, 0, 3, &status);
    assert_int_equal(status.missing_count, 3);
    assert_int_equal(status.missing[2].first, 207);
    assert_int_equal(status.known, 307);
    cn_spool_describe(upload, 850, CN_RANGE_MAX, &status);
    assert_int_equal(status.missing_count, 1);
    assert_int_equal(status.known, 1000);
    cn_spool_describe(upload, 2000, CN_RANGE_MAX, &status);
    assert_int_equal(status.known, 1000);
    close_world(&world);
}

// Calls the spool as the run does, and returns the operations on the store.
static unsigned save_due(struct world *world, uint64_t now_ms)
{
    unsigned before = world->flaky.operations;
    cn_spool_expire(world->spool, 3, 3, now_ms);
    return world->flaky.operations - before;
}

#define PARTS 50
#define SAVE_OPERATIONS 4 // read, create, write, commit

// One chunk for each part every two seconds, each of which would have its part written.
static void an_upload_that_is_scattered_has_no_more_parts_written_than_it_paid_for(void **state)
{
    const uint64_t size = (uint64_t)PARTS * CN_SPOOL_PART * CHUNK;
    struct world world = {0};
    struct cn_spooled *upload;
    unsigned saves = 0;
    (void)state;
    open_world(&world, size, 0);
    assert_int_equal(declare(&world, "a", size, 10, &upload), CN_OK);
    for (uint32_t i = 0; i < 10; i++) {
        for (uint32_t part = 0; part < PARTS; part++)
            put(&world, upload, part * CN_SPOOL_PART + i, 1000 + 2000 * i);
        for (uint32_t step = 0; step < 4; step++)
            saves += save_due(&world, 1000 + 2000 * i + 500 * step) / SAVE_OPERATIONS;
    }
    assert_in_range(saves, 10, 4 + 20 + 8 * 10 * PARTS / CN_SPOOL_PART);
    cn_spool_close(world.spool); // a stop saves all
    world.spool = NULL;
    assert_int_equal(world.flaky.file_count, PARTS);
    close_world(&world);
}

// Slow, with gaps that are filled a part later: no chunk waits longer than two seconds.
static void an_upload_in_order_is_saved_within_two_seconds(void **state)
{
    const uint64_t size = 4ull * CN_SPOOL_PART * CHUNK;
    const uint32_t late = CN_SPOOL_PART / 2;
    struct world world = {0};
    struct cn_spooled *upload;
    uint64_t now_ms = 1000;
    (void)state;
    open_world(&world, size, 0);
    assert_int_equal(declare(&world, "a", size, now_ms, &upload), CN_OK);
    for (uint32_t i = 0; i < 3 * CN_SPOOL_PART; i++, now_ms += 50) {
        if (i % 7)
            put(&world, upload, i, now_ms);
        if (i > late && (i - late) % 7 == 0)
            put(&world, upload, i - late, now_ms);
        save_due(&world, now_ms);
        for (uint32_t part = 0; part < 4; part++)
            assert_true(upload->parts[part].saved == upload->parts[part].received ||
                        now_ms - upload->parts[part].since_ms < 2000);
    }
    close_world(&world);
}

static void files_of_parts_are_removed_without_a_sync_for_each(void **state)
{
    const uint64_t size = (uint64_t)PARTS * CN_SPOOL_PART * CHUNK;
    struct world world = {0};
    struct cn_spooled *upload;
    (void)state;
    open_world(&world, size, 0);
    assert_int_equal(declare(&world, "a", size, 10, &upload), CN_OK);
    for (uint32_t part = 0; part < PARTS; part++)
        put(&world, upload, part * CN_SPOOL_PART, 1000);
    for (uint64_t now_ms = 1000; now_ms < 100000; now_ms += 500)
        save_due(&world, now_ms);
    assert_int_equal(world.flaky.file_count, PARTS);
    cn_spool_drop(world.spool, upload);
    assert_int_equal(world.flaky.file_count, 0);
    assert_int_equal(world.flaky.removals, 0);
    close_world(&world);
}

// --- room ---

static cn_err measure(struct world *world, const char *board, uint64_t size, uint64_t now_ms)
{
    struct cn_declare_request declared = {.round = 3, .size = size, .digest = {1}};
    struct cn_spooled *upload;
    return cn_spool_declare(world->spool, board, board, &declared, now_ms, &upload);
}

#define FRAME 64000

static void a_measurement_is_small_and_gives_way_to_an_update_at_once(void **state)
{
    struct world world = {0};
    struct cn_spooled *upload;
    (void)state;
    open_world(&world, CN_SPOOL_MEASUREMENT_MAX + 1, CN_SPOOL_MEASUREMENT_MAX);
    assert_int_equal(measure(&world, "m", CN_SPOOL_MEASUREMENT_MAX + 1, 1000), CN_ERANGE);
    assert_int_equal(measure(&world, "m", CN_SPOOL_MEASUREMENT_MAX, 1000), CN_OK);
    assert_int_equal(measure(&world, "n", 1000, 1000), CN_OK); // "m" has sent nothing yet
    assert_int_equal(measure(&world, "m", CN_SPOOL_MEASUREMENT_MAX, 1000), CN_EAGAIN);
    assert_int_equal(declare(&world, "a", CN_SPOOL_MEASUREMENT_MAX, 1000, &upload), CN_OK);
    close_world(&world);
}

// The upload of "m" keeps the pace at which it is complete in time.
static void a_group_gets_its_share_from_one_that_has_more_after_ten_seconds(void **state)
{
    struct world world = {0};
    struct cn_spooled *upload, *other;
    uint64_t now_ms = 1000;
    (void)state;
    open_world(&world, FRAME, FRAME);
    assert_int_equal(declare(&world, "m", FRAME, now_ms, &upload), CN_OK);
    for (uint32_t i = 0; i < 100; i++)
        put(&world, upload, i, now_ms);
    for (uint32_t i = 0; i < 9; i++, now_ms += 1000) {
        put(&world, upload, 100 + i, now_ms);
        assert_int_equal(declare(&world, "a", FRAME / 3, now_ms, &other), CN_EAGAIN);
    }
    now_ms = 11000;
    assert_int_equal(declare(&world, "a", FRAME / 3, now_ms, &other), CN_OK);
    assert_int_equal(declare(&world, "m", FRAME, now_ms, &upload), CN_EAGAIN);
    close_world(&world);
}

// "m" comes back at once, the others after ten seconds, as they were told.
static void who_waited_longer_comes_first_where_one_upload_fills_the_room(void **state)
{
    struct world world = {0};
    struct cn_spooled *upload;
    (void)state;
    open_world(&world, FRAME, FRAME);
    assert_int_equal(declare(&world, "m", FRAME, 1000, &upload), CN_OK);
    assert_int_equal(declare(&world, "a", FRAME, 2000, &upload), CN_EAGAIN);
    assert_int_equal(declare(&world, "b", FRAME, 3000, &upload), CN_EAGAIN);
    assert_int_equal(declare(&world, "m", FRAME, 4000, &upload), CN_OK); // still its upload
    cn_spool_drop(world.spool, upload);
    assert_int_equal(declare(&world, "m", FRAME, 5000, &upload), CN_EAGAIN);
    assert_int_equal(declare(&world, "b", FRAME, 13000, &upload), CN_EAGAIN);
    assert_int_equal(declare(&world, "a", FRAME, 14000, &upload), CN_OK);
    cn_spool_drop(world.spool, upload);
    assert_int_equal(declare(&world, "m", FRAME, 15000, &upload), CN_EAGAIN);
    assert_int_equal(declare(&world, "b", FRAME, 16000, &upload), CN_OK);
    cn_spool_drop(world.spool, upload);
    assert_int_equal(declare(&world, "m", FRAME, 46001, &upload), CN_OK); // nobody else asks
    close_world(&world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bits_are_found_as_one_by_one),
        cmocka_unit_test(a_description_looks_at_a_part_of_a_huge_upload),
        cmocka_unit_test(a_description_ends_where_the_next_gap_begins),
        cmocka_unit_test(an_upload_that_is_scattered_has_no_more_parts_written_than_it_paid_for),
        cmocka_unit_test(an_upload_in_order_is_saved_within_two_seconds),
        cmocka_unit_test(files_of_parts_are_removed_without_a_sync_for_each),
        cmocka_unit_test(a_measurement_is_small_and_gives_way_to_an_update_at_once),
        cmocka_unit_test(a_group_gets_its_share_from_one_that_has_more_after_ten_seconds),
        cmocka_unit_test(who_waited_longer_comes_first_where_one_upload_fills_the_room),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
