#include "runtime/engine/program/plan.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>

static int by_size(const void *a, const void *b)
{
    const struct cn_plan_block *left = *(struct cn_plan_block *const *)a;
    const struct cn_plan_block *right = *(struct cn_plan_block *const *)b;

    if (left->words != right->words)
        return left->words > right->words ? -1 : 1;
    // A total order, so that every board gets the same plan.
    return left < right ? -1 : left > right;
}

static bool live_together(const struct cn_plan_block *a, const struct cn_plan_block *b)
{
    return a->first <= b->last && b->first <= a->last;
}

// Inserts block into the placed ones, which are kept in the order of their offsets.
static void insert(struct cn_plan_block **placed, size_t count, struct cn_plan_block *block)
{
    size_t i = count;

    for (; i > 0 && placed[i - 1]->offset > block->offset; i--)
        placed[i] = placed[i - 1];
    placed[i] = block;
}

static void place(struct cn_plan_block **placed, size_t count, struct cn_plan_block *block)
{
    size_t offset = 0;

    for (size_t i = 0; i < count; i++) {
        const struct cn_plan_block *other = placed[i];

        if (!live_together(block, other))
            continue;
        if (other->offset >= offset + block->words)
            break;
        if (other->offset + other->words > offset)
            offset = other->offset + other->words;
    }
    block->offset = offset;
    insert(placed, count, block);
}

// Finds the best places; it compares each block with all before it.
static void place_all(struct cn_plan_block *blocks, struct cn_plan_block **order, size_t count,
                      size_t *total)
{
    struct cn_plan_block **placed = order + count;

    for (size_t i = 0; i < count; i++)
        order[i] = &blocks[i];
    qsort(order, count, sizeof(void *), by_size);
    for (size_t i = 0; i < count; i++) {
        place(placed, i, order[i]);
        if (order[i]->offset + order[i]->words > *total)
            *total = order[i]->offset + order[i]->words;
    }
}

static int by_first(const void *a, const void *b)
{
    const struct cn_plan_block *left = *(struct cn_plan_block *const *)a;
    const struct cn_plan_block *right = *(struct cn_plan_block *const *)b;

    if (left->first != right->first)
        return left->first < right->first ? -1 : 1;
    return left < right ? -1 : left > right;
}

static int by_last(const void *a, const void *b)
{
    const struct cn_plan_block *left = *(struct cn_plan_block *const *)a;
    const struct cn_plan_block *right = *(struct cn_plan_block *const *)b;

    if (left->last != right->last)
        return left->last < right->last ? -1 : 1;
    return left < right ? -1 : left > right;
}

// Returns the class of a size: there are four classes for each power of two.
#define CLASSES (4 * 64)

static size_t class_of(size_t words, size_t *size)
{
    size_t units = words / CN_PLAN_ALIGNMENT;
    unsigned power = units > 4 ? 63 - (unsigned)__builtin_clzll(units) - 2 : 0;
    size_t quarters = (units + ((size_t)1 << power) - 1) >> power;

    *size = (quarters << power) * CN_PLAN_ALIGNMENT;
    return 4 * power + quarters;
}

// Places blocks in the order in which they are needed, each where a block of its class has ended.
static void place_in_turn(struct cn_plan_block *blocks, struct cn_plan_block **order, size_t count,
                          size_t *total)
{
    struct cn_plan_block **ends = order + count;
    struct cn_plan_block **next = ends + count; // the next free block of the same class
    struct cn_plan_block *free_blocks[CLASSES + 5] = {NULL};
    size_t ended = 0;

    for (size_t i = 0; i < count; i++)
        order[i] = ends[i] = &blocks[i];
    qsort(order, count, sizeof(void *), by_first);
    qsort(ends, count, sizeof(void *), by_last);
    for (size_t i = 0; i < count; i++) {
        size_t size, class = class_of(order[i]->words, &size);

        for (; ends[ended]->last < order[i]->first; ended++) {
            size_t unused, of = class_of(ends[ended]->words, &unused);

            next[ends[ended] - blocks] = free_blocks[of];
            free_blocks[of] = ends[ended];
        }
        if (free_blocks[class]) {
            order[i]->offset = free_blocks[class]->offset;
            free_blocks[class] = next[free_blocks[class] - blocks];
        } else {
            order[i]->offset = *total;
            *total += size;
        }
    }
}

cn_err cn_plan_place(struct cn_plan_block *blocks, size_t count, size_t *total)
{
    struct cn_plan_block **order = malloc((3 * count + 1) * sizeof(void *));
    size_t sum = 0;
    cn_err err = order ? CN_OK : CN_ENOMEM;

    *total = 0;
    for (size_t i = 0; !err && i < count; i++) {
        size_t rest = blocks[i].words % CN_PLAN_ALIGNMENT;

        if (blocks[i].words > SIZE_MAX / 16) {
            err = CN_ENOMEM;
            break;
        }
        blocks[i].words += rest ? CN_PLAN_ALIGNMENT - rest : 0;
        if (__builtin_add_overflow(sum, blocks[i].words, &sum) || sum > SIZE_MAX / 16)
            err = CN_ENOMEM;
    }
    if (!err && count <= CN_PLAN_BEST)
        place_all(blocks, order, count, total);
    else if (!err)
        place_in_turn(blocks, order, count, total);
    free(order);
    return err;
}
