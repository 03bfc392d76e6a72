#include "runtime/update/update_frame.h"

#include <inttypes.h>
#include <string.h>

#define VALUE_BITS_MAX 8
#define FLAG_SNAPSHOT 1u
#define FLAG_LEAVE 2u
#define FLAG_ROUNDED 4u
#define FLAG_STAY 8u
#define FLAG_SMALL 16u
#define FLAGS (FLAG_SNAPSHOT | FLAG_LEAVE | FLAG_ROUNDED | FLAG_STAY | FLAG_SMALL)

// The last byte is the digit of the format's version. A frame has the lowest one that knows its
// flags, so that older programs read all that they can.
static const uint8_t magic[8] = "cairnup2";
static const uint8_t magic_stay[8] = "cairnup3";
static const uint8_t magic_small[8] = "cairnup4";

static const uint8_t *magic_of(unsigned flags)
{
    return flags & FLAG_SMALL ? magic_small : flags & FLAG_STAY ? magic_stay : magic;
}

const char *cn_update_mode_name(enum cn_update_mode mode)
{
    static const char *const names[] = {
        [CN_UPDATE_RAW32] = "raw32", [CN_UPDATE_Q8] = "q8",     [CN_UPDATE_TOPK] = "topk",
        [CN_UPDATE_BF16] = "bf16",   [CN_UPDATE_Q4] = "q4",     [CN_UPDATE_SIGN] = "sign",
        [CN_UPDATE_AUTO] = "auto",   [CN_UPDATE_SKIP] = "skip",
    };

    return names[mode];
}

// Density and value bits are 0 in the frame of a dense rule, whatever the profile says.
bool cn_update_rule_is_valid(const struct cn_update_rule *rule)
{
    if (rule->mode == CN_UPDATE_TOPK)
        return rule->density > 0 && rule->density <= 1 && rule->value_bits <= VALUE_BITS_MAX;
    return (unsigned)rule->mode <= CN_UPDATE_SIGN || rule->mode == CN_UPDATE_SKIP;
}

// A snapshot is q8, has all tensors, and is never marked rounded: its own encoding rounds. It has
// no signs.
static bool flags_are_valid(const struct cn_update_header *header)
{
    return !header->snapshot || (header->rule.mode == CN_UPDATE_Q8 && !header->leave_statistics &&
                                 !header->rounded && !header->small_signs);
}

cn_err cn_update_frame_put(const struct cn_update_header *header, size_t total,
                           uint8_t bytes[CN_UPDATE_HEADER_SIZE], size_t *size)
{
    bool is_topk = header->rule.mode == CN_UPDATE_TOPK;
    size_t group_size = strnlen(header->group, CN_NAME_SIZE);

    if (!cn_update_rule_is_valid(&header->rule) || !flags_are_valid(header) ||
        group_size == CN_NAME_SIZE || (group_size && !cn_name_valid(header->group)))
        return CN_EINVAL;
    if (header->weight < 1 || header->weight > CN_UPDATE_WEIGHT_MAX)
        return CN_ERANGE;
    bytes[8] = (uint8_t)header->rule.mode;
    bytes[9] = is_topk ? (uint8_t)header->rule.value_bits : 0;
    bytes[10] = (uint8_t)group_size;
    bytes[11] = (uint8_t)(header->snapshot * FLAG_SNAPSHOT | header->leave_statistics * FLAG_LEAVE |
                          header->rounded * FLAG_ROUNDED | header->leave_staying * FLAG_STAY |
                          header->small_signs * FLAG_SMALL);
    memcpy(bytes, magic_of(bytes[11]), sizeof(magic));
    cn_put_u32(bytes + 12, header->round);
    cn_put_u64(bytes + 16, header->run);
    cn_put_u64(bytes + 24, header->weight);
    cn_put_u64(bytes + 32, total);
    cn_put_f64(bytes + 40, is_topk ? header->rule.density : 0);
    memcpy(bytes + 48, header->base, CN_DIGEST_SIZE);
    memcpy(bytes + CN_UPDATE_FIXED_SIZE, header->group, group_size);
    *size = CN_UPDATE_FIXED_SIZE + group_size;
    return CN_OK;
}

