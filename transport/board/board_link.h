// board_link.h - a board's link to the aggregator (runtime/port/link.h), over any exchange.
//
// The programs use cn_board_link as their port. Tests open a link over a loopback instead.
#pragma once

#include "runtime/port/link.h"
#include "transport/coap/exchange.h"

extern const struct cn_link_ops cn_board_link;

// Opens a link over exchange. Takes exchange, even after an error. Does not use config's key and
// addresses.
cn_err cn_board_link_open_over(struct cn_exchange *exchange, const struct cn_link_config *config,
                               struct cn_link **link);
