#include "runtime/group/balance.h"

#include <string.h>

#define STEPS_LEAST 8  // measured steps before the first change
#define FOLLOWS 8      // length of the moving averages, in steps
#define FORGETS 0.99   // an idle place's time is multiplied by it after each step
#define HYSTERESIS 0.9 // a change has to bring a step below this share of its present time

void cn_balance_add(struct cn_balance *balance, const uint32_t *micro, const double *computed_ms,
                    uint32_t count)
{
    for (uint32_t p = 0; p < count; p++) {
        double *ms = &balance->ms[p];
        double now = micro[p] ? computed_ms[p] / micro[p] : 0;

        if (!micro[p])
            *ms *= FORGETS;
        else
            *ms += *ms > 0 ? (now - *ms) / FOLLOWS : now;
    }
    balance->steps++;
}

static double slowest(const struct cn_balance *balance, const uint32_t *micro, uint32_t count)
{
    double most = 0;

    for (uint32_t p = 0; p < count; p++)
        if (micro[p] * balance->ms[p] > most)
            most = micro[p] * balance->ms[p];
    return most;
}

// Returns the place that would finish first with one more micro-batch.
static uint32_t quickest(const struct cn_balance *balance, const uint32_t *micro, uint32_t count)
{
    uint32_t best = 0;

    for (uint32_t p = 1; p < count; p++)
        if ((micro[p] + 1) * balance->ms[p] < (micro[best] + 1) * balance->ms[best])
            best = p;
    return best;
}

bool cn_balance_divide(const struct cn_balance *balance, uint32_t count, uint32_t *micro)
{
    uint32_t next[CN_GROUP_MAX] = {0};
    uint32_t total = 0, given = 0;
    double speed = 0;

    for (uint32_t p = 0; p < count; p++) {
        if (!(balance->ms[p] > 0))
            return false;
        total += micro[p];
        speed += 1 / balance->ms[p];
    }
    if (balance->steps < STEPS_LEAST)
        return false;
    for (uint32_t p = 0; p < count; p++) {
        next[p] = (uint32_t)(total * (1 / balance->ms[p] / speed));
        given += next[p];
    }
    for (; given < total; given++)
        next[quickest(balance, next, count)]++;
    if (given > total ||
        slowest(balance, next, count) >= HYSTERESIS * slowest(balance, micro, count))
        return false;
    memcpy(micro, next, count * sizeof(*micro));
    return true;
}
