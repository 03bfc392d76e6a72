#include "tests/contract/compute_scene.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/contract/compute_trial.h"

#define TOLERANCE 2e-5

static const uint32_t thread_counts[] = {1, 2, 3, 7};

static size_t words_of(const struct scene *scene, int operand)
{
    return scene->operands[operand].words * (scene->operands[operand].batched ? scene->samples : 1);
}

void scene_init(struct scene *scene, uint32_t samples)
{
    *scene = (struct scene){.samples = samples};
}

void scene_deinit(struct scene *scene)
{
    for (int i = 0; i < scene->operand_count; i++) {
        free(scene->operands[i].data);
        free(scene->operands[i].wanted);
    }
}

int scene_add(struct scene *scene, enum cn_arena arena, size_t words, bool batched, bool compared)
{
    int index = scene->operand_count++;
    struct scene_operand *operand = &scene->operands[index];

    assert_true(scene->operand_count <= SCENE_OPERANDS);
    *operand = (struct scene_operand){.arena = arena, .words = words, .batched = batched};
    operand->data = calloc(words_of(scene, index) + 1, sizeof(*operand->data));
    for (size_t i = 0; i < words_of(scene, index); i++)
        operand->data[i] = trial_next_value();
    if (compared)
        operand->wanted = calloc(words_of(scene, index) + 1, sizeof(*operand->wanted));
    return index;
}

void scene_call(struct scene *scene, const struct cn_call *call, const int *in, size_t in_count,
                const int *out, size_t out_count)
{
    int index = scene->call_count++;

    assert_true(scene->call_count <= SCENE_CALLS);
    scene->calls[index] = *call;
    for (size_t i = 0; i < CN_CALL_INPUTS; i++)
        scene->in[index][i] = i < in_count ? in[i] : SCENE_NONE;
    for (size_t i = 0; i < CN_CALL_OUTPUTS; i++)
        scene->out[index][i] = i < out_count ? out[i] : SCENE_NONE;
}

static void place_operands(struct scene *scene, uint32_t lane_samples,
                           struct cn_compute_sizes *sizes)
{
    *sizes = (struct cn_compute_sizes){0};
    for (int i = 0; i < scene->operand_count; i++) {
        struct scene_operand *operand = &scene->operands[i];
        size_t samples = operand->arena == CN_ARENA_ACTIVATIONS ? lane_samples : scene->samples;
        size_t words = operand->words * (operand->batched ? samples : 1);

        operand->offset = sizes->words[operand->arena];
        sizes->words[operand->arena] += (words + 15) / 16 * 16;
    }
}

static struct cn_operand operand_of(const struct scene *scene, int index)
{
    const struct scene_operand *operand;

    if (index == SCENE_NONE)
        return (struct cn_operand){.arena = CN_ARENA_NONE};
    operand = &scene->operands[index];
    return (struct cn_operand){.arena = operand->arena,
                               .offset = operand->offset,
                               .stride = operand->batched ? operand->words : 0};
}

// The calls with their operands, and the workspaces behind all other activations.
static void resolve_calls(const struct cn_compute_ops *ops, const struct cn_compute *device,
                          const struct scene *scene, uint32_t lane_samples,
                          struct cn_compute_sizes *sizes, struct cn_call *calls)
{
    for (int i = 0; i < scene->call_count; i++) {
        size_t workspace = 0;

        calls[i] = scene->calls[i];
        for (int j = 0; j < CN_CALL_INPUTS; j++)
            calls[i].in[j] = operand_of(scene, scene->in[i][j]);
        for (int j = 0; j < CN_CALL_OUTPUTS; j++)
            calls[i].out[j] = operand_of(scene, scene->out[i][j]);
        assert_int_equal(ops->query(device, &calls[i], lane_samples, &workspace), CN_OK);
        if (!workspace)
            continue;
        calls[i].workspace = (struct cn_operand){.arena = CN_ARENA_ACTIVATIONS,
                                                 .offset = sizes->words[CN_ARENA_ACTIVATIONS]};
        sizes->words[CN_ARENA_ACTIVATIONS] += (workspace + 15) / 16 * 16;
    }
}

static void copy_operands(const struct cn_compute_ops *ops, struct cn_compute *device,
                          const struct scene *scene, float **results)
{
    for (int i = 0; i < scene->operand_count; i++) {
        const struct scene_operand *operand = &scene->operands[i];
        size_t size = words_of(scene, i) * sizeof(float);
        void *host;

        if (operand->arena == CN_ARENA_ACTIVATIONS || (results && !results[i]))
            continue;
        assert_int_equal(ops->map(device, operand->arena, &host), CN_OK);
        if (results)
            memcpy(results[i], (float *)host + operand->offset, size);
        else
            memcpy((float *)host + operand->offset, operand->data, size);
        assert_int_equal(ops->unmap(device, operand->arena), CN_OK);
    }
}

