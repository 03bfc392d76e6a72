// The search for a layout: cuts against all cuts, the predicted step, the choice and its text.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
// cmocka.h needs the four above.
#include <cmocka.h>
#include <math.h>
#include <string.h>

#include "runtime/group/layout_text.h"

#define KIB 1024ull
#define MIB (1024 * KIB)

static const char *const names[] = {"board-1", "board-2", "board-3", "board-4",
                                    "board-5", "board-6", "board-7", "board-8"};
static uint32_t seed = 1;

static uint32_t draw(uint32_t below)
{
    seed = seed * 1664525 + 1013904223;
    return (seed >> 8) % below;
}

// A model of `blocks` equal blocks on equal boards: 10 ms a micro-batch in all, a third of it
// forward.
static struct cn_layout_facts alike(uint32_t count, uint32_t blocks, uint64_t weights,
                                    uint64_t activations, uint64_t kbps)
{
    struct cn_layout_facts facts = {.count = count,
                                    .place_count = blocks - 1,
                                    .forward_share = 1.0 / 3,
                                    .call_us = 10,
                                    .bucket = MIB,
                                    .micro = 4,
                                    .most_parts = CN_PIPELINE_PARTS_MAX};

    for (uint32_t i = 0; i < blocks; i++) {
        facts.places[i] = (struct cn_layout_place){
            .nodes = 10 * (i + 1),
            .forward = i + 1 < blocks ? activations : 0,
            .backward = i + 1 < blocks ? activations : 0,
            .gradients = weights * (i + 1) / blocks,
            .state = 4 * weights * (i + 1) / blocks,
            .saved = 8 * activations * (i + 1),
        };
        for (uint32_t m = 0; m < count; m++)
            facts.members[m].us[i] = 10000.0 * (i + 1) / blocks;
    }
    for (uint32_t m = 0; m < count; m++) {
        facts.members[m].kbps = kbps;
        for (uint32_t s = 0; s < CN_LAYOUT_STAGES; s++)
            facts.members[m].needs[s] = (struct cn_layout_need){
                (3 - s) * weights + 8 * activations * blocks, (1 + s) * weights};
    }
    return facts;
}

static struct cn_layout_facts random_facts(uint32_t count, uint32_t places)
{
    struct cn_layout_facts facts = {.count = count, .place_count = places, .call_us = draw(3) * 50};
    uint64_t state = 0, saved = 0;

    for (uint32_t i = 0; i <= places; i++) {
        state += draw(50) * KIB;
        saved += draw(20) * KIB;
        facts.places[i] = (struct cn_layout_place){.nodes = i + 1,
                                                   .forward = (1 + draw(30)) * KIB,
                                                   .backward = (1 + draw(30)) * KIB,
                                                   .state = state,
                                                   .saved = saved};
    }
    for (uint32_t m = 0; m < count; m++) {
        double factor = 1 + draw(3), us = 0;

        facts.members[m].kbps = draw(3) ? 10000 + draw(1000000) : 0;
        facts.members[m].limit = draw(2) ? (40 + draw(400)) * KIB : 0;
        for (uint32_t i = 0; i <= places; i++)
            facts.members[m].us[i] = us += factor * (1 + draw(5000));
    }
    return facts;
}

static bool keeps_limits(const struct cn_layout_facts *facts, const struct cn_cut_board *boards,
                         uint32_t parts, uint32_t micro, const uint32_t *places)
{
    for (uint32_t p = 0; p < parts; p++)
        if (boards[p].limit && cn_cut_memory(facts, parts, micro, p, p ? places[p - 1] : UINT32_MAX,
                                             places[p]) > boards[p].limit)
            return false;
    return true;
}

// Returns the shortest step of all cuts, HUGE_VAL when none keeps the limits.
static double try_all_cuts(const struct cn_layout_facts *facts, const struct cn_cut_board *boards,
                           uint32_t parts, uint32_t micro)
{
    double best = HUGE_VAL, period;

    for (uint32_t bits = 0; bits < 1u << facts->place_count; bits++) {
        uint32_t places[CN_PIPELINE_PARTS_MAX] = {0}, count = 0;

        if ((uint32_t)__builtin_popcount(bits) != parts - 1)
            continue;
        for (uint32_t i = 0; i < facts->place_count; i++)
            if (bits >> i & 1)
                places[count++] = i;
        places[count] = facts->place_count;
        if (keeps_limits(facts, boards, parts, micro, places))
            best = fmin(best, cn_cut_step_us(facts, boards, parts, micro, places, &period));
    }
    return best;
}

