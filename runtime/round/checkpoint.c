#include "runtime/round/checkpoint.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/port/crypto.h"

#define HEADER_SIZE 384
#define HEADER_SIZE_3 344 // of version 3, which knows nothing of counted updates
#define SCALE_MAX 64      // 1 more than the exponent of a loss's scale, at most
#define ARRAY_COUNT 7

static const uint8_t magic[8] = "cairnck4"; // the digit is CN_CHECKPOINT_VERSION
#define HALVES 0x38u // arrays that may be in bfloat16: the residual and its successors

// A state is saved as counter n in slot n % 2, so the next one goes to the other slot.
static const char *const slot_names[2] = {"checkpoint.a", "checkpoint.b"};

// Which arrays a phase has, as bits in the order of arrays_of. CHECKPOINT.md has the same table.
static const struct {
    uint32_t required, allowed;
    bool has_frame;
} phases[] = {
    [CN_PHASE_EMPTY] = {.required = 0x00, .allowed = 0x00},
    [CN_PHASE_BASE] = {.required = 0x01, .allowed = 0x4d},
    [CN_PHASE_TRAIN] = {.required = 0x03, .allowed = 0x4f},
    [CN_PHASE_SEND] = {.required = 0x31, .allowed = 0x7d, .has_frame = true},
};

static void arrays_of(const struct cn_checkpoint *checkpoint, const void *arrays[ARRAY_COUNT])
{
    arrays[0] = checkpoint->base;
    arrays[1] = checkpoint->weights;
    arrays[2] = checkpoint->optimizer;
    arrays[3] = checkpoint->residual.data;
    arrays[4] = checkpoint->next_residual.data;
    arrays[5] = checkpoint->change.data;
    arrays[6] = checkpoint->second;
}

static bool has_halves(const struct cn_checkpoint *checkpoint)
{
    return checkpoint->residual.half || checkpoint->next_residual.half || checkpoint->change.half;
}

// The power of 2, counted from 1, and the steps. 0: no scale.
static uint32_t encode_scale(struct cn_loss_scale scale)
{
    int exponent;

    if (!(scale.factor >= 1))
        return 0;
    (void)frexpf(scale.factor, &exponent);
    return (uint32_t)exponent << 8 | scale.steps << 16;
}

static struct cn_loss_scale decode_scale(const uint8_t bytes[4])
{
    if (!bytes[1])
        return (struct cn_loss_scale){0};
    return (struct cn_loss_scale){ldexpf(1, bytes[1] - 1), (uint32_t)(bytes[2] | bytes[3] << 8)};
}

static size_t array_size(uint32_t index, size_t total, bool halves)
{
    return total * (halves && (HALVES >> index & 1) ? sizeof(uint16_t) : sizeof(float));
}

void cn_checkpoint_deinit(struct cn_checkpoint *checkpoint)
{
    if (!checkpoint)
        return;
    free(checkpoint->base);
    free(checkpoint->weights);
    free(checkpoint->optimizer);
    free(checkpoint->second);
    cn_row_deinit(&checkpoint->residual);
    cn_row_deinit(&checkpoint->next_residual);
    cn_row_deinit(&checkpoint->change);
    free(checkpoint->frame);
    *checkpoint = (struct cn_checkpoint){0};
}

// The arrays to write: those there are, of those the phase has.
static uint32_t presence_of(const struct cn_checkpoint *checkpoint)
{
    const void *arrays[ARRAY_COUNT];
    uint32_t presence = 0;

    arrays_of(checkpoint, arrays);
    for (uint32_t i = 0; i < ARRAY_COUNT; i++)
        presence |= (uint32_t)(arrays[i] != NULL) << i;
    return presence & phases[checkpoint->phase].allowed;
}

// The encoded size behind the header. CN_ERANGE when it does not fit.
static cn_err body_size(uint32_t presence, size_t total, bool halves, size_t frame_size,
                        size_t *size)
{
    size_t widths = sizeof(float) * (size_t)__builtin_popcount(presence) -
                    (halves ? sizeof(uint16_t) * (size_t)__builtin_popcount(presence & HALVES) : 0);
    cn_err err = cn_size_multiply(total, widths, size);

    if (err)
        return err;
    if (__builtin_add_overflow(*size, frame_size, size) ||
        __builtin_add_overflow(*size, CN_DIGEST_SIZE, size) || *size > SIZE_MAX - HEADER_SIZE)
        return CN_ERANGE;
    return CN_OK;
}

