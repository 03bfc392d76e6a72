// Three members with a part each train three rounds. What a round's update leaves out waits in
// files of its part, on the disks of two members. Whoever dies, and whoever loses a disk, the
// updates are those of an undisturbed run.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <dirent.h>
#include <math.h>
#include <string.h>

#include "runtime/port/crypto.h"
#include "runtime/round/checkpoint/part_file.h"
#include "runtime/round/epoch/round_file.h"
#include "runtime/round/session/session_chain.h"
#include "runtime/round/session/session_waiting.h"
#include "tests/unit/epoch_world.h"

#define PARTS 3
#define STEPS 2
#define ROUNDS 3
#define EVERYBODY ((1u << PARTS) - 1)
#define COPY_ROWS 0x70770001u    // fingerprints: what waits on its way to another disk,
#define STORED 0x70770002u       // whether all have stored,
#define OFFERS 0x70780001u       // what members have of it
#define DIGESTS 0x70770004u      // what is in each part,
#define LOOKER_WORDS 0x707a0001u // what members that look on are told,
#define FRAME_SUMS 0x70790001u   // sums that the choice of values follows from,
#define BLOCKS 0x70790100u       // encoded blocks of the first part,
#define GATHER_BYTES 0x70780002u // and on its way to a member that lacks it
#define IS_END(fingerprint) ((fingerprint) >= 0x70770000u && (fingerprint) < 0x707b0000u)

// A run of several rounds, as the gateway sees it.
struct run {
    uint32_t round;     // round that is open
    uint64_t number;    // of the next epoch
    uint32_t no_copies; // bit per board that is given no copy
    uint8_t digests[ROUNDS + 1][CN_DIGEST_SIZE];
};

static void put_news(struct epoch_world *world, const struct run *run)
{
    struct cn_round_info news = world->news;

    news.round = run->round;
    if (run->round > 1) {
        news.decided_round = run->round - 1;
        news.decided_accepted = run->round - 1 != 2; // the second is refused
        if (news.decided_accepted)
            memcpy(news.decided_digest, run->digests[run->round - 1], CN_DIGEST_SIZE);
    }
    cn_mailbox_put_news(&world->boards[0].box, &news);
}

// Counts the files of a board with what waits. part: only those of this part; round: only those of
// this round; UINT32_MAX: all.
static int count_in_folder(const struct epoch_world *world, int index, uint32_t part,
                           uint32_t round)
{
    DIR *folder = opendir(world->boards[index].settings.state);
    const struct dirent *entry;
    int count = 0;

    assert_non_null(folder);
    while ((entry = readdir(folder))) {
        char path[CN_PATH_SIZE + 300];
        uint8_t header[CN_PART_HEADER_SIZE];
        uint32_t of;
        uint64_t set;
        FILE *file;

        if (!cn_waiting_parse(entry->d_name, &set, &of) || (part != UINT32_MAX && of != part))
            continue;
        snprintf(path, sizeof(path), "%s/%s", world->boards[index].settings.state, entry->d_name);
        file = fopen(path, "rb");
        if (!file)
            continue;
        count += fread(header, sizeof(header), 1, file) == 1 &&
                 (round == UINT32_MAX || cn_get_u32(header + 36) == round);
        assert_int_equal(fclose(file), 0);
    }
    assert_int_equal(closedir(folder), 0);
    return count;
}

// Returns whether the board has a copy of another part, of this round.
static bool has_copy(const struct epoch_world *world, int index, uint32_t round)
{
    uint32_t parts = world->job.pipeline.parts;
    uint32_t before = ((uint32_t)index + parts - 1) % parts;

    return count_in_folder(world, index, before, round) > 0;
}

// The copies are made while the update is sent.
static void await_copies(struct epoch_world *world, uint32_t round, uint32_t without)
{
    uint64_t until = cn_platform_now_ms() + 10000;

    for (int i = 0; i < PARTS; i++)
        while (!(without >> i & 1) && !has_copy(world, i, round) &&
               !atomic_load(&world->boards[0].left)) {
            assert_true(cn_platform_now_ms() < until);
            cn_platform_sleep_ms(1);
        }
}