static void run_scene(const struct cn_compute_ops *ops, uint32_t threads, struct scene *scene,
                      float **results)
{
    struct cn_compute_config config = {.threads = threads, .precision = scene->precision};
    struct cn_hyper hyper = {.samples = scene->samples,
                             .first = true,
                             .seed = scene->seed,
                             .first_sample = scene->first_sample};
    struct cn_compute_sizes sizes;
    struct cn_compute_program *program = NULL;
    struct cn_compute *device = NULL;
    struct cn_compute_result result;
    struct cn_call calls[SCENE_CALLS];
    uint32_t lane_samples;

    assert_int_equal(ops->open(&config, &device), CN_OK);
    lane_samples = (scene->samples + ops->lanes(device) - 1) / ops->lanes(device);
    place_operands(scene, lane_samples, &sizes);
    resolve_calls(ops, device, scene, lane_samples, &sizes, calls);
    assert_int_equal(ops->reserve(device, &sizes, scene->samples), CN_OK);
    assert_int_equal(ops->prepare(device, calls, (size_t)scene->call_count, &program), CN_OK);
    copy_operands(ops, device, scene, NULL);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(ops->run(device, program, &hyper), CN_OK);
        hyper.first = false;
    }
    assert_int_equal(ops->wait(device, &result), CN_OK);
    if (sizes.words[CN_ARENA_GRADIENTS])
        trial_run_flat(ops, device, CN_OP_SUM_LANES, &hyper);
    copy_operands(ops, device, scene, results);
    ops->release(device, program);
    ops->close(device);
}

static void compare(const struct cn_compute_ops *ops, const struct scene *scene, int index,
                    const float *values, const char *name)
{
    const struct scene_operand *operand = &scene->operands[index];
    double times = operand->arena == CN_ARENA_GRADIENTS ? 2 : 1;
    double tolerance = scene->tolerance > 0 ? scene->tolerance : TOLERANCE;
    double largest = scene->precision == CN_PRECISION_FLOAT32 ? 1 : LARGEST_SHORT, worst = 0;

    for (size_t i = 0; i < words_of(scene, index); i++) {
        double wanted = operand->wanted[i] * times, value, error;
        int32_t integer;

        memcpy(&integer, &values[i], sizeof(integer));
        value = operand->integers ? integer : (double)values[i];
        error = isnan(wanted) && isnan(value) ? 0 : fabs(value - wanted);
        largest = fmax(largest, fabs(wanted));
        worst = error > worst || isnan(error) ? error : worst;
    }
    if (!(worst <= tolerance * largest))
        fail_msg("%s, %s, operand %d: off by %g of %g", ops->name, name, index, worst, largest);
}

static void check_on(const struct cn_compute_ops *ops, uint32_t threads, struct scene *scene,
                     const char *name)
{
    float *results[2][SCENE_OPERANDS] = {{NULL}};

    for (int i = 0; i < scene->operand_count; i++)
        for (int j = 0; j < 2; j++)
            results[j][i] = calloc(words_of(scene, i) + 1, sizeof(float));
    for (int j = 0; j < (trial_repeats() ? 2 : 1); j++)
        run_scene(ops, threads, scene, results[j]);
    for (int i = 0; i < scene->operand_count; i++) {
        if (scene->operands[i].wanted)
            compare(ops, scene, i, results[0][i], name);
        if (trial_repeats())
            assert_memory_equal(results[0][i], results[1][i], words_of(scene, i) * sizeof(float));
    }
    for (int i = 0; i < SCENE_OPERANDS; i++)
        for (int j = 0; j < 2; j++)
            free(results[j][i]);
}

static bool has_precision(const struct cn_compute_ops *ops, enum cn_precision precision)
{
    struct cn_compute_config config = {.threads = 1, .precision = precision};
    struct cn_compute *device;
    cn_err err;

    if (precision == CN_PRECISION_FLOAT32)
        return true;
    err = ops->open(&config, &device);
    if (!err)
        ops->close(device);
    else
        assert_int_equal(err, CN_ENOTSUP);
    return !err;
}

void scene_check(struct scene *scene, const char *name)
{
    const size_t all = sizeof(thread_counts) / sizeof(thread_counts[0]);

    for (size_t p = 0; p < trial_port_count; p++) {
        if (!has_precision(trial_ports[p], scene->precision))
            continue;
        for (size_t t = 0; t < trial_thread_counts(trial_ports[p], all); t++)
            check_on(trial_ports[p], thread_counts[t], scene, name);
    }
}