static void put_header(const struct cn_checkpoint *checkpoint, uint64_t counter, uint32_t presence,
                       size_t size, uint8_t header[HEADER_SIZE])
{
    size_t frame_size = phases[checkpoint->phase].has_frame ? checkpoint->frame_size : 0;

    memcpy(header, magic, sizeof(magic));
    cn_put_u64(header + 8, size);
    cn_put_u64(header + 16, counter);
    cn_put_u64(header + 24, checkpoint->run);
    cn_put_u32(header + 32, checkpoint->lineage);
    cn_put_u32(header + 36, (uint32_t)checkpoint->phase);
    cn_put_u32(header + 40, checkpoint->round);
    cn_put_u32(header + 44, checkpoint->step);
    cn_put_u64(header + 48, checkpoint->updates);
    cn_put_u64(header + 56, checkpoint->epoch);
    cn_put_u32(header + 64, checkpoint->version);
    cn_put_u32(header + 68, presence);
    memcpy(header + 72, checkpoint->graph, CN_DIGEST_SIZE);
    memcpy(header + 104, checkpoint->base_digest, CN_DIGEST_SIZE);
    memcpy(header + 136, checkpoint->base_parent, CN_DIGEST_SIZE);
    cn_put_u64(header + 168, checkpoint->samples);
    cn_put_f64(header + 176, checkpoint->train_loss);
    cn_put_f64(header + 184, checkpoint->held_out_loss);
    cn_put_u64(header + 192, checkpoint->held_out_correct);
    cn_put_u64(header + 200, checkpoint->held_out_count);
    cn_put_u64(header + 208, checkpoint->resets);
    cn_put_u64(header + 216, checkpoint->total);
    cn_put_u64(header + 224, frame_size);
    memcpy(header + 232, checkpoint->frame_digest, CN_DIGEST_SIZE);
    cn_put_u32(header + 264, (uint32_t)checkpoint->rule.mode);
    cn_put_u32(header + 268, checkpoint->rule.value_bits);
    cn_put_f64(header + 272, checkpoint->rule.density);
    cn_put_f64(header + 280, checkpoint->guard.factor);
    cn_put_u32(header + 288, checkpoint->guard.streak);
    cn_put_u32(header + 292, checkpoint->steps);
    cn_put_u32(header + 296, checkpoint->residual_version);
    cn_put_u32(header + 300, has_halves(checkpoint) | encode_scale(checkpoint->loss_scale));
    cn_put_u64(header + 304, checkpoint->cursor);
    for (size_t s = 0; s < CN_GROUP_MAX; s++) {
        header[312 + 2 * s] = (uint8_t)checkpoint->micro[s];
        header[313 + 2 * s] = (uint8_t)(checkpoint->micro[s] >> 8);
    }
    cn_put_u32(header + 344, checkpoint->counted.round);
    cn_put_u32(header + 348, checkpoint->counted.own);
    memcpy(header + 352, checkpoint->counted.digest, CN_DIGEST_SIZE);
}

// Where encoded bytes go: a buffer, or a file of a store.
struct sink {
    struct cn_buffer *buffer;
    struct cn_store *store;
    struct cn_store_file *file;
    uint64_t offset;
    struct cn_sha256 sha;
    cn_err err; // after the first one nothing more is put
};

static void sink_put(struct sink *sink, const void *data, size_t size)
{
    if (sink->err)
        return;
    sink->err = sink->buffer ? cn_buffer_append(sink->buffer, data, size)
                             : sink->store->ops->write(sink->file, sink->offset, data, size);
    cn_sha256_add(&sink->sha, data, size);
    sink->offset += size;
}

