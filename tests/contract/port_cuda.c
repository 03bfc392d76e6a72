// What only the CUDA port has: a GPU that is missing or fails, libraries that are missing, programs
// that cannot be captured, batches smaller than the largest. On a host's GPU (cuda_host.h).
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "ports/cuda/kernels_image.h"
#include "tests/support/cuda_host.h"

#define COUNT 8 // words of a sample
#define OUT 5

static const struct cn_compute_ops *const ops = &cn_compute_cuda_host;

// A layer and its gradient: y = relu(x w), dw = y' x.
struct scene {
    struct cn_compute *device;
    struct cn_compute_program *train, *apply;
    uint32_t samples;
};

static struct cn_operand at(enum cn_arena arena, size_t offset, size_t stride)
{
    return (struct cn_operand){.arena = arena, .offset = offset, .stride = stride};
}

static cn_err open_scene(struct scene *scene, uint32_t samples)
{
    struct cn_compute_config config = {.threads = 1};
    struct cn_call calls[2] = {
        {.op = CN_OP_MATMUL,
         .matmul = {.rows = 1, .inner = COUNT, .cols = OUT, .alpha = 1, .relu = true},
         .in = {at(CN_ARENA_BATCH, 0, COUNT), at(CN_ARENA_WEIGHTS, 0, 0)},
         .out = {at(CN_ARENA_ACTIVATIONS, 0, OUT)}},
        {.op = CN_OP_BIAS_GRAD,
         .write = CN_WRITE_STEP,
         .bias = {.rows = 1, .channels = OUT, .inner = 1, .scale = 1},
         .in = {at(CN_ARENA_ACTIVATIONS, 0, OUT)},
         .out = {at(CN_ARENA_GRADIENTS, 0, 0)}},
    };
    struct cn_call flat[2] = {{.op = CN_OP_CHECK}, {.op = CN_OP_SGD, .range = {.count = OUT}}};
    struct cn_compute_sizes sizes = {0};
    size_t words = 0;
    cn_err err = ops->open(&config, &scene->device);

    scene->samples = samples;
    sizes.words[CN_ARENA_BATCH] = (size_t)samples * COUNT;
    sizes.words[CN_ARENA_WEIGHTS] = COUNT * OUT;
    sizes.words[CN_ARENA_GRADIENTS] = sizes.words[CN_ARENA_OPTIMIZER] = COUNT * OUT;
    sizes.words[CN_ARENA_ACTIVATIONS] = 1024;
    for (int i = 0; i < 2 && !err; i++) {
        err = ops->query(scene->device, &calls[i], samples, &words);
        calls[i].workspace = at(CN_ARENA_ACTIVATIONS, sizes.words[CN_ARENA_ACTIVATIONS], 0);
        sizes.words[CN_ARENA_ACTIVATIONS] += words;
    }
    if (!err)
        err = ops->reserve(scene->device, &sizes, samples);
    if (!err)
        err = ops->prepare(scene->device, calls, 2, &scene->train);
    return err ? err : ops->prepare(scene->device, flat, 2, &scene->apply);
}

static void close_scene(struct scene *scene)
{
    if (scene->device) {
        ops->release(scene->device, scene->train);
        ops->release(scene->device, scene->apply);
    }
    ops->close(scene->device);
}

static cn_err write(struct scene *scene, enum cn_arena arena, size_t count, float first)
{
    void *host;
    cn_err err = ops->map(scene->device, arena, &host);

    if (err)
        return err;
    for (size_t i = 0; i < count; i++)
        ((float *)host)[i] = first + 0.01f * (float)(i % 37);
    return ops->unmap(scene->device, arena);
}

// Trains a step with this number of samples, and copies the weights after it.
static cn_err step(struct scene *scene, uint32_t samples, float weights[COUNT * OUT])
{
    struct cn_hyper hyper = {
        .samples = samples, .first = true, .gradient_scale = 1, .learning_rate = 0.5f};
    struct cn_compute_result result;
    void *host;
    cn_err err = write(scene, CN_ARENA_WEIGHTS, COUNT * OUT, 0.5f);

    if (!err)
        err = write(scene, CN_ARENA_BATCH, (size_t)samples * COUNT, 0.25f);
    if (!err)
        err = ops->run(scene->device, scene->train, &hyper);
    if (!err)
        err = ops->run(scene->device, scene->apply, &hyper);
    if (!err)
        err = ops->wait(scene->device, &result);
    if (!err)
        err = ops->map(scene->device, CN_ARENA_WEIGHTS, &host);
    if (err)
        return err;
    memcpy(weights, host, COUNT * OUT * sizeof(float));
    return ops->unmap(scene->device, CN_ARENA_WEIGHTS);
}

