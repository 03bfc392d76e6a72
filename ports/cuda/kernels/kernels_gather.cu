// Gathers rows by their numbers. In the gradient, each row of dx collects its terms, in the order
// of the numbers, so that no two threads add to one word.
#include "ports/cuda/kernels/kernel_common.h"

// Returns the row that an index names. An index out of range is noted and read as 0.
DEVICE uint32_t row_of(const struct cuda_args *a, float word)
{
    int32_t rows = (int32_t)a->call.gather.rows, index = (int32_t)float_bits(word);

    if (index < -rows || index >= rows) {
        a->state->outside = 1;
        return 0;
    }
    return (uint32_t)(index < 0 ? index + rows : index);
}

KERNEL(gather)
{
    const struct cn_gather *op = &a.call.gather;
    uint32_t inner = (uint32_t)op->inner, count = (uint32_t)op->count;
    uint32_t size = (uint32_t)op->outer * count * inner, total = size * output_samples(&a);
    bool add = adds(&a);

    for (uint32_t i = first_index(); i < total; i += index_step()) {
        uint32_t n = i / size, rest = i % size;
        uint32_t o = rest / (count * inner), at = rest / inner % count;
        uint32_t row = row_of(&a, a.in[1][n * a.call.in[1].stride + at]);
        float x =
            a.in[0][n * a.call.in[0].stride + ((size_t)o * op->rows + row) * inner + rest % inner];

        put(&a.out[0][n * a.call.out[0].stride + rest], x, add);
    }
}

KERNEL(gather_elements)
{
    const struct cn_gather *op = &a.call.gather;
    uint32_t inner = (uint32_t)op->inner, count = (uint32_t)op->count;
    uint32_t size = (uint32_t)op->outer * count * inner, total = size * output_samples(&a);
    bool add = adds(&a);

    for (uint32_t i = first_index(); i < total; i += index_step()) {
        uint32_t n = i / size, rest = i % size, o = rest / (count * inner);
        uint32_t row = row_of(&a, a.in[1][n * a.call.in[1].stride + rest]);
        float x =
            a.in[0][n * a.call.in[0].stride + ((size_t)o * op->rows + row) * inner + rest % inner];

        put(&a.out[0][n * a.call.out[0].stride + rest], x, add);
    }
}

// Adds up rows of dy, of which a warp owns some columns, from `from` on. Bit j of found: the row of
// number base + j, counted over all samples, belongs to the sum. Four rows are on their way
// together.
DEVICE void add_hits(const struct cuda_args *a, uint32_t n, uint32_t o, uint32_t base,
                     uint32_t found, uint32_t from, float sum[CUDA_HIT_WORDS])
{
    const struct cn_gather *op = &a->call.gather;
    uint32_t count = (uint32_t)op->count, inner = (uint32_t)op->inner;

    for (uint32_t first = from + thread_index() % CUDA_WARP; found; base += 4, found >>= 4) {
        float term[4][CUDA_HIT_WORDS];

        if (!(found & 15))
            continue;
        UNROLL
        for (uint32_t j = 0; j < 4; j++) {
            uint32_t hit = base + j;
            const float *dy = a->in[0] + (n + hit / count) * a->call.in[0].stride +
                              ((size_t)o * count + hit % count) * inner;

            UNROLL
            for (uint32_t k = 0; k < CUDA_HIT_WORDS; k++)
                term[j][k] =
                    found >> j & 1 && first + k * CUDA_WARP < inner ? dy[first + k * CUDA_WARP] : 0;
        }
        UNROLL
        for (uint32_t i = 0; i < 4 * CUDA_HIT_WORDS; i++)
            sum[i % CUDA_HIT_WORDS] += term[i / CUDA_HIT_WORDS][i % CUDA_HIT_WORDS];
    }
}