static void the_cut_is_the_best_of_all_cuts(void **state)
{
    uint32_t found = 0, none = 0;

    (void)state;
    for (uint32_t i = 0; i < 600; i++) {
        uint32_t parts = 2 + draw(3), micro = 1 + draw(12), places = parts - 1 + draw(6);
        struct cn_layout_facts facts = random_facts(parts, places);
        struct cn_cut_board boards[4];
        struct cn_cut_choice choice;
        double best;

        for (uint32_t p = 0; p < parts; p++)
            boards[p] = (struct cn_cut_board){facts.members[p].limit, facts.members[p].kbps,
                                              facts.members[p].us};
        best = try_all_cuts(&facts, boards, parts, micro);
        if (cn_cut_search(&facts, boards, parts, micro, &choice) != (best < HUGE_VAL))
            fail_msg("case %u: one of the two finds no cut", i);
        if (best >= HUGE_VAL) {
            none++;
            continue;
        }
        found++;
        assert_true(keeps_limits(&facts, boards, parts, micro, choice.places));
        if (choice.step_us > 1.0101 * best || choice.step_us < 0.999999 * best)
            fail_msg("case %u: %u parts, %u micro-batches: %g us, the best of all cuts %g", i,
                     parts, micro, choice.step_us, best);
    }
    assert_true(found > 200 && none > 200);
}

// Of parts of equal work, without a wire, the bubble is (P - 1) / (m + P - 1).
static void a_chain_that_is_played_has_the_bubble_of_the_formula(void **state)
{
    (void)state;
    for (uint32_t parts = 2; parts <= 8; parts *= 2)
        for (uint32_t times = 1; times <= 8; times *= 2) {
            uint32_t micro = parts * times, places[CN_PIPELINE_PARTS_MAX];
            struct cn_layout_facts facts = alike(parts, parts, MIB, 0, 0);
            struct cn_cut_board boards[CN_PIPELINE_PARTS_MAX + 1] = {0};
            double ends[CN_PIPELINE_PARTS_MAX], wanted = (micro + parts - 1) * 10000.0 / parts;

            for (uint32_t p = 0; p < parts; p++) {
                boards[p].us = facts.members[p].us;
                places[p] = p;
            }
            assert_true(fabs(cn_cost_chain_us(&facts, boards, parts, micro, places, ends) / wanted -
                             1) < 1e-9);
        }
}

// Two blocks of 10 ms together, of which one holds all of the 1 MB of gradients: 84 ms in a sum.
static struct cn_layout_facts with_gradients_in(uint32_t block)
{
    struct cn_layout_facts facts = alike(2, 2, 0, 0, 100000);

    facts.call_us = 0;
    for (uint32_t i = block; i < 2; i++)
        facts.places[i].gradients = 1000000;
    return facts;
}

static double whole_us(const struct cn_layout_facts *facts, uint32_t replicas, uint32_t shards,
                       uint32_t stage, uint32_t micro)
{
    const struct cn_cost_whole whole = {
        replicas, shards, stage, micro, facts->members[0].us, facts->members[0].kbps};

    return cn_cost_whole_us(facts, &whole);
}

// The backward pass takes 3.3 ms for each block and ends with the first one.
static void a_gradient_travels_from_the_time_when_its_layers_are_done(void **state)
{
    struct cn_layout_facts early = with_gradients_in(1), late = with_gradients_in(0);

    (void)state;
    assert_true(fabs(whole_us(&late, 2, 1, 1, 1) - (10000 + 80000)) < 1);
    assert_true(fabs(whole_us(&early, 2, 1, 1, 1) - (10000 - 10000 / 3.0 + 80000)) < 1);
    assert_true(fabs(whole_us(&late, 2, 1, 1, 3) - (30000 + 80000)) < 1);
    for (uint32_t i = 0; i < 2; i++) // 0.8 ms, which the first block's backward pass hides
        early.places[i].gradients /= 100;
    assert_true(fabs(whole_us(&early, 2, 1, 1, 1) - 10000) < 1);
}

