// checkpoint_read.c - decodes states from memory and from the slots of a store.
#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/port/crypto.h"
#include "runtime/port/scratch.h"
#include "runtime/round/checkpoint/checkpoint_private.h"

#define SCALE_MAX 64 // one more than the largest exponent of a loss scale
#define PIECE 16384  // bytes that are hashed at a time
#define VALUES (PIECE / sizeof(float))

// Encoded bytes: in memory, or in a file that is read as needed.
struct source {
    const uint8_t *bytes;
    struct cn_store *store;
    struct cn_store_file *file;
    uint64_t size;
};

struct cn_checkpoint_file {
    struct source source;
    uint8_t header[HEADER_SIZE];
};

static cn_err source_get(const struct source *source, uint64_t from, void *to, size_t size)
{
    if (source->file)
        return source->store->ops->read(source->file, from, to, size);
    if (size)
        memcpy(to, source->bytes + from, size);
    return CN_OK;
}

static cn_err source_digest(const struct source *source, uint64_t from, uint64_t size,
                            struct cn_sha256 *sha)
{
    uint8_t piece[PIECE];
    cn_err err = CN_OK;

    while (!err && size) {
        size_t count = size < PIECE ? (size_t)size : PIECE;

        err = source_get(source, from, piece, count);
        if (!err)
            cn_sha256_add(sha, piece, count);
        from += count;
        size -= count;
    }
    return err;
}

static struct cn_loss_scale decode_scale(const uint8_t bytes[4])
{
    if (!bytes[1])
        return (struct cn_loss_scale){0};
    return (struct cn_loss_scale){ldexpf(1, bytes[1] - 1), (uint32_t)(bytes[2] | bytes[3] << 8)};
}

_Static_assert(CN_CHECKPOINT_OLDEST == 3 && CN_CHECKPOINT_VERSION == 6, "header_size knows these");

// Returns 0 for an unknown version.
static size_t header_size(const uint8_t *bytes)
{
    if (memcmp(bytes, cn_checkpoint_magic, sizeof(cn_checkpoint_magic) - 1) != 0)
        return 0;
    return bytes[7] == cn_checkpoint_magic[7] ? HEADER_SIZE
           : bytes[7] == '5'                  ? HEADER_SIZE_5
           : bytes[7] == '4'                  ? HEADER_SIZE_4
           : bytes[7] == '3'                  ? HEADER_SIZE_3
                                              : 0;
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
    if (header_size(header) < HEADER_SIZE_4)
        return;
    checkpoint->counted.round = cn_get_u32(header + 344);
    checkpoint->counted.own = cn_get_u32(header + 348) != 0;
    memcpy(checkpoint->counted.digest, header + 352, CN_DIGEST_SIZE);
    if (header_size(header) < HEADER_SIZE_5)
        return;
    checkpoint->control.epoch = cn_get_u32(header + 384);
    checkpoint->control.count = cn_get_u32(header + 388);
    checkpoint->control.version = cn_get_u32(header + 392);
    checkpoint->control.inverse = cn_get_f32(header + 396);
    if (header_size(header) < HEADER_SIZE)
        return;
    checkpoint->waiting =
        (struct cn_waiting_set){cn_get_u64(header + 400), cn_get_u32(header + 408)};
}

// Checks the name of the waiting set, which only a state of the newest version has.
static bool waiting_makes_sense(const uint8_t *bytes, uint32_t phase, uint32_t presence)
{
    uint32_t array = cn_get_u32(bytes + 408);

    if (header_size(bytes) < HEADER_SIZE)
        return true;
    return cn_get_u64(bytes + 400) != 0 && cn_get_u32(bytes + 412) == 0 && !(presence & WAITING) &&
           phase != CN_PHASE_EMPTY &&
           (phase == CN_PHASE_SEND ? array == 0
                                   : array == CN_PART_NEXT_RESIDUAL || array == CN_PART_CHANGE);
}

