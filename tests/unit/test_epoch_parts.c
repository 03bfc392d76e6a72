// Three members hold three parts of a model, and store their parts after each step.
// Whoever dies, and whoever loses a disk, the update is that of a round without a death.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "runtime/round/checkpoint/part_file.h"
#include "tests/unit/epoch_world.h"

#define PARTS 3
#define STEPS 4
#define STORE_HEADER 0x70730001 // fingerprints: a part on its way to another disk
#define STORE_DONE 0x70730003   // all have stored their parts
#define TAKE_HEADER 0x70680002  // a stored part on its way to all members
#define IS_STORE(fingerprint) (((fingerprint)&0xffff0000u) == 0x70730000u)

// Trains the round without a death.
static void begin(struct epoch_world *world, uint8_t undisturbed[CN_DIGEST_SIZE])
{
    world->victims = (1u << PARTS) - 1;
    world->job.rules.optimizer = CN_OPTIMIZER_ADAM;
    world->job.rules.clip = 1;
    world->job.local_steps = STEPS;
    world_hold_three_parts(world, PARTS);
    world_train_round(world, undisturbed);
    world_end_epoch(world);
    for (int i = 0; i < world->count; i++)
        assert_int_equal(world->boards[i].session->cut.part, i);
}

// Returns the place of call number n, from 0 on, with this fingerprint.
static uint32_t find_call(const struct mortal *mortal, uint32_t fingerprint, uint32_t n)
{
    for (uint32_t c = 0; c < mortal->called; c++)
        if (mortal->calls[c].fingerprint == fingerprint && n-- == 0)
            return c;
    return UINT32_MAX;
}

// Returns whether the last epoch began with a state of stored parts.
static bool took_parts(const struct epoch_world *world)
{
    return find_call(&world->boards[0].mortal, TAKE_HEADER, 0) != UINT32_MAX;
}

static void a_death_in_or_after_any_call_that_stores_parts_changes_nothing(void **state)
{
    static uint32_t calls[PARTS][CALLS];
    uint32_t count[PARTS] = {0}, taken = 0, trials = 0, rolled = 0;
    struct epoch_world *world = *state;
    uint8_t undisturbed[CN_DIGEST_SIZE];

    begin(world, undisturbed);
    for (int i = 0; i < PARTS; i++)
        for (uint32_t c = 0; c < world->boards[i].mortal.called; c++)
            if (IS_STORE(world->boards[i].mortal.calls[c].fingerprint))
                calls[i][count[i]++] = c;
    assert_true(count[0] >= 5 * (STEPS - 1)); // two headers, two files, one vote
    for (uint32_t n = 0; n < count[0]; n++)
        for (int dies = 0; dies < 2; dies++) {
            const struct world_fault fault = {(int)(trials % PARTS), dies, dies};

            assert_true(
                world_break_call(world, &fault, calls[fault.victim][n], undisturbed, &rolled));
            taken += took_parts(world);
            trials++;
        }
    assert_true(taken > trials / 2);
    assert_int_equal(rolled, 0);
}

// Breaks the round when all have stored their parts after three steps.
static void break_after_three_steps(struct epoch_world *world, uint32_t call)
{
    uint8_t digest[CN_DIGEST_SIZE];

    world_begin_anew(world);
    world->boards[1].mortal.hears = true;
    world_start(world, 32, 0, 1, call);
    cn_mailbox_put_news(&world->boards[0].box, &world->news);
    assert_false(world_serve_until_upload(world, digest));
    world_end_epoch(world);
    world->boards[1].mortal.hears = false;
}

// The files of a member are gone: its disk was replaced.
static void lose_disk(struct epoch_world *world, int index)
{
    board_close_session(&world->boards[index]);
    snprintf(world->boards[index].settings.state, CN_PATH_SIZE, "%s/new-%d-%u", world->directory,
             index, world->trials);
    world_open_session(world, index);
}

static void restart(struct epoch_world *world, int index)
{
    board_close_session(&world->boards[index]);
    world_open_session(world, index);
}

static void finish(struct epoch_world *world, const uint8_t undisturbed[CN_DIGEST_SIZE])
{
    uint8_t digest[CN_DIGEST_SIZE];

    world_start(world, 48, world_newest(world), NOBODY, 0);
    cn_mailbox_put_news(&world->boards[0].box, &world->news);
    assert_true(world_serve_until_upload(world, digest));
    world_end_epoch(world);
    assert_memory_equal(digest, undisturbed, CN_DIGEST_SIZE);
}

