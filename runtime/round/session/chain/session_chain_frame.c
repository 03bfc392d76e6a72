// session_chain_frame.c - the frame of a round that the members of a chain make together, each from
// the tensors of its part.
#include <stdlib.h>
#include <string.h>

#include "runtime/base/log.h"
#include "runtime/engine/trainer/trainer_parts.h"
#include "runtime/group/purpose.h"
#include "runtime/round/session/session_chain.h"
#include "runtime/round/session/session_waiting.h"
#include "runtime/update/update_shares.h"

#define PIECE ((size_t)1 << 12) // values of a stored row that are read at a time

// What a member encodes.
struct encoding {
    struct cn_session *session;
    struct cn_collective *collective;
    struct cn_update_header header;
    struct cn_layout own; // tensors with the job's rules; owned
    size_t *places;       // owned
    bool *owned;          // owned
    struct cn_update_share share;
    float *values; // change + residual
    float *next;   // values - sent
    bool lost;     // no member had all of the residual
    struct cn_update_blocks blocks;
    int64_t *counts;        // owned; CN_UPDATE_SHARES_COUNTS
    int64_t *equal, *sizes; // owned; by tensor of the whole model
};

static uint32_t owner_of(const struct encoding *encoding, size_t tensor)
{
    return (uint32_t)__builtin_ctz(encoding->session->cut.holders[tensor]);
}

static cn_err allocate(struct encoding *encoding)
{
    const struct cn_session *session = encoding->session;
    const struct cn_layout *whole = session->layout, *part = cn_trainer_layout(session->trainer);

    encoding->own =
        (struct cn_layout){calloc(part->tensor_count + 1, sizeof(struct cn_tensor_info)),
                           part->tensor_count, part->total};
    encoding->places = calloc(part->tensor_count + 1, sizeof(*encoding->places));
    encoding->owned = calloc(part->tensor_count + 1, sizeof(*encoding->owned));
    encoding->counts = calloc(CN_UPDATE_SHARES_COUNTS, sizeof(*encoding->counts));
    encoding->equal = calloc(whole->tensor_count + 1, sizeof(*encoding->equal));
    encoding->sizes = calloc(whole->tensor_count + 1, sizeof(*encoding->sizes));
    encoding->values = cn_scratch_allocate((part->total + 1) * sizeof(float));
    encoding->next = cn_scratch_allocate((part->total + 1) * sizeof(float));
    cn_buffer_init(&encoding->blocks.owned, cn_update_size_max(whole));
    cn_buffer_init(&encoding->blocks.others, cn_update_size_max(whole));
    if (!encoding->own.tensors || !encoding->places || !encoding->owned || !encoding->counts ||
        !encoding->equal || !encoding->sizes || !encoding->values || !encoding->next)
        return CN_ENOMEM;
    for (size_t t = 0; t < part->tensor_count; t++) {
        size_t place = cn_trainer_whole_tensor(session->trainer, t);

        encoding->own.tensors[t] = whole->tensors[place];
        encoding->own.tensors[t].offset = part->tensors[t].offset;
        encoding->places[t] = place;
        encoding->owned[t] = owner_of(encoding, place) == session->cut.part;
    }
    encoding->share = (struct cn_update_share){&encoding->header, whole, &encoding->own,
                                               encoding->places, encoding->owned};
    return CN_OK;
}

static void release(struct encoding *encoding)
{
    free(encoding->own.tensors); // their names are borrowed
    free(encoding->places);
    free(encoding->owned);
    free(encoding->counts);
    free(encoding->equal);
    free(encoding->sizes);
    cn_scratch_free(encoding->values);
    cn_scratch_free(encoding->next);
    cn_buffer_deinit(&encoding->blocks.owned);
    cn_buffer_deinit(&encoding->blocks.others);
}

// --- the values ---

// Adds or subtracts a row of the held state, from memory or from the disk, where it is.
static cn_err combine(const struct encoding *encoding, const struct cn_checkpoint_file *file,
                      enum cn_checkpoint_part array, const struct cn_row *row, bool add)
{
    const struct cn_layout *own = &encoding->own, *whole = encoding->share.whole;
    float piece[PIECE];
    cn_err err = CN_OK;

    for (size_t t = 0; t < own->tensor_count; t++) {
        const struct cn_tensor_info *tensor = &whole->tensors[encoding->places[t]];
        float *to = encoding->values + own->tensors[t].offset;

        for (size_t done = 0, some; !err && done < tensor->count; done += some) {
            some = tensor->count - done < PIECE ? tensor->count - done : PIECE;
            if (row->data)
                cn_row_read(row, tensor->offset + done, some, piece);
            else
                err = cn_checkpoint_read_values(file, array, tensor->offset + done, some, piece);
            for (size_t i = 0; !err && i < some; i++)
                to[done + i] += add ? piece[i] : -piece[i];
        }
    }
    return err;
}

