// session_part_store.c - the parts of a state on the disks of a chain's members.
#include <stdlib.h>
#include <string.h>

#include "runtime/base/log.h"
#include "runtime/engine/trainer/trainer_parts.h"
#include "runtime/group/purpose.h"
#include "runtime/round/checkpoint/part_file.h"
#include "runtime/round/session/session_chain.h"

#define PIECE ((size_t)1 << 20) // bytes that travel at a time

// Rows in files need their room as well. Before the first step the optimizer's state is zeros,
// unless it is kept from round to round.
bool cn_session_wants_whole_store(struct cn_session *session)
{
    bool kept = session->held.step == 0 && session->config.job->keep_optimizer;

    return !cn_session_is_cut(session) || kept || session->disk.full ||
           session->disk.parts_failed || !cn_session_has_room_for_rows(session);
}

static const char *name_of(const struct cn_session *session, enum cn_stored_file file)
{
    return cn_stored_names[file][session->disk.part_slot];
}

// --- this board's part ---

static void describe(const struct cn_session *session, struct cn_part_header *header)
{
    const struct cn_checkpoint *held = &session->held;
    const struct cn_session_counts *since = &session->steps.unsaved_counts;
    const struct cn_layout *layout = cn_trainer_layout(session->trainer);
    bool second = cn_trainer_has_second(session->trainer);

    *header = (struct cn_part_header){
        .run = held->run,
        .epoch = held->epoch,
        .lineage = held->lineage,
        .round = held->round,
        .step = held->step + session->steps.unsaved,
        .parts = session->cut.at.parts,
        .samples = held->samples + since->samples,
        .cursor = held->cursor + since->cursor,
        .updates = second ? cn_trainer_updates(session->trainer) : 0,
        .train_loss = held->train_loss + since->train_loss,
        .loss_scale = cn_trainer_loss_scale(session->trainer),
        .arrays =
            1u << CN_PART_WEIGHTS | 1u << CN_PART_OPTIMIZER | (second ? 1u << CN_PART_SECOND : 0),
        .part = session->cut.part,
        .tensors = (uint32_t)layout->tensor_count,
        .values = layout->total,
    };
    memcpy(header->base, held->base_digest, sizeof(header->base));
    memcpy(header->micro, held->micro, sizeof(header->micro));
}

static cn_err list_tensors(const struct cn_session *session, uint32_t **tensors)
{
    size_t count = cn_trainer_layout(session->trainer)->tensor_count;

    *tensors = calloc(count + 1, sizeof(**tensors));
    for (size_t t = 0; *tensors && t < count; t++)
        (*tensors)[t] = (uint32_t)cn_trainer_whole_tensor(session->trainer, t);
    return *tensors ? CN_OK : CN_ENOMEM;
}

// Writes this board's part. *stored is the disk's result; an error returned is the group's. The
// rows are read even if the disk has failed, because that may be a collective call.
static cn_err write_own(struct cn_session *session, struct cn_collective *collective,
                        cn_err *stored)
{
    struct cn_part_header header;
    struct cn_part_writer *writer = malloc(sizeof(*writer));
    uint32_t *tensors = NULL;
    cn_err err = writer ? list_tensors(session, &tensors) : CN_ENOMEM;

    if (err) {
        free(writer);
        return err;
    }
    describe(session, &header);
    cn_part_writer_begin(writer, session->config.store, name_of(session, CN_STORED_OWN), &header,
                         NULL, tensors);
    if (!cn_session_has_room(session) && !writer->err)
        writer->err = CN_ENOSPC;
    err = cn_session_read_own(session, collective, CN_ROW_WEIGHTS, cn_part_writer_put, writer);
    if (!err)
        err =
            cn_session_read_own(session, collective, CN_ROW_OPTIMIZER, cn_part_writer_put, writer);
    if (!err && header.arrays >> CN_PART_SECOND & 1)
        err = cn_session_read_own(session, collective, CN_ROW_SECOND, cn_part_writer_put, writer);
    *stored = cn_part_writer_end(writer, err);
    free(tensors);
    free(writer);
    return err;
}

// --- the part of another member ---

// A file that goes from one member to another.
struct copy {
    struct cn_session *session;
    struct cn_collective *collective;
    struct cn_set pair;
    uint32_t peer; // rank of the other member
    uint8_t *piece;
};

