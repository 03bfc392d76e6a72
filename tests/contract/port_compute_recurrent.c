// Recurrent layers, on every compute port. The reference runs the cells in double precision; its
// gradients are central differences of the sum of dy * y, and of dcell times the last cell.
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

#define STEP 1e-5
#define STEPS_MAX 6
#define HIDDEN_MAX 37

struct layer {
    struct scene scene;
    struct cn_recurrent op;
    size_t gates, width;
    int x, weight, bias, first, first_cell, y, saved, cell, dy, dcell, dgates, dhidden;
    int dfirst, dfirst_cell;
};

// One sample in double precision. A number is added to one of those that a step works with: to a
// gate's input, to its product with the recurrent weight, or to a unit's first state or cell.
struct run {
    const struct layer *layer;
    size_t sample;
    size_t moved_at; // step * width + gate's element
    size_t first_at; // unit
    double by_input, by_product, by_first, by_cell;
    double y[STEPS_MAX * HIDDEN_MAX];
    double cell[HIDDEN_MAX]; // after the last step
};

static double input_of(const struct run *run, int operand, size_t at)
{
    const struct scene_operand *from = &run->layer->scene.operands[operand];

    return (double)from->data[(from->batched ? run->sample * from->words : 0) + at];
}

static double sigmoid(double x)
{
    return 1 / (1 + exp(-x));
}

// The input of gate g's element j at step t, and its product with h.
static void sums_of(const struct run *run, size_t t, size_t g, size_t j, const double *h,
                    double *input, double *product)
{
    const struct layer *layer = run->layer;
    size_t hidden = layer->op.hidden, row = g * hidden + j, at = t * layer->width + row;

    *input = input_of(run, layer->x, at) + (at == run->moved_at ? run->by_input : 0);
    *product = at == run->moved_at ? run->by_product : 0;
    for (size_t k = 0; k < hidden; k++)
        *product += input_of(run, layer->weight, row * hidden + k) * h[k];
}

// GRU's hidden gate sees r * h instead of h.
static bool is_late(const struct cn_recurrent *op)
{
    return op->kind == CN_RECURRENT_GRU && !op->reset_after;
}

static void reset(const struct run *run, size_t t, const double *h, double *left)
{
    for (size_t j = 0; j < run->layer->op.hidden; j++) {
        double x, p;

        sums_of(run, t, 1, j, h, &x, &p);
        left[j] = sigmoid(x + p) * h[j];
    }
}

// left: h after reset.
static void cell(const struct run *run, size_t t, size_t j, const double *h, const double *left,
                 double *c, double *out)
{
    const struct layer *layer = run->layer;
    double x[4] = {0}, p[4] = {0};

    for (size_t g = 0; g < layer->gates; g++)
        sums_of(run, t, g, j, g == 2 && is_late(&layer->op) ? left : h, &x[g], &p[g]);
    switch (layer->op.kind) {
    case CN_RECURRENT_TANH:
        *out = tanh(x[0] + p[0]);
        break;
    case CN_RECURRENT_RELU:
        *out = fmax(0, x[0] + p[0]);
        break;
    case CN_RECURRENT_LSTM:
        c[j] = sigmoid(x[2] + p[2]) * c[j] + sigmoid(x[0] + p[0]) * tanh(x[3] + p[3]);
        *out = sigmoid(x[1] + p[1]) * tanh(c[j]);
        break;
    case CN_RECURRENT_GRU: {
        double z = sigmoid(x[0] + p[0]), r = is_late(&layer->op) ? 1 : sigmoid(x[1] + p[1]);
        double bias =
            layer->bias == SCENE_NONE ? 0 : input_of(run, layer->bias, 2 * layer->op.hidden + j);

        *out = (1 - z) * tanh(x[2] + r * (p[2] + bias)) + z * h[j];
        break;
    }
    }
}

