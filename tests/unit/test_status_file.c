// The fields of status.json of a board, and its metrics.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <unistd.h>

#include "runtime/round/node/node_metrics.h"
#include "runtime/round/node/status_file.h"
#include "runtime/round/upkeep/upkeep.h"

struct fixture {
    char path[CN_PATH_SIZE + 16];
    struct cn_settings settings;
    struct cn_upkeep care;
    struct cn_traffic traffic;
    struct cn_status_file status;
};

// The leader of a group of one, between two rounds.
static int set_up(void **state)
{
    struct fixture *f = calloc(1, sizeof(*f));

    if (!f)
        return 1;
    strcpy(f->settings.state, "/tmp/cairn-status-XXXXXX");
    if (!mkdtemp(f->settings.state))
        return 1;
    snprintf(f->path, sizeof(f->path), "%s/%s", f->settings.state, CN_STATUS_FILE_NAME);
    f->status = (struct cn_status_file){.settings = &f->settings,
                                        .care = &f->care,
                                        .traffic = &f->traffic,
                                        .networked = true,
                                        .registered = true,
                                        .has_news = true,
                                        .group = "north",
                                        .leader = "board-1"};
    f->status.progress.size = 1;
    f->status.progress.phase = CN_PHASE_BASE;
    *state = f;
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *f = *state;

    unlink(f->path);
    rmdir(f->settings.state);
    free(f);
    return 0;
}

static void assert_said(struct fixture *f, const char *words)
{
    char text[4096];
    FILE *file;
    size_t size;

    cn_status_file_write(&f->status, 1000);
    file = fopen(f->path, "r");
    assert_non_null(file);
    size = fread(text, 1, sizeof(text) - 1, file);
    fclose(file);
    text[size] = '\0';
    assert_non_null(strstr(text, words));
}

static void a_group_is_left_out_of_an_open_round_only(void **state)
{
    struct fixture *f = *state;

    f->status.news.state = CN_ROUND_OPEN;
    assert_said(f, "this group was not selected for the round");
    f->status.news.state = CN_ROUND_CLOSING; // nobody is invited then
    assert_said(f, "waiting for a round");
}

static void a_run_that_has_ended_is_named_when_its_aggregator_has_left(void **state)
{
    struct fixture *f = *state;

    f->status.down = true;
    assert_said(f, "the aggregator does not answer");
    f->status.progress.ended = true;
    assert_said(f, "\"state\":\"the run has ended\"");
}

static void a_board_that_gave_up_says_why_after_its_end(void **state)
{
    struct fixture *f = *state;

    f->status.progress.phase = CN_PHASE_TRAIN;
    f->status.fault = "shared.data: file not found";
    f->status.down = true;
    assert_said(f, "\"state\":\"shared.data: file not found\",\"gave_up\":true");
}

static void assert_measured(const struct fixture *f, const char *lines)
{
    struct cn_buffer text;

    cn_buffer_init(&text, 1u << 16);
    assert_int_equal(cn_node_metrics_write(&f->status, &text), CN_OK);
    assert_int_equal(cn_buffer_append(&text, "", 1), CN_OK);
    if (!strstr((const char *)text.data, lines))
        fail_msg("%s is not in %s", lines, text.data);
    cn_buffer_deinit(&text);
}

static void a_board_that_cannot_train_says_why(void **state)
{
    struct fixture *f = *state;

    f->status.progress.phase = CN_PHASE_TRAIN;
    f->status.progress.looks_on = true;
    assert_said(f, "\"state\":\"looks on: the others make up all chains and shards\"");
    assert_measured(f, "cairn_node_state{state=\"training\"} 1\n");
    strcpy(f->status.progress.hindered, "it has other samples");
    assert_said(f, "\"state\":\"it has other samples\"");
    assert_measured(f, "cairn_node_state{state=\"waiting\"} 1\n");
    assert_measured(f, "cairn_node_state{state=\"training\"} 0\n");
    strcpy(f->status.progress.needs, "a chain waits for board-2");
    assert_said(f, "\"state\":\"a chain waits for board-2\"");
}

static void a_chain_is_measured(void **state)
{
    struct fixture *f = *state;

    f->status.progress.chain = (struct cn_chain_progress){.parts = 3,
                                                          .part = 1,
                                                          .chains = 2,
                                                          .bubble = 0.25,
                                                          .bubble_parts = 0.5,
                                                          .bubble_measured = 0.75,
                                                          .slowest_part = 2,
                                                          .slowest_ms = 4,
                                                          .bytes = {1024, 2048}};
    assert_measured(f, "cairn_node_chain_part 2\n");
    assert_measured(f, "cairn_node_chain_parts 3\n");
    assert_measured(f, "cairn_node_chains 2\n");
    assert_measured(f, "cairn_node_chain_bubble_ratio{of=\"equal_parts\"} 0.25\n"
                       "cairn_node_chain_bubble_ratio{of=\"these_parts\"} 0.5\n"
                       "cairn_node_chain_bubble_ratio{of=\"measured\"} 0.75\n");
    assert_measured(f, "cairn_node_chain_slowest_part 3\n");
    assert_measured(f, "cairn_node_chain_slowest_part_seconds 0.004\n");
    assert_measured(f, "cairn_node_chain_cut_bytes{cut=\"1\"} 1024\n"
                       "cairn_node_chain_cut_bytes{cut=\"2\"} 2048\n");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_group_is_left_out_of_an_open_round_only, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(a_run_that_has_ended_is_named_when_its_aggregator_has_left,
                                        set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_board_that_cannot_train_says_why, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_board_that_gave_up_says_why_after_its_end, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(a_chain_is_measured, set_up, tear_down),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
