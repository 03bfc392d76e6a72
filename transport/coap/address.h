// address.h - "host:port" text and the look-up of host names without blocking.
//
// A host is an IPv4 address, an IPv6 address in brackets or a name. A link-local address needs its
// zone, the name or the number of an interface of this machine: "[fe80::7%eth0]:5684" (RFC 4007,
// 11). A name is looked up by a thread of its own, because the resolver may take many seconds when
// the network is away.
#pragma once

#include <stdint.h>
#include <sys/socket.h>

#include "runtime/base/error.h"

struct cn_address {
    struct sockaddr_storage storage;
    socklen_t size;
};

#define CN_ADDRESSES_MAX 8

// What a name stands for, in the order in which the addresses are to be tried (RFC 6724).
struct cn_address_list {
    struct cn_address at[CN_ADDRESSES_MAX];
    uint32_t count;
};

// Reads a numeric address. CN_ENOTFOUND when the host is a name, CN_EINVAL when it is not
// "host:port".
cn_err cn_address_parse(const char *text, struct cn_address *address);

// As parse, but names are looked up at once, and their first address taken: may block.
cn_err cn_address_resolve(const char *text, struct cn_address *address);

// The host of an address with the port of text: "10.0.0.7:5701", "[fe80::7%3]:5701". An IPv4
// address that arrived at an IPv6 socket is printed as what it is. CN_EINVAL when it does not fit,
// or text has no port.
cn_err cn_address_print(const struct cn_address *address, const char *text, char *printed,
                        size_t size);

struct cn_lookup;

// Starts looking up text.
cn_err cn_lookup_start(const char *text, struct cn_lookup **lookup);

// Copies all addresses that were found, at least one; more than CN_ADDRESSES_MAX are left out.
// CN_EAGAIN until the look-up is done.
cn_err cn_lookup_poll(struct cn_lookup *lookup, struct cn_address_list *found);

// Does not wait for a look-up under way: its thread frees the rest. NULL is fine.
void cn_lookup_free(struct cn_lookup *lookup);
