#include "runtime/group/membership_wire.h"

#include <string.h>

// Offsets, DESIGN.md.
enum {
    RELEASE_AT = 2,
    EPOCH_AT = 4,
    MEMBERS_AT = 12,
    HEAD_SIZE = 16,

    JOIN_BOOT_AT = 16,
    JOIN_STAY_AT = 24,
    JOIN_PATIENCE_AT = 28,
    JOIN_LINEAGE_AT = 32,
    JOIN_RUN_AT = 36,
    JOIN_ROUND_AT = 44,
    JOIN_PHASE_AT = 48,
    JOIN_STEP_AT = 52,
    JOIN_JOB_AT = 56,
    JOIN_FLAGS_AT = JOIN_JOB_AT + CN_DIGEST_SIZE,
    JOIN_SAMPLES_AT = JOIN_FLAGS_AT + 4,
    JOIN_COUNTED_ROUND_AT = JOIN_SAMPLES_AT + 8,
    JOIN_COUNTED_AT = JOIN_COUNTED_ROUND_AT + 4,
    JOIN_FRAME_AT = JOIN_COUNTED_AT + CN_TAG_DIGEST_SIZE,
    JOIN_KEYS_AT = JOIN_FRAME_AT + CN_TAG_DIGEST_SIZE,
    JOIN_SIZE = JOIN_KEYS_AT + 8,

    READY_BOOT_AT = 16,
    READY_STAY_AT = 24,
    READY_SIZE = 28,

    BUSY_SINCE_AT = 16,
    BUSY_JOB_AT = 20,
    BUSY_SIZE = BUSY_JOB_AT + CN_DIGEST_SIZE,

    COMMIT_SOURCE_AT = 16,
    COMMIT_STAYS_AT = 20,
    STAY_SIZE = 12,

    HEARTBEAT_FLAGS_AT = 16,
    HEARTBEAT_KEYS_AT = 20,
    HEARTBEAT_SIZE = 28,

    SUSPECT_ACCUSED_AT = 16,
    SUSPECT_SIZE = 20,
};

#define WANTS_SIGN 1u // flag of a HEARTBEAT
#define UNABLE 1u     // flags of a JOIN
#define COUNTED_OWN 2u

_Static_assert(COMMIT_STAYS_AT + STAY_SIZE * CN_GROUP_MAX <= CN_PEER_MESSAGE_MAX, "one message");

_Static_assert(CAIRN_MAJOR < 16 && CAIRN_MINOR < 64 && CAIRN_PATCH < 64, "a release has 16 bits");

uint16_t cn_membership_release(void)
{
    return CAIRN_MAJOR << 12 | CAIRN_MINOR << 6 | CAIRN_PATCH;
}

static uint32_t count_members(uint32_t members)
{
    return (uint32_t)__builtin_popcount(members);
}

static size_t encode_join(const struct cn_membership_message *from, uint8_t *to)
{
    cn_put_u64(to + JOIN_BOOT_AT, from->stay.boot_id);
    cn_put_u32(to + JOIN_STAY_AT, from->stay.number);
    cn_put_u32(to + JOIN_PATIENCE_AT, from->patience_ms);
    cn_put_u32(to + JOIN_LINEAGE_AT, from->tag.lineage);
    cn_put_u64(to + JOIN_RUN_AT, from->tag.run);
    cn_put_u32(to + JOIN_ROUND_AT, from->tag.round);
    cn_put_u32(to + JOIN_PHASE_AT, from->tag.phase);
    cn_put_u32(to + JOIN_STEP_AT, from->tag.step);
    memcpy(to + JOIN_JOB_AT, from->job, CN_DIGEST_SIZE);
    cn_put_u32(to + JOIN_FLAGS_AT,
               (from->unable ? UNABLE : 0) | (from->tag.counted_own ? COUNTED_OWN : 0));
    cn_put_u64(to + JOIN_SAMPLES_AT, from->tag.samples);
    cn_put_u32(to + JOIN_COUNTED_ROUND_AT, from->tag.counted_round);
    memcpy(to + JOIN_COUNTED_AT, from->tag.counted, CN_TAG_DIGEST_SIZE);
    memcpy(to + JOIN_FRAME_AT, from->tag.frame, CN_TAG_DIGEST_SIZE);
    cn_put_u64(to + JOIN_KEYS_AT, from->key_epoch);
    return JOIN_SIZE;
}

