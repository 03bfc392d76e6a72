// The answers of the aggregator to boards that behave, that repeat requests, and that lie.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "aggregator/ledger/steering.h"
#include "aggregator/ledger/tally.h"
#include "aggregator/run/run_private.h"
#include "runtime/port/crypto.h"
#include "tests/unit/aggregator_world.h"
#include "transport/coap/security.h"

// Boards a1 and a2 are group a, board b is alone; a round is open.
static int open_round(void **state)
{
    struct aggregator_world *world = malloc(sizeof(*world));
    struct cn_round_info info = {0};
    world_init(world);
    assert_int_equal(world_enroll(world, "a1", "a", 30), CN_OK);
    assert_int_equal(world_enroll(world, "a2", "a", 20), CN_OK);
    assert_int_equal(world_enroll(world, "b", "b", 0), CN_OK);
    assert_int_equal(world_start(world), CN_OK);
    assert_true(world_get_round(world, "a1", &info));
    assert_true(world_get_round(world, "b", &info));
    assert_int_equal(world_tick(world, 50), CN_OK);
    *state = world;
    return 0;
}

// Sends the frame of a group as it would be made with salt.
static bool send_salted(struct aggregator_world *world, const char *board, const char *group,
                        uint64_t salt, struct cn_upload_status *status)
{
    struct cn_round_info info = {0};
    struct cn_buffer frame = {0};
    assert_true(world_get_round(world, board, &info));
    world_make_frame(world, &info, group, salt, &frame);
    bool sent = world_send(world, board, &info, &frame, status);
    cn_buffer_deinit(&frame);
    return sent;
}

static void the_same_frame_again_is_accepted_again(void **state)
{
    struct cn_upload_status first, second;
    assert_true(send_salted(*state, "a1", "a", 0, &first));
    assert_int_equal(first.verdict, CN_VERDICT_ACCEPTED);
    assert_true(send_salted(*state, "a2", "a", 0, &second));
    assert_int_equal(second.verdict, CN_VERDICT_ACCEPTED);
    assert_memory_equal(first.accepted, second.accepted, CN_DIGEST_SIZE);
}

static uint64_t heard_ms(const struct aggregator_world *world, const char *board)
{
    return cn_roster_find(world->roster, board)->heard_ms;
}

// A board that observes the round is told of it for as long as its session lives, which ends long
// after the board.
static void a_notification_is_no_sign_of_life(void **state)
{
    struct aggregator_world *world = *state;
    struct cn_round_info info = {0};
    uint64_t before;
    assert_true(world_get_round(world, "b", &info));
    before = heard_ms(world, "b");
    world_now_ms += 30000;
    world->notifies = true;
    assert_true(world_get_round(world, "b", &info));
    assert_int_equal(heard_ms(world, "b"), before);
    world->notifies = false;
    assert_true(world_get_round(world, "b", &info));
    assert_int_equal(heard_ms(world, "b"), before + 30000);
}

// The roster in memory still has the board.
static void the_update_of_a_board_that_was_just_revoked_is_refused(void **state)
{
    struct aggregator_world *world = *state;
    struct cn_round_info info = {0};
    struct cn_upload_status status = {0};
    struct cn_ledger_contribution found;
    struct cn_coap_reply reply;
    struct cn_buffer frame = {0};
    char hex[2 * CN_UPLOAD_ID_SIZE + 1], path[64];
    assert_true(world_get_round(world, "b", &info));
    world_make_frame(world, &info, "b", 0, &frame);
    assert_int_equal(cn_ledger_revoke(world->ledger, "b"), CN_OK);
    world_declare(world, "b", &info, &frame, &reply);
    assert_int_equal(cn_message_get_status(reply.body, reply.size, &status), CN_OK);
    cn_hex(hex, status.id, CN_UPLOAD_ID_SIZE);
    for (uint32_t i = 0; i < status.chunk_count; i++) {
        size_t offset = (size_t)i * CN_RESOURCES_CHUNK_SIZE, left = frame.size - offset;
        snprintf(path, sizeof(path), "u/%s/%u", hex, i);
        world_ask(world, "b", CN_COAP_PUT, path, frame.data + offset,
                  left < CN_RESOURCES_CHUNK_SIZE ? left : CN_RESOURCES_CHUNK_SIZE, &reply);
    }
    assert_int_equal(reply.code, CN_COAP_UNAUTHORIZED);
    assert_int_equal(cn_ledger_find_contribution(world->ledger, 1, "b", &found), CN_ENOTFOUND);
    cn_buffer_deinit(&frame);
}

