#include "transport/board/registrar.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "runtime/base/log.h"
#include "runtime/port/crypto.h"
#include "transport/board/registration_file.h"

#define MISMATCH_MIN_MS 30000 // a refused registration is repeated slowly
#define MISMATCH_MAX_MS 600000
#define RENEW_US 500000   // pause before registering again for the keys of another epoch
#define RECALL_US 1000000 // a gateway that is up answers in less time, within some round trips

void cn_registrar_init(struct cn_registrar *registrar, const char *board,
                       struct cn_link_events *events, struct cn_exchange *exchange,
                       struct cn_rtt *rtt, uint8_t kind, uint64_t seed)
{
    *registrar = (struct cn_registrar){
        .board = board,
        .events = events,
        .mismatch = {.min_ms = MISMATCH_MIN_MS, .max_ms = MISMATCH_MAX_MS, .seed = seed},
    };
    cn_request_init(&registrar->asking, exchange, rtt, kind, seed);
    cn_request_init(&registrar->keying, exchange, rtt, kind + 1, seed);
}

void cn_registrar_keep(struct cn_registrar *registrar, struct cn_store *store,
                       const uint8_t origin[CN_DIGEST_SIZE], uint64_t now_us)
{
    registrar->store = store;
    memcpy(registrar->origin, origin, CN_DIGEST_SIZE);
    registrar->recall_us = now_us + RECALL_US;
}

void cn_registrar_start(struct cn_registrar *registrar)
{
    struct cn_register_request request = {
        .protocol = {CN_PROTOCOL_MIN, CN_PROTOCOL_MAX},
        .update_format = {CN_UPDATE_FORMAT_MIN, CN_UPDATE_FORMAT_MAX},
        .graph_ops = {CN_GRAPH_OPS_MIN, CN_GRAPH_OPS_MAX},
        .facts = registrar->facts,
    };
    uint8_t bytes[CN_MESSAGE_MAX];
    size_t size = 0;
    cn_err err = cn_message_put_register(&request, bytes, &size);

    registrar->due = registrar->announces = false;
    if (err) {
        cn_log(CN_LOG_ERROR, "link", "registration: %s", cn_err_text(err));
        return;
    }
    cn_request_stop(&registrar->keying);
    cn_request_start(&registrar->asking, CN_COAP_POST, "reg", bytes, size);
}

bool cn_registrar_is_busy(const struct cn_registrar *registrar)
{
    return registrar->asking.active || registrar->keying.active;
}

void cn_registrar_reconnected(struct cn_registrar *registrar)
{
    if (!registrar->mismatch.tries)
        cn_request_hurry(&registrar->asking);
    cn_request_hurry(&registrar->keying);
    if (registrar->is_registered && registrar->facts.instance && !registrar->due &&
        !cn_registrar_is_busy(registrar)) {
        cn_registrar_start(registrar);
        registrar->announces = true;
    }
}

// Reports the kept answer, which holds until the aggregator answers.
static void recall(struct cn_registrar *registrar)
{
    uint8_t owner[CN_DIGEST_SIZE];
    struct cn_link_event *event;
    cn_err err;

    registrar->recall_us = 0;
    cn_registration_owner(registrar->origin, &registrar->facts, owner);
    err = cn_registration_load(registrar->store, owner, registrar->facts.member_count,
                               &registrar->kept);
    if (err && err != CN_ENOTFOUND)
        cn_log(CN_LOG_WARN, "link", "the stored registration is not used: %s",
               err == CN_ESTALE ? "key, aggregator or members have changed" : cn_err_text(err));
    if (err)
        return;
    if (!registrar->reply.chunk_size)
        registrar->reply = registrar->kept;
    event = cn_link_events_push(registrar->events, CN_LINK_REGISTERED);
    event->manifest = &registrar->kept.manifest;
    event->remembered = true;
}

static void step_recall(struct cn_registrar *registrar, uint64_t now_us, uint64_t *wake_us)
{
    if (!registrar->recall_us || !registrar->has_facts)
        return;
    if (now_us >= registrar->recall_us)
        recall(registrar);
    else if (registrar->recall_us < *wake_us)
        *wake_us = registrar->recall_us;
}

void cn_registrar_step(struct cn_registrar *registrar, uint64_t now_us, uint64_t *wake_us)
{
    if (registrar->due)
        cn_registrar_start(registrar);
    cn_request_step(&registrar->asking, now_us, wake_us);
    cn_request_step(&registrar->keying, now_us, wake_us);
    step_recall(registrar, now_us, wake_us);
}

static void keep(const struct cn_registrar *registrar)
{
    struct cn_register_reply reply = registrar->reply;
    uint8_t owner[CN_DIGEST_SIZE];
    cn_err err;

    reply.manifest = registrar->manifest;
    cn_registration_owner(registrar->origin, &registrar->facts, owner);
    err = cn_registration_save(registrar->store, owner, &reply, registrar->facts.member_count);
    if (err)
        cn_log(
            CN_LOG_WARN, "link",
            "the registration is not stored, a start without the aggregator will wait for it: %s",
            cn_err_text(err));
    cn_crypto_wipe(&reply, sizeof(reply)); // it holds the pair keys
}