static cn_err put_arrays(const struct cn_checkpoint *checkpoint, uint32_t presence,
                         const struct cn_checkpoint_source *source, struct sink *sink)
{
    bool halves = has_halves(checkpoint);
    const void *arrays[ARRAY_COUNT];

    arrays_of(checkpoint, arrays);
    for (uint32_t i = 0; i < ARRAY_COUNT; i++) {
        if (source && source->arrays >> i & 1) {
            const float *values;
            cn_err err = source->bring(source->context, (enum cn_checkpoint_array)i, &values);

            if (err)
                return err;
            arrays[i] = values;
        }
        if (presence >> i & 1)
            sink_put(sink, arrays[i], array_size(i, checkpoint->total, halves));
    }
    return CN_OK;
}

static cn_err encode(const struct cn_checkpoint *checkpoint, uint64_t counter,
                     const struct cn_checkpoint_source *source, struct sink *sink)
{
    uint32_t presence = presence_of(checkpoint) | (source ? source->arrays : 0);
    uint32_t required = phases[checkpoint->phase].required;
    bool has_frame = phases[checkpoint->phase].has_frame;
    uint8_t header[HEADER_SIZE];
    uint8_t digest[CN_DIGEST_SIZE];
    size_t size;
    cn_err err;

    if ((presence & required) != required ||
        (has_frame && (!checkpoint->frame || !checkpoint->frame_size)))
        return CN_EINVAL;
    err = body_size(presence, checkpoint->total, has_halves(checkpoint),
                    has_frame ? checkpoint->frame_size : 0, &size);
    if (err)
        return err;
    size += HEADER_SIZE;
    cn_sha256_init(&sink->sha);
    put_header(checkpoint, counter, presence, size, header);
    sink_put(sink, header, sizeof(header));
    err = put_arrays(checkpoint, presence, source, sink);
    if (err)
        return err;
    if (has_frame)
        sink_put(sink, checkpoint->frame, checkpoint->frame_size);
    cn_sha256_finish(&sink->sha, digest);
    sink_put(sink, digest, sizeof(digest));
    return sink->err;
}

cn_err cn_checkpoint_encode(const struct cn_checkpoint *checkpoint, struct cn_buffer *out)
{
    struct sink sink = {.buffer = out};
    size_t start = out->size;
    cn_err err = encode(checkpoint, checkpoint->counter, NULL, &sink);

    if (err)
        out->size = start;
    return err;
}

// 0 for another version.
static size_t header_size(const uint8_t *bytes)
{
    if (memcmp(bytes, magic, sizeof(magic) - 1) != 0)
        return 0;
    return bytes[7] == magic[7] ? HEADER_SIZE : bytes[7] == '3' ? HEADER_SIZE_3 : 0;
}

static void get_numbers(const uint8_t *header, struct cn_checkpoint *checkpoint)
{
    *checkpoint = (struct cn_checkpoint){
        .counter = cn_get_u64(header + 16),
        .run = cn_get_u64(header + 24),
        .lineage = cn_get_u32(header + 32),
        .phase = (enum cn_phase)cn_get_u32(header + 36),
        .round = cn_get_u32(header + 40),
        .step = cn_get_u32(header + 44),
        .updates = cn_get_u64(header + 48),
        .epoch = cn_get_u64(header + 56),
        .version = cn_get_u32(header + 64),
        .samples = cn_get_u64(header + 168),
        .train_loss = cn_get_f64(header + 176),
        .held_out_loss = cn_get_f64(header + 184),
        .held_out_correct = cn_get_u64(header + 192),
        .held_out_count = cn_get_u64(header + 200),
        .resets = cn_get_u64(header + 208),
        .total = (size_t)cn_get_u64(header + 216),
        .rule = {.mode = (enum cn_update_mode)cn_get_u32(header + 264),
                 .value_bits = cn_get_u32(header + 268),
                 .density = cn_get_f64(header + 272)},
        .guard = {cn_get_f64(header + 280), cn_get_u32(header + 288)},
        .steps = cn_get_u32(header + 292),
        .residual_version = cn_get_u32(header + 296),
        .loss_scale = decode_scale(header + 300),
        .cursor = cn_get_u64(header + 304),
    };
    for (size_t s = 0; s < CN_GROUP_MAX; s++)
        checkpoint->micro[s] = (uint16_t)(header[312 + 2 * s] | header[313 + 2 * s] << 8);
    memcpy(checkpoint->graph, header + 72, CN_DIGEST_SIZE);
    memcpy(checkpoint->base_digest, header + 104, CN_DIGEST_SIZE);
    memcpy(checkpoint->base_parent, header + 136, CN_DIGEST_SIZE);
    memcpy(checkpoint->frame_digest, header + 232, CN_DIGEST_SIZE);
    if (header_size(header) < HEADER_SIZE)
        return;
    checkpoint->counted.round = cn_get_u32(header + 344);
    checkpoint->counted.own = cn_get_u32(header + 348) != 0;
    memcpy(checkpoint->counted.digest, header + 352, CN_DIGEST_SIZE);
}