static size_t encode_commit(const struct cn_membership_message *from, uint8_t *to)
{
    uint32_t size = count_members(from->members);
    uint8_t *at = to + COMMIT_STAYS_AT;

    cn_put_u32(to + COMMIT_SOURCE_AT, from->source);
    for (uint32_t rank = 0; rank < size; rank++, at += STAY_SIZE) {
        cn_put_u64(at, from->stays[rank].boot_id);
        cn_put_u32(at + 8, from->stays[rank].number);
    }
    return (size_t)(at - to);
}

size_t cn_membership_encode(const struct cn_membership_message *from, uint8_t *message)
{
    message[0] = (uint8_t)from->type;
    message[1] = CN_MEMBERSHIP_PROTOCOL;
    cn_put_u16(message + RELEASE_AT, cn_membership_release());
    cn_put_u64(message + EPOCH_AT, from->epoch);
    cn_put_u32(message + MEMBERS_AT, from->members);
    if (from->type == CN_MEMBERSHIP_JOIN)
        return encode_join(from, message);
    if (from->type == CN_MEMBERSHIP_COMMIT || from->type == CN_MEMBERSHIP_PREPARE)
        return encode_commit(from, message);
    if (from->type == CN_MEMBERSHIP_READY || from->type == CN_MEMBERSHIP_BYE) {
        cn_put_u64(message + READY_BOOT_AT, from->stay.boot_id);
        cn_put_u32(message + READY_STAY_AT, from->stay.number);
        return READY_SIZE;
    }
    if (from->type == CN_MEMBERSHIP_HEARTBEAT) {
        cn_put_u32(message + HEARTBEAT_FLAGS_AT, from->wants_sign ? WANTS_SIGN : 0);
        cn_put_u64(message + HEARTBEAT_KEYS_AT, from->key_epoch);
        return HEARTBEAT_SIZE;
    }
    if (from->type == CN_MEMBERSHIP_SUSPECT) {
        cn_put_u32(message + SUSPECT_ACCUSED_AT, from->accused);
        return SUSPECT_SIZE;
    }
    cn_put_u32(message + BUSY_SINCE_AT, from->since_ms);
    memcpy(message + BUSY_JOB_AT, from->job, CN_DIGEST_SIZE);
    return BUSY_SIZE;
}

static cn_err decode_join(const uint8_t *from, size_t size, struct cn_membership_message *to)
{
    if (size != JOIN_SIZE || cn_get_u32(from + JOIN_FLAGS_AT) > (UNABLE | COUNTED_OWN))
        return CN_EFORMAT;
    to->unable = (cn_get_u32(from + JOIN_FLAGS_AT) & UNABLE) != 0;
    to->stay.boot_id = cn_get_u64(from + JOIN_BOOT_AT);
    to->stay.number = cn_get_u32(from + JOIN_STAY_AT);
    to->patience_ms = cn_get_u32(from + JOIN_PATIENCE_AT);
    to->tag.lineage = cn_get_u32(from + JOIN_LINEAGE_AT);
    to->tag.run = cn_get_u64(from + JOIN_RUN_AT);
    to->tag.round = cn_get_u32(from + JOIN_ROUND_AT);
    to->tag.phase = cn_get_u32(from + JOIN_PHASE_AT);
    to->tag.step = cn_get_u32(from + JOIN_STEP_AT);
    to->tag.samples = cn_get_u64(from + JOIN_SAMPLES_AT);
    to->tag.counted_round = cn_get_u32(from + JOIN_COUNTED_ROUND_AT);
    to->tag.counted_own = (cn_get_u32(from + JOIN_FLAGS_AT) & COUNTED_OWN) != 0;
    memcpy(to->tag.counted, from + JOIN_COUNTED_AT, CN_TAG_DIGEST_SIZE);
    memcpy(to->tag.frame, from + JOIN_FRAME_AT, CN_TAG_DIGEST_SIZE);
    to->key_epoch = cn_get_u64(from + JOIN_KEYS_AT);
    memcpy(to->job, from + JOIN_JOB_AT, CN_DIGEST_SIZE);
    return CN_OK;
}

