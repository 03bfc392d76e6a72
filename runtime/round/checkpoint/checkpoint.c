#include "runtime/round/checkpoint/checkpoint.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/port/crypto.h"
#include "runtime/port/scratch.h"
#include "runtime/round/checkpoint/checkpoint_private.h"

const uint8_t cn_checkpoint_magic[8] = "cairnck6";

const char *const cn_checkpoint_slots[2] = {"checkpoint.a", "checkpoint.b"};

const struct cn_checkpoint_phase cn_checkpoint_phases[CN_PHASE_SEND + 1] = {
    [CN_PHASE_EMPTY] = {.required = 0x00, .allowed = 0x00},
    [CN_PHASE_BASE] = {.required = 0x01, .allowed = 0x1cd},
    [CN_PHASE_TRAIN] = {.required = 0x02, .allowed = 0x1cf},
    [CN_PHASE_SEND] = {.required = 0x31, .allowed = 0x1fd, .has_frame = true},
};

uint32_t cn_checkpoint_required(enum cn_phase phase, bool waits)
{
    return cn_checkpoint_phases[phase].required & ~(waits ? WAITING : 0u);
}

static void arrays_of(const struct cn_checkpoint *checkpoint, const void *arrays[ARRAY_COUNT])
{
    arrays[0] = checkpoint->base;
    arrays[1] = checkpoint->weights;
    arrays[2] = checkpoint->optimizer;
    arrays[3] = checkpoint->residual.data;
    arrays[4] = checkpoint->next_residual.data;
    arrays[5] = checkpoint->change.data;
    arrays[6] = checkpoint->second;
    arrays[7] = checkpoint->control.own;
    arrays[8] = checkpoint->control.server;
}

static bool has_halves(const struct cn_checkpoint *checkpoint)
{
    return checkpoint->residual.half || checkpoint->next_residual.half || checkpoint->change.half;
}

// Encodes the scale's power of 2, counted from 1, and its steps. 0 stands for no scale.
static uint32_t encode_scale(struct cn_loss_scale scale)
{
    int exponent;

    if (!(scale.factor >= 1))
        return 0;
    (void)frexpf(scale.factor, &exponent);
    return (uint32_t)exponent << 8 | scale.steps << 16;
}

size_t cn_checkpoint_array_size(uint32_t index, size_t total, bool halves)
{
    return total * (halves && (HALVES >> index & 1) ? sizeof(uint16_t) : sizeof(float));
}

void cn_checkpoint_deinit(struct cn_checkpoint *checkpoint)
{
    if (!checkpoint)
        return;
    cn_scratch_free(checkpoint->base);
    cn_scratch_free(checkpoint->weights);
    cn_scratch_free(checkpoint->optimizer);
    cn_scratch_free(checkpoint->second);
    cn_row_deinit(&checkpoint->residual);
    cn_row_deinit(&checkpoint->next_residual);
    cn_row_deinit(&checkpoint->change);
    cn_scratch_free(checkpoint->control.own);
    cn_scratch_free(checkpoint->control.server);
    free(checkpoint->frame);
    *checkpoint = (struct cn_checkpoint){0};
}

// Returns the arrays to write: those that exist and that the phase allows.
static uint32_t presence_of(const struct cn_checkpoint *checkpoint)
{
    const void *arrays[ARRAY_COUNT];
    uint32_t presence = 0;

    arrays_of(checkpoint, arrays);
    for (uint32_t i = 0; i < ARRAY_COUNT; i++)
        presence |= (uint32_t)(arrays[i] != NULL) << i;
    return presence & cn_checkpoint_phases[checkpoint->phase].allowed &
           ~(checkpoint->waiting.set ? WAITING : 0u);
}

