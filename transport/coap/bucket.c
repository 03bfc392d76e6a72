#include "transport/coap/bucket.h"

bool cn_bucket_take(struct cn_bucket *bucket, double rate, double amount, uint64_t now_ms)
{
    double back = rate * (double)(now_ms - bucket->now_ms) / 1000;

    if (rate <= 0)
        return true;
    bucket->now_ms = now_ms;
    bucket->level = bucket->level > back ? bucket->level - back : 0;
    if (bucket->level >= CN_BUCKET_BURST_S * rate)
        return false;
    bucket->level += amount;
    return true;
}

void cn_bucket_charge(struct cn_bucket *bucket, double amount)
{
    bucket->level += amount;
}
