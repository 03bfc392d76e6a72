// resources_upload.c - answers to boards that upload an update: u.
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "aggregator/serve/resources_private.h"
#include "runtime/port/crypto.h"
#include "transport/message/message.h"

#define COUNT_MAX (1ull << 40) // samples that a measurement may claim
#define LOSS_MAX 1e30          // as transport/PROTOCOL.md, "amount"
#define GAPS_OF_CHUNK 16       // most ranges of missing chunks in the answer to a chunk

static bool measurement_is_sane(const struct cn_job *job, const struct cn_declare_request *declared)
{
    return declared->held_out_count <= COUNT_MAX &&
           declared->held_out_correct <= declared->held_out_count &&
           cn_loss_can_be(job->loss, declared->held_out_loss, LOSS_MAX) &&
           declared->train_loss > -LOSS_MAX && declared->train_loss < LOSS_MAX;
}

// Lets an update count without a measurement that cannot be: it says nothing about the frame, and a
// round must not wait for ever for a group in which one member measures nonsense.
static void drop_measurement(const struct cn_resources *resources, const char *group,
                             struct cn_declare_request *declared)
{
    cn_run_note_odd(resources->run, group,
                    "a loss or count that was measured with the update is out of range: it counts "
                    "as not measured");
    declared->held_out_loss = declared->train_loss = 0;
    declared->held_out_correct = declared->held_out_count = 0;
    declared->measures = (struct cn_measures){0};
}

// Answers a declaration that cannot be used, and has it logged and counted.
static void refuse_declaration(const struct cn_resources *resources, const char *group,
                               const struct cn_declare_request *declared, enum cn_coap_code code,
                               const char *reason, struct cn_coap_reply *reply)
{
    cn_run_refuse(resources->run, group, declared, reason);
    cn_coap_reply_error(reply, code, "%s", reason);
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
    char reason[64];
    if (cn_message_get_declare(request->body, request->size, &declared) != CN_OK) {
        refuse_declaration(resources, group, NULL, CN_COAP_BAD_REQUEST,
                           "malformed declaration of an update", reply);
        return;
    }
    if (is_of_other_run(resources, declared.run)) {
        cn_coap_reply_error(reply, CN_COAP_UNAUTHORIZED,
                            "the update belongs to another run: register again");
        return;
    }
    if (!measurement_is_sane(resources->job, &declared))
        drop_measurement(resources, group, &declared);
    if (declared.member_count)
        tell_signs(resources, board, &declared);
    cn_err err = cn_run_judge(resources->run, group, &declared, &status);
    if (err) {
        cn_resources_reply_trouble(resources, reply, err);
        return;
    }
    if (status.decided) {
        cn_resources_reply_status(reply, CN_COAP_CREATED, &status);
        return;
    }
    err = cn_spool_declare(resources->spool, board->enrolled.name, group, &declared,
                           resources->now_ms(), &upload);
    if (err == CN_ERANGE) {
        snprintf(reason, sizeof(reason), "no update of this model has %" PRIu64 " bytes",
                 declared.size);
        refuse_declaration(resources, group, &declared, CN_COAP_TOO_LARGE, reason, reply);
    } else if (err) {
        cn_resources_reply_trouble(resources, reply, err);
    } else {
        cn_spool_describe(upload, 0, CN_RANGE_MAX, &status);
        cn_resources_reply_status(reply, CN_COAP_CREATED, &status);
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
    cn_resources_reply_status(reply, CN_COAP_INCOMPLETE, &progress);
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
        cn_resources_reply_trouble(resources, reply, err);
    } else {
        memcpy(status.id, progress.id, sizeof(status.id));
        cn_resources_reply_status(reply, CN_COAP_CHANGED, &status);
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
        cn_resources_reply_trouble(resources, reply, err);
    } else if (!request->wants_reply) {
        reply->code = CN_COAP_SILENT;
    } else if (upload->received == upload->chunk_count) {
        handle_commit(resources, board, upload, reply);
    } else {
        struct cn_upload_status status = {0};
        cn_spool_describe(upload, 0, GAPS_OF_CHUNK, &status);
        cn_resources_reply_status(reply, CN_COAP_CHANGED, &status);
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
    bool numbered = cn_resources_parse_number(rest, '\0', &number, &end);
    if (request->method == CN_COAP_PUT && numbered) {
        handle_chunks(resources, board, upload, number, request, reply);
    } else if (request->method == CN_COAP_POST && strcmp(rest, "commit") == 0) {
        handle_commit(resources, board, upload, reply);
    } else if (request->method == CN_COAP_GET && (numbered || !*rest)) {
        struct cn_upload_status status = {0};
        cn_spool_describe(upload, number, CN_RANGE_MAX, &status);
        cn_resources_reply_status(reply, CN_COAP_CONTENT, &status);
    } else if (request->method == CN_COAP_DELETE && !*rest) {
        cn_spool_drop(resources->spool, upload);
        reply->code = CN_COAP_DELETED;
    } else {
        cn_coap_reply_error(reply, CN_COAP_BAD_REQUEST, "expected u/ID/CHUNK or u/ID/commit");
    }
}

void cn_resources_upload(void *context, const struct cn_coap_request *request,
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