static cn_err run_once(uint32_t largest, uint32_t samples, float weights[COUNT * OUT])
{
    struct scene scene = {0};
    cn_err err = open_scene(&scene, largest);

    if (!err)
        err = step(&scene, samples, weights);
    close_scene(&scene);
    return err;
}

static int start_anew(void **state)
{
    (void)state;
    cuda_host_settings = (struct cuda_host_settings){0};
    cuda_host_counts = (struct cuda_host_counts){0};
    return 0;
}

static void a_missing_gpu_or_an_old_driver_is_not_supported(void **state)
{
    const struct cuda_host_settings lacking[] = {{.no_device = true},
                                                 {.driver_version = 12040},
                                                 {.driver_version = cuda_images_driver - 10},
                                                 {.capability = 75}};
    const struct cn_compute_config config = {.threads = 1};
    struct cn_compute *device;

    (void)state;
    for (size_t i = 0; i < sizeof(lacking) / sizeof(lacking[0]); i++) {
        cuda_host_settings = lacking[i];
        assert_int_equal(ops->open(&config, &device), CN_ENOTSUP);
    }
    assert_int_equal(cuda_host_counts.allocations, 0);
}

static const void *image_loaded_by(int capability, int driver)
{
    const struct cn_compute_config config = {.threads = 1};
    struct cn_compute *device;

    cuda_host_settings =
        (struct cuda_host_settings){.capability = capability, .driver_version = driver};
    cuda_host_counts.image = NULL;
    assert_int_equal(ops->open(&config, &device), CN_OK);
    ops->close(device);
    return cuda_host_counts.image;
}

static void a_gpu_loads_the_image_of_its_capability_or_that_for_all(void **state)
{
    const struct cuda_image *image = cuda_images;

    (void)state;
    for (; image->capability; image++)
        assert_ptr_equal(image_loaded_by((int)image->capability, 0), image->data);
    assert_ptr_equal(image_loaded_by(80, cuda_images_driver), image->data);
    assert_ptr_equal(image_loaded_by(87, cuda_images_driver), image->data);
    assert_ptr_equal(image_loaded_by(120, 0), image->data);
}

static void every_failure_of_the_driver_is_reported_and_leaves_nothing(void **state)
{
    float weights[COUNT * OUT];

    (void)state;
    for (int lasting = 0; lasting < 2; lasting++)
        for (uint64_t fail_at = 1;; fail_at++) {
            cn_err err;

            cuda_host_counts = (struct cuda_host_counts){0};
            cuda_host_settings =
                (struct cuda_host_settings){.fail_at = fail_at, .fail_on = lasting};
            err = run_once(4, 4, weights);
            assert_int_equal(cuda_host_counts.allocations, 0);
            assert_int_equal(cuda_host_counts.descriptors, 0);
            if (cuda_host_counts.driver_calls < fail_at) {
                assert_int_equal(err, CN_OK);
                break;
            }
            assert_true(fail_at < 10000);
        }
}

static void all_ways_to_run_a_program_give_one_result(void **state)
{
    static const struct cuda_host_settings ways[] = {
        {.no_capture = true},
        {.unified = true},
        {.unified = true, .managed = true},
        {.block = 256},
        {.late = true},
        {.unified = true, .late = true},
        {.unified = true, .managed = true, .apart = true, .late = true}};
    float wanted[COUNT * OUT] = {0}, weights[COUNT * OUT] = {0};

    (void)state;
    assert_int_equal(run_once(4, 4, wanted), CN_OK);
    assert_true(cuda_host_counts.graph_launches == 2);
    for (size_t i = 0; i < sizeof(ways) / sizeof(ways[0]); i++) {
        cuda_host_settings = ways[i];
        assert_int_equal(run_once(4, 4, weights), CN_OK);
        if (!ways[i].block) // sums over rows depend on the threads of a block
            assert_memory_equal(weights, wanted, sizeof(wanted));
        for (size_t j = 0; j < COUNT * OUT; j++)
            assert_float_equal(weights[j], wanted[j], 1e-6f);
    }
}

