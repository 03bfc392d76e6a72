// The page as one file with a run's data in it.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <cjson/cJSON.h>

#include "aggregator/page/page.h"
#include "aggregator/page/report_page.h"
#include "aggregator/serve/status.h"
#include "tests/unit/aggregator_world.h"

#define HOSTILE "</script></noscript><img src=x onerror=alert(1)><!--"

static size_t count(const char *text, const char *words)
{
    size_t found = 0;
    for (; (text = strstr(text, words)); text++)
        found++;
    return found;
}

// Makes the report of a run in which a board told a hostile error.
static char *make_report(struct cn_buffer *data)
{
    struct aggregator_world world;
    struct cn_live_state live;
    struct cn_run_state run = {.phase = CN_RUN_GATHER};
    const struct cn_report_page_facts facts = {.program = "1.2",
                                               .settings = "seed: 1\n" HOSTILE "\n"};
    struct cn_buffer page;
    world_init(&world);
    assert_int_equal(world_enroll(&world, "a", "a", 0), CN_OK);
    assert_int_equal(world_start(&world), CN_OK);
    cn_roster_hear(world.roster, "a", world_now_ms);
    cn_roster_blame(world.roster, "a", HOSTILE, 0, world_now_ms);
    cn_roster_note(world.roster, "a",
                   &(struct cn_roster_facts){.cpu_count = 6,
                                             .inventory = {.build = "9.8.7",
                                                           .system = "<b>JetPack 6.2",
                                                           .disk_size = 64000000000,
                                                           .disk_free = 12340000000,
                                                           .slot = "B",
                                                           .slot_version = "1.4.0",
                                                           .update = "<i>"}});
    assert_int_equal(cn_status_gather(world.roster, &run, &live), CN_OK);
    const struct cn_show_source source = world_show_source(&world, &live);
    cn_buffer_init(data, CN_SHOW_LIMIT);
    cn_buffer_init(&page, CN_SHOW_LIMIT);
    assert_int_equal(cn_report_page_data(&source, &facts, data), CN_OK);
    assert_int_equal(cn_report_page_write(data, &page), CN_OK);
    assert_int_equal(cn_buffer_append(&page, "", 1), CN_OK);
    cn_status_deinit(&live);
    world_deinit(&world);
    return (char *)page.data;
}

static void a_report_needs_nothing_else_and_a_hostile_text_stays_text(void **state)
{
    struct cn_buffer data;
    char *page = make_report(&data);
    size_t scripts = cn_page_find("/chart.js") ? 9 : 8;
    (void)state;
    assert_int_equal(count(page, "<script src="), 0);
    assert_int_equal(count(page, "<link rel=\"stylesheet\""), 0);
    assert_int_equal(count(page, "<script"), scripts);
    assert_int_equal(count(page, "</script>"), scripts);
    assert_int_equal(count(page, "'sha256-"), scripts - 1);
    assert_int_equal(count(page, "</noscript>"), 1);
    assert_int_equal(count(page, "<img"), 0);
    assert_int_equal(count(page, "<td>9.8.7</td><td>&lt;b&gt;JetPack 6.2</td><td>B</td>"
                                 "<td>1.4.0</td><td>&lt;i&gt;</td><td>12.3 GB</td>"
                                 "<td>64.0 GB</td>"),
                     1);
    // In the table of boards and in that of alerts.
    assert_int_equal(count(page, "&lt;/script&gt;&lt;/noscript&gt;&lt;img src=x onerror="), 2);
    cJSON *root = cJSON_ParseWithLength((const char *)data.data, data.size);
    assert_non_null(root);
    assert_string_equal(cJSON_GetStringValue(cJSON_GetObjectItem(root, "settings")),
                        "seed: 1\n" HOSTILE "\n");
    cJSON_Delete(root);
    cn_buffer_deinit(&data);
    free(page);
}

static void the_page_names_only_its_own_files(void **state)
{
    static const char *const wanted[] = {"/app.css",    "/view.js",   "/charts.js", "/inventory.js",
                                         "/sensors.js", "/events.js", "/jobs.js",   "/app.js"};
    const struct cn_page_file *page = cn_page_find("/");
    char *text = strndup((const char *)page->data, page->size);
    (void)state;
    for (size_t i = 0; i < sizeof(wanted) / sizeof(wanted[0]); i++) {
        assert_non_null(strstr(text, wanted[i]));
        assert_non_null(cn_page_find(wanted[i]));
    }
    assert_int_equal(count(text, "http:") + count(text, "https:"), 0);
    assert_string_equal(page->type, "text/html; charset=utf-8");
    assert_null(cn_page_find("/../app.js"));
    assert_null(cn_page_find(""));
    free(text);
}

// A script with "</script" in it would end early in a report.
static void no_file_ends_the_script_it_is_in(void **state)
{
    size_t files;
    const struct cn_page_file *file = cn_page_files(&files);
    (void)state;
    for (size_t i = 1; i < files; i++) {
        assert_null(memmem(file[i].data, file[i].size, "</script", 8));
        assert_null(memmem(file[i].data, file[i].size, "</style", 7));
    }
}

static void data_that_is_no_report_is_refused(void **state)
{
    struct cn_buffer data, page;
    (void)state;
    cn_buffer_init(&data, 100);
    cn_buffer_init(&page, CN_SHOW_LIMIT);
    assert_int_equal(cn_buffer_append(&data, "{\"v\":1}", 7), CN_OK);
    assert_int_equal(cn_report_page_write(&data, &page), CN_EFORMAT);
    cn_buffer_deinit(&data);
    cn_buffer_deinit(&page);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_report_needs_nothing_else_and_a_hostile_text_stays_text),
        cmocka_unit_test(the_page_names_only_its_own_files),
        cmocka_unit_test(no_file_ends_the_script_it_is_in),
        cmocka_unit_test(data_that_is_no_report_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
