// Stored parts: the bytes of a file, damage and lies in them, and which of them make a state.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/port/platform.h"
#include "runtime/round/checkpoint/part_cover.h"

#define TENSORS 5
#define TOTAL 4115
#define NAME "part.a"

static struct cn_tensor_info tensors[TENSORS] = {{.offset = 0, .count = 7},
                                                 {.offset = 7, .count = 4000},
                                                 {.offset = 4007, .count = 0},
                                                 {.offset = 4007, .count = 100},
                                                 {.offset = 4107, .count = 8}};
static const struct cn_layout layout = {tensors, TENSORS, TOTAL};
static const uint32_t own[] = {1, 2, 4};

struct world {
    char directory[64];
    struct cn_store *store;
    struct cn_part_header header;
    struct cn_part_digests digests; // of what waits
    uint8_t *bytes;                 // of a file
    size_t size;
};

static float value_of(uint32_t array, size_t place)
{
    return (float)array * 10000 + (float)place;
}

static cn_err write_values(struct world *world)
{
    static struct cn_part_writer writer;

    cn_part_writer_begin(&writer, world->store, NAME, &world->header, &world->digests, own);
    for (uint32_t array = 0; array < CN_PART_COUNT; array++) {
        if (!(world->header.arrays >> array & 1))
            continue;
        for (uint32_t t = 0; t < 3; t++)
            for (size_t i = 0; i < tensors[own[t]].count; i++) {
                float value = value_of(array, tensors[own[t]].offset + i);

                cn_part_writer_put(&writer, &value, 1);
            }
    }
    return cn_part_writer_end(&writer, CN_OK);
}

static void write_part(struct world *world)
{
    assert_int_equal(write_values(world), CN_OK);
}

static int set_up(void **state)
{
    struct world *world = calloc(1, sizeof(*world));

    if (!world)
        return -1;
    *state = world;
    strcpy(world->directory, "/tmp/cairn-part-XXXXXX");
    if (!mkdtemp(world->directory))
        return -1;
    assert_int_equal(cn_platform_open_store(world->directory, &world->store), CN_OK);
    world->header = (struct cn_part_header){
        .run = 9,
        .epoch = 77,
        .lineage = 1,
        .round = 3,
        .step = 12,
        .parts = 3,
        .samples = 1234,
        .cursor = 88,
        .updates = 12,
        .train_loss = 0.5,
        .loss_scale = {1024, 7},
        .micro = {1, 2, 3},
        .arrays = 1u << CN_PART_WEIGHTS | 1u << CN_PART_OPTIMIZER | 1u << CN_PART_SECOND,
        .part = 1,
        .tensors = 3,
        .values = 4008,
    };
    memset(world->header.base, 0xab, CN_DIGEST_SIZE);
    write_part(world);
    assert_int_equal(
        world->store->ops->load(world->store, NAME, 1 << 20, &world->bytes, &world->size), CN_OK);
    return 0;
}

static int tear_down(void **state)
{
    struct world *world = *state;
    char command[128];

    world->store->ops->close(world->store);
    snprintf(command, sizeof(command), "rm -rf %s", world->directory);
    free(world->bytes);
    free(world);
    return system(command); // NOLINT(cert-env33-c): a directory of this test
}

static float rows[CN_PART_COUNT][TOTAL];

static void take(void *context, enum cn_checkpoint_part array, size_t first, size_t count,
                 const float *values)
{
    *(size_t *)context += count;
    assert_true(first + count <= TOTAL);
    memcpy(&rows[array][first], values, count * sizeof(*values));
}

// Reads bytes in pieces of this size. Returns the first error.
static cn_err read_bytes(const struct world *world, size_t piece, size_t *taken)
{
    struct cn_part_reader reader;
    size_t offset = CN_PART_HEADER_SIZE, some;
    cn_err err = cn_part_reader_begin(&reader, &layout, world->bytes, take, taken);

    *taken = 0;
    for (; !err && reader.left > 0 && offset < world->size; offset += some) {
        some = reader.left < piece ? (size_t)reader.left : piece;
        if (some > world->size - offset)
            some = world->size - offset;
        err = cn_part_reader_put(&reader, world->bytes + offset, some);
    }
    cn_part_reader_end(&reader);
    return err;
}