static cn_err add_waiting(struct encoding *encoding)
{
    size_t total = encoding->own.total;
    float *waits = cn_scratch_allocate((total + 1) * sizeof(*waits));
    cn_err err = waits ? CN_OK : CN_ENOMEM;

    if (!err)
        err = cn_session_read_waiting(encoding->session, encoding->collective, waits,
                                      &encoding->lost);
    for (size_t i = 0; !err && i < total; i++)
        encoding->values[i] += waits[i];
    cn_scratch_free(waits);
    return err;
}

// Computes change + residual of this part. The residual lies in files of the parts, or is whole.
static cn_err make_values(struct encoding *encoding)
{
    struct cn_session *session = encoding->session;
    const struct cn_checkpoint *held = &session->held;
    const struct cn_row base = {.data = held->base};
    struct cn_row_filling filling = {.row = {.data = encoding->values}};
    struct cn_checkpoint_file *file = NULL;
    cn_err err =
        cn_session_read_own(session, encoding->collective, CN_ROW_WEIGHTS, cn_row_fill, &filling);

    if (!err)
        err = cn_session_open_rows(session, &file);
    if (!err && !base.data && !file)
        err = CN_EINVAL;
    if (!err)
        err = combine(encoding, file, CN_PART_BASE, &base, false);
    if (!err && held->waiting.set)
        err = add_waiting(encoding);
    else if (!err && (held->residual.data || session->sharing.gone & CN_ROWS_RESIDUAL))
        err = combine(encoding, file, CN_PART_RESIDUAL, &held->residual, true);
    cn_checkpoint_close(file);
    return err;
}

// --- the frame ---

static cn_err reduce(const struct encoding *encoding, enum cn_reduce how, int64_t *numbers,
                     size_t count, uint32_t fingerprint)
{
    const struct cn_collective_call call = {.kind = CN_COLLECTIVE_ALL_REDUCE,
                                            .how = how,
                                            .type = CN_INT64,
                                            .set = &encoding->session->plan.chain.chain,
                                            .data = numbers,
                                            .count = count,
                                            .fingerprint = fingerprint};

    return count ? encoding->collective->ops->run(encoding->collective, &call) : CN_OK;
}

// Adds up the counts of all members: only those from the first to the last that is not 0 travel.
static cn_err sum_counts(struct encoding *encoding)
{
    int64_t bounds[2] = {CN_UPDATE_SHARES_COUNTS, 1}; // the first, and behind the last, as -last
    cn_err err = cn_update_shares_count(&encoding->share, encoding->values, encoding->counts);

    for (int64_t i = 1; i < CN_UPDATE_SHARES_COUNTS; i++)
        if (encoding->counts[i]) {
            bounds[0] = i < bounds[0] ? i : bounds[0];
            bounds[1] = -i;
        }
    if (!err)
        err = reduce(encoding, CN_REDUCE_MIN, bounds, 2, CN_PURPOSE_FRAME_BOUNDS);
    if (!err)
        err = reduce(encoding, CN_REDUCE_MAX, encoding->counts, 1, CN_PURPOSE_FRAME_COUNTS);
    if (err || (bounds[0] == CN_UPDATE_SHARES_COUNTS && bounds[1] == 1))
        return err; // nothing to count
    if (bounds[0] < 1 || bounds[1] <= -CN_UPDATE_SHARES_COUNTS || bounds[0] > -bounds[1])
        return CN_EFORMAT;
    err = reduce(encoding, CN_REDUCE_SUM, encoding->counts + bounds[0],
                 (size_t)(-bounds[1] - bounds[0] + 1), CN_PURPOSE_FRAME_COUNTS);
    for (int64_t i = bounds[0]; !err && i <= -bounds[1]; i++)
        if (encoding->counts[i] < 0)
            err = CN_EFORMAT;
    return err;
}

static cn_err encode_own(struct encoding *encoding)
{
    size_t count = encoding->share.whole->tensor_count;
    cn_err err = sum_counts(encoding);

    if (!err && cn_update_shares_have_ties(&encoding->share)) {
        err = cn_update_shares_ties(&encoding->share, encoding->values, encoding->counts,
                                    encoding->equal);
        if (!err)
            err = reduce(encoding, CN_REDUCE_SUM, encoding->equal, count, CN_PURPOSE_FRAME_TIES);
    }
    if (!err)
        err = cn_update_shares_encode(&encoding->share, encoding->values, encoding->counts,
                                      encoding->equal, encoding->next, &encoding->blocks,
                                      encoding->sizes);
    return err ? err
               : reduce(encoding, CN_REDUCE_SUM, encoding->sizes, count, CN_PURPOSE_FRAME_SIZES);
}

