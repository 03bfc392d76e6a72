#include "aggregator/serve/resources.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "aggregator/serve/resources_private.h"
#include "runtime/base/log.h"
#include "transport/coap/security.h"
#include "transport/message/message.h"

#define TROUBLE_MS 60000 // least time between two lines about errors of the aggregator itself
#define BUSY_S 10        // after which a board comes back if the disk or the spool is full

_Static_assert(CN_MESSAGE_MAX <= CN_COAP_DATAGRAM_MAX, "a message fits a reply");
_Static_assert(CN_RESOURCES_CHUNK_SIZE <= CN_CHUNK_MAX, "a chunk fits a reply");

cn_err cn_resources_find_key(void *context, const char *board, uint8_t key[CN_KEY_SIZE])
{
    const struct cn_resources *resources = context;
    return cn_roster_find_key(resources->roster, board, key);
}

struct cn_resources *cn_resources_gateway(struct cn_resources *resources)
{
    return resources->gateway ? resources->gateway : resources;
}

const struct cn_roster_board *cn_resources_identify(struct cn_resources **resources,
                                                    const struct cn_coap_request *request,
                                                    struct cn_coap_reply *reply)
{
    struct cn_resources *gateway = *resources;
    const struct cn_roster_board *board = cn_roster_find(gateway->roster, request->board);
    const struct cn_roster_board *known = board;
    if (!board) {
        cn_coap_reply_error(reply, CN_COAP_UNAUTHORIZED, "%s is not enrolled", request->board);
        return NULL;
    }
    if (!request->notifies)
        cn_roster_hear(gateway->roster, request->board, gateway->now_ms());
    if (gateway->serving)
        *resources = gateway->serving(gateway->context, board->enrolled.group);
    if (*resources == gateway)
        return board;
    board = cn_roster_find((*resources)->roster, request->board);
    // After a move the job may not have the board's new group yet.
    if (board && strcmp(board->enrolled.group, known->enrolled.group) != 0)
        board = NULL;
    if (board && !request->notifies) {
        cn_roster_hear((*resources)->roster, request->board, gateway->now_ms());
    } else if (!board) {
        cn_coap_reply_error(reply, CN_COAP_UNAVAILABLE, "the job does not know this board yet");
        reply->max_age_s = 1;
    }
    return board;
}

void cn_resources_reply_trouble(struct cn_resources *resources, struct cn_coap_reply *reply,
                                cn_err err)
{
    uint64_t now_ms = resources->now_ms();
    if (err == CN_EBUSY) {
        cn_coap_reply_error(reply, CN_COAP_UNAVAILABLE, "the next buffer is not open yet");
        reply->max_age_s = cn_run_later_s(resources->run);
        return;
    }
    if (!resources->trouble_ms || now_ms - resources->trouble_ms > TROUBLE_MS) {
        resources->trouble_ms = now_ms;
        cn_log(CN_LOG_ERROR, "resources", "%s: boards are asked to try again later",
               cn_err_text(err));
    }
    cn_coap_reply_error(reply, CN_COAP_UNAVAILABLE, "%s", cn_err_text(err));
    reply->max_age_s = BUSY_S;
}

void cn_resources_reply(struct cn_coap_reply *reply, enum cn_coap_code code, const uint8_t *bytes,
                        size_t size)
{
    memcpy(reply->body, bytes, size);
    reply->size = size;
    reply->code = code;
}

void cn_resources_reply_status(struct cn_coap_reply *reply, enum cn_coap_code code,
                               const struct cn_upload_status *status)
{
    uint8_t bytes[CN_MESSAGE_MAX];
    size_t size = 0;
    if (cn_message_put_status(status, bytes, &size) == CN_OK)
        cn_resources_reply(reply, code, bytes, size);
}

bool cn_resources_parse_number(const char *text, char stop, uint32_t *number, const char **rest)
{
    char *end;
    if (!isdigit((unsigned char)text[0]))
        return false;
    errno = 0;
    unsigned long long value = strtoull(text, &end, 10);
    if (errno || (*end && *end != stop) || value > UINT32_MAX)
        return false;
    *number = (uint32_t)value;
    *rest = *end ? end + 1 : end;
    return true;
}