static cn_err move(const struct copy *copy, enum cn_collective_kind kind, size_t size,
                   enum cn_purpose what)
{
    const struct cn_collective_call call = {.kind = kind,
                                            .set = &copy->pair,
                                            .peer = copy->peer,
                                            .data = copy->piece,
                                            .count = size,
                                            .fingerprint = what};

    return copy->collective->ops->run(copy->collective, &call);
}

// Sends this board's part, as its file has it. Without a file a header of zeros is sent. *stored
// becomes CN_EIO for a file that cannot be read to its end; the other member sees a digest that
// does not match.
static cn_err send_own(const struct copy *copy, cn_err *stored)
{
    struct cn_store *store = copy->session->config.store;
    struct cn_store_file *file = NULL;
    uint64_t size = 0, offset = CN_PART_HEADER_SIZE;
    cn_err err, read = CN_OK;

    memset(copy->piece, 0, CN_PART_HEADER_SIZE);
    if (!*stored)
        read = store->ops->open(store, name_of(copy->session, CN_STORED_OWN), &file, &size);
    if (!*stored && !read)
        read = store->ops->read(file, 0, copy->piece, CN_PART_HEADER_SIZE);
    if (read) {
        memset(copy->piece, 0, CN_PART_HEADER_SIZE);
        size = 0;
    }
    err = move(copy, CN_COLLECTIVE_SEND, CN_PART_HEADER_SIZE, CN_PURPOSE_STORE_HEADER);
    for (size_t some; !err && offset < size; offset += some) {
        some = size - offset < PIECE ? (size_t)(size - offset) : PIECE;
        if (!read)
            read = store->ops->read(file, offset, copy->piece, some);
        if (read)
            memset(copy->piece, 0, some);
        err = move(copy, CN_COLLECTIVE_SEND, some, CN_PURPOSE_STORE_VALUES);
    }
    store->ops->abort(file);
    if (read)
        *stored = CN_EIO;
    return err;
}

// What became of a part that was received.
struct received {
    cn_err disk;    // result of this board's disk
    cn_err content; // result of the check
};

// Receives what follows a header, and stores all of it unless it is wrong.
static cn_err receive_rest(const struct copy *copy, struct cn_part_reader *reader,
                           struct received *received)
{
    struct cn_store *store = copy->session->config.store;
    struct cn_store_writer *file = malloc(sizeof(*file));
    cn_err *disk = &received->disk, *content = &received->content, err = CN_OK;

    if (!file)
        return CN_ENOMEM;
    *disk = cn_session_has_room(copy->session) ? CN_OK : CN_ENOSPC;
    if (!*disk)
        *disk = cn_store_writer_begin(store, name_of(copy->session, CN_STORED_BEFORE), file);
    if (*disk) {
        free(file);
        file = NULL;
    }
    if (file)
        *disk = cn_store_writer_put(file, copy->piece, CN_PART_HEADER_SIZE);
    while (!err && reader->left > 0) {
        size_t some = reader->left < PIECE ? (size_t)reader->left : PIECE;

        err = move(copy, CN_COLLECTIVE_RECEIVE, some, CN_PURPOSE_STORE_VALUES);
        if (!err && !*content)
            *content = cn_part_reader_put(reader, copy->piece, some);
        else
            reader->left -= some;
        if (!err && file && !*disk)
            *disk = cn_store_writer_put(file, copy->piece, some);
    }
    if (file) {
        cn_err drops = err ? err : *disk ? *disk : *content;
        cn_err ended = cn_store_writer_end(file, drops);

        *disk = drops ? *disk : ended;
    }
    free(file);
    return err;
}

static cn_err receive_before(const struct copy *copy, uint32_t from, struct received *received)
{
    static const uint8_t nothing[CN_PART_HEADER_SIZE];
    struct cn_part_reader reader;
    struct cn_part_header own;
    cn_err err = move(copy, CN_COLLECTIVE_RECEIVE, CN_PART_HEADER_SIZE, CN_PURPOSE_STORE_HEADER);

    if (err)
        return err;
    if (memcmp(copy->piece, nothing, sizeof(nothing)) == 0) { // the other member has no file
        received->content = CN_ENOTFOUND;
        return CN_OK;
    }
    describe(copy->session, &own);
    err = cn_part_reader_begin(&reader, copy->session->layout, copy->piece, NULL, NULL);
    if (err == CN_EFORMAT || err == CN_ERANGE) { // what follows has no known size
        copy->session->disk.parts_failed = true;
        cn_log(CN_LOG_WARN, "session",
               "round %u: what the member of part %u gave is no part of a state; this group stores "
               "the whole state from now on",
               copy->session->held.round, from + 1);
    }
    if (!err &&
        (cn_part_state(&reader.header) != cn_part_state(&own) || reader.header.part != from))
        received->content = CN_ESTALE;
    if (!err)
        err = receive_rest(copy, &reader, received);
    cn_part_reader_end(&reader);
    return err;
}

