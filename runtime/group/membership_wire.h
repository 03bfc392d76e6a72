// membership_wire.h - the messages of membership as bytes. DESIGN.md has the table.
//
// Decoding is total: any bytes give a valid message, CN_EFORMAT or CN_ENOTSUP. Threading: none.
#pragma once

#include "runtime/base/bytes.h"
#include "runtime/group/membership.h"

#define CN_MEMBERSHIP_PROTOCOL 6

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

// One stay of a member in FORMING. A COMMIT names the stay of each member that it takes in, so that
// a late COMMIT is recognized.
struct cn_stay {
    uint64_t boot_id;
    uint32_t number; // counts the stays of this boot
};

struct cn_membership_message {
    enum cn_membership_type type;
    uint16_t release; // release of Cairn that the sender runs
    uint64_t epoch;   // JOIN: highest accepted; PREPARE, READY, COMMIT: new; others: current
    uint32_t members; // bit per index. JOIN: expected; others: of the view
    // JOIN, READY and BYE
    struct cn_stay stay;
    // JOIN only
    struct cn_state_tag tag;
    uint32_t patience_ms; // how long the sender still waits for the expected ones
    bool unable;          // the sender cannot lead: its disk takes no epoch
    // BUSY only
    uint32_t since_ms; // age of the sender's view
    // JOIN and BUSY
    uint8_t job[CN_DIGEST_SIZE];
    // PREPARE and COMMIT
    uint32_t source;                    // rank; PREPARE: 0
    struct cn_stay stays[CN_GROUP_MAX]; // by rank
    // JOIN and HEARTBEAT
    uint64_t key_epoch; // newest key epoch whose pair keys the sender holds
    // HEARTBEAT only
    bool wants_sign; // the receiver has to answer at once
    // SUSPECT only
    uint32_t accused; // index of the silent member
};

// Returns this release as messages carry it: 4 bits of the major number, 6 of the minor, 6 of the
// patch.
uint16_t cn_membership_release(void);

// Writes a message, which has room for CN_PEER_MESSAGE_MAX bytes. Returns its size.
size_t cn_membership_encode(const struct cn_membership_message *from, uint8_t *message);

// Reads a message. count is the number of configured members. Returns CN_EFORMAT for a malformed
// message or an index of count or more. Returns CN_ENOTSUP for another protocol version; only
// to->release is set then.
cn_err cn_membership_decode(const uint8_t *message, size_t size, uint32_t count,
                            struct cn_membership_message *to);