static void one_lost_disk_takes_no_part_with_it_and_two_only_steps(void **state)
{
    struct epoch_world *world = *state;
    uint8_t undisturbed[CN_DIGEST_SIZE];
    uint32_t call;

    begin(world, undisturbed);
    call = find_call(&world->boards[1].mortal, STORE_DONE, 2);
    for (int lost = 0; lost < PARTS; lost++) {
        break_after_three_steps(world, call);
        for (int i = 0; i < PARTS; i++)
            if (i == lost)
                lose_disk(world, i);
            else
                restart(world, i);
        assert_int_equal(world->boards[(lost + 1) % PARTS].session->held.step, 0);
        finish(world, undisturbed);
        assert_true(took_parts(world));
    }
    break_after_three_steps(world, call);
    lose_disk(world, 0);
    lose_disk(world, 1);
    restart(world, 2);
    finish(world, undisturbed);
    assert_false(took_parts(world));
}

// A file that was damaged is named and not used. The other copy of the part is.
static void a_damaged_part_is_taken_from_the_other_member(void **state)
{
    struct epoch_world *world = *state;
    uint8_t undisturbed[CN_DIGEST_SIZE];
    uint32_t call;

    begin(world, undisturbed);
    call = find_call(&world->boards[1].mortal, STORE_DONE, 2);
    break_after_three_steps(world, call);
    for (int i = 0; i < PARTS; i++)
        restart(world, i);
    for (int slot = 0; slot < CN_STORED_SLOTS; slot++) {
        char path[CN_PATH_SIZE + 32];
        FILE *file;

        snprintf(path, sizeof(path), "%s/%s", world->boards[2].settings.state,
                 cn_stored_names[CN_STORED_OWN][slot]);
        file = fopen(path, "r+b");
        assert_non_null(file);
        assert_int_equal(fseek(file, -100, SEEK_END), 0);
        assert_int_equal(fputc(0x5a, file), 0x5a);
        assert_int_equal(fclose(file), 0);
    }
    finish(world, undisturbed);
    assert_true(took_parts(world));
}

// A round that has ended leaves no files of its parts, and one that goes on keeps two states.
static void parts_are_removed_when_the_round_has_ended(void **state)
{
    struct epoch_world *world = *state;
    uint8_t undisturbed[CN_DIGEST_SIZE];
    struct cn_part_header header;

    begin(world, undisturbed);
    break_after_three_steps(world, find_call(&world->boards[1].mortal, STORE_DONE, 2));
    for (int i = 0; i < PARTS; i++)
        for (int slot = 0; slot < CN_STORED_SLOTS; slot++) {
            const struct epoch_board *board = &world->boards[i];

            assert_int_equal(cn_part_file_check(board->store, cn_stored_names[CN_STORED_OWN][slot],
                                                board->session->layout, &header),
                             CN_OK);
            assert_int_equal(header.part, i);
            assert_int_equal(header.step, 3 - slot);
            assert_int_equal(cn_part_file_check(board->store,
                                                cn_stored_names[CN_STORED_BEFORE][slot],
                                                board->session->layout, &header),
                             CN_OK);
            assert_int_equal(header.part, (i + PARTS - 1) % PARTS);
        }
    finish(world, undisturbed); // the leader has sent the update; the others may have been stopped
    for (int file = 0; file < CN_STORED_FILES; file++)
        for (int slot = 0; slot < CN_STORED_SLOTS; slot++)
            assert_int_equal(cn_part_file_check(world->boards[0].store, cn_stored_names[file][slot],
                                                world->boards[0].session->layout, &header),
                             CN_ENOTFOUND);
}

// A disk that is full has no part, so all store the whole state again, which others have in memory.
static void a_full_disk_stops_nobody(void **state)
{
    struct epoch_world *world = *state;
    uint8_t undisturbed[CN_DIGEST_SIZE], digest[CN_DIGEST_SIZE];

    begin(world, undisturbed);
    world->boards[2].settings.reserve = UINT64_MAX; // from the first store on
    world_begin_anew(world);
    world_train_round(world, digest);
    world_end_epoch(world);
    assert_memory_equal(digest, undisturbed, CN_DIGEST_SIZE);
    assert_int_equal(find_call(&world->boards[0].mortal, STORE_HEADER, 0), UINT32_MAX);
}

#define OFFERS 0x70680001u // fingerprint: what members have stored
#define WORDS 21           // of each member's offers: whether they failed, and four of five words

// Offers three parts of a state that nobody has.
static void lie_in_offers(struct mortal *mortal, const struct cn_collective_call *call)
{
    int64_t *own = (int64_t *)call->data + WORDS; // those of member 1
    uint32_t step = mortal->lie > 0 ? UINT32_MAX : STEPS;

    assert_int_equal(call->count, PARTS * WORDS);
    own[0] = 0;
    for (int64_t p = 0; p < PARTS; p++) {
        const int64_t offer[] = {5, -1, step, PARTS, p};

        memcpy(own + 1 + p * 5, offer, sizeof(offer));
    }
    mortal->lies++;
}