// Gives each part to the member of the next one: first the even parts, then the odd ones, so that
// several travel at once.
static cn_err exchange(struct cn_session *session, struct cn_collective *collective, cn_err *own,
                       struct received *before)
{
    const struct cn_chain_place *place = &session->plan.chain;
    struct copy copy = {session, collective, .piece = malloc(PIECE)};
    cn_err err = copy.piece ? CN_OK : CN_ENOMEM;

    for (uint32_t i = 0; !err && i < 2 * place->parts; i++) {
        uint32_t from = i % place->parts, to = (from + 1) % place->parts;

        if (from % 2 != i / place->parts || (place->part != from && place->part != to))
            continue;
        copy.pair = cn_ranks_parts(place, 1u << from | 1u << to);
        copy.peer = cn_ranks_of_part(place, place->part == from ? to : from);
        err = place->part == from ? send_own(&copy, own) : receive_before(&copy, from, before);
    }
    free(copy.piece);
    return err;
}

// --- all parts ---

// Sets *all to whether every member that trains has stored what it should, and *alike to whether
// all of them stored the same state.
static cn_err agree(struct cn_session *session, struct cn_collective *collective, bool stored,
                    bool *all, bool *alike)
{
    struct cn_part_header own;
    int64_t words[3];
    const struct cn_collective_call call = {.kind = CN_COLLECTIVE_ALL_REDUCE,
                                            .how = CN_REDUCE_MIN,
                                            .type = CN_INT64,
                                            .set =
                                                session->plan.whole ? NULL : &session->plan.train,
                                            .data = words,
                                            .count = 3,
                                            .fingerprint = CN_PURPOSE_STORE_DONE};
    cn_err err;

    describe(session, &own);
    words[0] = stored;
    words[1] = (int64_t)(cn_part_state(&own) >> 1);
    words[2] = -words[1];
    err = collective->ops->run(collective, &call);
    *all = words[0] > 0;
    *alike = (uint64_t)words[1] + (uint64_t)words[2] == 0; // the least of them is the largest
    return err;
}

cn_err cn_session_store_parts(struct cn_session *session, struct cn_collective *collective)
{
    struct received before = {CN_OK, CN_OK};
    cn_err own = CN_OK, err;
    bool all, alike;

    session->disk.no_parts = false;
    err = write_own(session, collective, &own);
    if (!err && session->plan.chain.chains == 1)
        err = exchange(session, collective, &own, &before);
    if (err)
        return err;
    cn_session_note_saved(session, own ? own : before.disk);
    err = agree(session, collective, !own && !before.disk && !before.content, &all, &alike);
    if (err)
        return err;
    session->disk.parts_failed = !alike;
    if (!alike)
        cn_log(CN_LOG_WARN, "session",
               "round %u: the members' parts are not of one state; the whole state is stored "
               "from now on",
               session->held.round);
    if (all && alike)
        session->disk.part_slot = 1 - session->disk.part_slot;
    return cn_trainer_discard(session->trainer);
}

void cn_session_forget_parts(struct cn_session *session)
{
    struct cn_store *store = session->config.store;
    cn_err err = CN_OK;

    session->disk.parts_failed = session->disk.parts_void = false;
    if (session->disk.no_parts)
        return;
    for (uint32_t f = 0; !err && f < CN_STORED_FILES * CN_STORED_SLOTS; f++)
        err = store->ops->remove(store, cn_stored_names[f / CN_STORED_SLOTS][f % CN_STORED_SLOTS]);
    session->disk.no_parts = !err;
    if (err)
        cn_log(CN_LOG_WARN, "session", "stored parts of a round that has ended stay: %s",
               cn_err_text(err));
}
