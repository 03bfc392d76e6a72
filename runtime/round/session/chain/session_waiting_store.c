// session_waiting_store.c - what waits to be sent, in files of the parts of a chain.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/log.h"
#include "runtime/engine/trainer/trainer_parts.h"
#include "runtime/round/checkpoint/part_file.h"
#include "runtime/round/session/session_chain.h"
#include "runtime/update/update.h"

#define PIECE ((size_t)1 << 18) // values that travel at a time
#define VALUES 4096             // values that are rounded at a time
#define RETRY_MS 1000

enum fingerprint { ROWS = 0x70770001, STORED, HAS };

bool cn_session_divides_waiting(const struct cn_session *session)
{
    return cn_session_is_cut(session) && session->plan.chain.parts > 1 &&
           !session->config.job->keep_optimizer && !cn_session_has_local(session);
}

// Describes the file of a part; its tensors are those of the present cut. tensors has room for
// those of the layout.
static void describe(const struct cn_session *session, uint32_t part,
                     const uint8_t frame[CN_DIGEST_SIZE], struct cn_part_header *header,
                     uint32_t *tensors)
{
    const struct cn_checkpoint *held = &session->held;

    *header = (struct cn_part_header){.run = held->run,
                                      .lineage = held->lineage,
                                      .round = held->round,
                                      .step = held->steps,
                                      .parts = session->cut.at.parts,
                                      .arrays = CN_PART_WAITING,
                                      .part = part};
    memcpy(header->base, held->base_digest, sizeof(header->base));
    memcpy(header->frame, frame, sizeof(header->frame));
    for (size_t t = 0; t < session->layout->tensor_count; t++) {
        if (!(session->cut.holders[t] >> part & 1))
            continue;
        tensors[header->tensors++] = (uint32_t)t;
        header->values += session->layout->tensors[t].count;
    }
}

static bool is_of_set(const struct cn_session *session, enum cn_stored_file file, uint32_t slot,
                      uint64_t set)
{
    struct cn_part_header header;

    return set &&
           cn_part_file_read(session->config.store, cn_waiting_names[file][slot], session->layout,
                             &header) == CN_OK &&
           cn_part_state(&header) == set;
}

// Returns the slot for a file of a set: that of this board's own part of it; else not one of the
// set that the held state names.
static uint32_t slot_for(const struct cn_session *session, enum cn_stored_file file, uint64_t set)
{
    uint64_t held = session->held.waiting.set;

    for (uint32_t slot = 0; slot < CN_STORED_SLOTS; slot++)
        if (is_of_set(session, CN_STORED_OWN, slot, set))
            return slot;
    return held != set && is_of_set(session, file, 0, held) ? 1 : 0;
}

static void put_rounded(const struct cn_session *session, struct cn_part_writer *writer,
                        const float *values, size_t count)
{
    float rounded[VALUES];

    if (session->config.job->options.residual != CN_RESIDUAL_BF16) {
        cn_part_writer_put(writer, values, count);
        return;
    }
    for (size_t done = 0, some; done < count; done += some) {
        some = count - done < VALUES ? count - done : VALUES;
        memcpy(rounded, values + done, some * sizeof(*rounded));
        cn_row_round(rounded, some);
        cn_part_writer_put(writer, rounded, some);
    }
}

// Stores a file of this board's part, or of the part before.
static cn_err write_file(const struct cn_session *session, enum cn_stored_file file, uint32_t part,
                         const struct cn_session_waiting *rows, const uint8_t frame[CN_DIGEST_SIZE])
{
    struct cn_part_writer *writer = malloc(sizeof(*writer));
    uint32_t *tensors = calloc(session->layout->tensor_count + 1, sizeof(*tensors));
    struct cn_part_header header;
    cn_err err = writer && tensors ? CN_OK : CN_ENOMEM;

    if (!err && !cn_session_has_room(session))
        err = CN_ENOSPC;
    if (!err) {
        describe(session, part, frame, &header, tensors);
        cn_part_writer_begin(
            writer, session->config.store,
            cn_waiting_names[file][slot_for(session, file, cn_part_state(&header))], &header,
            tensors);
        put_rounded(session, writer, rows->next, (size_t)header.values);
        put_rounded(session, writer, rows->change, (size_t)header.values);
        err = cn_part_writer_end(writer, CN_OK);
    }
    free(writer);
    free(tensors);
    return err;
}

static cn_err allocate(struct cn_session_waiting *rows, size_t count)
{
    *rows = (struct cn_session_waiting){
        .next = cn_scratch_allocate((count + 1) * sizeof(*rows->next)),
        .change = cn_scratch_allocate((count + 1) * sizeof(*rows->change))};
    return rows->next && rows->change ? CN_OK : CN_ENOMEM;
}