// A batch that is filled while the GPU still works on the one before: what it computed is that of
// waiting for each.
static void a_batch_is_filled_beside_the_work_on_the_one_before(void **state)
{
    float weights[2][COUNT * OUT];

    (void)state;
    for (int late = 0; late < 2; late++) {
        struct cn_hyper hyper = {.samples = 4, .gradient_scale = 1, .learning_rate = 0.5f};
        struct cn_compute_result result;
        struct scene scene = {0};
        void *host;

        cuda_host_settings = (struct cuda_host_settings){.late = late};
        cuda_host_counts = (struct cuda_host_counts){0};
        assert_int_equal(open_scene(&scene, 4), CN_OK);
        assert_int_equal(write(&scene, CN_ARENA_WEIGHTS, COUNT * OUT, 0.5f), CN_OK);
        for (int batch = 0; batch < 5; batch++) {
            hyper.first = batch == 0;
            assert_int_equal(write(&scene, CN_ARENA_BATCH, 4 * COUNT, 0.25f * (float)batch), CN_OK);
            assert_int_equal(ops->run(scene.device, scene.train, &hyper), CN_OK);
        }
        if (late) // the last batches are still to be worked on, and no batch waited for the work
            assert_true(cuda_host_counts.launches_done < cuda_host_counts.graph_launches);
        assert_int_equal(ops->run(scene.device, scene.apply, &hyper), CN_OK);
        assert_int_equal(ops->wait(scene.device, &result), CN_OK);
        assert_int_equal(ops->map(scene.device, CN_ARENA_WEIGHTS, &host), CN_OK);
        memcpy(weights[late], host, sizeof(weights[late]));
        assert_int_equal(ops->unmap(scene.device, CN_ARENA_WEIGHTS), CN_OK);
        close_scene(&scene);
    }
    assert_memory_equal(weights[0], weights[1], sizeof(weights[0]));
}

static void samples_that_a_batch_lacks_do_not_count(void **state)
{
    float wanted[COUNT * OUT] = {0}, weights[COUNT * OUT] = {0};

    (void)state;
    assert_int_equal(run_once(3, 3, wanted), CN_OK);
    for (uint32_t largest = 4; largest < 9; largest++) {
        assert_int_equal(run_once(largest, 3, weights), CN_OK);
        for (size_t i = 0; i < COUNT * OUT; i++)
            assert_float_equal(weights[i], wanted[i], 1e-5f);
    }
}

static void a_batch_is_not_copied_back_and_shared_memory_not_at_all(void **state)
{
    float weights[COUNT * OUT];

    (void)state;
    cuda_host_settings = (struct cuda_host_settings){.unified = true, .managed = true};
    assert_int_equal(run_once(4, 4, weights), CN_OK);
    // Only the result of wait, the first state and the ranges of check and optimizer.
    assert_int_equal(cuda_host_counts.copied_out, sizeof(struct cuda_state));
    assert_int_equal(cuda_host_counts.copied_in,
                     sizeof(struct cuda_state) + 2 * sizeof(struct cuda_range));
}

// As after an error of somebody else: the parts are taken back before they are there.
static void parts_that_nobody_waited_for_are_whole_when_they_go_back(void **state)
{
    float wanted[COUNT * OUT], *weights;
    struct cn_hyper hyper = {
        .samples = 4, .first = true, .gradient_scale = 1, .learning_rate = 0.5f};
    struct cn_compute_result result;
    struct scene scene = {0};
    void *host;

    (void)state;
    assert_int_equal(run_once(4, 4, wanted), CN_OK);
    cuda_host_settings = (struct cuda_host_settings){.late = true};
    assert_int_equal(open_scene(&scene, 4), CN_OK);
    assert_int_equal(write(&scene, CN_ARENA_WEIGHTS, COUNT * OUT, 0.5f), CN_OK);
    assert_int_equal(write(&scene, CN_ARENA_BATCH, 4 * COUNT, 0.25f), CN_OK);
    assert_int_equal(ops->run(scene.device, scene.train, &hyper), CN_OK);
    assert_int_equal(ops->show(scene.device, CN_ARENA_GRADIENTS, 0, OUT, &host), CN_OK);
    assert_int_equal(ops->unmap(scene.device, CN_ARENA_GRADIENTS), CN_OK);
    assert_int_equal(ops->run(scene.device, scene.apply, &hyper), CN_OK);
    assert_int_equal(ops->wait(scene.device, &result), CN_OK);
    assert_int_equal(ops->map(scene.device, CN_ARENA_WEIGHTS, &host), CN_OK);
    weights = host;
    assert_memory_equal(weights, wanted, sizeof(wanted));
    close_scene(&scene);
}