static void values_come_to_their_places_in_pieces_of_any_size(void **state)
{
    struct world *world = *state;
    static const size_t pieces[] = {4, 8, 20, 4096, 1 << 20};

    for (size_t p = 0; p < sizeof(pieces) / sizeof(*pieces); p++) {
        size_t taken;

        memset(rows, 0, sizeof(rows));
        assert_int_equal(read_bytes(world, pieces[p], &taken), CN_OK);
        assert_int_equal(taken, 3 * world->header.values);
        for (uint32_t array = 0; array < CN_PART_COUNT; array++)
            for (size_t i = 0; i < TOTAL; i++) {
                bool has = world->header.arrays >> array & 1 && ((i >= 7 && i < 4007) || i >= 4107);

                assert_true(fabsf(rows[array][i] - (has ? value_of(array, i) : 0)) <= 0);
            }
    }
}

static void a_header_keeps_its_numbers(void **state)
{
    struct world *world = *state;
    struct cn_part_header header;

    assert_int_equal(cn_part_file_check(world->store, NAME, &layout, &header), CN_OK);
    assert_true(cn_part_state(&header) == cn_part_state(&world->header));
    assert_int_equal(header.part, 1);
    assert_int_equal(header.tensors, 3);
    assert_int_equal(header.values, 4008);
    header.part = 2; // another part of the same state
    header.tensors = 1;
    header.values = 7;
    assert_true(cn_part_state(&header) == cn_part_state(&world->header));
    header.cursor++;
    assert_true(cn_part_state(&header) != cn_part_state(&world->header));
    memset(&header, 0, sizeof(header));
    assert_int_equal(cn_part_file_read(world->store, NAME, &layout, &header), CN_OK);
    assert_true(cn_part_state(&header) == cn_part_state(&world->header));
    assert_int_equal(header.part, 1);
    assert_int_equal(cn_part_file_check(world->store, "part.b", &layout, &header), CN_ENOTFOUND);
}

static void digest_waiting(uint8_t digest[CN_DIGEST_SIZE])
{
    struct cn_sha256 sha;

    cn_sha256_init(&sha);
    cn_sha256_add(&sha, own, sizeof(own));
    for (uint32_t array = CN_PART_NEXT_RESIDUAL; array <= CN_PART_CHANGE; array++)
        for (uint32_t t = 0; t < 3; t++)
            for (size_t i = 0; i < tensors[own[t]].count; i++) {
                float value = value_of(array, tensors[own[t]].offset + i);

                cn_sha256_add(&sha, &value, sizeof(value));
            }
    cn_sha256_finish(&sha, digest);
}

// Makes the file one of what waits.
static void wait_with(struct world *world)
{
    world->header.arrays = CN_PART_WAITING;
    memset(&world->digests, 0, sizeof(world->digests));
    memset(world->digests.frame, 0xcd, CN_DIGEST_SIZE);
    memset(world->digests.parts[2], 0xef, CN_DIGEST_SIZE);
    digest_waiting(world->digests.parts[1]);
    cn_part_set_contents(&world->header, &world->digests);
    write_part(world);
    free(world->bytes);
    assert_int_equal(
        world->store->ops->load(world->store, NAME, 1 << 20, &world->bytes, &world->size), CN_OK);
}

