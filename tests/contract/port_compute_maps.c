// Elementwise ops on every compute port. Their gradients are those of the reference's differences.
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "tests/contract/compute_trial.h"
#include "tests/support/kernels_present.h"

#define DIFFERENCE 1e-5 // in double precision: the slope is right to about 1e-10

static double softplus(double x)
{
    return log1p(exp(x));
}

static double map_value(const struct cn_map *op, double x)
{
    const double alpha = (double)op->alpha, beta = (double)op->beta;

    // clang-format off
    switch (op->kind) {
    case CN_MAP_RELU: return x < 0 ? 0 : x;
    case CN_MAP_LEAKY_RELU: return x < 0 ? alpha * x : x;
    case CN_MAP_SIGMOID: return 1 / (1 + exp(-x));
    case CN_MAP_TANH: return tanh(x);
    case CN_MAP_SCALE: return alpha * x + beta;
    case CN_MAP_ELU: return x < 0 ? alpha * (exp(x) - 1) : x;
    case CN_MAP_SELU: return beta * (x < 0 ? alpha * (exp(x) - 1) : x);
    case CN_MAP_EXP: return exp(x);
    case CN_MAP_SQRT: return sqrt(x);
    case CN_MAP_RECIPROCAL: return 1 / x;
    case CN_MAP_SOFTPLUS: return softplus(x);
    case CN_MAP_CLIP: return fmin(fmax(x, alpha), beta);
    case CN_MAP_SIGN: return (x > 0) - (x < 0);
    case CN_MAP_NOT: return x == 0;
    case CN_MAP_FLOOR: return floor(x);
    case CN_MAP_CEIL: return ceil(x);
    case CN_MAP_ROUND: return rint(x);
    case CN_MAP_GELU: return x * erfc(-x / sqrt(2)) / 2;
    case CN_MAP_GELU_TANH: return x / 2 * (1 + tanh(sqrt(2 / M_PI) * (x + 0.044715 * pow(x, 3))));
    case CN_MAP_SILU: return x / (1 + exp(-x));
    case CN_MAP_HARD_SIGMOID: return fmin(fmax(alpha * x + beta, 0), 1);
    case CN_MAP_HARD_SWISH: return x * fmin(fmax(x / 6 + 0.5, 0), 1);
    case CN_MAP_MISH: return x * tanh(softplus(x));
    case CN_MAP_ERF: return erf(x);
    case CN_MAP_LOG: return log(x);
    case CN_MAP_ABS: return fabs(x);
    case CN_MAP_POWER: return pow(x, alpha);
    case CN_MAP_SIN: return sin(x);
    case CN_MAP_COS: return cos(x);
    case CN_MAP_CLAMP: return fmin(fmax(x, alpha), beta);
    case CN_MAP_FROM_INT: case CN_MAP_TO_INT: break;
    }
    // clang-format on
    return x;
}

// In [-4, 4), away from 0, where some slopes jump; above 0 for what is defined there only.
static double input_of(enum cn_map_kind kind, double random)
{
    double x = 4 * random;

    if (kind == CN_MAP_SQRT || kind == CN_MAP_LOG || kind == CN_MAP_POWER ||
        kind == CN_MAP_RECIPROCAL)
        return fabs(x) + 0.3;
    return fabs(x) < 1e-3 ? 0.5 : x;
}

static void fill_map(struct trial *trial, bool gradient)
{
    const struct cn_map *op = &trial->call.map;
    bool from_y = op->kind < CN_MAP_NEEDS_X;

    for (size_t i = 0; i < op->count * trial->samples; i++) {
        float *place = &trial->data[gradient ? 1 : 0][i];
        double x = input_of(op->kind, (double)*place), slope;

        *place = (float)x;
        x = (double)*place;
        if (!gradient) {
            trial->wanted[CN_CALL_INPUTS][i] = map_value(op, x);
            continue;
        }
        slope = (map_value(op, x + DIFFERENCE) - map_value(op, x - DIFFERENCE)) / (2 * DIFFERENCE);
        *place = from_y ? (float)map_value(op, x) : *place;
        trial->wanted[CN_CALL_INPUTS][i] = (double)trial->data[0][i] * slope;
    }
}

static void check_map(struct cn_map op, bool gradient)
{
    struct trial trial = {.samples = 7};
    char name[32];

    snprintf(name, sizeof(name), "map %d%s", (int)op.kind, gradient ? " gradient" : "");
    trial.call.op = gradient ? CN_OP_MAP_GRAD : CN_OP_MAP;
    trial.call.map = op;
    trial.extent[0] = trial.extent[CN_CALL_INPUTS] = (struct extent){op.count, true};
    if (gradient)
        trial.extent[1] = trial.extent[0];
    trial_init(&trial);
    fill_map(&trial, gradient);
    trial_check(&trial, name);
    trial_deinit(&trial);
}

