// Flat calls on every compute port: clipping, the optimizers and statistics, compared to the bit
// with plain loops that follow the header's order.
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/contract/compute_trial.h"

// More than 256 * 256, so that squares are added on three levels.
#define WORDS 140011

static const enum cn_arena arenas[] = {CN_ARENA_GRADIENTS, CN_ARENA_WEIGHTS, CN_ARENA_OPTIMIZER,
                                       CN_ARENA_SECOND,    CN_ARENA_BASE,    CN_ARENA_SHARE,
                                       CN_ARENA_OWN};
#define ARENAS (sizeof(arenas) / sizeof(arenas[0]))
enum { GRADIENT, WEIGHT, FIRST, SECOND, BASE, SHARE, OWN };

struct numbers {
    float of[ARENAS][WORDS];
};

static struct numbers before, wanted, found;

static const struct cn_hyper hyper = {
    .gradient_scale = 0.031f,
    .statistic_scale = 0.125f,
    .learning_rate = 0.1f,
    .momentum = 0.9f,
    .weight_decay = 0.01f,
    .proximal = 0.07f,
    .correction1 = 0.19f,
    .correction2 = 0.0447f,
    .clip = 0.5f,
};

// The second moment is a mean of squares and so never negative.
static void fill_numbers(void)
{
    for (size_t a = 0; a < ARENAS; a++)
        for (size_t i = 0; i < WORDS; i++) {
            float value = trial_next_value();

            before.of[a][i] = a == SECOND ? value * value : value;
        }
    wanted = before;
}

// Runs the calls on a device whose arenas hold before, and leaves the arenas in found.
static void run_calls(const struct cn_compute_ops *ops, uint32_t threads,
                      const struct cn_call *calls, size_t count, struct cn_compute_result *result)
{
    struct cn_compute_config config = {.threads = threads};
    struct cn_compute_program *program;
    struct cn_compute_sizes sizes = {0};
    struct cn_compute *device;
    void *host;

    assert_int_equal(ops->open(&config, &device), CN_OK);
    for (size_t a = 0; a < ARENAS; a++)
        sizes.words[arenas[a]] = WORDS;
    assert_int_equal(ops->reserve(device, &sizes, 1), CN_OK);
    for (size_t a = 0; a < ARENAS; a++) {
        assert_int_equal(ops->map(device, arenas[a], &host), CN_OK);
        memcpy(host, before.of[a], sizeof(before.of[a]));
        assert_int_equal(ops->unmap(device, arenas[a]), CN_OK);
    }
    assert_int_equal(ops->prepare(device, calls, count, &program), CN_OK);
    assert_int_equal(ops->run(device, program, &hyper), CN_OK);
    assert_int_equal(ops->wait(device, result), CN_OK);
    for (size_t a = 0; a < ARENAS; a++) {
        assert_int_equal(ops->map(device, arenas[a], &host), CN_OK);
        memcpy(found.of[a], host, sizeof(found.of[a]));
        assert_int_equal(ops->unmap(device, arenas[a]), CN_OK);
    }
    ops->release(device, program);
    ops->close(device);
}

static float gradient_before(const struct cn_range *range, size_t i)
{
    return before.of[range->share ? SHARE : GRADIENT][range->gradients + i];
}

static float *wanted_weight(const struct cn_range *range, size_t i)
{
    return &wanted.of[range->own ? OWN : WEIGHT][range->weights + i];
}

// Of the optimizer: the arena may hold a part of the model only.
static float *wanted_state(int moment, const struct cn_range *range, size_t i)
{
    return &wanted.of[moment][range->weights - range->state_from + i];
}

// volatile keeps the compiler of the test from contracting or reordering.
static float gradient_of(const struct cn_range *range, const float *clip, size_t i)
{
    volatile float g = gradient_before(range, i) * hyper.gradient_scale;
    volatile float pull;

    if (clip)
        g = g * *clip;
    if (range->proximal) {
        pull = before.of[range->own ? OWN : WEIGHT][range->weights + i] -
               before.of[BASE][range->weights + i];
        pull = hyper.proximal * pull;
        g = g + pull;
    }
    return g;
}

static float decay_of(const struct cn_range *range)
{
    return range->no_decay ? 0 : hyper.weight_decay;
}

static void want_sgd(const struct cn_range *range, const float *clip)
{
    for (size_t i = 0; i < range->count; i++) {
        float *w = wanted_weight(range, i);
        float *v = wanted_state(FIRST, range, i);
        volatile float d, t;

        t = decay_of(range) * *w;
        d = gradient_of(range, clip, i) + t;
        t = hyper.momentum * *v;
        *v = t + d;
        t = hyper.momentum * *v;
        t = d + t;
        t = range->nesterov ? t : *v;
        t = hyper.learning_rate * t;
        *w = *w - t;
    }
}

