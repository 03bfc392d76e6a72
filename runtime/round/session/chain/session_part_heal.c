// session_part_heal.c - a state put together from the parts that members have stored.
#include <stdlib.h>
#include <string.h>

#include "runtime/base/log.h"
#include "runtime/group/purpose.h"
#include "runtime/round/checkpoint/part_cover.h"
#include "runtime/round/session/session_chain.h"

#define PIECE ((size_t)1 << 20) // bytes that travel at a time

// The numbers of an offer that travel.
enum word { STATE, EPOCH, STEP, PARTS, PART, WORDS };

static const char *name_of(uint32_t file)
{
    return cn_stored_names[file / CN_STORED_SLOTS][file % CN_STORED_SLOTS];
}

static bool is_ahead(const struct cn_session *session, uint32_t step)
{
    const struct cn_checkpoint *held = &session->held;

    return held->phase == CN_PHASE_TRAIN && step > held->step && step <= held->steps;
}

// Returns whether a stored part belongs to the round that is held, is ahead of it, and has the rows
// of this job's optimizer.
static bool fits(const struct cn_session *session, const struct cn_part_header *header)
{
    const struct cn_checkpoint *held = &session->held;
    uint32_t arrays = 1u << CN_PART_WEIGHTS | 1u << CN_PART_OPTIMIZER |
                      (cn_trainer_has_second(session->trainer) ? 1u << CN_PART_SECOND : 0);

    return header->run == held->run && header->lineage == held->lineage &&
           header->round == held->round &&
           memcmp(header->base, held->base_digest, sizeof(header->base)) == 0 &&
           is_ahead(session, header->step) && header->arrays == arrays;
}

static void tell_damaged(struct cn_session *session, const char *name, cn_err err)
{
    if (!session->disk.part_damaged)
        cn_log(CN_LOG_WARN, "session", "%s is not used: %s", name, cn_err_text(err));
    session->disk.part_damaged = true;
}

// Looks at the files of this board. Only those that fit are read as a whole.
static void list_offers(struct cn_session *session, struct cn_part_offer offers[CN_PART_OFFERS])
{
    struct cn_store *store = session->config.store;

    for (uint32_t f = 0; f < CN_PART_OFFERS; f++) {
        struct cn_part_header header;
        cn_err err = cn_part_file_read(store, name_of(f), session->layout, &header);

        if (err == CN_ENOTFOUND || (!err && !fits(session, &header)))
            continue;
        if (!err)
            err = cn_part_file_check(store, name_of(f), session->layout, &header);
        if (err)
            tell_damaged(session, name_of(f), err);
        else
            offers[f] = (struct cn_part_offer){cn_part_state(&header), header.epoch, header.step,
                                               header.parts, header.part};
    }
}

// Gathers the offers of all members. None counts if stored parts made no state on one of them: all
// members then go on with the state that they hold.
static cn_err exchange(struct cn_session *session, struct cn_collective *collective,
                       const struct cn_view *view,
                       struct cn_part_offer offers[CN_GROUP_MAX][CN_PART_OFFERS])
{
    int64_t words[CN_GROUP_MAX][1 + CN_PART_OFFERS * WORDS] = {0}; // first: whether they failed
    const struct cn_collective_call call = {.kind = CN_COLLECTIVE_ALL_GATHER,
                                            .type = CN_INT64,
                                            .data = words,
                                            .count = view->size * (1 + CN_PART_OFFERS * WORDS),
                                            .fingerprint = CN_PURPOSE_PART_OFFERS};
    bool failed = false;
    cn_err err;

    list_offers(session, offers[view->rank]);
    words[view->rank][0] = session->disk.parts_failed;
    for (uint32_t f = 0; f < CN_PART_OFFERS; f++) {
        const struct cn_part_offer *offer = &offers[view->rank][f];
        int64_t *own = &words[view->rank][1 + f * WORDS];

        own[STATE] = (int64_t)offer->state;
        own[EPOCH] = (int64_t)offer->epoch;
        own[STEP] = offer->step;
        own[PARTS] = offer->parts;
        own[PART] = offer->part;
    }
    err = view->size > 1 ? collective->ops->run(collective, &call) : CN_OK;
    for (uint32_t m = 0; m < view->size && !err; m++) {
        if (words[m][0] && !session->disk.parts_void)
            cn_log(CN_LOG_WARN, "session",
                   "round %u: no stored part counts: %s says that they made no state",
                   session->held.round,
                   session->config.settings->group.members[view->ranks[m]].name);
        failed |= words[m][0] != 0;
    }
    session->disk.parts_void |= failed;
    for (uint32_t m = 0; m < view->size; m++)
        for (uint32_t f = 0; f < CN_PART_OFFERS; f++) {
            const int64_t *from = &words[m][1 + f * WORDS];
            bool counts = !failed && is_ahead(session, (uint32_t)from[STEP]);

            offers[m][f] = (struct cn_part_offer){counts ? (uint64_t)from[STATE] : 0,
                                                  (uint64_t)from[EPOCH], (uint32_t)from[STEP],
                                                  (uint32_t)from[PARTS], (uint32_t)from[PART]};
        }
    return err;
}