// What waits has arrays of its own, and digests of frame and parts, by which sets are told apart.
static void a_file_of_what_waits_names_all_parts_of_its_set(void **state)
{
    struct world *world = *state;
    struct cn_part_header header;
    size_t taken = 0;

    wait_with(world);
    memset(rows, 0, sizeof(rows));
    assert_int_equal(cn_part_file_take(world->store, NAME, &layout, take, &taken, &header), CN_OK);
    assert_int_equal(taken, 2 * world->header.values);
    assert_true(fabsf(rows[CN_PART_CHANGE][7] - value_of(CN_PART_CHANGE, 7)) <= 0);
    assert_true(fabsf(rows[CN_PART_NEXT_RESIDUAL][4114] - value_of(CN_PART_NEXT_RESIDUAL, 4114)) <=
                0);
    assert_memory_equal(header.contents, world->header.contents, CN_DIGEST_SIZE);
    assert_true(cn_part_state(&header) == cn_part_state(&world->header));
    assert_int_equal(cn_part_size(&world->header),
                     CN_PART_HEADER_SIZE + 17 * 32 + 12 + 8 * 4008 + 32);
    world->digests.parts[2][31]++; // another part has other values: another set
    cn_part_set_contents(&header, &world->digests);
    assert_true(cn_part_state(&header) != cn_part_state(&world->header));
}

// Whoever knows the set knows what must be in each part: nobody can give another content.
static void other_values_are_not_a_part_of_the_set(void **state)
{
    struct world *world = *state;
    struct cn_part_header header;
    uint8_t digest[CN_DIGEST_SIZE];
    size_t taken;

    wait_with(world);
    world->digests.frame[0]++; // not those of the header
    assert_int_equal(write_values(world), CN_EDIGEST);
    world->digests.frame[0]--;
    world->header.part = 2; // its digest is another
    assert_int_equal(write_values(world), CN_EDIGEST);
    world->header.part = 1;
    assert_int_equal(cn_part_file_check(world->store, NAME, &layout, &header), CN_OK);
    world->bytes[world->size - 36] ^= 1; // a value, with a digest that matches it
    cn_crypto_digest(world->bytes + CN_PART_HEADER_SIZE + sizeof(world->digests),
                     world->size - CN_PART_HEADER_SIZE - sizeof(world->digests) - 32, digest);
    memcpy(world->bytes + world->size - 32, digest, sizeof(digest));
    assert_int_equal(read_bytes(world, 4096, &taken), CN_EDIGEST);
    memcpy(world->bytes + CN_PART_HEADER_SIZE + 64, digest, sizeof(digest)); // of part 1
    assert_int_equal(read_bytes(world, 4096, &taken), CN_EDIGEST);
    assert_int_equal(taken, 0);
}

static void check_flips(struct world *world, size_t from)
{
    size_t taken;

    for (size_t i = from; i < world->size; i += i < 1024 || i + 64 > world->size ? 1 : 997) {
        world->bytes[i] ^= 0x10;
        assert_int_not_equal(read_bytes(world, 4096, &taken), CN_OK);
        world->bytes[i] ^= 0x10;
    }
    assert_int_equal(read_bytes(world, 4096, &taken), CN_OK);
    assert_int_equal(read_bytes(world, 4, &taken), CN_OK);
}

// No byte can change unseen.
static void a_byte_that_flips_anywhere_is_seen(void **state)
{
    struct world *world = *state;

    check_flips(world, 0);
    wait_with(world);
    check_flips(world, CN_PART_HEADER_SIZE); // the header has a name, which tells
}

static void a_file_that_ends_early_or_late_is_refused(void **state)
{
    struct world *world = *state;
    struct cn_part_header header;
    const size_t sizes[] = {0, 8, CN_PART_HEADER_SIZE - 1, CN_PART_HEADER_SIZE, world->size - 4};

    for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
        assert_int_equal(cn_store_replace(world->store, NAME, world->bytes, sizes[i]), CN_OK);
        assert_int_equal(cn_part_file_check(world->store, NAME, &layout, &header), CN_EFORMAT);
    }
    world->bytes = realloc(world->bytes, world->size + 4);
    assert_non_null(world->bytes);
    memset(world->bytes + world->size, 0, 4);
    assert_int_equal(cn_store_replace(world->store, NAME, world->bytes, world->size + 4), CN_OK);
    assert_int_equal(cn_part_file_check(world->store, NAME, &layout, &header), CN_EFORMAT);
}

