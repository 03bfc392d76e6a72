// session_part_heal.c - a state put together from the parts that members have stored.
#include <stdlib.h>
#include <string.h>

#include "runtime/base/log.h"
#include "runtime/round/checkpoint/part_cover.h"
#include "runtime/round/session/session_chain.h"

#define PIECE ((size_t)1 << 20) // bytes that travel at a time

enum fingerprint { OFFERS = 0x70680001, HEADER, VALUES };

// The numbers of an offer that travel.
enum word { EPOCH, STEP, PARTS, PART, WORDS };

static const char *name_of(uint32_t file)
{
    return cn_part_names[file / CN_PART_SLOTS][file % CN_PART_SLOTS];
}

// Returns whether a stored part belongs to the round that is held, and is ahead of it.
static bool fits(const struct cn_session *session, const struct cn_part_header *header)
{
    const struct cn_checkpoint *held = &session->held;

    return held->phase == CN_PHASE_TRAIN && header->run == held->run &&
           header->lineage == held->lineage && header->round == held->round &&
           memcmp(header->base, held->base_digest, sizeof(header->base)) == 0 &&
           header->step > held->step && header->step <= held->steps && header->epoch > 0;
}

// Looks at the files of this board.
static void list_offers(struct cn_session *session, struct cn_part_offer offers[CN_PART_OFFERS])
{
    for (uint32_t f = 0; f < CN_PART_OFFERS && !session->disk.distrusts_parts; f++) {
        struct cn_part_header header;
        cn_err err =
            cn_part_file_check(session->config.store, name_of(f), session->layout, &header);

        if (err == CN_ENOTFOUND)
            continue;
        session->disk.has_parts = true;
        if (err)
            cn_log(CN_LOG_WARN, "session", "%s is not used: %s", name_of(f), cn_err_text(err));
        else if (fits(session, &header))
            offers[f] =
                (struct cn_part_offer){header.epoch, header.step, header.parts, header.part};
    }
}

static cn_err exchange(struct cn_session *session, struct cn_collective *collective,
                       const struct cn_view *view,
                       struct cn_part_offer offers[CN_GROUP_MAX][CN_PART_OFFERS])
{
    int64_t words[CN_GROUP_MAX][CN_PART_OFFERS][WORDS] = {0};
    const struct cn_collective_call call = {.kind = CN_COLLECTIVE_ALL_GATHER,
                                            .type = CN_INT64,
                                            .data = words,
                                            .count = (size_t)view->size * CN_PART_OFFERS * WORDS,
                                            .fingerprint = OFFERS};
    cn_err err;

    list_offers(session, offers[view->rank]);
    for (uint32_t f = 0; f < CN_PART_OFFERS; f++) {
        const struct cn_part_offer *offer = &offers[view->rank][f];
        int64_t *own = words[view->rank][f];

        own[EPOCH] = (int64_t)offer->epoch;
        own[STEP] = offer->step;
        own[PARTS] = offer->parts;
        own[PART] = offer->part;
    }
    err = view->size > 1 ? collective->ops->run(collective, &call) : CN_OK;
    for (uint32_t m = 0; !err && m < view->size; m++)
        for (uint32_t f = 0; f < CN_PART_OFFERS; f++)
            offers[m][f] =
                (struct cn_part_offer){(uint64_t)words[m][f][EPOCH], (uint32_t)words[m][f][STEP],
                                       (uint32_t)words[m][f][PARTS], (uint32_t)words[m][f][PART]};
    return err;
}

// --- the parts of the chosen state ---

// The rows that a state is put together in, by enum cn_checkpoint_part. NULL: not one of them.
struct assembly {
    struct cn_session *session;
    struct cn_collective *collective;
    const struct cn_view *view;
    const struct cn_part_choice *choice;
    struct cn_part_header numbers; // of the first part
    float *rows[CN_PART_COUNT];    // owned
    uint8_t *covered;              // owned; by tensor: whether a part had it
    uint8_t *piece;                // owned
};

static void take(void *context, enum cn_checkpoint_part array, size_t first, size_t count,
                 const float *values)
{
    struct assembly *assembly = context;

    if (assembly->rows[array])
        memcpy(assembly->rows[array] + first, values, count * sizeof(*values));
}

static cn_err broadcast(const struct assembly *assembly, uint32_t source, size_t size,
                        enum fingerprint what)
{
    const struct cn_collective_call call = {.kind = CN_COLLECTIVE_BROADCAST,
                                            .peer = source,
                                            .data = assembly->piece,
                                            .count = size,
                                            .fingerprint = what};

    return assembly->view->size > 1 ? assembly->collective->ops->run(assembly->collective, &call)
                                    : CN_OK;
}

// Reads the next bytes of a part on the member that gives it.
static cn_err read_piece(const struct assembly *assembly, struct cn_store_file *file,
                         uint64_t offset, size_t size)
{
    struct cn_store *store = assembly->session->config.store;

    return file ? store->ops->read(file, offset, assembly->piece, size) : CN_OK;
}

static cn_err begin_part(struct assembly *assembly, uint32_t part, struct cn_part_reader *reader)
{
    const struct cn_part_choice *choice = assembly->choice;
    const struct cn_part_header *header = &reader->header;
    cn_err err =
        cn_part_reader_begin(reader, assembly->session->layout, assembly->piece, take, assembly);

    if (err)
        return err;
    if (part == 0)
        assembly->numbers = *header;
    return header->epoch == choice->epoch && header->step == choice->step &&
                   header->parts == choice->parts && header->part == part &&
                   fits(assembly->session, header) &&
                   cn_part_is_same_state(header, &assembly->numbers)
               ? CN_OK
               : CN_EFORMAT;
}

