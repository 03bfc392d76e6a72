// Batch normalization and dropout, on every compute port.
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/contract/compute_scene.h"
#include "tests/support/kernels_present.h"

#define EPSILON 1e-3f

// A layer and its gradient: the operands by name.
struct layer {
    struct scene scene;
    struct cn_batch_norm op;
    int x, gamma, beta, mean, variance, residual;
    int y, saved, dmean, dvariance;
    int dy, dx, dgamma, dbeta, dresidual;
};

static size_t at_of(const struct layer *layer, size_t n, size_t c, size_t i)
{
    return (n * layer->op.channels + c) * layer->op.inner + i;
}

static float *data(const struct layer *layer, int operand)
{
    return layer->scene.operands[operand].data;
}

static double *wanted(const struct layer *layer, int operand)
{
    return layer->scene.operands[operand].wanted;
}

// Sums over all samples and elements of a channel: count, mean, population variance.
static void moments_of(const struct layer *layer, size_t c, double *mean, double *variance)
{
    double count = (double)layer->scene.samples * (double)layer->op.inner;

    *mean = *variance = 0;
    for (size_t n = 0; n < layer->scene.samples; n++)
        for (size_t i = 0; i < layer->op.inner; i++)
            *mean += (double)data(layer, layer->x)[at_of(layer, n, c, i)] / count;
    for (size_t n = 0; n < layer->scene.samples; n++)
        for (size_t i = 0; i < layer->op.inner; i++) {
            double d = (double)data(layer, layer->x)[at_of(layer, n, c, i)] - *mean;

            *variance += d * d / count;
        }
}

static void reference_forward(struct layer *layer, size_t c, double mean, double deviation)
{
    for (size_t n = 0; n < layer->scene.samples; n++)
        for (size_t i = 0; i < layer->op.inner; i++) {
            size_t at = at_of(layer, n, c, i);
            double y = ((double)data(layer, layer->x)[at] - mean) / deviation;

            y = y * (double)data(layer, layer->gamma)[c] + (double)data(layer, layer->beta)[c];
            if (layer->residual != SCENE_NONE)
                y += (double)data(layer, layer->residual)[at];
            wanted(layer, layer->y)[at] = layer->op.relu && y < 0 ? 0 : y;
        }
}

// The sum over all elements of the channel of dL/dy * dy/dx for one x, written out: through x
// itself, through the mean and through the variance.
static void reference_backward(struct layer *layer, size_t c, double mean, double deviation)
{
    double count = (double)layer->scene.samples * (double)layer->op.inner;
    double gamma = (double)data(layer, layer->gamma)[c], sum = 0, product = 0;

    for (int pass = 0; pass < 2; pass++)
        for (size_t n = 0; n < layer->scene.samples; n++)
            for (size_t i = 0; i < layer->op.inner; i++) {
                size_t at = at_of(layer, n, c, i);
                double z = ((double)data(layer, layer->x)[at] - mean) / deviation;
                double dy = (double)data(layer, layer->dy)[at];
                double through = layer->op.frozen ? 0 : (sum + z * product) / count;

                if (layer->op.relu && !(wanted(layer, layer->y)[at] > 0))
                    dy = 0;
                if (pass) {
                    wanted(layer, layer->dx)[at] = gamma / deviation * (dy - through);
                    if (layer->dresidual != SCENE_NONE)
                        wanted(layer, layer->dresidual)[at] = dy;
                    continue;
                }
                sum += dy;
                product += dy * z;
            }
    wanted(layer, layer->dgamma)[c] = product;
    wanted(layer, layer->dbeta)[c] = sum;
}

static void reference(struct layer *layer)
{
    double samples = layer->scene.samples;
    double count = samples * (double)layer->op.inner;

    for (size_t c = 0; c < layer->op.channels; c++) {
        double mean, variance, deviation;

        moments_of(layer, c, &mean, &variance);
        if (layer->op.frozen) {
            mean = (double)data(layer, layer->mean)[c];
            variance = fmax(0, (double)data(layer, layer->variance)[c]);
        } else {
            wanted(layer, layer->dmean)[c] = samples * mean;
            wanted(layer, layer->dvariance)[c] =
                samples * variance * count / (count > 1 ? count - 1 : 1);
        }
        deviation = sqrt(variance + (double)EPSILON);
        reference_forward(layer, c, mean, deviation);
        reference_backward(layer, c, mean, deviation);
    }
}

