// checkpoint_encoded.c - checks the bytes of an encoded state, and reads its header.
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "runtime/round/checkpoint/checkpoint_private.h"

#define SCALE_MAX 64 // one more than the largest exponent of a loss scale
#define PIECE 16384  // bytes that are hashed at a time

cn_err cn_encoded_get(const struct cn_encoded *encoded, uint64_t from, void *to, size_t size)
{
    if (encoded->file)
        return encoded->store->ops->read(encoded->file, from, to, size);
    if (size)
        memcpy(to, encoded->bytes + from, size);
    return CN_OK;
}

cn_err cn_encoded_digest(const struct cn_encoded *encoded, uint64_t from, uint64_t size,
                         struct cn_sha256 *sha)
{
    uint8_t piece[PIECE];
    cn_err err = CN_OK;

    while (!err && size) {
        size_t count = size < PIECE ? (size_t)size : PIECE;

        err = cn_encoded_get(encoded, from, piece, count);
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

_Static_assert(CN_CHECKPOINT_OLDEST == 3 && CN_CHECKPOINT_VERSION == 6,
               "cn_encoded_header_size knows these");

size_t cn_encoded_header_size(const uint8_t *bytes)
{
    if (memcmp(bytes, cn_checkpoint_magic, sizeof(cn_checkpoint_magic) - 1) != 0)
        return 0;
    return bytes[7] == cn_checkpoint_magic[7] ? HEADER_SIZE
           : bytes[7] == '5'                  ? HEADER_SIZE_5
           : bytes[7] == '4'                  ? HEADER_SIZE_4
           : bytes[7] == '3'                  ? HEADER_SIZE_3
                                              : 0;
}

void cn_encoded_numbers(const uint8_t *header, struct cn_checkpoint *checkpoint)
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
    if (cn_encoded_header_size(header) < HEADER_SIZE_4)
        return;
    checkpoint->counted.round = cn_get_u32(header + 344);
    checkpoint->counted.own = cn_get_u32(header + 348) != 0;
    memcpy(checkpoint->counted.digest, header + 352, CN_DIGEST_SIZE);
    if (cn_encoded_header_size(header) < HEADER_SIZE_5)
        return;
    checkpoint->control.epoch = cn_get_u32(header + 384);
    checkpoint->control.count = cn_get_u32(header + 388);
    checkpoint->control.version = cn_get_u32(header + 392);
    checkpoint->control.inverse = cn_get_f32(header + 396);
    if (cn_encoded_header_size(header) < HEADER_SIZE)
        return;
    checkpoint->waiting =
        (struct cn_waiting_set){cn_get_u64(header + 400), cn_get_u32(header + 408)};
}

// Checks the name of the waiting set, which only a state of the newest version has.
static bool waiting_makes_sense(const uint8_t *bytes, uint32_t phase, uint32_t presence)
{
    uint32_t array = cn_get_u32(bytes + 408);

    if (cn_encoded_header_size(bytes) < HEADER_SIZE)
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

    required = phase > CN_PHASE_SEND
                   ? 0
                   : cn_checkpoint_required((enum cn_phase)phase,
                                            cn_encoded_header_size(bytes) == HEADER_SIZE);
    if (phase > CN_PHASE_SEND || (presence & required) != required ||
        (presence & ~cn_checkpoint_phases[phase].allowed) ||
        (cn_encoded_header_size(bytes) < HEADER_SIZE_5 && presence >> CN_PART_CONTROL) ||
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
        (cn_encoded_header_size(bytes) >= HEADER_SIZE_4 && cn_get_u32(bytes + 348) > 1)) {
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
        expected != size - cn_encoded_header_size(bytes) || cn_get_u64(bytes + 8) != size) {
        cn_diag_add(diag, "checkpoint: %" PRIu64 " bytes, expected another number", size);
        return CN_EFORMAT;
    }
    return CN_OK;
}

// Compares a digest. Returns CN_EDIGEST, with a line in diag, when it differs.
static cn_err check_digest(const struct cn_encoded *encoded, uint64_t from, uint64_t size,
                           const uint8_t wanted[CN_DIGEST_SIZE], const char *whose,
                           struct cn_diag *diag)
{
    uint8_t digest[CN_DIGEST_SIZE];
    struct cn_sha256 sha;
    cn_err err;

    cn_sha256_init(&sha);
    err = cn_encoded_digest(encoded, from, size, &sha);
    cn_sha256_finish(&sha, digest);
    if (err || memcmp(digest, wanted, CN_DIGEST_SIZE) == 0)
        return err;
    cn_diag_add(diag, "checkpoint: %s%s", whose, cn_err_text(CN_EDIGEST));
    return CN_EDIGEST;
}

cn_err cn_encoded_check(const struct cn_encoded *encoded, size_t total_limit, size_t frame_limit,
                        struct cn_diag *diag, uint8_t header[HEADER_SIZE])
{
    uint64_t size = encoded->size, frame_size;
    uint8_t digest[CN_DIGEST_SIZE];
    cn_err err = CN_OK;

    memset(header, 0, HEADER_SIZE);
    if (size >= HEADER_SIZE_3 + CN_DIGEST_SIZE)
        err = cn_encoded_get(encoded, 0, header, size < HEADER_SIZE ? (size_t)size : HEADER_SIZE);
    if (err)
        return err;
    if (!cn_encoded_header_size(header) || size < cn_encoded_header_size(header) + CN_DIGEST_SIZE) {
        cn_diag_add(diag,
                    "checkpoint: %" PRIu64 " bytes that do not start like one of version %d to %d",
                    size, CN_CHECKPOINT_OLDEST, CN_CHECKPOINT_VERSION);
        return CN_EFORMAT;
    }
    size -= CN_DIGEST_SIZE;
    err = cn_encoded_get(encoded, size, digest, CN_DIGEST_SIZE);
    if (!err)
        err = check_digest(encoded, 0, size, digest, "", diag);
    if (!err)
        err = check_sizes(header, encoded->size, total_limit, frame_limit, diag);
    if (err || cn_get_u32(header + 36) != CN_PHASE_SEND)
        return err;
    frame_size = cn_get_u64(header + 224);
    return check_digest(encoded, size - frame_size, frame_size, header + 232, "the frame's ", diag);
}