// What another member may send, with a size and a digest that match.
static void headers_that_lie_are_refused(void **state)
{
    struct world *world = *state;
    const struct cn_part_header good = world->header;
    struct cn_part_header lies[12], header;

    for (size_t i = 0; i < 12; i++)
        lies[i] = good;
    lies[0].parts = 1;
    lies[1].parts = CN_CUT_PARTS_MAX + 1;
    lies[2].part = 3;
    lies[3].arrays |= 1u << CN_PART_BASE;
    lies[4].arrays &= ~(1u << CN_PART_WEIGHTS);
    lies[5].loss_scale.factor = NAN;
    lies[6].loss_scale.factor = 3;
    lies[7].loss_scale.factor = -2;
    lies[8].loss_scale.factor = INFINITY;
    lies[9].arrays = 1u << CN_PART_CHANGE;
    lies[10].arrays = CN_PART_WAITING | 1u << CN_PART_WEIGHTS;
    lies[11].arrays = CN_PART_WAITING | 1u << CN_PART_RESIDUAL;
    for (size_t i = 0; i < 12; i++) {
        world->header = lies[i];
        write_part(world);
        assert_int_equal(cn_part_file_check(world->store, NAME, &layout, &header), CN_EFORMAT);
    }
    world->header = good;
    world->header.loss_scale = (struct cn_loss_scale){0};
    write_part(world);
    assert_int_equal(cn_part_file_check(world->store, NAME, &layout, &header), CN_OK);
}

static void sizes_that_lie_allocate_nothing(void **state)
{
    struct world *world = *state;
    struct cn_part_reader reader;

    cn_put_u32(world->bytes + 160, UINT32_MAX);
    assert_int_equal(cn_part_reader_begin(&reader, &layout, world->bytes, NULL, NULL), CN_EFORMAT);
    cn_part_reader_end(&reader);
    cn_put_u32(world->bytes + 160, 3);
    cn_put_u64(world->bytes + 168, UINT64_MAX / 2);
    assert_int_equal(cn_part_reader_begin(&reader, &layout, world->bytes, NULL, NULL), CN_EFORMAT);
    cn_part_reader_end(&reader);
    cn_put_u64(world->bytes + 168, 4009); // the size says otherwise
    assert_int_equal(cn_part_reader_begin(&reader, &layout, world->bytes, NULL, NULL), CN_EFORMAT);
    cn_part_reader_end(&reader);
}

static void tensors_that_lie_are_refused(void **state)
{
    struct world *world = *state;
    static const uint32_t lies[][3] = {
        {1, 2, 5}, {2, 1, 4}, {1, 1, 4}, {1, 2, 3}, {0, 1, UINT32_MAX}};
    size_t taken;

    for (size_t i = 0; i < sizeof(lies) / sizeof(*lies); i++) {
        memcpy(world->bytes + CN_PART_HEADER_SIZE, lies[i], sizeof(lies[i]));
        assert_int_equal(read_bytes(world, 4096, &taken), CN_EFORMAT);
        assert_int_equal(taken, 0);
    }
}

// --- which parts make a state ---

#define EPOCH 100
#define STATE 77

static void parts_of_one_state_are_found_wherever_they_are(void **state)
{
    struct cn_part_offer offers[3][CN_PART_OFFERS] = {
        {{STATE, EPOCH, 8, 3, 0},
         {STATE, EPOCH, 9, 3, 0},
         {STATE, EPOCH, 8, 3, 2},
         {STATE, EPOCH, 9, 3, 2}},
        {{STATE, EPOCH, 8, 3, 1}, {STATE, EPOCH, 9, 3, 1}},
    };
    struct cn_part_choice choice;

    (void)state;
    cn_part_choose((const struct cn_part_offer(*)[CN_PART_OFFERS])offers, 3, &choice);
    assert_int_equal(choice.epoch, EPOCH);
    assert_int_equal(choice.step, 9);
    assert_int_equal(choice.parts, 3);
    assert_int_equal(choice.ranks[0], 0);
    assert_int_equal(choice.files[0], 1);
    assert_int_equal(choice.ranks[1], 1);
    assert_int_equal(choice.files[1], 1);
    assert_int_equal(choice.ranks[2], 0);
    assert_int_equal(choice.files[2], 3);
    offers[1][1] = (struct cn_part_offer){0}; // one had not stored it yet
    cn_part_choose((const struct cn_part_offer(*)[CN_PART_OFFERS])offers, 3, &choice);
    assert_int_equal(choice.step, 8);
    offers[1][0] = (struct cn_part_offer){0};
    cn_part_choose((const struct cn_part_offer(*)[CN_PART_OFFERS])offers, 3, &choice);
    assert_int_equal(choice.state, 0);
}