cn_err cn_checkpoint_body_size(uint32_t presence, size_t total, bool halves, size_t frame_size,
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

// Returns the size of the header: that of the oldest version that has all fields of the state.
static size_t header_size_of(const struct cn_checkpoint *checkpoint, uint32_t presence)
{
    bool control = checkpoint->control.epoch && checkpoint->phase != CN_PHASE_EMPTY;

    if (checkpoint->waiting.set)
        return HEADER_SIZE;
    return control || presence >> CN_PART_CONTROL ? HEADER_SIZE_5 : HEADER_SIZE_4;
}

static void put_header(const struct cn_checkpoint *checkpoint, uint64_t counter, uint32_t presence,
                       size_t size, uint8_t header[HEADER_SIZE])
{
    size_t frame_size =
        cn_checkpoint_phases[checkpoint->phase].has_frame ? checkpoint->frame_size : 0;

    memcpy(header, cn_checkpoint_magic, sizeof(cn_checkpoint_magic));
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
    cn_put_u32(header + 384, checkpoint->control.epoch);
    cn_put_u32(header + 388, checkpoint->control.count);
    cn_put_u32(header + 392, checkpoint->control.version);
    memcpy(header + 396, &checkpoint->control.inverse, sizeof(float));
    cn_put_u64(header + 400, checkpoint->waiting.set);
    cn_put_u32(header + 408, checkpoint->waiting.array);
    cn_put_u32(header + 412, 0);
    if (header_size_of(checkpoint, presence) < HEADER_SIZE)
        header[7] = header_size_of(checkpoint, presence) == HEADER_SIZE_5 ? '5' : '4';
}

// The destination of encoded bytes: a buffer or a file of a store.
struct sink {
    struct cn_buffer *buffer;
    struct cn_store *store;
    struct cn_store_file *file;
    uint64_t offset;
    struct cn_sha256 sha;
    bool halves; // values that are put become bfloat16
    cn_err err;  // the first error; nothing is written after it
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

#define HALVES_PUT 4096 // values that are rounded together

static void put_values(void *to, const float *values, size_t count)
{
    struct sink *sink = to;
    uint16_t halves[HALVES_PUT];
    struct cn_row row = {halves, true};

    if (!sink->halves) {
        sink_put(sink, values, count * sizeof(*values));
        return;
    }
    for (size_t done = 0, some; done < count; done += some) {
        some = count - done < HALVES_PUT ? count - done : HALVES_PUT;
        cn_row_write(&row, 0, some, values + done);
        sink_put(sink, halves, some * sizeof(*halves));
    }
}

static cn_err put_arrays(const struct cn_checkpoint *checkpoint, uint32_t presence,
                         const struct cn_checkpoint_source *source, struct sink *sink)
{
    bool halves = has_halves(checkpoint);
    const void *arrays[ARRAY_COUNT];

    arrays_of(checkpoint, arrays);
    for (uint32_t i = 0; i < ARRAY_COUNT; i++) {
        cn_err err = CN_OK;

        sink->halves = halves && HALVES >> i & 1;
        if (source && source->arrays >> i & 1)
            err = source->bring(source->context, (enum cn_checkpoint_part)i, put_values, sink);
        else if (presence >> i & 1)
            sink_put(sink, arrays[i], cn_checkpoint_array_size(i, checkpoint->total, halves));
        if (err)
            return err;
    }
    return CN_OK;
}

// Computes the encoded size of a state with these arrays. Returns CN_EINVAL when one is missing.
static cn_err size_with(const struct cn_checkpoint *checkpoint, uint32_t presence, size_t *size)
{
    uint32_t required = cn_checkpoint_required(checkpoint->phase, checkpoint->waiting.set != 0);
    bool has_frame = cn_checkpoint_phases[checkpoint->phase].has_frame;
    cn_err err;

    if ((presence & required) != required ||
        (has_frame && (!checkpoint->frame || !checkpoint->frame_size)))
        return CN_EINVAL;
    err = cn_checkpoint_body_size(presence, checkpoint->total, has_halves(checkpoint),
                                  has_frame ? checkpoint->frame_size : 0, size);
    if (!err)
        *size += header_size_of(checkpoint, presence);
    return err;
}

cn_err cn_checkpoint_size(const struct cn_checkpoint *checkpoint, size_t *size)
{
    return size_with(checkpoint, presence_of(checkpoint), size);
}

static cn_err encode(const struct cn_checkpoint *checkpoint, uint64_t counter,
                     const struct cn_checkpoint_source *source, struct sink *sink)
{
    uint32_t presence = presence_of(checkpoint) | (source ? source->arrays : 0);
    bool has_frame = cn_checkpoint_phases[checkpoint->phase].has_frame;
    uint8_t header[HEADER_SIZE];
    uint8_t digest[CN_DIGEST_SIZE];
    size_t size;
    cn_err err = size_with(checkpoint, presence, &size);

    if (err)
        return err;
    cn_sha256_init(&sink->sha);
    put_header(checkpoint, counter, presence, size, header);
    sink_put(sink, header, header_size_of(checkpoint, presence));
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

    sink.err = counter ? CN_OK : cn_checkpoint_count_on(store, &counter);
    counter++;
    if (!sink.err)
        sink.err = store->ops->create(store, cn_checkpoint_slots[counter % 2], &sink.file);
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
