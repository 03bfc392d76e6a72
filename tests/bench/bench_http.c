// bench_http.c - what an answer over HTTP costs a gateway with many boards.
//
// usage: bench_http [BOARDS]
//
// Four boards are a group. All have been heard. The best and the median of the times are printed.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "aggregator/serve/metrics.h"
#include "aggregator/serve/status.h"
#include "aggregator/show/show.h"
#include "runtime/port/platform.h"
#include "tests/support/flaky_store.h"

#define REPEATS 51
#define LIMIT (64u << 20)

struct bench {
    char directory[64];
    struct cn_ledger *ledger;
    struct cn_roster *roster;
    struct cn_flaky_store store;
    struct cn_spool *spool;
    struct cn_job job;
    struct cn_run_state state;
    struct cn_run_counts counts;
    struct cn_histogram pauses;
    struct cn_show_tracker tracker;
    uint32_t series;
    uint64_t since;
    size_t size; // of the last answer
};

static void must(cn_err err, const char *what)
{
    if (!err)
        return;
    fprintf(stderr, "%s: %s\n", what, cn_err_text(err));
    exit(1);
}

static void enroll(struct bench *bench, int count)
{
    for (int i = 0; i < count; i++) {
        struct cn_ledger_board board = {.secret = {1}};
        snprintf(board.name, sizeof(board.name), "board-%05d", i);
        snprintf(board.group, sizeof(board.group), "group-%05d", i / 4);
        must(cn_ledger_enroll(bench->ledger, &board), board.name);
    }
}

static void open_bench(struct bench *bench, int count)
{
    static const struct cn_roster_facts facts = {.cpu_count = 6, .memory = 1u << 30, .type = "x"};
    snprintf(bench->directory, sizeof(bench->directory), "/dev/shm/cairn-bench-XXXXXX");
    if (!mkdtemp(bench->directory))
        exit(1);
    must(cn_ledger_open(bench->directory, &bench->ledger), "ledger");
    enroll(bench, count);
    must(cn_roster_open(bench->ledger, &bench->roster), "roster");
    cn_flaky_store_init(&bench->store);
    const struct cn_spool_config spool = {
        .store = &bench->store.store, .frame_max = 1000, .chunk_size = 64};
    must(cn_spool_open(&spool, &bench->spool), "spool");
    bench->job = (struct cn_job){.name = "job", .rounds = 30, .quorum = 2, .deadline_ms = 60000};
    bench->counts.round.bounds = bench->counts.merge.bounds = cn_histogram_work;
    bench->counts.evaluation.bounds = bench->counts.commit.bounds = cn_histogram_work;
    bench->pauses.bounds = cn_histogram_pauses;
    for (int i = 0; i < count; i++) {
        char name[CN_NAME_SIZE];
        snprintf(name, sizeof(name), "board-%05d", i);
        cn_roster_hear(bench->roster, name, cn_platform_now_ms());
        cn_roster_note(bench->roster, name, &facts);
    }
}

static void close_bench(struct bench *bench)
{
    static const char *const suffixes[] = {"", "-wal", "-shm"};
    char path[128];
    cn_show_tracker_deinit(&bench->tracker);
    cn_spool_close(bench->spool);
    cn_flaky_store_deinit(&bench->store);
    cn_roster_close(bench->roster);
    cn_ledger_close(bench->ledger);
    for (size_t i = 0; i < 3; i++) {
        snprintf(path, sizeof(path), "%s/%s%s", bench->directory, CN_LEDGER_FILE, suffixes[i]);
        unlink(path);
    }
    rmdir(bench->directory);
}

static cn_err answer_metrics(struct bench *bench, struct cn_buffer *out)
{
    const struct cn_coap_server_stats stats = {0};
    const struct cn_metrics_source source = {
        .job = &bench->job,
        .state = &bench->state,
        .counts = &bench->counts,
        .roster = bench->roster,
        .spool = bench->spool,
        .server = &stats,
        .pauses = &bench->pauses,
        .release = "bench",
        .board_series = bench->series,
        .now_ms = cn_platform_now_ms(),
    };
    return cn_metrics_write(&source, out);
}

static cn_err answer_state(struct bench *bench, struct cn_buffer *out)
{
    struct cn_live_state live;
    cn_err err = cn_status_gather(bench->roster, &bench->state, &live);
    const struct cn_show_source source = {
        .ledger = bench->ledger,
        .job = &bench->job,
        .live = &live,
        .progress = &bench->state.progress,
        .now_ms = cn_platform_now_ms(),
        .date_ms = 1,
    };
    if (!err)
        err = cn_show_state(&source, &bench->tracker, bench->since, out);
    cn_status_deinit(&live);
    return err;
}

static int compare(const void *a, const void *b)
{
    double first = *(const double *)a, second = *(const double *)b;
    return (first > second) - (first < second);
}

static void measure(struct bench *bench, const char *what,
                    cn_err (*answer)(struct bench *bench, struct cn_buffer *out))
{
    double took_ms[REPEATS];
    for (int i = 0; i < REPEATS; i++) {
        struct cn_buffer out;
        cn_buffer_init(&out, LIMIT);
        uint64_t begin_us = cn_platform_now_us();
        must(answer(bench, &out), what);
        took_ms[i] = (double)(cn_platform_now_us() - begin_us) / 1e3;
        bench->size = out.size;
        cn_buffer_deinit(&out);
    }
    qsort(took_ms, REPEATS, sizeof(took_ms[0]), compare);
    printf("%-28s best %6.2f ms, median %6.2f ms, %7zu bytes\n", what, took_ms[0],
           took_ms[REPEATS / 2], bench->size);
}

int main(int argc, char **argv)
{
    struct bench bench = {.series = 0};
    int boards = argc > 1 ? atoi(argv[1]) : 1000;
    open_bench(&bench, boards > 0 ? boards : 1);
    measure(&bench, "metrics", answer_metrics);
    bench.series = UINT32_MAX;
    measure(&bench, "metrics of each board", answer_metrics);
    measure(&bench, "state, all boards", answer_state);
    bench.since = bench.tracker.newest;
    measure(&bench, "state, what changed", answer_state);
    close_bench(&bench);
    return 0;
}