void cn_session_free_waiting(struct cn_session_waiting *rows)
{
    cn_scratch_free(rows->next);
    cn_scratch_free(rows->change);
    *rows = (struct cn_session_waiting){0};
}

// --- to another member, and from one ---

// What waits of this board's part, and that of the part before.
struct copying {
    struct cn_session *session;
    struct cn_collective *collective;
    const uint8_t *frame; // of the round; size bytes
    size_t size;
    struct cn_session_waiting own, before;
    bool has_own;    // own has values; otherwise zeros are given, which count for nothing
    bool has_before; // likewise
    float *piece;    // owned
};

// Returns the values of a part.
static size_t values_of(const struct cn_session *session, uint32_t part)
{
    size_t count = 0;

    for (size_t t = 0; t < session->layout->tensor_count; t++)
        if (session->cut.holders[t] >> part & 1)
            count += session->layout->tensors[t].count;
    return count;
}

// One direction between two members: this board gives its values, or gets those of the other.
static cn_err move(const struct copying *copying, const struct cn_set *pair, uint32_t peer,
                   bool gives, void *data, size_t size, enum fingerprint what)
{
    const struct cn_collective_call call = {.kind =
                                                gives ? CN_COLLECTIVE_SEND : CN_COLLECTIVE_RECEIVE,
                                            .set = pair,
                                            .peer = peer,
                                            .data = data,
                                            .count = size,
                                            .fingerprint = what};

    return copying->collective->ops->run(copying->collective, &call);
}

static cn_err move_row(const struct copying *copying, const struct cn_set *pair, uint32_t peer,
                       bool gives, float *row, size_t count)
{
    cn_err err = CN_OK;

    for (size_t done = 0, some; !err && done < count; done += some) {
        some = count - done < PIECE ? count - done : PIECE;
        err = move(copying, pair, peer, gives, row + done, some * sizeof(*row), ROWS);
    }
    return err;
}

// Two members give each other their values at the same time.
static cn_err swap_row(const struct copying *copying, const struct cn_set *pair, float *own,
                       size_t own_count, float *other, size_t other_count)
{
    uint32_t place = pair->ranks[1] == copying->session->planning.sets->view.rank;
    float *buffer = copying->piece;
    struct cn_collective_call call = {.kind = CN_COLLECTIVE_ALL_GATHER,
                                      .type = CN_FLOAT32,
                                      .set = pair,
                                      .data = buffer,
                                      .fingerprint = ROWS};
    size_t most = own_count > other_count ? own_count : other_count;
    cn_err err = CN_OK;

    for (size_t done = 0, some; !err && done < most; done += some) {
        size_t mine = done < own_count ? own_count - done : 0;
        size_t theirs = done < other_count ? other_count - done : 0;

        some = most - done < PIECE ? most - done : PIECE;
        mine = mine < some ? mine : some;
        theirs = theirs < some ? theirs : some;
        memset(buffer + place * some, 0, some * sizeof(*buffer));
        memcpy(buffer + place * some, own + done, mine * sizeof(*buffer));
        call.count = 2 * some;
        err = copying->collective->ops->run(copying->collective, &call);
        memcpy(other + done, buffer + (1 - place) * some, theirs * sizeof(*buffer));
    }
    return err;
}

static bool are_possible(const float *values, size_t count)
{
    bool possible = true;

    for (size_t i = 0; possible && i < count; i++)
        possible = fabsf(values[i]) <= CN_SESSION_WAITING_MAX;
    return possible;
}

// The part before, while the sent values are taken from its change.
struct subtraction {
    const struct cn_session *session;
    uint32_t part;
    float *next;
};

static cn_err subtract(void *context, size_t offset, const float *values, size_t count)
{
    const struct subtraction *left = context;
    const struct cn_layout *layout = left->session->layout;
    size_t at = 0;

    for (size_t t = 0; t < layout->tensor_count; t++) {
        const struct cn_tensor_info *tensor = &layout->tensors[t];

        if (!(left->session->cut.holders[t] >> left->part & 1))
            continue;
        if (offset >= tensor->offset && offset < tensor->offset + tensor->count) {
            for (size_t i = 0; i < count; i++)
                left->next[at + (offset - tensor->offset) + i] -= values[i];
            return CN_OK;
        }
        at += tensor->count;
    }
    return CN_OK;
}

// What is left if the frame is accepted follows from the change and the frame.
static cn_err make_next(const struct copying *copying, uint32_t part, size_t count)
{
    struct subtraction left = {copying->session, part, copying->before.next};

    memcpy(left.next, copying->before.change, count * sizeof(*left.next));
    return cn_update_decode(copying->frame, copying->size, copying->session->layout, subtract,
                            &left);
}

static bool rounds(const struct cn_session *session)
{
    return session->config.job->options.residual == CN_RESIDUAL_BF16;
}

