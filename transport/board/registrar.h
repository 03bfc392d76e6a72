// registrar.h - a board's registration: who it is, the manifest, the keys of its pairs.
//
// A refusal is told once and repeated slowly. With a store the answer is kept
// (registration_file.h); where no other has come within a second of the first request, that of
// before is told. Threading: none.
#pragma once

#include "runtime/base/log_limit.h"
#include "runtime/port/link.h"
#include "transport/board/link_events.h"
#include "transport/message/message.h"
#include "transport/transfer/request.h"

struct cn_registrar {
    const char *board;             // its name; borrowed, as events is
    struct cn_link_events *events; // REGISTERED and REFUSED go there
    struct cn_registration facts;
    bool enlisted; // facts are there
    bool due;      // to begin again
    struct cn_request asking, keying;
    struct cn_backoff misfit;
    struct cn_register_reply reply; // chunk_size 0: never registered
    struct cn_manifest manifest;
    uint32_t next_key;
    struct cn_store *store;         // borrowed; NULL: nothing is kept
    uint8_t origin[CN_DIGEST_SIZE]; // cn_registration_origin
    uint64_t recall_us;             // when to tell what is kept; 0: not, or not any more
    struct cn_register_reply kept;
    struct cn_log_quota lines; // about members without a key
};

// kind: first byte of the tags, kind + 1 that of the requests for keys.
void cn_registrar_init(struct cn_registrar *registrar, const char *board,
                       struct cn_link_events *events, struct cn_exchange *exchange,
                       struct cn_rtt *rtt, uint8_t kind, uint64_t seed);

// Keeps answers in store, and uses what is there.
void cn_registrar_keep(struct cn_registrar *registrar, struct cn_store *store,
                       const uint8_t origin[CN_DIGEST_SIZE], uint64_t now_us);

// Asks, from the beginning.
void cn_registrar_start(struct cn_registrar *registrar);
bool cn_registrar_is_busy(const struct cn_registrar *registrar);

// There is a new session.
void cn_registrar_reconnected(struct cn_registrar *registrar);

// Sends what is due; lowers *wake_us to when there will be more.
void cn_registrar_step(struct cn_registrar *registrar, uint64_t now_us, uint64_t *wake_us);

// Takes an answer to one of its requests. *done: it was the last one.
bool cn_registrar_reply(struct cn_registrar *registrar, const struct cn_exchange_reply *reply,
                        uint64_t now_us, bool *done);