// Phase, arrays, and sizes that are within the limits and make up exactly size bytes.
static cn_err check_sizes(const uint8_t *bytes, size_t size, size_t total_limit, size_t frame_limit,
                          struct cn_diag *diag)
{
    uint32_t phase = cn_get_u32(bytes + 36);
    uint32_t presence = cn_get_u32(bytes + 68);
    uint64_t total = cn_get_u64(bytes + 216);
    uint64_t frame_size = cn_get_u64(bytes + 224);
    bool halves = bytes[300] != 0;
    size_t expected;

    if (phase > CN_PHASE_SEND || (presence & phases[phase].required) != phases[phase].required ||
        (presence & ~phases[phase].allowed) || phases[phase].has_frame != (frame_size > 0)) {
        cn_diag_add(diag,
                    "checkpoint: phase %" PRIu32 " with arrays 0x%" PRIx32
                    " and a frame of %" PRIu64 " bytes is no state",
                    phase, presence, frame_size);
        return CN_EFORMAT;
    }
    if (cn_get_u32(bytes + 264) > CN_UPDATE_SKIP || bytes[300] > 1 || bytes[301] > SCALE_MAX ||
        (!bytes[301] && (bytes[302] || bytes[303])) ||
        (header_size(bytes) == HEADER_SIZE && cn_get_u32(bytes + 348) > 1)) {
        cn_diag_add(diag,
                    "checkpoint: mode %" PRIu32
                    ", residual %u, scale %u, expected 0 to 7, 0 or 1, 0 to %u",
                    cn_get_u32(bytes + 264), bytes[300], bytes[301], SCALE_MAX);
        return CN_EFORMAT;
    }
    if (total > total_limit || frame_size > frame_limit) {
        cn_diag_add(diag,
                    "checkpoint: %" PRIu64 " values and a frame of %" PRIu64
                    " bytes, expected at most %zu and %zu",
                    total, frame_size, total_limit, frame_limit);
        return CN_ERANGE;
    }
    if (body_size(presence, (size_t)total, halves, (size_t)frame_size, &expected) ||
        expected != size - header_size(bytes) || cn_get_u64(bytes + 8) != size) {
        cn_diag_add(diag, "checkpoint: %zu bytes, expected another number", size);
        return CN_EFORMAT;
    }
    return CN_OK;
}

// Checks all bytes without keeping any.
static cn_err check(const uint8_t *bytes, size_t size, size_t total_limit, size_t frame_limit,
                    struct cn_diag *diag)
{
    uint8_t digest[CN_DIGEST_SIZE];
    uint64_t frame_size;
    cn_err err;

    if (size < HEADER_SIZE_3 + CN_DIGEST_SIZE || !header_size(bytes) ||
        size < header_size(bytes) + CN_DIGEST_SIZE) {
        cn_diag_add(diag, "checkpoint: %zu bytes that do not start like one of version 3 or %d",
                    size, CN_CHECKPOINT_VERSION);
        return CN_EFORMAT;
    }
    cn_crypto_digest(bytes, size - CN_DIGEST_SIZE, digest);
    if (memcmp(digest, bytes + size - CN_DIGEST_SIZE, CN_DIGEST_SIZE) != 0) {
        cn_diag_add(diag, "checkpoint: %s", cn_err_text(CN_EDIGEST));
        return CN_EDIGEST;
    }
    err = check_sizes(bytes, size, total_limit, frame_limit, diag);
    if (err)
        return err;
    frame_size = cn_get_u64(bytes + 224);
    if (cn_get_u32(bytes + 36) != CN_PHASE_SEND)
        return CN_OK;
    cn_crypto_digest(bytes + size - CN_DIGEST_SIZE - frame_size, (size_t)frame_size, digest);
    if (memcmp(digest, bytes + 232, CN_DIGEST_SIZE) != 0) {
        cn_diag_add(diag, "checkpoint: the frame's %s", cn_err_text(CN_EDIGEST));
        return CN_EDIGEST;
    }
    return CN_OK;
}