// Trains in one epoch up to the update of round `last`. Returns whether it came so far.
static bool train(struct epoch_world *world, struct run *run, uint32_t last, int victim,
                  uint32_t calls)
{
    bool sent = true;

    world_start(world, run->number, world_newest(world), victim, calls);
    run->number += 16;
    while (sent && run->round <= last) {
        put_news(world, run);
        sent = world_serve_until_upload(world, run->digests[run->round]);
        run->round += sent;
    }
    if (sent)
        await_copies(world, last, run->no_copies);
    world_end_epoch(world);
    return sent;
}

static struct run start_run(struct epoch_world *world)
{
    world_begin_anew(world);
    return (struct run){.round = 1, .number = 16};
}

static void take_rules(struct epoch_world *world)
{
    world->job.rules.optimizer = CN_OPTIMIZER_ADAM;
    world->job.local_steps = STEPS;
    world->job.up =
        (struct cn_update_rule){.mode = CN_UPDATE_TOPK, .value_bits = 2, .density = 0.05};
}

static void hold_parts(struct epoch_world *world, int members)
{
    take_rules(world);
    world_hold_three_parts(world, members);
}

static void begin(struct epoch_world *world, struct run *undisturbed)
{
    hold_parts(world, PARTS);
    *undisturbed = start_run(world);
    assert_true(train(world, undisturbed, ROUNDS, NOBODY, 0));
    assert_int_equal(world->boards[0].session->held.resets, 0);
}

static void expect_same(const struct run *run, const struct run *undisturbed)
{
    for (uint32_t r = 1; r <= ROUNDS; r++)
        assert_memory_equal(run->digests[r], undisturbed->digests[r], CN_DIGEST_SIZE);
}

// The updates are those of one member that trains the same micro-batches alone.
static void compare_with_one(struct epoch_world *world)
{
    struct run undisturbed, alone;

    begin(world, &undisturbed);
    for (int i = 0; i < PARTS; i++)
        board_close_session(&world->boards[i]);
    world->count = 1;
    world->job.pipeline.parts = 1;
    world->job.pipeline.cut[0] = '\0';
    world->job.accumulate *= PARTS;
    world->boards[0].settings.group.member_count = 1;
    world_open_session(world, 0);
    alone = start_run(world);
    alone.no_copies = EVERYBODY;
    assert_true(train(world, &alone, ROUNDS, NOBODY, 0));
    expect_same(&alone, &undisturbed);
}

static void a_member_alone_makes_the_same_updates(void **state)
{
    compare_with_one(*state);
}

static void what_waits_in_halves_is_rounded_as_alone(void **state)
{
    struct epoch_world *world = *state;

    world->job.options.residual = CN_RESIDUAL_BF16;
    compare_with_one(world);
}

static void restart(struct epoch_world *world, int index)
{
    board_close_session(&world->boards[index]);
    world_open_session(world, index);
}

// The files of a member are gone: its disk was replaced.
static void lose_disk(struct epoch_world *world, int index)
{
    board_close_session(&world->boards[index]);
    snprintf(world->boards[index].settings.state, CN_PATH_SIZE, "%s/new-%d-%u", world->directory,
             index, world->trials++);
    world_open_session(world, index);
}

// Counts the files of the set that a board's state names.
static int count_files(struct epoch_world *world, int index)
{
    const struct epoch_board *board = &world->boards[index];
    struct cn_part_header header;
    char name[CN_WAITING_NAME_SIZE];
    int count = 0;

    for (uint32_t p = 0; p < PARTS; p++) {
        cn_waiting_name(board->session->held.waiting.set, p, name);
        count += cn_part_file_check(board->store, name, board->session->layout, &header) == CN_OK &&
                 cn_part_state(&header) == board->session->held.waiting.set && header.part == p;
    }
    return count;
}

