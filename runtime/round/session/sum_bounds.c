#include "runtime/round/session/sum_bounds.h"

#include <math.h>

bool cn_sum_is_measured(float loss, float correct, float rows)
{
    return rows >= 0 && rows <= CN_SUM_COUNT_MOST && correct >= 0 && correct <= rows &&
           (!isfinite(loss) || fabs((double)loss) < CN_SUM_LOSS_MOST);
}

double cn_sum_within(double value, double least, double most, double otherwise)
{
    return value >= least && value <= most ? value : otherwise;
}

bool cn_sum_bound_step(struct cn_step_sums *sums, float most)
{
    bool fits = true;

    if (!(sums->samples > 0 && sums->samples <= most)) {
        sums->samples = most;
        fits = false;
    }
    if (!(sums->weight >= 0) || isinf(sums->weight)) {
        sums->weight = sums->samples;
        fits = false;
    }
    if (!(fabs((double)sums->loss) < CN_SUM_LOSS_MOST)) {
        sums->loss = 0;
        fits = false;
    }
    return fits;
}
