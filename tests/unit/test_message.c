// The messages: round trips, the examples of PROTOCOL.md, and what decoding refuses.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "transport/message/message.h"

static void fill_digest(uint8_t digest[CN_DIGEST_SIZE], uint8_t value)
{
    memset(digest, value, CN_DIGEST_SIZE);
}

static struct cn_register_request sample_register(void)
{
    return (struct cn_register_request){
        .protocol = {2, 2},
        .update_format = {1, 2},
        .graph_ops = {1, 1},
        .facts = {.cpu_count = 6,
                  .memory = 4ull << 30,
                  .power_mw = 15000,
                  .board_type = "orin-nano"},
    };
}

static struct cn_register_reply sample_manifest(void)
{
    struct cn_register_reply reply = {
        .protocol = 2,
        .update_format = 1,
        .graph_ops = 1,
        .chunk_size = 64,
        .window = 262144,
        .manifest =
            {
                .run = 0x0123456789abcdef,
                .lineage = 1,
                .group = "hall-2",
                .graph_size = 4711,
                .job =
                    {
                        .name = "digits",
                        .seed = 7,
                        .loss = CN_LOSS_CROSS_ENTROPY,
                        .data_set = "digits",
                        .central_set = "",
                        .scale = 0.0625,
                        .mean = 0,
                        .held_out = 0.1,
                        .batch = 32,
                        .accumulate = 1,
                        .local_steps = 20,
                        .learning_rate = 0.05,
                        .momentum = 0.9,
                        .weight_decay = 0.0001,
                        .keep_optimizer = false,
                        .up = {.mode = CN_UPDATE_TOPK, .density = 0.01, .value_bits = 4},
                        .down = {.mode = CN_UPDATE_Q8, .density = 1},
                        .rounds = 100,
                        .quorum = 2,
                        .over_select = 1.5,
                        .deadline_ms = 600000,
                        .max_norm = 10,
                        .max_weight = 1000000,
                        .patience = 5,
                        .target_accuracy = 0.97,
                        .local_steps_most = 100,
                        .warm_up = 3,
                        .stale_rounds = 3,
                        .stale_decay = 0.9,
                        .statistics = CN_STATISTICS_LOCAL,
                    },
            },
    };

    fill_digest(reply.manifest.graph, 0x11);
    return reply;
}

static struct cn_round_info sample_round(void)
{
    struct cn_round_info round = {
        .run = 0x0123456789abcdef,
        .lineage = 1,
        .state = CN_ROUND_OPEN,
        .round = 5,
        .remaining_ms = 123456,
        .invited = true,
        .version = 4,
        .version_size = 100088,
        .delta_size = 2000,
        .decided_round = 4,
        .decided_accepted = true,
    };

    fill_digest(round.version_digest, 0x22);
    fill_digest(round.parent, 0x33);
    fill_digest(round.delta_digest, 0x44);
    fill_digest(round.decided_digest, 0x55);
    return round;
}

static struct cn_declare_request sample_declare(void)
{
    struct cn_declare_request declare = {
        .run = 0x0123456789abcdef,
        .round = 5,
        .size = 3000,
        .held_out_loss = 12.5,
        .held_out_correct = 90,
        .held_out_count = 100,
        .train_loss = 0.25,
    };

    fill_digest(declare.digest, 0x66);
    fill_digest(declare.base, 0x22);
    return declare;
}

static struct cn_upload_status sample_status(void)
{
    return (struct cn_upload_status){
        .id = {1, 2, 3, 4, 5, 6, 7, 8},
        .chunk_count = 30,
        .received = 24,
        .missing = {{4, 2}, {10, 1}, {27, 3}},
        .missing_count = 3,
        .known = 30,
        .recent = {{18, 6}, {12, 3}},
        .recent_count = 2,
    };
}

static struct cn_upload_status sample_verdict(void)
{
    struct cn_upload_status status = {
        .id = {1, 2, 3, 4, 5, 6, 7, 8},
        .decided = true,
        .verdict = CN_VERDICT_LATE,
        .chunk_count = 30,
        .received = 30,
        .reason = "round 5 is over",
    };

    fill_digest(status.accepted, 0x77);
    return status;
}