static void want_adam(const struct cn_range *range, const float *clip)
{
    for (size_t i = 0; i < range->count; i++) {
        float *w = wanted_weight(range, i);
        float *m = wanted_state(FIRST, range, i);
        float *v = wanted_state(SECOND, range, i);
        volatile float g = gradient_of(range, clip, i);
        volatile float s, t;

        t = range->decoupled ? hyper.learning_rate * decay_of(range) : decay_of(range);
        t = t * *w;
        if (range->decoupled)
            *w = *w - t;
        else
            g = g + t;
        s = range->beta1 * *m;
        t = 1 - range->beta1;
        t = t * g;
        *m = s + t;
        g = g * g;
        s = range->beta2 * *v;
        t = 1 - range->beta2;
        t = t * g;
        *v = s + t;
        s = sqrtf(*v);
        s = s / hyper.correction2;
        s = s + range->epsilon;
        t = hyper.learning_rate / hyper.correction1;
        t = t * *m;
        t = t / s;
        *w = *w - t;
    }
}

static void want_statistic(const struct cn_range *range)
{
    for (size_t i = 0; i < range->count; i++) {
        float *w = wanted_weight(range, i);
        volatile float s = gradient_before(range, i) * hyper.statistic_scale;

        s = s - *w;
        s = range->momentum * s;
        *w = *w + s;
    }
}

static double squares(const float *values, size_t count)
{
    static double sums[WORDS];
    size_t left = count;

    for (size_t i = 0; i < count; i++) {
        volatile float g = values[i] * hyper.gradient_scale;

        sums[i] = (double)g * (double)g;
    }
    while (left > 1) {
        for (size_t i = 0; i < (left + 255) / 256; i++) {
            double sum = 0;

            for (size_t j = i * 256; j < left && j < (i + 1) * 256; j++)
                sum += sums[j];
            sums[i] = sum;
        }
        left = (left + 255) / 256;
    }
    return count ? sums[0] : 0;
}

static float want_clip(const struct cn_call *calls, size_t count, double *norm)
{
    double sum = 0;
    volatile float c;

    for (size_t i = 0; i < count; i++)
        if (calls[i].op == CN_OP_CLIP)
            sum += squares(before.of[GRADIENT] + calls[i].range.gradients, calls[i].range.count);
    *norm = sqrt(sum);
    c = (float)*norm + 1e-6f;
    c = hyper.clip / c;
    return c < 1 ? c : 1;
}

static void check_calls(const struct cn_call *calls, size_t count)
{
    struct cn_compute_result result;
    float clip;
    double norm = 0;
    bool clipped = false;

    fill_numbers();
    clip = want_clip(calls, count, &norm);
    for (size_t i = 0; i < count; i++) {
        clipped = clipped || calls[i].op == CN_OP_CLIP;
        if (calls[i].op == CN_OP_SGD)
            want_sgd(&calls[i].range, clipped ? &clip : NULL);
        if (calls[i].op == CN_OP_ADAM)
            want_adam(&calls[i].range, clipped ? &clip : NULL);
        if (calls[i].op == CN_OP_STATISTIC)
            want_statistic(&calls[i].range);
    }
    for (size_t p = 0; p < trial_port_count; p++)
        for (uint32_t threads = 1; threads <= trial_thread_counts(trial_ports[p], 4); threads++) {
            run_calls(trial_ports[p], threads, calls, count, &result);
            assert_true(result.finite);
            assert_memory_equal(&result.norm, &norm, sizeof(norm));
            for (size_t a = 1; a < ARENAS; a++)
                assert_memory_equal(found.of[a], wanted.of[a], sizeof(wanted.of[a]));
        }
}

static void sgd_is_exact_to_the_bit(void **state)
{
    (void)state;
    for (int i = 0; i < 8; i++) {
        const struct cn_call call = {
            .op = CN_OP_SGD,
            .range = {.count = WORDS, .nesterov = i & 1, .proximal = i & 2, .no_decay = i & 4}};

        check_calls(&call, 1);
    }
}

static void adam_is_exact_to_the_bit(void **state)
{
    (void)state;
    for (int i = 0; i < 8; i++) {
        const struct cn_call call = {.op = CN_OP_ADAM,
                                     .range = {.count = WORDS,
                                               .beta1 = 0.9f,
                                               .beta2 = 0.999f,
                                               .epsilon = 1e-8f,
                                               .decoupled = i & 1,
                                               .proximal = i & 2,
                                               .no_decay = i & 4}};

        check_calls(&call, 1);
    }
}

