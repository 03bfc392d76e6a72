#include "transport/transfer/rival.h"

#include <math.h>

#define C 0.4          // RFC 9438, 4.1: datagrams per cubic second
#define BETA 0.7       // 4.6
#define DOUBLED 1.33   // growth of the rate below which doubling the window ends
#define GROWTH 1.5     // largest growth of a round trip (4.2)
#define TOLERATED 0.02 // share of a round's bytes whose loss is not taken for congestion
#define FLOOD 0.2      // a lost share as large means that doubling has gone too far
#define LEAST 4        // datagrams
#define SETBACKS 3     // losses of more than FLOOD after which the window doubles again

void cn_rival_begin(struct cn_rival *rival, double window)
{
    *rival = (struct cn_rival){.window = window};
}

static void reduce(struct cn_rival *rival, uint32_t unit, uint64_t lost, uint64_t now_us)
{
    rival->undo_window = rival->window;
    rival->undo_most = rival->most;
    rival->lost = lost;
    rival->undone = 0;
    // Fast convergence (4.7): leaves room for others if the last maximum was not reached.
    rival->most = rival->window < rival->most ? rival->window * (1 + BETA) / 2 : rival->window;
    rival->window *= BETA;
    if (rival->window < (double)LEAST * unit)
        rival->window = (double)LEAST * unit;
    rival->reduced_us = now_us;
    rival->settling = true;
}

// Returns the seconds from a reduction until the window is at its last maximum (4.2).
static double climb_s(const struct cn_rival *rival, uint32_t unit)
{
    return cbrt(rival->most / unit * (1 - BETA) / C);
}

// Returns the window of CUBIC (4.2) a round trip from now, or that of Reno (4.3) if it is larger.
static double target(const struct cn_rival *rival, uint32_t unit, uint64_t rtt_us, uint64_t now_us)
{
    double rtt = (double)rtt_us / 1e6, t = (double)(now_us - rival->reduced_us) / 1e6;
    double most = rival->most / unit, k = climb_s(rival, unit);
    double cubic = C * pow(t + rtt - k, 3) + most;
    double reno = most * BETA + 3 * (1 - BETA) / (1 + BETA) * t / rtt;

    return unit * (cubic > reno ? cubic : reno);
}

// Ends the doubling and takes a part of it back. CUBIC then continues on its plateau, not with the
// climb to the last maximum.
static void stop_doubling(struct cn_rival *rival, uint32_t unit, uint64_t now_us)
{
    uint64_t climb_us;

    rival->useless = rival->doublings == 1;
    rival->window = rival->most = BETA * rival->window;
    climb_us = (uint64_t)(1e6 * climb_s(rival, unit));
    rival->reduced_us = now_us > climb_us ? now_us - climb_us : 0;
}

static void double_window(struct cn_rival *rival, uint32_t unit, uint64_t rtt_us, uint64_t now_us)
{
    double rate = 1e6 * rival->window / (double)rtt_us;

    if (rate < DOUBLED * rival->rate) {
        stop_doubling(rival, unit, now_us);
        return;
    }
    rival->rate = rate;
    rival->doublings++;
    rival->window *= 2;
    rival->settling = true;
}

// Takes the last doubling back, after which much was lost. The rival has lost and yields as well,
// so the window then doubles again.
static void step_back(struct cn_rival *rival, uint32_t unit, uint64_t lost)
{
    rival->undo_window = rival->window;
    rival->undo_most = 0;
    rival->lost = lost;
    rival->undone = 0;
    rival->setbacks++;
    rival->rate = 0;
    rival->window /= 2;
    if (rival->window < (double)LEAST * unit)
        rival->window = (double)LEAST * unit;
    rival->settling = true;
}

void cn_rival_round(struct cn_rival *rival, uint32_t unit, uint64_t lost, uint64_t delivered,
                    bool filled, uint64_t rtt_us, uint64_t now_us)
{
    double all = (double)(lost + delivered), grown;

    if (rival->settling) {
        rival->settling = false;
    } else if (rival->most <= 0 && lost && (double)lost < FLOOD * all) {
        rival->settling = true; // the rival has filled the queue, not our small window
    } else if (rival->most <= 0 && lost && rival->setbacks < SETBACKS) {
        step_back(rival, unit, lost);
    } else if ((double)lost > TOLERATED * all) {
        reduce(rival, unit, lost, now_us);
    } else if (filled && rtt_us && rival->most <= 0) {
        double_window(rival, unit, rtt_us, now_us);
    } else if (filled && rtt_us) {
        grown = target(rival, unit, rtt_us, now_us);
        if (grown > GROWTH * rival->window)
            grown = GROWTH * rival->window;
        if (grown > rival->window)
            rival->window = grown;
    }
}

void cn_rival_undo(struct cn_rival *rival, uint32_t size)
{
    rival->undone += size;
    if (rival->undo_window <= 0 || 2 * rival->undone <= rival->lost)
        return;
    if (rival->undo_window > rival->window)
        rival->window = rival->undo_window;
    rival->most = rival->undo_most;
    rival->undo_window = 0;
}
