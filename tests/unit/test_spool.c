#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "aggregator/store/spool.h"
#include "aggregator/store/spool_name.h"
#include "runtime/port/crypto.h"
#include "tests/support/flaky_store.h"

#define CHUNK 16
#define SIZE 100 // 7 chunks, the last of 4 bytes

struct fixture {
    struct cn_flaky_store flaky;
    struct cn_spool *spool;
    uint8_t frame[SIZE];
    struct cn_declare_request declared;
};

static int open_spool(void **state)
{
    struct fixture *fixture = calloc(1, sizeof(*fixture));
    cn_flaky_store_init(&fixture->flaky);
    const struct cn_spool_config config = {.store = &fixture->flaky.store,
                                           .frame_max = 1000,
                                           .limit = 250,
                                           .chunk_size = CHUNK,
                                           .expiry_ms = 1000};
    assert_int_equal(cn_spool_open(&config, &fixture->spool), CN_OK);
    for (size_t i = 0; i < SIZE; i++)
        fixture->frame[i] = (uint8_t)(i * 7);
    fixture->declared = (struct cn_declare_request){.run = 1, .round = 3, .size = SIZE};
    cn_crypto_digest(fixture->frame, SIZE, fixture->declared.digest);
    *state = fixture;
    return 0;
}

static int close_spool(void **state)
{
    struct fixture *fixture = *state;
    cn_spool_close(fixture->spool);
    assert_int_equal(fixture->flaky.open_count, 0);
    cn_flaky_store_deinit(&fixture->flaky);
    free(fixture);
    return 0;
}

static struct cn_spooled *declare(struct fixture *fixture, const char *board, const char *group)
{
    struct cn_spooled *upload;
    assert_int_equal(
        cn_spool_declare(fixture->spool, board, group, &fixture->declared, 10, &upload), CN_OK);
    return upload;
}

static void put(struct fixture *fixture, struct cn_spooled *upload, uint32_t index)
{
    size_t offset = (size_t)index * CHUNK, left = SIZE - offset;
    assert_int_equal(cn_spool_put(fixture->spool, upload, index, fixture->frame + offset,
                                  left < CHUNK ? left : CHUNK, 10),
                     CN_OK);
}

static void reopen(struct fixture *fixture, size_t frame_max)
{
    const struct cn_spool_config config = {.store = &fixture->flaky.store,
                                           .frame_max = frame_max,
                                           .limit = 2 * frame_max,
                                           .chunk_size = CHUNK,
                                           .expiry_ms = 10000};
    cn_spool_close(fixture->spool);
    assert_int_equal(cn_spool_open(&config, &fixture->spool), CN_OK);
}

static void chunks_may_come_in_any_order_and_twice(void **state)
{
    struct fixture *fixture = *state;
    struct cn_spooled *upload = declare(fixture, "a", "g");
    uint8_t *frame;
    for (uint32_t i = 7; i-- > 0;)
        put(fixture, upload, i);
    put(fixture, upload, 3);
    assert_int_equal(cn_spool_read(fixture->spool, upload, &frame), CN_OK);
    assert_memory_equal(frame, fixture->frame, SIZE);
    free(frame);
    assert_int_equal(cn_spool_keep(fixture->spool, upload), CN_OK);
    size_t size;
    assert_memory_equal(cn_flaky_store_bytes(&fixture->flaky, "round-3-g.update", &size),
                        fixture->frame, SIZE);
}

static void what_is_missing_is_named_in_ranges(void **state)
{
    struct fixture *fixture = *state;
    struct cn_spooled *upload = declare(fixture, "a", "g");
    struct cn_upload_status status = {0};
    put(fixture, upload, 0);
    put(fixture, upload, 3);
    cn_spool_describe(upload, 0, CN_RANGE_MAX, &status);
    assert_int_equal(status.received, 2);
    assert_int_equal(status.missing_count, 2);
    assert_int_equal(status.missing[0].first, 1);
    assert_int_equal(status.missing[0].count, 2);
    assert_int_equal(status.missing[1].first, 4);
    assert_int_equal(status.missing[1].count, 3);
}

