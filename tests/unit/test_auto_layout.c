// The choices of "parallel: auto", as a table of cases.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
// cmocka.h needs the four above.
#include <cmocka.h>
#include <string.h>

#include "runtime/group/auto_layout.h"

#define MIB (1ull << 20)

// So many members alike: 60 MiB beside a state of 40 MiB, in stage 2 50 beside 60, in stage 3 30
// beside 80; 10 ms for a micro-batch, 10 MiB of gradients.
static struct cn_auto_facts alike(uint32_t count, uint64_t limit, uint64_t link_kbps)
{
    struct cn_auto_facts facts = {
        .count = count, .gradients = 10 * MIB, .link_kbps = link_kbps, .micro = 1};

    for (uint32_t m = 0; m < count; m++)
        facts.members[m] = (struct cn_auto_member){
            .limit = limit,
            .needs = {{60 * MIB, 40 * MIB}, {50 * MIB, 60 * MIB}, {30 * MIB, 80 * MIB}},
            .micro_us = 10000};
    return facts;
}

static void the_lowest_stage_and_the_fewest_shards_that_fit_everybody(void **state)
{
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
        {8, 63, 8, 1, 2, true},  {6, 66, 6, 1, 2, true},  {8, 52, 4, 2, 3, true},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct cn_auto_facts facts = alike(rows[i].count, rows[i].limit * MIB, 0);
        struct cn_auto_layout layout;

        cn_auto_layout_choose(&facts, &layout);
        if (layout.shards != rows[i].shards || layout.replicas != rows[i].replicas ||
            layout.stage != rows[i].stage || layout.fits != rows[i].fits)
            fail_msg("row %zu: %u shards, %u replicas, stage %u", i, layout.shards, layout.replicas,
                     layout.stage);
    }
}

static void the_smallest_member_counts(void **state)
{
    struct cn_auto_facts facts = alike(4, 1000 * MIB, 0);
    struct cn_auto_layout layout;

    (void)state;
    facts.members[2].limit = 85 * MIB;
    facts.members[0].limit = 0; // says nothing
    cn_auto_layout_choose(&facts, &layout);
    assert_int_equal(layout.shards, 2);
    assert_int_equal(layout.tightest.member, 2);
    assert_int_equal(layout.tightest.has, 85 * MIB);
    assert_int_equal(layout.tightest.needs, 80 * MIB);
}

static void a_slow_wire_gets_more_micro_batches(void **state)
{
    // Two members send 10 MiB of gradients each: 84 ms at 1 Gbit/s, beside 6 ms of backward pass.
    static const struct {
        uint64_t kbps;
        uint32_t wants, micro;
    } rows[] = {
        {0, 1, 1},        {0, 3, 3},       {100000000, 1, 1}, {10000000, 1, 1},  {5000000, 1, 8},
        {1000000, 1, 16}, {100000, 1, 16}, {5000000, 3, 6},   {1000000, 20, 20}, {100000, 16, 16},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct cn_auto_facts facts = alike(2, 0, rows[i].kbps);
        struct cn_auto_layout layout;

        facts.micro = rows[i].wants;
        cn_auto_layout_choose(&facts, &layout);
        assert_int_equal(layout.micro, rows[i].micro);
    }
}

// What travels in each micro-batch is not waited for less by having more of them.
static void more_micro_batches_help_only_what_travels_once_a_step(void **state)
{
    static const struct {
        uint64_t limit; // MiB
        uint32_t stage, micro;
    } rows[] = {{100, 1, 8}, {69, 2, 4}, {60, 3, 1}};

    (void)state;
    for (size_t i = 0; i < 3; i++) {
        struct cn_auto_facts facts = alike(4, rows[i].limit * MIB, 6600000);
        struct cn_auto_layout layout;

        cn_auto_layout_choose(&facts, &layout);
        assert_int_equal(layout.stage, rows[i].stage);
        assert_int_equal(layout.micro, rows[i].micro);
    }
}

static void a_slow_member_hides_more_of_the_wire(void **state)
{
    struct cn_auto_facts facts = alike(2, 0, 5000000);
    struct cn_auto_layout layout;

    (void)state;
    facts.members[1].micro_us = 100000;
    cn_auto_layout_choose(&facts, &layout);
    assert_int_equal(layout.micro, 1);
    assert_int_equal(layout.micro_us, 100000);
}

static void it_says_why(void **state)
{
    static const char *const names[] = {"board-1", "board-2", "board-3", "board-4"};
    struct cn_auto_facts facts = alike(4, 85 * MIB, 1000000);
    struct cn_auto_layout layout;
    char text[300];

    (void)state;
    cn_auto_layout_choose(&facts, &layout);
    cn_auto_layout_text(&layout, names, text, sizeof(text));
    assert_string_equal(text,
                        "2 replicas of 2 shards, stage 1, 16 micro-batches a step: 81920 KiB of "
                        "87040 KiB on board-1; 10 ms for a micro-batch, 126 ms for gradients on "
                        "the wire");
    facts = alike(4, 0, 0);
    facts.members[2].limit = 69 * MIB;
    cn_auto_layout_choose(&facts, &layout);
    cn_auto_layout_text(&layout, names, text, sizeof(text));
    assert_string_equal(text, "1 replica of 4 shards, stage 2, 1 micro-batch a step: 66560 KiB of "
                              "70656 KiB on board-3, stage 1 would take 71680 KiB of board-3; "
                              "10 ms for a micro-batch, 0 ms for gradients on the wire");
    facts = alike(1, 0, 0);
    cn_auto_layout_choose(&facts, &layout);
    cn_auto_layout_text(&layout, names, text, sizeof(text));
    assert_non_null(strstr(text, "1 replica of 1 shard, 1 micro-batch a step: no member says"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_lowest_stage_and_the_fewest_shards_that_fit_everybody),
        cmocka_unit_test(the_smallest_member_counts),
        cmocka_unit_test(more_micro_batches_help_only_what_travels_once_a_step),
        cmocka_unit_test(a_slow_wire_gets_more_micro_batches),
        cmocka_unit_test(a_slow_member_hides_more_of_the_wire),
        cmocka_unit_test(it_says_why),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
