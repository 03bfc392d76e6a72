// Maps and their gradients; bias gradients.
#include <math.h>
#include <stdint.h>
#include <string.h>

#include "ports/cpu/curves.h"
#include "ports/cpu/kernel.h"
#include "ports/cpu/sums.h"

// Computes 1 / (1 + exp(-x)).
static inline float sigmoid(float x)
{
    return 1 / (1 + expf(-x));
}

// Computes log(1 + exp(x)) without overflow.
static inline float softplus(float x)
{
    return (x > 0 ? x : 0) + log1pf(expf(x > 0 ? -x : x));
}

#define GELU_INNER 0.7978845608028654f // sqrt(2 / pi)
#define GELU_CUBE 0.044715f

static inline float gelu_tanh(float x)
{
    return tanhf(GELU_INNER * (x + GELU_CUBE * x * x * x));
}

// Computes x / 2 * (1 + erf(x / sqrt(2))).
ALWAYS_INLINE vector gelu(vector x)
{
    return 0.5f * x * (1 + curve_erf(x * (float)M_SQRT1_2, curve_exp(-0.5f * x * x)));
}

// Computes (1 + erf(x / sqrt(2))) / 2 + x * exp(-x^2 / 2) / sqrt(2 pi).
ALWAYS_INLINE vector gelu_slope(vector x)
{
    vector density = curve_exp(-0.5f * x * x);

    return 0.5f * (1 + curve_erf(x * (float)M_SQRT1_2, density)) + 0.398942280f * x * density;
}

ALWAYS_INLINE vector error_function(vector x)
{
    return curve_erf(x, curve_exp(-x * x));
}

// Applies a map that is written for vectors. function is a compile-time constant.
ALWAYS_INLINE void map_vectors(vector (*function)(vector), const float *in, float *out,
                               size_t count)
{
    float rest[VECTOR] = {0};
    size_t i = 0;

    for (; i + VECTOR <= count; i += VECTOR)
        *(vector *)(out + i) = function(*(const vector *)(in + i));
    memcpy(rest, in + i, (count - i) * sizeof(*rest));
    *(vector *)rest = function(*(const vector *)rest);
    memcpy(out + i, rest, (count - i) * sizeof(*rest));
}

static void gelu_grad_all(const float *dy, const float *in, float *dx, size_t count)
{
    float rest[VECTOR] = {0};
    size_t i = 0;

    for (; i + VECTOR <= count; i += VECTOR)
        *(vector *)(dx + i) = *(const vector *)(dy + i) * gelu_slope(*(const vector *)(in + i));
    memcpy(rest, in + i, (count - i) * sizeof(*rest));
    *(vector *)rest = gelu_slope(*(const vector *)rest);
    for (size_t j = 0; i + j < count; j++)
        dx[i + j] = dy[i + j] * rest[j];
}

// A NaN stays; of limits in the wrong order the upper one counts.
static inline float clamp(float x, float low, float high)
{
    const float y = x < low ? low : x;

    return y > high ? high : y;
}

// Applies one kind of map, an expression of x, to all elements.
#define MAP(expression)                                                                            \
    do {                                                                                           \
        for (size_t i = 0; i < count; i++) {                                                       \
            const float x = in[i];                                                                 \
            out[i] = expression;                                                                   \
        }                                                                                          \
    } while (0)

// Converts between float32 and int32, which have the same size. A value that int32 cannot hold
// becomes INT32_MIN.
static void convert(bool to_int, const float *in, float *out, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        int32_t integer;

        if (to_int) {
            integer = in[i] >= 2147483648.0f || in[i] < -2147483648.0f || isnan(in[i])
                          ? INT32_MIN
                          : (int32_t)in[i];
            memcpy(&out[i], &integer, sizeof(integer));
        } else {
            memcpy(&integer, &in[i], sizeof(integer));
            out[i] = (float)integer;
        }
    }
}