static cn_err decode_busy(const uint8_t *from, size_t size, struct cn_membership_message *to)
{
    if (size != BUSY_SIZE)
        return CN_EFORMAT;
    to->since_ms = cn_get_u32(from + BUSY_SINCE_AT);
    memcpy(to->job, from + BUSY_JOB_AT, CN_DIGEST_SIZE);
    return CN_OK;
}

static cn_err decode_commit(const uint8_t *from, size_t size, struct cn_membership_message *to)
{
    uint32_t members = count_members(to->members);

    if (members == 0 || size != COMMIT_STAYS_AT + (size_t)members * STAY_SIZE)
        return CN_EFORMAT;
    to->source = cn_get_u32(from + COMMIT_SOURCE_AT);
    if (to->source >= members)
        return CN_EFORMAT;
    for (uint32_t rank = 0; rank < members; rank++) {
        const uint8_t *at = from + COMMIT_STAYS_AT + (size_t)rank * STAY_SIZE;

        to->stays[rank] = (struct cn_stay){cn_get_u64(at), cn_get_u32(at + 8)};
    }
    return CN_OK;
}

static cn_err decode_heartbeat(const uint8_t *from, size_t size, struct cn_membership_message *to)
{
    if (size != HEARTBEAT_SIZE || cn_get_u32(from + HEARTBEAT_FLAGS_AT) > WANTS_SIGN)
        return CN_EFORMAT;
    to->wants_sign = cn_get_u32(from + HEARTBEAT_FLAGS_AT) != 0;
    to->key_epoch = cn_get_u64(from + HEARTBEAT_KEYS_AT);
    return CN_OK;
}

static cn_err decode_suspect(const uint8_t *from, size_t size, struct cn_membership_message *to)
{
    if (size != SUSPECT_SIZE)
        return CN_EFORMAT;
    to->accused = cn_get_u32(from + SUSPECT_ACCUSED_AT);
    return to->accused < CN_GROUP_MAX && to->members >> to->accused & 1 ? CN_OK : CN_EFORMAT;
}

static cn_err decode_ready(const uint8_t *from, size_t size, struct cn_membership_message *to)
{
    if (size != READY_SIZE)
        return CN_EFORMAT;
    to->stay.boot_id = cn_get_u64(from + READY_BOOT_AT);
    to->stay.number = cn_get_u32(from + READY_STAY_AT);
    return CN_OK;
}

cn_err cn_membership_decode(const uint8_t *message, size_t size, uint32_t count,
                            struct cn_membership_message *to)
{
    memset(to, 0, sizeof(*to));
    if (size < HEAD_SIZE)
        return CN_EFORMAT;
    to->release = cn_get_u16(message + RELEASE_AT);
    if (message[1] != CN_MEMBERSHIP_PROTOCOL)
        return CN_ENOTSUP;
    to->epoch = cn_get_u64(message + EPOCH_AT);
    to->members = cn_get_u32(message + MEMBERS_AT);
    if (count < CN_GROUP_MAX ? to->members >> count : to->members >> CN_GROUP_MAX)
        return CN_EFORMAT;
    to->type = (enum cn_membership_type)message[0];
    switch (to->type) {
    case CN_MEMBERSHIP_JOIN:
        return decode_join(message, size, to);
    case CN_MEMBERSHIP_BUSY:
        return decode_busy(message, size, to);
    case CN_MEMBERSHIP_COMMIT:
    case CN_MEMBERSHIP_PREPARE:
        return decode_commit(message, size, to);
    case CN_MEMBERSHIP_HEARTBEAT:
        return decode_heartbeat(message, size, to);
    case CN_MEMBERSHIP_SUSPECT:
        return decode_suspect(message, size, to);
    case CN_MEMBERSHIP_READY:
    case CN_MEMBERSHIP_BYE:
        return decode_ready(message, size, to);
    default:
        return CN_EFORMAT;
    }
}