static void messages_survive_a_round_trip(void **state)
{
    struct cn_register_request request = sample_register(), request_back;
    struct cn_register_reply reply = sample_manifest(), reply_back;
    struct cn_round_info round = sample_round(), round_back;
    struct cn_declare_request declare = sample_declare(), declare_back;
    struct cn_upload_status status = sample_status(), status_back;
    uint8_t bytes[CN_MESSAGE_MAX], again[CN_MESSAGE_MAX];
    size_t size, size_again;

    (void)state;
    assert_int_equal(cn_message_put_register(&request, bytes, &size), CN_OK);
    assert_int_equal(cn_message_get_register(bytes, size, &request_back), CN_OK);
    assert_memory_equal(&request, &request_back, sizeof(request));
    snprintf(request.facts.fault, sizeof(request.facts.fault), "y.npy: 6 is no class");
    assert_int_equal(cn_message_put_register(&request, again, &size_again), CN_OK);
    assert_true(size_again > size); // it is left out where there is none
    assert_int_equal(cn_message_get_register(again, size_again, &request_back), CN_OK);
    assert_memory_equal(&request, &request_back, sizeof(request));
    request.facts.inventory = (struct cn_inventory){
        "0.1.0+git1.8f2c01de", "JetPack", 64, 32, "B", "1.4.0", "rolled-back", "1.5.0"};
    request.facts.gpu = 87;
    assert_int_equal(cn_message_put_register(&request, again, &size_again), CN_OK);
    assert_int_equal(cn_message_get_register(again, size_again, &request_back), CN_OK);
    assert_memory_equal(&request, &request_back, sizeof(request));
    request.facts.gpu = UINT16_MAX + 1; // no number of a GPU
    assert_int_equal(cn_message_put_register(&request, again, &size_again), CN_OK);
    assert_int_equal(cn_message_get_register(again, size_again, &request_back), CN_EFORMAT);
    request.facts.gpu = 87;
    assert_int_equal(cn_message_put_manifest(&reply, bytes, &size), CN_OK);
    assert_int_equal(cn_message_get_manifest(bytes, size, &reply_back), CN_OK);
    assert_int_equal(cn_message_put_manifest(&reply_back, again, &size_again), CN_OK);
    assert_int_equal(size, size_again); // the struct has padding: compare what it encodes to
    assert_memory_equal(bytes, again, size);
    assert_true(reply_back.manifest.job.momentum == 0.9);
    assert_int_equal(reply_back.manifest.job.up.value_bits, 4);
    assert_int_equal(cn_message_put_round(&round, bytes, &size), CN_OK);
    assert_int_equal(cn_message_get_round(bytes, size, &round_back), CN_OK);
    assert_int_equal(round_back.remaining_ms, 123456);
    assert_memory_equal(round_back.decided_digest, round.decided_digest, CN_DIGEST_SIZE);
    assert_int_equal(cn_message_put_declare(&declare, bytes, &size), CN_OK);
    assert_int_equal(cn_message_get_declare(bytes, size, &declare_back), CN_OK);
    assert_true(declare_back.held_out_loss == 12.5);
    assert_true(declare_back.measures.f1 == 0);
    declare.measures = (struct cn_measures){.top5 = 0.75, .f1 = 0.5, .mae = 2, .perplexity = 17};
    assert_int_equal(cn_message_put_declare(&declare, again, &size_again), CN_OK);
    assert_true(size_again > size); // measures are left out where there are none
    assert_int_equal(cn_message_get_declare(again, size_again, &declare_back), CN_OK);
    assert_memory_equal(&declare_back.measures, &declare.measures, sizeof(declare.measures));
    assert_int_equal(declare_back.member_count, 0);
    declare.members[0] = (struct cn_member_sign){cn_name_hash("board-1"), 0};
    declare.members[1] = (struct cn_member_sign){cn_name_hash("board-2"), 72};
    declare.member_count = 2;
    assert_int_equal(cn_message_put_declare(&declare, again, &size_again), CN_OK);
    assert_int_equal(cn_message_get_declare(again, size_again, &declare_back), CN_OK);
    assert_int_equal(declare_back.member_count, 2);
    assert_memory_equal(declare_back.members, declare.members, sizeof(declare.members));
    assert_int_equal(cn_message_put_status(&status, bytes, &size), CN_OK);
    assert_int_equal(cn_message_get_status(bytes, size, &status_back), CN_OK);
    assert_int_equal(status_back.missing_count, 3);
    assert_int_equal(status_back.missing[2].first, 27);
    assert_int_equal(status_back.known, 30);
    assert_int_equal(status_back.recent_count, 2);
    assert_int_equal(status_back.recent[1].first, 12);
}