static void each_member_has_its_part_and_the_one_before(void **state)
{
    struct epoch_world *world = *state;
    struct run run;

    begin(world, &run);
    for (int i = 0; i < PARTS; i++) {
        const struct cn_checkpoint *held = &world->boards[i].session->held;

        assert_int_equal(count_files(world, i), 2);
        assert_true(has_copy(world, i, ROUNDS));
        assert_null(held->residual.data);
        assert_int_equal(held->phase, CN_PHASE_SEND);
        assert_int_equal(count_in_folder(world, i, UINT32_MAX, UINT32_MAX), 4); // and of round 2
        cn_session_forget_waiting(world->boards[i].session);
        assert_int_equal(count_in_folder(world, i, UINT32_MAX, UINT32_MAX), 2);
        assert_int_equal(count_files(world, i), 2);
    }
}

// A board whose disk refused a newer state decides an older round again, while a state of the
// others names what only it has.
static void files_of_later_rounds_stay(void **state)
{
    struct epoch_world *world = *state;
    struct run run;

    begin(world, &run);
    for (int i = 0; i < PARTS; i++) {
        struct cn_session *session = world->boards[i].session;

        session->held.waiting.set = session->disk.named = 0;
        session->held.round = ROUNDS - 1;
        cn_session_forget_waiting(session);
        assert_int_equal(count_in_folder(world, i, UINT32_MAX, ROUNDS - 1), 0);
        assert_int_equal(count_in_folder(world, i, UINT32_MAX, ROUNDS), 2);
        session->held.round = ROUNDS;
        cn_session_forget_waiting(session);
        assert_int_equal(count_in_folder(world, i, UINT32_MAX, ROUNDS), 0);
    }
}

// One break, in the n-th of these calls of the victim; all rounds must come out as undisturbed.
static void break_call(struct epoch_world *world, const struct world_fault *fault, uint32_t call,
                       const struct run *undisturbed)
{
    struct run run = start_run(world);

    world->boards[fault->victim].mortal.hears = fault->hears;
    if (!train(world, &run, ROUNDS, fault->victim, call)) {
        world->boards[fault->victim].mortal.hears = false;
        if (fault->dies)
            restart(world, fault->victim);
        assert_true(train(world, &run, ROUNDS, NOBODY, 0));
    }
    world->boards[fault->victim].mortal.hears = false;
    expect_same(&run, undisturbed);
    for (int i = 0; i < world->count; i++)
        assert_int_equal(world->boards[i].session->held.resets, 0);
}

static void sweep(struct epoch_world *world, bool all)
{
    static uint32_t calls[PARTS][CALLS];
    uint32_t count[PARTS] = {0}, trials = 0;
    struct run undisturbed;

    begin(world, &undisturbed);
    for (int i = 0; i < PARTS; i++)
        for (uint32_t c = 0; c < world->boards[i].mortal.called; c++)
            if (all || IS_END(world->boards[i].mortal.calls[c].fingerprint) ||
                (c > 0 && IS_END(world->boards[i].mortal.calls[c - 1].fingerprint)))
                calls[i][count[i]++] = c;
    assert_true(count[0] >= 8 * ROUNDS);
    for (uint32_t n = 0; n < count[0]; n++)
        for (int dies = 0; dies < 2; dies++) {
            const struct world_fault fault = {(int)(trials / 2 % PARTS), dies, dies};

            trials++;
            if (n < count[fault.victim])
                break_call(world, &fault, calls[fault.victim][n], &undisturbed);
        }
}

static void a_death_in_or_after_calls_of_a_rounds_end_changes_nothing(void **state)
{
    sweep(*state, false);
}

static void lose_each_disk(struct epoch_world *world, const struct run *undisturbed)
{
    for (int lost = 0; lost < world->count; lost++) {
        struct run run = start_run(world);

        run.no_copies = undisturbed->no_copies;
        assert_true(train(world, &run, 1, NOBODY, 0));
        for (int i = 0; i < world->count; i++)
            if (i == lost)
                lose_disk(world, i);
            else
                restart(world, i);
        assert_int_equal(count_files(world, lost), 0);
        assert_true(train(world, &run, 2, NOBODY, 0));
        assert_int_equal(count_files(world, lost), 2); // stored again
        lose_disk(world, (lost + 1) % world->count);
        assert_true(train(world, &run, ROUNDS, NOBODY, 0));
        expect_same(&run, undisturbed);
        assert_int_equal(world->boards[0].session->held.resets, 0);
    }
}