static void add_operands(struct layer *layer, bool residual)
{
    struct scene *scene = &layer->scene;
    size_t words = layer->op.channels * layer->op.inner, channels = layer->op.channels;
    bool frozen = layer->op.frozen;

    layer->x = scene_add(scene, CN_ARENA_BATCH, words, true, false);
    layer->dy = scene_add(scene, CN_ARENA_BATCH, words, true, false);
    layer->y = scene_add(scene, CN_ARENA_BATCH, words, true, true);
    layer->dx = scene_add(scene, CN_ARENA_BATCH, words, true, true);
    layer->residual = layer->dresidual = layer->dmean = layer->dvariance = SCENE_NONE;
    if (residual) {
        layer->residual = scene_add(scene, CN_ARENA_BATCH, words, true, false);
        layer->dresidual = scene_add(scene, CN_ARENA_BATCH, words, true, true);
    }
    layer->gamma = scene_add(scene, CN_ARENA_WEIGHTS, channels, false, false);
    layer->beta = scene_add(scene, CN_ARENA_WEIGHTS, channels, false, false);
    layer->mean = scene_add(scene, CN_ARENA_WEIGHTS, channels, false, false);
    layer->variance = scene_add(scene, CN_ARENA_WEIGHTS, channels, false, false);
    layer->saved = scene_add(scene, CN_ARENA_ACTIVATIONS, 2 * channels, false, false);
    layer->dgamma = scene_add(scene, CN_ARENA_GRADIENTS, channels, false, true);
    layer->dbeta = scene_add(scene, CN_ARENA_GRADIENTS, channels, false, true);
    if (frozen)
        return;
    layer->dmean = scene_add(scene, CN_ARENA_GRADIENTS, channels, false, true);
    layer->dvariance = scene_add(scene, CN_ARENA_GRADIENTS, channels, false, true);
}

static void check_batch_norm(struct cn_batch_norm op, uint32_t samples, bool residual, float offset)
{
    struct layer layer = {.op = op};
    struct cn_call forward = {.op = CN_OP_BATCH_NORM, .write = CN_WRITE_STEP, .batch_norm = op};
    struct cn_call backward = {
        .op = CN_OP_BATCH_NORM_GRAD, .write = CN_WRITE_STEP, .batch_norm = op};
    char name[96];

    scene_init(&layer.scene, samples);
    add_operands(&layer, residual);
    for (size_t i = 0; i < samples * op.channels * op.inner; i++)
        data(&layer, layer.x)[i] += offset;
    scene_call(
        &layer.scene, &forward,
        (int[]){layer.x, layer.gamma, layer.beta, layer.mean, layer.variance, layer.residual}, 6,
        (int[]){layer.y, layer.saved, layer.dmean, layer.dvariance}, 4);
    scene_call(&layer.scene, &backward,
               (int[]){layer.dy, layer.x, layer.gamma, layer.saved, op.relu ? layer.y : SCENE_NONE},
               5, (int[]){layer.dx, layer.dgamma, layer.dbeta, layer.dresidual}, 4);
    reference(&layer);
    layer.scene.tolerance = offset > 0 ? 2e-4 : 0; // x itself has only so many digits
    snprintf(name, sizeof(name), "batch norm of %zu x %zu, %u samples%s%s%s", op.channels, op.inner,
             samples, op.frozen ? ", frozen" : "", op.relu ? ", relu" : "",
             residual ? ", residual" : "");
    scene_check(&layer.scene, name);
    scene_deinit(&layer.scene);
}

static void batch_normalization_sees_all_samples_of_all_lanes(void **state)
{
    static const size_t shapes[][2] = {{1, 1}, {5, 1}, {3, 49}, {2, 2100}};
    static const uint32_t samples[] = {2, 5, 37};

    (void)state;
    for (size_t i = 0; i < 4; i++)
        for (size_t s = 0; s < 3; s++)
            for (int flags = 0; flags < 8; flags++) {
                struct cn_batch_norm op = {.channels = shapes[i][0],
                                           .inner = shapes[i][1],
                                           .epsilon = EPSILON,
                                           .frozen = flags & 1,
                                           .relu = flags & 2};

                check_batch_norm(op, samples[s], flags & 4, 0);
            }
}

static void a_mean_far_from_zero_does_not_spoil_the_variance(void **state)
{
    (void)state;
    check_batch_norm((struct cn_batch_norm){.channels = 2, .inner = 300, .epsilon = EPSILON}, 7,
                     false, 100);
}

