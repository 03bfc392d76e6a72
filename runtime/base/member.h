// member.h - a member of a group and the limits of a board's connections: types that profiles and
// ports share.
#pragma once

#include <stdint.h>

#include "runtime/base/bytes.h"
#include "runtime/base/name.h"

#define CN_GROUP_MAX 16     // most members of a group
#define CN_ADDRESS_SIZE 128 // bytes of "host:port", with the terminating 0
#define CN_LINK_ADDRESSES 4 // most addresses of the aggregator in a profile

// A member of a group, as the group's other members know it.
struct cn_member {
    char name[CN_NAME_SIZE];
    char address[CN_ADDRESS_SIZE]; // "host:port"
    // Key that this board and the member share; zeros for the board itself.
    uint8_t pair_key[CN_KEY_SIZE];
};

// How a board reaches the aggregator.
enum cn_link_transport {
    CN_LINK_AUTO, // UDP; TCP when UDP gets no answer or TCP proves faster
    CN_LINK_UDP,
    CN_LINK_TCP,
};