// Twelve equal blocks have 1 MiB of gradients, 87 KiB each, and a sum of all takes 0.84 ms.
static void buckets_whose_size_is_measured_become_small(void **state)
{
    struct cn_layout_facts facts = alike(2, 12, MIB, 0, 10000000);
    double once, tuned;

    (void)state;
    facts.call_us = 0;
    facts.bucket = 0;
    once = whole_us(&facts, 2, 1, 1, 1);
    facts.tunes = true;
    tuned = whole_us(&facts, 2, 1, 1, 1);
    assert_true(fabs(once - (10000 + 838.9)) < 1);
    assert_true(fabs(tuned - (10000 + 838.9 / 12)) < 1);
    facts.call_us = 10000; // many calls take too long
    assert_true(fabs(whole_us(&facts, 2, 1, 1, 1) - (10000 + 20000 + 838.9)) < 1);
}

// Four equal blocks of 250 KB, each 2.5 ms a micro-batch; half a sum of one takes 1 ms.
static struct cn_layout_facts of_four_blocks(void)
{
    struct cn_layout_facts facts = alike(2, 4, 1000000, 0, 1000000);

    facts.call_us = 0;
    return facts;
}

static void shards_hide_what_travels_beside_a_pass(void **state)
{
    struct cn_layout_facts facts = of_four_blocks();

    (void)state;
    // The last bucket's gradients, and the weights behind the optimizer.
    assert_true(fabs(whole_us(&facts, 1, 2, 1, 1) - (10000 + 1000 + 4000)) < 1);
    assert_true(fabs(whole_us(&facts, 1, 2, 2, 1) - (10000 + 1000 + 4000)) < 1);
    // In stage 2 each micro-batch waits for its last bucket.
    assert_true(fabs(whole_us(&facts, 1, 2, 1, 3) - (30000 + 1000 + 4000)) < 1);
    assert_true(fabs(whole_us(&facts, 1, 2, 2, 3) - (30000 + 3000 + 4000)) < 1);
    // In stage 3 it also waits for the first bucket of weights, 167 us for each further one in the
    // forward pass, and 333 us for each of two in the backward pass, which come behind gradients.
    assert_true(fabs(whole_us(&facts, 1, 2, 3, 1) - (10000 + 1000 + 500 + 667 + 1000)) < 2);
}

// Of a thin link only the wire counts: six fetches, two of which serve both passes, and four
// reductions, of 1 s each.
static void stage_3_fetches_the_last_blocks_once(void **state)
{
    struct cn_layout_facts facts = of_four_blocks();

    (void)state;
    for (uint32_t m = 0; m < 2; m++)
        facts.members[m].kbps = 1000;
    for (uint32_t i = 0; i < 4; i++)
        facts.members[0].us[i] = i + 1;
    assert_true(fabs(whole_us(&facts, 1, 2, 3, 1) - 10 * 1e6) < 10);
}

static struct cn_layout_candidate best_of(const struct cn_layout_facts *facts)
{
    static struct cn_layout_search search;

    cn_layout_search(facts, &search);
    return search.candidates[search.best];
}

static void a_thin_link_gets_a_pipeline_and_a_thick_one_gets_replicas(void **state)
{
    struct cn_layout_facts facts = alike(4, 12, 8 * MIB, 8 * KIB, 100000);
    struct cn_layout_candidate best = best_of(&facts);

    (void)state;
    assert_int_equal(best.parts, 4); // 8 MiB are 670 ms on this link, 8 KiB 0.7 ms
    assert_int_equal(best.replicas, 1);
    facts = alike(4, 12, 8 * MIB, 8 * KIB, 100000000);
    best = best_of(&facts);
    assert_int_equal(best.parts, 1);
    assert_int_equal(best.replicas, 4);
    assert_int_equal(best.shards, 1);
    facts = alike(4, 12, 256 * KIB, 512 * KIB, 100000); // large activations, few weights
    best = best_of(&facts);
    assert_int_equal(best.parts, 1);
    assert_int_equal(best.replicas, 4);
}

