// checkpoint_read.c - reads states from memory and from the slots of a store.
#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/port/scratch.h"
#include "runtime/round/checkpoint/checkpoint_private.h"

#define VALUES 4096 // values that are read at a time

struct cn_checkpoint_file {
    struct cn_encoded source;
    uint8_t header[HEADER_SIZE];
};

// --- the parts ---

static bool has_part(const uint8_t *header, enum cn_checkpoint_part part)
{
    return part == CN_PART_FRAME ? cn_checkpoint_phases[cn_get_u32(header + 36)].has_frame
                                 : cn_get_u32(header + 68) >> part & 1;
}

static size_t part_size(const uint8_t *header, enum cn_checkpoint_part part)
{
    if (!has_part(header, part))
        return 0;
    if (part == CN_PART_FRAME)
        return (size_t)cn_get_u64(header + 224);
    return cn_checkpoint_array_size(part, (size_t)cn_get_u64(header + 216), header[300] != 0);
}

// Passes an array to taker in pieces.
static cn_err read_row(const struct cn_encoded *source, uint64_t at, size_t count,
                       enum cn_checkpoint_part part, const struct cn_checkpoint_target *taker,
                       struct cn_sha256 *sha)
{
    float values[VALUES];
    cn_err err = CN_OK;

    for (size_t first = 0, some; !err && first < count; first += some) {
        some = count - first < VALUES ? count - first : VALUES;
        err = cn_encoded_get(source, at + first * sizeof(float), values, some * sizeof(float));
        if (err)
            return err;
        cn_sha256_add(sha, values, some * sizeof(float));
        taker->take(taker->context, part, first, some, values);
    }
    return err;
}

// The destinations of the parts of a state.
struct target {
    void *places[CN_PART_COUNT]; // NULL: the part is not kept
    const struct cn_checkpoint_target *taker;
};

static cn_err read_part(const struct cn_encoded *source, uint64_t at, size_t size,
                        enum cn_checkpoint_part part, const struct target *target,
                        struct cn_sha256 *sha)
{
    cn_err err;

    if (target->taker && target->taker->arrays >> part & 1)
        return read_row(source, at, size / sizeof(float), part, target->taker, sha);
    if (!target->places[part])
        return cn_encoded_digest(source, at, size, sha);
    err = cn_encoded_get(source, at, target->places[part], size);
    if (!err)
        cn_sha256_add(sha, target->places[part], size);
    return err;
}

// Reads the parts of a state that was checked. Reads to its end and compares the digest,
// because a file may have changed since.
static cn_err read_once(const struct cn_encoded *source, const uint8_t *header,
                        const struct target *target)
{
    uint8_t wanted[CN_DIGEST_SIZE], digest[CN_DIGEST_SIZE];
    uint64_t at = cn_encoded_header_size(header);
    struct cn_sha256 sha;
    cn_err err = CN_OK;

    cn_sha256_init(&sha);
    cn_sha256_add(&sha, header, (size_t)at);
    for (int i = 0; !err && i < CN_PART_COUNT; i++) {
        size_t size = part_size(header, (enum cn_checkpoint_part)i);

        if (size)
            err = read_part(source, at, size, (enum cn_checkpoint_part)i, target, &sha);
        at += size;
    }
    if (!err)
        err = cn_encoded_get(source, at, wanted, sizeof(wanted));
    cn_sha256_finish(&sha, digest);
    if (!err && memcmp(digest, wanted, sizeof(digest)) != 0)
        err = CN_EDIGEST;
    return err;
}

// Reads the parts, and once more after an error: a disk may fail once.
static cn_err read_parts(const struct cn_encoded *source, const uint8_t *header,
                         const struct target *target)
{
    cn_err err = read_once(source, header, target);

    return err == CN_EIO ? read_once(source, header, target) : err;
}

static void give_parts(struct cn_checkpoint *checkpoint, void *const parts[CN_PART_COUNT],
                       bool halves)
{
    checkpoint->base = parts[CN_PART_BASE];
    checkpoint->weights = parts[CN_PART_WEIGHTS];
    checkpoint->optimizer = parts[CN_PART_OPTIMIZER];
    checkpoint->residual = (struct cn_row){parts[CN_PART_RESIDUAL], halves};
    checkpoint->next_residual = (struct cn_row){parts[CN_PART_NEXT_RESIDUAL], halves};
    checkpoint->change = (struct cn_row){parts[CN_PART_CHANGE], halves};
    checkpoint->second = parts[CN_PART_SECOND];
    checkpoint->control.own = parts[CN_PART_CONTROL];
    checkpoint->control.server = parts[CN_PART_SERVER_CONTROL];
    checkpoint->frame = parts[CN_PART_FRAME];
}

// Reads the whole state into memory of its own.
static cn_err take_all(const struct cn_encoded *source, const uint8_t *header,
                       struct cn_checkpoint *checkpoint)
{
    struct target target = {.taker = NULL};
    cn_err err = CN_OK;