static void run_sample(struct run *run)
{
    const struct layer *layer = run->layer;
    size_t hidden = layer->op.hidden;
    double h[HIDDEN_MAX] = {0}, left[HIDDEN_MAX] = {0}, c[HIDDEN_MAX] = {0};

    for (size_t j = 0; j < hidden; j++) {
        if (layer->first != SCENE_NONE)
            h[j] = input_of(run, layer->first, j) + (j == run->first_at ? run->by_first : 0);
        if (layer->first_cell != SCENE_NONE)
            c[j] = input_of(run, layer->first_cell, j) + (j == run->first_at ? run->by_cell : 0);
    }
    for (size_t i = 0; i < layer->op.steps; i++) {
        size_t t = layer->op.reverse ? layer->op.steps - 1 - i : i;

        if (is_late(&layer->op))
            reset(run, t, h, left);
        for (size_t j = 0; j < hidden; j++)
            cell(run, t, j, h, left, c, &run->y[t * hidden + j]);
        memcpy(h, run->y + t * hidden, hidden * sizeof(*h));
    }
    memcpy(run->cell, c, hidden * sizeof(*c));
}

static double weighted_sum(struct run *run)
{
    double sum = 0;

    run_sample(run);
    for (size_t i = 0; i < run->layer->op.steps * run->layer->op.hidden; i++)
        sum += run->y[i] * input_of(run, run->layer->dy, i);
    for (size_t i = 0; run->layer->dcell != SCENE_NONE && i < run->layer->op.hidden; i++)
        sum += run->cell[i] * input_of(run, run->layer->dcell, i);
    return sum;
}

static double slope(struct run *run, double *by)
{
    double right, left;

    *by = STEP;
    right = weighted_sum(run);
    *by = -STEP;
    left = weighted_sum(run);
    *by = 0;
    return (right - left) / 2 / STEP;
}

static void reference(struct layer *layer)
{
    struct scene_operand *operands = layer->scene.operands;
    size_t words = layer->op.steps * layer->width, hidden = layer->op.steps * layer->op.hidden;

    for (size_t n = 0; n < layer->scene.samples; n++) {
        struct run run = {.layer = layer, .sample = n, .moved_at = SIZE_MAX, .first_at = SIZE_MAX};

        run_sample(&run);
        memcpy(operands[layer->y].wanted + n * hidden, run.y, hidden * sizeof(double));
        if (layer->cell != SCENE_NONE)
            memcpy(operands[layer->cell].wanted + n * layer->op.hidden, run.cell,
                   layer->op.hidden * sizeof(double));
        for (run.moved_at = 0; run.moved_at < words; run.moved_at++) {
            operands[layer->dgates].wanted[n * words + run.moved_at] = slope(&run, &run.by_input);
            if (layer->dhidden != SCENE_NONE)
                operands[layer->dhidden].wanted[n * words + run.moved_at] =
                    slope(&run, &run.by_product);
        }
        run.moved_at = SIZE_MAX;
        for (run.first_at = 0; run.first_at < layer->op.hidden; run.first_at++) {
            size_t at = n * layer->op.hidden + run.first_at;

            if (layer->dfirst != SCENE_NONE)
                operands[layer->dfirst].wanted[at] = slope(&run, &run.by_first);
            if (layer->dfirst_cell != SCENE_NONE)
                operands[layer->dfirst_cell].wanted[at] = slope(&run, &run.by_cell);
        }
    }
}