// Where links share a medium, sums reach a part of the rate at which messages travel one by one.
static void slow_sums_count_against_replicas(void **state)
{
    struct cn_layout_facts facts = alike(2, 12, MIB, 64 * KIB, 1000000);

    (void)state;
    facts.micro = 1;
    assert_true(fabs(cn_cost_sum_us(&facts, 2, 1000000, 1000000) - (2 * 10 + 8000)) < 1);
    assert_int_equal(best_of(&facts).parts, 1);
    facts.sum_share = 0.25;
    assert_true(fabs(cn_cost_sum_us(&facts, 2, 1000000, 1000000) - (2 * 10 + 4 * 8000)) < 1);
    assert_int_equal(best_of(&facts).parts, 2);
}

static void every_board_trains_that_can_whatever_the_link(void **state)
{
    struct cn_layout_facts facts = alike(4, 12, 64 * MIB, 8 * MIB, 1000);
    struct cn_layout_candidate best = best_of(&facts);

    (void)state;
    assert_int_equal(best.parts * best.replicas * best.shards, 4);
}

static void no_micro_batches_count_as_one(void **state)
{
    struct cn_layout_facts facts = alike(4, 12, 64 * KIB, 8 * KIB, 100000000);

    (void)state;
    facts.micro = 0;
    assert_int_equal(best_of(&facts).micro, 1);
}

static void unequal_boards_get_unequal_parts(void **state)
{
    struct cn_layout_facts facts = alike(2, 12, 8 * MIB, 8 * KIB, 100000);
    struct cn_layout_candidate best;

    (void)state;
    for (uint32_t i = 0; i < 12; i++) // three times as slow
        facts.members[0].us[i] *= 3;
    best = best_of(&facts);
    assert_int_equal(best.parts, 2);
    assert_true(fabs(best.part_us[0] - best.part_us[1]) < 1);
    assert_int_equal(best.members[best.places[0] < 4 ? 0 : 1], 0);
}

static void what_does_not_fit_is_cut_or_named(void **state)
{
    struct cn_layout_facts facts = alike(4, 12, 8 * MIB, 8 * KIB, 100000000);
    struct cn_layout_search search;
    char text[600];

    (void)state;
    for (uint32_t m = 0; m < 4; m++)
        facts.members[m].limit = 12 * MIB; // the state is 32 MiB, a part of four 8
    cn_layout_search(&facts, &search);
    assert_int_equal(search.candidates[search.best].parts, 4);
    assert_int_equal(search.candidates[search.best].missing, 0);
    facts.members[2].limit = 1 * MIB;
    facts.most_parts = 1;
    cn_layout_search(&facts, &search);
    assert_true(search.candidates[search.best].missing > 0);
    cn_layout_text(&search, names, text, sizeof(text));
    assert_non_null(strstr(text, "KiB are missing: it computes twice or in parts"));
}

// So many members alike: 60 MiB beside a state of 40 MiB, in stage 2 50 beside 60, in stage 3 30
// beside 80. No link holds a layout back.
static void the_lowest_stage_and_the_fewest_shards_that_fit_everybody(void **state)
{
    static const struct cn_layout_need needs[] = {
        {60 * MIB, 40 * MIB}, {50 * MIB, 60 * MIB}, {30 * MIB, 80 * MIB}};
    static const struct {
        uint32_t count;
        uint64_t limit; // MiB
        uint32_t shards, replicas, stage;
        bool fits;
    } rows[] = {
        {4, 0, 1, 4, 1, true},   {4, 100, 1, 4, 1, true}, {4, 99, 2, 2, 1, true},
        {4, 80, 2, 2, 1, true},  {4, 79, 4, 1, 1, true},  {4, 70, 4, 1, 1, true},
        {1, 100, 1, 1, 1, true}, {1, 99, 1, 1, 1, false}, {5, 80, 5, 1, 1, true},
        {6, 75, 3, 2, 1, true},  {3, 80, 3, 1, 1, true}, // of two shards one would be left over
        {4, 69, 4, 1, 2, true},  {4, 65, 4, 1, 2, true},  {4, 64, 4, 1, 3, true},
        {4, 50, 4, 1, 3, true},  {4, 49, 4, 1, 1, false}, {2, 79, 2, 1, 3, true},
        {8, 63, 8, 1, 2, true},  {6, 66, 6, 1, 2, true},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct cn_layout_facts facts = alike(rows[i].count, 1, 10 * MIB, 0, 0);
        struct cn_layout_candidate best;

        facts.most_parts = 1;
        for (uint32_t m = 0; m < rows[i].count; m++) {
            facts.members[m].limit = rows[i].limit * MIB;
            memcpy(facts.members[m].needs, needs, sizeof(needs));
        }
        best = best_of(&facts);
        if (best.shards != rows[i].shards || best.replicas != rows[i].replicas ||
            best.stage != rows[i].stage || (best.missing == 0) != rows[i].fits)
            fail_msg("row %zu: %u shards, %u replicas, stage %u, %llu missing", i, best.shards,
                     best.replicas, best.stage, (unsigned long long)best.missing);
    }
}

