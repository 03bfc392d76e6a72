#include "aggregator/serve/resources.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "aggregator/serve/resources_private.h"
#include "runtime/base/log.h"
#include "transport/coap/security.h"
#include "transport/message/message.h"

#define TROUBLE_MS 60000       // least time between two lines about errors of the aggregator itself
#define BUSY_S 10              // after which a board comes back if the disk or the spool is full
#define COUNT_MAX (1ull << 40) // samples that a measurement may claim
#define GAPS_OF_CHUNK 16       // most ranges of missing chunks in the answer to a chunk

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
    if (!board) {
        cn_coap_reply_error(reply, CN_COAP_UNAUTHORIZED, "%s is not enrolled", request->board);
        return NULL;
    }
    cn_roster_hear(gateway->roster, request->board, gateway->now_ms());
    if (gateway->serving)
        *resources = gateway->serving(gateway->context, board->enrolled.group);
    if (*resources == gateway)
        return board;
    board = cn_roster_find((*resources)->roster, request->board);
    if (board) {
        cn_roster_hear((*resources)->roster, request->board, gateway->now_ms());
    } else {
        cn_coap_reply_error(reply, CN_COAP_UNAVAILABLE, "the job does not know this board yet");
        reply->max_age_s = 1;
    }
    return board;
}

// Answers after a passing error of the aggregator itself: the board keeps what it has and comes
// back.
static void reply_trouble(struct cn_resources *resources, struct cn_coap_reply *reply, cn_err err)
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

static void reply_status(struct cn_coap_reply *reply, enum cn_coap_code code,
                         const struct cn_upload_status *status)
{
    uint8_t bytes[CN_MESSAGE_MAX];
    size_t size = 0;
    if (cn_message_put_status(status, bytes, &size) == CN_OK)
        cn_resources_reply(reply, code, bytes, size);
}

// Reads a decimal number that ends at stop or at the end of text. Sets *rest to what follows stop.
static bool parse_number(const char *text, char stop, uint32_t *number, const char **rest)
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
    cn_roster_work(resources->roster, board->enrolled.name, resources->now_ms());
    cn_err err = cn_run_describe(resources->run, board->enrolled.group, resources->now_ms(), &info);
    if (err) {
        reply_trouble(resources, reply, err);
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
        !parse_number(path + sizeof(hex), '/', &blob->index, &rest))
        return false;
    blob->count = 1024 / CN_RESOURCES_CHUNK_SIZE;
    return !*rest || (parse_number(rest, '\0', &blob->count, &rest) && blob->count);
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

// --- u ---

static bool measurement_is_sane(const struct cn_declare_request *declared)
{
    return declared->held_out_count <= COUNT_MAX &&
           declared->held_out_correct <= declared->held_out_count && declared->held_out_loss >= 0 &&
           declared->held_out_loss < 1e30 && declared->train_loss > -1e30 &&
           declared->train_loss < 1e30;
}

static void tell_signs(struct cn_resources *resources, const struct cn_roster_board *board,
                       const struct cn_declare_request *declared)
{
    struct cn_roster *rosters[] = {resources->roster, cn_resources_gateway(resources)->roster};
    for (int i = 0; i < (resources->gateway ? 2 : 1); i++)
        cn_roster_tell(rosters[i], board->enrolled.name, board->enrolled.group, declared->members,
                       declared->member_count, resources->now_ms());
}

// Says whether an update belongs to another run: another job of the gateway has the group now, or
// another gateway is here. Only that run can say what became of the update.
static bool is_of_other_run(const struct cn_resources *resources, uint64_t run)
{
    return run != CN_RUN_MEASUREMENT && run != cn_ledger_identity(resources->ledger)->run;
}

