#include "transport/coap/bucket.h"

// Returns the level at a later time.
static double level_at(const struct cn_bucket *bucket, double rate, uint64_t now_ms)
{
    double back = rate * (double)(now_ms - bucket->now_ms) / 1000;

    return bucket->level > back ? bucket->level - back : 0;
}

bool cn_bucket_has(const struct cn_bucket *bucket, double rate, uint64_t now_ms)
{
    return rate <= 0 || level_at(bucket, rate, now_ms) < CN_BUCKET_BURST_S * rate;
}

bool cn_bucket_take(struct cn_bucket *bucket, double rate, double amount, uint64_t now_ms)
{
    if (rate <= 0)
        return true;
    bucket->level = level_at(bucket, rate, now_ms);
    bucket->now_ms = now_ms;
    if (bucket->level >= CN_BUCKET_BURST_S * rate)
        return false;
    bucket->level += amount;
    return true;
}

void cn_bucket_charge(struct cn_bucket *bucket, double amount)
{
    bucket->level += amount;
}