// Copies of the model take 40 MiB of a member that holds the whole model, and 5 MiB, or
// nothing, of one whose copies of the model lie on its disk.
static void a_version_that_arrives_counts_where_its_copies_lie(void **state)
{
    static const struct cn_layout_need need = {60 * MIB, 40 * MIB};
    struct cn_layout_facts facts = alike(4, 1, 10 * MIB, 0, 0);

    (void)state;
    facts.most_parts = 1;
    for (uint32_t m = 0; m < 4; m++) {
        facts.members[m].limit = 139 * MIB;
        facts.members[m].copies_whole = 40 * MIB;
        for (uint32_t s = 0; s < CN_LAYOUT_STAGES; s++)
            facts.members[m].needs[s] = need;
    }
    assert_int_equal(best_of(&facts).shards, 2);
    for (uint32_t m = 0; m < 4; m++)
        facts.members[m].limit = 140 * MIB;
    assert_int_equal(best_of(&facts).shards, 1);
    for (uint32_t m = 0; m < 4; m++) {
        facts.members[m].limit = 84 * MIB;
        facts.members[m].copies_divided = 5 * MIB;
    }
    assert_int_equal(best_of(&facts).shards, 4);
}

static void a_version_that_arrives_counts_for_a_part(void **state)
{
    struct cn_layout_facts facts = alike(4, 12, 8 * MIB, 8 * KIB, 100000000);

    (void)state;
    for (uint32_t m = 0; m < 4; m++)
        facts.members[m].limit = 12 * MIB; // the state is 32 MiB, a part of four 8
    assert_int_equal(best_of(&facts).missing, 0);
    for (uint32_t m = 0; m < 4; m++)
        facts.members[m].copies_divided = 5 * MIB;
    assert_true(best_of(&facts).missing > 0);
}

static void a_part_needs_a_copy_of_its_weights(void **state)
{
    struct cn_layout_facts facts = alike(4, 12, 8 * MIB, 8 * KIB, 100000000);
    uint64_t first = cn_cut_memory(&facts, 2, 4, 0, UINT32_MAX, 5);
    uint64_t second = cn_cut_memory(&facts, 2, 4, 1, 5, facts.place_count);

    (void)state;
    for (uint32_t i = 0; i <= facts.place_count; i++)
        facts.places[i].copy = (i + 1) * MIB;
    assert_int_equal(cn_cut_memory(&facts, 2, 4, 0, UINT32_MAX, 5), first + 6 * MIB);
    assert_int_equal(cn_cut_memory(&facts, 2, 4, 1, 5, facts.place_count),
                     second + (facts.place_count - 5) * MIB);
}

// What another member tells is bounded before the search; the search itself ends for any number.
static void times_below_zero_end_the_search(void **state)
{
    struct cn_layout_facts facts = alike(2, 12, 8 * MIB, 8 * KIB, 100000);

    (void)state;
    for (uint32_t i = 0; i < 12; i++)
        facts.members[1].us[i] = -900.0 * (i + 1) / 12;
    (void)best_of(&facts);
    for (uint32_t i = 0; i < 12; i++)
        facts.members[0].us[i] = facts.members[1].us[i] = 0;
    facts.call_us = 0;
    assert_true(best_of(&facts).parts > 0);
}

