// Gathers rows by their numbers. In the gradient, each row of dx collects its terms, in the order
// of the numbers, so that no two threads add to one word.
#include "ports/cuda/kernel_common.h"

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

// A warp owns a row of dx. It looks through all numbers, 32 at a time, and adds the rows of dy that
// belong to its row.
KERNEL(gather_grad)
{
    const struct cn_gather *op = &a.call.gather;
    bool shared = !a.call.out[0].stride, add = adds(&a);
    uint32_t samples = shared && a.call.in[0].stride ? run_samples(&a) : 1;
    uint32_t rows = (uint32_t)op->rows, count = (uint32_t)op->count, inner = (uint32_t)op->inner;
    uint32_t slots = (uint32_t)op->outer * rows;
    uint32_t total = slots * (shared ? 1 : a.samples), numbers = samples * count;
    struct team team = team_of(&a);

    for (uint32_t slot = team.first; slot < total; slot += team.step) {
        uint32_t n = slot / slots, o = slot % slots / rows, row = slot % rows;
        float *dx = a.out[0] + n * a.call.out[0].stride + (size_t)(slot % slots) * inner;

        for (uint32_t i = team.lane; !add && i < inner; i += CUDA_WARP)
            dx[i] = 0;
        for (uint32_t base = 0; base < numbers; base += CUDA_WARP) {
            uint32_t at = base + team.lane;
            bool inside = at < numbers;
            float word = inside ? a.in[1][(n + at / count) * a.call.in[1].stride + at % count] : 0;
            uint32_t found = warp_ballot(inside && row_of(&a, word) == row);

            for (uint32_t j = 0; found; j++, found >>= 1) {
                uint32_t hit = base + j;
                const float *dy = a.in[0] + (n + hit / count) * a.call.in[0].stride +
                                  ((size_t)o * count + hit % count) * inner;

                for (uint32_t i = team.lane; (found & 1) && i < inner; i += CUDA_WARP)
                    dx[i] += dy[i];
            }
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
    uint32_t width = CUDA_HIT_WORDS * CUDA_WARP, strips = (inner + width - 1) / width;
    struct team team = team_of(&a);

    for (uint32_t slot = team.first; slot < numbers * strips; slot += team.step) {
        uint32_t own = slot / strips, from = slot % strips * width, earlier = 0;
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

            for (uint32_t hit = base; found; hit++, found >>= 1) {
                const float *dy =
                    a.in[0] + hit / count * a.call.in[0].stride + (size_t)(hit % count) * inner;

                for (uint32_t k = 0; k < CUDA_HIT_WORDS; k++) {
                    uint32_t i = from + k * CUDA_WARP + team.lane;

                    if ((found & 1) && i < inner)
                        sum[k] += dy[i];
                }
            }
        }
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
