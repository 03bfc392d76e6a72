// What waits in files of a model's parts, where a member lies about it.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "runtime/port/crypto.h"
#include "runtime/round/session/session_waiting.h"
#include "tests/unit/waiting_world.h"

#define COPY_ROWS 0x70770001u    // fingerprints: what waits on its way to another disk,
#define OFFERS 0x70780001u       // what members have of it
#define DIGESTS 0x70770004u      // what is in each part,
#define LOOKER_WORDS 0x707a0001u // what members that look on are told,
#define FRAME_SUMS 0x70790001u   // sums that the choice of values follows from,
#define BLOCKS 0x70790100u       // encoded blocks of the first part,
#define GATHER_BYTES 0x70780002u // and on its way to a member that lacks it

static void spoil_sent(struct mortal *mortal, const struct cn_collective_call *call)
{
    if (call->kind != CN_COLLECTIVE_SEND)
        return;
    memset(call->data, 0x5a, call->count);
    mortal->lies++;
}

// A value that could as well be right.
static void change_sent(struct mortal *mortal, const struct cn_collective_call *call)
{
    if (call->kind != CN_COLLECTIVE_SEND)
        return;
    ((uint8_t *)call->data)[call->count - sizeof(float)] ^= 1;
    mortal->lies++;
}

static void lie_in_copies(struct epoch_world *world,
                          void (*change)(struct mortal *, const struct cn_collective_call *))
{
    struct waiting_run undisturbed, run;

    waiting_begin(world, &undisturbed);
    run = waiting_start(world);
    world->boards[1].mortal.changes = COPY_ROWS;
    world->boards[1].mortal.change = change;
    run.no_copies = 1u << 2;
    assert_true(waiting_train(world, &run, ROUNDS, NOBODY, 0));
    world->boards[1].mortal.change = NULL;
    assert_true(world->boards[1].mortal.lies >= ROUNDS - 1);
    waiting_expect_same(&run, &undisturbed);
    assert_int_equal(waiting_count_named(world, 2), 1);
    assert_int_equal(waiting_count_named(world, 0), 2);
}

// What a neighbour gives is checked before it is stored; the part is still on its owner's disk.
static void a_part_that_is_none_is_not_stored(void **state)
{
    lie_in_copies(*state, spoil_sent);
}

static void a_part_with_other_values_is_not_stored(void **state)
{
    lie_in_copies(*state, change_sent);
}

// Says that it has the third part, with as many values as another file, or with more than there
// are.
static void offer_third_part(struct mortal *mortal, const struct cn_collective_call *call)
{
    struct cn_waiting_offers *own = (struct cn_waiting_offers *)call->data + 1;

    assert_int_equal(call->count, PARTS * sizeof(*own) / sizeof(int64_t));
    own->parts |= 4;
    own->tensors[2] = mortal->lie > 0 ? INT64_MAX : 1;
    own->values[2] = mortal->lie > 0 ? INT64_MAX : 100;
    mortal->lies++;
}

// The member with the true file is asked next.
static void an_offer_of_a_file_that_is_none_loses_nothing(void **state)
{
    struct epoch_world *world = *state;
    struct waiting_run undisturbed;

    waiting_begin(world, &undisturbed);
    for (int huge = 0; huge < 2; huge++) {
        struct waiting_run run = waiting_start(world);

        assert_true(waiting_train(world, &run, 1, NOBODY, 0));
        waiting_lose_disk(world, 2);
        world->boards[1].mortal.changes = OFFERS;
        world->boards[1].mortal.change = offer_third_part;
        world->boards[1].mortal.lie = (float)huge;
        assert_true(waiting_train(world, &run, ROUNDS, NOBODY, 0));
        world->boards[1].mortal.change = NULL;
        assert_true(world->boards[1].mortal.lies > 0);
        waiting_expect_same(&run, &undisturbed);
        assert_int_equal(world->boards[0].session->held.resets, 0);
    }
}

static void spoil_given(struct mortal *mortal, const struct cn_collective_call *call)
{
    if (call->peer != (uint32_t)mortal->lie)
        return;
    memset(call->data, 0x7f, call->count);
    mortal->lies++;
}

// Another value, with digests that match it.
static void change_given(struct mortal *mortal, const struct cn_collective_call *call)
{
    uint8_t *bytes = call->data;
    size_t hashed = CN_PART_HEADER_SIZE + sizeof(struct cn_part_digests);

    if (call->peer != (uint32_t)mortal->lie)
        return;
    assert_true(call->count > hashed + CN_DIGEST_SIZE); // the file is one piece
    bytes[call->count - CN_DIGEST_SIZE - sizeof(float)] ^= 1;
    cn_crypto_digest(bytes + hashed, call->count - hashed - CN_DIGEST_SIZE,
                     bytes + call->count - CN_DIGEST_SIZE);
    memcpy(bytes + CN_PART_HEADER_SIZE + (1 + cn_get_u32(bytes + 156)) * CN_DIGEST_SIZE,
           bytes + call->count - CN_DIGEST_SIZE, CN_DIGEST_SIZE);
    mortal->lies++;
}