static void tell_registered(struct cn_registrar *registrar)
{
    struct cn_link_event *event = cn_link_events_push(registrar->events, CN_LINK_REGISTERED);

    event->manifest = &registrar->manifest;
    event->remembered = false;
    registrar->is_registered = true;
    registrar->recall_us = 0;
    if (registrar->store)
        keep(registrar);
}

// Asks for the next pair key; a group has at most 16 members, so one after another will do. Returns
// true, after reporting the registration, when no key is left to ask for.
static bool ask_key(struct cn_registrar *registrar)
{
    char path[CN_NAME_SIZE + 32];
    size_t used;

    while (registrar->next_key < registrar->facts.member_count &&
           strcmp(registrar->facts.members[registrar->next_key], registrar->board) == 0)
        registrar->next_key++;
    if (registrar->next_key >= registrar->facts.member_count) {
        tell_registered(registrar);
        return true;
    }
    used =
        (size_t)snprintf(path, sizeof(path), "k/%s", registrar->facts.members[registrar->next_key]);
    if (registrar->manifest.key_epoch)
        snprintf(path + used, sizeof(path) - used, "/%" PRIu64, registrar->manifest.key_epoch);
    cn_request_start(&registrar->keying, CN_COAP_GET, path, NULL, 0);
    return false;
}

// Takes the answer to a request for a key. A member without a key is not enrolled now, so the group
// forms without it. All keys belong to one key epoch. If the epoch was raised meanwhile (4.09), the
// board registers again and asks for all keys.
static bool key_answered(struct cn_registrar *registrar, const struct cn_exchange_reply *reply,
                         uint64_t now_us)
{
    if (reply->code == CN_COAP_CONFLICT) {
        cn_registrar_start(registrar);
        registrar->asking.due_us = now_us + RENEW_US;
        return false;
    }
    if (reply->code == CN_COAP_CONTENT && reply->size == CN_KEY_SIZE)
        memcpy(registrar->manifest.pair_keys[registrar->next_key], reply->body, CN_KEY_SIZE);
    else
        cn_log_within(&registrar->lines, now_us / 1000, CN_LOG_WARN, "link",
                      "no key for the pair with %s (%u.%02u)",
                      registrar->facts.members[registrar->next_key], reply->code >> 5,
                      reply->code & 31);
    registrar->next_key++;
    return ask_key(registrar);
}

static void registration_refused(struct cn_registrar *registrar,
                                 const struct cn_exchange_reply *reply, uint64_t now_us)
{
    struct cn_link_event *event;
    char why[120] = "the manifest is malformed";

    if (!registrar->mismatch.tries) {
        if (reply->code >= CN_COAP_BAD_REQUEST)
            cn_message_copy_text(why, sizeof(why), reply->body, reply->size);
        event = cn_link_events_push(registrar->events, CN_LINK_REFUSED);
        snprintf(event->text, sizeof(event->text), "registration refused (%u.%02u): %s",
                 reply->code >> 5, reply->code & 31, why);
    }
    cn_registrar_start(registrar);
    registrar->asking.due_us = now_us + 1000 * cn_backoff_next_ms(&registrar->mismatch);
}

// Returns whether two manifests agree in everything except the keys, which follow from the key
// epoch.
static bool is_same(const struct cn_manifest *one, const struct cn_manifest *other)
{
    return one->run == other->run && one->lineage == other->lineage &&
           strcmp(one->group, other->group) == 0 &&
           memcmp(one->graph, other->graph, CN_DIGEST_SIZE) == 0 &&
           one->graph_size == other->graph_size &&
           memcmp(one->job_digest, other->job_digest, CN_DIGEST_SIZE) == 0 &&
           one->key_epoch == other->key_epoch && one->group_boards == other->group_boards;
}

static bool registered(struct cn_registrar *registrar, const struct cn_exchange_reply *reply,
                       uint64_t now_us)
{
    struct cn_register_reply message;

    if (reply->code != CN_COAP_CONTENT ||
        cn_message_get_manifest(reply->body, reply->size, &message)) {
        registration_refused(registrar, reply, now_us);
        return false;
    }
    registrar->mismatch.tries = 0;
    registrar->reply = message;
    if (registrar->announces && is_same(&registrar->manifest, &message.manifest)) {
        registrar->announces = false;
        return true;
    }
    registrar->manifest = message.manifest;
    registrar->next_key = 0;
    return ask_key(registrar);
}

bool cn_registrar_reply(struct cn_registrar *registrar, const struct cn_exchange_reply *reply,
                        uint64_t now_us, bool *done)
{
    bool mine;

    *done = false;
    if (cn_request_answered(&registrar->asking, reply, now_us, &mine))
        *done = registered(registrar, reply, now_us);
    else if (!mine && cn_request_answered(&registrar->keying, reply, now_us, &mine))
        *done = key_answered(registrar, reply, now_us);
    return mine;
}
