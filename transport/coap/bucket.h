// bucket.h - a token bucket: limits a rate, but allows a burst of a few seconds. Pure functions.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#define CN_BUCKET_BURST_S 4 // the burst is what the rate gives in this time

struct cn_bucket {
    double level;    // tokens taken and not yet refilled
    uint64_t now_ms; // time of the last take, to which level belongs
};

// Takes amount and returns true when fewer tokens than the burst are missing; otherwise takes
// nothing and returns false. A take may exceed the burst. rate: tokens per second; 0: no limit.
bool cn_bucket_take(struct cn_bucket *bucket, double rate, double amount, uint64_t now_ms);

// Tells whether take would grant at that time.
bool cn_bucket_has(const struct cn_bucket *bucket, double rate, uint64_t now_ms);

// Takes amount without a check, for work that was granted before its amount was known.
void cn_bucket_charge(struct cn_bucket *bucket, double amount);
