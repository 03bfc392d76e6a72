// Resized planes, and extremes along dims, on every compute port.
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

// The share that element in of an axis has in element out, by ONNX's definition.
static double share_of(const struct cn_resize *op, int axis, uint32_t out, uint32_t in)
{
    double last = (double)op->in[axis] - 1, at = out;

    // In float32: where a position falls on a border between elements, its rounding decides.
    if (op->place == CN_RESIZE_ASYMMETRIC)
        at = (double)((float)out / op->scale[axis]);
    else if (op->place == CN_RESIZE_HALF_PIXEL)
        at = (double)(((float)out + 0.5f) / op->scale[axis] - 0.5f);
    else
        at = op->out[axis] > 1 ? out * last / (op->out[axis] - 1) : 0;
    if (op->kind == CN_RESIZE_NEAREST) {
        at = op->round ? ceil(at - 0.5) : floor(at);
        return fabs(fmin(fmax(at, 0), last) - in) < 0.5 ? 1 : 0;
    }
    at = fmin(fmax(at, 0), last);
    return fmax(0, 1 - fabs(at - in));
}

static void check_resize(struct cn_resize op, uint32_t samples)
{
    size_t in = (size_t)op.in[0] * op.in[1], out = (size_t)op.out[0] * op.out[1];
    struct cn_call forward = {.op = CN_OP_RESIZE, .resize = op};
    struct cn_call backward = {.op = CN_OP_RESIZE_GRAD, .resize = op};
    struct scene scene;
    char name[96];
    int x, y, dy, dx;

    scene_init(&scene, samples);
    x = scene_add(&scene, CN_ARENA_BATCH, op.channels * in, true, false);
    y = scene_add(&scene, CN_ARENA_BATCH, op.channels * out, true, true);
    dy = scene_add(&scene, CN_ARENA_BATCH, op.channels * out, true, false);
    dx = scene_add(&scene, CN_ARENA_BATCH, op.channels * in, true, true);
    scene_call(&scene, &forward, &x, 1, &y, 1);
    scene_call(&scene, &backward, &dy, 1, &dx, 1);
    for (size_t plane = 0; plane < (size_t)samples * op.channels; plane++)
        for (uint32_t o = 0; o < out; o++)
            for (uint32_t i = 0; i < in; i++) {
                double share = share_of(&op, 0, o / op.out[1], i / op.in[1]) *
                               share_of(&op, 1, o % op.out[1], i % op.in[1]);

                scene.operands[y].wanted[plane * out + o] +=
                    share * (double)scene.operands[x].data[plane * in + i];
                scene.operands[dx].wanted[plane * in + i] +=
                    share * (double)scene.operands[dy].data[plane * out + o];
            }
    snprintf(name, sizeof(name), "resize kind %d, place %d, %ux%u to %ux%u", op.kind, op.place,
             op.in[0], op.in[1], op.out[0], op.out[1]);
    scene_check(&scene, name);
    scene_deinit(&scene);
}

static void planes_are_resized_by_every_rule(void **state)
{
    static const uint32_t extents[][4] = {
        {4, 5, 8, 10}, {1, 6, 1, 15}, {7, 6, 3, 2}, {3, 3, 1, 7}, {5, 1, 5, 1}};

    (void)state;
    for (size_t i = 0; i < 5; i++)
        for (int kind = CN_RESIZE_NEAREST; kind <= CN_RESIZE_LINEAR; kind++)
            for (int place = CN_RESIZE_ASYMMETRIC; place <= CN_RESIZE_ALIGN_CORNERS; place++)
                for (int round = 0; round < 2; round++) {
                    struct cn_resize op = {.kind = (enum cn_resize_kind)kind,
                                           .place = (enum cn_resize_place)place,
                                           .round = round,
                                           .channels = 3};

                    for (int axis = 0; axis < 2; axis++) {
                        op.in[axis] = extents[i][axis];
                        op.out[axis] = extents[i][2 + axis];
                        op.scale[axis] = (float)op.out[axis] / (float)op.in[axis];
                    }
                    check_resize(op, 3);
                }
}

