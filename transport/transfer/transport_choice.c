#include "transport/transfer/transport_choice.h"

#define SIZE_MIN (1u << 20) // bytes; a smaller transfer spends its time on round trips
#define AGAIN 32            // long transfers until the other transport is tried again
#define GAIN 1.1            // factor by which TCP has to be faster
#define WEIGHT 0.25

bool cn_transport_choice_add(struct cn_transport_choice *way, bool stream, uint64_t size,
                             double bps)
{
    double *mean = &way->bps[stream];

    if (size < SIZE_MIN || bps <= 0)
        return stream;
    // A rate that was halved or doubled is no noise: the path has changed.
    if (bps < *mean / 2 || bps > *mean * 2)
        *mean = bps;
    else
        *mean += WEIGHT * (bps - *mean);
    way->since[stream] = 0;
    if (++way->since[!stream] > AGAIN || way->bps[!stream] <= 0) {
        way->since[!stream] = 0;
        if (way->bps[!stream] <= 0)
            way->bps[!stream] = bps / 1e3; // counts as slow if it cannot connect
        return !stream;
    }
    return way->bps[true] > GAIN * way->bps[false];
}
