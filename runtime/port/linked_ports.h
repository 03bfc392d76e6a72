// linked_ports.h - the implementations a program was linked with. The *_main.c files fill it in.
#pragma once

#include "runtime/port/collective.h"
#include "runtime/port/compute.h"
#include "runtime/port/link.h"
#include "runtime/port/peer_link.h"
#include "runtime/port/text_server.h"
#include "runtime/profile/profile.h"

struct cn_ports {
    const struct cn_compute_ops *const *computes; // ends with NULL; "auto" is the first that opens
    const struct cn_collective_ops *collective;   // encrypted
    const struct cn_collective_ops *fast;         // not encrypted, for a trusted LAN; NULL: none
    // Opens the peer link of members[self]. listen is "host:port". members is borrowed until close.
    cn_err (*open_peer_link)(const char *listen, const struct cn_member *members, uint32_t count,
                             uint32_t self, struct cn_peer_link **link);
    const struct cn_link_ops *link;
    const struct cn_text_server_ops *text_server; // NULL: none
    // Derives the key of the session with the aggregator from the key file of the profile. On an
    // error adds a line to diag.
    cn_err (*load_link_key)(const struct cn_settings *settings, struct cn_diag *diag,
                            uint8_t key[CN_KEY_SIZE]);
};
