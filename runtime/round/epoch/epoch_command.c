#include "runtime/round/epoch/epoch_command.h"

#include <string.h>

#include "runtime/base/bytes.h"

// Offsets of the fields. Each kind uses some of them; the others are zeros.
enum {
    KIND_AT = 0,       // u8
    DELTA_AT = 1,      // u8, BASE
    MODE_AT = 2,       // u8, BEGIN: how an update is encoded
    VALUE_BITS_AT = 3, // u8, BEGIN
    NUMBER_AT = 4,     // u32: a version, a round, an epoch, a wire format, or a verdict
    SIZE_AT = 8,       // u64: bytes of a version, a variate, a bucket; or the round of an update
    DIGEST_AT = 16,    // digest of the version, or of the update that counts
    STEPS_AT = 48,     // u32, BEGIN
    FORGET_AT = 48,    // u32, BASE
    DENSITY_AT = 56,   // float64, BEGIN
    SPARE_AT = 64,     // float64, ABANDON and DECIDE
};

_Static_assert(DIGEST_AT + CN_DIGEST_SIZE == STEPS_AT, "a digest fits");

// Writes which update of the group counts.
static void put_decision(const struct cn_decision *decision, uint8_t *bytes)
{
    cn_put_u64(bytes + SIZE_AT, decision->round);
    memcpy(bytes + DIGEST_AT, decision->digest, CN_DIGEST_SIZE);
}

static cn_err get_decision(const uint8_t *bytes, struct cn_decision *decision)
{
    uint64_t round = cn_get_u64(bytes + SIZE_AT);

    if (round > UINT32_MAX)
        return CN_EFORMAT;
    decision->round = (uint32_t)round;
    memcpy(decision->digest, bytes + DIGEST_AT, CN_DIGEST_SIZE);
    return CN_OK;
}

void cn_epoch_command_put(const struct cn_epoch_command *command,
                          uint8_t bytes[CN_EPOCH_COMMAND_SIZE])
{
    memset(bytes, 0, CN_EPOCH_COMMAND_SIZE);
    bytes[KIND_AT] = (uint8_t)command->kind;
    switch (command->kind) {
    case CN_EPOCH_BASE:
        bytes[DELTA_AT] = command->base.delta;
        cn_put_u32(bytes + NUMBER_AT, command->base.number);
        cn_put_u64(bytes + SIZE_AT, command->base.size);
        memcpy(bytes + DIGEST_AT, command->base.digest, CN_DIGEST_SIZE);
        cn_put_u32(bytes + FORGET_AT, command->base.forget);
        return;
    case CN_EPOCH_CONTROL:
        cn_put_u32(bytes + NUMBER_AT, command->control.epoch);
        cn_put_u64(bytes + SIZE_AT, command->control.size);
        return;
    case CN_EPOCH_BEGIN:
        bytes[MODE_AT] = (uint8_t)command->begin.rule.mode;
        bytes[VALUE_BITS_AT] = (uint8_t)command->begin.rule.value_bits;
        cn_put_u32(bytes + NUMBER_AT, command->begin.round);
        put_decision(&command->begin.newest, bytes);
        cn_put_u32(bytes + STEPS_AT, command->begin.steps);
        memcpy(bytes + DENSITY_AT, &command->begin.rule.density, 8);
        return;
    case CN_EPOCH_STEPS:
        cn_put_u32(bytes + NUMBER_AT, (uint32_t)command->steps.wire);
        cn_put_u64(bytes + SIZE_AT, command->steps.bucket);
        return;
    case CN_EPOCH_ABANDON:
    case CN_EPOCH_DECIDE:
        cn_put_u32(bytes + NUMBER_AT, (uint32_t)command->decision.verdict);
        put_decision(&command->decision, bytes);
        memcpy(bytes + SPARE_AT, &command->decision.spare, 8);
        return;
    case CN_EPOCH_IDLE:
    case CN_EPOCH_END:
    case CN_EPOCH_REFORM:
    case CN_EPOCH_RESET:
    case CN_EPOCH_COPY:
        return;
    }
}

static cn_err get_begin(const uint8_t *bytes, struct cn_round_order *order)
{
    order->rule.mode = bytes[MODE_AT];
    order->rule.value_bits = bytes[VALUE_BITS_AT];
    order->round = cn_get_u32(bytes + NUMBER_AT);
    order->steps = cn_get_u32(bytes + STEPS_AT);
    memcpy(&order->rule.density, bytes + DENSITY_AT, 8);
    return get_decision(bytes, &order->newest);
}

static cn_err get_verdict(const uint8_t *bytes, struct cn_decision *decision)
{
    uint32_t verdict = cn_get_u32(bytes + NUMBER_AT);

    if (verdict > CN_VERDICT_LATE)
        return CN_EFORMAT;
    decision->verdict = (enum cn_verdict)verdict;
    memcpy(&decision->spare, bytes + SPARE_AT, 8);
    return get_decision(bytes, decision);
}

cn_err cn_epoch_command_get(const uint8_t bytes[CN_EPOCH_COMMAND_SIZE],
                            struct cn_epoch_command *command)
{
    uint32_t number = cn_get_u32(bytes + NUMBER_AT);

    if (bytes[KIND_AT] > CN_EPOCH_COPY)
        return CN_EFORMAT;
    *command = (struct cn_epoch_command){.kind = (enum cn_epoch_command_kind)bytes[KIND_AT]};
    switch (command->kind) {
    case CN_EPOCH_BASE:
        command->base.delta = bytes[DELTA_AT] != 0;
        command->base.number = number;
        command->base.size = cn_get_u64(bytes + SIZE_AT);
        memcpy(command->base.digest, bytes + DIGEST_AT, CN_DIGEST_SIZE);
        command->base.forget = cn_get_u32(bytes + FORGET_AT);
        return CN_OK;
    case CN_EPOCH_CONTROL:
        command->control.epoch = number;
        command->control.size = cn_get_u64(bytes + SIZE_AT);
        return CN_OK;
    case CN_EPOCH_BEGIN:
        return get_begin(bytes, &command->begin);
    case CN_EPOCH_STEPS:
        if (number > CN_BFLOAT16)
            return CN_EFORMAT;
        command->steps.wire = (enum cn_number)number;
        command->steps.bucket = cn_get_u64(bytes + SIZE_AT);
        return CN_OK;
    case CN_EPOCH_ABANDON:
    case CN_EPOCH_DECIDE:
        return get_verdict(bytes, &command->decision);
    case CN_EPOCH_IDLE:
    case CN_EPOCH_END:
    case CN_EPOCH_REFORM:
    case CN_EPOCH_RESET:
    case CN_EPOCH_COPY:
        return CN_OK;
    }
    return CN_EFORMAT;
}