static cn_err get_rule(const uint8_t *bytes, struct cn_diag *diag, struct cn_update_rule *rule)
{
    static const uint8_t zeros[8];

    if (bytes[8] > CN_UPDATE_SKIP || bytes[8] == CN_UPDATE_AUTO) {
        cn_diag_add(diag, "update: mode %u, expected 0 to 5 or 7", bytes[8]);
        return CN_EFORMAT;
    }
    *rule = (struct cn_update_rule){.mode = (enum cn_update_mode)bytes[8],
                                    .value_bits = bytes[9],
                                    .density = cn_get_f64(bytes + 40)};
    if (rule->mode == CN_UPDATE_TOPK ? cn_update_rule_is_valid(rule)
                                     : bytes[9] == 0 && memcmp(bytes + 40, zeros, 8) == 0)
        return CN_OK;
    cn_diag_add(diag,
                "update: density %g with %u value bits, expected (0, 1] with 0 to 8 for top-k, "
                "else zeros",
                rule->density, rule->value_bits);
    return CN_ERANGE;
}

static cn_err get_group(const uint8_t *bytes, size_t size, struct cn_diag *diag,
                        struct cn_update_header *header)
{
    size_t group_size = bytes[10];

    if (group_size >= CN_NAME_SIZE || size - CN_UPDATE_FIXED_SIZE < group_size) {
        cn_diag_add(diag, "update: a group's name of %zu bytes, expected at most 63", group_size);
        return CN_EFORMAT;
    }
    memcpy(header->group, bytes + CN_UPDATE_FIXED_SIZE, group_size);
    if (group_size == 0 || (strlen(header->group) == group_size && cn_name_valid(header->group)))
        return CN_OK;
    cn_diag_add(diag, "update: the group's name is not a valid name");
    return CN_EFORMAT;
}

// Says whether the magic is the one that goes with the flags.
static bool starts_well(const uint8_t *bytes, size_t size)
{
    return size >= CN_UPDATE_FIXED_SIZE && !(bytes[11] & ~FLAGS) &&
           memcmp(bytes, magic_of(bytes[11]), sizeof(magic)) == 0;
}

cn_err cn_update_frame_get(const uint8_t *bytes, size_t size, size_t total, struct cn_diag *diag,
                           struct cn_update_header *header, size_t *used)
{
    cn_err err;

    *header = (struct cn_update_header){0};
    if (!starts_well(bytes, size)) {
        cn_diag_add(diag, "update: %zu bytes that do not start like an update of format 2 to 4",
                    size);
        return CN_EFORMAT;
    }
    err = get_rule(bytes, diag, &header->rule);
    if (err)
        return err;
    err = get_group(bytes, size, diag, header);
    if (err)
        return err;
    header->snapshot = bytes[11] & FLAG_SNAPSHOT;
    header->leave_statistics = bytes[11] & FLAG_LEAVE;
    header->rounded = bytes[11] & FLAG_ROUNDED;
    header->leave_staying = bytes[11] & FLAG_STAY;
    header->small_signs = bytes[11] & FLAG_SMALL;
    if (!flags_are_valid(header)) {
        cn_diag_add(diag, "update: a snapshot that is not q8 of all tensors");
        return CN_EFORMAT;
    }
    header->round = cn_get_u32(bytes + 12);
    header->run = cn_get_u64(bytes + 16);
    header->weight = cn_get_u64(bytes + 24);
    memcpy(header->base, bytes + 48, CN_DIGEST_SIZE);
    if (header->weight < 1 || header->weight > CN_UPDATE_WEIGHT_MAX) {
        cn_diag_add(diag, "update: a weight of %" PRIu64 " samples, expected 1 to %u",
                    header->weight, CN_UPDATE_WEIGHT_MAX);
        return CN_ERANGE;
    }
    if (cn_get_u64(bytes + 32) != total) {
        cn_diag_add(diag, "update: %" PRIu64 " values, expected %zu, those of the model",
                    cn_get_u64(bytes + 32), total);
        return CN_ERANGE;
    }
    *used = CN_UPDATE_FIXED_SIZE + bytes[10];
    return CN_OK;
}