static cn_err copy(const uint8_t *from, size_t size, void **to)
{
    *to = malloc(size ? size : 1);
    if (!*to)
        return CN_ENOMEM;
    if (size)
        memcpy(*to, from, size);
    return CN_OK;
}

static void give_arrays(struct cn_checkpoint *checkpoint, void *const arrays[ARRAY_COUNT],
                        bool halves)
{
    checkpoint->base = arrays[0];
    checkpoint->weights = arrays[1];
    checkpoint->optimizer = arrays[2];
    checkpoint->residual = (struct cn_row){arrays[3], halves};
    checkpoint->next_residual = (struct cn_row){arrays[4], halves};
    checkpoint->change = (struct cn_row){arrays[5], halves};
    checkpoint->second = arrays[6];
}

// Copies what begins at a place, to the end of what is left of the bytes. Bytes that are owned end
// there afterwards, so that a state is not in memory twice.
static cn_err take(const uint8_t *bytes, uint8_t **owned, size_t place, size_t size, void **to)
{
    cn_err err = copy((owned ? *owned : bytes) + place, size, to);
    uint8_t *rest;

    if (err || !owned)
        return err;
    rest = realloc(*owned, place);
    *owned = rest ? rest : *owned;
    return CN_OK;
}

// Of bytes that check accepted, from the last to the first; owned: the same bytes, or NULL.
static cn_err take_arrays(const uint8_t *bytes, uint8_t **owned, struct cn_checkpoint *checkpoint)
{
    bool halves = bytes[300] != 0;
    void *arrays[ARRAY_COUNT] = {0}, *frame = NULL;
    uint32_t presence = cn_get_u32(bytes + 68);
    size_t places[ARRAY_COUNT + 1] = {header_size(bytes)};
    cn_err err = CN_OK;

    for (uint32_t i = 0; i < ARRAY_COUNT; i++)
        places[i + 1] =
            places[i] + (presence >> i & 1 ? array_size(i, checkpoint->total, halves) : 0);
    if (phases[checkpoint->phase].has_frame) {
        checkpoint->frame_size = (size_t)cn_get_u64(bytes + 224);
        err = take(bytes, owned, places[ARRAY_COUNT], checkpoint->frame_size, &frame);
        checkpoint->frame = frame;
    }
    for (uint32_t i = ARRAY_COUNT; !err && i-- > 0;)
        if (presence >> i & 1)
            err = take(bytes, owned, places[i], places[i + 1] - places[i], &arrays[i]);
    give_arrays(checkpoint, arrays, halves);
    return err;
}

static cn_err decode(const uint8_t *bytes, uint8_t **owned, size_t size, size_t total_limit,
                     size_t frame_limit, struct cn_diag *diag, struct cn_checkpoint *checkpoint)
{
    cn_err err = check(bytes, size, total_limit, frame_limit, diag);

    if (err)
        return err;
    get_numbers(bytes, checkpoint);
    err = take_arrays(bytes, owned, checkpoint);
    if (err)
        cn_checkpoint_deinit(checkpoint);
    return err;
}

cn_err cn_checkpoint_decode(const uint8_t *bytes, size_t size, size_t total_limit,
                            size_t frame_limit, struct cn_diag *diag,
                            struct cn_checkpoint *checkpoint)
{
    return decode(bytes, NULL, size, total_limit, frame_limit, diag, checkpoint);
}

// Largest size of a file within the limits; SIZE_MAX when there is none.
static size_t file_limit(size_t total_limit, size_t frame_limit)
{
    size_t size;

    return body_size((1u << ARRAY_COUNT) - 1, total_limit, false, frame_limit, &size)
               ? SIZE_MAX
               : HEADER_SIZE + size;
}

// A disk may fail once and then read the same file well, so that is tried before a slot is given
// up.
static cn_err load_slot(struct cn_store *store, int slot, size_t limit, uint8_t **bytes,
                        size_t *size)
{
    cn_err err = store->ops->load(store, slot_names[slot], limit, bytes, size);

    return err == CN_EIO ? store->ops->load(store, slot_names[slot], limit, bytes, size) : err;
}

