// fake_aggregator.h - the aggregator's side of PROTOCOL.md in its simplest form, for tests of the
// link.
#pragma once

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/port/crypto.h"
#include "transport/coap/coap_server.h"
#include "transport/message/message.h"

#ifndef FAKE_CHUNK
#define FAKE_CHUNK 1024
#endif
#ifndef FAKE_SIZE_MAX
#define FAKE_SIZE_MAX (512 * 1024)
#endif

struct fake {
    // What a test sets.
    bool forgotten;             // answers 4.01 until the board registers again
    bool busy;                  // answers 5.03
    bool postpones;             // answers declarations with 5.03, to come back after an hour
    bool refuses_versions;      // refuses the board's versions
    uint64_t key_epoch;         // key epoch of the pair keys
    bool raises_keys;           // raises key_epoch after the next registration
    bool registration_unneeded; // never answers 4.01
    bool knows_no_health;       // refuses health reports, as older releases do
    uint32_t corrupt;           // number of commits that will find another digest
    uint32_t regress;           // number of commits before which chunks 3 to 9 get lost
    enum cn_verdict verdict;
    struct cn_round_info round;
    uint8_t *blob;
    size_t blob_size;
    uint8_t blob_digest[CN_DIGEST_SIZE];
    void (*on_chunk)(struct fake *fake); // after each chunk that was stored

    // What the board has sent.
    uint32_t registrations, declarations, postponed, commits, chunks, probes;
    size_t largest;                   // bytes of the largest message with chunks
    uint32_t healths, health_answers; // reports, and how many of them wanted an answer
    struct cn_health health;          // the newest report
    struct cn_declare_request declared;
    bool declared_any, decided;
    uint8_t received[FAKE_SIZE_MAX];
    bool have[FAKE_SIZE_MAX / FAKE_CHUNK + 1];
    void *owner;
};

static bool fake_turns_away(struct fake *fake, struct cn_coap_reply *reply)
{
    if (fake->busy) {
        cn_coap_reply_error(reply, CN_COAP_UNAVAILABLE, "busy");
        reply->max_age_s = 1;
    } else if (fake->forgotten) {
        cn_coap_reply_error(reply, CN_COAP_UNAUTHORIZED, "register first");
    }
    return fake->busy || fake->forgotten;
}

static void fake_register(void *context, const struct cn_coap_request *request,
                          struct cn_coap_reply *reply)
{
    struct fake *fake = context;
    struct cn_register_request message;
    struct cn_register_reply answer = {
        .protocol = CN_PROTOCOL_MAX,
        .update_format = 2,
        .graph_ops = 1,
        .chunk_size = FAKE_CHUNK,
        .window = 4096,
        .manifest = {.run = 7,
                     .lineage = 1,
                     .group = "group-1",
                     .graph_size = 100,
                     .key_epoch = fake->key_epoch},
    };

    fake->registrations++;
    fake->key_epoch += fake->raises_keys;
    fake->raises_keys = false;
    if (fake->refuses_versions) {
        cn_coap_reply_error(reply, CN_COAP_UNPROCESSABLE, "protocol 9 to 9 wanted, 1 to 1 found");
        return;
    }
    if (cn_message_get_register(request->body, request->size, &message)) {
        cn_coap_reply_error(reply, CN_COAP_BAD_REQUEST, "malformed");
        return;
    }
    fake->forgotten = false;
    snprintf(answer.manifest.job.name, sizeof(answer.manifest.job.name), "%s", "digits");
    snprintf(answer.manifest.job.data_set, sizeof(answer.manifest.job.data_set), "%s", "digits");
    answer.manifest.job.batch = 32;
    answer.manifest.job.accumulate = 1;
    answer.manifest.job.local_steps = 10;
    if (!cn_message_put_manifest(&answer, reply->body, &reply->size))
        reply->code = CN_COAP_CONTENT;
}

static void fake_key(void *context, const struct cn_coap_request *request,
                     struct cn_coap_reply *reply)
{
    const struct fake *fake = context;
    const char *epoch = strchr(request->path, '/');

    if (fake_turns_away(context, reply))
        return;
    if ((epoch ? strtoull(epoch + 1, NULL, 10) : 0) != fake->key_epoch) {
        cn_coap_reply_error(reply, CN_COAP_CONFLICT, "other keys");
        return;
    }
    if (strncmp(request->path, "board-9", 7) == 0) {
        cn_coap_reply_error(reply, CN_COAP_NOT_FOUND, "not enrolled");
        return;
    }
    reply->code = CN_COAP_CONTENT;
    reply->size = CN_KEY_SIZE;
    memset(reply->body, request->path[6], CN_KEY_SIZE);
}

