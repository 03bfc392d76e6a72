// A board that trains and hears of new pair keys, with a link that only counts.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
// cmocka.h needs the four above.
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>

#include "runtime/engine/onnx/export.h"
#include "runtime/group/solo.h"
#include "runtime/port/platform.h"
#include "runtime/round/node/node_private.h"
#include "tests/unit/log_capture.h"

#define NOW 100000

static unsigned registrations;
static char fault[CN_FAULT_SIZE]; // of the last one
static cn_err answer;

static cn_err register_board(struct cn_link *link, const struct cn_registration *registration)
{
    (void)link;
    registrations++;
    snprintf(fault, sizeof(fault), "%s", registration->fault);
    return answer;
}

// The second raise came while the registration of the first was answered, and nothing in the round
// changes after it.
static void a_second_raise_within_seconds_is_asked_for_too(void **state)
{
    static const struct cn_link_ops ops = {.register_board = register_board};
    struct cn_node_owner *node = calloc(1, sizeof(*node));
    struct cn_settings *settings = calloc(1, sizeof(*settings));
    struct cn_link link = {.ops = &ops};

    (void)state;
    assert_non_null(node);
    assert_non_null(settings);
    settings->group.member_count = 2;
    node->config.settings = settings;
    node->link = &link;
    node->registered = node->working = node->status.has_news = true;
    node->status.news.key_epoch = 2;
    node->manifest.key_epoch = 1;
    node->keys.asked_ms = NOW; // for the first
    assert_int_equal(cn_node_poll_keys(node, NOW + 1000), CN_OK);
    assert_int_equal(registrations, 0);
    assert_int_equal(cn_node_poll_keys(node, NOW + 6000), CN_OK);
    assert_int_equal(registrations, 1);
    node->manifest.key_epoch = 2;
    assert_int_equal(cn_node_poll_keys(node, NOW + 20000), CN_OK);
    assert_int_equal(registrations, 1);
    free(settings);
    free(node);
}

static cn_err open_nothing(const char *listen, const struct cn_member *members, uint32_t count,
                           uint32_t self, struct cn_peer_link **link)
{
    (void)listen, (void)members, (void)count, (void)self, (void)link;
    return CN_EIO;
}

// An aggregator that raises the epoch all the time: each raise ends where no socket can be opened.
static void raises_of_the_key_epoch_fill_no_log_and_leave_no_key(void **state)
{
    static const uint8_t none[CN_KEY_SIZE];
    const struct cn_ports ports = {.open_peer_link = open_nothing};
    struct cn_store files = {0}; // of the run, which stays the same
    struct cn_node_owner *node = calloc(1, sizeof(*node));
    struct cn_settings *settings = calloc(1, sizeof(*settings));
    struct log_capture capture;
    unsigned used;

    (void)state;
    assert_non_null(node);
    assert_non_null(settings);
    settings->group.member_count = 2;
    node->config.settings = settings;
    node->config.ports = &ports;
    node->group.settings = &settings->group;
    node->files = &files;
    node->registered = true;
    node->status.progress.phase = CN_PHASE_SEND;
    log_capture_begin(&capture);
    for (uint64_t epoch = 1; epoch <= 500; epoch++) {
        node->keys.waits = true;
        node->keys.manifest.key_epoch = epoch;
        memset(node->keys.manifest.pair_keys[1], 7, CN_KEY_SIZE);
        assert_int_equal(cn_node_poll_keys(node, NOW), CN_EIO);
        assert_int_equal(node->manifest.key_epoch, epoch);
        assert_int_equal(node->group.members[1].pair_key[0], 7);
        assert_memory_equal(node->keys.manifest.pair_keys[1], none, CN_KEY_SIZE);
    }
    assert_in_range(log_capture_end(&capture, "are used", &used), 2, CN_LOG_QUOTA_BURST + 60);
    assert_in_range(used, 1, CN_LOG_QUOTA_BURST);
    free(settings);
    free(node);
}

static void expect_told(struct cn_node_owner *node, cn_err disk, unsigned count, const char *text)
{
    atomic_store(&node->disk, disk);
    assert_int_equal(cn_node_poll_trouble(node), CN_OK);
    assert_int_equal(registrations, count);
    assert_string_equal(fault, text);
}

