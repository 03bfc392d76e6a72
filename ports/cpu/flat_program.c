#include "ports/cpu/flat_program.h"

#include <assert.h>
#include <math.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "ports/cpu/flat.h"

#define LINE_WORDS 16 // words of a cache line, on which two lanes' shares meet

// Consecutive calls of one kind that run as one pass over the lanes.
struct pass {
    const struct cpu_flat_arenas *arenas;
    const struct cn_call *calls;
    size_t count;
    const struct cn_hyper *hyper;
    double *sums;
    const float *clip; // set once a CLIP call has run
    atomic_bool finite;
};

// Returns the first of a lane's share of count things. The next lane's first is its end.
static size_t share(size_t count, uint32_t lane, uint32_t lanes)
{
    return count / lanes * lane + count % lanes * lane / lanes;
}

// Returns the size of a lane's share and sets its first.
static size_t share_of(size_t count, const struct pass *pass, uint32_t lane, size_t *first)
{
    *first = share(count, lane, pass->arenas->lanes);
    return share(count, lane + 1, pass->arenas->lanes) - *first;
}

// Adds the gradients of all lanes to those of lane 0, for this lane's share of the words.
static void sum_lane(void *context, uint32_t lane)
{
    const struct pass *pass = context;
    const struct cn_range *range = &pass->calls->range;
    size_t words = range->count ? range->count : pass->arenas->gradient_words;
    size_t first, count = share_of(words, pass, lane, &first);
    float *total = pass->arenas->gradients + range->gradients + first;

    for (uint32_t i = 1; i < pass->arenas->lanes; i++)
        cpu_flat_add(total, total + i * pass->arenas->lane_words, count);
}

static void check_lane(void *context, uint32_t lane)
{
    struct pass *pass = context;
    size_t first, count = share_of(pass->arenas->gradient_words, pass, lane, &first);

    if (!cpu_flat_finite(pass->arenas->gradients + first, count))
        atomic_store(&pass->finite, false);
}

static size_t chunks_of(size_t count)
{
    return count / CPU_FLAT_CHUNK + (count % CPU_FLAT_CHUNK != 0);
}

// Adds up squares chunk by chunk. The chunks go to the lanes in turn; which lane adds one does not
// change the sum.
static void squares_lane(void *context, uint32_t lane)
{
    const struct pass *pass = context;
    size_t sum = 0;

    for (size_t i = 0; i < pass->count; i++) {
        const struct cn_range *range = &pass->calls[i].range;

        for (size_t at = 0; at < range->count; at += CPU_FLAT_CHUNK, sum++) {
            size_t left = range->count - at;

            if (sum % pass->arenas->lanes == lane)
                pass->sums[sum] = cpu_flat_squares(pass->arenas->gradients + range->gradients + at,
                                                   left < CPU_FLAT_CHUNK ? left : CPU_FLAT_CHUNK,
                                                   pass->hyper->gradient_scale);
        }
    }
}

// Runs words [first, first + count) of one call's range.
static void step_range(const struct pass *pass, const struct cn_call *call, size_t first,
                       size_t count)
{
    const struct cpu_flat_arenas *arenas = pass->arenas;
    const struct cn_range *range = &call->range;
    size_t at = range->weights + first;
    struct cpu_flat flat = {
        .gradients = (range->share ? arenas->share : arenas->gradients) + range->gradients + first,
        .weights = (range->own ? arenas->own : arenas->weights) + at,
        .first = call->op == CN_OP_STATISTIC ? NULL : arenas->first + (at - range->state_from),
        .second = call->op == CN_OP_ADAM ? arenas->second + (at - range->state_from) : NULL,
        .base = range->proximal ? arenas->base + at : NULL,
        .count = count,
    };

    if (call->op == CN_OP_SGD)
        cpu_flat_sgd(pass->hyper, range, pass->clip, &flat);
    else if (call->op == CN_OP_ADAM)
        cpu_flat_adam(pass->hyper, range, pass->clip, &flat);
    else
        cpu_flat_statistic(pass->hyper, range, &flat);
}

// Runs a lane's share of all ranges together. Shares begin and end at cache lines of that row of
// words.
static void step_lane(void *context, uint32_t lane)
{
    const struct pass *pass = context;
    uint32_t lanes = pass->arenas->lanes;
    size_t total = 0, before = 0, begin, end;

    for (size_t i = 0; i < pass->count; i++)
        total += pass->calls[i].range.count;
    begin = share(total, lane, lanes) / LINE_WORDS * LINE_WORDS;
    end = lane + 1 == lanes ? total : share(total, lane + 1, lanes) / LINE_WORDS * LINE_WORDS;
    for (size_t i = 0; i < pass->count; i++) {
        size_t count = pass->calls[i].range.count;
        size_t from = begin > before ? begin - before : 0;
        size_t to = end > before ? end - before : 0;

        to = to < count ? to : count;
        if (from < to)
            step_range(pass, &pass->calls[i], from, to - from);
        before += count;
    }
}

static double norm_of(const struct pass *pass)
{
    double *sums = pass->sums;
    double total = 0;

    for (size_t i = 0; i < pass->count; i++) {
        size_t chunks = chunks_of(pass->calls[i].range.count);

        total += cpu_flat_sum(sums, chunks);
        sums += chunks;
    }
    return sqrt(total);
}

// Returns whether call may be in one pass with the call before it.
static bool same_pass(const struct cn_call *before, const struct cn_call *call)
{
    return (before->op == CN_OP_CLIP && call->op == CN_OP_CLIP) ||
           (before->op >= CN_OP_SGD && call->op >= CN_OP_SGD);
}

size_t cpu_flat_program_sums(const struct cn_call *calls, size_t count)
{
    size_t sums = 0;

    for (size_t i = 0; i < count; i++)
        if (calls[i].op == CN_OP_CLIP)
            sums += chunks_of(calls[i].range.count);
    return sums;
}

static void (*const work[CN_OP_COUNT])(void *context, uint32_t lane) = {
    [CN_OP_SUM_LANES] = sum_lane, [CN_OP_CHECK] = check_lane, [CN_OP_CLIP] = squares_lane,
    [CN_OP_SGD] = step_lane,      [CN_OP_ADAM] = step_lane,   [CN_OP_STATISTIC] = step_lane,
};

void cpu_flat_program_run(struct cpu_lanes *threads, const struct cpu_flat_arenas *arenas,
                          const struct cn_call *calls, size_t count, const struct cn_hyper *hyper,
                          double *sums, struct cn_compute_result *result)
{
    struct pass pass = {.arenas = arenas, .hyper = hyper, .sums = sums, .finite = true};
    float clip;

    for (size_t i = 0; i < count && atomic_load(&pass.finite); i += pass.count) {
        pass.calls = calls + i;
        pass.count = 1;
        while (i + pass.count < count && same_pass(&calls[i], &calls[i + pass.count]))
            pass.count++;
        assert(calls[i].op >= CN_OP_BATCH_COUNT); // else a batch call in a flat program
        cpu_lanes_run(threads, work[calls[i].op], &pass);
        if (calls[i].op != CN_OP_CLIP)
            continue;
        result->norm = norm_of(&pass);
        clip = cpu_flat_clip(hyper->clip, result->norm);
        pass.clip = &clip;
    }
    result->finite = result->finite && atomic_load(&pass.finite);
}