// Gives each part to the member of the next one: first the even parts, then the odd ones, so that
// several travel at once.
static cn_err exchange(struct copying *copying)
{
    const struct cn_session *session = copying->session;
    const struct cn_chain_place *place = &session->plan.chain;
    uint32_t before = (place->part + place->parts - 1) % place->parts;
    size_t own_count = values_of(session, place->part), count = values_of(session, before);
    int64_t has[2] = {copying->has_own, 0};
    cn_err err = allocate(&copying->before, count);

    copying->piece = malloc(2 * PIECE * sizeof(*copying->piece));
    if (!copying->piece)
        err = CN_ENOMEM;
    for (uint32_t i = 0; !err && i < 2 * place->parts; i++) {
        uint32_t from = i % place->parts, to = (from + 1) % place->parts;
        bool gives = place->part == from, both = place->parts == 2;
        struct cn_set pair;
        uint32_t peer;

        if (from % 2 != i / place->parts || (!gives && place->part != to))
            continue;
        pair = cn_ranks_parts(place, 1u << from | 1u << to);
        peer = cn_ranks_of_part(place, gives ? to : from);
        err = move(copying, &pair, peer, gives, &has[gives ? 0 : 1], sizeof(*has), HAS);
        for (uint32_t row = 0; !err && row < (rounds(session) ? 2u : 1u); row++) {
            float *own = row ? copying->own.next : copying->own.change;
            float *other = row ? copying->before.next : copying->before.change;

            if (!both)
                err = move_row(copying, &pair, peer, gives, gives ? own : other,
                               gives ? own_count : count);
            else if (from == 1) // with the word of both
                err = swap_row(copying, &pair, own, own_count, other, count);
        }
    }
    copying->has_before = !err && has[1] == 1 && are_possible(copying->before.change, count) &&
                          (!rounds(session) || are_possible(copying->before.next, count));
    if (!err && !copying->has_before)
        cn_log(CN_LOG_WARN, "session", "round %u: %s gives no copy of what waits of its part",
               session->held.round,
               cn_session_member(session, cn_ranks_of_part(place, before))->name);
    if (!err && copying->has_before && !rounds(session))
        err = make_next(copying, before, count);
    return err;
}

static void end_copying(struct copying *copying)
{
    cn_session_free_waiting(&copying->before);
    free(copying->piece);
}

// --- all parts ---

// Sets *all to whether each part is on the disk of some member.
static cn_err agree(struct cn_collective *collective, int64_t stored[CN_CUT_PARTS_MAX], bool *all)
{
    const struct cn_collective_call call = {.kind = CN_COLLECTIVE_ALL_REDUCE,
                                            .how = CN_REDUCE_SUM,
                                            .type = CN_INT64,
                                            .data = stored,
                                            .count = CN_CUT_PARTS_MAX,
                                            .fingerprint = STORED};
    cn_err err = collective->ops->run(collective, &call);

    *all = true;
    for (uint32_t p = 0; p < CN_CUT_PARTS_MAX; p++)
        *all &= stored[p] > 0;
    return err;
}

// Stores the part before from memory, where a disk has not taken its own part.
static cn_err store_copy(struct copying *copying, const uint8_t digest[CN_DIGEST_SIZE],
                         cn_err *disk)
{
    struct cn_session *session = copying->session;
    const struct cn_chain_place *place = &session->plan.chain;
    uint32_t before = (place->part + place->parts - 1) % place->parts;
    cn_err err = exchange(copying);

    *disk = CN_OK;
    if (!err && copying->has_before)
        *disk = write_file(session, CN_STORED_BEFORE, before, &copying->before, digest);
    return err;
}

// Counts the parts that this board has stored. Without `copies` only its own.
static cn_err store_once(struct copying *copying, const uint8_t digest[CN_DIGEST_SIZE], bool copies,
                         int64_t stored[CN_CUT_PARTS_MAX])
{
    struct cn_session *session = copying->session;
    const struct cn_chain_place *place = &session->plan.chain;
    uint32_t before = (place->part + place->parts - 1) % place->parts;
    cn_err disk, copied = CN_OK, err = CN_OK;

    disk = write_file(session, CN_STORED_OWN, place->part, &copying->own, digest);
    if (copies && place->chains == 1) {
        err = store_copy(copying, digest, &copied);
        stored[before] += !err && copying->has_before && !copied;
        end_copying(copying);
    }
    cn_session_note_saved(session, disk ? disk : copied);
    stored[place->part] += !disk;
    for (uint32_t p = place->parts; p < CN_CUT_PARTS_MAX; p++)
        stored[p] = 1;
    return err;
}