// A warp owns a row of dx, or some columns of it, and a part of the numbers. It looks through them,
// 32 at a time, and adds the rows of dy that belong to its row. With several parts the sums go to
// the workspace, where sum_parts finds them; dx is shared by all samples then.
KERNEL(gather_grad)
{
    const struct cn_gather *op = &a.call.gather;
    bool shared = !a.call.out[0].stride, add = adds(&a);
    uint32_t samples = shared && a.call.in[0].stride ? run_samples(&a) : 1;
    uint32_t rows = (uint32_t)op->rows, count = (uint32_t)op->count, inner = (uint32_t)op->inner;
    uint32_t slots = (uint32_t)op->outer * rows, numbers = samples * count;
    uint32_t strips = CUDA_HIT_STRIPS(inner), share = (numbers + a.parts - 1) / a.parts;
    uint32_t total = slots * strips * (shared ? a.parts : a.samples);
    struct team team = team_of(&a);

    for (uint32_t unit = team.first; unit < total; unit += team.step) {
        uint32_t slot = unit / strips % slots, from = unit % strips * CUDA_HIT_WORDS * CUDA_WARP;
        uint32_t n = shared ? 0 : unit / strips / slots, part = shared ? unit / strips / slots : 0;
        uint32_t end = (part + 1) * share < numbers ? (part + 1) * share : numbers;
        float *dx = a.parts > 1 ? a.workspace + ((size_t)part * slots + slot) * inner
                                : a.out[0] + n * a.call.out[0].stride + (size_t)slot * inner;
        float sum[CUDA_HIT_WORDS] = {0};

        for (uint32_t base = part * share; base < end; base += CUDA_WARP) {
            uint32_t at = base + team.lane;
            bool inside = at < end;
            float word = inside ? a.in[1][(n + at / count) * a.call.in[1].stride + at % count] : 0;
            uint32_t found = warp_ballot(inside && row_of(&a, word) == slot % rows);

            add_hits(&a, n, slot / rows, base, found, from, sum);
        }
        UNROLL
        for (uint32_t k = 0; k < CUDA_HIT_WORDS; k++) {
            uint32_t i = from + k * CUDA_WARP + team.lane;

            if (i < inner)
                put(&dx[i], sum[k], add && a.parts == 1);
        }
    }
}

// Rows that no number names keep what they have, or become 0 in the first batch of a step.
KERNEL(gather_grad_clear)
{
    size_t total = a.call.gather.rows * a.call.gather.inner;

    if (adds(&a))
        return;
    for (size_t i = first_index(); i < total; i += index_step())
        a.out[0][i] = 0;
}

// For an embedding whose rows are more than the numbers of a batch. A warp owns a number and some
// columns. If it is the first number that names its row, the warp adds the terms of the row.
KERNEL(gather_grad_hits)
{
    const struct cn_gather *op = &a.call.gather;
    uint32_t samples = a.call.in[0].stride ? run_samples(&a) : 1;
    uint32_t count = (uint32_t)op->count, inner = (uint32_t)op->inner, numbers = samples * count;
    uint32_t strips = CUDA_HIT_STRIPS(inner);
    struct team team = team_of(&a);

    for (uint32_t slot = team.first; slot < numbers * strips; slot += team.step) {
        uint32_t own = slot / strips, from = slot % strips * CUDA_HIT_WORDS * CUDA_WARP;
        uint32_t earlier = 0;
        uint32_t row = row_of(&a, a.in[1][own / count * a.call.in[1].stride + own % count]);
        float sum[CUDA_HIT_WORDS] = {0};

        for (uint32_t base = 0; base < own && !earlier; base += CUDA_WARP) {
            uint32_t at = base + team.lane;
            bool inside = at < own;
            float word = inside ? a.in[1][at / count * a.call.in[1].stride + at % count] : 0;

            earlier = warp_ballot(inside && row_of(&a, word) == row);
        }
        if (earlier)
            continue;
        for (uint32_t base = own; base < numbers; base += CUDA_WARP) {
            uint32_t at = base + team.lane;
            bool inside = at < numbers;
            float word = inside ? a.in[1][at / count * a.call.in[1].stride + at % count] : 0;
            uint32_t found = warp_ballot(inside && row_of(&a, word) == row);

            add_hits(&a, 0, 0, base, found, from, sum);
        }
        UNROLL
        for (uint32_t k = 0; k < CUDA_HIT_WORDS; k++) {
            uint32_t i = from + k * CUDA_WARP + team.lane;

            if (i < inner)
                a.out[0][(size_t)row * inner + i] += sum[k];
        }
    }
}

// A thread owns an element of dx and looks through all numbers of its column.
KERNEL(gather_grad_elements)
{
    const struct cn_gather *op = &a.call.gather;
    bool shared = !a.call.out[0].stride, add = adds(&a);
    uint32_t samples = shared && a.call.in[0].stride ? run_samples(&a) : 1;
    uint32_t rows = (uint32_t)op->rows, count = (uint32_t)op->count, inner = (uint32_t)op->inner;
    uint32_t size = (uint32_t)op->outer * rows * inner, total = size * (shared ? 1 : a.samples);

    for (uint32_t i = first_index(); i < total; i += index_step()) {
        uint32_t n = i / size, o = i % size / (rows * inner), row = i % size / inner % rows;
        float sum = 0;

        for (uint32_t j = 0; j < samples * count; j++) {
            size_t at = ((size_t)o * count + j % count) * inner + i % inner;

            if (row_of(&a, a.in[1][(n + j / count) * a.call.in[1].stride + at]) == row)
                sum += a.in[0][(n + j / count) * a.call.in[0].stride + at];
        }
        put(&a.out[0][n * a.call.out[0].stride + i % size], sum, add);
    }
}