static void a_chunk_of_the_wrong_size_or_number_is_refused(void **state)
{
    struct fixture *fixture = *state;
    struct cn_spooled *upload = declare(fixture, "a", "g");
    assert_int_equal(cn_spool_put(fixture->spool, upload, 0, fixture->frame, CHUNK - 1, 10),
                     CN_ERANGE);
    assert_int_equal(cn_spool_put(fixture->spool, upload, 6, fixture->frame, CHUNK, 10), CN_ERANGE);
    assert_int_equal(cn_spool_put(fixture->spool, upload, 7, fixture->frame, 4, 10), CN_ERANGE);
    assert_int_equal(cn_spool_put(fixture->spool, upload, UINT32_MAX, fixture->frame, 4, 10),
                     CN_ERANGE);
}

static void other_bytes_than_declared_are_found_out(void **state)
{
    struct fixture *fixture = *state;
    uint8_t *frame;
    fixture->declared.digest[0] ^= 1;
    struct cn_spooled *upload = declare(fixture, "a", "g");
    for (uint32_t i = 0; i < 7; i++)
        put(fixture, upload, i);
    assert_int_equal(cn_spool_read(fixture->spool, upload, &frame), CN_EDIGEST);
    assert_null(frame);
}

static void another_board_of_the_group_goes_on_with_the_same_frame(void **state)
{
    struct fixture *fixture = *state;
    uint8_t id[CN_UPLOAD_ID_SIZE];
    struct cn_spooled *upload = declare(fixture, "a", "g");
    memcpy(id, upload->id, sizeof(id));
    put(fixture, upload, 0);
    upload = declare(fixture, "b", "g");
    assert_int_equal(upload->received, 1);
    assert_memory_not_equal(upload->id, id, sizeof(id));
    assert_ptr_equal(cn_spool_find(fixture->spool, "b", "g", upload->id), upload);
    assert_null(cn_spool_find(fixture->spool, "b", "g", id));
    assert_null(cn_spool_find(fixture->spool, "b", "h", upload->id));
    assert_null(cn_spool_find(fixture->spool, "a", "g", upload->id));
}

static void what_one_member_does_leaves_the_upload_of_another(void **state)
{
    struct fixture *fixture = *state;
    struct cn_declare_request mine = fixture->declared;
    struct cn_spooled *upload = declare(fixture, "a", "g");
    uint8_t *frame;
    put(fixture, upload, 0);
    fixture->declared.run = 0; // a measurement
    declare(fixture, "b", "g");
    fixture->declared = mine;
    struct cn_spooled *other = declare(fixture, "b", "g");
    assert_int_equal(other->received, 1); // lent
    cn_spool_drop(fixture->spool, other);
    assert_ptr_equal(cn_spool_find(fixture->spool, "a", "g", upload->id), upload);
    for (uint32_t i = 1; i < 7; i++)
        put(fixture, upload, i);
    assert_int_equal(cn_spool_read(fixture->spool, upload, &frame), CN_OK);
    free(frame);
}

static void junk_that_was_lent_goes_back(void **state)
{
    struct fixture *fixture = *state;
    const uint8_t junk[2 * CHUNK] = {1};
    uint8_t *frame;
    assert_int_equal(
        cn_spool_put(fixture->spool, declare(fixture, "a", "g"), 0, junk, sizeof(junk), 10), CN_OK);
    struct cn_spooled *upload = declare(fixture, "b", "g");
    assert_int_equal(upload->received, 2);
    put(fixture, upload, 1); // other bytes than those that were lent
    for (uint32_t i = 2; i < 7; i++)
        put(fixture, upload, i);
    assert_int_equal(cn_spool_read(fixture->spool, upload, &frame), CN_EAGAIN);
    assert_int_equal(upload->received, 6);
    assert_int_equal(upload->first_missing, 0);
    put(fixture, upload, 0);
    assert_int_equal(cn_spool_read(fixture->spool, upload, &frame), CN_OK);
    assert_memory_equal(frame, fixture->frame, SIZE);
    free(frame);
    assert_int_equal(cn_spool_keep(fixture->spool, upload), CN_OK);
    assert_int_equal(fixture->flaky.open_count, 0); // the other one can count no more
}

