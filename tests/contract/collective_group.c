#include "tests/contract/collective_group.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "ports/nccl/abort.h"
#include "ports/nccl/collective_nccl.h"
#include "ports/tcp/collective_tcp.h"
#include "runtime/group/solo.h"
#include "runtime/port/platform.h"
#include "tests/support/fake_nccl.h"

const struct cn_collective_ops *const group_ops = &cn_collective_tcp;

static void fill_key(uint8_t key[CN_KEY_SIZE], uint32_t a, uint32_t b)
{
    memset(key, (int)(1 + (a < b ? a * 16 + b : b * 16 + a)), CN_KEY_SIZE);
}

// Every process has loopback addresses of its own, so tests can run side by side.
void group_set_up(struct fixture *fixture, uint32_t size)
{
    unsigned pid = (unsigned)getpid();

    memset(fixture, 0, sizeof(*fixture));
    fixture->size = size;
    for (uint32_t r = 0; r < size; r++) {
        struct rank *rank = &fixture->ranks[r];

        for (uint32_t m = 0; m < size; m++) {
            snprintf(rank->members[m].name, CN_NAME_SIZE, "board-%u", m);
            snprintf(rank->members[m].address, sizeof(rank->members[m].address),
                     "127.%u.%u.%u:7400", 100 + (pid >> 12) % 100, (pid >> 4) & 255,
                     1 + (pid & 15) * RANKS_MAX + m);
            if (m != r)
                fill_key(rank->members[m].pair_key, r, m);
        }
        rank->config.members = rank->members;
        rank->config.member_count = size;
        rank->config.view.epoch = 7;
        rank->config.view.size = size;
        rank->config.view.rank = r;
        for (uint32_t m = 0; m < size; m++)
            rank->config.view.ranks[m] = m;
        rank->config.open_timeout_ms = GROUP_TIMEOUT_MS;
        rank->config.progress_timeout_ms = GROUP_TIMEOUT_MS;
        rank->config.cancel_fd = -1;
        rank->data = aligned_alloc(sizeof(int64_t), COUNT_MAX * sizeof(int64_t));
        assert_non_null(rank->data);
        memset(rank->data, 0, COUNT_MAX * sizeof(int64_t));
    }
}

void group_tear_down(struct fixture *fixture)
{
    for (uint32_t r = 0; r < fixture->size; r++)
        free(fixture->ranks[r].data);
}

void group_use_sets(struct fixture *fixture, const struct cn_set *sets, uint32_t count)
{
    for (uint32_t r = 0; r < fixture->size; r++) {
        fixture->ranks[r].sets = sets;
        fixture->ranks[r].set_count = count;
    }
}

static bool wants(const char *collective)
{
    const char *wanted = getenv("CAIRN_COLLECTIVE");

    return wanted && strcmp(wanted, collective) == 0;
}

static uint32_t count_gpus(const struct nccl_library *library)
{
    uint32_t count = 0;

    while (library && count < RANKS_MAX && !library->device_enter(count))
        count++;
    return count;
}

// Returns the library for a group of this size; NULL for encrypted pairs.
static const struct nccl_library *library_for(uint32_t size)
{
    const struct nccl_library *library;
    const char *why;

    if (wants("nccl"))
        return &fake_nccl;
    library = wants("nccl_gpus") ? nccl_library_load(&why) : NULL;
    return count_gpus(library) < size ? NULL : library;
}

bool group_can_run(void)
{
    return !wants("nccl_gpus") || library_for(2);
}

static void run_body(struct rank *rank)
{
    rank->err = rank->collective->ops->prepare(rank->collective, rank->sets, rank->set_count);
    if (!rank->err)
        rank->body(rank);
}

// The body over NCCL, which needs the encrypted collective below it.
static void run_over_nccl(struct rank *rank, const struct nccl_library *library)
{
    struct cn_collective_config config = rank->config;

    fake_nccl_be((int)config.view.rank);
    config.control = rank->collective;
    config.device = config.view.rank;
    rank->err = cn_nccl_open_with(library, &config, &rank->collective);
    if (!rank->err) {
        cn_err met;

        run_body(rank);
        met = rank->err ? CN_OK : cn_barrier(rank->collective); // as the vote after a step
        (void)met;
        rank->collective->ops->close(rank->collective);
    }
    rank->collective = config.control;
}

// Tells what a failed assertion about err does not: in which phase it came, when, and who was
// named.
static void tell_end(const struct rank *rank, const char *phase, uint64_t begin_ms, uint32_t lost)
{
    if (rank->err)
        fprintf(stderr, "rank %u of %u: %s ended after %llu ms, lost %d: %s\n",
                rank->config.view.rank, rank->config.view.size, phase,
                (unsigned long long)(cn_platform_now_ms() - begin_ms), (int)lost,
                cn_err_text(rank->err));
}

void group_run_rank(struct rank *rank)
{
    const struct nccl_library *library = library_for(rank->config.view.size);
    const struct cn_collective_ops *ops =
        library && rank->config.view.size == 1 ? &cn_collective_solo : group_ops;
    uint64_t begin_ms = cn_platform_now_ms();

    rank->err = ops->open(&rank->config, &rank->collective, &rank->lost);
    tell_end(rank, "open", begin_ms, rank->lost);
    if (!rank->err) {
        if (library && ops == group_ops)
            run_over_nccl(rank, library);
        else
            run_body(rank);
        tell_end(rank, "body", begin_ms, ops->lost(rank->collective));
        ops->close(rank->collective);
    }
    rank->took_ms = cn_platform_now_ms() - begin_ms;
}

static void *rank_main(void *context)
{
    group_run_rank(context);
    return NULL;
}

void group_run(struct fixture *fixture, void (*body)(struct rank *rank))
{
    static const struct fake_nccl_plan healthy = {.newer_version_rank = -1};

    if (wants("nccl")) {
        assert_true(nccl_await_ends(GROUP_TIMEOUT_MS));
        fake_nccl_reset(&healthy);
    }
    for (uint32_t r = 0; r < fixture->size; r++) {
        fixture->ranks[r].body = body;
        assert_int_equal(
            pthread_create(&fixture->ranks[r].thread, NULL, rank_main, &fixture->ranks[r]), 0);
    }
    for (uint32_t r = 0; r < fixture->size; r++)
        pthread_join(fixture->ranks[r].thread, NULL);
}
