// session_waiting_copies.c - what waits to be sent: a copy of each part on the disk of another
// member.
#include <stdlib.h>
#include <string.h>

#include "runtime/base/log.h"
#include "runtime/group/purpose.h"
#include "runtime/round/session/session_waiting.h"
#include "runtime/update/update.h"

#define PIECE ((size_t)1 << 18) // values that travel at a time
#define HEAD (CN_PART_HEADER_SIZE + sizeof(struct cn_part_digests))

static bool rounds(const struct cn_session *session)
{
    return session->config.job->options.residual == CN_RESIDUAL_BF16;
}

cn_err cn_session_move_waiting(struct cn_collective *collective, const struct cn_set *pair,
                               uint32_t peer, bool gives, float *values, size_t count)
{
    struct cn_collective_call call = {.kind = gives ? CN_COLLECTIVE_SEND : CN_COLLECTIVE_RECEIVE,
                                      .set = pair,
                                      .peer = peer,
                                      .fingerprint = CN_PURPOSE_WAITING_ROWS};
    float *none = values ? NULL : calloc(PIECE, sizeof(*none));
    cn_err err = values || none ? CN_OK : CN_ENOMEM;

    for (size_t done = 0, some; !err && done < count; done += some) {
        some = count - done < PIECE ? count - done : PIECE;
        call.data = values ? values + done : none;
        call.count = some * sizeof(*values);
        err = collective->ops->run(collective, &call);
    }
    free(none);
    return err;
}

// What travels of a file: header, digests and tensors, the change, and the next residual where that
// is not the difference of change and frame, as it is rounded.
struct image {
    float *words; // owned; of scratch.h
    size_t count;
};

static size_t head_of(const struct cn_waiting_offers *offers, uint32_t part)
{
    return HEAD / sizeof(float) + (size_t)offers->tensors[part];
}

// Without memory what travels is zeros, or is dropped.
static void allocate(const struct cn_session *session, const struct cn_waiting_offers *offers,
                     uint32_t part, struct image *image)
{
    size_t bytes;

    image->count = head_of(offers, part) + (size_t)offers->values[part] * (rounds(session) ? 2 : 1);
    image->words = cn_size_multiply(image->count, sizeof(*image->words), &bytes)
                       ? NULL
                       : cn_scratch_allocate(bytes);
    if (!image->words)
        cn_log(CN_LOG_WARN, "session", "round %u: no memory for a copy of what waits of part %u",
               session->held.round, part + 1);
}

// Reads an image from the file of a part. What cannot be read becomes zeros, which are no header.
static void read_image(const struct cn_session *session, const struct cn_waiting_offers *offers,
                       uint32_t part, struct image *image)
{
    struct cn_store *store = session->config.store;
    size_t head = head_of(offers, part) * sizeof(float);
    size_t row = (size_t)offers->values[part] * sizeof(float);
    uint8_t *bytes = (uint8_t *)image->words;
    struct cn_store_file *file = NULL;
    char name[CN_WAITING_NAME_SIZE];
    uint64_t size;
    cn_err err;

    if (!bytes)
        return;
    cn_waiting_name(session->held.waiting.set, part, name);
    err = store->ops->open(store, name, &file, &size);
    if (!err && size != head + 2 * row + CN_DIGEST_SIZE)
        err = CN_ESTALE;
    if (!err)
        err = store->ops->read(file, 0, bytes, head);
    if (!err)
        err = store->ops->read(file, head + row, bytes + head, row);
    if (!err && rounds(session))
        err = store->ops->read(file, head, bytes + head + row, row);
    store->ops->abort(file);
    if (err)
        memset(bytes, 0, image->count * sizeof(*image->words));
}

// A part while the values that were sent are taken from its change.
struct subtraction {
    const struct cn_layout *layout;
    const uint32_t *tensors;
    uint32_t count;
    float *next;
};

static cn_err subtract(void *context, size_t offset, const float *values, size_t count)
{
    const struct subtraction *left = context;
    size_t at = 0;

    for (uint32_t t = 0; t < left->count; t++) {
        const struct cn_tensor_info *tensor = &left->layout->tensors[left->tensors[t]];

        if (offset >= tensor->offset && offset < tensor->offset + tensor->count) {
            for (size_t i = 0; i < count; i++)
                left->next[at + (offset - tensor->offset) + i] -= values[i];
            return CN_OK;
        }
        at += tensor->count;
    }
    return CN_OK;
}

