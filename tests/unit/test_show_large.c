// What is shown of a run of a thousand boards.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <cjson/cJSON.h>

#include "aggregator/serve/status.h"
#include "aggregator/show/show.h"
#include "tests/unit/aggregator_world.h"

#define BOARDS 1000
#define ROUNDS 120

// All boards are groups of one. In rounds 1, 41 and 81 the first r boards are not invited, r being
// the number of the round, and every seventh of the others sends an update. The ledger is filled
// without a run.
static void fill(struct aggregator_world *world)
{
    char name[16];
    assert_int_equal(cn_ledger_open(world->directory, &world->ledger), CN_OK);
    for (unsigned i = 0; i < BOARDS; i++) {
        struct cn_ledger_board board = {0};
        snprintf(board.name, sizeof(board.name), "board-%04u", BOARDS - i);
        snprintf(board.group, sizeof(board.group), "board-%04u", BOARDS - i);
        assert_int_equal(cn_ledger_enroll(world->ledger, &board), CN_OK);
    }
    for (uint32_t round = 0; round <= ROUNDS; round++) {
        struct cn_ledger_version version = {.number = round, .digest = {(uint8_t)round, 1}};
        assert_int_equal(round ? cn_ledger_open_round(world->ledger, round) : CN_OK, CN_OK);
        assert_int_equal(cn_ledger_begin_read(world->ledger), CN_OK); // one transaction: faster
        for (unsigned i = round; round && round % 40 == 1 && i < BOARDS; i++) {
            snprintf(name, sizeof(name), "board-%04u", BOARDS - i);
            assert_int_equal(cn_ledger_select(world->ledger, round, name), CN_OK);
        }
        cn_ledger_end_read(world->ledger);
        for (unsigned i = round; round && round % 40 == 1 && i < BOARDS; i += 7) {
            struct cn_ledger_contribution sent = {.round = round};
            snprintf(sent.group, sizeof(sent.group), "board-%04u", BOARDS - i);
            snprintf(sent.board, sizeof(sent.board), "board-%04u", BOARDS - i);
            assert_int_equal(cn_ledger_accept(world->ledger, &sent), CN_OK);
        }
        assert_int_equal(round ? cn_ledger_close_round(world->ledger, round) : CN_OK, CN_OK);
        assert_int_equal(cn_ledger_add_version(world->ledger, &version), CN_OK);
    }
}

static cJSON *parse(struct cn_buffer *out)
{
    cJSON *root = cJSON_ParseWithLength((const char *)out->data, out->size);
    assert_non_null(root);
    out->size = 0;
    return root;
}

static void check_signs(const cJSON *versions, uint32_t round)
{
    const cJSON *version = cJSON_GetArrayItem(versions, (int)round);
    const char *signs = cJSON_GetStringValue(cJSON_GetObjectItem(version, "signs"));
    assert_int_equal(strlen(signs), BOARDS);
    for (unsigned i = 0; i < BOARDS; i++)
        assert_int_equal(signs[i], i < round ? 'n' : (i - round) % 7 == 0 ? 'a' : 'l');
}

static void a_thousand_boards_are_shown(void **state)
{
    struct aggregator_world world;
    const struct cn_live_state live = {.running = true};
    struct cn_show_tracker tracker = {0};
    struct cn_buffer out;
    (void)state;
    world_init(&world);
    fill(&world);
    world.job.rounds = ROUNDS + 1; // the run goes on: its boards are missed
    const struct cn_show_source source = {
        .ledger = world.ledger, .job = &world.job, .live = &live, .date_ms = 5};
    cn_buffer_init(&out, CN_SHOW_LIMIT);

    assert_int_equal(cn_show_state(&source, &tracker, 0, &out), CN_OK);
    cJSON *root = parse(&out);
    assert_int_equal(cJSON_GetArraySize(cJSON_GetObjectItem(root, "boards")), BOARDS);
    assert_int_equal(cJSON_GetArraySize(cJSON_GetObjectItem(root, "groups")), BOARDS);
    assert_int_equal(cJSON_GetArraySize(cJSON_GetObjectItem(root, "alerts")), 50);
    assert_int_equal(cJSON_GetObjectItem(root, "alerts_more")->valueint,
                     BOARDS + 1 - 50); // one is that no group can be invited
    cJSON_Delete(root);

    // The versions come in pieces.
    assert_int_equal(cn_show_versions(&source, 0, &out), CN_OK);
    root = parse(&out);
    assert_int_equal(cJSON_GetObjectItem(root, "next")->valueint, CN_SHOW_VERSIONS);
    assert_true(cJSON_IsTrue(cJSON_GetObjectItem(root, "more")));
    check_signs(cJSON_GetObjectItem(root, "versions"), 1);
    check_signs(cJSON_GetObjectItem(root, "versions"), 41);
    cJSON_Delete(root);
    assert_int_equal(cn_show_versions(&source, CN_SHOW_VERSIONS, &out), CN_OK);
    root = parse(&out);
    assert_int_equal(cJSON_GetArraySize(cJSON_GetObjectItem(root, "versions")),
                     ROUNDS + 1 - CN_SHOW_VERSIONS);
    assert_false(cJSON_IsTrue(cJSON_GetObjectItem(root, "more")));
    cJSON_Delete(root);

    cn_show_tracker_deinit(&tracker);
    cn_buffer_deinit(&out);
    world_deinit(&world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_thousand_boards_are_shown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