static void junk_that_was_lent_is_nobodys_own_after_a_restart(void **state)
{
    struct fixture *fixture = *state;
    const uint8_t junk[CHUNK] = {1};
    assert_int_equal(
        cn_spool_put(fixture->spool, declare(fixture, "a", "g"), 0, junk, sizeof(junk), 10), CN_OK);
    put(fixture, declare(fixture, "b", "g"), 1);
    cn_spool_drop(fixture->spool, declare(fixture, "a", "g"));
    reopen(fixture, 1000);
    struct cn_spooled *upload = declare(fixture, "b", "g");
    assert_int_equal(upload->received, 1);
    put(fixture, upload, 0);
}

static void the_measurements_of_the_first_declaration_count(void **state)
{
    struct fixture *fixture = *state;
    fixture->declared.train_loss = 0.5;
    struct cn_spooled *upload = declare(fixture, "a", "g");
    fixture->declared.train_loss = 0.25;
    declare(fixture, "b", "g");
    assert_ptr_equal(declare(fixture, "a", "g"), upload);
    assert_true(upload->declared.train_loss == 0.5);
}

static void a_new_frame_of_the_board_replaces_the_old(void **state)
{
    struct fixture *fixture = *state;
    put(fixture, declare(fixture, "a", "g"), 0);
    fixture->declared.digest[5] ^= 1;
    assert_int_equal(declare(fixture, "a", "g")->received, 0);
    assert_int_equal(fixture->flaky.open_count, 1);
}

static void the_spool_has_a_limit(void **state)
{
    struct fixture *fixture = *state;
    struct cn_spooled *upload;
    declare(fixture, "a", "a");
    declare(fixture, "b", "b");
    assert_int_equal(cn_spool_declare(fixture->spool, "c", "c", &fixture->declared, 10, &upload),
                     CN_EAGAIN);
    cn_spool_drop(fixture->spool, declare(fixture, "a", "a"));
    declare(fixture, "c", "c");
}

// Declares another frame of `size` bytes, whose digest has this salt.
static cn_err declare_size(struct fixture *fixture, const char *board, const char *group,
                           uint64_t size, uint8_t salt, uint64_t now_ms, struct cn_spooled **upload)
{
    struct cn_declare_request declared = {.run = 1, .round = 3, .size = size, .digest = {salt}};
    return cn_spool_declare(fixture->spool, board, group, &declared, now_ms, upload);
}

static void an_upload_without_chunks_makes_room_for_another_group(void **state)
{
    struct fixture *fixture = *state;
    struct cn_spooled *upload;
    assert_int_equal(declare_size(fixture, "m", "evil", 250, 1, 1000, &upload), CN_OK);
    assert_int_equal(declare_size(fixture, "a", "g", 200, 2, 10999, &upload), CN_EAGAIN);
    assert_int_equal(declare_size(fixture, "a", "g", 200, 2, 11000, &upload), CN_OK);
}

static void declaring_other_frames_again_and_again_holds_no_room(void **state)
{
    struct fixture *fixture = *state;
    struct cn_spooled *upload;
    for (uint8_t n = 0; n < 11; n++)
        assert_int_equal(declare_size(fixture, "m", "evil", 250, n, 1000 + n * 1000u, &upload),
                         CN_OK);
    assert_int_equal(declare_size(fixture, "a", "g", 200, 99, 11001, &upload), CN_OK);
}