static void add_operands(struct layer *layer, bool bias, bool first)
{
    struct scene *scene = &layer->scene;
    size_t hidden = layer->op.hidden, steps = layer->op.steps;
    bool apart = layer->op.kind == CN_RECURRENT_GRU && layer->op.reset_after;
    bool lstm = layer->op.kind == CN_RECURRENT_LSTM;

    layer->x = scene_add(scene, CN_ARENA_BATCH, steps * layer->width, true, false);
    layer->dy = scene_add(scene, CN_ARENA_BATCH, steps * hidden, true, false);
    layer->y = scene_add(scene, CN_ARENA_BATCH, steps * hidden, true, true);
    layer->dgates = scene_add(scene, CN_ARENA_BATCH, steps * layer->width, true, true);
    layer->dhidden =
        apart ? scene_add(scene, CN_ARENA_BATCH, steps * layer->width, true, true) : SCENE_NONE;
    layer->saved =
        scene_add(scene, CN_ARENA_ACTIVATIONS, steps * (layer->width + hidden), true, false);
    layer->weight = scene_add(scene, CN_ARENA_WEIGHTS, layer->width * hidden, false, false);
    layer->bias =
        bias && apart ? scene_add(scene, CN_ARENA_WEIGHTS, layer->width, false, false) : SCENE_NONE;
    layer->first = first ? scene_add(scene, CN_ARENA_CONSTANTS, hidden, false, false) : SCENE_NONE;
    layer->first_cell =
        first && lstm ? scene_add(scene, CN_ARENA_BATCH, hidden, true, false) : SCENE_NONE;
    layer->dfirst = first ? scene_add(scene, CN_ARENA_BATCH, hidden, true, true) : SCENE_NONE;
    layer->dfirst_cell =
        first && lstm ? scene_add(scene, CN_ARENA_BATCH, hidden, true, true) : SCENE_NONE;
    layer->cell = lstm && first ? scene_add(scene, CN_ARENA_BATCH, hidden, true, true) : SCENE_NONE;
    layer->dcell =
        lstm && first ? scene_add(scene, CN_ARENA_BATCH, hidden, true, false) : SCENE_NONE;
}

static void check(struct cn_recurrent op, uint32_t samples, bool bias, bool first)
{
    struct layer layer = {.op = op};
    struct cn_call forward = {.op = CN_OP_RECURRENT, .recurrent = op};
    struct cn_call backward = {.op = CN_OP_RECURRENT_GRAD, .recurrent = op};
    char name[96];

    assert_true(op.hidden <= HIDDEN_MAX && op.steps <= STEPS_MAX);
    layer.gates = op.kind == CN_RECURRENT_LSTM ? 4 : op.kind == CN_RECURRENT_GRU ? 3 : 1;
    layer.width = layer.gates * op.hidden;
    scene_init(&layer.scene, samples);
    add_operands(&layer, bias, first);
    scene_call(&layer.scene, &forward,
               (int[]){layer.x, layer.weight, layer.bias, layer.first, layer.first_cell}, 5,
               (int[]){layer.y, layer.saved, layer.cell}, 3);
    scene_call(&layer.scene, &backward,
               (int[]){layer.dy, layer.y, layer.saved, layer.weight, layer.bias, layer.first,
                       layer.first_cell, layer.dcell},
               8, (int[]){layer.dgates, layer.dhidden, layer.dfirst, layer.dfirst_cell}, 4);
    reference(&layer);
    snprintf(name, sizeof(name), "recurrent kind %d, %zu hidden, %zu steps%s%s%s", op.kind,
             op.hidden, op.steps, op.reverse ? ", reverse" : "", first ? ", first" : "",
             is_late(&op) ? ", reset before" : "");
    scene_check(&layer.scene, name);
    scene_deinit(&layer.scene);
}

static void check_kind(enum cn_recurrent_kind kind, bool reset_after)
{
    static const size_t hidden[] = {1, 8, 37};
    static const size_t steps[] = {1, 6};

    for (size_t h = 0; h < 3; h++)
        for (size_t s = 0; s < 2; s++)
            for (int flags = 0; flags < 4; flags++) {
                struct cn_recurrent op = {.kind = kind,
                                          .steps = steps[s],
                                          .hidden = hidden[h],
                                          .reverse = flags & 1,
                                          .reset_after = reset_after};

                check(op, hidden[h] > 8 ? 2 : 5, flags & 2, flags & 2);
            }
}

static void cells_and_their_gradients_agree_with_the_formulas(void **state)
{
    (void)state;
    check_kind(CN_RECURRENT_TANH, false);
    check_kind(CN_RECURRENT_RELU, false);
    check_kind(CN_RECURRENT_LSTM, false);
    check_kind(CN_RECURRENT_GRU, true);
    check_kind(CN_RECURRENT_GRU, false);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cells_and_their_gradients_agree_with_the_formulas),
    };

    if (!kernels_present())
        return 77;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
