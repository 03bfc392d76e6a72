#include "transport/pacer.h"

#include "runtime/base/random.h"

#define TIMEOUT_FIRST_US 1000000u // RFC 6298, 2.1
#define TIMEOUT_MIN_US 100000u
#define TIMEOUT_MAX_US 16000000u
#define GRANULARITY_US 10000u
#define WINDOW_FIRST 10.0 // RFC 6928
#define WINDOW_MIN 2.0
#define BURST_BYTES 4096.0 // what the rate limit lets through at once

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

void cn_pacer_init(struct cn_pacer *pacer, uint32_t window_max, uint64_t rate_bps, uint64_t now_us)
{
    *pacer = (struct cn_pacer){
        .window = WINDOW_FIRST,
        .threshold = (double)window_max,
        .window_max = window_max,
        .rate_bps = rate_bps,
        .credit = BURST_BYTES,
        .credited_us = now_us,
    };
}

static void refill(struct cn_pacer *pacer, uint64_t now_us)
{
    double elapsed_s = (double)(now_us - pacer->credited_us) / 1e6;

    pacer->credited_us = now_us;
    pacer->credit += elapsed_s * (double)pacer->rate_bps / 8;
    if (pacer->credit > BURST_BYTES)
        pacer->credit = BURST_BYTES;
}

bool cn_pacer_may_send(struct cn_pacer *pacer, uint32_t in_flight, uint64_t now_us,
                       uint64_t *wake_us)
{
    double window = pacer->window < pacer->window_max ? pacer->window : pacer->window_max;

    if (in_flight && (double)in_flight + 1 > window)
        return false;
    if (!pacer->rate_bps)
        return true;
    refill(pacer, now_us);
    if (pacer->credit < 0) {
        double wait_us = -pacer->credit * 8e6 / (double)pacer->rate_bps;
        uint64_t wake = now_us + (uint64_t)wait_us + 1;

        if (wake < *wake_us)
            *wake_us = wake;
        return false;
    }
    return true;
}

void cn_pacer_sent(struct cn_pacer *pacer, uint32_t size)
{
    if (pacer->rate_bps)
        pacer->credit -= size;
}

void cn_pacer_acked(struct cn_pacer *pacer, uint32_t count)
{
    if (pacer->window < pacer->threshold)
        pacer->window += count;
    else
        pacer->window += count / pacer->window;
    if (pacer->window > pacer->window_max)
        pacer->window = pacer->window_max;
}

static void halve(struct cn_pacer *pacer, uint32_t next)
{
    pacer->recovery = next;
    pacer->threshold = pacer->window / 2;
    if (pacer->threshold < WINDOW_MIN)
        pacer->threshold = WINDOW_MIN;
}

void cn_pacer_lost(struct cn_pacer *pacer, uint32_t order, uint32_t next)
{
    if (order < pacer->recovery)
        return;
    halve(pacer, next);
    pacer->window = pacer->threshold;
}

void cn_pacer_timed_out(struct cn_pacer *pacer, uint32_t next)
{
    halve(pacer, next);
    pacer->window = WINDOW_MIN;
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