    cn_encoded_numbers(header, checkpoint);
    for (int i = 0; !err && i < CN_PART_COUNT; i++) {
        enum cn_checkpoint_part part = (enum cn_checkpoint_part)i;
        size_t size = part_size(header, part);

        if (!has_part(header, part))
            continue;
        target.places[i] = part == CN_PART_FRAME ? malloc(size) : cn_scratch_allocate(size);
        err = target.places[i] ? CN_OK : CN_ENOMEM;
    }
    checkpoint->frame_size = part_size(header, CN_PART_FRAME);
    give_parts(checkpoint, target.places, header[300] != 0);
    if (!err)
        err = read_parts(source, header, &target);
    if (err)
        cn_checkpoint_deinit(checkpoint);
    return err;
}

cn_err cn_checkpoint_decode(const uint8_t *bytes, size_t size, size_t total_limit,
                            size_t frame_limit, struct cn_diag *diag,
                            struct cn_checkpoint *checkpoint)
{
    const struct cn_encoded source = {.bytes = bytes, .size = size};
    uint8_t header[HEADER_SIZE];
    cn_err err = cn_encoded_check(&source, total_limit, frame_limit, diag, header);

    return err ? err : take_all(&source, header, checkpoint);
}

// --- the slots ---

// Returns the largest size of a file within the limits; SIZE_MAX without limits.
static uint64_t file_limit(size_t total_limit, size_t frame_limit)
{
    size_t size;

    return cn_checkpoint_body_size((1u << ARRAY_COUNT) - 1, total_limit, false, frame_limit, &size)
               ? SIZE_MAX
               : HEADER_SIZE + size;
}

static void end_reading(struct cn_encoded *source)
{
    if (source->file)
        source->store->ops->abort(source->file);
    source->file = NULL;
}

static cn_err inspect_once(struct cn_store *store, int slot, size_t total_limit, size_t frame_limit,
                           struct cn_diag *diag, struct cn_checkpoint_file *found)
{
    cn_err err;

    *found = (struct cn_checkpoint_file){.source = {.store = store}};
    err = store->ops->open(store, cn_checkpoint_slots[slot], &found->source.file,
                           &found->source.size);
    if (err)
        return err;
    err = found->source.size > file_limit(total_limit, frame_limit)
              ? CN_ERANGE
              : cn_encoded_check(&found->source, total_limit, frame_limit, diag, found->header);
    if (err)
        end_reading(&found->source);
    return err;
}

// Opens the file in a slot and checks it. Returns CN_ENOTFOUND for no file, CN_ENOMEM, CN_EIO when
// it cannot be read, CN_ERANGE when it is whole but beyond a limit, and CN_EFORMAT when it is
// damaged.
static cn_err inspect_slot(struct cn_store *store, int slot, size_t total_limit, size_t frame_limit,
                           struct cn_diag *diag, struct cn_checkpoint_file *found)
{
    cn_err err = inspect_once(store, slot, total_limit, frame_limit, diag, found);
    uint64_t counter;

    // A disk may fail once and then read the same file well, so the slot gets a second try.
    if (err == CN_EIO)
        err = inspect_once(store, slot, total_limit, frame_limit, diag, found);
    if (err)
        return err == CN_EDIGEST ? CN_EFORMAT : err;
    counter = cn_get_u64(found->header + 16);
    // Saves rely on this: a file that was copied to the other slot's name does not count.
    if (counter && counter % 2 == (uint64_t)slot)
        return CN_OK;
    end_reading(&found->source);
    return CN_EFORMAT;
}

// Keeps the newer of two open files, or the only open one.
static void keep_newer(struct cn_checkpoint_file *newest, struct cn_checkpoint_file *found)
{
    struct cn_checkpoint_file older = *found;

    if (!newest->source.file || cn_get_u64(found->header + 16) > cn_get_u64(newest->header + 16)) {
        older = *newest;
        *newest = *found;
    }
    end_reading(&older.source);
}

// Opens the newest whole state. Returns CN_ENOTFOUND when both slots are empty, else the error of
// an unusable slot.
static cn_err find_newest(struct cn_store *store, size_t total_limit, size_t frame_limit,
                          struct cn_diag *diag, struct cn_checkpoint_file *newest)
{
    cn_err result = CN_ENOTFOUND;

    *newest = (struct cn_checkpoint_file){.source = {.store = store}};
    for (int slot = 0; slot < 2; slot++) {
        struct cn_checkpoint_file found;
        cn_err err = inspect_slot(store, slot, total_limit, frame_limit, diag, &found);

        if (err == CN_ENOMEM) {
            end_reading(&newest->source);
            return err;
        }
        if (err && err != CN_ENOTFOUND) {
            cn_diag_add(diag, "%s cannot be used: %s", cn_checkpoint_slots[slot], cn_err_text(err));
            result = result == CN_EIO ? result : err;
        }
        if (!err)
            keep_newer(newest, &found);
    }
    return newest->source.file ? CN_OK : result;
}

