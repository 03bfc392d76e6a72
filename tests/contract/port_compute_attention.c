// Attention and its gradient, on every compute port, against the formulas in double precision.
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

// The operands of a layer by number; q, k and v, and their gradients, may be one.
struct layer {
    struct scene scene;
    struct cn_attention op;
    int q, k, v, mask, y, saved, dy, dq, dk, dv;
};

// A row of a head in a sample of an operand.
static size_t row_at(const struct layer *layer, int operand, const struct cn_heads *heads, size_t n,
                     size_t head, size_t row)
{
    return n * layer->scene.operands[operand].words + heads->offset + head * heads->head +
           row * heads->row;
}

static const float *data_of(const struct layer *layer, int operand)
{
    return layer->scene.operands[operand].data;
}

static double *wanted_of(const struct layer *layer, int operand)
{
    return layer->scene.operands[operand].wanted;
}

static double dot(const float *a, const float *b, size_t count)
{
    double sum = 0;

    for (size_t c = 0; c < count; c++)
        sum += (double)a[c] * (double)b[c];
    return sum;
}

// The shares that row i of q gives to the rows of k.
static void find_shares(const struct layer *layer, size_t n, size_t head, size_t i, double *shares)
{
    const struct cn_attention *op = &layer->op;
    const float *q = data_of(layer, layer->q) + row_at(layer, layer->q, &op->q, n, head, i);
    double largest = -INFINITY, sum = 0;

    for (size_t j = 0; j < op->k_rows; j++) {
        const float *k = data_of(layer, layer->k) + row_at(layer, layer->k, &op->k, n, head, j);

        shares[j] = (double)op->scale * dot(q, k, op->width);
        if (layer->mask != SCENE_NONE)
            shares[j] += (double)data_of(layer, layer->mask)[i * op->k_rows + j];
        if (op->causal && j > i)
            shares[j] = -INFINITY;
        largest = fmax(largest, shares[j]);
    }
    for (size_t j = 0; j < op->k_rows; j++)
        sum += shares[j] = exp(shares[j] - largest);
    for (size_t j = 0; j < op->k_rows; j++)
        shares[j] /= sum;
}

static void reference_row(struct layer *layer, size_t n, size_t head, size_t i, double *shares)
{
    const struct cn_attention *op = &layer->op;
    size_t at_q = row_at(layer, layer->q, &op->q, n, head, i);
    size_t at_y = row_at(layer, layer->y, &op->y, n, head, i);
    const float *dy = data_of(layer, layer->dy) + at_y;
    double product = 0;

    find_shares(layer, n, head, i, shares);
    for (size_t j = 0; j < op->k_rows; j++) {
        const float *v = data_of(layer, layer->v) + row_at(layer, layer->v, &op->v, n, head, j);

        for (size_t c = 0; c < op->v_width; c++)
            wanted_of(layer, layer->y)[at_y + c] += shares[j] * (double)v[c];
        product += shares[j] * dot(dy, v, op->v_width);
    }
    for (size_t j = 0; j < op->k_rows; j++) {
        size_t at_k = row_at(layer, layer->k, &op->k, n, head, j);
        size_t at_v = row_at(layer, layer->v, &op->v, n, head, j);
        double slope =
            shares[j] * (dot(dy, data_of(layer, layer->v) + at_v, op->v_width) - product);

        for (size_t c = 0; c < op->v_width; c++)
            wanted_of(layer, layer->dv)[at_v + c] += shares[j] * (double)dy[c];
        for (size_t c = 0; c < op->width; c++) {
            wanted_of(layer, layer->dq)[at_q + c] +=
                slope * (double)op->scale * (double)data_of(layer, layer->k)[at_k + c];
            wanted_of(layer, layer->dk)[at_k + c] +=
                slope * (double)op->scale * (double)data_of(layer, layer->q)[at_q + c];
        }
    }
}

static void check(struct layer *layer, const char *name)
{
    const struct cn_attention *op = &layer->op;
    const struct cn_call forward = {.op = CN_OP_ATTENTION, .attention = *op};
    const struct cn_call backward = {.op = CN_OP_ATTENTION_GRAD, .attention = *op};
    double *shares = calloc(op->k_rows, sizeof(*shares));

    for (size_t n = 0; n < layer->scene.samples; n++)
        for (size_t head = 0; head < op->heads; head++)
            for (size_t i = 0; i < op->q_rows; i++)
                reference_row(layer, n, head, i, shares);
    free(shares);
    scene_call(&layer->scene, &forward, (const int[]){layer->q, layer->k, layer->v, layer->mask}, 4,
               (const int[]){layer->y, layer->saved}, 2);
    scene_call(
        &layer->scene, &backward,
        (const int[]){layer->dy, layer->q, layer->k, layer->v, layer->y, layer->saved, layer->mask},
        7, (const int[]){layer->dq, layer->dk, layer->dv}, 3);
    scene_check(&layer->scene, name);
    scene_deinit(&layer->scene);
}