static void lie_in_given_parts(struct epoch_world *world,
                               void (*change)(struct mortal *, const struct cn_collective_call *))
{
    struct waiting_run undisturbed, run;

    waiting_begin(world, &undisturbed);
    run = waiting_start(world);
    assert_true(waiting_train(world, &run, 1, NOBODY, 0));
    waiting_lose_disk(world, 2);
    for (int i = 0; i < 2; i++) {
        world->boards[i].mortal.changes = GATHER_BYTES;
        world->boards[i].mortal.change = change;
        world->boards[i].mortal.lie = (float)i;
    }
    assert_true(waiting_train(world, &run, ROUNDS, NOBODY, 0));
    for (int i = 0; i < 2; i++) {
        world->boards[i].mortal.change = NULL;
        assert_true(world->boards[i].mortal.lies > 0);
    }
    for (int i = 0; i < PARTS; i++)
        assert_int_equal(world->boards[i].session->held.resets, 1);
}

// The members with a part give something else: the part is lost, and the run goes on.
static void a_part_that_is_given_wrong_is_lost(void **state)
{
    lie_in_given_parts(*state, spoil_given);
}

static void a_part_that_is_given_with_other_values_is_lost(void **state)
{
    lie_in_given_parts(*state, change_given);
}

static void lie_in_numbers(struct mortal *mortal, const struct cn_collective_call *call)
{
    int64_t *numbers = call->data;

    if (call->count == 1) // whether a value is not finite: any member may give a round up
        return;
    for (size_t i = 0; i < call->count; i++)
        switch ((int)mortal->lie) {
        case 0:
            numbers[i] = -1 - (int64_t)i;
            break;
        case 1:
            numbers[i] = INT64_MAX - (int64_t)i;
            break;
        case 2:
            numbers[i] += (int64_t)(i * 7919 % 1000);
            break;
        default:
            numbers[i] = (int64_t)((i + 1) * 0x9e3779b97f4a7c15u >> (i % 40));
        }
    mortal->lies++;
}

// Sums of a frame that is made together, in which a member lies: no board breaks, and when the lies
// have ended the run goes on.
static void lies_in_the_sums_of_a_frame_break_nothing(void **state)
{
    struct epoch_world *world = *state;
    struct waiting_run undisturbed;

    waiting_begin(world, &undisturbed);
    for (uint32_t kind = FRAME_SUMS; kind < FRAME_SUMS + 4; kind++)
        for (int lie = 0; lie < 4; lie++) {
            struct waiting_run run = waiting_start(world);
            struct mortal *liar = &world->boards[1].mortal;

            liar->changes = kind;
            liar->change = lie_in_numbers;
            liar->lie = (float)lie;
            liar->lies = 0;
            run.no_copies = EVERYBODY;
            (void)waiting_train(world, &run, ROUNDS, NOBODY, 0);
            liar->change = NULL;
            assert_true(liar->lies > 0);
            assert_true(waiting_train(world, &run, ROUNDS, NOBODY, 0));
        }
}

static void lie_in_digests(struct mortal *mortal, const struct cn_collective_call *call)
{
    ((int64_t *)call->data)[(int)mortal->lie] = UINT32_MAX;
    mortal->lies++;
}

// Nor in the digests of the parts, its own or those of others.
static void lies_in_the_digests_of_parts_break_nothing(void **state)
{
    struct epoch_world *world = *state;
    struct waiting_run undisturbed;

    waiting_begin(world, &undisturbed);
    for (int lie = 0; lie < 24; lie += 7) {
        struct waiting_run run = waiting_start(world);
        struct mortal *liar = &world->boards[1].mortal;

        liar->changes = DIGESTS;
        liar->change = lie_in_digests;
        liar->lie = (float)lie;
        liar->lies = 0;
        assert_false(waiting_train(world, &run, ROUNDS, NOBODY, 0));
        liar->change = NULL;
        assert_int_equal(liar->lies, 1);
        assert_true(waiting_train(world, &run, ROUNDS, NOBODY, 0));
        waiting_expect_same(&run, &undisturbed);
    }
}

static void deny_stored(struct mortal *mortal, const struct cn_collective_call *call)
{
    *(int64_t *)call->data = -100;
    mortal->lies++;
}

// A member cannot say of another's part that no disk has it.
static void nobody_denies_that_another_has_stored(void **state)
{
    struct epoch_world *world = *state;
    struct waiting_run undisturbed, run;

    waiting_begin(world, &undisturbed);
    run = waiting_start(world);
    world->boards[2].mortal.changes = STORED;
    world->boards[2].mortal.change = deny_stored;
    world->boards[2].mortal.lies = 0;
    assert_true(waiting_train(world, &run, ROUNDS, NOBODY, 0));
    world->boards[2].mortal.change = NULL;
    assert_int_equal(world->boards[2].mortal.lies, ROUNDS);
    waiting_expect_same(&run, &undisturbed);
}