static void texts_of_a_board_are_cleaned_before_they_are_kept(void **state)
{
    struct aggregator_world *world = *state;
    struct cn_register_request request = {.protocol = {CN_PROTOCOL_MIN, CN_PROTOCOL_MAX},
                                          .update_format = {1, CN_UPDATE_FORMAT_MAX},
                                          .graph_ops = {1, CN_GRAPH_OPS_MAX},
                                          .facts.cpu_count = 1};
    uint8_t bytes[CN_MESSAGE_MAX];
    size_t size = 0;
    struct cn_coap_reply reply;
    struct cn_inventory *told = &request.facts.inventory;
    snprintf(told->build, sizeof(told->build), "1.0\xc2\x9b[31m");
    snprintf(told->system, sizeof(told->system),
             "De\xff\xe2\x80\xae"
             "bian \xc3\xa9");
    snprintf(told->slot, sizeof(told->slot), "\xc2\x9b");
    snprintf(told->slot_version, sizeof(told->slot_version), "1\xff");
    snprintf(told->update, sizeof(told->update), "go\xffod");
    snprintf(told->update_version, sizeof(told->update_version), "\xe2\x80\xae");
    assert_int_equal(cn_message_put_register(&request, bytes, &size), CN_OK);
    world_ask(world, "b", CN_COAP_POST, "reg", bytes, size, &reply);
    assert_int_equal(reply.code, CN_COAP_CONTENT);
    const struct cn_inventory *kept = &cn_roster_find(world->roster, "b")->facts.inventory;
    assert_string_equal(kept->build, "1.0?[31m");
    assert_string_equal(kept->system, "De??bian \xc3\xa9");
    assert_string_equal(kept->slot, "?");
    assert_string_equal(kept->slot_version, "1?");
    assert_string_equal(kept->update, "go?od");
    assert_string_equal(kept->update_version, "?");
}

static void another_frame_of_the_group_is_refused_and_told_what_counts(void **state)
{
    struct cn_upload_status first, second;
    assert_true(send_salted(*state, "a1", "a", 0, &first));
    assert_true(send_salted(*state, "a2", "a", 99, &second));
    assert_int_equal(second.verdict, CN_VERDICT_REJECTED);
    assert_memory_equal(first.accepted, second.accepted, CN_DIGEST_SIZE);
}

static void the_weight_is_capped_at_enrolment(void **state)
{
    struct aggregator_world *world = *state;
    struct cn_upload_status status = {0};
    struct cn_ledger_contribution counted;
    assert_true(send_salted(world, "a1", "a", 0, &status));
    assert_int_equal(cn_ledger_find_contribution(world->ledger, 1, "a", &counted), CN_OK);
    assert_int_equal(counted.weight, 50);
    assert_true(send_salted(world, "b", "b", 0, &status));
    assert_int_equal(cn_ledger_find_contribution(world->ledger, 1, "b", &counted), CN_OK);
    assert_int_equal(counted.weight, 100 + 'b');
}

static void an_update_after_the_quorum_is_late(void **state)
{
    struct aggregator_world *world = *state;
    struct cn_upload_status status = {0};
    assert_int_equal(world_enroll(world, "c", "c", 0), CN_OK);
    assert_int_equal(cn_roster_refresh(world->roster, NULL, NULL), CN_OK);
    assert_int_equal(cn_ledger_select(world->ledger, 1, "c"), CN_OK);
    assert_true(send_salted(world, "a1", "a", 0, &status));
    assert_true(send_salted(world, "b", "b", 0, &status));
    assert_true(send_salted(world, "c", "c", 0, &status));
    assert_int_equal(status.verdict, CN_VERDICT_LATE);
}

static void a_group_that_was_not_invited_is_refused(void **state)
{
    struct aggregator_world *world = *state;
    struct cn_upload_status status = {0};
    assert_int_equal(world_enroll(world, "c", "c", 0), CN_OK);
    assert_int_equal(cn_roster_refresh(world->roster, NULL, NULL), CN_OK);
    assert_true(send_salted(world, "c", "c", 0, &status));
    assert_int_equal(status.verdict, CN_VERDICT_REJECTED);
    assert_string_equal(status.reason, "the group is not invited to this round");
}

// Measuring the link takes room in the spool, but only a group that takes part may have it.
static void a_drained_group_does_not_measure_with_uploads(void **state)
{
    struct aggregator_world *world = *state;
    struct cn_declare_request declared = {.run = CN_RUN_MEASUREMENT, .round = 1, .size = 1000};
    struct cn_upload_status status;
    assert_int_equal(cn_run_judge(world->run, "b", &declared, &status), CN_OK);
    assert_false(status.decided);
    struct cn_ledger *ledger;
    assert_int_equal(cn_ledger_open(world->directory, &ledger), CN_OK);
    assert_int_equal(cn_steering_drain(ledger, "b", true), CN_OK);
    cn_ledger_close(ledger);
    assert_int_equal(cn_roster_refresh(world->roster, NULL, NULL), CN_OK);
    assert_int_equal(cn_run_judge(world->run, "b", &declared, &status), CN_OK);
    assert_true(status.decided);
    assert_string_equal(status.reason, "the group is drained");
}