// The comparisons are written so that a NaN stays a NaN.
void cpu_map(const struct cpu_task *task)
{
    const struct cn_map *op = &task->call->map;
    const float alpha = op->alpha, beta = op->beta;
    const size_t count = op->count * task->samples;
    const float *in = task->in[0];
    float *out = task->out[0];

    // clang-format off
    switch (op->kind) {
    case CN_MAP_RELU: MAP(x < 0 ? 0 : x); break;
    case CN_MAP_LEAKY_RELU: MAP(x < 0 ? alpha * x : x); break;
    case CN_MAP_SIGMOID: MAP(sigmoid(x)); break;
    case CN_MAP_TANH: MAP(tanhf(x)); break;
    case CN_MAP_SCALE: MAP(alpha * x + beta); break;
    case CN_MAP_ELU: MAP(x < 0 ? alpha * expm1f(x) : x); break;
    case CN_MAP_SELU: MAP(beta * (x < 0 ? alpha * expm1f(x) : x)); break;
    case CN_MAP_EXP: MAP(expf(x)); break;
    case CN_MAP_SQRT: MAP(sqrtf(x)); break;
    case CN_MAP_RECIPROCAL: MAP(1 / x); break;
    case CN_MAP_SOFTPLUS: MAP(softplus(x)); break;
    case CN_MAP_CLIP: MAP(x < alpha ? alpha : x > beta ? beta : x); break;
    case CN_MAP_SIGN: MAP(x > 0 ? 1 : x < 0 ? -1 : x); break;
    case CN_MAP_NOT: MAP(x == 0 ? 1.0f : 0.0f); break;
    case CN_MAP_FLOOR: MAP(floorf(x)); break;
    case CN_MAP_CEIL: MAP(ceilf(x)); break;
    case CN_MAP_ROUND: MAP(nearbyintf(x)); break;
    case CN_MAP_FROM_INT: convert(false, in, out, count); break;
    case CN_MAP_TO_INT: convert(true, in, out, count); break;
    case CN_MAP_GELU: map_vectors(gelu, in, out, count); break;
    case CN_MAP_GELU_TANH: MAP(x * 0.5f * (1 + gelu_tanh(x))); break;
    case CN_MAP_SILU: MAP(x * sigmoid(x)); break;
    case CN_MAP_HARD_SIGMOID: MAP(fmaxf(0, fminf(1, alpha * x + beta))); break;
    case CN_MAP_HARD_SWISH: MAP(x * fmaxf(0, fminf(1, x / 6 + 0.5f))); break;
    case CN_MAP_MISH: MAP(x * tanhf(softplus(x))); break;
    case CN_MAP_ERF: map_vectors(error_function, in, out, count); break;
    case CN_MAP_LOG: MAP(logf(x)); break;
    case CN_MAP_ABS: MAP(fabsf(x)); break;
    case CN_MAP_POWER:
        if (alpha == 2)
            MAP(x * x);
        else
            MAP(powf(x, alpha));
        break;
    case CN_MAP_SIN: MAP(sinf(x)); break;
    case CN_MAP_COS: MAP(cosf(x)); break;
    case CN_MAP_CLAMP: MAP(clamp(x, alpha, beta)); break;
    }
    // clang-format on
}

static inline float gelu_tanh_slope(float x)
{
    const float t = gelu_tanh(x);

    return 0.5f * (1 + t) + 0.5f * x * (1 - t * t) * GELU_INNER * (1 + 3 * GELU_CUBE * x * x);
}

static inline float mish_slope(float x)
{
    const float t = tanhf(softplus(x));

    return t + x * sigmoid(x) * (1 - t * t);
}

// Computes dx = dy times an expression of x. For some kinds x is the map's result y (struct
// cn_map).
#define GRAD(expression)                                                                           \
    do {                                                                                           \
        for (size_t i = 0; i < count; i++) {                                                       \
            const float x = in[i];                                                                 \
            dx[i] = dy[i] * (expression);                                                          \
        }                                                                                          \
    } while (0)