// Checks the phase, the arrays and the sizes, which must be within the limits and add up to `size`
// bytes.
static cn_err check_sizes(const uint8_t *bytes, uint64_t size, size_t total_limit,
                          size_t frame_limit, struct cn_diag *diag)
{
    uint32_t phase = cn_get_u32(bytes + 36);
    uint32_t presence = cn_get_u32(bytes + 68);
    uint64_t total = cn_get_u64(bytes + 216);
    uint64_t frame_size = cn_get_u64(bytes + 224);
    bool halves = bytes[300] != 0;
    const struct cn_update_rule rule = {.mode = (enum cn_update_mode)cn_get_u32(bytes + 264),
                                        .value_bits = cn_get_u32(bytes + 268),
                                        .density = cn_get_f64(bytes + 272)};
    uint32_t required;
    size_t expected;

    required = phase > CN_PHASE_SEND ? 0
                                     : cn_checkpoint_required((enum cn_phase)phase,
                                                              header_size(bytes) == HEADER_SIZE);
    if (phase > CN_PHASE_SEND || (presence & required) != required ||
        (presence & ~cn_checkpoint_phases[phase].allowed) ||
        (header_size(bytes) < HEADER_SIZE_5 && presence >> CN_PART_CONTROL) ||
        !waiting_makes_sense(bytes, phase, presence) ||
        cn_checkpoint_phases[phase].has_frame != (frame_size > 0)) {
        cn_diag_add(diag,
                    "checkpoint: phase %u with arrays 0x%x and a frame of %" PRIu64
                    " bytes is not a valid state",
                    phase, presence, frame_size);
        return CN_EFORMAT;
    }
    if (!cn_update_rule_is_valid(&rule)) {
        cn_diag_add(diag, "checkpoint: a rule that no update can have");
        return CN_EFORMAT;
    }
    if (bytes[300] > 1 || bytes[301] > SCALE_MAX || (!bytes[301] && (bytes[302] || bytes[303])) ||
        (header_size(bytes) >= HEADER_SIZE_4 && cn_get_u32(bytes + 348) > 1)) {
        cn_diag_add(diag, "checkpoint: residual %u, scale %u, expected 0 or 1, 0 to %u", bytes[300],
                    bytes[301], SCALE_MAX);
        return CN_EFORMAT;
    }
    if (total > total_limit || frame_size > frame_limit) {
        cn_diag_add(diag,
                    "checkpoint: %" PRIu64 " values and a frame of %" PRIu64
                    " bytes, expected at most %zu and %zu",
                    total, frame_size, total_limit, frame_limit);
        return CN_ERANGE;
    }
    if (cn_checkpoint_body_size(presence, (size_t)total, halves, (size_t)frame_size, &expected) ||
        expected != size - header_size(bytes) || cn_get_u64(bytes + 8) != size) {
        cn_diag_add(diag, "checkpoint: %" PRIu64 " bytes, expected another number", size);
        return CN_EFORMAT;
    }
    return CN_OK;
}

// Compares a digest. Returns CN_EDIGEST, with a line in diag, when it differs.
static cn_err check_digest(const struct source *source, uint64_t from, uint64_t size,
                           const uint8_t wanted[CN_DIGEST_SIZE], const char *whose,
                           struct cn_diag *diag)
{
    uint8_t digest[CN_DIGEST_SIZE];
    struct cn_sha256 sha;
    cn_err err;

    cn_sha256_init(&sha);
    err = source_digest(source, from, size, &sha);
    cn_sha256_finish(&sha, digest);
    if (err || memcmp(digest, wanted, CN_DIGEST_SIZE) == 0)
        return err;
    cn_diag_add(diag, "checkpoint: %s%s", whose, cn_err_text(CN_EDIGEST));
    return CN_EDIGEST;
}

// Checks all bytes but keeps only the header. Fields that an older header lacks become zeros.
static cn_err check(const struct source *source, size_t total_limit, size_t frame_limit,
                    struct cn_diag *diag, uint8_t header[HEADER_SIZE])
{
    uint64_t size = source->size, frame_size;
    uint8_t digest[CN_DIGEST_SIZE];
    cn_err err = CN_OK;

