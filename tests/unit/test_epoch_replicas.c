// Nine members hold three parts of a model three times, each with samples of its own chain.
//
// Members of each part die in calls of each phase of a round, and the update is that of a round
// without a death.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "tests/unit/epoch_world.h"

#define PARTS 3
#define SMALL 2048 // bytes; a broadcast of more is that of a version

// What calls are for, in the order of the first call of each kind.
enum phase {
    HEAL,
    COMMAND,
    FORM,
    FETCH,
    MEASURE,
    FORWARD,
    BACKWARD,
    SUM,
    VOTE,
    STORE,
    FINISH,
    PHASES,
};

static const char *const phase_names[PHASES] = {
    "states compared",   "a command of the leader", "the chains forming",
    "a version fetched", "a version measured",      "activations going forward",
    "gradients back",    "the sum over replicas",   "the vote",
    "the state stored",  "the update made",
};

// Fingerprints of calls, less the bits that say of which micro-batch, row or part.
static const struct {
    uint32_t mask, fingerprint;
    enum phase phase;
} known[] = {
    {0xffffffff, 0x6865616c, HEAL},    {0xffffffff, 0x6865616d, HEAL},
    {0xffffffff, 0x6865616e, HEAL},    {0xffffffff, 0x6865616f, HEAL},
    {0xffffffff, 0x70680001, HEAL},    {0xffffffff, 0x70730003, STORE},
    {0xffffffff, 0x73657401, FORM},    {0xffffffff, 0x70690001, FORM},
    {0xffffffff, 0x70690003, FORM},    {0xffffffff, 0x70700003, MEASURE},
    {0xffff00ff, 0x70700001, FORWARD}, {0xffff00ff, 0x70700002, BACKWARD},
    {0xffffffff, 0x70710001, SUM},     {0xffff0000, 0x70770000, FINISH},
    {0xffff0000, 0x70790000, FINISH},
};

static enum phase phase_of(const struct cn_collective_call *call)
{
    for (size_t i = 0; i < sizeof(known) / sizeof(*known); i++)
        if ((call->fingerprint & known[i].mask) == known[i].fingerprint)
            return known[i].phase;
    assert_int_equal(call->fingerprint, 0);
    if (call->kind == CN_COLLECTIVE_ALL_REDUCE)
        return VOTE;
    return call->count > SMALL ? FETCH : COMMAND;
}

// Trains the round without a death. The place of a member is part * replicas + replica: members 0
// to 2 hold the first part.
static void begin(struct epoch_world *world, uint8_t undisturbed[CN_DIGEST_SIZE])
{
    world->job.parallel.replicate = BOARDS / PARTS;
    world->job.local_steps = 2;
    world_hold_three_parts(world, BOARDS);
    world_train_round(world, undisturbed);
    world_end_epoch(world);
    for (int i = 0; i < world->count; i++) {
        const struct cn_session *session = world->boards[i].session;

        assert_int_equal(session->cut.part, i / PARTS);
        assert_int_equal(session->plan.chain.chains, BOARDS / PARTS);
        assert_true(cn_trainer_gradient_words(session->trainer) > 0);
    }
}

// Returns the place of the first or the last call of a phase among those of a member. Calls behind
// the update's are left out: the leader may have sent it by then.
static uint32_t find_call(const struct mortal *mortal, enum phase phase, bool last)
{
    uint32_t found = UINT32_MAX;
    bool made = false;

    for (uint32_t c = 0; c < mortal->called; c++) {
        enum phase here = phase_of(&mortal->calls[c]);

        if (made && here != FINISH)
            break;
        made = here == FINISH;
        if (here == phase && (last || found == UINT32_MAX))
            found = c;
    }
    return found;
}

// A member is lost in the first call of a phase, and another one is killed after its last. From
// phase to phase they are others, and hold other parts.
static void a_member_that_is_lost_or_killed_in_any_phase_changes_nothing_in_the_update(void **state)
{
    static uint32_t calls[BOARDS][PHASES][2];
    struct epoch_world *world = *state;
    uint8_t undisturbed[CN_DIGEST_SIZE];
    uint32_t rolled = 0;

    begin(world, undisturbed);
    for (int i = 0; i < world->count; i++)
        for (int phase = 0; phase < PHASES; phase++)
            for (int last = 0; last < 2; last++)
                calls[i][phase][last] =
                    find_call(&world->boards[i].mortal, (enum phase)phase, last);
    for (int phase = 0; phase < PHASES; phase++)
        for (int last = 0; last < 2; last++) {
            const struct world_fault fault = {(2 * phase + last) * 4 % BOARDS, last, last};
            uint32_t call = calls[fault.victim][phase][last];

            print_message("board-%d is %s: %s\n", fault.victim + 1, last ? "killed" : "lost",
                          phase_names[phase]);
            assert_int_not_equal(call, UINT32_MAX);
            assert_true(world_break_call(world, &fault, call, undisturbed, &rolled));
        }
    assert_int_equal(rolled, 0);
}

static void sweep(struct epoch_world *world, bool hears, bool dies)
{
    uint8_t undisturbed[CN_DIGEST_SIZE];

    begin(world, undisturbed);
    assert_int_equal(world_sweep_calls(world, hears, dies, undisturbed), 0);
    assert_true(world->middles > 0);
}

// A member of each part, in each of the chains.
static void a_death_after_any_call_of_three_chains_changes_nothing_in_the_update(void **state)
{
    struct epoch_world *world = *state;

    world->victims = 1u << 0 | 1u << 4 | 1u << 8;
    sweep(world, true, true);
}

static void a_loss_in_any_call_of_three_chains_changes_nothing_in_the_update(void **state)
{
    struct epoch_world *world = *state;

    world->victims = 1u << 2 | 1u << 3 | 1u << 7;
    sweep(world, false, false);
}

// With "all": in and after each call, not only in two of each phase.
int main(int argc, char **argv)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, epoch_world_set_up, epoch_world_tear_down)
    const struct CMUnitTest phases[] = {
        TEST(a_member_that_is_lost_or_killed_in_any_phase_changes_nothing_in_the_update),
    };
    const struct CMUnitTest all[] = {
        TEST(a_death_after_any_call_of_three_chains_changes_nothing_in_the_update),
        TEST(a_loss_in_any_call_of_three_chains_changes_nothing_in_the_update),
    };

    return argc > 1 && strcmp(argv[1], "all") == 0 ? cmocka_run_group_tests(all, NULL, NULL)
                                                   : cmocka_run_group_tests(phases, NULL, NULL);
}