void cpu_map_grad(const struct cpu_task *task)
{
    const struct cn_map *op = &task->call->map;
    const float alpha = op->alpha, beta = op->beta;
    const size_t count = op->count * task->samples;
    const float *dy = task->in[0];
    const float *in = task->in[1];
    float *dx = task->out[0];

    // clang-format off
    switch (op->kind) {
    case CN_MAP_RELU:
        for (size_t i = 0; i < count; i++)
            dx[i] = in[i] > 0 ? dy[i] : 0;
        break;
    case CN_MAP_LEAKY_RELU: GRAD(x > 0 ? 1 : alpha); break;
    case CN_MAP_SIGMOID: GRAD(x * (1 - x)); break;
    case CN_MAP_TANH: GRAD(1 - x * x); break;
    case CN_MAP_SCALE:
        for (size_t i = 0; i < count; i++)
            dx[i] = alpha * dy[i];
        break;
    case CN_MAP_ELU: GRAD(x > 0 ? 1 : x + alpha); break;
    case CN_MAP_SELU: GRAD(x > 0 ? beta : x + alpha * beta); break;
    case CN_MAP_EXP: GRAD(x); break;
    case CN_MAP_SQRT: GRAD(0.5f / x); break;
    case CN_MAP_RECIPROCAL: GRAD(-x * x); break;
    case CN_MAP_SOFTPLUS: GRAD(-expm1f(-x)); break;
    case CN_MAP_CLIP: GRAD(alpha < x && x < beta ? 1.0f : 0.0f); break;
    case CN_MAP_GELU: gelu_grad_all(dy, in, dx, count); break;
    case CN_MAP_GELU_TANH: GRAD(gelu_tanh_slope(x)); break;
    case CN_MAP_SILU: GRAD(sigmoid(x) * (1 + x * (1 - sigmoid(x)))); break;
    case CN_MAP_HARD_SIGMOID: GRAD(alpha * x + beta > 0 && alpha * x + beta < 1 ? alpha : 0); break;
    case CN_MAP_HARD_SWISH: GRAD(x <= -3 ? 0 : x < 3 ? x / 3 + 0.5f : 1); break;
    case CN_MAP_MISH: GRAD(mish_slope(x)); break;
    case CN_MAP_ERF: GRAD(1.1283791670955126f * expf(-x * x)); break; // 2 / sqrt(pi)
    case CN_MAP_LOG: GRAD(1 / x); break;
    case CN_MAP_ABS: GRAD(x > 0 ? 1 : x < 0 ? -1 : 0); break;
    case CN_MAP_POWER:
        if (alpha == 2)
            GRAD(2 * x);
        else
            GRAD(alpha == 0 ? 0 : alpha * powf(x, alpha - 1));
        break;
    case CN_MAP_SIN: GRAD(cosf(x)); break;
    case CN_MAP_COS: GRAD(-sinf(x)); break;
    case CN_MAP_CLAMP: GRAD(alpha <= x && x <= beta ? 1.0f : 0.0f); break;
    case CN_MAP_SIGN: case CN_MAP_NOT: case CN_MAP_FLOOR: case CN_MAP_CEIL: case CN_MAP_ROUND:
    case CN_MAP_FROM_INT: case CN_MAP_TO_INT: // have none
        break;
    }
    // clang-format on
}

// Adds four rows at a time, so that the sums are read and written less often. Returns the number of
// rows that were added.
static size_t add_four_rows(float scale, const float *dy, size_t rows, size_t count, float *db)
{
    size_t r = 0;

    for (; r + 4 <= rows; r += 4, dy += 4 * count)
        for (size_t c = 0; c < count; c++)
            db[c] += scale * (dy[c] + dy[count + c] + (dy[2 * count + c] + dy[3 * count + c]));
    return r;
}

void cpu_bias_grad(const struct cpu_task *task)
{
    const struct cn_bias *op = &task->call->bias;
    size_t rows = op->rows * task->samples, r = 0;
    float *db = task->out[0];

    if (!task->add)
        memset(db, 0, op->channels * sizeof(*db));
    if (op->inner == 1)
        r = add_four_rows(op->scale, task->in[0], rows, op->channels, db);
    for (; r < rows; r++)
        for (size_t c = 0; c < op->channels; c++)
            db[c] +=
                op->scale * row_sum(task->in[0] + (r * op->channels + c) * op->inner, op->inner);
}
