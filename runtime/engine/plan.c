#include "runtime/engine/plan.h"

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

cn_err cn_plan_place(struct cn_plan_block *blocks, size_t count, size_t *total)
{
    struct cn_plan_block **order = malloc((2 * count + 1) * sizeof(void *));
    struct cn_plan_block **placed = order + count;
    size_t sum = 0;
    cn_err err = order ? CN_OK : CN_ENOMEM;

    *total = 0;
    for (size_t i = 0; !err && i < count; i++) {
        size_t rest = blocks[i].words % CN_PLAN_ALIGNMENT;

        blocks[i].words += rest ? CN_PLAN_ALIGNMENT - rest : 0;
        order[i] = &blocks[i];
        if (__builtin_add_overflow(sum, blocks[i].words, &sum) || sum > SIZE_MAX / 8)
            err = CN_ENOMEM;
    }
    if (!err)
        qsort(order, count, sizeof(void *), by_size);
    for (size_t i = 0; !err && i < count; i++) {
        place(placed, i, order[i]);
        if (order[i]->offset + order[i]->words > *total)
            *total = order[i]->offset + order[i]->words;
    }
    free(order);
    return err;
}
