// The commands of rank 0: their bytes, which must not change, and which commands are refused.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "runtime/base/bytes.h"
#include "runtime/round/epoch/epoch_command.h"

// Bytes of a command with the digest 01 01 ... at its place.
struct wire {
    uint8_t bytes[CN_EPOCH_COMMAND_SIZE];
};

static struct wire wire_of(uint8_t kind, uint32_t number, uint64_t size, bool digest)
{
    struct wire wire = {{kind}};

    cn_put_u32(wire.bytes + 4, number);
    cn_put_u64(wire.bytes + 8, size);
    if (digest)
        memset(wire.bytes + 16, 1, CN_DIGEST_SIZE);
    return wire;
}

// The command travels as these bytes, and comes back as they were.
static void expect(const struct cn_epoch_command *command, const struct wire *wire)
{
    uint8_t bytes[CN_EPOCH_COMMAND_SIZE], again[CN_EPOCH_COMMAND_SIZE];
    struct cn_epoch_command taken;

    cn_epoch_command_put(command, bytes);
    assert_memory_equal(bytes, wire->bytes, sizeof(bytes));
    assert_int_equal(cn_epoch_command_get(bytes, &taken), CN_OK);
    assert_int_equal(taken.kind, command->kind);
    cn_epoch_command_put(&taken, again);
    assert_memory_equal(again, bytes, sizeof(bytes));
}

static void a_version_travels_with_its_size_and_digest(void **state)
{
    struct cn_epoch_command command = {
        .kind = CN_EPOCH_BASE,
        .base = {.number = 7, .delta = true, .size = 1ull << 33, .forget = 5}};
    struct wire wire = wire_of(1, 7, 1ull << 33, true);

    (void)state;
    memset(command.base.digest, 1, CN_DIGEST_SIZE);
    wire.bytes[1] = 1;
    cn_put_u32(wire.bytes + 48, 5);
    expect(&command, &wire);
}

static void an_order_travels_with_the_update_that_counts(void **state)
{
    struct cn_epoch_command command = {
        .kind = CN_EPOCH_BEGIN,
        .begin = {.round = 3,
                  .steps = 40,
                  .rule = {.mode = CN_UPDATE_Q8, .value_bits = 8, .density = 0.5},
                  .newest = {.round = 2}}};
    struct wire wire = wire_of(2, 3, 2, true);
    double density = 0.5;

    (void)state;
    memset(command.begin.newest.digest, 1, CN_DIGEST_SIZE);
    wire.bytes[2] = (uint8_t)CN_UPDATE_Q8;
    wire.bytes[3] = 8;
    cn_put_u32(wire.bytes + 48, 40);
    memcpy(wire.bytes + 56, &density, 8);
    expect(&command, &wire);
}

static void steps_travel_with_bucket_and_number_format(void **state)
{
    struct cn_epoch_command command = {.kind = CN_EPOCH_STEPS,
                                       .steps = {.bucket = 1 << 20, .wire = CN_BFLOAT16}};
    struct wire wire = wire_of(3, CN_BFLOAT16, 1 << 20, false);

    (void)state;
    expect(&command, &wire);
}

static void a_decision_travels_with_the_time_left(void **state)
{
    const enum cn_epoch_command_kind kinds[] = {CN_EPOCH_ABANDON, CN_EPOCH_DECIDE};
    double spare = 0.25;

    (void)state;
    for (uint8_t i = 0; i < 2; i++) {
        struct cn_epoch_command command = {
            .kind = kinds[i], .decision = {.verdict = CN_VERDICT_LATE, .round = 9, .spare = spare}};
        struct wire wire = wire_of((uint8_t)(4 + i), CN_VERDICT_LATE, 9, true);

        memset(command.decision.digest, 1, CN_DIGEST_SIZE);
        memcpy(wire.bytes + 64, &spare, 8);
        expect(&command, &wire);
    }
}

static void a_control_variate_travels_with_its_epoch_and_size(void **state)
{
    struct cn_epoch_command command = {.kind = CN_EPOCH_CONTROL,
                                       .control = {.epoch = 7, .size = 1ull << 33}};
    struct wire wire = wire_of(9, 7, 1ull << 33, false);

    (void)state;
    expect(&command, &wire);
}

static void other_commands_are_their_kind(void **state)
{
    const enum cn_epoch_command_kind kinds[] = {CN_EPOCH_IDLE, CN_EPOCH_END, CN_EPOCH_REFORM,
                                                CN_EPOCH_RESET, CN_EPOCH_COPY};
    const uint8_t bytes[] = {0, 6, 7, 8, 10};

    (void)state;
    for (size_t i = 0; i < sizeof(bytes); i++) {
        struct cn_epoch_command command = {.kind = kinds[i]};
        struct wire wire = wire_of(bytes[i], 0, 0, false);

        expect(&command, &wire);
    }
}

static void what_no_leader_sends_is_refused(void **state)
{
    const struct wire wrong[] = {
        wire_of(11, 0, 0, false),                      // unknown kind
        wire_of(255, 0, 0, false),                     //
        wire_of(3, CN_BFLOAT16 + 1, 1 << 20, false),   // unknown number format
        wire_of(5, CN_VERDICT_LATE + 1, 9, true),      // unknown verdict
        wire_of(4, CN_VERDICT_LATE, 1ull << 32, true), // a round of more than 32 bits
        wire_of(2, 3, 1ull << 32, true),               // likewise
    };
    struct cn_epoch_command command;

    (void)state;
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
        assert_int_equal(cn_epoch_command_get(wrong[i].bytes, &command), CN_EFORMAT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_version_travels_with_its_size_and_digest),
        cmocka_unit_test(an_order_travels_with_the_update_that_counts),
        cmocka_unit_test(steps_travel_with_bucket_and_number_format),
        cmocka_unit_test(a_decision_travels_with_the_time_left),
        cmocka_unit_test(a_control_variate_travels_with_its_epoch_and_size),
        cmocka_unit_test(other_commands_are_their_kind),
        cmocka_unit_test(what_no_leader_sends_is_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
