// bucket.h - a token bucket: so much a second, with a burst of a few seconds. Pure.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#define CN_BUCKET_BURST_S 4

struct cn_bucket {
    double level; // tokens that were taken and have not come back
    uint64_t now_ms;
};

// Takes amount when less than the burst was taken lately. rate: tokens a second; 0: no limit.
bool cn_bucket_take(struct cn_bucket *bucket, double rate, double amount, uint64_t now_ms);

// Takes what was granted before its amount was known, also beyond the burst.
void cn_bucket_charge(struct cn_bucket *bucket, double amount);