// Makes the rows of a file from an image that another member gave, if it is what it should be.
// *made, for the caller to free, is the next residual where it did not travel.
static cn_err check_image(const struct cn_session *session, const struct cn_waiting_offers *offers,
                          uint32_t part, const struct image *image, struct cn_part_header *header,
                          struct cn_session_waiting *rows, float **made)
{
    const struct cn_checkpoint *held = &session->held;
    const uint8_t *bytes = (const uint8_t *)image->words;
    const uint32_t *tensors = (const uint32_t *)(const void *)(bytes + HEAD);
    size_t count = (size_t)offers->values[part];
    struct subtraction left = {session->layout, tensors, (uint32_t)offers->tensors[part], NULL};
    cn_err err = cn_part_header_read(bytes, session->layout, header);

    rows->change = image->words + head_of(offers, part);
    rows->next = rows->change + count;
    if (!err && (cn_part_state(header) != held->waiting.set || header->part != part ||
                 header->arrays != CN_PART_WAITING ||
                 header->tensors != (uint64_t)offers->tensors[part] || header->values != count))
        err = CN_ESTALE;
    if (!err)
        err = cn_part_check_tensors(header, tensors, session->layout);
    if (!err && !rounds(session)) {
        rows->next = *made = left.next = cn_scratch_allocate((count + 1) * sizeof(**made));
        if (!*made)
            return CN_ENOMEM;
        memcpy(*made, rows->change, count * sizeof(**made));
        err = cn_update_decode(held->frame, held->frame_size, session->layout, subtract, &left);
    }
    if (!err &&
        (!cn_session_can_wait(rows->change, count) || !cn_session_can_wait(rows->next, count)))
        err = CN_ERANGE;
    return err;
}

// Stores the file of an image. What is wrong with it is no error of the group.
static void store_image(struct cn_session *session, const struct cn_waiting_offers *offers,
                        uint32_t part, const struct image *image)
{
    const uint8_t *bytes = (const uint8_t *)image->words;
    struct cn_session_waiting rows;
    struct cn_part_digests digests;
    struct cn_part_header header;
    float *made = NULL;
    cn_err err = check_image(session, offers, part, image, &header, &rows, &made);

    if (!err) {
        memcpy(&digests, bytes + CN_PART_HEADER_SIZE, sizeof(digests));
        err = cn_session_write_waiting(session, &header, &digests,
                                       (const uint32_t *)(const void *)(bytes + HEAD), &rows);
        if (err != CN_EDIGEST) {
            cn_session_note_saved(session, err);
            err = CN_OK;
        }
    }
    if (err)
        cn_log(CN_LOG_WARN, "session",
               "round %u: a copy of what waits of part %u is not stored: %s", session->held.round,
               part + 1, cn_err_text(err));
    cn_scratch_free(made);
}

// A part that only one member has, and who stores it as well.
struct transfer {
    uint32_t part, from, to; // ranks
};

// Lists the transfers, the same on all members: even parts first, so that several travel at once.
static uint32_t list_transfers(const struct cn_session *session,
                               const struct cn_waiting_offers *offers, uint32_t size,
                               struct transfer transfers[CN_CUT_PARTS_MAX])
{
    uint64_t left = 2 * (uint64_t)session->layout->total; // tied tensors are in several parts
    uint32_t count = 0;

    for (uint32_t i = 0; i < CN_CUT_PARTS_MAX; i++) {
        uint32_t p = i < CN_CUT_PARTS_MAX / 2 ? 2 * i : 2 * i + 1 - CN_CUT_PARTS_MAX;
        uint32_t holders = 0, from = 0;

        for (uint32_t m = 0; m < size; m++)
            if (cn_session_is_offer(session, &offers[m], p)) {
                holders++;
                from = m;
            }
        if (holders != 1 || size < 2 || (uint64_t)offers[from].values[p] > left)
            continue;
        left -= (uint64_t)offers[from].values[p];
        transfers[count++] = (struct transfer){p, from, (from + 1) % size};
    }
    return count;
}