// *counter is that of the state in the slot. CN_ENOTFOUND for no file, CN_ENOMEM, CN_EIO when it
// cannot be read, CN_ERANGE when it is whole but beyond a limit, CN_EFORMAT when it is damaged.
static cn_err inspect_slot(struct cn_store *store, int slot, size_t total_limit, size_t frame_limit,
                           struct cn_diag *diag, uint64_t *counter)
{
    uint8_t *bytes;
    size_t size;
    cn_err err = load_slot(store, slot, file_limit(total_limit, frame_limit), &bytes, &size);

    if (err)
        return err;
    err = check(bytes, size, total_limit, frame_limit, diag);
    if (!err) {
        *counter = cn_get_u64(bytes + 16);
        // Saves rely on it; a file that was copied to the other name is not one of ours.
        err = *counter == 0 || *counter % 2 != (uint64_t)slot ? CN_EFORMAT : CN_OK;
    }
    free(bytes);
    return err == CN_EDIGEST ? CN_EFORMAT : err;
}

// The slot of the newest whole state. CN_ENOTFOUND when both slots are empty; else the error of a
// slot that cannot be used.
static cn_err find_newest(struct cn_store *store, size_t total_limit, size_t frame_limit,
                          struct cn_diag *diag, int *newest, uint64_t *counter)
{
    cn_err result = CN_ENOTFOUND;

    *newest = -1;
    *counter = 0;
    for (int slot = 0; slot < 2; slot++) {
        uint64_t found = 0;
        cn_err err = inspect_slot(store, slot, total_limit, frame_limit, diag, &found);

        if (err == CN_ENOMEM)
            return err;
        if (err && err != CN_ENOTFOUND) {
            cn_diag_add(diag, "%s cannot be used: %s", slot_names[slot], cn_err_text(err));
            result = result == CN_EIO ? result : err;
        }
        if (!err && found > *counter) {
            *counter = found;
            *newest = slot;
        }
    }
    return *newest < 0 ? result : CN_OK;
}

// Continues the count of a store that this state was not loaded from.
static cn_err count_on(struct cn_store *store, uint64_t *counter)
{
    int newest;
    cn_err err = find_newest(store, SIZE_MAX / 64, SIZE_MAX / 8, NULL, &newest, counter);

    return err == CN_ENOMEM ? err : CN_OK;
}

cn_err cn_checkpoint_save(struct cn_store *store, struct cn_checkpoint *checkpoint)
{
    return cn_checkpoint_save_from(store, checkpoint, NULL);
}

cn_err cn_checkpoint_save_from(struct cn_store *store, struct cn_checkpoint *checkpoint,
                               const struct cn_checkpoint_source *source)
{
    struct sink sink = {.store = store};
    uint64_t counter = checkpoint->counter;
    cn_err err;

    sink.err = counter ? CN_OK : count_on(store, &counter);
    counter++;
    if (!sink.err)
        sink.err = store->ops->create(store, slot_names[counter % 2], &sink.file);
    err = encode(checkpoint, counter, source, &sink);
    if (err) {
        store->ops->abort(sink.file);
        return err;
    }
    err = store->ops->commit(sink.file);
    if (err)
        return err;
    checkpoint->counter = counter;
    return CN_OK;
}

cn_err cn_checkpoint_load(struct cn_store *store, size_t total_limit, size_t frame_limit,
                          struct cn_diag *diag, struct cn_checkpoint *checkpoint)
{
    size_t lines = diag ? diag->count : 0;
    uint64_t counter;
    uint8_t *bytes;
    size_t size;
    int newest;
    cn_err err = find_newest(store, total_limit, frame_limit, diag, &newest, &counter);

    if (err)
        return err;
    if (diag && diag->count > lines)
        cn_diag_add(diag, "%s is used instead, state %" PRIu64, slot_names[newest], counter);
    err = load_slot(store, newest, file_limit(total_limit, frame_limit), &bytes, &size);
    if (err)
        return err;
    err = decode(bytes, &bytes, size, total_limit, frame_limit, diag, checkpoint);
    free(bytes);
    return err;
}
