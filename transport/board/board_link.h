// board_link.h - a board's link to the aggregator (runtime/port/link.h), over any exchange.
//
// cn_board_link is the port of the programs. A test opens a link over a loopback instead.
#pragma once

#include "runtime/port/link.h"
#include "transport/coap/exchange.h"

extern const struct cn_link_ops cn_board_link;

// Takes exchange, also on an error. config's key and addresses are not used.
cn_err cn_board_link_open_over(struct cn_exchange *exchange, const struct cn_link_config *config,
                               struct cn_link **link);