static void a_frame_of_another_group_is_refused(void **state)
{
    struct cn_upload_status status = {0};
    assert_true(send_salted(*state, "a1", "b", 0, &status));
    assert_int_equal(status.verdict, CN_VERDICT_REJECTED);
    assert_string_equal(status.reason, "the frame is of group \"b\"");
}

static void a_broken_frame_is_refused_and_changes_nothing(void **state)
{
    struct aggregator_world *world = *state;
    struct cn_round_info info = {0};
    struct cn_buffer frame = {0};
    struct cn_upload_status status = {0};
    assert_true(world_get_round(world, "b", &info));
    world_make_frame(world, &info, "b", 0, &frame);
    frame.data[frame.size / 2] ^= 1;
    assert_true(world_send(world, "b", &info, &frame, &status));
    assert_int_equal(status.verdict, CN_VERDICT_REJECTED);
    frame.data[frame.size / 2] ^= 1;
    assert_true(world_send(world, "b", &info, &frame, &status));
    assert_int_equal(status.verdict, CN_VERDICT_ACCEPTED);
    cn_buffer_deinit(&frame);
}

static void another_base_or_round_is_refused(void **state)
{
    struct aggregator_world *world = *state;
    struct cn_round_info info = {0}, wrong;
    struct cn_buffer frame = {0};
    struct cn_upload_status status = {0};
    assert_true(world_get_round(world, "b", &info));
    world_make_frame(world, &info, "b", 0, &frame);
    wrong = info;
    wrong.version_digest[0] ^= 1;
    assert_true(world_send(world, "b", &wrong, &frame, &status));
    assert_int_equal(status.verdict, CN_VERDICT_REJECTED);
    wrong = info;
    wrong.round++;
    assert_true(world_send(world, "b", &wrong, &frame, &status));
    assert_int_equal(status.verdict, CN_VERDICT_REJECTED);
    cn_buffer_deinit(&frame);
}

// The group serves another run than when it made the update. Only that run can say what became of
// the update.
static void an_update_of_another_run_gets_no_verdict(void **state)
{
    struct aggregator_world *world = *state;
    struct cn_round_info info = {0};
    struct cn_buffer frame = {0};
    struct cn_coap_reply reply;
    assert_true(world_get_round(world, "b", &info));
    world_make_frame(world, &info, "b", 0, &frame);
    info.run++;
    world_declare(world, "b", &info, &frame, &reply);
    assert_int_equal(reply.code, CN_COAP_UNAUTHORIZED);
    cn_buffer_deinit(&frame);
}

static void a_size_that_no_update_has_is_refused_at_once(void **state)
{
    struct aggregator_world *world = *state;
    struct cn_round_info info = {0};
    struct cn_coap_reply reply;
    struct cn_declare_request declared = {.round = 1, .size = 1ull << 40};
    uint8_t bytes[CN_MESSAGE_MAX];
    size_t size;
    assert_true(world_get_round(world, "b", &info));
    declared.run = info.run;
    memcpy(declared.base, info.version_digest, CN_DIGEST_SIZE);
    assert_int_equal(cn_message_put_declare(&declared, bytes, &size), CN_OK);
    world_ask(world, "b", CN_COAP_POST, "u", bytes, size, &reply);
    assert_int_equal(reply.code, CN_COAP_TOO_LARGE);
    assert_int_equal(world->flaky.open_count, 0);
    assert_int_equal(cn_run_count(world->run)->rejected, 1);
}