const struct cn_roster_group *cn_resources_group(const struct cn_resources *resources,
                                                 const struct cn_roster_board *board)
{
    const struct cn_resources *gateway = resources->gateway ? resources->gateway : resources;
    return cn_roster_find_group(gateway->roster, board->enrolled.group);
}

uint32_t cn_resources_settings(const struct cn_resources *resources)
{
    return resources->live ? resources->live->number : 0;
}

// --- k, r ---

// Splits "NAME/EPOCH"; without EPOCH, 0 is meant. Returns false when the path is malformed.
static bool parse_pair_path(const char *path, char name[CN_NAME_SIZE], uint64_t *key_epoch)
{
    size_t length = strcspn(path, "/");
    char *end;
    *key_epoch = 0;
    if (length >= CN_NAME_SIZE)
        return false;
    memcpy(name, path, length);
    name[length] = '\0';
    if (!path[length])
        return true;
    if (!isdigit((unsigned char)path[length + 1]))
        return false;
    errno = 0;
    *key_epoch = strtoull(path + length + 1, &end, 10);
    return !errno && !*end;
}

static void handle_pair_key(void *context, const struct cn_coap_request *request,
                            struct cn_coap_reply *reply)
{
    struct cn_resources *resources = context;
    char name[CN_NAME_SIZE];
    uint64_t key_epoch;
    const struct cn_roster_board *board = cn_resources_identify(&resources, request, reply);
    if (!board)
        return;
    const char *group = board->enrolled.group;
    if (!parse_pair_path(request->path, name, &key_epoch)) {
        cn_coap_reply_error(reply, CN_COAP_BAD_REQUEST, "expected k/NAME or k/NAME/EPOCH");
        return;
    }
    if (key_epoch != cn_resources_group(resources, board)->key_epoch) {
        cn_coap_reply_error(reply, CN_COAP_CONFLICT,
                            "group %s has changed its keys: register again", group);
        return;
    }
    const struct cn_roster_board *member = cn_roster_find(resources->roster, name);
    if (!member || member == board || strcmp(member->enrolled.group, group) != 0) {
        cn_coap_reply_error(reply, CN_COAP_NOT_FOUND, "no such member in group %s", group);
        return;
    }
    uint8_t key[CN_KEY_SIZE];
    cn_err err =
        cn_security_pair_key(cn_ledger_identity(cn_resources_gateway(resources)->ledger)->master,
                             group, key_epoch, board->enrolled.name, member->enrolled.name, key);
    if (!err)
        cn_resources_reply(reply, CN_COAP_CONTENT, key, sizeof(key));
    cn_crypto_wipe(key, sizeof(key));
}

// Says whether the board registered for the job, and follows its group's keys, which only the
// gateway's roster knows.
static bool is_registered(struct cn_resources *resources, const struct cn_roster_board *board)
{
    const struct cn_roster_board *known =
        cn_roster_find(cn_resources_gateway(resources)->roster, board->enrolled.name);
    return cn_roster_is_registered(board) && known && cn_roster_is_registered(known);
}

static void handle_round(void *context, const struct cn_coap_request *request,
                         struct cn_coap_reply *reply)
{
    struct cn_resources *resources = context;
    struct cn_round_info info;
    const struct cn_roster_board *board = cn_resources_identify(&resources, request, reply);
    if (!board)
        return;
    if (!is_registered(resources, board) ||
        board->facts.settings != cn_resources_settings(resources)) {
        cn_coap_reply_error(reply, CN_COAP_UNAUTHORIZED, "the job may be another: register again");
        return;
    }
    if (!request->notifies)
        cn_roster_work(resources->roster, board->enrolled.name, resources->now_ms());
    cn_err err = cn_run_describe(resources->run, board->enrolled.group, resources->now_ms(), &info);
    if (err) {
        cn_resources_reply_trouble(resources, reply, err);
        return;
    }
    info.key_epoch = cn_resources_group(resources, board)->key_epoch;
    info.order = cn_orders_open(&cn_resources_gateway(resources)->orders, board->enrolled.name,
                                resources->now_ms());
    uint8_t bytes[CN_MESSAGE_MAX];
    size_t size = 0;
    if (cn_message_put_round(&info, bytes, &size) == CN_OK)
        cn_resources_reply(reply, CN_COAP_CONTENT, bytes, size);
}