    memset(header, 0, HEADER_SIZE);
    if (size >= HEADER_SIZE_3 + CN_DIGEST_SIZE)
        err = source_get(source, 0, header, size < HEADER_SIZE ? (size_t)size : HEADER_SIZE);
    if (err)
        return err;
    if (!header_size(header) || size < header_size(header) + CN_DIGEST_SIZE) {
        cn_diag_add(diag,
                    "checkpoint: %" PRIu64 " bytes that do not start like one of version %d to %d",
                    size, CN_CHECKPOINT_OLDEST, CN_CHECKPOINT_VERSION);
        return CN_EFORMAT;
    }
    size -= CN_DIGEST_SIZE;
    err = source_get(source, size, digest, CN_DIGEST_SIZE);
    if (!err)
        err = check_digest(source, 0, size, digest, "", diag);
    if (!err)
        err = check_sizes(header, source->size, total_limit, frame_limit, diag);
    if (err || cn_get_u32(header + 36) != CN_PHASE_SEND)
        return err;
    frame_size = cn_get_u64(header + 224);
    return check_digest(source, size - frame_size, frame_size, header + 232, "the frame's ", diag);
}

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
static cn_err read_row(const struct source *source, uint64_t at, size_t count,
                       enum cn_checkpoint_part part, const struct cn_checkpoint_target *taker,
                       struct cn_sha256 *sha)
{
    float values[VALUES];
    cn_err err = CN_OK;

    for (size_t first = 0, some; !err && first < count; first += some) {
        some = count - first < VALUES ? count - first : VALUES;
        err = source_get(source, at + first * sizeof(float), values, some * sizeof(float));
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

static cn_err read_part(const struct source *source, uint64_t at, size_t size,
                        enum cn_checkpoint_part part, const struct target *target,
                        struct cn_sha256 *sha)
{
    cn_err err;

    if (target->taker && target->taker->arrays >> part & 1)
        return read_row(source, at, size / sizeof(float), part, target->taker, sha);
    if (!target->places[part])
        return source_digest(source, at, size, sha);
    err = source_get(source, at, target->places[part], size);
    if (!err)
        cn_sha256_add(sha, target->places[part], size);
    return err;
}

// Reads the parts of a source that check has accepted. Reads to its end and compares the digest,
// because a file may have changed since.
static cn_err read_once(const struct source *source, const uint8_t *header,
                        const struct target *target)
{
    uint8_t wanted[CN_DIGEST_SIZE], digest[CN_DIGEST_SIZE];
    uint64_t at = header_size(header);
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
        err = source_get(source, at, wanted, sizeof(wanted));
    cn_sha256_finish(&sha, digest);
    if (!err && memcmp(digest, wanted, sizeof(digest)) != 0)
        err = CN_EDIGEST;
    return err;
}

// Reads the parts, and once more after an error: a disk may fail once.
static cn_err read_parts(const struct source *source, const uint8_t *header,
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
static cn_err take_all(const struct source *source, const uint8_t *header,
                       struct cn_checkpoint *checkpoint)
{
    struct target target = {.taker = NULL};
    cn_err err = CN_OK;

    get_numbers(header, checkpoint);
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
    const struct source source = {.bytes = bytes, .size = size};
    uint8_t header[HEADER_SIZE];
    cn_err err = check(&source, total_limit, frame_limit, diag, header);

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

static void end_reading(struct source *source)
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
              : check(&found->source, total_limit, frame_limit, diag, found->header);
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
    get_numbers(file->header, numbers);
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
    get_numbers(file->header, numbers);
    *opened = file;
    return CN_OK;
}

// Reads bfloat16 values.
static cn_err read_halves(const struct source *source, uint64_t at, size_t count, float *values)
{
    uint16_t halves[VALUES];
    const struct cn_row row = {halves, true};
    cn_err err = CN_OK;

    for (size_t done = 0, some; !err && done < count; done += some) {
        some = count - done < VALUES ? count - done : VALUES;
        err = source_get(source, at + done * sizeof(*halves), halves, some * sizeof(*halves));
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
    uint64_t at = header_size(header);

    assert(array < CN_PART_FRAME);
    if (!has_part(header, array)) {
        memset(values, 0, count * sizeof(*values));
        return CN_OK;
    }
    for (int part = 0; part < (int)array; part++)
        at += part_size(header, (enum cn_checkpoint_part)part);
    if (halves)
        return read_halves(&file->source, at + first * sizeof(uint16_t), count, values);
    return source_get(&file->source, at + first * sizeof(float), values, count * sizeof(*values));
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
