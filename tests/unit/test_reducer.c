// A step's buckets in calls: the first alone, each further call a window of them, all of them once.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "ports/cpu/compute_cpu.h"
#include "runtime/engine/trainer/trainer_buckets.h"
#include "runtime/port/platform.h"
#include "runtime/round/session/session_reduce.h"

// A collective that writes down what it is called with.
struct fake {
    struct cn_collective base;
    struct cn_collective_call calls[CN_TRAINER_BUCKETS];
    uint32_t count;
    cn_err err;
};

static cn_err fake_run(struct cn_collective *collective, const struct cn_collective_call *call)
{
    struct fake *fake = (struct fake *)collective;

    fake->calls[fake->count++] = *call;
    return fake->err;
}

static void fake_cancel(struct cn_collective *collective, bool gives_up)
{
    (void)gives_up;
    (void)collective;
}

static const struct cn_collective_ops fake_ops = {
    .name = "fake", .run = fake_run, .cancel = fake_cancel};

struct reducer_world {
    struct cn_mapping model;
    struct cn_onnx *onnx;
    struct fake fake;
    struct cn_reducer reducer;
    float *gradients;
};

static int set_up(void **state)
{
    struct reducer_world *world = calloc(1, sizeof(*world));
    const struct cn_trainer_config config = {
        .compute = &cn_compute_cpu, .threads = 1, .batch = 1, .loss = CN_LOSS_CROSS_ENTROPY};
    struct cn_diag diag;

    assert_non_null(world);
    cn_diag_init(&diag);
    assert_int_equal(cn_platform_map(CAIRN_TEST_DATA "/text/char-gpt.onnx", 1 << 20, &world->model),
                     CN_OK);
    assert_int_equal(cn_onnx_open(world->model.data, world->model.size, &diag, &world->onnx),
                     CN_OK);
    if (cn_trainer_open(world->onnx, &config, &diag, &world->reducer.trainer))
        fail_msg("%s", cn_diag_first(&diag));
    world->fake.base.ops = &fake_ops;
    world->reducer.collective = &world->fake.base;
    assert_int_equal(cn_queue_open(&world->fake.base, &world->reducer.queue), CN_OK);
    assert_int_equal(cn_trainer_gradients(world->reducer.trainer, &world->gradients), CN_OK);
    *state = world;
    return 0;
}

static int tear_down(void **state)
{
    struct reducer_world *world = *state;

    cn_queue_close(world->reducer.queue);
    cn_trainer_close(world->reducer.trainer);
    cn_onnx_close(world->onnx);
    cn_platform_unmap(&world->model);
    free(world);
    return 0;
}

// Reduces a step in which the trainer reports the first `told` buckets. The reducer finds the
// others by itself.
static cn_err reduce(struct reducer_world *world, uint32_t window, uint32_t told)
{
    const struct cn_bucket_choice choice = {sizeof(float), window};
    struct cn_reducer *reducer = &world->reducer;
    struct cn_trainer_sink sink;
    float *data = world->gradients;

    assert_int_equal(cn_reducer_use(reducer, &choice), CN_OK);
    assert_true(cn_trainer_bucket_count(reducer->trainer) >= 5);
    world->fake.count = 0;
    cn_reducer_begin(reducer, &sink);
    for (uint32_t i = 0; i < told && i < cn_trainer_bucket_count(reducer->trainer); i++) {
        size_t words = cn_trainer_bucket_words(reducer->trainer, i);

        sink.ready(sink.context, i, data, words);
        data += words;
    }
    return cn_reducer_finish(reducer);
}

static void every_gradient_is_in_one_call_whatever_the_window(void **state)
{
    struct reducer_world *world = *state;
    size_t words = cn_trainer_gradient_words(world->reducer.trainer);

    for (uint32_t window = 1; window <= CN_WINDOW_MOST; window++)
        for (uint32_t told = 0; told <= 4; told++) {
            const float *next = world->gradients;
            uint32_t buckets, calls;

            assert_int_equal(reduce(world, window, told), CN_OK);
            buckets = cn_trainer_bucket_count(world->reducer.trainer);
            calls = 1 + (buckets - 1 + window - 1) / window;
            assert_int_equal(world->fake.count, calls);
            assert_int_equal(world->fake.calls[0].count,
                             cn_trainer_bucket_words(world->reducer.trainer, 0));
            for (uint32_t i = 0; i < calls; i++) {
                assert_ptr_equal(world->fake.calls[i].data, next);
                next += world->fake.calls[i].count;
                for (uint32_t j = 0; j < i; j++) // all members tell them apart
                    assert_int_not_equal(world->fake.calls[i].fingerprint,
                                         world->fake.calls[j].fingerprint);
            }
            assert_ptr_equal(next, world->gradients + words);
        }
}

static void a_call_that_fails_ends_the_step(void **state)
{
    struct reducer_world *world = *state;

    world->fake.err = CN_EPEER;
    assert_int_equal(reduce(world, 2, 4), CN_EPEER);
    assert_int_equal(world->fake.count, 1); // what is behind it is not tried
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(every_gradient_is_in_one_call_whatever_the_window, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(a_call_that_fails_ends_the_step, set_up, tear_down),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