// The rate that counts is that of a frame in expiry_ms, here 10 s.
static void a_slow_upload_above_its_groups_share_makes_room(void **state)
{
    struct fixture *fixture = *state;
    struct cn_spooled *m, *n, *upload;
    const uint8_t chunk[CHUNK] = {0};
    reopen(fixture, 125);
    assert_int_equal(declare_size(fixture, "m", "evil", 125, 1, 1000, &m), CN_OK);
    assert_int_equal(declare_size(fixture, "n", "evil", 125, 1, 1000, &n), CN_OK);
    for (uint32_t i = 0; i < 2; i++) {
        uint64_t now_ms = 1000 + 500ull * i;
        assert_int_equal(cn_spool_put(fixture->spool, m, i, chunk, CHUNK, now_ms), CN_OK);
        assert_int_equal(cn_spool_put(fixture->spool, n, i, chunk, CHUNK, now_ms), CN_OK);
    }
    assert_int_equal(declare_size(fixture, "a", "g", 125, 2, 3000, &upload), CN_EAGAIN);
    assert_int_equal(declare_size(fixture, "a", "g", 125, 2, 4000, &upload), CN_OK);
}

static void a_declaration_above_its_groups_share_holds_no_room(void **state)
{
    struct fixture *fixture = *state;
    struct cn_spooled *upload;
    assert_int_equal(declare_size(fixture, "m", "evil", 250, 1, 1000, &upload), CN_OK);
    assert_int_equal(declare_size(fixture, "a", "g", 125, 2, 1000, &upload), CN_OK);
    assert_int_equal(declare_size(fixture, "m", "evil", 250, 1, 1000, &upload), CN_EAGAIN);
}

static void an_upload_that_goes_on_keeps_its_room(void **state)
{
    struct fixture *fixture = *state;
    struct cn_spooled *upload, *big;
    const uint8_t chunk[CHUNK] = {0};
    assert_int_equal(declare_size(fixture, "a", "g", 250, 1, 1000, &big), CN_OK);
    for (uint32_t n = 0; n < 12; n++) {
        assert_int_equal(cn_spool_put(fixture->spool, big, n, chunk, CHUNK, 1000 + 50ull * n),
                         CN_OK);
        assert_int_equal(declare_size(fixture, "b", "h", 50, 2, 1000 + 50ull * n, &upload),
                         CN_EAGAIN);
    }
}

static void sizes_that_no_frame_has_are_refused(void **state)
{
    struct fixture *fixture = *state;
    static const uint64_t sizes[] = {0, 1001, UINT64_MAX};
    struct cn_spooled *upload;
    for (size_t i = 0; i < 3; i++) {
        fixture->declared.size = sizes[i];
        assert_int_equal(
            cn_spool_declare(fixture->spool, "a", "g", &fixture->declared, 10, &upload), CN_ERANGE);
    }
}

static void uploads_that_stopped_or_are_of_another_round_are_dropped(void **state)
{
    struct fixture *fixture = *state;
    declare(fixture, "a", "a");
    cn_spool_expire(fixture->spool, 3, 3, 1010);
    assert_int_equal(fixture->flaky.open_count, 1);
    cn_spool_expire(fixture->spool, 3, 3, 1011);
    assert_int_equal(fixture->flaky.open_count, 0);
    declare(fixture, "a", "a");
    cn_spool_expire(fixture->spool, 4, 4, 10);
    assert_int_equal(fixture->flaky.open_count, 0);
}

static void an_upload_that_hardly_gets_on_or_is_never_committed_makes_room(void **state)
{
    struct fixture *fixture = *state;
    struct cn_spooled *upload = declare(fixture, "a", "a"); // 10 ms
    put(fixture, upload, 1);
    cn_spool_expire(fixture->spool, 3, 3, 1011); // a chunk of seven in a second will do
    assert_int_equal(fixture->flaky.open_count, 1);
    put(fixture, upload, 1);                              // that is no progress,
    assert_ptr_equal(declare(fixture, "a", "a"), upload); // nor is this
    cn_spool_expire(fixture->spool, 3, 3, 2012);
    assert_int_equal(fixture->flaky.open_count, 0);
    upload = declare(fixture, "a", "a");
    for (uint32_t i = 0; i < 7; i++)
        put(fixture, upload, i);
    cn_spool_expire(fixture->spool, 3, 3, 3012);
    assert_int_equal(fixture->flaky.open_count, 1);
    cn_spool_expire(fixture->spool, 3, 3, 4013); // complete since then
    assert_int_equal(fixture->flaky.open_count, 0);
}