// Else one member of a group that measures nonsense would stop the round for all.
static void an_update_with_an_impossible_measurement_counts_without_it(void **state)
{
    struct aggregator_world *world = *state;
    struct cn_round_info info = {0};
    struct cn_buffer frame = {0};
    struct cn_coap_reply reply;
    struct cn_upload_status status = {0};
    const struct cn_declare_request odd[] = {
        {.held_out_loss = 1, .held_out_correct = 8, .held_out_count = 7},
        {.held_out_loss = -1, .held_out_correct = 7, .held_out_count = 7},
        {.held_out_loss = 1, .held_out_correct = 7, .held_out_count = 1ull << 41},
        {.train_loss = 1e30},
    };
    assert_true(world_get_round(world, "b", &info));
    world_make_frame(world, &info, "b", 0, &frame);
    for (size_t i = 0; i < sizeof(odd) / sizeof(odd[0]); i++) {
        struct cn_declare_request declared = odd[i];
        uint8_t bytes[CN_MESSAGE_MAX];
        size_t size;
        declared.run = info.run;
        declared.round = info.round;
        declared.size = frame.size;
        memcpy(declared.base, info.version_digest, CN_DIGEST_SIZE);
        cn_crypto_digest(frame.data, frame.size, declared.digest);
        assert_int_equal(cn_message_put_declare(&declared, bytes, &size), CN_OK);
        world_ask(world, "b", CN_COAP_POST, "u", bytes, size, &reply);
        assert_int_equal(reply.code, CN_COAP_CREATED);
        assert_int_equal(cn_message_get_status(reply.body, reply.size, &status), CN_OK);
        const struct cn_spooled *upload = cn_spool_find(world->spool, "b", "b", status.id);
        assert_non_null(upload);
        assert_int_equal(upload->declared.held_out_count, 0);
        assert_true(upload->declared.held_out_loss == 0 && upload->declared.train_loss == 0);
        cn_spool_drop(world->spool, cn_spool_find(world->spool, "b", "b", status.id));
    }
    cn_buffer_deinit(&frame);
}

static void a_negative_loss_counts_where_the_model_computes_it(void **state)
{
    struct aggregator_world *world = *state;
    struct cn_round_info info = {0};
    struct cn_buffer frame = {0};
    struct cn_coap_reply reply;
    struct cn_upload_status status = {0};
    struct cn_declare_request declared = {.held_out_loss = -21, .held_out_count = 7};
    const struct cn_spooled *upload;
    uint8_t bytes[CN_MESSAGE_MAX];
    size_t size;
    world->job.loss = CN_LOSS_OUTPUT;
    assert_true(world_get_round(world, "b", &info));
    world_make_frame(world, &info, "b", 0, &frame);
    declared.run = info.run;
    declared.round = info.round;
    declared.size = frame.size;
    memcpy(declared.base, info.version_digest, CN_DIGEST_SIZE);
    cn_crypto_digest(frame.data, frame.size, declared.digest);
    assert_int_equal(cn_message_put_declare(&declared, bytes, &size), CN_OK);
    world_ask(world, "b", CN_COAP_POST, "u", bytes, size, &reply);
    assert_int_equal(cn_message_get_status(reply.body, reply.size, &status), CN_OK);
    upload = cn_spool_find(world->spool, "b", "b", status.id);
    assert_non_null(upload);
    assert_int_equal(upload->declared.held_out_count, 7);
    assert_true(upload->declared.held_out_loss < -20);
    cn_buffer_deinit(&frame);
}

static void a_declaration_that_cannot_be_read_is_counted(void **state)
{
    struct aggregator_world *world = *state;
    struct cn_coap_reply reply;
    struct cn_tally tally;
    world_ask(world, "b", CN_COAP_POST, "u", (const uint8_t *)"\xa0", 1, &reply);
    assert_int_equal(reply.code, CN_COAP_BAD_REQUEST);
    assert_int_equal(cn_run_count(world->run)->rejected, 1);
    assert_int_equal(cn_tally_read(world->ledger, "b", &tally), CN_OK);
    assert_int_equal(tally.rejected, 1);
    assert_string_equal(tally.reason, "malformed declaration of an update");
}

static void a_commit_before_the_last_chunk_names_what_is_missing(void **state)
{
    struct aggregator_world *world = *state;
    struct cn_round_info info = {0};
    struct cn_buffer frame = {0};
    struct cn_coap_reply reply;
    struct cn_upload_status status = {0};
    char hex[2 * CN_UPLOAD_ID_SIZE + 1], path[64];
    assert_true(world_get_round(world, "b", &info));
    world_make_frame(world, &info, "b", 0, &frame);
    world_declare(world, "b", &info, &frame, &reply);
    assert_int_equal(cn_message_get_status(reply.body, reply.size, &status), CN_OK);
    cn_hex(hex, status.id, sizeof(status.id));
    snprintf(path, sizeof(path), "u/%s/commit", hex);
    world_ask(world, "b", CN_COAP_POST, path, NULL, 0, &reply);
    assert_int_equal(reply.code, CN_COAP_INCOMPLETE);
    assert_int_equal(cn_message_get_status(reply.body, reply.size, &status), CN_OK);
    assert_int_equal(status.missing_count, 1);
    assert_int_equal(status.missing[0].count, status.chunk_count);
    // An upload belongs to its group.
    world_ask(world, "a1", CN_COAP_POST, path, NULL, 0, &reply);
    assert_int_equal(reply.code, CN_COAP_NOT_FOUND);
    cn_buffer_deinit(&frame);
}