static void fake_round(void *context, const struct cn_coap_request *request,
                       struct cn_coap_reply *reply)
{
    struct fake *fake = context;

    (void)request;
    if (fake_turns_away(fake, reply))
        return;
    if (!cn_message_put_round(&fake->round, reply->body, &reply->size))
        reply->code = CN_COAP_CONTENT;
}

static void fake_blob(void *context, const struct cn_coap_request *request,
                      struct cn_coap_reply *reply)
{
    struct fake *fake = context;
    char digest[2 * CN_DIGEST_SIZE + 1];
    size_t offset, rest, wanted;
    unsigned long chunk;
    char *end;

    if (fake_turns_away(fake, reply))
        return;
    cn_hex(digest, fake->blob_digest, CN_DIGEST_SIZE);
    if (strncmp(request->path, digest, strlen(digest)) != 0 ||
        request->path[strlen(digest)] != '/') {
        cn_coap_reply_error(reply, CN_COAP_NOT_FOUND, "no such blob");
        return;
    }
    chunk = strtoul(request->path + strlen(digest) + 1, &end, 10);
    wanted = FAKE_CHUNK * strtoul(end + 1, NULL, 10);
    offset = chunk * FAKE_CHUNK;
    rest = fake->blob_size - offset;
    reply->size = rest < wanted ? rest : wanted;
    memcpy(reply->body, fake->blob + offset, reply->size);
    reply->code = CN_COAP_CONTENT;
}

static uint32_t fake_count(const struct fake *fake)
{
    return (uint32_t)((fake->declared.size + FAKE_CHUNK - 1) / FAKE_CHUNK);
}

static void fake_status(struct fake *fake, struct cn_coap_reply *reply, enum cn_coap_code code)
{
    struct cn_upload_status status = {.decided = fake->decided, .chunk_count = fake_count(fake)};

    memset(status.id, 0xab, sizeof(status.id));
    if (fake->decided) {
        status.verdict = fake->verdict;
        if (fake->verdict == CN_VERDICT_ACCEPTED)
            memcpy(status.accepted, fake->declared.digest, CN_DIGEST_SIZE);
        else
            snprintf(status.reason, sizeof(status.reason), "%s", "for a reason");
    }
    for (uint32_t i = 0; i < status.chunk_count; i++) {
        struct cn_chunk_range *last =
            status.missing_count ? &status.missing[status.missing_count - 1] : NULL;

        if (fake->have[i])
            status.received++;
        else if (last && last->first + last->count == i)
            last->count++;
        else if (status.missing_count == CN_RANGE_MAX)
            break;
        else
            status.missing[status.missing_count++] = (struct cn_chunk_range){i, 1};
        status.known = i + 1;
    }
    if (cn_message_put_status(&status, reply->body, &reply->size))
        abort();
    reply->code = code;
}

static void fake_commit(struct fake *fake, struct cn_coap_reply *reply)
{
    uint8_t digest[CN_DIGEST_SIZE];

    fake->commits++;
    if (fake->regress) {
        fake->regress--;
        memset(&fake->have[3], 0, 7);
    }
    for (uint32_t i = 0; i < fake_count(fake); i++) {
        if (!fake->have[i]) {
            fake_status(fake, reply, CN_COAP_INCOMPLETE);
            return;
        }
    }
    cn_crypto_digest(fake->received, fake->declared.size, digest);
    if (fake->corrupt || memcmp(digest, fake->declared.digest, CN_DIGEST_SIZE) != 0) {
        fake->corrupt -= fake->corrupt > 0;
        memset(fake->have, 0, sizeof(fake->have));
        cn_coap_reply_error(reply, CN_COAP_UNPROCESSABLE, "another digest");
        return;
    }
    fake->decided = true;
    fake_status(fake, reply, CN_COAP_CHANGED);
}

static void fake_post(void *context, const struct cn_coap_request *request,
                      struct cn_coap_reply *reply)
{
    struct fake *fake = context;