// --- b ---

struct blob_request {
    uint8_t digest[CN_DIGEST_SIZE];
    uint32_t index, count;
};

// Splits "HEX/N/COUNT"; without COUNT, one kilobyte is meant. HEX has exactly 64 digits.
static bool parse_blob_path(const char *path, struct blob_request *blob)
{
    char hex[2 * CN_DIGEST_SIZE + 1];
    const char *rest;
    if (strlen(path) < sizeof(hex) || path[sizeof(hex) - 1] != '/')
        return false;
    memcpy(hex, path, sizeof(hex) - 1);
    hex[sizeof(hex) - 1] = '\0';
    if (cn_hex_parse(hex, blob->digest, CN_DIGEST_SIZE) != CN_OK ||
        !cn_resources_parse_number(path + sizeof(hex), '/', &blob->index, &rest))
        return false;
    blob->count = 1024 / CN_RESOURCES_CHUNK_SIZE;
    return !*rest || (cn_resources_parse_number(rest, '\0', &blob->count, &rest) && blob->count);
}

static void handle_blob(void *context, const struct cn_coap_request *request,
                        struct cn_coap_reply *reply)
{
    struct cn_resources *resources = context;
    struct blob_request blob;
    const uint8_t *data;
    size_t size;
    uint32_t version;
    const struct cn_roster_board *board = cn_resources_identify(&resources, request, reply);
    if (!board)
        return;
    if (!parse_blob_path(request->path, &blob)) {
        cn_coap_reply_error(reply, CN_COAP_BAD_REQUEST, "expected b/DIGEST/CHUNK/COUNT");
        return;
    }
    if (cn_model_store_blob(resources->models, blob.digest, &data, &size, &version) != CN_OK) {
        cn_coap_reply_error(reply, CN_COAP_GONE, "no such blob (any more)");
        return;
    }
    uint64_t offset = (uint64_t)blob.index * CN_RESOURCES_CHUNK_SIZE;
    uint64_t wanted = (uint64_t)blob.count * CN_RESOURCES_CHUNK_SIZE;
    if (offset >= size) {
        cn_coap_reply_error(reply, CN_COAP_NOT_FOUND, "the blob has %zu bytes", size);
        return;
    }
    uint64_t left = size - offset;
    if (wanted > request->reply_max && left > request->reply_max) {
        cn_coap_reply_error(reply, CN_COAP_BAD_REQUEST, "at most %zu bytes at a time",
                            request->reply_max);
        return;
    }
    if (wanted >= left) {
        wanted = left;
        cn_roster_serve(resources->roster, board->enrolled.group, version);
    }
    cn_resources_reply(reply, CN_COAP_CONTENT, data + offset, (size_t)wanted);
}

// Answers a probe of the path with the same number of bytes (RFC 8899).
static void handle_probe(void *context, const struct cn_coap_request *request,
                         struct cn_coap_reply *reply)
{
    (void)context;
    reply->code = CN_COAP_CHANGED;
    reply->size = request->size < CN_COAP_BODY_MAX ? request->size : CN_COAP_BODY_MAX;
    memset(reply->body, 0, reply->size);
}

const struct cn_coap_route *cn_resources_routes(size_t *count)
{
    static const struct cn_coap_route routes[] = {
        {CN_COAP_PUT, "u", false, cn_resources_upload, true},
        {CN_COAP_GET, "b", false, handle_blob, true},
        {CN_COAP_GET, "r", true, handle_round, false},
        {CN_COAP_POST, "reg", false, cn_resources_register, false},
        {CN_COAP_GET, "k", false, handle_pair_key, false},
        {CN_COAP_POST, "u", false, cn_resources_upload, false},
        {CN_COAP_GET, "u", false, cn_resources_upload, false},
        {CN_COAP_DELETE, "u", false, cn_resources_upload, false},
        {CN_COAP_POST, "h", false, cn_resources_health, false},
        {CN_COAP_PUT, "o", false, cn_resources_order, false},
        {CN_COAP_POST, "p", false, handle_probe, true}, // answered with as many bytes
    };
    *count = sizeof(routes) / sizeof(routes[0]);
    return routes;
}