// Brings the blocks of all owners to their places in the frame.
static cn_err bring_blocks(struct encoding *encoding, size_t first, struct cn_buffer *frame)
{
    const struct cn_chain_place *place = &encoding->session->plan.chain;
    const struct cn_buffer *blocks = &encoding->blocks.owned;
    size_t own = 0, count = encoding->share.whole->tensor_count, at = first;
    cn_err err = CN_OK;

    for (size_t t = 0, next; !err && t < count; t = next) {
        uint32_t owner = owner_of(encoding, t);
        size_t size = 0;
        struct cn_collective_call call = {.kind = CN_COLLECTIVE_BROADCAST,
                                          .set = &place->chain,
                                          .peer = cn_ranks_of_part(place, owner),
                                          .data = frame->data + at,
                                          .fingerprint =
                                              cn_purpose_at(CN_PURPOSE_FRAME_BLOCKS, owner)};

        for (next = t; next < count && owner_of(encoding, next) == owner; next++)
            size += (size_t)encoding->sizes[next];
        if (owner == place->part && size > blocks->size - own)
            err = CN_EFORMAT; // a member lied about the sizes of others
        if (!err && owner == place->part && size) {
            memcpy(frame->data + at, blocks->data + own, size);
            own += size;
        }
        call.count = size;
        if (!err && size)
            err = encoding->collective->ops->run(encoding->collective, &call);
        at += size;
    }
    return err;
}

// Several members have the tensors that are used in several parts, and each makes their blocks; the
// owner's counts. If they differ, people are told. It ends no epoch: a member that lied once would
// end all later ones by what it left in its file.
static void compare_blocks(const struct encoding *encoding, const struct cn_buffer *frame,
                           size_t first)
{
    size_t other = cn_update_shares_compare(&encoding->share, &encoding->blocks.others,
                                            encoding->sizes, frame, first);

    if (other != SIZE_MAX)
        cn_log(CN_LOG_WARN, "session",
               "round %u: the member with part %u sends another change of %s than this board "
               "computes: a member lies or is broken",
               encoding->header.round, owner_of(encoding, other) + 1,
               encoding->share.whole->tensors[other].name);
}

static cn_err make_frame(struct encoding *encoding, struct cn_buffer *frame)
{
    struct cn_update_header header;
    struct cn_diag diag;
    size_t first;
    cn_err err = encode_own(encoding);

    cn_diag_init(&diag);
    if (!err)
        err = cn_update_shares_begin(&encoding->share, encoding->sizes, frame, &first);
    if (!err)
        err = bring_blocks(encoding, first, frame);
    if (!err) {
        compare_blocks(encoding, frame, first);
        cn_update_shares_end(frame);
        if (cn_update_check(frame->data, frame->size, encoding->share.whole, &diag, &header))
            err = CN_EFORMAT;
    }
    if (err == CN_EFORMAT)
        cn_log(CN_LOG_WARN, "session",
               "round %u: the members' blocks make no update: %s; a member lies or is broken",
               encoding->header.round, diag.count ? cn_diag_first(&diag) : cn_err_text(err));
    return err;
}

// Measures the change of all parts, for the next choice of a rule.
static cn_err measure(struct encoding *encoding)
{
    struct cn_session *session = encoding->session;
    struct cn_rate_spectrum *spectrum;
    int64_t counts[CN_RATE_SUMS];
    cn_err err;

    if (session->config.job->up.mode != CN_UPDATE_AUTO)
        return CN_OK;
    spectrum = calloc(1, sizeof(*spectrum));
    if (!spectrum)
        return CN_ENOMEM;
    cn_rate_measure_share(&encoding->share, encoding->values, spectrum);
    cn_rate_get_sums(spectrum, counts);
    err = reduce(encoding, CN_REDUCE_SUM, counts, CN_RATE_SUMS, CN_PURPOSE_FRAME_SPECTRUM);
    if (err || !cn_rate_of_sums(session->layout, counts,
                                spectrum)) { // without it the next choice is a guess
        free(spectrum);
        spectrum = NULL;
    }
    free(session->measured.spectrum);
    session->measured.spectrum = spectrum;
    return err;
}

cn_err cn_session_encode_parts(struct cn_session *session, struct cn_collective *collective,
                               struct cn_buffer *frame, struct cn_session_waiting *waiting)
{
    struct encoding encoding = {.session = session, .collective = collective};
    cn_err err = allocate(&encoding);

    cn_session_update_header(session, &encoding.header);
    if (!err)
        err = make_values(&encoding);
    if (!err)
        err = make_frame(&encoding, frame);
    if (!err)
        err = measure(&encoding);
    if (!err) {
        *waiting = (struct cn_session_waiting){encoding.next, encoding.values, encoding.lost};
        encoding.next = encoding.values = NULL;
    }
    release(&encoding);
    return err;
}