static void maps_and_their_gradients_are_right(void **state)
{
    (void)state;
    for (int kind = CN_MAP_RELU; kind <= CN_MAP_CLAMP; kind++) {
        struct cn_map op = {
            .kind = (enum cn_map_kind)kind, .alpha = 0.2f, .beta = 0.5f, .count = 19};

        if (kind == CN_MAP_CLIP || kind == CN_MAP_CLAMP)
            op.alpha = -1.3f;
        if (kind == CN_MAP_SELU)
            op.beta = 1.05f;
        if (kind == CN_MAP_FROM_INT || kind == CN_MAP_TO_INT)
            continue;
        check_map(op, false);
        if (kind < CN_MAP_SIGN || kind >= CN_MAP_NEEDS_X)
            check_map(op, true);
    }
    check_map((struct cn_map){.kind = CN_MAP_POWER, .alpha = 2, .count = 19}, true);
    check_map((struct cn_map){.kind = CN_MAP_POWER, .alpha = -1.5f, .count = 19}, true);
}

// ReLU6 has no gradient at its limits in PyTorch, clamp has.
static void the_limits_of_a_clamp_have_a_gradient_those_of_relu6_none(void **state)
{
    static const float places[] = {-2, -1, 0, 1, 2};

    (void)state;
    for (int clamp = 0; clamp < 2; clamp++) {
        struct trial trial = {.call = {.op = CN_OP_MAP_GRAD}, .samples = 5};

        trial.call.map = (struct cn_map){
            .kind = clamp ? CN_MAP_CLAMP : CN_MAP_CLIP, .alpha = -1, .beta = 1, .count = 1};
        for (int i = 0; i < 2; i++)
            trial.extent[i] = (struct extent){1, true};
        trial.extent[CN_CALL_INPUTS] = (struct extent){1, true};
        trial_init(&trial);
        for (size_t i = 0; i < 5; i++) {
            float y = fminf(fmaxf(places[i], -1), 1);

            trial.data[1][i] = clamp ? places[i] : y;
            trial.wanted[CN_CALL_INPUTS][i] =
                fabsf(places[i]) < (clamp ? 1.5f : 0.5f) ? (double)trial.data[0][i] : 0;
        }
        trial_check(&trial, clamp ? "clamp at its limits" : "clip at its limits");
        trial_deinit(&trial);
    }
}

static void integers_and_floats_are_converted(void **state)
{
    static const struct {
        float real;
        int32_t integer;
    } pairs[] = {{0, 0}, {-3, -3}, {16777216, 16777216}, {-2147483648.0f, INT32_MIN}, {255, 255}};

    (void)state;
    for (int to_int = 0; to_int < 2; to_int++) {
        struct trial trial = {.call = {.op = CN_OP_MAP}, .samples = 5};

        trial.call.map.kind = to_int ? CN_MAP_TO_INT : CN_MAP_FROM_INT;
        trial.call.map.count = 1;
        trial.extent[0] = trial.extent[CN_CALL_INPUTS] = (struct extent){1, true};
        trial_init(&trial);
        for (size_t i = 0; i < 5; i++) {
            float bits;

            memcpy(&bits, &pairs[i].integer, sizeof(bits));
            trial.data[0][i] = to_int ? pairs[i].real : bits;
            trial.wanted[CN_CALL_INPUTS][i] =
                to_int ? (double)pairs[i].integer : (double)pairs[i].real;
        }
        trial_check(&trial, to_int ? "to integers" : "from integers");
        trial_deinit(&trial);
    }
}

static void what_int32_cannot_hold_becomes_its_least_number(void **state)
{
    static const struct {
        float real;
        int32_t integer;
    } pairs[] = {{NAN, INT32_MIN},
                 {INFINITY, INT32_MIN},
                 {-INFINITY, INT32_MIN},
                 {2147483648.0f, INT32_MIN},
                 {2147483520.0f, 2147483520},
                 {-2147483904.0f, INT32_MIN},
                 {1.75f, 1},
                 {-1.75f, -1}};

    (void)state;
    for (size_t i = 0; i < sizeof(pairs) / sizeof(pairs[0]); i++) { // the tolerance is relative
        struct trial trial = {.call = {.op = CN_OP_MAP}, .samples = 1};

        trial.call.map = (struct cn_map){.kind = CN_MAP_TO_INT, .count = 1};
        trial.extent[0] = trial.extent[CN_CALL_INPUTS] = (struct extent){1, true};
        trial_init(&trial);
        trial.data[0][0] = pairs[i].real;
        trial.wanted[CN_CALL_INPUTS][0] = (double)pairs[i].integer;
        trial_check(&trial, "to integers");
        trial_deinit(&trial);
    }
}