static void one_lost_disk_takes_nothing_with_it(void **state)
{
    struct run undisturbed;

    begin(*state, &undisturbed);
    lose_each_disk(*state, &undisturbed);
}

// The copies of halves are those of their owners, to the bit.
static void one_lost_disk_takes_no_halves_with_it(void **state)
{
    struct epoch_world *world = *state;
    struct run undisturbed;

    world->job.options.residual = CN_RESIDUAL_BF16;
    begin(world, &undisturbed);
    lose_each_disk(world, &undisturbed);
}

// Two members give each other their parts at the same time.
static void one_lost_disk_of_two_takes_nothing_with_it(void **state)
{
    struct epoch_world *world = *state;
    struct run undisturbed;

    take_rules(world);
    world_hold_two_parts(world, 2);
    undisturbed = start_run(world);
    undisturbed.no_copies = 1u << 2;
    assert_true(train(world, &undisturbed, ROUNDS, NOBODY, 0));
    lose_each_disk(world, &undisturbed);
}

// Two neighbours take the part of the first of them with them. It counts as lost; the run goes on.
static void two_lost_disks_lose_a_part_and_say_so(void **state)
{
    struct epoch_world *world = *state;
    struct run undisturbed, run;

    begin(world, &undisturbed);
    run = start_run(world);
    assert_true(train(world, &run, 1, NOBODY, 0));
    lose_disk(world, 0);
    lose_disk(world, 1);
    assert_true(train(world, &run, ROUNDS, NOBODY, 0));
    assert_memory_equal(run.digests[1], undisturbed.digests[1], CN_DIGEST_SIZE);
    assert_memory_not_equal(run.digests[2], undisturbed.digests[2], CN_DIGEST_SIZE);
    for (int i = 0; i < PARTS; i++)
        assert_int_equal(world->boards[i].session->held.resets, 1);
}

static void spoil_file(const char *path)
{
    FILE *file = fopen(path, "r+b");

    assert_non_null(file);
    assert_int_equal(fseek(file, -100, SEEK_END), 0);
    assert_int_equal(fputc(0x5a, file), 0x5a);
    assert_int_equal(fclose(file), 0);
}

static void a_damaged_file_is_taken_from_the_other_member(void **state)
{
    struct epoch_world *world = *state;
    struct run undisturbed, run;
    char name[CN_WAITING_NAME_SIZE], path[CN_PATH_SIZE + 32];

    begin(world, &undisturbed);
    run = start_run(world);
    assert_true(train(world, &run, 1, NOBODY, 0));
    cn_waiting_name(world->boards[1].session->held.waiting.set, 1, name);
    snprintf(path, sizeof(path), "%s/%s", world->boards[1].settings.state, name);
    spoil_file(path);
    restart(world, 1);
    assert_true(train(world, &run, ROUNDS, NOBODY, 0));
    expect_same(&run, &undisturbed);
    assert_int_equal(world->boards[0].session->held.resets, 0);
}

