// One rank over NCCL: what a machine with a single GPU can show of the port. It forms, sums in
// passes, ends in both ways, and forms again. Over a fake library, or with
// CAIRN_COLLECTIVE=nccl_gpus over NCCL itself. How long each part took is printed: an abort must
// stay below the limit of the library's table (ports/nccl/library.h).
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
// cmocka.h needs the four above.
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ports/nccl/abort.h"
#include "ports/nccl/collective_nccl.h"
#include "runtime/group/solo.h"
#include "runtime/port/platform.h"
#include "tests/support/fake_nccl.h"

#define COUNT 6000000 // more than a pass through the staging memory
#define PATIENCE_MS 60000

static const struct nccl_library *library;
static struct cn_member member;
static float numbers[COUNT];

static struct cn_collective_config config_of(void)
{
    return (struct cn_collective_config){.members = &member,
                                         .member_count = 1,
                                         .view = {.epoch = 1, .size = 1},
                                         .open_timeout_ms = PATIENCE_MS,
                                         .progress_timeout_ms = PATIENCE_MS,
                                         .cancel_fd = -1};
}

static void note(const char *what, uint64_t begun_ms)
{
    printf("%s: %llu ms\n", what, (unsigned long long)(cn_platform_now_ms() - begun_ms));
}

static struct cn_collective *open_one(struct cn_collective_config *config)
{
    uint64_t begun_ms = cn_platform_now_ms();
    struct cn_collective *nccl;
    uint32_t lost;

    assert_int_equal(cn_collective_solo.open(config, &config->control, &lost), CN_OK);
    assert_int_equal(cn_nccl_open_with(library, config, &nccl), CN_OK);
    note("forming, with the first sum", begun_ms);
    return nccl;
}

static void close_one(struct cn_collective *nccl, struct cn_collective *control, const char *how)
{
    uint64_t begun_ms = cn_platform_now_ms();

    nccl->ops->close(nccl);
    control->ops->close(control);
    assert_true(nccl_await_ends(PATIENCE_MS));
    note(how, begun_ms);
    assert_false(cn_nccl_wedged());
}

static void sum(struct cn_collective *nccl)
{
    uint64_t begun_ms = cn_platform_now_ms();

    for (size_t i = 0; i < COUNT; i++)
        numbers[i] = (float)(i % 1000);
    assert_int_equal(cn_all_reduce(nccl, CN_REDUCE_SUM, numbers, COUNT), CN_OK);
    note("a sum of 24 MB", begun_ms);
    for (size_t i = 0; i < COUNT; i++)
        assert_true(numbers[i] == (float)(i % 1000));
}

static void one_rank_sums_and_finalizes(void **state)
{
    (void)state;
    for (int epoch = 0; epoch < 2; epoch++) {
        struct cn_collective_config config = config_of();
        struct cn_collective *nccl = open_one(&config);

        sum(nccl);
        close_one(nccl, config.control, "finalizing");
    }
}

static void one_rank_that_is_canceled_aborts(void **state)
{
    struct cn_collective_config config = config_of();
    struct cn_collective *nccl = open_one(&config);

    (void)state;
    nccl->ops->cancel(nccl, false);
    close_one(nccl, config.control, "an abort");
}

// Each set of an epoch is a split of the whole group's communicator.
static void a_split_of_one_forms_and_ends_before_its_parent(void **state)
{
    struct nccl_config config = {.size = sizeof(config),
                                 .magic = NCCL_MAGIC,
                                 .version = NCCL_CONFIG_VERSION,
                                 .cga_cluster_size = NCCL_UNSET,
                                 .min_ctas = NCCL_UNSET,
                                 .max_ctas = NCCL_UNSET,
                                 .split_share = NCCL_UNSET};
    struct nccl_holdings held = {.library = library, .comm_count = 2};
    uint64_t begun_ms = cn_platform_now_ms();
    struct nccl_id id;
    int result;

    (void)state;
    assert_int_equal(library->device_enter(0), CUDA_SUCCESS);
    assert_int_equal(library->get_unique_id(&id), NCCL_SUCCESS);
    for (int made = 0; made < 2; made++) {
        nccl_comm *comm = &held.comms[made].handle;
        int status = NCCL_IN_PROGRESS;

        result = made ? library->comm_split(held.comms[0].handle, 0, 0, comm, &config)
                      : library->comm_init(comm, 1, id, 0, &config);
        assert_true(result == NCCL_SUCCESS || result == NCCL_IN_PROGRESS);
        for (int i = 0; i < PATIENCE_MS && status == NCCL_IN_PROGRESS; i++) {
            cn_platform_sleep_ms(1);
            assert_int_equal(
                library->comm_error(made && *comm ? *comm : held.comms[0].handle, &status),
                NCCL_SUCCESS);
            if (made && !*comm)
                status = NCCL_IN_PROGRESS;
        }
        assert_int_equal(status, NCCL_SUCCESS);
    }
    note("a communicator and its split", begun_ms);
    begun_ms = cn_platform_now_ms();
    assert_int_equal(nccl_end(&held, false), CN_OK);
    assert_true(nccl_await_ends(PATIENCE_MS));
    note("an abort of both", begun_ms);
}

int main(void)
{
    const struct fake_nccl_plan healthy = {.newer_version_rank = -1};
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_rank_sums_and_finalizes),
        cmocka_unit_test(one_rank_that_is_canceled_aborts),
        cmocka_unit_test(a_split_of_one_forms_and_ends_before_its_parent),
    };
    const char *wanted = getenv("CAIRN_COLLECTIVE"), *why = NULL;

    library = wanted && strcmp(wanted, "nccl_gpus") == 0 ? nccl_library_load(&why) : &fake_nccl;
    if (!library) {
        printf("skipped: %s\n", why);
        return 77;
    }
    snprintf(member.name, sizeof(member.name), "alone");
    fake_nccl_reset(&healthy);
    fake_nccl_be(0);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