// Neither of other numbers, nor of another epoch, nor of another step, nor of a cut into other
// parts.
static void parts_of_two_states_make_none(void **state)
{
    static const struct cn_part_offer others[] = {{STATE, EPOCH + 1, 9, 2, 1},
                                                  {STATE, EPOCH, 8, 2, 1},
                                                  {STATE, EPOCH, 9, 3, 1},
                                                  {STATE, EPOCH, 9, 2, 0},
                                                  {STATE, EPOCH, 9, 2, 2}};
    struct cn_part_choice choice;

    (void)state;
    for (size_t i = 0; i < sizeof(others) / sizeof(*others); i++) {
        struct cn_part_offer offers[2][CN_PART_OFFERS] = {{{STATE, EPOCH, 9, 2, 0}}, {others[i]}};

        cn_part_choose((const struct cn_part_offer(*)[CN_PART_OFFERS])offers, 2, &choice);
        assert_int_equal(choice.state, 0);
    }
}

static void of_equal_steps_the_newest_epoch_counts(void **state)
{
    struct cn_part_offer offers[2][CN_PART_OFFERS] = {
        {{STATE, EPOCH, 9, 2, 0},
         {STATE, EPOCH + 1, 9, 2, 0},
         {STATE, EPOCH, 9, 2, 1},
         {STATE, EPOCH + 1, 9, 2, 1}},
        {{STATE, EPOCH + 2, 7, 2, 0}, {STATE, EPOCH + 2, 7, 2, 1}},
    };
    struct cn_part_choice choice;

    (void)state;
    cn_part_choose((const struct cn_part_offer(*)[CN_PART_OFFERS])offers, 2, &choice);
    assert_int_equal(choice.epoch, EPOCH + 1);
    assert_int_equal(choice.step, 9);
}

static void offers_that_lie_choose_nothing(void **state)
{
    struct cn_part_offer offers[1][CN_PART_OFFERS] = {{{STATE, EPOCH, 9, 1, 0},
                                                       {STATE, EPOCH, 9, 0, 0},
                                                       {STATE, EPOCH, 9, 33, 32},
                                                       {STATE, EPOCH, 9, UINT32_MAX, UINT32_MAX}}};
    struct cn_part_choice choice;

    (void)state;
    cn_part_choose((const struct cn_part_offer(*)[CN_PART_OFFERS])offers, 1, &choice);
    assert_int_equal(choice.state, 0);
}

int main(void)
{
#define FILE_TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        FILE_TEST(values_come_to_their_places_in_pieces_of_any_size),
        FILE_TEST(a_header_keeps_its_numbers),
        FILE_TEST(a_file_of_what_waits_names_all_parts_of_its_set),
        FILE_TEST(other_values_are_not_a_part_of_the_set),
        FILE_TEST(a_byte_that_flips_anywhere_is_seen),
        FILE_TEST(a_file_that_ends_early_or_late_is_refused),
        FILE_TEST(headers_that_lie_are_refused),
        FILE_TEST(sizes_that_lie_allocate_nothing),
        FILE_TEST(tensors_that_lie_are_refused),
        cmocka_unit_test(parts_of_one_state_are_found_wherever_they_are),
        cmocka_unit_test(parts_of_two_states_make_none),
        cmocka_unit_test(of_equal_steps_the_newest_epoch_counts),
        cmocka_unit_test(offers_that_lie_choose_nothing),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