static void rules_travel_when_there_are_any(void **state)
{
    struct cn_register_reply plain = sample_manifest(), rules = plain, back;
    uint8_t bytes[CN_MESSAGE_MAX];
    size_t plain_size, size;

    (void)state;
    rules.manifest.job.rules.optimizer = CN_OPTIMIZER_ADAMW;
    rules.manifest.job.rules.clip = 0.5;
    snprintf(rules.manifest.job.rules.freeze, CN_WORDS_SIZE, "conv*.weight bias");
    snprintf(rules.manifest.job.options.densities, CN_WORDS_SIZE, "head.*=20%%");
    snprintf(rules.manifest.job.options.priorities, CN_WORDS_SIZE, "conv*=4");
    snprintf(rules.manifest.job.options.local, CN_WORDS_SIZE, "fc.*");
    rules.manifest.job.options.frozen = CN_FROZEN_LOCAL;
    rules.manifest.base.digest[31] = 7;
    assert_int_equal(cn_message_put_manifest(&plain, bytes, &plain_size), CN_OK);
    assert_int_equal(cn_message_put_manifest(&rules, bytes, &size), CN_OK);
    assert_true(size > plain_size);
    assert_int_equal(cn_message_get_manifest(bytes, size, &back), CN_OK);
    assert_int_equal(back.manifest.job.rules.optimizer, CN_OPTIMIZER_ADAMW);
    assert_true(back.manifest.job.rules.clip == 0.5);
    assert_string_equal(back.manifest.job.rules.freeze, "conv*.weight bias");
    assert_string_equal(back.manifest.job.options.densities, "head.*=20%");
    assert_string_equal(back.manifest.job.options.priorities, "conv*=4");
    assert_string_equal(back.manifest.job.options.local, "fc.*");
    assert_int_equal(back.manifest.base.digest[31], 7);
    assert_int_equal(back.manifest.job.options.frozen, CN_FROZEN_LOCAL);
    assert_int_equal(cn_message_graph_ops(&plain.manifest.job), 1);
    assert_int_equal(cn_message_graph_ops(&rules.manifest.job), 2);
    assert_int_equal(cn_message_update_format(&plain.manifest.job), 2);
    assert_int_equal(cn_message_update_format(&rules.manifest.job), 3);
    rules.manifest.job.options.small = CN_SMALL_SIGN;
    assert_int_equal(cn_message_put_manifest(&rules, bytes, &size), CN_OK);
    assert_int_equal(cn_message_get_manifest(bytes, size, &back), CN_OK);
    assert_int_equal(back.manifest.job.options.small, CN_SMALL_SIGN);
    assert_int_equal(cn_message_update_format(&back.manifest.job), 4);
}

static void each_setting_of_a_job_is_in_its_digest(void **state)
{
    struct cn_register_reply messages[4], back[4];
    uint8_t bytes[CN_MESSAGE_MAX];
    size_t size;

    (void)state;
    for (size_t i = 0; i < 4; i++)
        messages[i] = sample_manifest();
    messages[1].manifest.job.parallel.shard = 2;
    messages[2].manifest.job.rules.clip = 0.5;
    messages[3].manifest.run++; // no setting of the job
    for (size_t i = 0; i < 4; i++) {
        assert_int_equal(cn_message_put_manifest(&messages[i], bytes, &size), CN_OK);
        assert_int_equal(cn_message_get_manifest(bytes, size, &back[i]), CN_OK);
    }
    for (size_t i = 1; i < 3; i++)
        assert_memory_not_equal(back[0].manifest.job_digest, back[i].manifest.job_digest,
                                CN_DIGEST_SIZE);
    assert_memory_equal(back[0].manifest.job_digest, back[3].manifest.job_digest, CN_DIGEST_SIZE);
}