// --- the parts of the chosen state ---

// The rows that a state is put together in, by enum cn_checkpoint_part. NULL: not one of them.
struct assembly {
    struct cn_session *session;
    struct cn_collective *collective;
    const struct cn_view *view;
    const struct cn_part_choice *choice;
    struct cn_part_header numbers; // which all parts have alike
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
                        enum cn_purpose what)
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
    assembly->numbers = *header;
    return cn_part_state(header) == choice->state && header->step == choice->step &&
                   header->parts == choice->parts && header->part == part &&
                   fits(assembly->session, header)
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
        err = broadcast(assembly, source, CN_PART_HEADER_SIZE, CN_PURPOSE_PART_HEADER);
    if (!err)
        err = begin_part(assembly, part, &reader);
    while (!err && reader.left > 0) {
        size_t some = reader.left < PIECE ? (size_t)reader.left : PIECE;

        err = read_piece(assembly, file, offset, some);
        if (!err)
            err = broadcast(assembly, source, some, CN_PURPOSE_PART_VALUES);
        if (!err)
            err = cn_part_reader_put(&reader, assembly->piece, some);
        offset += some;
    }
    for (uint32_t t = 0; !err && t < reader.header.tensors; t++)
        assembly->covered[reader.tensors[t]] = 1;
    cn_part_reader_end(&reader);
    return err;
}

static const char *member_of(const struct assembly *assembly, uint32_t rank)
{
    const struct cn_settings *settings = assembly->session->config.settings;

    return settings->group.members[assembly->view->ranks[rank]].name;
}

// Of a tensor that several parts hold, the values of the lowest count, as in a state that is stored
// as a whole: it comes last.
static cn_err gather_parts(struct assembly *assembly)
{
    struct cn_store *store = assembly->session->config.store;
    const struct cn_part_choice *choice = assembly->choice;
    cn_err err = CN_OK;

    for (uint32_t p = choice->parts; !err && p-- > 0;) {
        struct cn_store_file *file = NULL;
        uint64_t size;

        if (choice->ranks[p] == assembly->view->rank)
            err = store->ops->open(store, name_of(choice->files[p]), &file, &size);
        if (!err)
            err = gather_part(assembly, p, file);
        store->ops->abort(file);
        if (err == CN_EFORMAT || err == CN_EDIGEST)
            cn_log(CN_LOG_WARN, "session", "the stored part %u that %s gives is wrong: %s", p + 1,
                   member_of(assembly, choice->ranks[p]), cn_err_text(err));
    }
    for (size_t t = 0; !err && t < assembly->session->layout->tensor_count; t++)
        if (!assembly->covered[t])
            err = CN_EFORMAT;
    return err;
}

static cn_err allocate(struct assembly *assembly)
{
    static const enum cn_checkpoint_part arrays[] = {CN_PART_WEIGHTS, CN_PART_OPTIMIZER,
                                                     CN_PART_SECOND};
    struct cn_session *session = assembly->session;
    uint32_t count = cn_trainer_has_second(session->trainer) ? 3 : 2;

    assembly->piece = malloc(PIECE);
    assembly->covered = calloc(session->layout->tensor_count + 1, 1);
    if (!assembly->piece || !assembly->covered)
        return CN_ENOMEM;
    for (uint32_t i = 0; i < count; i++) {
        float *row = cn_session_allocate_state(session, session->layout->total * sizeof(*row));

        if (!row)
            return CN_ENOMEM;
        assembly->rows[arrays[i]] = row;
    }
    return CN_OK;
}

// Sets *all to whether every member has room for the state. Otherwise they go on with what they
// hold.
static cn_err agree_room(const struct assembly *assembly, cn_err own, bool *all)
{
    int64_t has = !own;
    const struct cn_collective_call call = {.kind = CN_COLLECTIVE_ALL_REDUCE,
                                            .how = CN_REDUCE_MIN,
                                            .type = CN_INT64,
                                            .data = &has,
                                            .count = 1,
                                            .fingerprint = CN_PURPOSE_PART_ROOM};
    cn_err err = assembly->view->size > 1
                     ? assembly->collective->ops->run(assembly->collective, &call)
                     : CN_OK;

    *all = has > 0;
    if (!err && !*all)
        cn_log(CN_LOG_WARN, "session",
               "round %u: %s no memory for the state of step %u that the members' parts make: they "
               "go on after step %u",
               assembly->session->held.round, own ? "there is" : "a member has",
               assembly->choice->step, assembly->session->held.step);
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

static cn_err assemble(struct assembly *assembly)
{
    bool all;
    cn_err err = agree_room(assembly, allocate(assembly), &all);

    if (err || !all)
        return err;
    err = gather_parts(assembly);
    if (err == CN_EFORMAT || err == CN_EDIGEST)
        assembly->session->disk.parts_failed = true; // no member's parts count in the next epoch
    return err ? err : hold(assembly);
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
    if (choice.state)
        err = assemble(&assembly);
    for (uint32_t i = 0; i < CN_PART_COUNT; i++)
        cn_scratch_free(assembly.rows[i]);
    free(assembly.covered);
    free(assembly.piece);
    return err;
}