static void a_full_disk_and_a_round_given_up_are_told_and_their_end_too(void **state)
{
    static const struct cn_link_ops ops = {.register_board = register_board};
    struct cn_node_owner *node = calloc(1, sizeof(*node));
    struct cn_settings *settings = calloc(1, sizeof(*settings));
    struct cn_link link = {.ops = &ops};

    (void)state;
    assert_non_null(node);
    assert_non_null(settings);
    node->config.settings = settings;
    node->link = &link;
    node->working = true;
    node->result = CN_EAGAIN;
    registrations = 0;
    fault[0] = '\0';
    expect_told(node, CN_OK, 0, "");
    expect_told(node, CN_ENOSPC, 1, "the state cannot be stored: the disk is full");
    expect_told(node, CN_ENOSPC, 1, "the state cannot be stored: the disk is full");
    answer = CN_EAGAIN; // a registration is under way
    expect_told(node, CN_OK, 2, "");
    expect_told(node, CN_OK, 3, "");
    answer = CN_OK;
    expect_told(node, CN_OK, 4, "");
    expect_told(node, CN_OK, 4, "");
    atomic_store(&node->given_up, 7);
    expect_told(node, CN_OK, 5,
                "round 7 is given up: the loss or a weight change is not finite or too large");
    expect_told(node, CN_OK, 5,
                "round 7 is given up: the loss or a weight change is not finite or too large");
    expect_told(node, CN_ENOSPC, 6, "the state cannot be stored: the disk is full");
    atomic_store(&node->given_up, 0);
    expect_told(node, CN_OK, 7, "");
    snprintf(node->status.progress.hindered, CN_FAULT_SIZE, "a chain of 2 parts cannot be made");
    expect_told(node, CN_OK, 8, "a chain of 2 parts cannot be made");
    expect_told(node, CN_OK, 8, "a chain of 2 parts cannot be made");
    node->status.progress.hindered[0] = '\0';
    expect_told(node, CN_OK, 9, "");
    free(settings);
    free(node);
}

// The link as the worker's owner sees it: each round is reported once after the watch begins.
static bool watched;
static unsigned reports;

static cn_err watch(struct cn_link *link, bool on)
{
    (void)link;
    reports += on && !watched;
    watched = on;
    return CN_OK;
}

static void forget_transfers(struct cn_link *link)
{
    (void)link;
}

// The graph of a model as the aggregator sends it; the caller frees it.
static struct cn_buffer make_graph(void)
{
    static struct cn_diag diag;
    struct cn_onnx_file file;
    struct cn_onnx *onnx;
    struct cn_layout layout;
    struct cn_buffer graph;

    cn_diag_init(&diag);
    cn_buffer_init(&graph, CN_ONNX_FILE_MAX);
    assert_int_equal(cn_onnx_file_open(CAIRN_TEST_DATA "/models/batch-norm-1d.onnx", &diag, &file),
                     CN_OK);
    assert_int_equal(cn_onnx_open(file.data, file.size, &diag, &onnx), CN_OK);
    assert_int_equal(cn_onnx_layout(onnx, &diag, &layout), CN_OK);
    assert_int_equal(cn_export_graph(onnx, &layout, &graph), CN_OK);
    cn_layout_deinit(&layout);
    cn_onnx_close(onnx);
    cn_onnx_file_close(&file);
    return graph;
}

// New keys begin a new worker just after the link reported a round, which stays open.
static void a_new_worker_hears_of_a_round_that_was_reported_before(void **state)
{
    static const struct cn_link_ops ops = {
        .register_board = register_board, .watch = watch, .abandon = forget_transfers};
    static const struct cn_ports ports = {.collective = &cn_collective_solo};
    struct cn_buffer graph = make_graph();
    struct cn_node_owner *node = calloc(1, sizeof(*node));
    struct cn_settings *settings = calloc(1, sizeof(*settings));
    struct cn_link link = {.ops = &ops};
    char directory[] = "/tmp/cairn-node-XXXXXX", command[64];
    struct cn_store *store;

    (void)state;
    assert_non_null(node);
    assert_non_null(settings);
    assert_non_null(mkdtemp(directory));
    assert_int_equal(cn_platform_open_store(directory, &store), CN_OK);
    node->config.settings = settings;
    node->config.ports = &ports;
    node->config.store = node->files = store;
    node->link = &link;
    watched = false;
    reports = 0;
    assert_int_equal(cn_node_watch(node, true), CN_OK);
    assert_int_equal(reports, 1); // the worker before takes this one with it
    assert_int_equal(cn_node_take_graph(node, graph.data, graph.size), CN_OK);
    assert_true(node->working);
    assert_int_equal(cn_node_watch(node, true), CN_OK); // as when the worker is there
    assert_int_equal(reports, 2);
    cn_node_stop_worker(node);
    cn_platform_unmap(&node->model);
    cn_buffer_deinit(&graph);
    store->ops->close(store);
    snprintf(command, sizeof(command), "rm -rf %s", directory);
    assert_int_equal(system(command), 0); // NOLINT(cert-env33-c): a directory of this test
    free(settings);
    free(node);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_second_raise_within_seconds_is_asked_for_too),
        cmocka_unit_test(a_full_disk_and_a_round_given_up_are_told_and_their_end_too),
        cmocka_unit_test(a_new_worker_hears_of_a_round_that_was_reported_before),
        cmocka_unit_test(raises_of_the_key_epoch_fill_no_log_and_leave_no_key),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
