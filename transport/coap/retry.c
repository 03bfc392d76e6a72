#include "transport/coap/retry.h"

#include "runtime/base/random.h"

#define TIMEOUT_FIRST_US 1000000u // RFC 6298, 2.1
#define TIMEOUT_MIN_US 100000u
#define TIMEOUT_MAX_US 16000000u
#define GRANULARITY_US 10000u

void cn_rtt_add(struct cn_rtt *rtt, uint64_t sample_us)
{
    uint64_t sample = sample_us ? sample_us : 1;
    uint64_t distance;

    rtt->backoff = 0;
    if (!rtt->srtt_us) {
        rtt->srtt_us = sample;
        rtt->variation_us = sample / 2;
        return;
    }
    distance = sample > rtt->srtt_us ? sample - rtt->srtt_us : rtt->srtt_us - sample;
    rtt->variation_us = (3 * rtt->variation_us + distance) / 4;
    rtt->srtt_us = (7 * rtt->srtt_us + sample) / 8;
}

void cn_rtt_back_off(struct cn_rtt *rtt)
{
    if (rtt->backoff < 10)
        rtt->backoff++;
}

uint64_t cn_rtt_timeout_us(const struct cn_rtt *rtt)
{
    uint64_t spread = 4 * rtt->variation_us;
    uint64_t timeout = TIMEOUT_FIRST_US;

    if (rtt->srtt_us)
        timeout = rtt->srtt_us + (spread > GRANULARITY_US ? spread : GRANULARITY_US);
    if (timeout < TIMEOUT_MIN_US)
        timeout = TIMEOUT_MIN_US;
    timeout <<= rtt->backoff;
    return timeout < TIMEOUT_MAX_US ? timeout : TIMEOUT_MAX_US;
}

uint64_t cn_backoff_next_ms(struct cn_backoff *backoff)
{
    uint64_t delay = backoff->min_ms;
    uint32_t random[4];

    for (uint32_t i = 0; i < backoff->tries && delay < backoff->max_ms; i++)
        delay *= 2;
    if (delay > backoff->max_ms)
        delay = backoff->max_ms;
    backoff->tries++;
    cn_random_block(backoff->seed, 0, backoff->draws++, random);
    return delay - delay / 2 * random[0] / UINT32_MAX;
}
