#include "tests/support/cubic_flow.h"

#include <math.h>

#include "tests/support/sim_exchange.h"

#define HEADERS 52
#define C 0.4    // RFC 9438, 4.1
#define BETA 0.7 // 4.6
#define FIRST_WINDOW 10
#define TIMEOUT_US 3000000u

void cn_cubic_init(struct cn_cubic_flow *flow, uint64_t rtt_us)
{
    *flow = (struct cn_cubic_flow){
        .back_us = rtt_us / 2,
        .window = FIRST_WINDOW,
        .threshold = CN_CUBIC_FLIGHT,
        .min_rtt_us = rtt_us,
    };
}

void cn_cubic_begin_full(struct cn_cubic_flow *flow, uint64_t rate_bps, uint64_t queue_us)
{
    double bytes = (double)rate_bps / 8e6 * (double)(flow->min_rtt_us + queue_us);

    flow->window = flow->threshold = bytes / (CN_CUBIC_PACKET + HEADERS);
    flow->most = 1.2 * flow->window;
    flow->reduced_us = 1;
}

static void reduce(struct cn_cubic_flow *flow, uint64_t now_us)
{
    // Fast convergence (4.7): leaves room for other flows if the last maximum was not reached.
    flow->most = flow->window < flow->most ? flow->window * (1 + BETA) / 2 : flow->window;
    flow->window *= BETA;
    if (flow->window < 2)
        flow->window = 2;
    flow->threshold = flow->window;
    flow->reduced_us = now_us;
    flow->recovery = flow->sent;
}

// Returns the cubic window (RFC 9438, 4.2), or Reno's (4.3) if that is larger.
static void grow(struct cn_cubic_flow *flow, uint64_t rtt_us, uint64_t now_us)
{
    double t, k, cubic, reno, rtt = (double)rtt_us / 1e6;

    if (flow->window < flow->threshold) {
        flow->window += 1;
        if (rtt_us > flow->min_rtt_us + flow->min_rtt_us / 8 + 4000)
            flow->threshold = flow->window;
        return;
    }
    if (!flow->reduced_us) {
        flow->reduced_us = now_us;
        flow->most = flow->window;
    }
    t = (double)(now_us - flow->reduced_us) / 1e6;
    k = cbrt(flow->most * (1 - BETA) / C);
    cubic = C * pow(t + rtt - k, 3) + flow->most;
    reno = flow->most * BETA + 3 * (1 - BETA) / (1 + BETA) * t / rtt;
    if (cubic < reno)
        cubic = reno;
    if (cubic > 1.5 * flow->window)
        cubic = 1.5 * flow->window;
    if (cubic > flow->window)
        flow->window += (cubic - flow->window) / flow->window;
}

// Packets arrive in order, so the acknowledgement of the next one shows that a packet was lost.
static void settle(struct cn_cubic_flow *flow, uint64_t now_us)
{
    uint64_t next = flow->settled;

    while (next < flow->sent && !flow->flight[next % CN_CUBIC_FLIGHT].acked_us)
        next++;
    if (next == flow->sent || flow->flight[next % CN_CUBIC_FLIGHT].acked_us > now_us)
        return;
    if (next > flow->settled && flow->settled >= flow->recovery)
        reduce(flow, now_us);
    flow->settled = next + 1;
    flow->delivered++;
    if (next >= flow->recovery)
        grow(flow, now_us - flow->flight[next % CN_CUBIC_FLIGHT].sent_us, now_us);
}

void cn_cubic_step(struct cn_cubic_flow *flow, struct cn_exchange *exchange)
{
    uint64_t now_us = cn_sim_now_us(exchange), before;

    do {
        before = flow->settled;
        settle(flow, now_us);
    } while (flow->settled != before);
    while ((double)(flow->sent - flow->settled) < flow->window &&
           flow->sent - flow->settled < CN_CUBIC_FLIGHT) {
        struct cn_cubic_packet *packet = &flow->flight[flow->sent++ % CN_CUBIC_FLIGHT];
        uint64_t arrives_us = cn_sim_offer(exchange, CN_CUBIC_PACKET + HEADERS);

        packet->sent_us = now_us;
        packet->acked_us = arrives_us ? arrives_us + flow->back_us : 0;
    }
    // All packets of a window were lost.
    if (flow->sent > flow->settled &&
        now_us > flow->flight[(flow->sent - 1) % CN_CUBIC_FLIGHT].sent_us + TIMEOUT_US) {
        reduce(flow, now_us);
        flow->settled = flow->sent;
    }
}
