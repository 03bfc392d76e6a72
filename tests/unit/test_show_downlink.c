// What is shown of how versions go down.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <cjson/cJSON.h>

#include "aggregator/ledger/downlinks.h"
#include "aggregator/ledger/job_settings.h"
#include "aggregator/serve/status.h"
#include "aggregator/show/show.h"
#include "runtime/profile/job_text.h"
#include "tests/unit/aggregator_world.h"

static void put_setting(struct aggregator_world *world, uint32_t from_round, const char *text)
{
    struct cn_ledger_setting row = {.from_round = from_round};
    struct cn_settings *settings = calloc(1, sizeof(*settings));
    struct cn_diag diag;
    char lines[200];
    cn_diag_init(&diag);
    snprintf(lines, sizeof(lines), "name: job\ndata.set: set\n%s", text);
    assert_int_equal(cn_job_text_read(lines, strlen(lines), &diag, settings), CN_OK);
    assert_int_equal(cn_job_text_make(settings, &row.job), CN_OK);
    cn_job_settings_digest(&settings->job, row.digest);
    assert_int_equal(cn_ledger_put_setting(world->ledger, &row), CN_OK);
    cn_ledger_setting_deinit(&row);
    free(settings);
}

static cJSON *show(struct aggregator_world *world,
                   cn_err (*make)(const struct cn_show_source *source, struct cn_buffer *out))
{
    const struct cn_run_state run = {.phase = CN_RUN_OPEN};
    struct cn_live_state live = {0};
    struct cn_buffer out;
    assert_int_equal(cn_status_gather(world->roster, &run, &live), CN_OK);
    const struct cn_show_source source = world_show_source(world, &live);
    cn_buffer_init(&out, CN_SHOW_LIMIT);
    assert_int_equal(make(&source, &out), CN_OK);
    cJSON *root = cJSON_ParseWithLength((const char *)out.data, out.size);
    assert_non_null(root);
    cn_buffer_deinit(&out);
    cn_status_deinit(&live);
    return root;
}

static cn_err make_versions(const struct cn_show_source *source, struct cn_buffer *out)
{
    return cn_show_versions(source, 0, out);
}

// Returns the encoding of a version, or "" when it is not told.
static const char *encoding(const cJSON *root, int version)
{
    const cJSON *item =
        cJSON_GetArrayItem(cJSON_GetObjectItemCaseSensitive(root, "versions"), version);
    const char *text = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(item, "encoding"));
    return text ? text : "";
}

static void train(struct aggregator_world *world)
{
    world_init(world);
    for (int i = 0; i < 2; i++)
        assert_int_equal(world_enroll(world, i ? "b" : "a", i ? "b" : "a", 0), CN_OK);
    assert_int_equal(world_start(world), CN_OK);
    for (int i = 0; i < 900 && cn_model_store_newest(world->models)->number < 3; i++) {
        world_take_part(world, "a", "a");
        world_take_part(world, "b", "b");
        assert_int_equal(world_tick(world, 50), CN_OK);
    }
    assert_int_equal(cn_model_store_newest(world->models)->number, 3);
}

static void each_version_says_how_it_went_down(void **state)
{
    const struct cn_downlink decided = {
        .version = 3, .rule = {.mode = CN_UPDATE_SIGN}, .link_bps = 8000, .size = 700};
    struct aggregator_world world;
    (void)state;
    train(&world);
    cJSON *root = show(&world, make_versions);
    assert_string_equal(encoding(root, 1), ""); // the ledger has no values of the job
    cJSON_Delete(root);
    put_setting(&world, 1, "update.down.mode: q8\n");
    put_setting(&world, 2, "update.down.mode: topk\nupdate.down.density: 5 %\n");
    put_setting(&world, 3, "update.down.mode: auto\n");
    root = show(&world, make_versions);
    assert_string_equal(encoding(root, 0), "");
    assert_string_equal(encoding(root, 1), "q8");
    assert_string_equal(encoding(root, 2), "topk 5 %");
    assert_string_equal(encoding(root, 3), ""); // what the links decided is not recorded
    cJSON_Delete(root);
    assert_int_equal(cn_downlinks_add(world.ledger, &decided), CN_OK);
    root = show(&world, make_versions);
    assert_string_equal(encoding(root, 3), "sign");
    cJSON_Delete(root);
    world_deinit(&world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_version_says_how_it_went_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