// Two members give each other images at the same time.
static cn_err swap(struct cn_collective *collective, const struct cn_set *pair, uint32_t rank,
                   const struct image *own, struct image *other)
{
    uint32_t place = pair->ranks[1] == rank;
    float *buffer = malloc(2 * PIECE * sizeof(*buffer));
    struct cn_collective_call call = {.kind = CN_COLLECTIVE_ALL_GATHER,
                                      .type = CN_FLOAT32,
                                      .set = pair,
                                      .data = buffer,
                                      .fingerprint = CN_PURPOSE_WAITING_ROWS};
    size_t most = own->count > other->count ? own->count : other->count;
    cn_err err = buffer ? CN_OK : CN_ENOMEM;

    for (size_t done = 0, some; !err && done < most; done += some) {
        size_t mine = done < own->count ? own->count - done : 0;
        size_t theirs = done < other->count ? other->count - done : 0;

        some = most - done < PIECE ? most - done : PIECE;
        mine = mine < some ? mine : some;
        theirs = theirs < some ? theirs : some;
        memset(buffer + place * some, 0, some * sizeof(*buffer));
        if (own->words)
            memcpy(buffer + place * some, own->words + done, mine * sizeof(*buffer));
        call.count = 2 * some;
        err = collective->ops->run(collective, &call);
        if (other->words)
            memcpy(other->words + done, buffer + (1 - place) * some, theirs * sizeof(*buffer));
    }
    free(buffer);
    return err;
}

// Carries out a transfer on the members that it concerns; back is the one the other way between
// them, or NULL.
static cn_err carry_out(struct cn_session *session, struct cn_collective *collective,
                        const struct cn_waiting_offers *offers, const struct transfer *transfer,
                        const struct transfer *back)
{
    uint32_t rank = session->reducer->rank;
    const struct cn_set pair = cn_ranks_set(1u << transfer->from | 1u << transfer->to);
    bool gives = transfer->from == rank;
    struct image first = {NULL, 0}, second = {NULL, 0};
    const struct transfer *gets = gives ? back : transfer;
    struct image *got = gives ? &second : &first;
    cn_err err;

    allocate(session, &offers[transfer->from], transfer->part, &first);
    if (back)
        allocate(session, &offers[back->from], back->part, &second);
    if (gives)
        read_image(session, &offers[rank], transfer->part, &first);
    else if (back)
        read_image(session, &offers[rank], back->part, &second);
    if (back)
        err = swap(collective, &pair, rank, gives ? &first : &second, got);
    else
        err = cn_session_move_waiting(collective, &pair, gives ? transfer->to : transfer->from,
                                      gives, first.words, first.count);
    if (!err && gets && got->words)
        store_image(session, &offers[gets->from], gets->part, got);
    cn_scratch_free(first.words);
    cn_scratch_free(second.words);
    return err;
}

static cn_err copy_parts(struct cn_session *session, struct cn_collective *collective,
                         const struct cn_waiting_offers *offers)
{
    struct transfer transfers[CN_CUT_PARTS_MAX];
    uint32_t count = list_transfers(session, offers, session->reducer->size, transfers);
    bool done[CN_CUT_PARTS_MAX] = {false};
    cn_err err = CN_OK;

    for (uint32_t i = 0; !err && i < count; i++) {
        const struct transfer *back = NULL;

        for (uint32_t j = i + 1; !done[i] && j < count; j++)
            if (!done[j] && transfers[j].from == transfers[i].to &&
                transfers[j].to == transfers[i].from) {
                back = &transfers[j];
                done[j] = true;
                break;
            }
        if (!done[i] && (transfers[i].from == session->reducer->rank ||
                         transfers[i].to == session->reducer->rank))
            err = carry_out(session, collective, offers, &transfers[i], back);
    }
    return err;
}

bool cn_session_wants_copies(const struct cn_session *session)
{
    const struct cn_checkpoint *held = &session->held;

    return held->phase == CN_PHASE_SEND && held->waiting.set && session->reducer &&
           session->disk.copied != held->waiting.set;
}

cn_err cn_session_store_copies(struct cn_session *session, struct cn_collective *collective)
{
    struct cn_waiting_offers *offers;
    struct cn_collective_call call = {.kind = CN_COLLECTIVE_ALL_GATHER,
                                      .type = CN_INT64,
                                      .fingerprint = CN_PURPOSE_WAITING_HOLDERS};
    cn_err err;

    if (!cn_session_wants_copies(session))
        return CN_EFORMAT;
    offers = calloc(session->reducer->size, sizeof(*offers));
    if (!offers)
        return CN_ENOMEM;
    cn_session_list_waiting(session, &offers[session->reducer->rank]);
    call.data = offers;
    call.count = session->reducer->size * (sizeof(*offers) / sizeof(int64_t));
    err = collective->ops->run(collective, &call);
    if (!err)
        err = copy_parts(session, collective, offers);
    if (!err)
        session->disk.copied = session->held.waiting.set;
    free(offers);
    return err;
}
