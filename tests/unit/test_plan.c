// Random lives and sizes: blocks that are alive together never overlap, and memory is reused.
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "runtime/base/random.h"
#include "runtime/engine/program/plan.h"

#define BLOCKS 120

static bool apart(const struct cn_plan_block *a, const struct cn_plan_block *b)
{
    return a->offset + a->words <= b->offset || b->offset + b->words <= a->offset;
}

static bool together(const struct cn_plan_block *a, const struct cn_plan_block *b)
{
    return a->first <= b->last && b->first <= a->last;
}

static void fill(struct cn_plan_block *blocks, size_t count, uint64_t seed)
{
    for (size_t i = 0; i < count; i++) {
        uint32_t random[4];

        cn_random_block(seed, 0, i, random);
        blocks[i] = (struct cn_plan_block){.words = random[0] % 5000, .first = random[1] % 60};
        blocks[i].last = blocks[i].first + random[2] % (random[3] % 20 + 1);
    }
}

static void blocks_alive_together_never_overlap(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 200; seed++) {
        struct cn_plan_block blocks[BLOCKS];
        size_t count = 1 + seed % BLOCKS;
        size_t total;

        fill(blocks, count, seed);
        assert_int_equal(cn_plan_place(blocks, count, &total), CN_OK);
        for (size_t i = 0; i < count; i++) {
            assert_int_equal(blocks[i].offset % CN_PLAN_ALIGNMENT, 0);
            assert_true(blocks[i].offset + blocks[i].words <= total);
            for (size_t j = 0; j < i; j++)
                assert_true(!together(&blocks[i], &blocks[j]) || apart(&blocks[i], &blocks[j]));
        }
    }
}

static int by_offset(const void *a, const void *b)
{
    const struct cn_plan_block *left = a, *right = b;

    return left->offset < right->offset ? -1 : left->offset > right->offset;
}

// As many as a hostile model can have are placed at once, and its memory is reused too.
static void a_million_blocks_are_placed_quickly(void **state)
{
    size_t count = 1000000, total, alive = 0;
    struct cn_plan_block *blocks = malloc(count * sizeof(*blocks));
    struct cn_plan_block *now = malloc(count * sizeof(*now));

    (void)state;
    for (size_t i = 0; i < count; i++) {
        uint32_t random[4];

        cn_random_block(7, 0, i, random);
        blocks[i] = (struct cn_plan_block){.words = random[0] % 5000, .first = i};
        blocks[i].last = i + random[1] % 50;
    }
    assert_int_equal(cn_plan_place(blocks, count, &total), CN_OK);
    assert_true(total < 1000 * 5000);
    for (size_t step = 0; step < count; step += 997) {
        alive = 0;
        for (size_t i = step < 50 ? 0 : step - 50; i <= step; i++)
            if (blocks[i].last >= step)
                now[alive++] = blocks[i];
        qsort(now, alive, sizeof(*now), by_offset);
        for (size_t i = 1; i < alive; i++)
            assert_true(now[i - 1].offset + now[i - 1].words <= now[i].offset);
    }
    assert_true(now[alive - 1].offset + now[alive - 1].words <= total);
    free(blocks);
    free(now);
}

static void a_chain_needs_two_blocks_of_memory(void **state)
{
    struct cn_plan_block blocks[50];
    size_t total;

    (void)state;
    for (size_t i = 0; i < 50; i++)
        blocks[i] = (struct cn_plan_block){.words = 160, .first = i, .last = i + 1};
    assert_int_equal(cn_plan_place(blocks, 50, &total), CN_OK);
    assert_int_equal(total, 320);
}

static void sizes_that_overflow_are_refused(void **state)
{
    struct cn_plan_block blocks[] = {{.words = SIZE_MAX / 2}, {.words = SIZE_MAX / 2 + 2}};
    size_t total;

    (void)state;
    assert_int_equal(cn_plan_place(blocks, 2, &total), CN_ENOMEM);
    assert_int_equal(cn_plan_place(blocks, 0, &total), CN_OK);
    assert_int_equal(total, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(blocks_alive_together_never_overlap),
        cmocka_unit_test(a_million_blocks_are_placed_quickly),
        cmocka_unit_test(a_chain_needs_two_blocks_of_memory),
        cmocka_unit_test(sizes_that_overflow_are_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