// --- members that lie ---

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
    struct run undisturbed, run;

    begin(world, &undisturbed);
    run = start_run(world);
    world->boards[1].mortal.changes = COPY_ROWS;
    world->boards[1].mortal.change = change;
    run.no_copies = 1u << 2;
    assert_true(train(world, &run, ROUNDS, NOBODY, 0));
    world->boards[1].mortal.change = NULL;
    assert_true(world->boards[1].mortal.lies >= ROUNDS - 1);
    expect_same(&run, &undisturbed);
    assert_int_equal(count_files(world, 2), 1);
    assert_int_equal(count_files(world, 0), 2);
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
    struct run undisturbed;

    begin(world, &undisturbed);
    for (int huge = 0; huge < 2; huge++) {
        struct run run = start_run(world);

        assert_true(train(world, &run, 1, NOBODY, 0));
        lose_disk(world, 2);
        world->boards[1].mortal.changes = OFFERS;
        world->boards[1].mortal.change = offer_third_part;
        world->boards[1].mortal.lie = (float)huge;
        assert_true(train(world, &run, ROUNDS, NOBODY, 0));
        world->boards[1].mortal.change = NULL;
        assert_true(world->boards[1].mortal.lies > 0);
        expect_same(&run, &undisturbed);
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
    struct run undisturbed, run;

    begin(world, &undisturbed);
    run = start_run(world);
    assert_true(train(world, &run, 1, NOBODY, 0));
    lose_disk(world, 2);
    for (int i = 0; i < 2; i++) {
        world->boards[i].mortal.changes = GATHER_BYTES;
        world->boards[i].mortal.change = change;
        world->boards[i].mortal.lie = (float)i;
    }
    assert_true(train(world, &run, ROUNDS, NOBODY, 0));
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
    struct run undisturbed;

    begin(world, &undisturbed);
    for (uint32_t kind = FRAME_SUMS; kind < FRAME_SUMS + 4; kind++)
        for (int lie = 0; lie < 4; lie++) {
            struct run run = start_run(world);
            struct mortal *liar = &world->boards[1].mortal;

            liar->changes = kind;
            liar->change = lie_in_numbers;
            liar->lie = (float)lie;
            liar->lies = 0;
            run.no_copies = EVERYBODY;
            (void)train(world, &run, ROUNDS, NOBODY, 0);
            liar->change = NULL;
            assert_true(liar->lies > 0);
            assert_true(train(world, &run, ROUNDS, NOBODY, 0));
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
    struct run undisturbed;

    begin(world, &undisturbed);
    for (int lie = 0; lie < 24; lie += 7) {
        struct run run = start_run(world);
        struct mortal *liar = &world->boards[1].mortal;

        liar->changes = DIGESTS;
        liar->change = lie_in_digests;
        liar->lie = (float)lie;
        liar->lies = 0;
        assert_false(train(world, &run, ROUNDS, NOBODY, 0));
        liar->change = NULL;
        assert_int_equal(liar->lies, 1);
        assert_true(train(world, &run, ROUNDS, NOBODY, 0));
        expect_same(&run, &undisturbed);
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
    struct run undisturbed, run;

    begin(world, &undisturbed);
    run = start_run(world);
    world->boards[2].mortal.changes = STORED;
    world->boards[2].mortal.change = deny_stored;
    world->boards[2].mortal.lies = 0;
    assert_true(train(world, &run, ROUNDS, NOBODY, 0));
    world->boards[2].mortal.change = NULL;
    assert_int_equal(world->boards[2].mortal.lies, ROUNDS);
    expect_same(&run, &undisturbed);
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
    struct run undisturbed;

    hold_parts(world, PARTS + 1);
    undisturbed = start_run(world);
    undisturbed.no_copies = 1;
    assert_true(train(world, &undisturbed, ROUNDS, NOBODY, 0));
    for (int word = 2; word < 6; word++) {
        struct run run = start_run(world);

        run.no_copies = 1;
        world->boards[0].mortal.changes = LOOKER_WORDS;
        world->boards[0].mortal.change = lie_to_lookers;
        world->boards[0].mortal.lie = (float)word;
        world->boards[0].mortal.lies = 0;
        (void)train(world, &run, 1, NOBODY, 0);
        world->boards[0].mortal.change = NULL;
        assert_true(world->boards[0].mortal.lies > 0);
        assert_true(train(world, &run, ROUNDS, NOBODY, 0));
        expect_same(&run, &undisturbed);
        for (int i = 0; i < world->count; i++) {
            assert_int_equal(world->boards[i].session->held.resets, 0);
            assert_true(world->boards[i].session->held.cursor < 1000);
        }
    }
}

// --- disks that are full ---

static void a_full_disk_stops_nobody(void **state)
{
    struct epoch_world *world = *state;
    struct run undisturbed, run;

    begin(world, &undisturbed);
    world->boards[2].settings.reserve = UINT64_MAX;
    run = start_run(world);
    run.no_copies = EVERYBODY;
    assert_true(train(world, &run, ROUNDS, NOBODY, 0));
    expect_same(&run, &undisturbed);
    world->boards[2].settings.reserve = 0;
}

static void make_room(struct mortal *mortal, const struct cn_collective_call *call)
{
    (void)call;
    ((struct epoch_board *)mortal)->settings.reserve = 0;
    mortal->lies++;
}

// Neither of the two members that should store a part has room for it. The others wait for them.
static void a_part_that_no_disk_takes_is_stored_again(void **state)
{
    struct epoch_world *world = *state;
    struct run undisturbed, run;

    begin(world, &undisturbed);
    run = start_run(world);
    for (int i = 1; i < PARTS; i++) {
        world->boards[i].settings.reserve = UINT64_MAX;
        world->boards[i].mortal.changes = STORED;
        world->boards[i].mortal.change = make_room;
        world->boards[i].mortal.lies = 0;
    }
    assert_true(train(world, &run, ROUNDS, NOBODY, 0));
    expect_same(&run, &undisturbed);
    for (int i = 1; i < PARTS; i++) {
        world->boards[i].mortal.change = NULL;
        assert_int_equal(world->boards[i].mortal.lies, ROUNDS + 1);
        assert_int_equal(count_files(world, i), 2);
    }
}

// Files that nothing names go even where the state after the decision could not be stored.
static void a_full_disk_does_not_keep_old_files(void **state)
{
    struct epoch_world *world = *state;
    struct run run;

    hold_parts(world, PARTS);
    run = start_run(world);
    assert_true(train(world, &run, 2, NOBODY, 0));
    world->boards[2].settings.reserve = UINT64_MAX;
    run.no_copies = EVERYBODY;
    assert_true(train(world, &run, ROUNDS, NOBODY, 0));
    world->boards[2].settings.reserve = 0;
    assert_int_equal(count_in_folder(world, 2, UINT32_MAX, 1), 0);
}

// --- the whole again ---

// Where the gateway closes a round, what it has trained so far goes into what waits.
static void a_closed_round_waits_as_a_whole(void **state)
{
    struct epoch_world *world = *state;
    struct run undisturbed, run;
    struct cn_round_info news = world->news;

    begin(world, &undisturbed);
    run = start_run(world);
    assert_true(train(world, &run, 1, NOBODY, 0));
    // The second round begins and is broken off after a step.
    assert_false(train(world, &run, 2, 1, 60));
    if (world->boards[0].session->held.phase != CN_PHASE_TRAIN)
        fail_msg("the round was not under way");
    run.round = 3;
    news = world->news;
    news.round = 3;
    world_start(world, run.number, world_newest(world), NOBODY, 0);
    run.number += 16;
    cn_mailbox_put_news(&world->boards[0].box, &news);
    assert_true(world_serve_until_upload(world, run.digests[3]));
    await_copies(world, 3, 0);
    world_end_epoch(world);
    for (int i = 0; i < PARTS; i++) {
        assert_int_equal(world->boards[i].session->held.resets, 0);
        assert_int_not_equal(world->boards[i].session->held.waiting.set, 0); // divided again
        assert_int_equal(count_files(world, i), 2);
    }
}

// A member that looks on has no part of what waits, and takes the place of one that is lost.
static void a_member_that_looks_on_gets_the_frame_only(void **state)
{
    struct epoch_world *world = *state;
    struct run run;

    hold_parts(world, PARTS + 1);
    run = start_run(world);
    run.no_copies = 1; // it is the one that looks on who has a copy of the last part
    assert_true(train(world, &run, 2, NOBODY, 0));
    assert_true(count_files(world, PARTS) <= 1);
    for (int i = 0; i <= PARTS; i++) {
        const struct cn_checkpoint *held = &world->boards[i].session->held;

        assert_int_equal(held->waiting.set, world->boards[0].session->held.waiting.set);
        assert_int_equal(held->samples, world->boards[0].session->held.samples);
        assert_int_equal(held->resets, 0);
    }
    restart(world, PARTS);
    assert_true(train(world, &run, ROUNDS, NOBODY, 0));
}

// --- what a review found ---

// Ends an epoch in which the last update is decided, and makes what waits so old that it decays.
static void make_stale(struct epoch_world *world, struct run *run)
{
    uint64_t until = cn_platform_now_ms() + 10000;
    struct cn_round_info news = world->news;
    int based = 0;

    news.round = 1;
    news.decided_round = 1;
    news.decided_accepted = true;
    memcpy(news.decided_digest, run->digests[1], CN_DIGEST_SIZE);
    world_start(world, run->number, world_newest(world), NOBODY, 0);
    run->number += 16;
    cn_mailbox_put_news(&world->boards[0].box, &news);
    while (based < world->count) {
        assert_true(cn_platform_now_ms() < until);
        cn_platform_sleep_ms(20);
        based = 0;
        for (int i = 0; i < world->count; i++)
            based += cn_mailbox_progress(&world->boards[i].box).phase == CN_PHASE_BASE;
    }
    world_end_epoch(world);
    for (int i = 0; i < world->count; i++) {
        assert_int_equal(world->boards[i].session->held.phase, CN_PHASE_BASE);
        world->boards[i].session->held.version = 5;
        assert_int_equal(cn_session_save(world->boards[i].session, 0), CN_OK);
        restart(world, i);
    }
    world->news.version = 5;
    world->job.stale_rounds = 3;
    world->job.stale_decay = 0.9;
}

static void store_seldom(struct epoch_world *world)
{
    for (int i = 0; i < world->count; i++) {
        world->boards[i].mortal.stores = false;
        world->boards[i].session->disk.saved_ms = cn_platform_now_ms();
    }
}

// A board that is killed in a round before which what waited was gathered begins it again when the
// gateway tells of it: alone it cannot gather.
static void a_round_that_began_with_stale_parts_is_not_resumed_alone(void **state)
{
    struct epoch_world *world = *state;
    struct run run;

    hold_parts(world, PARTS);
    run = start_run(world);
    assert_true(train(world, &run, 1, NOBODY, 0));
    make_stale(world, &run);
    store_seldom(world);
    (void)train(world, &run, 2, 1, 34);
    restart(world, 0);
    assert_int_equal(cn_round_file_resume(world->boards[0].session), CN_OK);
    store_seldom(world);
    run.no_copies = EVERYBODY;
    run.round = run.round > 2 ? run.round : 2;
    assert_true(train(world, &run, ROUNDS, NOBODY, 0));
    assert_int_equal(world->boards[0].session->held.resets, 0);
}

static void die_next(struct mortal *mortal, const struct cn_collective_call *call)
{
    (void)call;
    mortal->calls_left = 0;
}

// What was gathered into memory still lies in the files that the disk's state names.
static void files_that_the_disk_names_stay_when_what_waits_was_gathered(void **state)
{
    struct epoch_world *world = *state;
    struct run run;

    take_rules(world);
    world_hold_two_parts(world, 4);
    run = start_run(world);
    run.no_copies = EVERYBODY;
    assert_true(train(world, &run, 1, NOBODY, 0));
    make_stale(world, &run);
    store_seldom(world);
    world->boards[0].mortal.changes = STORED;
    world->boards[0].mortal.change = die_next;
    assert_false(train(world, &run, 2, NOBODY, 0));
    world->boards[0].mortal.change = NULL;
    for (int i = 0; i < world->count; i++)
        restart(world, i);
    store_seldom(world);
    assert_true(train(world, &run, 2, NOBODY, 0));
    for (int i = 0; i < world->count; i++)
        assert_int_equal(world->boards[i].session->held.resets, 0);
}

// A member is replaced after the copies were stored, and the parts are held by others: copies are
// made again, and none is overwritten.
static void a_new_member_gets_a_copy_that_takes_no_place(void **state)
{
    struct epoch_world *world = *state;
    struct run run;

    hold_parts(world, PARTS + 1);
    run = start_run(world);
    run.no_copies = 1;
    assert_true(train(world, &run, 1, NOBODY, 0));
    lose_disk(world, 1);
    world->boards[1].session->chain.samples ^= 1; // it looks on
    run.no_copies = EVERYBODY;
    assert_true(train(world, &run, 2, NOBODY, 0));
    for (int i = 0; i < world->count; i++)
        assert_int_equal(world->boards[i].session->held.resets, 0);
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
    struct run undisturbed, run;

    take_rules(world);
    world_hold_tied_parts(world, 2);
    undisturbed = start_run(world);
    undisturbed.no_copies = EVERYBODY;
    assert_true(train(world, &undisturbed, ROUNDS, NOBODY, 0));
    run = start_run(world);
    run.no_copies = EVERYBODY;
    world->boards[0].mortal.changes = BLOCKS;
    world->boards[0].mortal.change = change_block;
    world->boards[0].mortal.lies = 0;
    assert_true(train(world, &run, 1, NOBODY, 0));
    world->boards[0].mortal.change = NULL;
    assert_true(world->boards[0].mortal.lies > 0);
    assert_memory_not_equal(run.digests[1], undisturbed.digests[1], CN_DIGEST_SIZE);
    assert_true(train(world, &run, ROUNDS, NOBODY, 0));
}

// A state with a frame that is none cannot be copied, and the round goes on without copies.
static void a_frame_that_is_none_ends_no_epoch(void **state)
{
    struct epoch_world *world = *state;
    struct cn_checkpoint *held;
    struct run run;

    hold_parts(world, PARTS);
    run = start_run(world);
    run.no_copies = EVERYBODY;
    assert_true(train(world, &run, 1, NOBODY, 0));
    held = &world->boards[1].session->held;
    held->samples++; // newer than the others
    memset(held->frame + 120, 0xff, held->frame_size - 120);
    cn_crypto_digest(held->frame, held->frame_size, held->frame_digest);
    assert_true(train(world, &run, 2, NOBODY, 0));
}

static void a_death_after_any_call_changes_nothing(void **state)
{
    sweep(*state, true);
}

// With "all": in and after each call of three rounds, not only in those of their ends.
int main(int argc, char **argv)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, epoch_world_set_up, epoch_world_tear_down)
    const struct CMUnitTest tests[] = {
        TEST(a_member_alone_makes_the_same_updates),
        TEST(what_waits_in_halves_is_rounded_as_alone),
        TEST(each_member_has_its_part_and_the_one_before),
        TEST(files_of_later_rounds_stay),
        TEST(a_death_in_or_after_calls_of_a_rounds_end_changes_nothing),
        TEST(one_lost_disk_takes_nothing_with_it),
        TEST(one_lost_disk_takes_no_halves_with_it),
        TEST(one_lost_disk_of_two_takes_nothing_with_it),
        TEST(two_lost_disks_lose_a_part_and_say_so),
        TEST(a_damaged_file_is_taken_from_the_other_member),
        TEST(a_part_that_is_none_is_not_stored),
        TEST(a_part_with_other_values_is_not_stored),
        TEST(an_offer_of_a_file_that_is_none_loses_nothing),
        TEST(a_part_that_is_given_wrong_is_lost),
        TEST(a_part_that_is_given_with_other_values_is_lost),
        TEST(lies_in_the_sums_of_a_frame_break_nothing),
        TEST(lies_in_the_digests_of_parts_break_nothing),
        TEST(nobody_denies_that_another_has_stored),
        TEST(a_lie_to_a_member_that_looks_on_is_found_at_once),
        TEST(a_full_disk_stops_nobody),
        TEST(a_full_disk_does_not_keep_old_files),
        TEST(a_part_that_no_disk_takes_is_stored_again),
        TEST(a_closed_round_waits_as_a_whole),
        TEST(a_member_that_looks_on_gets_the_frame_only),
        TEST(a_round_that_began_with_stale_parts_is_not_resumed_alone),
        TEST(files_that_the_disk_names_stay_when_what_waits_was_gathered),
        TEST(a_new_member_gets_a_copy_that_takes_no_place),
        TEST(a_frame_that_is_none_ends_no_epoch),
        TEST(another_block_of_a_tied_tensor_ends_no_epoch),
    };
    const struct CMUnitTest all[] = {
        TEST(a_death_after_any_call_changes_nothing),
    };

    return argc > 1 && strcmp(argv[1], "all") == 0 ? cmocka_run_group_tests(all, NULL, NULL)
                                                   : cmocka_run_group_tests(tests, NULL, NULL);
}