// Stores until each part is on a disk. Members that look on have no rows.
static cn_err store_until_all(struct copying *copying, const uint8_t digest[CN_DIGEST_SIZE])
{
    bool all = false;
    cn_err err = CN_OK;

    for (uint32_t tries = 0; !all; tries++) {
        int64_t stored[CN_CUT_PARTS_MAX] = {0};

        if (tries == 1)
            cn_log(
                CN_LOG_WARN, "session",
                "round %u: a disk has no room for what waits of its part: trying the next member",
                copying->session->held.round);
        if (tries > 1 && cn_session_is_stopped(copying->session, RETRY_MS))
            return CN_ECANCELED;
        if (copying->has_own)
            err = store_once(copying, digest, tries > 0, stored);
        if (!err)
            err = agree(copying->collective, stored, &all);
        if (err)
            return err;
    }
    return CN_OK;
}

cn_err cn_session_store_waiting(struct cn_session *session, struct cn_collective *collective,
                                const struct cn_session_waiting *rows,
                                const struct cn_buffer *frame, const uint8_t digest[CN_DIGEST_SIZE],
                                uint64_t *set)
{
    struct copying copying = {session, collective, frame->data, frame->size};
    uint32_t *tensors = calloc(session->layout->tensor_count + 1, sizeof(*tensors));
    struct cn_part_header header;

    if (!tensors)
        return CN_ENOMEM;
    describe(session, session->cut.part, digest, &header, tensors);
    free(tensors);
    *set = cn_part_state(&header);
    copying.has_own = rows != NULL;
    if (rows)
        copying.own = *rows;
    return store_until_all(&copying, digest);
}

// --- copies ---

bool cn_session_wants_copies(const struct cn_session *session)
{
    const struct cn_checkpoint *held = &session->held;
    const struct cn_chain_place *place = &session->plan.chain;

    return held->phase == CN_PHASE_SEND && held->waiting.set && cn_session_is_cut(session) &&
           !cn_session_waits(session) && place->parts > 1 && place->chains == 1 &&
           session->disk.copied != held->waiting.set;
}

// The values of a file of this board's part.
struct reading {
    const struct cn_session *session;
    struct cn_session_waiting *rows;
    size_t done[CN_PART_COUNT];
};

static void take(void *context, enum cn_checkpoint_part array, size_t first, size_t count,
                 const float *values)
{
    struct reading *reading = context;
    float *row = array == CN_PART_CHANGE ? reading->rows->change : reading->rows->next;

    (void)first; // the tensors of the file are those of the part, in the same order
    memcpy(row + reading->done[array], values, count * sizeof(*values));
    reading->done[array] += count;
}

// Reads what this board has stored of its part.
static bool read_own(struct copying *copying)
{
    struct cn_session *session = copying->session;
    struct reading reading = {session, &copying->own, {0}};
    size_t count = values_of(session, session->cut.part);

    for (uint32_t slot = 0; slot < CN_STORED_SLOTS; slot++) {
        const char *name = cn_waiting_names[CN_STORED_OWN][slot];
        struct cn_part_header header;

        if (cn_part_file_read(session->config.store, name, session->layout, &header) ||
            cn_part_state(&header) != session->held.waiting.set ||
            header.part != session->cut.part || header.values != count)
            continue;
        return cn_part_file_take(session->config.store, name, session->layout, take, &reading,
                                 &header) == CN_OK;
    }
    return false;
}

cn_err cn_session_store_copies(struct cn_session *session, struct cn_collective *collective)
{
    const struct cn_checkpoint *held = &session->held;
    struct copying copying = {session, collective, held->frame, held->frame_size};
    cn_err disk, err = CN_OK;

    if (!cn_session_wants_copies(session))
        return CN_EFORMAT;
    if (!session->plan.trains) {
        session->disk.copied = held->waiting.set;
        return CN_OK;
    }
    err = allocate(&copying.own, values_of(session, session->cut.part));
    if (!err) {
        copying.has_own = read_own(&copying);
        err = store_copy(&copying, held->frame_digest, &disk);
    }
    if (!err) {
        cn_session_note_saved(session, disk);
        session->disk.copied = held->waiting.set;
    }
    cn_session_free_waiting(&copying.own);
    end_copying(&copying);
    return err;
}

void cn_session_forget_waiting(struct cn_session *session)
{
    struct cn_store *store = session->config.store;
    uint64_t set = session->held.waiting.set;

    for (uint32_t f = 0; f < CN_STORED_FILES * CN_STORED_SLOTS; f++) {
        const char *name = cn_waiting_names[f / CN_STORED_SLOTS][f % CN_STORED_SLOTS];
        struct cn_part_header header;
        cn_err err = cn_part_file_read(store, name, session->layout, &header);

        if (err == CN_ENOTFOUND || (!err && set && cn_part_state(&header) == set))
            continue;
        err = store->ops->remove(store, name);
        if (err)
            cn_log(CN_LOG_WARN, "session", "%s stays: %s", name, cn_err_text(err));
    }
}