static cn_err gather_part(struct assembly *assembly, uint32_t part, struct cn_store_file *file)
{
    uint32_t source = assembly->choice->ranks[part];
    uint64_t offset = CN_PART_HEADER_SIZE;
    struct cn_part_reader reader = {.left = 0};
    cn_err err = read_piece(assembly, file, 0, CN_PART_HEADER_SIZE);

    if (!err)
        err = broadcast(assembly, source, CN_PART_HEADER_SIZE, HEADER);
    if (!err)
        err = begin_part(assembly, part, &reader);
    while (!err && reader.left > 0) {
        size_t some = reader.left < PIECE ? (size_t)reader.left : PIECE;

        err = read_piece(assembly, file, offset, some);
        if (!err)
            err = broadcast(assembly, source, some, VALUES);
        if (!err)
            err = cn_part_reader_put(&reader, assembly->piece, some);
        offset += some;
    }
    for (uint32_t t = 0; !err && t < reader.header.tensors; t++)
        assembly->covered[reader.tensors[t]] = 1;
    cn_part_reader_end(&reader);
    return err;
}

static cn_err gather_parts(struct assembly *assembly)
{
    struct cn_store *store = assembly->session->config.store;
    const struct cn_part_choice *choice = assembly->choice;
    cn_err err = CN_OK;

    for (uint32_t p = 0; !err && p < choice->parts; p++) {
        struct cn_store_file *file = NULL;
        uint64_t size;

        if (choice->ranks[p] == assembly->view->rank)
            err = store->ops->open(store, name_of(choice->files[p]), &file, &size);
        if (!err)
            err = gather_part(assembly, p, file);
        store->ops->abort(file);
    }
    for (size_t t = 0; !err && t < assembly->session->layout->tensor_count; t++)
        if (!assembly->covered[t])
            err = CN_EFORMAT;
    return err;
}

static cn_err allocate(struct assembly *assembly)
{
    static const enum cn_checkpoint_part parts[] = {CN_PART_WEIGHTS, CN_PART_OPTIMIZER,
                                                    CN_PART_SECOND};
    struct cn_session *session = assembly->session;
    uint32_t count = cn_trainer_has_second(session->trainer) ? 3 : 2;
    cn_err err = CN_OK;

    assembly->piece = malloc(PIECE);
    assembly->covered = calloc(session->layout->tensor_count + 1, 1);
    if (!assembly->piece || !assembly->covered)
        return CN_ENOMEM;
    for (uint32_t i = 0; !err && i < count; i++)
        err = cn_session_allocate(&assembly->rows[parts[i]], session->layout->total);
    return err;
}

static void swap(float **a, float **b)
{
    float *c = *a;

    *a = *b;
    *b = c;
}

// Replaces the held state. The rows before become those of the assembly, to be freed.
static cn_err hold(struct assembly *assembly)
{
    struct cn_session *session = assembly->session;
    struct cn_checkpoint *held = &session->held;
    const struct cn_part_header *numbers = &assembly->numbers;

    swap(&held->weights, &assembly->rows[CN_PART_WEIGHTS]);
    swap(&held->optimizer, &assembly->rows[CN_PART_OPTIMIZER]);
    if (cn_trainer_has_second(session->trainer))
        swap(&held->second, &assembly->rows[CN_PART_SECOND]);
    held->step = numbers->step;
    held->samples = numbers->samples;
    held->train_loss = numbers->train_loss;
    held->cursor = numbers->cursor;
    held->updates = numbers->updates;
    held->loss_scale = numbers->loss_scale;
    memcpy(held->micro, numbers->micro, sizeof(held->micro));
    session->sharing.let_go = false;
    cn_session_mark_synced(session);
    cn_log(CN_LOG_INFO, "session",
           "round %u: the parts that members stored after step %u make the state", held->round,
           held->step);
    return cn_session_load_trainer(session);
}

cn_err cn_session_take_parts(struct cn_session *session, struct cn_collective *collective,
                             const struct cn_view *view)
{
    struct cn_part_offer offers[CN_GROUP_MAX][CN_PART_OFFERS] = {0};
    struct cn_part_choice choice;
    struct assembly assembly = {session, collective, view, &choice, .piece = NULL};
    cn_err err;

    if (!cn_session_is_cut(session) && !cn_session_may_cut(session))
        return CN_OK;
    err = exchange(session, collective, view, offers);
    if (err)
        return err;
    cn_part_choose((const struct cn_part_offer(*)[CN_PART_OFFERS])offers, view->size, &choice);
    if (!choice.epoch)
        return CN_OK;
    err = allocate(&assembly);
    if (!err)
        err = gather_parts(&assembly);
    if (err == CN_EFORMAT || err == CN_EDIGEST)
        session->disk.distrusts_parts = true; // the next epoch goes on with the held state
    if (!err)
        err = hold(&assembly);
    for (uint32_t i = 0; i < CN_PART_COUNT; i++)
        cn_scratch_free(assembly.rows[i]);
    free(assembly.covered);
    free(assembly.piece);
    return err;
}