    if (fake_turns_away(fake, reply))
        return;
    if (strcmp(request->path, "abababababababab/commit") == 0 && fake->declared_any) {
        fake_commit(fake, reply);
        return;
    }
    if (*request->path) {
        cn_coap_reply_error(reply, CN_COAP_NOT_FOUND, "no such upload");
        return;
    }
    if (fake->postpones) {
        fake->postponed++;
        cn_coap_reply_error(reply, CN_COAP_UNAVAILABLE, "later");
        reply->max_age_s = 3600;
        return;
    }
    if (cn_message_get_declare(request->body, request->size, &fake->declared)) {
        cn_coap_reply_error(reply, CN_COAP_BAD_REQUEST, "malformed");
        return;
    }
    if (fake->declared.size > FAKE_SIZE_MAX) {
        cn_coap_reply_error(reply, CN_COAP_TOO_LARGE, "at most %d bytes", FAKE_SIZE_MAX);
        return;
    }
    fake->declarations++;
    fake->declared_any = true;
    fake_status(fake, reply, CN_COAP_CREATED);
}

static void fake_put(void *context, const struct cn_coap_request *request,
                     struct cn_coap_reply *reply)
{
    struct fake *fake = context;
    unsigned long chunk, count = (request->size + FAKE_CHUNK - 1) / FAKE_CHUNK;

    if (fake_turns_away(fake, reply))
        return;
    if (strncmp(request->path, "abababababababab/", 17) != 0 || !fake->declared_any) {
        cn_coap_reply_error(reply, CN_COAP_NOT_FOUND, "no such upload");
        return;
    }
    chunk = strtoul(request->path + 17, NULL, 10);
    if (chunk + count > fake_count(fake))
        abort();
    memcpy(fake->received + chunk * FAKE_CHUNK, request->body, request->size);
    memset(&fake->have[chunk], 1, count);
    fake->chunks += (uint32_t)count;
    fake->largest = request->size > fake->largest ? request->size : fake->largest;
    if (fake->on_chunk)
        fake->on_chunk(fake);
    if (request->wants_reply)
        fake_status(fake, reply, CN_COAP_CHANGED);
    else
        reply->code = CN_COAP_SILENT;
}

static void fake_probe(void *context, const struct cn_coap_request *request,
                       struct cn_coap_reply *reply)
{
    struct fake *fake = context;

    fake->probes++;
    reply->code = CN_COAP_CHANGED;
    reply->size = request->size;
    memset(reply->body, 0, reply->size);
}

static void fake_health(void *context, const struct cn_coap_request *request,
                        struct cn_coap_reply *reply)
{
    struct fake *fake = context;

    fake->healths++;
    fake->health_answers += request->wants_reply;
    if (fake->knows_no_health)
        cn_coap_reply_error(reply, CN_COAP_NOT_FOUND, "no such resource");
    else if (fake_turns_away(fake, reply))
        return;
    else if (cn_message_get_health(request->body, request->size, &fake->health))
        cn_coap_reply_error(reply, CN_COAP_BAD_REQUEST, "malformed");
    else
        reply->code = request->wants_reply ? CN_COAP_CHANGED : CN_COAP_SILENT;
}

static const struct cn_coap_route fake_routes[] = {
    {CN_COAP_POST, "reg", false, fake_register, false},
    {CN_COAP_GET, "k", false, fake_key, false},
    {CN_COAP_GET, "r", true, fake_round, false},
    {CN_COAP_GET, "b", false, fake_blob, true},
    {CN_COAP_POST, "u", false, fake_post, false},
    {CN_COAP_PUT, "u", false, fake_put, true},
    {CN_COAP_POST, "h", false, fake_health, false},
    {CN_COAP_POST, "p", false, fake_probe, false}, // the last route: see below
};

#define FAKE_ROUTE_COUNT (sizeof(fake_routes) / sizeof(fake_routes[0]))
#define FAKE_ROUTES_BEFORE_PROBES (FAKE_ROUTE_COUNT - 1) // as in older releases

static void fake_fill(uint8_t *data, size_t size, uint32_t seed)
{
    for (size_t i = 0; i < size; i++)
        data[i] = (uint8_t)((i + seed) * 2654435761u >> 13);
}

static struct fake *fake_open(size_t blob_size)
{
    struct fake *fake = calloc(1, sizeof(*fake));

    fake->round = (struct cn_round_info){.run = 7, .lineage = 1, .round = 1, .invited = true};
    fake->blob_size = blob_size;
    fake->blob = malloc(blob_size);
    fake_fill(fake->blob, blob_size, 1);
    cn_crypto_digest(fake->blob, blob_size, fake->blob_digest);
    return fake;
}

static void fake_close(struct fake *fake)
{
    free(fake->blob);
    free(fake);
}
