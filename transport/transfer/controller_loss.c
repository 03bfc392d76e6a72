// controller_loss.c - what losses say about the rate.
#include <string.h>

#include "transport/transfer/controller_private.h"

#define LOSS_MAX 0.2
#define FLOOD 0.2   // a larger share lost in a round behind a queue means a slower link
#define FORCED 0.02 // share lost behind a queue, beside the link's own, that shows no free rate

static void set_rate(struct cn_controller *controller, double rate)
{
    memset(controller->round_rate, 0, sizeof(controller->round_rate));
    controller->round_rate[controller->rounds % CN_CONTROLLER_ROUNDS] = rate;
    controller->bandwidth = rate;
}

// Lowers the bandwidth to the rate of the last two rounds, because the link has become slower. If
// that is too low, STARTUP finds the rate again.
static void forget_rates(struct cn_controller *controller, uint64_t now_us)
{
    uint64_t bytes = controller->round_delivered + controller->last_delivered;
    uint64_t least = (uint64_t)CN_CONTROLLER_LEAST * controller->unit;

    if (now_us <= controller->last_us)
        return;
    controller->forgotten = controller->bandwidth;
    controller->forgotten_lost = controller->round_lost + controller->last_lost;
    controller->forgotten_undone = 0;
    controller->forgotten_round = controller->rounds;
    set_rate(controller, 1e6 * (double)(bytes > least ? bytes : least) /
                             (double)(now_us - controller->last_us));
    controller->flooded = controller->full = false;
    controller->full_rate = 0;
    controller->full_rounds = 0;
    controller->phase = CN_CONTROLLER_STARTUP;
}

static bool is_flood(uint64_t lost, uint64_t delivered)
{
    return (double)lost > FLOOD * (double)(lost + delivered);
}

// Returns whether this round and the one before lost more than the link loses by itself. A loss is
// often noticed in the round after that of the datagram.
static bool is_forced(const struct cn_controller *controller)
{
    double lost = (double)(controller->round_lost + controller->last_lost);
    double all = lost + (double)(controller->round_delivered + controller->last_delivered);

    return lost > (controller->quiet_loss + FORCED) * all;
}

// Keeps the bandwidth from growing by this round and the next: its rate was reached only because
// others lost.
static void discard_growth(struct cn_controller *controller)
{
    uint64_t now = controller->rounds % CN_CONTROLLER_ROUNDS;

    controller->rate_max = 0;
    for (uint64_t i = 0; i < CN_CONTROLLER_ROUNDS; i++) {
        if (i != now && controller->round_rate[i] > controller->rate_max)
            controller->rate_max = controller->round_rate[i];
    }
    if (controller->rate_max <= 0 || controller->round_rate[now] <= controller->rate_max)
        return;
    controller->round_rate[now] = controller->bandwidth = controller->rate_max;
}

void cn_controller_judge_loss(struct cn_controller *controller, uint64_t now_us)
{
    bool flood = false;
    uint64_t all = controller->round_lost + controller->round_delivered;
    double share = all ? (double)controller->round_lost / (double)all : 0;

    controller->rate_max = 0;
    if (!controller->full)
        return;
    if (cn_controller_queue_stands(controller)) {
        flood = controller->phase == CN_CONTROLLER_PROBE_BW && // the queue is not from STARTUP
                is_flood(controller->round_lost, controller->round_delivered);
        if (controller->phase == CN_CONTROLLER_PROBE_BW && is_forced(controller))
            discard_growth(controller);
        share = 0; // the link is full: sending faster cannot make up for the loss
    } else {
        controller->quiet_loss += (share - controller->quiet_loss) / 8;
    }
    controller->loss += (share - controller->loss) / 8;
    if (controller->loss > LOSS_MAX)
        controller->loss = LOSS_MAX;
    // Decides a round later. By then losses that were none, as after a spike of delay, are undone.
    if (flood && controller->flooded &&
        is_flood(controller->round_lost + controller->last_lost,
                 controller->round_delivered + controller->last_delivered))
        forget_rates(controller, now_us);
    else
        controller->flooded = flood;
}

void cn_controller_restore_rate(struct cn_controller *controller, uint32_t size)
{
    if (controller->forgotten <= 0 ||
        controller->rounds > controller->forgotten_round + CN_CONTROLLER_ROUNDS)
        return;
    controller->forgotten_undone += size;
    if (2 * controller->forgotten_undone <= controller->forgotten_lost)
        return;
    if (controller->forgotten > controller->bandwidth)
        set_rate(controller, controller->forgotten);
    controller->forgotten = 0;
}