// Returns whether value comes before best; a NaN does before any number.
static bool precedes(enum cn_extreme_kind kind, float value, float best)
{
    if (isnan(value) || isnan(best))
        return isnan(value) && !isnan(best);
    return kind == CN_EXTREME_MAX ? value > best : value < best;
}

// x has the dims 3 x 4 x 5; reduced says along which. With nans some of its elements are NaN.
static void check_extreme(enum cn_extreme_kind kind, unsigned reduced, bool nans)
{
    static const size_t dims[] = {3, 4, 5};
    struct cn_extreme op = {.kind = kind, .rank = 3};
    struct cn_call forward, backward;
    struct scene scene;
    size_t results = 1;
    int x, y, place, dy, dx;

    for (size_t d = 3; d-- > 0;) {
        op.dims[d] = dims[d];
        op.y[d] = reduced & 1u << d ? 0 : results;
        results *= reduced & 1u << d ? 1 : dims[d];
    }
    forward = (struct cn_call){.op = CN_OP_EXTREME, .extreme = op};
    backward = (struct cn_call){.op = CN_OP_EXTREME_GRAD, .extreme = op};
    scene_init(&scene, 4);
    x = scene_add(&scene, CN_ARENA_BATCH, 60, true, false);
    y = scene_add(&scene, CN_ARENA_BATCH, results, true, !nans);
    place = scene_add(&scene, CN_ARENA_BATCH, results, true, true);
    dy = scene_add(&scene, CN_ARENA_BATCH, results, true, false);
    dx = scene_add(&scene, CN_ARENA_BATCH, 60, true, true);
    scene.operands[place].integers = true;
    for (size_t i = 0; i < 240; i += 7) // some are alike: the first counts
        scene.operands[x].data[i] = kind == CN_EXTREME_MAX ? 1 : -1;
    for (size_t i = 3; nans && i < 240; i += 11)
        scene.operands[x].data[i] = NAN;
    scene_call(&scene, &forward, &x, 1, (int[]){y, place}, 2);
    scene_call(&scene, &backward, (int[]){dy, place}, 2, &dx, 1);
    for (size_t n = 0; n < 4; n++)
        for (size_t r = 0; r < results; r++) {
            size_t best = SIZE_MAX;

            for (size_t i = 0; i < 60; i++) {
                const float *values = scene.operands[x].data + n * 60;
                size_t at = i / 20 * op.y[0] + i / 5 % 4 * op.y[1] + i % 5 * op.y[2];

                if (at == r && (best == SIZE_MAX || precedes(kind, values[i], values[best])))
                    best = i;
            }
            if (!nans)
                scene.operands[y].wanted[n * results + r] =
                    (double)scene.operands[x].data[n * 60 + best];
            scene.operands[place].wanted[n * results + r] = (double)best;
            scene.operands[dx].wanted[n * 60 + best] +=
                (double)scene.operands[dy].data[n * results + r];
        }
    scene_check(&scene, "extreme");
    scene_deinit(&scene);
}

static void the_first_extreme_along_dims_is_found_and_gets_the_gradient(void **state)
{
    (void)state;
    for (unsigned reduced = 1; reduced < 8; reduced++) {
        check_extreme(CN_EXTREME_MAX, reduced, false);
        check_extreme(CN_EXTREME_MIN, reduced, false);
    }
}

static void the_first_nan_is_the_extreme(void **state)
{
    (void)state;
    for (unsigned reduced = 1; reduced < 8; reduced++) {
        check_extreme(CN_EXTREME_MAX, reduced, true);
        check_extreme(CN_EXTREME_MIN, reduced, true);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(planes_are_resized_by_every_rule),
        cmocka_unit_test(the_first_extreme_along_dims_is_found_and_gets_the_gradient),
        cmocka_unit_test(the_first_nan_is_the_extreme),
    };

    if (!kernels_present())
        return 77;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