static void names_of_files_are_read_back(void **state)
{
    char name[CN_SPOOL_NAME_SIZE], group[CN_NAME_SIZE];
    uint32_t round;
    (void)state;
    cn_spool_name(12, "site-1.update", name);
    assert_int_equal(cn_spool_parse_name(name, &round, group), CN_OK);
    assert_int_equal(round, 12);
    assert_string_equal(group, "site-1.update");
    assert_int_equal(cn_spool_parse_name("round-1-.update", &round, group), CN_EFORMAT);
    assert_int_equal(cn_spool_parse_name("round-01-a.update", &round, group), CN_EFORMAT);
    assert_int_equal(cn_spool_parse_name("version-1.full", &round, group), CN_EFORMAT);
}

#define SPOOL_TEST(name) cmocka_unit_test_setup_teardown(name, open_spool, close_spool)

// What a program that was killed leaves: nothing of the aside file, and the parts as saved.
static void kill_spool(struct fixture *fixture, size_t frame_max)
{
    struct cn_flaky_store *flaky = &fixture->flaky;
    cn_flaky_store_fail(flaky, 1, true, CN_EIO); // closing saves no more
    cn_spool_close(fixture->spool);
    fixture->spool = NULL;
    cn_flaky_store_fail(flaky, 0, false, CN_OK);
    reopen(fixture, frame_max);
}

static void what_was_saved_survives_a_kill_and_is_not_asked_for_again(void **state)
{
    struct fixture *fixture = *state;
    const size_t size = (2 * CN_SPOOL_PART + 100) * CHUNK - 5;
    uint8_t *frame = malloc(size), *back;
    struct cn_upload_status status = {0};
    for (size_t i = 0; i < size; i++)
        frame[i] = (uint8_t)(i * 13 >> 3);
    reopen(fixture, size);
    fixture->declared.size = size;
    cn_crypto_digest(frame, size, fixture->declared.digest);
    struct cn_spooled *upload = declare(fixture, "a", "g");
    for (uint32_t i = 0; i < CN_SPOOL_PART; i += 8) // the first part, except one hole
        if (i != 800)
            assert_int_equal(
                cn_spool_put(fixture->spool, upload, i, frame + i * CHUNK, 8 * CHUNK, 10), CN_OK);
    cn_spool_expire(fixture->spool, 3, 3, 2500); // it has waited for longer than two seconds
    for (uint32_t i = CN_SPOOL_PART; i < CN_SPOOL_PART + 80; i += 8)
        assert_int_equal(
            cn_spool_put(fixture->spool, upload, i, frame + i * CHUNK, 8 * CHUNK, 2600), CN_OK);
    kill_spool(fixture, size);
    upload = declare(fixture, "b", "g"); // another board of the group leads now
    cn_spool_describe(upload, 0, CN_RANGE_MAX, &status);
    assert_int_equal(status.received, CN_SPOOL_PART - 8);
    assert_int_equal(status.missing_count, 2);
    assert_int_equal(status.missing[0].first, 800);
    assert_int_equal(status.missing[0].count, 8);
    assert_int_equal(status.missing[1].first, CN_SPOOL_PART);
    for (uint32_t i = 0; i < status.missing_count; i++) {
        size_t offset = (size_t)status.missing[i].first * CHUNK;
        size_t part = (size_t)status.missing[i].count * CHUNK;
        assert_int_equal(cn_spool_put(fixture->spool, upload, status.missing[i].first,
                                      frame + offset, part < size - offset ? part : size - offset,
                                      2700),
                         CN_OK);
    }
    assert_int_equal(cn_spool_read(fixture->spool, upload, &back), CN_OK);
    assert_memory_equal(back, frame, size);
    assert_int_equal(cn_spool_keep(fixture->spool, upload), CN_OK);
    reopen(fixture, size); // nothing is left of the parts
    upload = declare(fixture, "b", "g");
    assert_int_equal(upload->received, 0);
    free(back);
    free(frame);
}