cn_err cn_checkpoint_count_on(struct cn_store *store, uint64_t *counter)
{
    struct cn_checkpoint_file newest;
    cn_err err = find_newest(store, SIZE_MAX / 64, SIZE_MAX / 8, NULL, &newest);

    *counter = err ? 0 : cn_get_u64(newest.header + 16);
    end_reading(&newest.source);
    return err == CN_ENOMEM ? err : CN_OK;
}

cn_err cn_checkpoint_open(struct cn_store *store, size_t total_limit, size_t frame_limit,
                          struct cn_diag *diag, struct cn_checkpoint_file **opened,
                          struct cn_checkpoint *numbers)
{
    struct cn_checkpoint_file *file = malloc(sizeof(*file));
    size_t lines = diag ? diag->count : 0;
    cn_err err;

    if (!file)
        return CN_ENOMEM;
    err = find_newest(store, total_limit, frame_limit, diag, file);
    if (err) {
        free(file);
        return err;
    }
    cn_encoded_numbers(file->header, numbers);
    if (diag && diag->count > lines)
        cn_diag_add(diag, "%s is used instead, state %" PRIu64,
                    cn_checkpoint_slots[numbers->counter % 2], numbers->counter);
    *opened = file;
    return CN_OK;
}

cn_err cn_checkpoint_open_saved(struct cn_store *store, size_t total_limit, size_t frame_limit,
                                uint64_t counter, struct cn_checkpoint_file **opened,
                                struct cn_checkpoint *numbers)
{
    struct cn_checkpoint_file *file = malloc(sizeof(*file));
    cn_err err = file ? CN_OK : CN_ENOMEM;

    if (!err)
        err = inspect_slot(store, (int)(counter % 2), total_limit, frame_limit, NULL, file);
    if (!err && cn_get_u64(file->header + 16) != counter) {
        end_reading(&file->source);
        err = CN_ENOTFOUND;
    }
    if (err) {
        free(file);
        return err;
    }
    cn_encoded_numbers(file->header, numbers);
    *opened = file;
    return CN_OK;
}

// Reads bfloat16 values.
static cn_err read_halves(const struct cn_encoded *source, uint64_t at, size_t count, float *values)
{
    uint16_t halves[VALUES];
    const struct cn_row row = {halves, true};
    cn_err err = CN_OK;

    for (size_t done = 0, some; !err && done < count; done += some) {
        some = count - done < VALUES ? count - done : VALUES;
        err = cn_encoded_get(source, at + done * sizeof(*halves), halves, some * sizeof(*halves));
        if (!err)
            cn_row_read(&row, 0, some, values + done);
    }
    return err;
}

cn_err cn_checkpoint_read_values(const struct cn_checkpoint_file *file,
                                 enum cn_checkpoint_part array, size_t first, size_t count,
                                 float *values)
{
    const uint8_t *header = file->header;
    bool halves = header[300] != 0 && HALVES >> array & 1;
    uint64_t at = cn_encoded_header_size(header);

    assert(array < CN_PART_FRAME);
    if (!has_part(header, array)) {
        memset(values, 0, count * sizeof(*values));
        return CN_OK;
    }
    for (int part = 0; part < (int)array; part++)
        at += part_size(header, (enum cn_checkpoint_part)part);
    if (halves)
        return read_halves(&file->source, at + first * sizeof(uint16_t), count, values);
    return cn_encoded_get(&file->source, at + first * sizeof(float), values,
                          count * sizeof(*values));
}

bool cn_checkpoint_has(const struct cn_checkpoint_file *file, enum cn_checkpoint_part part)
{
    return has_part(file->header, part);
}

cn_err cn_checkpoint_read(const struct cn_checkpoint_file *file, void *const places[CN_PART_COUNT])
{
    struct target target = {.taker = NULL};

    memcpy(target.places, places, sizeof(target.places));
    return read_parts(&file->source, file->header, &target);
}

cn_err cn_checkpoint_read_to(const struct cn_checkpoint_file *file,
                             const struct cn_checkpoint_target *taker)
{
    const struct target target = {.taker = taker};

    assert(!(taker->arrays & HALVES));
    return read_parts(&file->source, file->header, &target);
}

void cn_checkpoint_close(struct cn_checkpoint_file *file)
{
    if (!file)
        return;
    end_reading(&file->source);
    free(file);
}

cn_err cn_checkpoint_load(struct cn_store *store, size_t total_limit, size_t frame_limit,
                          struct cn_diag *diag, struct cn_checkpoint *checkpoint)
{
    struct cn_checkpoint_file *file;
    cn_err err = cn_checkpoint_open(store, total_limit, frame_limit, diag, &file, checkpoint);

    if (err)
        return err;
    err = take_all(&file->source, file->header, checkpoint);
    cn_checkpoint_close(file);
    return err;
}