// Changes what members that look on are told: samples, micro-batches drawn, or losses.
static void lie_to_lookers(struct mortal *mortal, const struct cn_collective_call *call)
{
    ((int64_t *)call->data)[(int)mortal->lie] ^= INT64_MIN;
    mortal->lies++;
}

// It ends the epoch before anybody has the state, and leaves nothing behind.
static void a_lie_to_a_member_that_looks_on_is_found_at_once(void **state)
{
    struct epoch_world *world = *state;
    struct waiting_run undisturbed;

    waiting_hold_parts(world, PARTS + 1);
    undisturbed = waiting_start(world);
    undisturbed.no_copies = 1;
    assert_true(waiting_train(world, &undisturbed, ROUNDS, NOBODY, 0));
    for (int word = 2; word < 6; word++) {
        struct waiting_run run = waiting_start(world);

        run.no_copies = 1;
        world->boards[0].mortal.changes = LOOKER_WORDS;
        world->boards[0].mortal.change = lie_to_lookers;
        world->boards[0].mortal.lie = (float)word;
        world->boards[0].mortal.lies = 0;
        (void)waiting_train(world, &run, 1, NOBODY, 0);
        world->boards[0].mortal.change = NULL;
        assert_true(world->boards[0].mortal.lies > 0);
        assert_true(waiting_train(world, &run, ROUNDS, NOBODY, 0));
        waiting_expect_same(&run, &undisturbed);
        for (int i = 0; i < world->count; i++) {
            assert_int_equal(world->boards[i].session->held.resets, 0);
            assert_true(world->boards[i].session->held.cursor < 1000);
        }
    }
}

// Changes the last value of a block of 8-bit values, and its checksum, of which the same bits
// change whatever lies before.
static void change_block(struct mortal *mortal, const struct cn_collective_call *call)
{
    const uint8_t bit = 1, none = 0;
    uint32_t crc = cn_crc32c(0, &bit, 1) ^ cn_crc32c(0, &none, 1);
    uint8_t *end = (uint8_t *)call->data + call->count;

    end[-3] ^= bit;
    end[-2] ^= (uint8_t)crc;
    end[-1] ^= (uint8_t)(crc >> 8);
    mortal->lies++;
}

// The owner of a tensor sends another change of it than it has: the other holder says so, and as
// the owner's counts, the run goes on.
static void another_block_of_a_tied_tensor_ends_no_epoch(void **state)
{
    struct epoch_world *world = *state;
    struct waiting_run undisturbed, run;

    waiting_take_rules(world);
    world_hold_tied_parts(world, 2);
    undisturbed = waiting_start(world);
    undisturbed.no_copies = EVERYBODY;
    assert_true(waiting_train(world, &undisturbed, ROUNDS, NOBODY, 0));
    run = waiting_start(world);
    run.no_copies = EVERYBODY;
    world->boards[0].mortal.changes = BLOCKS;
    world->boards[0].mortal.change = change_block;
    world->boards[0].mortal.lies = 0;
    assert_true(waiting_train(world, &run, 1, NOBODY, 0));
    world->boards[0].mortal.change = NULL;
    assert_true(world->boards[0].mortal.lies > 0);
    assert_memory_not_equal(run.digests[1], undisturbed.digests[1], CN_DIGEST_SIZE);
    assert_true(waiting_train(world, &run, ROUNDS, NOBODY, 0));
}

// A state with a frame that is none cannot be copied, and the round goes on without copies.
static void a_frame_that_is_none_ends_no_epoch(void **state)
{
    struct epoch_world *world = *state;
    struct cn_checkpoint *held;
    struct waiting_run run;

    waiting_hold_parts(world, PARTS);
    run = waiting_start(world);
    run.no_copies = EVERYBODY;
    assert_true(waiting_train(world, &run, 1, NOBODY, 0));
    held = &world->boards[1].session->held;
    held->samples++; // newer than the others
    memset(held->frame + 120, 0xff, held->frame_size - 120);
    cn_crypto_digest(held->frame, held->frame_size, held->frame_digest);
    assert_true(waiting_train(world, &run, 2, NOBODY, 0));
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, epoch_world_set_up, epoch_world_tear_down)
    const struct CMUnitTest tests[] = {
        TEST(a_part_that_is_none_is_not_stored),
        TEST(a_part_with_other_values_is_not_stored),
        TEST(an_offer_of_a_file_that_is_none_loses_nothing),
        TEST(a_part_that_is_given_wrong_is_lost),
        TEST(a_part_that_is_given_with_other_values_is_lost),
        TEST(lies_in_the_sums_of_a_frame_break_nothing),
        TEST(lies_in_the_digests_of_parts_break_nothing),
        TEST(nobody_denies_that_another_has_stored),
        TEST(a_lie_to_a_member_that_looks_on_is_found_at_once),
        TEST(another_block_of_a_tied_tensor_ends_no_epoch),
        TEST(a_frame_that_is_none_ends_no_epoch),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
