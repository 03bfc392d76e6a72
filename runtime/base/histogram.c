#include "runtime/base/histogram.h"

#include <stddef.h>

const double cn_histogram_work[CN_HISTOGRAM_BOUNDS] = {0.01, 0.03, 0.1, 0.3, 1,    3,
                                                       10,   30,   100, 300, 1000, 3600};
const double cn_histogram_pauses[CN_HISTOGRAM_BOUNDS] = {0.0003, 0.001, 0.003, 0.01, 0.03, 0.1,
                                                         0.3,    1,     3,     10,   30,   100};

void cn_histogram_add(struct cn_histogram *histogram, double seconds)
{
    size_t i = 0;
    while (i < CN_HISTOGRAM_BOUNDS && seconds > histogram->bounds[i])
        i++;
    histogram->counts[i]++;
    histogram->count++;
    histogram->sum += seconds;
}