static void the_largest_messages_fit(void **state)
{
    struct cn_upload_status status = {.decided = true, .chunk_count = UINT32_MAX};
    struct cn_register_reply reply = sample_manifest();
    struct cn_register_reply back;
    uint8_t bytes[CN_MESSAGE_MAX];
    size_t size;

    (void)state;
    for (uint32_t i = 0; i < CN_RANGE_MAX; i++)
        status.missing[i] = (struct cn_chunk_range){0x10000000 + i * 0x200000, 0x100000};
    status.missing_count = CN_RANGE_MAX;
    status.known = UINT32_MAX;
    for (uint32_t i = 0; i < CN_RECENT_MAX; i++)
        status.recent[i] = (struct cn_chunk_range){0x70000000, 0x100000};
    status.recent_count = CN_RECENT_MAX;
    memset(status.reason, 'x', sizeof(status.reason) - 1);
    assert_int_equal(cn_message_put_status(&status, bytes, &size), CN_OK);
    memset(reply.manifest.job.name, 'a', CN_NAME_SIZE - 1);
    memset(reply.manifest.job.data_set, 'b', CN_NAME_SIZE - 1);
    memset(reply.manifest.job.central_set, 'c', CN_NAME_SIZE - 1);
    memset(reply.manifest.group, 'd', CN_NAME_SIZE - 1);
    reply.manifest.job.seed = UINT64_MAX;
    assert_int_equal(cn_message_put_manifest(&reply, bytes, &size), CN_OK);
    assert_int_equal(cn_message_get_manifest(bytes, size, &back), CN_OK);
    assert_int_equal(strlen(back.manifest.job.name), CN_NAME_SIZE - 1);
}

// PROTOCOL.md without white space, so that its lines may break anywhere.
static char *read_protocol(void)
{
    char *text = calloc(1, 1 << 20);
    FILE *file;
    size_t used = 0;
    int c;

    file = fopen(CAIRN_TEST_DATA "/../../transport/PROTOCOL.md", "rb");
    assert_non_null(file);
    assert_non_null(text);
    while ((c = fgetc(file)) != EOF && used < (1 << 20) - 1) {
        if (c > ' ')
            text[used++] = (char)c;
    }
    fclose(file);
    return text;
}

static void expect_example(const char *protocol, const char *what, const uint8_t *bytes,
                           size_t size)
{
    char hex[2 * CN_MESSAGE_MAX + 1];

    cn_hex(hex, bytes, size);
    if (!strstr(protocol, hex)) {
        print_message("%s:\n", what);
        for (size_t i = 0; i < strlen(hex); i += 64)
            print_message("    %.64s\n", hex + i);
        fail_msg("PROTOCOL.md has other bytes for %s", what);
    }
}

static void the_examples_of_the_protocol_are_what_the_code_makes(void **state)
{
    struct cn_register_request request = sample_register();
    struct cn_register_reply reply = sample_manifest();
    struct cn_round_info round = sample_round();
    struct cn_declare_request declare = sample_declare();
    struct cn_upload_status status = sample_status();
    struct cn_upload_status verdict = sample_verdict();
    uint8_t bytes[6][CN_MESSAGE_MAX];
    size_t sizes[6];
    static const char *const names[] = {"register", "manifest", "round",
                                        "declare",  "status",   "verdict"};
    char *protocol = read_protocol();

    (void)state;
    assert_int_equal(cn_message_put_register(&request, bytes[0], &sizes[0]), CN_OK);
    assert_int_equal(cn_message_put_manifest(&reply, bytes[1], &sizes[1]), CN_OK);
    assert_int_equal(cn_message_put_round(&round, bytes[2], &sizes[2]), CN_OK);
    assert_int_equal(cn_message_put_declare(&declare, bytes[3], &sizes[3]), CN_OK);
    assert_int_equal(cn_message_put_status(&status, bytes[4], &sizes[4]), CN_OK);
    assert_int_equal(cn_message_put_status(&verdict, bytes[5], &sizes[5]), CN_OK);
    for (int i = 0; i < 6; i++)
        expect_example(protocol, names[i], bytes[i], sizes[i]);
    free(protocol);
}

static void expect_refused(const char *hex)
{
    struct cn_upload_status status;
    uint8_t bytes[CN_MESSAGE_MAX];

    assert_int_equal(cn_hex_parse(hex, bytes, strlen(hex) / 2), CN_OK);
    assert_int_equal(cn_message_get_status(bytes, strlen(hex) / 2, &status), CN_EFORMAT);
}