static double combine_value(const struct cn_combine *op, double a, double b)
{
    // clang-format off
    switch (op->kind) {
    case CN_COMBINE_ADD: return a + b;
    case CN_COMBINE_SUB: return a - b;
    case CN_COMBINE_MUL: return a * b;
    case CN_COMBINE_DIV: return a / b;
    case CN_COMBINE_MIN: return fmin(a, b);
    case CN_COMBINE_MAX: return fmax(a, b);
    case CN_COMBINE_POWER: return pow(a, b);
    case CN_COMBINE_PRELU: return a > 0 ? a : a * b;
    case CN_COMBINE_EQUAL: return a == b;
    case CN_COMBINE_LESS: return a < b;
    case CN_COMBINE_LESS_EQUAL: return a <= b;
    case CN_COMBINE_AND: return a != 0 && b != 0;
    case CN_COMBINE_OR: return a != 0 || b != 0;
    }
    // clang-format on
    return 0;
}

// Operands of a sample of dims 2 x 3 x 5: whole, a column for the middle dim, or one number.
static const size_t layouts[][3] = {{15, 5, 1}, {0, 1, 0}, {0, 0, 0}, {0, 0, 1}, {3, 1, 0}};
static const size_t layout_words[] = {30, 3, 1, 5, 6};

struct pair {
    struct cn_combine op;
    int layout[2];
    bool batched[2];
};

static size_t place_of(const size_t *strides, size_t i)
{
    return i / 15 * strides[0] + i / 5 % 3 * strides[1] + i % 5 * strides[2];
}

// Numbers that no slope jumps at.
static float good_number(enum cn_combine_kind kind, int side, size_t i)
{
    float x = trial_next_value();

    if (kind >= CN_COMBINE_AND)
        return (float)(i * 7 % 3 % 2);
    if (kind >= CN_COMBINE_EQUAL)
        return (float)(int)(2 * x);
    if (kind == CN_COMBINE_POWER && side == 0)
        return fabsf(x) + 0.2f;
    if (kind == CN_COMBINE_DIV && side == 1)
        return x < 0 ? x - 0.3f : x + 0.3f;
    return fabsf(x) < 1e-3f ? 0.5f : x;
}

// Operands a and b of the pair are the trial's inputs first and first + 1.
static void fill_operands(struct trial *trial, const struct pair *pair, int first)
{
    for (int side = 0; side < 2; side++) {
        size_t words = layout_words[pair->layout[side]];

        trial->extent[first + side] = (struct extent){words, pair->batched[side]};
    }
    trial_init(trial);
    for (int side = 0; side < 2; side++)
        for (size_t i = 0;
             i < layout_words[pair->layout[side]] * (pair->batched[side] ? trial->samples : 1); i++)
            trial->data[first + side][i] = good_number(pair->op.kind, side, i);
}

static double operand_at(const struct trial *trial, const struct pair *pair, int first, int side,
                         size_t n, size_t i)
{
    size_t at = place_of(side ? pair->op.b : pair->op.a, i) +
                (pair->batched[side] ? n * layout_words[pair->layout[side]] : 0);

    return (double)trial->data[first + side][at];
}

static void check_pair(const struct pair *pair)
{
    struct trial trial = {.call = {.op = CN_OP_COMBINE}, .samples = 4};

    trial.call.combine = pair->op;
    trial.extent[CN_CALL_INPUTS] = (struct extent){30, true};
    fill_operands(&trial, pair, 0);
    for (size_t n = 0; n < 4; n++)
        for (size_t i = 0; i < 30; i++)
            trial.wanted[CN_CALL_INPUTS][n * 30 + i] =
                combine_value(&pair->op, operand_at(&trial, pair, 0, 0, n, i),
                              operand_at(&trial, pair, 0, 1, n, i));
    trial_check(&trial, "combine");
    trial_deinit(&trial);
}

