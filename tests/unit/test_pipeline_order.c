#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
// cmocka.h needs the four above.
#include <cmocka.h>

#include <stdlib.h>

#include "runtime/group/pipeline_order.h"

#define PARTS CN_PIPELINE_PARTS_MAX
#define MOST 64 // micro-batches

enum act_kind { COMPUTE, SEND, RECEIVE };

// What one member does, in its order: it computes, sends or receives.
struct act {
    enum act_kind kind;
    enum cn_pipeline_pass pass; // of the micro-batch that is computed or travels
    uint32_t batch, peer;
};

struct member {
    struct act acts[6 * MOST];
    uint32_t count, done;
};

static void add(struct member *member, enum act_kind kind, enum cn_pipeline_pass pass,
                uint32_t batch, uint32_t peer)
{
    struct act *act = &member->acts[member->count++];

    *act = (struct act){kind, pass, batch, peer};
}

// Projects the order of a step on its members, with at most so many micro-batches in flight in a
// part; 0: no limit. Returns the number of ticks.
static uint32_t project_within(uint32_t parts, uint32_t micro, uint32_t most,
                               struct member *members)
{
    struct cn_pipeline_message messages[PARTS];
    struct cn_pipeline pipeline;
    uint32_t ticks = 0;

    for (uint32_t p = 0; p < parts; p++)
        members[p].count = members[p].done = 0;
    cn_pipeline_begin(&pipeline, parts, micro);
    pipeline.most = most;
    while (cn_pipeline_tick(&pipeline)) {
        uint32_t count = cn_pipeline_messages(&pipeline, messages);

        ticks++;
        for (uint32_t p = 0; p < parts; p++)
            if (pipeline.pass[p] != CN_PIPELINE_REST)
                add(&members[p], COMPUTE, pipeline.pass[p], pipeline.batch[p], p);
        for (uint32_t i = 0; i < count; i++) {
            enum cn_pipeline_pass pass =
                messages[i].gradient ? CN_PIPELINE_BACKWARD : CN_PIPELINE_FORWARD;

            add(&members[messages[i].from], SEND, pass, messages[i].batch, messages[i].to);
            add(&members[messages[i].to], RECEIVE, pass, messages[i].batch, messages[i].from);
        }
    }
    return ticks;
}

static uint32_t project(uint32_t parts, uint32_t micro, struct member *members)
{
    return project_within(parts, micro, 0, members);
}

// Runs members who know only rendezvous: a send and its receive end together, when both members are
// at them. Returns whether all members come to their end.
static bool ends(struct member *members, uint32_t parts)
{
    bool moved = true;

    while (moved) {
        moved = false;
        for (uint32_t p = 0; p < parts; p++) {
            struct member *own = &members[p];
            const struct act *act = &own->acts[own->done], *other;
            struct member *peer;

            if (own->done == own->count || act->kind == RECEIVE)
                continue;
            if (act->kind == COMPUTE) {
                own->done++;
                moved = true;
                continue;
            }
            peer = &members[act->peer];
            other = &peer->acts[peer->done];
            if (peer->done == peer->count || other->kind != RECEIVE || other->peer != p ||
                other->pass != act->pass || other->batch != act->batch)
                continue;
            own->done++;
            peer->done++;
            moved = true;
        }
    }
    for (uint32_t p = 0; p < parts; p++)
        if (members[p].done != members[p].count)
            return false;
    return true;
}

static struct member *new_members(void)
{
    struct member *members = calloc(PARTS, sizeof(*members));

    assert_non_null(members);
    return members;
}

static void no_step_deadlocks(void **state)
{
    struct member *members = new_members();

    (void)state;
    for (uint32_t parts = 1; parts <= PARTS; parts++)
        for (uint32_t micro = 1; micro <= MOST; micro++) {
            project(parts, micro, members);
            assert_true(ends(members, parts));
        }
    free(members);
}

// The checker itself can fail: a part that sends what it computed before it receives, as code for
// one member would do it, waits for ever for a neighbour that sends, too.
static void sending_before_receiving_deadlocks(void **state)
{
    struct member *members = new_members();

    (void)state;
    for (uint32_t k = 0; k < 4; k++) {
        add(&members[0], COMPUTE, CN_PIPELINE_FORWARD, k, 0);
        add(&members[0], SEND, CN_PIPELINE_FORWARD, k, 1);
        if (k > 0)
            add(&members[0], RECEIVE, CN_PIPELINE_BACKWARD, k - 1, 1);
        add(&members[1], RECEIVE, CN_PIPELINE_FORWARD, k, 0);
        add(&members[1], SEND, CN_PIPELINE_BACKWARD, k, 0);
    }
    assert_false(ends(members, 2));
    free(members);
}