static void a_stop_saves_all_and_a_damaged_part_is_thrown_away(void **state)
{
    struct fixture *fixture = *state;
    struct cn_spooled *upload = declare(fixture, "a", "g");
    put(fixture, upload, 2);
    put(fixture, upload, 6);
    reopen(fixture, 1000);
    upload = declare(fixture, "a", "g");
    assert_int_equal(upload->received, 2);
    reopen(fixture, 1000);
    assert_int_equal(cn_store_replace(&fixture->flaky.store, "round-3-a.part-0", "nonsense", 8),
                     CN_OK);
    reopen(fixture, 1000); // closing saves only what changed
    upload = declare(fixture, "a", "g");
    assert_int_equal(upload->received, 0);
}

// The disk is full when the program starts, at each of the operations that take up what was saved.
static void a_full_disk_at_the_start_costs_what_was_saved_and_not_the_start(void **state)
{
    struct fixture *fixture = *state;
    for (unsigned lasting = 0; lasting < 2; lasting++) {
        unsigned failing = 2, operations; // behind the listing of what is there
        do {
            struct cn_flaky_store *flaky = &fixture->flaky;
            const struct cn_spool_config config = {
                .store = &flaky->store, .frame_max = 1000, .limit = 500, .chunk_size = CHUNK};
            put(fixture, declare(fixture, "a", "g"), 2);
            put(fixture, declare(fixture, "b", "h"), 3);
            cn_spool_close(fixture->spool); // saves both
            fixture->spool = NULL;
            operations = flaky->operations;
            cn_flaky_store_fail(flaky, failing, lasting, CN_ENOSPC);
            assert_int_equal(cn_spool_open(&config, &fixture->spool), CN_OK);
            operations = flaky->operations - operations;
            cn_flaky_store_fail(flaky, 0, false, CN_OK);
            for (uint32_t i = 0; i < 7; i++)
                put(fixture, declare(fixture, "a", "g"), i);
            uint8_t *frame;
            struct cn_spooled *upload = declare(fixture, "a", "g");
            assert_int_equal(cn_spool_read(fixture->spool, upload, &frame), CN_OK);
            assert_memory_equal(frame, fixture->frame, SIZE);
            free(frame);
            cn_spool_drop(fixture->spool, upload);
            cn_spool_drop(fixture->spool, declare(fixture, "b", "h"));
        } while (failing++ < operations);
        assert_true(failing > 6);
    }
}

static void a_start_that_fails_leaves_what_was_saved(void **state)
{
    struct fixture *fixture = *state;
    struct cn_flaky_store *flaky = &fixture->flaky;
    const struct cn_spool_config config = {
        .store = &flaky->store, .frame_max = 1000, .limit = 500, .chunk_size = CHUNK};
    struct cn_spooled *upload = declare(fixture, "a", "g");
    unsigned failing = 0, failed = 0;
    cn_err err;
    put(fixture, upload, 2);
    put(fixture, upload, 6);
    cn_spool_close(fixture->spool);
    do {
        cn_flaky_store_fail(flaky, ++failing, false, CN_EIO);
        err = cn_spool_open(&config, &fixture->spool);
        cn_flaky_store_fail(flaky, 0, false, CN_OK);
        failed += err != CN_OK;
    } while (err);
    assert_true(failed > 3); // listing, reading, creating, each chunk
    upload = declare(fixture, "a", "g");
    assert_int_equal(upload->received, 2);
}