static void a_full_disk_asks_to_come_back(void **state)
{
    struct aggregator_world *world = *state;
    struct cn_round_info info = {0};
    struct cn_buffer frame = {0};
    struct cn_coap_reply reply;
    struct cn_upload_status status = {0};
    assert_true(world_get_round(world, "b", &info));
    world_make_frame(world, &info, "b", 0, &frame);
    cn_flaky_store_fail(&world->flaky, 1, false, CN_ENOSPC);
    world_declare(world, "b", &info, &frame, &reply);
    assert_int_equal(reply.code, CN_COAP_UNAVAILABLE);
    assert_true(reply.max_age_s > 0);
    assert_true(world_send(world, "b", &info, &frame, &status));
    assert_int_equal(status.verdict, CN_VERDICT_ACCEPTED);
    cn_buffer_deinit(&frame);
}

static void a_blob_comes_in_chunks_that_make_its_digest(void **state)
{
    struct aggregator_world *world = *state;
    struct cn_round_info info = {0};
    struct cn_coap_reply reply;
    struct cn_sha256 sha;
    char hex[2 * CN_DIGEST_SIZE + 1], path[112];
    uint8_t digest[CN_DIGEST_SIZE];
    assert_true(world_get_round(world, "b", &info));
    cn_hex(hex, info.version_digest, CN_DIGEST_SIZE);
    cn_sha256_init(&sha);
    uint64_t got = 0;
    for (uint32_t i = 0; got < info.version_size; i++) {
        snprintf(path, sizeof(path), "b/%s/%u/9", hex, 9 * i);
        world_ask(world, "b", CN_COAP_GET, path, NULL, 0, &reply);
        assert_int_equal(reply.code, CN_COAP_CONTENT);
        cn_sha256_add(&sha, reply.body, reply.size);
        got += reply.size;
    }
    cn_sha256_finish(&sha, digest);
    assert_memory_equal(digest, info.version_digest, CN_DIGEST_SIZE);
    hex[0] = hex[0] == '0' ? '1' : '0';
    snprintf(path, sizeof(path), "b/%s/0", hex);
    world_ask(world, "b", CN_COAP_GET, path, NULL, 0, &reply);
    assert_int_equal(reply.code, CN_COAP_GONE);
}

static void members_of_a_group_get_the_same_pair_key_and_others_none(void **state)
{
    struct aggregator_world *world = *state;
    struct cn_coap_reply one, two;
    world_ask(world, "a1", CN_COAP_GET, "k/a2", NULL, 0, &one);
    world_ask(world, "a2", CN_COAP_GET, "k/a1", NULL, 0, &two);
    assert_int_equal(one.code, CN_COAP_CONTENT);
    assert_int_equal(one.size, CN_KEY_SIZE);
    assert_memory_equal(one.body, two.body, CN_KEY_SIZE);
    world_ask(world, "b", CN_COAP_GET, "k/a1", NULL, 0, &two);
    assert_int_equal(two.code, CN_COAP_NOT_FOUND);
    world_ask(world, "a1", CN_COAP_GET, "k/a1", NULL, 0, &two);
    assert_int_equal(two.code, CN_COAP_NOT_FOUND);
}

static void registration_picks_the_highest_common_versions(void **state)
{
    struct aggregator_world *world = *state;
    struct cn_coap_reply reply;
    struct cn_register_reply manifest;
    struct cn_register_request request = {
        .protocol = {1, 9}, .update_format = {1, 2}, .graph_ops = {1, 1}, .facts.cpu_count = 1};
    uint8_t bytes[CN_MESSAGE_MAX];
    size_t size;
    assert_int_equal(cn_message_put_register(&request, bytes, &size), CN_OK);
    world_ask(world, "a1", CN_COAP_POST, "reg", bytes, size, &reply);
    assert_int_equal(reply.code, CN_COAP_CONTENT);
    assert_int_equal(cn_message_get_manifest(reply.body, reply.size, &manifest), CN_OK);
    assert_int_equal(manifest.protocol, CN_PROTOCOL_MAX);
    assert_string_equal(manifest.manifest.group, "a");
    request.update_format = (struct cn_version_range){7, 9};
    assert_int_equal(cn_message_put_register(&request, bytes, &size), CN_OK);
    world_ask(world, "a1", CN_COAP_POST, "reg", bytes, size, &reply);
    assert_int_equal(reply.code, CN_COAP_FORBIDDEN);
}

