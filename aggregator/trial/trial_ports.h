// trial_ports.h - the ports of loopback that a trial uses.
#pragma once

#include "aggregator/trial/trial_split.h"
#include "runtime/base/diag.h"

struct cn_trial_ports {
    uint16_t gateway, page;
    uint16_t boards[CN_TRIAL_BOARDS_MAX];
};

// Gives ports to the page, the gateway and the boards, in that order, from first on. With first 0,
// looks for free ones. Returns CN_EEXIST with a line in diag when a port is taken, CN_EINVAL with a
// line in diag when first is too large for that many ports.
cn_err cn_trial_ports_choose(struct cn_trial_ports *ports, uint32_t boards, uint16_t first,
                             struct cn_diag *diag);