#define ZEROS "0000000000000000000000000000000000000000000000000000000000000000"
#define STATUS_MAP "0148000102030405060702f40300045820" ZEROS "05181e0600"
#define STATUS "aa" STATUS_MAP
#define END "09000a80"

static void numbers_that_are_zero_are_left_out(void **state)
{
    struct cn_round_info round = sample_round(), back;
    uint8_t bytes[CN_MESSAGE_MAX];
    size_t plain, size;

    (void)state;
    assert_int_equal(cn_message_put_round(&round, bytes, &plain), CN_OK);
    assert_int_equal(cn_message_get_round(bytes, plain, &back), CN_OK);
    assert_int_equal(back.key_epoch, 0);
    round.key_epoch = 1ull << 32 | 3;
    round.group_boards = 4;
    assert_int_equal(cn_message_put_round(&round, bytes, &size), CN_OK);
    assert_int_equal(size, plain + 10 + 2); // key 18 with 9 bytes, key 21 with one
    assert_int_equal(cn_message_get_round(bytes, size, &back), CN_OK);
    assert_int_equal(back.key_epoch, round.key_epoch);
    assert_int_equal(back.group_boards, 4);
    assert_int_equal(back.forget, 0);
    round.forget = 9;
    assert_int_equal(cn_message_put_round(&round, bytes, &size), CN_OK);
    assert_int_equal(size, plain + 10 + 2 + 2);
    assert_int_equal(cn_message_get_round(bytes, size, &back), CN_OK);
    assert_int_equal(back.forget, 9);
    assert_int_equal(back.oldest, 0);
    round.oldest = 4;
    assert_int_equal(cn_message_put_round(&round, bytes, &size), CN_OK);
    assert_int_equal(size, plain + 10 + 2 + 2 + 3); // key 25 takes two bytes
    assert_int_equal(cn_message_get_round(bytes, size, &back), CN_OK);
    assert_int_equal(back.oldest, 4);
}

static void control_variates_travel_where_a_job_has_them(void **state)
{
    struct cn_round_info round = sample_round(), back;
    struct cn_register_reply plain = sample_manifest(), corrected = sample_manifest(), again;
    uint8_t bytes[CN_MESSAGE_MAX];
    size_t without, size;

    (void)state;
    assert_int_equal(cn_message_put_round(&round, bytes, &without), CN_OK);
    round.control = (struct cn_round_control){.epoch = 3, .size = 5000, .digest = {[31] = 9}};
    assert_int_equal(cn_message_put_round(&round, bytes, &size), CN_OK);
    assert_int_equal(size, without + 2 + 1 + 2 + 4 + 3 + 32);
    assert_int_equal(cn_message_get_round(bytes, size, &back), CN_OK);
    assert_int_equal(back.control.epoch, 3);
    assert_int_equal(back.control.size, 5000);
    assert_memory_equal(back.control.digest, round.control.digest, CN_DIGEST_SIZE);
    corrected.manifest.job.correction.kind = CN_CORRECTION_SCAFFOLD;
    assert_int_equal(cn_message_put_manifest(&plain, bytes, &without), CN_OK);
    assert_int_equal(cn_message_put_manifest(&corrected, bytes, &size), CN_OK);
    assert_int_equal(size, without + 2 + 1 + 2);
    assert_int_equal(cn_message_get_manifest(bytes, size, &again), CN_OK);
    assert_int_equal(again.manifest.job.correction.kind, CN_CORRECTION_SCAFFOLD);
    assert_int_equal(cn_message_graph_ops(&again.manifest.job), 5);
    again.manifest.job.pipeline.parts = 2;
    again.manifest.job.parallel.scope = CN_SCOPE_SHARED;
    assert_int_equal(cn_message_graph_ops(&again.manifest.job), 5);
    again.manifest.job.parallel.scope = CN_SCOPE_OWN;
    assert_int_equal(cn_message_graph_ops(&again.manifest.job), 6);
    bytes[size - 1] = 2; // a correction that nobody knows
    assert_int_equal(cn_message_get_manifest(bytes, size, &again), CN_EFORMAT);
}