static void a_board_registers_again_with_an_aggregator_that_was_restarted(void **state)
{
    struct aggregator_world *world = *state;
    struct cn_coap_reply reply;
    world_register(world, "a1");
    world_ask(world, "a1", CN_COAP_GET, "r", NULL, 0, &reply);
    assert_int_equal(reply.code, CN_COAP_CONTENT);
    world_stop(world);
    world->job.parallel.shard = 2;
    assert_int_equal(world_start(world), CN_OK);
    world_ask(world, "a1", CN_COAP_GET, "r", NULL, 0, &reply);
    assert_int_equal(reply.code, CN_COAP_UNAUTHORIZED);
    world_register(world, "a1");
    world_ask(world, "a1", CN_COAP_GET, "r", NULL, 0, &reply);
    assert_int_equal(reply.code, CN_COAP_CONTENT);
}

static void register_with(struct aggregator_world *world, const char *board, uint32_t protocol,
                          struct cn_coap_reply *reply)
{
    const struct cn_register_request request = {.protocol = {2, protocol},
                                                .update_format = {1, CN_UPDATE_FORMAT_MAX},
                                                .graph_ops = {1, CN_GRAPH_OPS_MAX},
                                                .facts.cpu_count = 1};
    uint8_t bytes[CN_MESSAGE_MAX];
    size_t size;
    assert_int_equal(cn_message_put_register(&request, bytes, &size), CN_OK);
    world_ask(world, board, CN_COAP_POST, "reg", bytes, size, reply);
}

static void note_drop(void *context, const char *board)
{
    snprintf(context, CN_NAME_SIZE, "%s", board);
}

static void a_revoked_board_is_dropped_and_answered_no_more(void **state)
{
    struct aggregator_world *world = *state;
    struct cn_ledger *other;
    struct cn_coap_reply reply;
    uint8_t key[CN_KEY_SIZE];
    char dropped[CN_NAME_SIZE] = "";
    assert_int_equal(cn_resources_find_key(&world->resources, "b", key), CN_OK);
    assert_int_equal(cn_ledger_open(world->directory, &other), CN_OK);
    assert_int_equal(cn_ledger_revoke(other, "b"), CN_OK);
    cn_ledger_close(other);
    assert_int_equal(cn_roster_refresh(world->roster, note_drop, dropped), CN_OK);
    assert_string_equal(dropped, "b");
    world_ask(world, "b", CN_COAP_GET, "r", NULL, 0, &reply);
    assert_int_equal(reply.code, CN_COAP_UNAUTHORIZED);
    assert_int_equal(cn_resources_find_key(&world->resources, "b", key), CN_EAUTH);
    assert_int_equal(cn_resources_find_key(&world->resources, "nobody", key), CN_EAUTH);
}

static void report_missing(struct aggregator_world *world, const char *board, const char *missing,
                           uint32_t missing_s)
{
    const struct cn_health health = {
        .state = CN_HEALTH_WAITING,
        .flags = CN_HEALTH_NEEDS,
        .missing = {{.id = cn_name_hash(missing), .missing_s = missing_s}},
        .missing_count = 1,
    };
    uint8_t bytes[CN_MESSAGE_MAX];
    size_t size;
    struct cn_coap_reply reply;
    assert_int_equal(cn_message_put_health(&health, bytes, &size), CN_OK);
    world_ask(world, board, CN_COAP_POST, "h", bytes, size, &reply);
    assert_true(reply.code == CN_COAP_CHANGED || reply.code == CN_COAP_SILENT);
}

// Each report would otherwise compare all boards with its members.
static void of_a_report_of_health_that_comes_too_soon_nothing_counts(void **state)
{
    struct aggregator_world *world = *state;
    world_register(world, "a1");
    report_missing(world, "a1", "a2", 5);
    assert_true(cn_roster_find(world->roster, "a2")->missing_ms > 0);
    world_now_ms += CN_HEALTH_SHORTEST_MS - 1;
    report_missing(world, "a1", "a2", 0);
    assert_true(cn_roster_find(world->roster, "a2")->missing_ms > 0);
    world_now_ms += 1;
    report_missing(world, "a1", "a2", 0);
    assert_true(cn_roster_find(world->roster, "a2")->missing_ms == 0);
}

// Which of its mates a member misses is believed only as far as nothing else says otherwise.
static void a_member_cannot_make_others_present_or_missing_at_will(void **state)
{
    const struct cn_health works = {.state = CN_HEALTH_TRAINING};
    struct aggregator_world *world = *state;
    world_register(world, "a1");
    report_missing(world, "a1", "a2", 0); // it never came
    assert_true(cn_roster_find(world->roster, "a2")->seen_ms == 0);
    world_now_ms += 60000;
    assert_true(cn_roster_report(world->roster, "a2", &works, world_now_ms));
    world_now_ms += 10000;
    report_missing(world, "a1", "a2", 11);
    assert_true(cn_roster_find(world->roster, "a2")->missing_ms == 0);
    world_now_ms += 10000;
    report_missing(world, "a1", "a2", 19);
    assert_true(cn_roster_find(world->roster, "a2")->missing_ms == world_now_ms - 19000);
    world_now_ms += 10000;
    report_missing(world, "a1", "a2", 0);
    assert_true(cn_roster_find(world->roster, "a2")->missing_ms == 0);
    assert_true(cn_roster_find(world->roster, "a2")->seen_ms == 0);
    world_now_ms += 10000;
    report_missing(world, "a1", "a2", 5);
    world_revoke(world, "a1");
    assert_int_equal(cn_roster_refresh(world->roster, NULL, NULL), CN_OK);
    assert_true(cn_roster_find(world->roster, "a2")->missing_ms == 0);
}

