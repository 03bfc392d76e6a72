// membership_wire.h - the messages of membership as bytes. DESIGN.md has the table.
//
// Decoding is total: any bytes give a message that keeps its promises or CN_EFORMAT.
#pragma once

#include "runtime/base/bytes.h"
#include "runtime/group/membership.h"

#define CN_MEMBERSHIP_PROTOCOL 4

enum cn_membership_type {
    CN_MEMBERSHIP_JOIN = 1,
    CN_MEMBERSHIP_BUSY = 2,
    CN_MEMBERSHIP_COMMIT = 3,
    CN_MEMBERSHIP_HEARTBEAT = 4,
    CN_MEMBERSHIP_SUSPECT = 5,
    CN_MEMBERSHIP_PREPARE = 6,
    CN_MEMBERSHIP_READY = 7,
    CN_MEMBERSHIP_BYE = 8,
};

// One stay of a member in FORMING. A COMMIT names the stays that it answers, so late ones are
// noticed.
struct cn_stay {
    uint64_t boot_id;
    uint32_t number; // counts within the boot
};

struct cn_membership_message {
    enum cn_membership_type type;
    uint16_t release; // of Cairn, by the sender
    uint64_t epoch;   // JOIN: highest accepted; PREPARE, READY, COMMIT: new; others: current
    uint32_t members; // bit per index. JOIN: expected; others: of the view
    // JOIN, READY and BYE
    struct cn_stay stay;
    // JOIN only
    struct cn_state_tag tag;
    uint32_t patience_ms; // how long the sender still waits for the expected ones
    bool unable;          // to lead: its disk takes no epoch
    // BUSY only
    uint32_t since_ms; // age of the sender's view
    // JOIN and BUSY
    uint8_t job[CN_DIGEST_SIZE];
    // PREPARE and COMMIT
    uint32_t source;                    // rank; PREPARE: 0
    struct cn_stay stays[CN_GROUP_MAX]; // by rank
    // JOIN and HEARTBEAT
    uint64_t key_epoch; // the newest of which the sender holds the pair keys
    // HEARTBEAT only
    bool wants_sign; // one back, at once
    // SUSPECT only
    uint32_t accused; // index
};

// This release, as messages carry it: 4 bits of the major number, 6 of the minor one, 6 of the
// patch.
uint16_t cn_membership_release(void);

// message holds CN_PEER_MESSAGE_MAX bytes. Returns the size.
size_t cn_membership_encode(const struct cn_membership_message *from, uint8_t *message);

// count is the number of configured members; an index outside of it is CN_EFORMAT. CN_ENOTSUP:
// another protocol, of which only the release is known.
cn_err cn_membership_decode(const uint8_t *message, size_t size, uint32_t count,
                            struct cn_membership_message *to);