// Each part runs each micro-batch forward and backward once, in order, with what it needs for it.
static void check_member(const struct member *member, uint32_t parts, uint32_t micro, uint32_t part)
{
    uint32_t forwards = 0, backwards = 0, activations = 0, gradients = 0;

    for (uint32_t i = 0; i < member->count; i++) {
        const struct act *act = &member->acts[i];
        bool forward = act->pass == CN_PIPELINE_FORWARD;

        if (act->kind == COMPUTE && forward) {
            assert_int_equal(act->batch, forwards++);
            assert_true(part == 0 || activations >= forwards);
            assert_true(forwards - backwards <= cn_pipeline_in_flight(parts, micro, part));
        } else if (act->kind == COMPUTE) {
            assert_int_equal(act->batch, backwards++);
            assert_true(forwards >= backwards);
            assert_true(part + 1 == parts || gradients >= backwards);
        } else if (act->kind == RECEIVE) {
            assert_int_equal(act->batch, forward ? activations++ : gradients++);
            assert_int_equal(act->peer, forward ? part - 1 : part + 1);
        } else { // what is sent was computed just before
            assert_int_equal(act->batch, (forward ? forwards : backwards) - 1);
        }
    }
    assert_int_equal(forwards, micro);
    assert_int_equal(backwards, micro);
    assert_int_equal(activations, part > 0 ? micro : 0);
    assert_int_equal(gradients, part + 1 < parts ? micro : 0);
}

static void each_part_has_what_it_computes(void **state)
{
    struct member *members = new_members();

    (void)state;
    for (uint32_t parts = 1; parts <= PARTS; parts++)
        for (uint32_t micro = 1; micro <= MOST; micro++) {
            project(parts, micro, members);
            for (uint32_t p = 0; p < parts; p++)
                check_member(&members[p], parts, micro, p);
        }
    free(members);
}

// Returns the most micro-batches that a member has between forward and backward.
static uint32_t most_in_flight(const struct member *member)
{
    uint32_t flying = 0, most = 0;

    for (uint32_t i = 0; i < member->count; i++) {
        if (member->acts[i].kind != COMPUTE)
            continue;
        if (member->acts[i].pass == CN_PIPELINE_BACKWARD)
            flying--;
        else if (++flying > most)
            most = flying;
    }
    return most;
}

// Where a board has little memory, all parts keep to fewer.
static void a_step_with_few_micro_batches_in_flight_ends_as_well(void **state)
{
    struct member *members = new_members();

    (void)state;
    for (uint32_t parts = 1; parts <= PARTS; parts++)
        for (uint32_t most = 1; most < 2 * parts; most++) {
            project_within(parts, 37, most, members);
            for (uint32_t p = 0; p < parts; p++) {
                check_member(&members[p], parts, 37, p);
                assert_in_range(most_in_flight(&members[p]), 1, most);
            }
            assert_int_equal(most_in_flight(&members[0]), most);
            assert_true(ends(members, parts));
        }
    free(members);
}

static void neighbours_see_their_messages_in_one_order(void **state)
{
    struct member *members = new_members();

    (void)state;
    for (uint32_t parts = 2; parts <= PARTS; parts++) {
        project(parts, 37, members);
        for (uint32_t p = 0; p + 1 < parts; p++) {
            const struct member *a = &members[p], *b = &members[p + 1];
            uint32_t j = 0;

            for (uint32_t i = 0; i < a->count; i++) {
                if (a->acts[i].kind == COMPUTE || a->acts[i].peer != p + 1)
                    continue;
                while (j < b->count && (b->acts[j].kind == COMPUTE || b->acts[j].peer != p))
                    j++;
                assert_true(j < b->count);
                assert_int_not_equal(a->acts[i].kind, b->acts[j].kind);
                assert_int_equal(a->acts[i].pass, b->acts[j].pass);
                assert_int_equal(a->acts[i].batch, b->acts[j++].batch);
            }
        }
    }
    free(members);
}

// With passes of one tick and messages that take no time, 1F1B loses P - 1 forward and P - 1
// backward passes in a step, whatever its length.
static void a_step_loses_one_pass_each_way_for_each_part_but_one(void **state)
{
    struct member *members = new_members();

    (void)state;
    for (uint32_t parts = 1; parts <= PARTS; parts++)
        for (uint32_t micro = 1; micro <= MOST; micro++)
            assert_int_equal(project(parts, micro, members), 2 * micro + 2 * (parts - 1));
    free(members);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_step_deadlocks),
        cmocka_unit_test(sending_before_receiving_deadlocks),
        cmocka_unit_test(each_part_has_what_it_computes),
        cmocka_unit_test(neighbours_see_their_messages_in_one_order),
        cmocka_unit_test(a_step_with_few_micro_batches_in_flight_ends_as_well),
        cmocka_unit_test(a_step_loses_one_pass_each_way_for_each_part_but_one),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