static void a_group_has_other_keys_when_a_board_was_revoked(void **state)
{
    struct aggregator_world *world = *state;
    struct cn_round_info info = {0};
    struct cn_coap_reply before, reply, other;
    assert_int_equal(world_enroll(world, "a3", "a", 0), CN_OK);
    assert_int_equal(cn_roster_refresh(world->roster, NULL, NULL), CN_OK);
    world_ask(world, "a1", CN_COAP_GET, "k/a2", NULL, 0, &before);
    assert_int_equal(before.code, CN_COAP_CONTENT);
    assert_true(world_get_round(world, "a1", &info));
    assert_int_equal(info.key_epoch, 0);
    assert_int_equal(info.group_boards, 3);
    world_revoke(world, "a3");
    assert_int_equal(cn_roster_refresh(world->roster, NULL, NULL), CN_OK);
    assert_true(world_get_round(world, "a1", &info));
    assert_int_equal(info.key_epoch, 1);
    assert_int_equal(info.group_boards, 2);
    world_ask(world, "a1", CN_COAP_GET, "k/a2", NULL, 0, &reply);
    assert_int_equal(reply.code, CN_COAP_CONFLICT); // of the epoch before
    world_ask(world, "a1", CN_COAP_GET, "k/a2/1", NULL, 0, &reply);
    world_ask(world, "a2", CN_COAP_GET, "k/a1/1", NULL, 0, &other);
    assert_int_equal(reply.code, CN_COAP_CONTENT);
    assert_memory_equal(reply.body, other.body, CN_KEY_SIZE);
    assert_memory_not_equal(reply.body, before.body, CN_KEY_SIZE);
    world_ask(world, "a1", CN_COAP_GET, "k/a3/1", NULL, 0, &reply);
    assert_int_equal(reply.code, CN_COAP_NOT_FOUND);
    world_ask(world, "a1", CN_COAP_GET, "k/a2/2", NULL, 0, &reply);
    assert_int_equal(reply.code, CN_COAP_CONFLICT);
    assert_true(world_get_round(world, "b", &info)); // another group
    assert_int_equal(info.key_epoch, 0);
}

static void a_board_of_the_release_before_takes_part_until_its_group_changes_keys(void **state)
{
    struct aggregator_world *world = *state;
    struct cn_coap_reply reply;
    register_with(world, "a1", 2, &reply);
    assert_int_equal(reply.code, CN_COAP_CONTENT);
    world_ask(world, "a1", CN_COAP_GET, "r", NULL, 0, &reply);
    assert_int_equal(reply.code, CN_COAP_CONTENT);
    world_ask(world, "a1", CN_COAP_GET, "k/a2", NULL, 0, &reply);
    assert_int_equal(reply.code, CN_COAP_CONTENT);
    world_revoke(world, "a2");
    assert_int_equal(cn_roster_refresh(world->roster, NULL, NULL), CN_OK);
    world_ask(world, "a1", CN_COAP_GET, "r", NULL, 0, &reply);
    assert_int_equal(reply.code, CN_COAP_UNAUTHORIZED); // it registers again, and hears why not
    register_with(world, "a1", 2, &reply);
    assert_int_equal(reply.code, CN_COAP_FORBIDDEN);
    assert_non_null(strstr((const char *)reply.body, "group a changed its keys"));
    register_with(world, "a1", 3, &reply);
    assert_int_equal(reply.code, CN_COAP_CONTENT);
}

static void a_board_that_is_ahead_of_the_ledger_is_noted(void **state)
{
    struct aggregator_world *world = *state;
    struct cn_register_request request = {
        .protocol = {2, CN_PROTOCOL_MAX},
        .update_format = {1, CN_UPDATE_FORMAT_MAX},
        .graph_ops = {1, CN_GRAPH_OPS_MAX},
        .facts = {.cpu_count = 1, .ahead_lineage = 1, .ahead_version = 0}};
    uint8_t bytes[CN_MESSAGE_MAX];
    struct cn_coap_reply reply;
    size_t size;
    for (uint64_t version = 0; version < 2; version++) {
        request.facts.ahead_version = version;
        assert_int_equal(cn_message_put_register(&request, bytes, &size), CN_OK);
        world_ask(world, "a1", CN_COAP_POST, "reg", bytes, size, &reply);
        assert_int_equal(reply.code, CN_COAP_CONTENT);
        const struct cn_roster_facts *facts = &cn_roster_find(world->roster, "a1")->facts;
        assert_int_equal(facts->ahead_lineage, version ? 1 : 0); // the ledger has version 0
        assert_int_equal(facts->ahead_version, version);
    }
}