static void a_part_that_was_saved_in_spite_of_an_error_is_removed(void **state)
{
    struct fixture *fixture = *state;
    struct cn_spooled *upload = declare(fixture, "a", "g");
    size_t size;
    put(fixture, upload, 2);
    fixture->flaky.commit_before_failing = true;
    cn_flaky_store_fail(&fixture->flaky, 4, false, CN_EIO); // after read, create and write
    cn_spool_expire(fixture->spool, 3, 3, 5000);
    cn_flaky_store_fail(&fixture->flaky, 0, false, CN_OK);
    assert_int_equal(upload->parts[0].saved, 0);
    assert_non_null(cn_flaky_store_bytes(&fixture->flaky, "round-3-a.part-0", &size));
    cn_spool_drop(fixture->spool, upload);
    assert_null(cn_flaky_store_bytes(&fixture->flaky, "round-3-a.part-0", &size));
}

static void other_bytes_for_a_chunk_that_is_there_are_refused(void **state)
{
    struct fixture *fixture = *state;
    struct cn_spooled *upload = declare(fixture, "a", "g");
    uint8_t other[3 * CHUNK];
    memcpy(other, fixture->frame, sizeof(other));
    put(fixture, upload, 1);
    other[CHUNK + 3] ^= 1;
    assert_int_equal(cn_spool_put(fixture->spool, upload, 0, other, sizeof(other), 10),
                     CN_ECONFLICT);
    assert_int_equal(upload->received, 1);
    other[CHUNK + 3] ^= 1;
    assert_int_equal(cn_spool_put(fixture->spool, upload, 0, other, sizeof(other), 10), CN_OK);
    assert_int_equal(upload->received, 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        SPOOL_TEST(chunks_may_come_in_any_order_and_twice),
        SPOOL_TEST(what_is_missing_is_named_in_ranges),
        SPOOL_TEST(a_chunk_of_the_wrong_size_or_number_is_refused),
        SPOOL_TEST(other_bytes_than_declared_are_found_out),
        SPOOL_TEST(another_board_of_the_group_goes_on_with_the_same_frame),
        SPOOL_TEST(what_one_member_does_leaves_the_upload_of_another),
        SPOOL_TEST(junk_that_was_lent_goes_back),
        SPOOL_TEST(junk_that_was_lent_is_nobodys_own_after_a_restart),
        SPOOL_TEST(the_measurements_of_the_first_declaration_count),
        SPOOL_TEST(a_new_frame_of_the_board_replaces_the_old),
        SPOOL_TEST(the_spool_has_a_limit),
        SPOOL_TEST(an_upload_without_chunks_makes_room_for_another_group),
        SPOOL_TEST(declaring_other_frames_again_and_again_holds_no_room),
        SPOOL_TEST(a_slow_upload_above_its_groups_share_makes_room),
        SPOOL_TEST(a_declaration_above_its_groups_share_holds_no_room),
        SPOOL_TEST(an_upload_that_goes_on_keeps_its_room),
        SPOOL_TEST(sizes_that_no_frame_has_are_refused),
        SPOOL_TEST(uploads_that_stopped_or_are_of_another_round_are_dropped),
        SPOOL_TEST(an_upload_that_hardly_gets_on_or_is_never_committed_makes_room),
        SPOOL_TEST(what_was_saved_survives_a_kill_and_is_not_asked_for_again),
        SPOOL_TEST(a_stop_saves_all_and_a_damaged_part_is_thrown_away),
        SPOOL_TEST(a_full_disk_at_the_start_costs_what_was_saved_and_not_the_start),
        SPOOL_TEST(a_start_that_fails_leaves_what_was_saved),
        SPOOL_TEST(a_part_that_was_saved_in_spite_of_an_error_is_removed),
        SPOOL_TEST(other_bytes_for_a_chunk_that_is_there_are_refused),
        cmocka_unit_test(names_of_files_are_read_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