// The words of one counter by the paper's definition.
static void philox(const uint32_t key[2], const uint32_t counter[4], uint32_t word[4])
{
    uint32_t k[2] = {key[0], key[1]};

    memcpy(word, counter, 4 * sizeof(*word));
    for (int round = 0; round < 10; round++) {
        uint64_t a = 0xd2511f53ull * word[0], b = 0xcd9e8d57ull * word[2];
        uint32_t next[4] = {(uint32_t)(b >> 32) ^ word[1] ^ k[0], (uint32_t)b,
                            (uint32_t)(a >> 32) ^ word[3] ^ k[1], (uint32_t)a};

        memcpy(word, next, sizeof(next));
        k[0] += 0x9e3779b9u;
        k[1] += 0xbb67ae85u;
    }
}

// Of the authors' file kat_vectors.
static void the_reference_generator_gives_the_published_numbers(void **state)
{
    static const uint32_t cases[][10] = {
        {0, 0, 0, 0, 0, 0, 0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8},
        {0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff, 0x408f276d,
         0x41c83b0e, 0xa20bc7c6, 0x6d5451fd},
        {0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344, 0xa4093822, 0x299f31d0, 0xd16cfe09,
         0x94fdcceb, 0x5001e420, 0x24126ea1},
    };

    (void)state;
    for (size_t i = 0; i < 3; i++) {
        uint32_t word[4];

        philox(cases[i] + 4, cases[i], word);
        assert_memory_equal(word, cases[i] + 6, sizeof(word));
    }
}

static void check_dropout(struct cn_dropout op, uint32_t samples)
{
    struct cn_call call = {.op = CN_OP_DROPOUT, .dropout = op};
    uint32_t key[2] = {0x89abcdefu, 0x01234567u};
    struct scene scene;
    int x, y;

    scene_init(&scene, samples);
    scene.seed = 0x0123456789abcdefull;
    scene.first_sample = 0xfffffffeull; // the next samples need the high half
    x = scene_add(&scene, CN_ARENA_BATCH, op.count, true, false);
    y = scene_add(&scene, CN_ARENA_BATCH, op.count, true, true);
    scene_call(&scene, &call, &x, 1, &y, 1);
    for (size_t n = 0; n < samples; n++)
        for (size_t e = 0; e < op.count; e++) {
            uint64_t sample = scene.first_sample + n;
            uint32_t counter[4] = {(uint32_t)(e / 4), op.node, (uint32_t)sample,
                                   (uint32_t)(sample >> 32)};
            uint32_t word[4];

            philox(key, counter, word);
            if ((double)word[e % 4] >= (double)op.rate * 4294967296.0)
                scene.operands[y].wanted[n * op.count + e] =
                    (double)scene.operands[x].data[n * op.count + e] / (1 - (double)op.rate);
        }
    scene_check(&scene, "dropout");
    scene_deinit(&scene);
}

static void dropout_draws_the_same_numbers_on_every_port_and_thread_count(void **state)
{
    static const size_t counts[] = {1, 3, 4, 63, 64, 65, 200};
    static const float rates[] = {0, 0.1f, 0.5f, 0.9f};

    (void)state;
    for (size_t i = 0; i < 7; i++)
        for (size_t j = 0; j < 4; j++)
            check_dropout((struct cn_dropout){.rate = rates[j], .node = 7, .count = counts[i]}, 6);
}

// A rate below 2^-9 need not be a multiple of 2^-32. The word below it is dropped, too.
static void a_rate_between_two_words_drops_the_lower_one(void **state)
{
    uint32_t key[2] = {0x89abcdefu, 0x01234567u}, word[4] = {UINT32_MAX}, draw = 0;

    (void)state;
    for (; word[0] >= 1u << 22; draw++) {
        uint32_t counter[4] = {draw, 7, 0xfffffffeu, 0};

        philox(key, counter, word);
    }
    check_dropout((struct cn_dropout){.rate = (float)(((double)word[0] + 0.5) / 4294967296.0),
                                      .node = 7,
                                      .count = (size_t)draw * 4},
                  1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(batch_normalization_sees_all_samples_of_all_lanes),
        cmocka_unit_test(a_mean_far_from_zero_does_not_spoil_the_variance),
        cmocka_unit_test(the_reference_generator_gives_the_published_numbers),
        cmocka_unit_test(dropout_draws_the_same_numbers_on_every_port_and_thread_count),
        cmocka_unit_test(a_rate_between_two_words_drops_the_lower_one),
    };

    if (!kernels_present())
        return 77;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