static void paths_that_make_no_sense_are_refused(void **state)
{
    static const char *const paths[] = {
        "b",
        "b/",
        "b/00",
        "b/zz/1",
        "b/-1",
        "u/",
        "u/0011223344556677/",
        "u/0011223344556677/-1",
        "k",
        "k/",
        "k/../x",
        "k/a2/",
        "k/a2/x",
        "k/a2/1/2",
        "k/a2/-1",
    };
    struct aggregator_world *world = *state;
    struct cn_coap_reply reply;
    for (size_t i = 0; i < sizeof(paths) / sizeof(paths[0]); i++) {
        for (int method = CN_COAP_GET; method <= CN_COAP_DELETE; method++) {
            world_ask(world, "a1", (enum cn_coap_method)method, paths[i], "x", 1, &reply);
            assert_in_range(reply.code, CN_COAP_BAD_REQUEST, CN_COAP_UNPROCESSABLE);
        }
    }
}

#define ROUND_TEST(name) cmocka_unit_test_setup_teardown(name, open_round, world_close)

// Beyond gateway.board_rate a board has no answer that is large, or as large as its request.
static void what_may_be_large_counts_for_the_rate_of_a_board(void **state)
{
    size_t count, bulk = 0;
    const struct cn_coap_route *routes = cn_resources_routes(&count);
    (void)state;
    for (size_t i = 0; i < count; i++)
        bulk += routes[i].bulk &&
                (strcmp(routes[i].prefix, "b") == 0 || strcmp(routes[i].prefix, "p") == 0 ||
                 (strcmp(routes[i].prefix, "u") == 0 && routes[i].method == CN_COAP_PUT));
    assert_int_equal(bulk, 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        ROUND_TEST(a_notification_is_no_sign_of_life),
        cmocka_unit_test(what_may_be_large_counts_for_the_rate_of_a_board),
        ROUND_TEST(the_same_frame_again_is_accepted_again),
        ROUND_TEST(the_update_of_a_board_that_was_just_revoked_is_refused),
        ROUND_TEST(texts_of_a_board_are_cleaned_before_they_are_kept),
        ROUND_TEST(another_frame_of_the_group_is_refused_and_told_what_counts),
        ROUND_TEST(the_weight_is_capped_at_enrolment),
        ROUND_TEST(an_update_after_the_quorum_is_late),
        ROUND_TEST(a_group_that_was_not_invited_is_refused),
        ROUND_TEST(a_drained_group_does_not_measure_with_uploads),
        ROUND_TEST(a_frame_of_another_group_is_refused),
        ROUND_TEST(a_broken_frame_is_refused_and_changes_nothing),
        ROUND_TEST(another_base_or_round_is_refused),
        ROUND_TEST(an_update_of_another_run_gets_no_verdict),
        ROUND_TEST(a_size_that_no_update_has_is_refused_at_once),
        ROUND_TEST(an_update_with_an_impossible_measurement_counts_without_it),
        ROUND_TEST(a_negative_loss_counts_where_the_model_computes_it),
        ROUND_TEST(a_declaration_that_cannot_be_read_is_counted),
        ROUND_TEST(a_commit_before_the_last_chunk_names_what_is_missing),
        ROUND_TEST(a_full_disk_asks_to_come_back),
        ROUND_TEST(a_blob_comes_in_chunks_that_make_its_digest),
        ROUND_TEST(members_of_a_group_get_the_same_pair_key_and_others_none),
        ROUND_TEST(registration_picks_the_highest_common_versions),
        ROUND_TEST(a_board_registers_again_with_an_aggregator_that_was_restarted),
        ROUND_TEST(a_revoked_board_is_dropped_and_answered_no_more),
        ROUND_TEST(a_group_has_other_keys_when_a_board_was_revoked),
        ROUND_TEST(a_board_of_the_release_before_takes_part_until_its_group_changes_keys),
        ROUND_TEST(a_board_that_is_ahead_of_the_ledger_is_noted),
        ROUND_TEST(of_a_report_of_health_that_comes_too_soon_nothing_counts),
        ROUND_TEST(a_member_cannot_make_others_present_or_missing_at_will),
        ROUND_TEST(paths_that_make_no_sense_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
