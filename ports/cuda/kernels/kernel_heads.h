// kernel_heads.h - where the kernels of attention find the rows of a head.
#pragma once

#include "ports/cuda/kernels/kernel_common.h"

// A matrix of one head. Row r begins r * leading words after base.
struct rows {
    const float *base;
    uint32_t count, width;
    size_t leading;
    bool by_four; // all rows begin at a multiple of 16 bytes, and their width is a multiple of 4
};

// Returns four neighbouring words of a row; 0 for words beyond the end of the matrix.
DEVICE struct four four_of(const struct rows *m, uint32_t row, uint32_t col)
{
    struct four four = {{0, 0, 0, 0}};
    const float *from;

    if (row >= m->count || col >= m->width)
        return four;
    from = m->base + row * m->leading + col;
    if (m->by_four)
        return load_four(from);
    UNROLL
    for (uint32_t i = 0; i < 4; i++)
        four.at[i] = col + i < m->width ? from[i] : 0;
    return four;
}

// A head of a sample, and the first of the `side` rows of it that this block works on.
struct head {
    uint32_t n, number, first;
};

// Returns the number of blocks for the rows of one head.
DEVICE uint32_t head_blocks(uint32_t rows, uint32_t side)
{
    return (rows + side - 1) / side;
}

// last_first: the last rows begin first. With a causal mask they have the most work.
DEVICE struct head head_of(const struct cn_attention *op, uint32_t block, uint32_t rows,
                           uint32_t side, bool last_first)
{
    uint32_t blocks = head_blocks(rows, side), tile = block % blocks;
    struct head head;

    head.number = block / blocks % (uint32_t)op->heads;
    head.n = block / blocks / (uint32_t)op->heads;
    head.first = (last_first ? blocks - 1 - tile : tile) * side;
    return head;
}

// Returns the first word of a head's matrix in an operand.
DEVICE float *head_base(float *operand, size_t stride, const struct cn_heads *heads,
                        const struct head *head)
{
    return operand + head->n * stride + heads->offset + head->number * heads->head;
}

DEVICE struct rows rows_of(const struct cuda_args *a, int in, const struct head *head,
                           const struct cn_heads *heads, size_t count, size_t width)
{
    struct rows m;

    m.base = head_base(a->in[in], a->call.in[in].stride, heads, head);
    m.count = (uint32_t)count;
    m.width = (uint32_t)width;
    m.leading = heads->row;
    m.by_four = ((uintptr_t)m.base % 16 | m.leading % 4 | m.width % 4) == 0;
    return m;
}

// Returns the score of q row q and k row k; -INFINITY where it is masked or beyond the end.
DEVICE float masked_score(const struct cn_attention *op, const float *mask, float dot, uint32_t q,
                          uint32_t k)
{
    float score = dot * op->scale;

    if (k >= op->k_rows || q >= op->q_rows || (op->causal && k > q))
        return -INFINITY;
    return mask ? score + mask[(size_t)q * op->k_rows + k] : score;
}

// Returns the end of the rows of k that the block needs.
DEVICE uint32_t k_end(const struct cn_attention *op, const struct head *head, uint32_t side)
{
    uint32_t end = (uint32_t)op->k_rows, seen = head->first + side;

    return op->causal && seen < end ? seen : end;
}
