// controller_private.h - what the files of the controller share.
#pragma once

#include "transport/transfer/controller.h"

#define CN_CONTROLLER_LEAST 4 // datagrams that may always be in flight

// Returns whether the smallest round trip of this round shows a queue.
static inline bool cn_controller_queue_stands(const struct cn_controller *controller)
{
    return controller->round_rtt_us > controller->min_rtt_us + controller->min_rtt_us / 16 + 2000;
}

// Judges the loss of a round. Without a queue it is the link's random loss, for which the rate
// makes up. Behind a queue a rate that costs losses is not learned, and much loss in two rounds
// means that the link has become slower.
void cn_controller_judge_loss(struct cn_controller *controller, uint64_t now_us);

// Restores the bandwidth that such a judgement lowered, once more than half of those losses are
// undone. size: bytes that were not lost after all.
void cn_controller_restore_rate(struct cn_controller *controller, uint32_t size);