// It ends at most one epoch; then the group goes on with the state that all have.
static void offers_that_lie_end_one_epoch(void **state)
{
    struct epoch_world *world = *state;
    uint8_t undisturbed[CN_DIGEST_SIZE], digest[CN_DIGEST_SIZE];
    uint32_t call;

    begin(world, undisturbed);
    call = find_call(&world->boards[1].mortal, STORE_DONE, 2);
    for (int far = 0; far < 2; far++) {
        bool sent = false;
        uint32_t epochs = 0;

        break_after_three_steps(world, call);
        world->boards[1].mortal.changes = OFFERS;
        world->boards[1].mortal.change = lie_in_offers;
        world->boards[1].mortal.lie = (float)far;
        for (uint64_t epoch = 48; !sent; epoch += 16, epochs++) {
            assert_true(epochs < 2);
            world_start(world, epoch, world_newest(world), NOBODY, 0);
            cn_mailbox_put_news(&world->boards[0].box, &world->news);
            sent = world_serve_until_upload(world, digest);
            world_end_epoch(world);
        }
        assert_memory_equal(digest, undisturbed, CN_DIGEST_SIZE);
        assert_true(world->boards[1].mortal.lies > 0);
        assert_int_equal(epochs, far ? 1 : 2);
        world->boards[1].mortal.change = NULL;
        assert_false(world->boards[0].session->disk.parts_failed); // the round has ended
    }
}

static void spoil_header(struct mortal *mortal, const struct cn_collective_call *call)
{
    if (call->kind != CN_COLLECTIVE_SEND)
        return;
    memset(call->data, 0x5a, call->count);
    mortal->lies++;
}

// How much follows it is not known, so the epoch ends. From then on the whole state is stored.
static void a_header_that_is_none_ends_one_epoch(void **state)
{
    struct epoch_world *world = *state;
    uint8_t undisturbed[CN_DIGEST_SIZE], digest[CN_DIGEST_SIZE];
    uint32_t epochs = 0;
    bool sent = false;

    begin(world, undisturbed);
    world_begin_anew(world);
    world->boards[1].mortal.changes = STORE_HEADER;
    world->boards[1].mortal.change = spoil_header;
    for (uint64_t epoch = 32; !sent; epoch += 16, epochs++) {
        assert_true(epochs < 2);
        world_start(world, epoch, epochs ? world_newest(world) : 0, NOBODY, 0);
        cn_mailbox_put_news(&world->boards[0].box, &world->news);
        sent = world_serve_until_upload(world, digest);
        world_end_epoch(world);
    }
    assert_int_equal(world->boards[1].mortal.lies, 1);
    assert_memory_equal(digest, undisturbed, CN_DIGEST_SIZE);
    world->boards[1].mortal.change = NULL;
}

static void a_death_after_any_call_changes_nothing(void **state)
{
    struct epoch_world *world = *state;
    uint8_t undisturbed[CN_DIGEST_SIZE];

    begin(world, undisturbed);
    assert_int_equal(world_sweep_calls(world, true, true, undisturbed), 0);
}

static void a_loss_in_any_call_changes_nothing(void **state)
{
    struct epoch_world *world = *state;
    uint8_t undisturbed[CN_DIGEST_SIZE];

    begin(world, undisturbed);
    assert_int_equal(world_sweep_calls(world, false, false, undisturbed), 0);
}

// With "all": in and after each call, not only in those that store parts.
int main(int argc, char **argv)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, epoch_world_set_up, epoch_world_tear_down)
    const struct CMUnitTest tests[] = {
        TEST(a_death_in_or_after_any_call_that_stores_parts_changes_nothing),
        TEST(one_lost_disk_takes_no_part_with_it_and_two_only_steps),
        TEST(a_damaged_part_is_taken_from_the_other_member),
        TEST(parts_are_removed_when_the_round_has_ended),
        TEST(a_full_disk_stops_nobody),
        TEST(offers_that_lie_end_one_epoch),
        TEST(a_header_that_is_none_ends_one_epoch),
    };
    const struct CMUnitTest all[] = {
        TEST(a_death_after_any_call_changes_nothing),
        TEST(a_loss_in_any_call_changes_nothing),
    };

    return argc > 1 && strcmp(argv[1], "all") == 0 ? cmocka_run_group_tests(all, NULL, NULL)
                                                   : cmocka_run_group_tests(tests, NULL, NULL);
}
