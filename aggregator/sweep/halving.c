#include "aggregator/sweep/halving.h"

#include <math.h>

// Returns how many trials begin a rung, without ties.
static uint32_t begin_of(const struct cn_halving *plan, uint32_t rung)
{
    uint32_t count = plan->trials;
    while (rung-- && count > 1)
        count /= plan->factor;
    return count ? count : 1;
}

uint32_t cn_halving_rungs(const struct cn_halving *plan)
{
    uint32_t rungs = 1;
    while (begin_of(plan, rungs - 1) > 1)
        rungs++;
    return rungs;
}

uint32_t cn_halving_rounds(const struct cn_halving *plan, uint32_t rung)
{
    uint32_t rounds = plan->first;
    while (rung--)
        if (__builtin_mul_overflow(rounds, plan->factor, &rounds))
            return UINT32_MAX;
    return rounds;
}

// Says whether a trial has a lower loss than another, or the same one and a lower number.
static bool is_before(const double *losses, uint32_t a, uint32_t b)
{
    return losses[a] < losses[b] || (losses[a] == losses[b] && a < b);
}

// Returns the trial at place `place` (from 0) in the order of losses, or UINT32_MAX when too few
// trials have a finite loss.
static uint32_t find_place(uint32_t trials, const double *losses, const bool *in, uint32_t place)
{
    for (uint32_t i = 0; i < trials; i++) {
        uint32_t before = 0;
        if (!in[i] || !isfinite(losses[i]))
            continue;
        for (uint32_t j = 0; j < trials; j++)
            before += in[j] && isfinite(losses[j]) && is_before(losses, j, i);
        if (before == place)
            return i;
    }
    return UINT32_MAX;
}

void cn_halving_select(const struct cn_halving *plan, uint32_t rung, const double *losses, bool *in)
{
    uint32_t last = find_place(plan->trials, losses, in, begin_of(plan, rung + 1) - 1);
    double limit = last == UINT32_MAX ? INFINITY : losses[last];
    for (uint32_t i = 0; i < plan->trials; i++)
        in[i] = in[i] && isfinite(losses[i]) && losses[i] <= limit;
}

uint32_t cn_halving_best(uint32_t trials, const double *losses, const bool *in)
{
    return find_place(trials, losses, in, 0);
}
