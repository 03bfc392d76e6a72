// address.h - parses "host:port" text and looks up host names without blocking.
//
// A host is an IPv4 address, an IPv6 address in brackets or a name. A link-local address needs its
// zone, which is the name or the number of an interface of this machine: "[fe80::7%eth0]:5684"
// (RFC 4007, 11). A cn_lookup runs on a thread of its own, because the resolver may block for many
// seconds while the network is down. Parsing and look-ups may also return
// CN_ENOMEM.
//
// Threading: any thread; a cn_lookup belongs to one thread at a time.
#pragma once

#include <stdint.h>
#include <sys/socket.h>

#include "runtime/base/error.h"

struct cn_address {
    struct sockaddr_storage storage;
    socklen_t size;
};

#define CN_ADDRESSES_MAX 8

// The addresses of one host, in the order in which to try them (RFC 6724).
struct cn_address_list {
    struct cn_address at[CN_ADDRESSES_MAX];
    uint32_t count;
};

// Parses a numeric address. Returns CN_ENOTFOUND when the host is a name, and CN_EINVAL when text
// is not "host:port".
cn_err cn_address_parse(const char *text, struct cn_address *address);

// Parses a numeric address, or looks up a name and takes its first address. May block. Returns
// CN_ENOTFOUND when the look-up fails, and CN_EINVAL when text is not "host:port".
cn_err cn_address_resolve(const char *text, struct cn_address *address);

// Prints the host of address with the port of text: "10.0.0.7:5701", "[fe80::7%3]:5701". An
// IPv4-mapped IPv6 address is printed as IPv4. Returns CN_EINVAL when the result does not fit into
// size bytes or text has no port.
cn_err cn_address_print(const struct cn_address *address, const char *text, char *printed,
                        size_t size);

struct cn_lookup;

// Starts to look up the host of text on a thread of its own. Free the look-up with cn_lookup_free.
// Returns CN_EINVAL when text is too long; other mistakes in it show when the look-up is done.
cn_err cn_lookup_start(const char *text, struct cn_lookup **lookup);

// Copies the addresses that were found: at least one, and the first CN_ADDRESSES_MAX at most.
// Returns CN_EAGAIN until the look-up is done, then its error if it failed.
cn_err cn_lookup_poll(struct cn_lookup *lookup, struct cn_address_list *found);

// Frees the look-up without waiting for its thread; a thread still at work frees the memory when
// it ends. Accepts NULL.
void cn_lookup_free(struct cn_lookup *lookup);