// The gradient of one side; operands that the kind's derivative does not need are left out.
static void check_pair_gradient(struct pair pair, int side)
{
    struct trial trial = {.call = {.op = CN_OP_COMBINE_GRAD}, .samples = 4};
    struct trial left_out;
    size_t words = layout_words[pair.layout[side]];

    pair.op.side = side;
    pair.op.scale = 0.5f;
    trial.call.combine = pair.op;
    trial.extent[0] = (struct extent){30, true};
    trial.extent[CN_CALL_INPUTS] = (struct extent){words, pair.batched[side]};
    fill_operands(&trial, &pair, 1);
    for (size_t n = 0; n < 4; n++)
        for (size_t i = 0; i < 30; i++) {
            double a = operand_at(&trial, &pair, 1, 0, n, i);
            double b = operand_at(&trial, &pair, 1, 1, n, i);
            double da = side ? 0 : DIFFERENCE, db = side ? DIFFERENCE : 0;
            size_t at =
                place_of(side ? pair.op.b : pair.op.a, i) + (pair.batched[side] ? n * words : 0);

            trial.wanted[CN_CALL_INPUTS][at] += 0.5 * (double)trial.data[0][n * 30 + i] *
                                                (combine_value(&pair.op, a + da, b + db) -
                                                 combine_value(&pair.op, a - da, b - db)) /
                                                (2 * DIFFERENCE);
        }
    left_out = trial;
    for (int i = 0; i < 2; i++)
        if (pair.op.kind < CN_COMBINE_MUL || (pair.op.kind == CN_COMBINE_MUL && i == side))
            left_out.extent[1 + i].words = 0;
    trial_check(&left_out, "combine gradient");
    trial_deinit(&trial);
}

static struct pair make_pair(enum cn_combine_kind kind, int a, int b)
{
    struct pair pair = {.op = {.kind = kind, .rank = 3, .dims = {2, 3, 5}, .scale = 1},
                        .layout = {a, b},
                        .batched = {a != 3, b == 0 || b == 4}};

    memcpy(pair.op.a, layouts[a], sizeof(layouts[a]));
    memcpy(pair.op.b, layouts[b], sizeof(layouts[b]));
    return pair;
}

static void arithmetic_repeats_operands_and_sums_their_gradients(void **state)
{
    static const int shapes[][2] = {{0, 0}, {0, 1}, {0, 2}, {0, 3}, {3, 0}, {4, 0}, {1, 3}};

    (void)state;
    for (int kind = CN_COMBINE_ADD; kind <= CN_COMBINE_OR; kind++)
        for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++) {
            struct pair pair = make_pair((enum cn_combine_kind)kind, shapes[i][0], shapes[i][1]);

            check_pair(&pair);
            for (int side = 0; side < 2 && kind < CN_COMBINE_EQUAL; side++)
                check_pair_gradient(pair, side);
        }
}

// a, b and the condition for dims 2 x 3 x 5; the condition repeats along the first.
static void check_where(bool gradient, int side)
{
    struct pair pair = make_pair(CN_COMBINE_ADD, 0, 1);
    struct trial trial = {.call = {.op = gradient ? CN_OP_COMBINE_GRAD : CN_OP_WHERE},
                          .samples = 4};
    int condition = gradient ? 1 : 2;

    pair.op.condition[1] = 5;
    pair.op.condition[2] = 1;
    pair.op.where = gradient;
    pair.op.side = side;
    trial.call.combine = pair.op;
    trial.extent[0] = (struct extent){30, true};
    trial.extent[condition] = (struct extent){15, true};
    if (!gradient)
        trial.extent[1] = (struct extent){3, false};
    trial.extent[CN_CALL_INPUTS] = gradient && side ? (struct extent){3, false} : trial.extent[0];
    trial_init(&trial);
    for (size_t i = 0; i < 60; i++)
        trial.data[condition][i] = (float)(i * 7 % 3 % 2);
    for (size_t n = 0; n < 4; n++)
        for (size_t i = 0; i < 30; i++) {
            bool chosen = trial.data[condition][n * 15 + i % 15] != 0;
            size_t shared = i / 5 % 3;

            if (gradient)
                trial.wanted[CN_CALL_INPUTS][side ? shared : n * 30 + i] +=
                    chosen == (side == 0) ? (double)trial.data[0][n * 30 + i] : 0;
            else
                trial.wanted[CN_CALL_INPUTS][n * 30 + i] =
                    chosen ? (double)trial.data[0][n * 30 + i] : (double)trial.data[1][shared];
        }
    trial_check(&trial, "where");
    trial_deinit(&trial);
}

static void a_condition_chooses_and_its_gradient_goes_where_it_chose(void **state)
{
    (void)state;
    check_where(false, 0);
    check_where(true, 0);
    check_where(true, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(maps_and_their_gradients_are_right),
        cmocka_unit_test(the_limits_of_a_clamp_have_a_gradient_those_of_relu6_none),
        cmocka_unit_test(integers_and_floats_are_converted),
        cmocka_unit_test(what_int32_cannot_hold_becomes_its_least_number),
        cmocka_unit_test(arithmetic_repeats_operands_and_sums_their_gradients),
        cmocka_unit_test(a_condition_chooses_and_its_gradient_goes_where_it_chose),
    };

    if (!kernels_present())
        return 77;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