// Gradients lie in another order than the weights; words between the ranges stay as they are.
static void each_call_changes_its_own_range(void **state)
{
    const struct cn_range numbers = {.beta1 = 0.8f, .beta2 = 0.99f, .epsilon = 1e-6f};
    struct cn_call calls[] = {
        {.op = CN_OP_CHECK},
        {.op = CN_OP_CLIP, .range = {.gradients = 70003, .count = 70005}},
        {.op = CN_OP_CLIP, .range = {.gradients = 5, .count = 259}},
        {.op = CN_OP_SGD, .range = {.weights = 17, .gradients = 70003, .count = 70005}},
        {.op = CN_OP_STATISTIC,
         .range = {.weights = 70022, .gradients = 300, .count = 10, .momentum = 0.1f}},
        {.op = CN_OP_ADAM, .range = numbers},
        {.op = CN_OP_STATISTIC,
         .range = {.weights = 139000, .gradients = 310, .count = 1, .momentum = 0.25f}},
    };

    (void)state;
    calls[5].range.weights = 80000;
    calls[5].range.gradients = 5;
    calls[5].range.count = 259;
    check_calls(calls, sizeof(calls) / sizeof(calls[0]));
}

// Parameters and statistics take turns, as in a model whose layers are normalized. Neighbours of an
// arena need not be neighbours of the others.
static void ranges_of_two_kinds_take_turns(void **state)
{
    struct cn_call calls[24] = {{.op = CN_OP_CHECK}};
    size_t at = 1;

    (void)state;
    for (size_t i = 1; i < 24; i++) {
        bool statistic = i % 3 == 0;
        size_t count = 1 + i * i * i * 7 % 4001;

        calls[i].op = statistic ? CN_OP_STATISTIC : CN_OP_SGD;
        calls[i].range = (struct cn_range){.weights = at,
                                           .gradients = WORDS - at - count,
                                           .count = count,
                                           .nesterov = i == 10,
                                           .momentum = statistic ? 0.1f : 0};
        at += count + i % 2;
    }
    assert_true(at <= WORDS);
    check_calls(calls, sizeof(calls) / sizeof(calls[0]));
}

// What a member of a group updates that has a share of the model: its part of the optimizer's
// state, its part of the gradients, and with own its part of the weights.
static void a_share_of_the_model_is_updated_in_its_own_arenas(void **state)
{
    static const size_t wraps = 100 - (size_t)300; // the state lies behind the weights
    const struct cn_range adam = {
        .beta1 = 0.8f, .beta2 = 0.99f, .epsilon = 1e-6f, .proximal = true, .share = true};
    struct cn_call calls[] = {
        {.op = CN_OP_SGD,
         .range = {.weights = 100, .gradients = 300, .count = 70001, .state_from = wraps}},
        {.op = CN_OP_SGD,
         .range = {.weights = 80011, .gradients = 7, .count = 200, .state_from = 80004}},
        {.op = CN_OP_ADAM, .range = adam},
        {.op = CN_OP_STATISTIC,
         .range = {.weights = 5, .gradients = 139000, .count = 33, .momentum = 0.1f}},
    };

    (void)state;
    calls[2].range.weights = calls[2].range.gradients = 90001;
    calls[2].range.count = 3000;
    for (int own = 0; own < 2; own++) {
        for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++) {
            calls[i].range.share = true;
            calls[i].range.own = own;
        }
        check_calls(calls, sizeof(calls) / sizeof(calls[0]));
    }
}

static void a_small_gradient_is_not_clipped(void **state)
{
    const struct cn_call calls[] = {
        {.op = CN_OP_CLIP, .range = {.count = 3}},
        {.op = CN_OP_SGD, .range = {.count = WORDS}},
    };

    (void)state;
    check_calls(calls, 2);
}

static void a_gradient_that_is_not_finite_changes_nothing(void **state)
{
    static const float bad[] = {INFINITY, -INFINITY, NAN};
    static const struct cn_call calls[] = {
        {.op = CN_OP_CHECK},
        {.op = CN_OP_CLIP, .range = {.count = 100}},
        {.op = CN_OP_SGD, .range = {.count = WORDS}},
        {.op = CN_OP_STATISTIC, .range = {.count = WORDS, .momentum = 0.5f}},
    };
    struct cn_compute_result result;

    (void)state;
    for (size_t p = 0; p < trial_port_count; p++)
        for (size_t i = 0; i < 3; i++) {
            fill_numbers();
            before.of[GRADIENT][i * (WORDS / 2)] = bad[i];
            run_calls(trial_ports[p], 2, calls, 4, &result);
            assert_false(result.finite);
            for (size_t a = 1; a < ARENAS; a++)
                assert_memory_equal(found.of[a], before.of[a], sizeof(before.of[a]));
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sgd_is_exact_to_the_bit),
        cmocka_unit_test(adam_is_exact_to_the_bit),
        cmocka_unit_test(each_call_changes_its_own_range),
        cmocka_unit_test(ranges_of_two_kinds_take_turns),
        cmocka_unit_test(a_share_of_the_model_is_updated_in_its_own_arenas),
        cmocka_unit_test(a_small_gradient_is_not_clipped),
        cmocka_unit_test(a_gradient_that_is_not_finite_changes_nothing),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
