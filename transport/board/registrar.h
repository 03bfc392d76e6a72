// registrar.h - a board's registration: its facts, the manifest and the pair keys, one for each
// other member of its group.
//
// A refusal is reported once, and the registration is repeated slowly. With a store the answer is
// kept (registration_file.h). If no new answer has come a second after cn_registrar_keep, the kept
// one is reported, once the registrar has its facts. Threading: none.
#pragma once

#include "runtime/base/log_limit.h"
#include "runtime/port/link.h"
#include "transport/board/link_events.h"
#include "transport/message/message.h"
#include "transport/transfer/request.h"

struct cn_registrar {
    const char *board;             // name of the board; borrowed, like events
    struct cn_link_events *events; // receives REGISTERED and REFUSED
    struct cn_registration facts;
    bool has_facts; // facts are set
    bool due;       // a registration is to begin
    // The registration under way follows a handshake, so that the aggregator sees which process
    // has the board's session now. The answer is reported only if it differs from the last one.
    bool announces;
    struct cn_request asking, keying;
    struct cn_backoff mismatch;     // pauses after refusals
    struct cn_register_reply reply; // its chunk_size is 0 before the first registration
    struct cn_manifest manifest;
    bool is_registered;             // the manifest and its keys were reported
    uint32_t next_key;              // index of the member whose key is asked for
    struct cn_store *store;         // borrowed; NULL: answers are not kept
    uint8_t origin[CN_DIGEST_SIZE]; // result of cn_registration_origin
    uint64_t recall_us;             // time to report the kept answer; 0: never, or done
    struct cn_register_reply kept;  // the kept answer, once it was reported
    struct cn_log_quota lines;      // log lines about members without a key
};

// Initialises the registrar. kind is the first byte of its tags; kind + 1 is that of requests for
// keys.
void cn_registrar_init(struct cn_registrar *registrar, const char *board,
                       struct cn_link_events *events, struct cn_exchange *exchange,
                       struct cn_rtt *rtt, uint8_t kind, uint64_t seed);

// Keeps answers in store, and has the stored one reported a second after now_us if none has come.
void cn_registrar_keep(struct cn_registrar *registrar, struct cn_store *store,
                       const uint8_t origin[CN_DIGEST_SIZE], uint64_t now_us);

// Starts the registration of facts from the beginning.
void cn_registrar_start(struct cn_registrar *registrar);
bool cn_registrar_is_busy(const struct cn_registrar *registrar);

// Call this when there is a new session.
void cn_registrar_reconnected(struct cn_registrar *registrar);

// Sends what is due. Lowers *wake_us to the time of the next request.
void cn_registrar_step(struct cn_registrar *registrar, uint64_t now_us, uint64_t *wake_us);

// Takes an answer to one of its requests. Returns false when the answer is to none of its requests.
// Sets *done after the last answer.
bool cn_registrar_reply(struct cn_registrar *registrar, const struct cn_exchange_reply *reply,
                        uint64_t now_us, bool *done);