static void what_an_optimizer_only_reads_is_not_copied_back(void **state)
{
    static const struct {
        enum cn_arena arena;
        bool copied;
    } arenas[] = {
        {CN_ARENA_WEIGHTS, true}, {CN_ARENA_OPTIMIZER, true}, {CN_ARENA_GRADIENTS, false}};
    struct cn_hyper hyper = {.gradient_scale = 1, .learning_rate = 0.5f};
    struct cn_compute_result result;
    float weights[COUNT * OUT];
    struct scene scene = {0};
    void *host;

    (void)state;
    assert_int_equal(open_scene(&scene, 4), CN_OK);
    assert_int_equal(step(&scene, 4, weights), CN_OK);
    assert_int_equal(ops->map(scene.device, CN_ARENA_GRADIENTS, &host), CN_OK);
    assert_int_equal(ops->unmap(scene.device, CN_ARENA_GRADIENTS), CN_OK);
    assert_int_equal(ops->run(scene.device, scene.apply, &hyper), CN_OK);
    assert_int_equal(ops->wait(scene.device, &result), CN_OK);
    for (size_t i = 0; i < sizeof(arenas) / sizeof(arenas[0]); i++) {
        uint64_t copied = cuda_host_counts.copied_out;

        assert_int_equal(ops->map(scene.device, arenas[i].arena, &host), CN_OK);
        assert_true((cuda_host_counts.copied_out > copied) == arenas[i].copied);
        assert_int_equal(ops->unmap(scene.device, arenas[i].arena), CN_OK);
    }
    close_scene(&scene);
}

static void an_arena_beyond_what_kernels_count_is_refused(void **state)
{
    const struct cn_compute_config config = {.threads = 1};
    const struct cn_compute_sizes sizes = {.words[CN_ARENA_WEIGHTS] = (size_t)INT32_MAX + 1};
    struct cn_compute *device;

    (void)state;
    assert_int_equal(ops->open(&config, &device), CN_OK);
    assert_int_equal(ops->reserve(device, &sizes, 1), CN_ENOTSUP);
    ops->close(device);
    assert_int_equal(cuda_host_counts.allocations, 0);
}

static struct cn_compute *open_loaded(void)
{
    const struct cn_compute_config config = {.threads = 1};
    struct cn_compute *device;

    cuda_host_settings.loaded = true;
    assert_int_equal(ops->open(&config, &device), CN_OK);
    return device;
}

// Kernels and the handles of both libraries are made once, or once for each of two devices that
// are open together. The results stay the same.
static void a_device_takes_what_the_one_before_it_left(void **state)
{
    float weights[2][COUNT * OUT];
    struct cn_compute *two[2];

    (void)state;
    cuda_host_settings.loaded = true;
    for (int i = 0; i < 2; i++)
        assert_int_equal(run_once(4, 4, weights[i]), CN_OK);
    assert_memory_equal(weights[0], weights[1], sizeof(weights[0]));
    assert_int_equal(cuda_host_counts.modules, 1);
    assert_int_equal(cuda_host_counts.handles, 2);
    assert_int_equal(cuda_host_counts.allocations, 0);
    for (int i = 0; i < 2; i++)
        two[i] = open_loaded();
    for (int i = 0; i < 2; i++)
        ops->close(two[i]);
    ops->close(open_loaded());
    assert_int_equal(cuda_host_counts.modules, 2);
    assert_int_equal(cuda_host_counts.handles, 4);
    assert_int_equal(cuda_host_counts.descriptors, 2); // those that are kept
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(a_missing_gpu_or_an_old_driver_is_not_supported, start_anew),
        cmocka_unit_test_setup(a_gpu_loads_the_image_of_its_capability_or_that_for_all, start_anew),
        cmocka_unit_test_setup(every_failure_of_the_driver_is_reported_and_leaves_nothing,
                               start_anew),
        cmocka_unit_test_setup(all_ways_to_run_a_program_give_one_result, start_anew),
        cmocka_unit_test_setup(a_batch_is_filled_beside_the_work_on_the_one_before, start_anew),
        cmocka_unit_test_setup(samples_that_a_batch_lacks_do_not_count, start_anew),
        cmocka_unit_test_setup(a_batch_is_not_copied_back_and_shared_memory_not_at_all, start_anew),
        cmocka_unit_test_setup(parts_that_nobody_waited_for_are_whole_when_they_go_back,
                               start_anew),
        cmocka_unit_test_setup(what_an_optimizer_only_reads_is_not_copied_back, start_anew),
        cmocka_unit_test_setup(an_arena_beyond_what_kernels_count_is_refused, start_anew),
        cmocka_unit_test_setup(a_device_takes_what_the_one_before_it_left, start_anew),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
