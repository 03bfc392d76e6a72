// A training step takes no memory. The linker sends every allocation of the program through the
// counters below (--wrap).
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "ports/cpu/compute_cpu.h"
#include "runtime/engine/trainer/trainer_buckets.h"
#include "tests/unit/net.h"

static unsigned allocations;

void *__real_malloc(size_t size);
void *__real_calloc(size_t count, size_t size);
void *__real_realloc(void *memory, size_t size);
void *__real_aligned_alloc(size_t alignment, size_t size);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t count, size_t size);
void *__wrap_realloc(void *memory, size_t size);
void *__wrap_aligned_alloc(size_t alignment, size_t size);

void *__wrap_malloc(size_t size)
{
    allocations++;
    return __real_malloc(size);
}

void *__wrap_calloc(size_t count, size_t size)
{
    allocations++;
    return __real_calloc(count, size);
}

void *__wrap_realloc(void *memory, size_t size)
{
    allocations++;
    return __real_realloc(memory, size);
}

void *__wrap_aligned_alloc(size_t alignment, size_t size)
{
    allocations++;
    return __real_aligned_alloc(alignment, size);
}

static void a_step_allocates_nothing(void **state)
{
    static const struct net net = {"2,8,8",
                                   {"weight w 4,2,3,3", "weight b 4",
                                    "Conv x w b -> c pads=1,1,1,1", "Relu c -> r",
                                    "MaxPool r -> m kernel_shape=2,2 strides=2,2", "Flatten m -> f",
                                    "weight v 3,64", "Gemm f v -> y transB=1"}};
    struct cn_trainer_config config = {.compute = &cn_compute_cpu, .threads = 2, .batch = 4};
    static float inputs[4 * 128];
    int32_t labels[4] = {0, 1, 2, 0};
    struct cn_batch batch = {.inputs = inputs, .labels = labels, .count = 4};
    struct message model = net_message(&net);
    struct cn_metrics metrics = {0};
    struct cn_trainer *trainer;
    struct cn_onnx *onnx;
    float *gradients;

    (void)state;
    assert_int_equal(cn_onnx_open(model.bytes, model.size, NULL, &onnx), CN_OK);
    allocations = 0;
    assert_int_equal(cn_trainer_open(onnx, &config, NULL, &trainer), CN_OK);
    assert_true(allocations > 0);
    allocations = 0;
    for (int i = 0; i < 3; i++) {
        assert_int_equal(cn_trainer_accumulate(trainer, &batch, &metrics), CN_OK);
        assert_int_equal(cn_trainer_gradients(trainer, &gradients), CN_OK);
        assert_int_equal(cn_trainer_apply(trainer, 4), CN_OK);
        assert_int_equal(cn_trainer_evaluate(trainer, &batch, &metrics), CN_OK);
        assert_int_equal(cn_trainer_discard(trainer), CN_OK);
    }
    assert_int_equal(allocations, 0);
    cn_trainer_close(trainer);
    cn_onnx_close(onnx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_step_allocates_nothing),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