static void handle_declare(struct cn_resources *resources, const struct cn_roster_board *board,
                           const struct cn_coap_request *request, struct cn_coap_reply *reply)
{
    struct cn_declare_request declared;
    struct cn_upload_status status;
    struct cn_spooled *upload;
    const char *group = board->enrolled.group;
    if (cn_message_get_declare(request->body, request->size, &declared) != CN_OK) {
        cn_coap_reply_error(reply, CN_COAP_BAD_REQUEST, "malformed declaration of an update");
        return;
    }
    if (is_of_other_run(resources, declared.run)) {
        cn_coap_reply_error(reply, CN_COAP_UNAUTHORIZED,
                            "the update belongs to another run: register again");
        return;
    }
    if (!measurement_is_sane(&declared)) {
        cn_coap_reply_error(reply, CN_COAP_BAD_REQUEST,
                            "a loss or count that was measured with the update is out of range");
        return;
    }
    if (declared.member_count)
        tell_signs(resources, board, &declared);
    cn_err err = cn_run_judge(resources->run, group, &declared, &status);
    if (err) {
        reply_trouble(resources, reply, err);
        return;
    }
    if (status.decided) {
        reply_status(reply, CN_COAP_CREATED, &status);
        return;
    }
    err = cn_spool_declare(resources->spool, board->enrolled.name, group, &declared,
                           resources->now_ms(), &upload);
    if (err == CN_ERANGE) {
        cn_coap_reply_error(reply, CN_COAP_TOO_LARGE,
                            "no update of this model has %" PRIu64 " bytes", declared.size);
    } else if (err) {
        reply_trouble(resources, reply, err);
    } else {
        cn_spool_describe(upload, 0, CN_RANGE_MAX, &status);
        reply_status(reply, CN_COAP_CREATED, &status);
    }
}

// Answers with the missing chunks and returns true if there are any. Lent chunks that turned out
// wrong are missing again.
static bool reply_missing(const struct cn_spooled *upload, struct cn_coap_reply *reply)
{
    struct cn_upload_status progress = {0};
    if (!upload || upload->received == upload->chunk_count)
        return false;
    cn_spool_describe(upload, 0, CN_RANGE_MAX, &progress);
    reply_status(reply, CN_COAP_INCOMPLETE, &progress);
    return true;
}

// Returns CN_EAUTH when the gateway's ledger says that the board was revoked or moved. The ledger
// of a further job learns of it a moment later.
static cn_err check_enrolled(const struct cn_resources *resources,
                             const struct cn_roster_board *board)
{
    struct cn_ledger_board found;
    if (!resources->gateway)
        return CN_OK;
    cn_err err = cn_ledger_find_board(resources->gateway->ledger, board->enrolled.name, &found);
    if (!err && (found.revoked || strcmp(found.group, board->enrolled.group) != 0))
        err = CN_EAUTH;
    cn_crypto_wipe(&found, sizeof(found));
    return err;
}

static void handle_commit(struct cn_resources *resources, const struct cn_roster_board *board,
                          struct cn_spooled *upload, struct cn_coap_reply *reply)
{
    struct cn_upload_status status, progress = {0};
    if (reply_missing(upload, reply))
        return;
    cn_spool_describe(upload, 0, 0, &progress);
    cn_err err = check_enrolled(resources, board);
    if (!err)
        err = cn_run_accept(resources->run, upload, &status);
    if (err == CN_EAGAIN && reply_missing(cn_spool_find(resources->spool, board->enrolled.name,
                                                        board->enrolled.group, progress.id),
                                          reply))
        return;
    if (err == CN_EDIGEST) {
        cn_coap_reply_error(reply, CN_COAP_UNPROCESSABLE, "the bytes are not what was declared");
    } else if (err == CN_EAUTH) { // revoked since the roster was read: answers as identify does
        cn_coap_reply_error(reply, CN_COAP_UNAUTHORIZED, "%s is not enrolled",
                            board->enrolled.name);
    } else if (err) {
        reply_trouble(resources, reply, err);
    } else {
        memcpy(status.id, progress.id, sizeof(status.id));
        reply_status(reply, CN_COAP_CHANGED, &status);
    }
}

// The last chunk also commits the upload if it is to be answered, which saves a round trip.
static void handle_chunks(struct cn_resources *resources, const struct cn_roster_board *board,
                          struct cn_spooled *upload, uint32_t index,
                          const struct cn_coap_request *request, struct cn_coap_reply *reply)
{
    cn_err err = cn_spool_put(resources->spool, upload, index, request->body, request->size,
                              resources->now_ms());
    if (err == CN_ERANGE) {
        cn_coap_reply_error(reply, CN_COAP_BAD_REQUEST, "wrong number or size of chunks");
    } else if (err == CN_ECONFLICT) {
        cn_coap_reply_error(reply, CN_COAP_CONFLICT, "chunk %u came before with other bytes",
                            index);
    } else if (err) {
        reply_trouble(resources, reply, err);
    } else if (!request->wants_reply) {
        reply->code = CN_COAP_SILENT;
    } else if (upload->received == upload->chunk_count) {
        handle_commit(resources, board, upload, reply);
    } else {
        struct cn_upload_status status = {0};
        cn_spool_describe(upload, 0, GAPS_OF_CHUNK, &status);
        reply_status(reply, CN_COAP_CHANGED, &status);
    }
}

