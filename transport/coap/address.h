// address.h - "host:port" text and the look-up of host names without blocking.
//
// A host is an IPv4 address, an IPv6 address in brackets or a name. A name is looked up by a thread
// of its own, because the resolver may take many seconds when the network is away.
#pragma once

#include <sys/socket.h>

#include "runtime/base/error.h"

struct cn_address {
    struct sockaddr_storage storage;
    socklen_t size;
};

// Reads a numeric address. CN_ENOTFOUND when the host is a name, CN_EINVAL when it is not
// "host:port".
cn_err cn_address_parse(const char *text, struct cn_address *address);

// As parse, but names are looked up at once: may block.
cn_err cn_address_resolve(const char *text, struct cn_address *address);

// The host of an address with the port of text: "10.0.0.7:5701", "[fe80::7%3]:5701". An IPv4
// address that arrived at an IPv6 socket is printed as what it is. CN_EINVAL when it does not fit,
// or text has no port.
cn_err cn_address_print(const struct cn_address *address, const char *text, char *printed,
                        size_t size);

struct cn_lookup;

// Starts looking up text.
cn_err cn_lookup_start(const char *text, struct cn_lookup **lookup);

// CN_EAGAIN until it is done; then the result of cn_address_resolve.
cn_err cn_lookup_poll(struct cn_lookup *lookup, struct cn_address *address);

// Does not wait for a look-up under way: its thread frees the rest. NULL is fine.
void cn_lookup_free(struct cn_lookup *lookup);