static void add_results(struct layer *layer, size_t words)
{
    layer->y = scene_add(&layer->scene, CN_ARENA_BATCH, words, true, true);
    layer->dy = scene_add(&layer->scene, CN_ARENA_BATCH, words, true, false);
    layer->saved = scene_add(&layer->scene, CN_ARENA_ACTIVATIONS,
                             layer->op.heads * layer->op.q_rows, true, false);
}

// As one projection gives them: q, k and v of all heads of a row side by side.
static void init_packed(struct layer *layer, size_t heads, size_t rows, size_t width, bool causal,
                        uint32_t samples)
{
    size_t all = heads * width;

    *layer = (struct layer){.mask = SCENE_NONE};
    layer->op = (struct cn_attention){.heads = heads,
                                      .q_rows = rows,
                                      .k_rows = rows,
                                      .width = width,
                                      .v_width = width,
                                      .q = {0, width, 3 * all},
                                      .k = {all, width, 3 * all},
                                      .v = {2 * all, width, 3 * all},
                                      .y = {0, width, all},
                                      .scale = 1 / sqrtf((float)width),
                                      .causal = causal};
    scene_init(&layer->scene, samples);
    layer->q = layer->k = layer->v =
        scene_add(&layer->scene, CN_ARENA_BATCH, rows * 3 * all, true, false);
    layer->dq = layer->dk = layer->dv =
        scene_add(&layer->scene, CN_ARENA_BATCH, rows * 3 * all, true, true);
    add_results(layer, rows * all);
}

static void check_packed(size_t heads, size_t rows, size_t width, bool causal, uint32_t samples)
{
    struct layer layer;
    char name[96];

    init_packed(&layer, heads, rows, width, causal, samples);
    snprintf(name, sizeof(name), "%zu heads of %zu, %zu rows%s", heads, width, rows,
             causal ? ", causal" : "");
    check(&layer, name);
}

static void heads_side_by_side_agree_with_the_formulas(void **state)
{
    (void)state;
    for (int causal = 0; causal < 2; causal++) {
        check_packed(1, 1, 1, causal, 1);
        check_packed(3, 5, 4, causal, 5);
        check_packed(2, 37, 16, causal, 2);
        check_packed(1, 33, 70, causal, 1);
    }
}

static void more_rows_than_a_block_holds_agree_with_the_formulas(void **state)
{
    (void)state;
    check_packed(1, 64, 8, true, 1);
    check_packed(1, 65, 8, false, 1);
    check_packed(1, 150, 3, false, 1);
    check_packed(1, 150, 17, true, 1);
}

// From the smallest of usual models to CN_ATTENTION_WIDTH_MAX. 96 is no multiple of a tile's width.
static void heads_of_all_widths_agree_with_the_formulas(void **state)
{
    const size_t widths[] = {32, 64, 80, 96, 128, 192, 256};

    (void)state;
    for (size_t i = 0; i < sizeof(widths) / sizeof(widths[0]); i++) {
        check_packed(1, 67, widths[i], true, 1);
        check_packed(2, 20, widths[i], false, 1);
    }
}

static int add_heads(struct layer *layer, const struct cn_heads *heads, size_t rows, bool compared)
{
    return scene_add(&layer->scene, CN_ARENA_BATCH,
                     heads->offset + layer->op.heads * rows * heads->row, true, compared);
}

// Heads one after the other, gaps between the rows, other rows and another width on the other side.
static void init_apart(struct layer *layer, const struct cn_attention *op)
{
    *layer = (struct layer){.mask = SCENE_NONE, .op = *op};
    scene_init(&layer->scene, 4);
    layer->q = add_heads(layer, &op->q, op->q_rows, false);
    layer->k = add_heads(layer, &op->k, op->k_rows, false);
    layer->v = add_heads(layer, &op->v, op->k_rows, false);
    layer->dq = add_heads(layer, &op->q, op->q_rows, true);
    layer->dk = add_heads(layer, &op->k, op->k_rows, true);
    layer->dv = add_heads(layer, &op->v, op->k_rows, true);
    for (int i = layer->dq; i <= layer->dv; i++) // what lies between is left as it is
        for (size_t j = 0; j < layer->scene.operands[i].words * layer->scene.samples; j++)
            layer->scene.operands[i].data[j] = 0;
    add_results(layer, op->heads * op->q_rows * op->v_width);
}

// Hides a third of the scores.
static void add_mask(struct layer *layer)
{
    size_t words = layer->op.q_rows * layer->op.k_rows;

    layer->mask = scene_add(&layer->scene, CN_ARENA_CONSTANTS, words, false, false);
    for (size_t i = 0; i < words; i++)
        if (i % 3 == 1)
            layer->scene.operands[layer->mask].data[i] = -INFINITY;
}

static const struct cn_attention apart = {.heads = 3,
                                          .q_rows = 7,
                                          .k_rows = 50,
                                          .width = 6,
                                          .v_width = 11,
                                          .q = {3, 7 * 8, 8},
                                          .k = {0, 50 * 6, 6},
                                          .v = {1, 50 * 12, 12},
                                          .y = {0, 7 * 11, 11},
                                          .scale = 0.7f};