// Finds the upload that "ID" or "ID/REST" names, and sets *rest to REST. If there is none, answers
// and returns NULL.
static struct cn_spooled *find_upload(struct cn_resources *resources,
                                      const struct cn_roster_board *board, const char *path,
                                      const char **rest, struct cn_coap_reply *reply)
{
    char hex[2 * CN_UPLOAD_ID_SIZE + 1];
    uint8_t id[CN_UPLOAD_ID_SIZE];
    struct cn_spooled *upload = NULL;
    size_t length = strcspn(path, "/");
    if (length == sizeof(hex) - 1) {
        memcpy(hex, path, length);
        hex[length] = '\0';
        if (cn_hex_parse(hex, id, sizeof(id)) == CN_OK)
            upload =
                cn_spool_find(resources->spool, board->enrolled.name, board->enrolled.group, id);
    }
    if (!upload)
        cn_coap_reply_error(reply, CN_COAP_NOT_FOUND, "no such upload; declare it again");
    *rest = path[length] ? path + length + 1 : "";
    return upload;
}

static void use_upload(struct cn_resources *resources, const struct cn_roster_board *board,
                       struct cn_spooled *upload, const char *rest,
                       const struct cn_coap_request *request, struct cn_coap_reply *reply)
{
    uint32_t number = 0;
    const char *end;
    bool numbered = parse_number(rest, '\0', &number, &end);
    if (request->method == CN_COAP_PUT && numbered) {
        handle_chunks(resources, board, upload, number, request, reply);
    } else if (request->method == CN_COAP_POST && strcmp(rest, "commit") == 0) {
        handle_commit(resources, board, upload, reply);
    } else if (request->method == CN_COAP_GET && (numbered || !*rest)) {
        struct cn_upload_status status = {0};
        cn_spool_describe(upload, number, CN_RANGE_MAX, &status);
        reply_status(reply, CN_COAP_CONTENT, &status);
    } else if (request->method == CN_COAP_DELETE && !*rest) {
        cn_spool_drop(resources->spool, upload);
        reply->code = CN_COAP_DELETED;
    } else {
        cn_coap_reply_error(reply, CN_COAP_BAD_REQUEST, "expected u/ID/CHUNK or u/ID/commit");
    }
}

static void handle_upload(void *context, const struct cn_coap_request *request,
                          struct cn_coap_reply *reply)
{
    struct cn_resources *resources = context;
    const char *rest;
    const struct cn_roster_board *board = cn_resources_identify(&resources, request, reply);
    if (!board)
        return;
    if (request->method == CN_COAP_POST && !*request->path) {
        handle_declare(resources, board, request, reply);
        return;
    }
    struct cn_spooled *upload = find_upload(resources, board, request->path, &rest, reply);
    if (upload)
        use_upload(resources, board, upload, rest, request, reply);
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
        {CN_COAP_PUT, "u", false, handle_upload, true},
        {CN_COAP_GET, "b", false, handle_blob, true},
        {CN_COAP_GET, "r", true, handle_round, false},
        {CN_COAP_POST, "reg", false, cn_resources_register, false},
        {CN_COAP_GET, "k", false, handle_pair_key, false},
        {CN_COAP_POST, "u", false, handle_upload, false},
        {CN_COAP_GET, "u", false, handle_upload, false},
        {CN_COAP_DELETE, "u", false, handle_upload, false},
        {CN_COAP_POST, "h", false, cn_resources_health, false},
        {CN_COAP_PUT, "o", false, cn_resources_order, false},
        {CN_COAP_POST, "p", false, handle_probe, false},
    };
    *count = sizeof(routes) / sizeof(routes[0]);
    return routes;
}