// As on boards without a limit of memory: not even a share of the whole model could be opened.
static void a_whole_model_of_unknown_need_is_not_chosen_before_a_chain(void **state)
{
    struct cn_layout_facts facts = alike(4, 12, 8 * MIB, 8 * KIB, 100000000);

    (void)state;
    for (uint32_t m = 0; m < 4; m++)
        memset(facts.members[m].needs, 0, sizeof(facts.members[m].needs));
    assert_true(best_of(&facts).parts > 1);
    facts.not_parts = 1u << 1;
    assert_true(best_of(&facts).parts > 1);
}

static void a_number_of_parts_that_was_refused_is_not_tried_again(void **state)
{
    struct cn_layout_facts facts = alike(4, 12, 8 * MIB, 8 * KIB, 100000);

    (void)state;
    assert_int_equal(best_of(&facts).parts, 4);
    facts.not_parts = 1u << 4;
    assert_int_equal(best_of(&facts).parts, 3);
    facts.not_parts |= 1u << 3 | 1u << 2;
    assert_int_equal(best_of(&facts).parts, 1);
}

static void it_says_the_choice_the_next_best_and_why(void **state)
{
    struct cn_layout_facts facts = alike(4, 12, 8 * MIB, 8 * KIB, 100000);
    struct cn_layout_search search;
    char text[600];

    (void)state;
    cn_layout_search(&facts, &search);
    cn_layout_text(&search, names, text, sizeof(text));
    assert_string_equal(text,
                        "1 chain of 4 parts, 32 micro-batches a step: no member says how much "
                        "memory it has; 128 ms a step predicted, of which boards wait 37 %; next "
                        "best: 1 chain of 3 parts, 24 micro-batches a step, 1.14 times as long for "
                        "a sample, of which boards wait 27 %; without a cut: 2 replicas of 2 "
                        "shards, stage 1, 8 micro-batches a step, 8.46 times as long for a sample, "
                        "of which boards wait 93 %");
    facts = alike(2, 12, 8 * MIB, 8 * KIB, 100000000);
    facts.members[1].limit = 30 * MIB;
    facts.most_parts = 1;
    cn_layout_search(&facts, &search);
    cn_layout_text(&search, names, text, sizeof(text));
    assert_string_equal(
        text, "1 replica of 2 shards, stage 1, 4 micro-batches a step: 29440 KiB of "
              "30720 KiB on board-2; 40.5 ms a step predicted, of which boards wait 1 %; "
              "next best: 1 replica of 2 shards, stage 2, 4 micro-batches a step, 1.00 "
              "times as long for a sample, of which boards wait 2 %; 1 layout does not fit: "
              "the nearest lacks 2816 KiB on board-2");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_cut_is_the_best_of_all_cuts),
        cmocka_unit_test(a_chain_that_is_played_has_the_bubble_of_the_formula),
        cmocka_unit_test(a_gradient_travels_from_the_time_when_its_layers_are_done),
        cmocka_unit_test(buckets_whose_size_is_measured_become_small),
        cmocka_unit_test(shards_hide_what_travels_beside_a_pass),
        cmocka_unit_test(stage_3_fetches_the_last_blocks_once),
        cmocka_unit_test(a_thin_link_gets_a_pipeline_and_a_thick_one_gets_replicas),
        cmocka_unit_test(slow_sums_count_against_replicas),
        cmocka_unit_test(every_board_trains_that_can_whatever_the_link),
        cmocka_unit_test(no_micro_batches_count_as_one),
        cmocka_unit_test(unequal_boards_get_unequal_parts),
        cmocka_unit_test(what_does_not_fit_is_cut_or_named),
        cmocka_unit_test(the_lowest_stage_and_the_fewest_shards_that_fit_everybody),
        cmocka_unit_test(a_version_that_arrives_counts_where_its_copies_lie),
        cmocka_unit_test(a_version_that_arrives_counts_for_a_part),
        cmocka_unit_test(a_part_needs_a_copy_of_its_weights),
        cmocka_unit_test(times_below_zero_end_the_search),
        cmocka_unit_test(a_whole_model_of_unknown_need_is_not_chosen_before_a_chain),
        cmocka_unit_test(a_number_of_parts_that_was_refused_is_not_tried_again),
        cmocka_unit_test(it_says_the_choice_the_next_best_and_why),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