static void masked_heads_one_after_the_other_agree_with_the_formulas(void **state)
{
    struct layer layer;

    (void)state;
    init_apart(&layer, &apart);
    add_mask(&layer);
    check(&layer, "a mask");
}

// Factors of 16 bits: the kernels for tensor cores, and for wide rows those for float32. Skipped on
// ports without that precision.
static void round_factors(struct layer *layer, enum cn_precision precision)
{
    layer->scene.precision = precision;
    layer->scene.tolerance = precision == CN_PRECISION_BFLOAT16 ? 1e-2 : 1.25e-3;
}

static const enum cn_precision short_precisions[] = {CN_PRECISION_BFLOAT16, CN_PRECISION_FLOAT16};

static void check_rounded(size_t heads, size_t rows, size_t width, bool causal, bool mask)
{
    struct layer layer;
    char name[96];

    for (size_t i = 0; i < 2; i++) {
        init_packed(&layer, heads, rows, width, causal, 1);
        round_factors(&layer, short_precisions[i]);
        if (mask)
            add_mask(&layer);
        snprintf(name, sizeof(name), "%zu heads of %zu, %zu rows%s%s, %s", heads, width, rows,
                 causal ? ", causal" : "", mask ? ", masked" : "", i ? "float16" : "bfloat16");
        check(&layer, name);
    }
}

static void rounded_heads_agree_with_the_formulas(void **state)
{
    const size_t rows[] = {1, 17, 64, 130}, widths[] = {8, 40, 64, 70};

    (void)state;
    for (size_t i = 0; i < 4; i++)
        for (int causal = 0; causal < 2; causal++) {
            check_rounded(1, rows[i], 64, causal, false);
            check_rounded(2, rows[i], widths[i], causal, rows[i] > 1);
            check_rounded(1, 65, widths[i], causal, false);
        }
    check_rounded(1, 150, 3, false, false);
    check_rounded(1, 150, 17, true, false);
}

// More rows on one side, without and with a causal mask.
static void rounded_heads_one_after_the_other_agree_with_the_formulas(void **state)
{
    struct layer layer;

    (void)state;
    for (size_t i = 0; i < 2; i++)
        for (int swapped = 0; swapped < 2; swapped++)
            for (int causal = 0; causal < 2; causal++) {
                struct cn_attention op = apart;

                op.q_rows = swapped ? 150 : 7;
                op.k_rows = swapped ? 50 : 200;
                op.q.head = op.q_rows * op.q.row;
                op.k.head = op.k_rows * op.k.row;
                op.v.head = op.k_rows * op.v.row;
                op.y.head = op.q_rows * op.y.row;
                op.causal = causal;
                init_apart(&layer, &op);
                round_factors(&layer, short_precisions[i]);
                if (!causal)
                    add_mask(&layer);
                check(&layer, "rounded, apart");
            }
}

// A NaN in a row of q makes that row of y NaN, and dk and dv of the whole head. No other head is
// touched.
static void a_nan_stays_in_its_head(void **state)
{
    struct layer layer;

    (void)state;
    for (int precision = CN_PRECISION_FLOAT32; precision <= CN_PRECISION_FLOAT16; precision++) {
        init_packed(&layer, 2, 70, 8, false, 1);
        if (precision != CN_PRECISION_FLOAT32)
            round_factors(&layer, (enum cn_precision)precision);
        layer.scene.operands[layer.q].data[5 * 3 * 2 * 8 + 2] = NAN; // row 5 of head 0
        check(&layer, "a NaN");
    }
}

// A row whose scores are all masked has no softmax: it is NaN, as in PyTorch, and is not hidden.
static void a_row_that_sees_nothing_is_nan(void **state)
{
    struct layer layer;
    size_t rows = 70;

    (void)state;
    for (int precision = CN_PRECISION_FLOAT32; precision <= CN_PRECISION_FLOAT16; precision++) {
        init_packed(&layer, 1, rows, 8, false, 1);
        if (precision != CN_PRECISION_FLOAT32)
            round_factors(&layer, (enum cn_precision)precision);
        layer.mask = scene_add(&layer.scene, CN_ARENA_CONSTANTS, rows * rows, false, false);
        for (size_t i = 0; i < rows * rows; i++)
            layer.scene.operands[layer.mask].data[i] = i / rows == 68 ? -INFINITY : 0;
        check(&layer, "a row without scores");
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(heads_side_by_side_agree_with_the_formulas),
        cmocka_unit_test(more_rows_than_a_block_holds_agree_with_the_formulas),
        cmocka_unit_test(heads_of_all_widths_agree_with_the_formulas),
        cmocka_unit_test(masked_heads_one_after_the_other_agree_with_the_formulas),
        cmocka_unit_test(rounded_heads_agree_with_the_formulas),
        cmocka_unit_test(rounded_heads_one_after_the_other_agree_with_the_formulas),
        cmocka_unit_test(a_nan_stays_in_its_head),
        cmocka_unit_test(a_row_that_sees_nothing_is_nan),
    };

    if (!kernels_present())
        return 77;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
