// member.h - the members of a group and the limits of a board's connections, as profiles write
// them and ports use them.
#pragma once

#include <stdint.h>

#include "runtime/base/bytes.h"
#include "runtime/base/name.h"

#define CN_GROUP_MAX 16     // members of a group
#define CN_ADDRESS_SIZE 128 // bytes of "host:port", with the terminating 0
#define CN_LINK_ADDRESSES 4 // addresses of the aggregator in a profile

// One member as the group knows it.
struct cn_member {
    char name[CN_NAME_SIZE];
    char address[CN_ADDRESS_SIZE]; // "host:port"
    // The key that this board and the member share; zero for the board itself.
    uint8_t pair_key[CN_KEY_SIZE];
};

// How a board reaches the aggregator.
enum cn_link_transport {
    CN_LINK_AUTO, // UDP, unless that is not answered or TCP proves to carry more
    CN_LINK_UDP,
    CN_LINK_TCP,
};