static void malformed_messages_are_refused(void **state)
{
    struct cn_upload_status status;
    uint8_t bytes[CN_MESSAGE_MAX];
    size_t size = strlen(STATUS "07800860" END) / 2;

    (void)state;
    assert_int_equal(cn_hex_parse(STATUS "07800860" END, bytes, size), CN_OK);
    assert_int_equal(cn_message_get_status(bytes, size, &status), CN_OK);
    assert_int_equal(status.chunk_count, 30);
    for (size_t i = 0; i < size; i++)
        assert_int_equal(cn_message_get_status(bytes, i, &status), CN_EFORMAT);
    bytes[size] = 0;
    assert_int_equal(cn_message_get_status(bytes, size + 1, &status), CN_EFORMAT);
    expect_refused(STATUS "0781000860" END);           // half a range
    expect_refused(STATUS "078205000860" END);         // an empty range
    expect_refused(STATUS "0784050106010860" END);     // ranges that touch
    expect_refused(STATUS "0782181d020860" END);       // beyond the chunks
    expect_refused(STATUS "07820a1affffffff0860" END); // a sum that overflows
    expect_refused(STATUS "07800861"
                          "0a" END);             // a control character
    expect_refused(STATUS "08600780" END);       // keys out of order
    expect_refused(STATUS "07800843414243" END); // bytes for text
    expect_refused(STATUS "07800860"
                          "09181f0a80"); // knows more chunks than there are
    expect_refused(STATUS "07800860"
                          "09000a82181d02"); // what came lately is beyond them
    expect_refused(STATUS "07800860"
                          "09000a820500"); // or nothing
    expect_refused("80");
    expect_refused("a0");
    expect_refused("bf" STATUS_MAP "07800860" END "ff"); // indefinite length
}

static void unknown_keys_are_skipped(void **state)
{
    struct cn_upload_status status;
    uint8_t bytes[CN_MESSAGE_MAX];
    static const char newer[] = "ab" STATUS_MAP "07800860" END "0ba1018102";
    size_t size = strlen(newer) / 2;

    (void)state;
    assert_int_equal(cn_hex_parse(newer, bytes, size), CN_OK);
    assert_int_equal(cn_message_get_status(bytes, size, &status), CN_OK);
}

static void numbers_outside_their_limits_are_refused(void **state)
{
    struct cn_register_reply reply = sample_manifest(), back;
    struct cn_register_request request = sample_register(), request_back;
    uint8_t bytes[CN_MESSAGE_MAX];
    size_t size;

    (void)state;
    reply.manifest.job.up.density = 1.5;
    assert_int_equal(cn_message_put_manifest(&reply, bytes, &size), CN_OK);
    assert_int_equal(cn_message_get_manifest(bytes, size, &back), CN_EFORMAT);
    reply = sample_manifest();
    reply.chunk_size = CN_CHUNK_MAX + 1;
    assert_int_equal(cn_message_put_manifest(&reply, bytes, &size), CN_OK);
    assert_int_equal(cn_message_get_manifest(bytes, size, &back), CN_EFORMAT);
    reply = sample_manifest();
    snprintf(reply.manifest.group, sizeof(reply.manifest.group), "%s", "../x");
    assert_int_equal(cn_message_put_manifest(&reply, bytes, &size), CN_OK);
    assert_int_equal(cn_message_get_manifest(bytes, size, &back), CN_EFORMAT);
    request.protocol = (struct cn_version_range){2, 1};
    assert_int_equal(cn_message_put_register(&request, bytes, &size), CN_OK);
    assert_int_equal(cn_message_get_register(bytes, size, &request_back), CN_EFORMAT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(messages_survive_a_round_trip),
        cmocka_unit_test(rules_travel_when_there_are_any),
        cmocka_unit_test(each_setting_of_a_job_is_in_its_digest),
        cmocka_unit_test(the_largest_messages_fit),
        cmocka_unit_test(the_examples_of_the_protocol_are_what_the_code_makes),
        cmocka_unit_test(numbers_that_are_zero_are_left_out),
        cmocka_unit_test(control_variates_travel_where_a_job_has_them),
        cmocka_unit_test(malformed_messages_are_refused),
        cmocka_unit_test(unknown_keys_are_skipped),
        cmocka_unit_test(numbers_outside_their_limits_are_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
