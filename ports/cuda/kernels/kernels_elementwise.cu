// Maps, broadcasting arithmetic, copies, fills, dropout and extremes. A thread computes one output
// at a time.
#include "ports/cuda/kernels/kernel_common.h"

#define ROOT_HALF 0.70710678118654752f     // 1 / sqrt(2)
#define DENSITY_SCALE 0.39894228040143268f // 1 / sqrt(2 pi)
#define ERF_SLOPE 1.1283791670955126f      // 2 / sqrt(pi)
#define TANH_SCALE 0.79788456080286536f    // sqrt(2 / pi), of GELU's approximation
#define TANH_CUBE 0.044715f

DEVICE float sigmoid(float x)
{
    return 1 / (1 + expf(-x));
}

// Returns log(1 + exp(x)) without overflow.
DEVICE float softplus(float x)
{
    return fmaxf(x, 0) + log1pf(expf(-fabsf(x)));
}

// Limits x to [low, high]; a NaN stays.
DEVICE float clip(float x, float low, float high)
{
    return x < low ? low : x > high ? high : x;
}

// Returns the value of a map whose gradient needs x.
DEVICE float map_of_x(const struct cn_map *op, float x)
{
    switch (op->kind) {
    case CN_MAP_GELU:
        return x * 0.5f * (1 + erff(x * ROOT_HALF));
    case CN_MAP_GELU_TANH:
        return x * 0.5f * (1 + tanhf(TANH_SCALE * (x + TANH_CUBE * x * x * x)));
    case CN_MAP_SILU:
        return x * sigmoid(x);
    case CN_MAP_HARD_SIGMOID:
        return clip(op->alpha * x + op->beta, 0, 1);
    case CN_MAP_HARD_SWISH:
        return x * clip(x / 6 + 0.5f, 0, 1);
    case CN_MAP_MISH:
        return x * tanhf(softplus(x));
    case CN_MAP_ERF:
        return erff(x);
    case CN_MAP_LOG:
        return logf(x);
    case CN_MAP_ABS:
        return fabsf(x);
    case CN_MAP_POWER:
        return powf(x, op->alpha);
    case CN_MAP_SIN:
        return sinf(x);
    case CN_MAP_COS:
        return cosf(x);
    default: // CN_MAP_CLAMP; of limits in the wrong order the upper one counts
        x = x < op->alpha ? op->alpha : x;
        return x > op->beta ? op->beta : x;
    }
}

// Converts as CN_MAP_TO_INT says; the device's own conversion makes 0 of a NaN and limits the rest.
DEVICE int32_t to_int(float x)
{
    return x >= -2147483648.0f && x < 2147483648.0f ? float_to_int(x) : INT32_MIN;
}

// Returns the value of a map. The comparisons are written so that a NaN stays a NaN.
DEVICE float map_value(const struct cn_map *op, float x)
{
    switch (op->kind) {
    case CN_MAP_RELU:
        return x < 0 ? 0 : x;
    case CN_MAP_LEAKY_RELU:
        return x < 0 ? op->alpha * x : x;
    case CN_MAP_SIGMOID:
        return sigmoid(x);
    case CN_MAP_TANH:
        return tanhf(x);
    case CN_MAP_SCALE:
        return op->alpha * x + op->beta;
    case CN_MAP_ELU:
        return x < 0 ? op->alpha * expm1f(x) : x;
    case CN_MAP_SELU:
        return op->beta * (x < 0 ? op->alpha * expm1f(x) : x);
    case CN_MAP_EXP:
        return expf(x);
    case CN_MAP_SQRT:
        return sqrtf(x);
    case CN_MAP_RECIPROCAL:
        return 1 / x;
    case CN_MAP_SOFTPLUS:
        return softplus(x);
    case CN_MAP_CLIP:
        return clip(x, op->alpha, op->beta);
    case CN_MAP_SIGN:
        return x > 0 ? 1.0f : x < 0 ? -1.0f : x;
    case CN_MAP_NOT:
        return x == 0 ? 1.0f : 0.0f;
    case CN_MAP_FLOOR:
        return floorf(x);
    case CN_MAP_CEIL:
        return ceilf(x);
    case CN_MAP_ROUND:
        return rintf(x);
    case CN_MAP_FROM_INT:
        return (float)(int32_t)float_bits(x);
    case CN_MAP_TO_INT:
        return bits_float((uint32_t)to_int(x));
    default:
        return map_of_x(op, x);
    }
}

KERNEL(map)
{
    const struct cn_map *op = &a.call.map;
    uint32_t count = (uint32_t)op->count, total = count * output_samples(&a);
    bool add = adds(&a);

    for (uint32_t i = first_index(); i < total; i += index_step()) {
        float y = map_value(op, a.in[0][word_of(i, count, a.call.in[0].stride)]);

        put(&a.out[0][word_of(i, count, a.call.out[0].stride)], y, add);
    }
}

// The derivative of x / 2 * (1 + tanh(u)) with u = scale * (x + cube * x^3).
DEVICE float gelu_tanh_slope(float x)
{
    float t = tanhf(TANH_SCALE * (x + TANH_CUBE * x * x * x));

    return 0.5f * (1 + t) + 0.5f * x * (1 - t * t) * TANH_SCALE * (1 + 3 * TANH_CUBE * x * x);
}

DEVICE float mish_slope(float x)
{
    float t = tanhf(softplus(x));

    return t + x * (1 - t * t) * sigmoid(x);
}

// Returns the derivative of a map, from x.
DEVICE float slope_of_x(const struct cn_map *op, float x)
{
    float s;

    switch (op->kind) {
    case CN_MAP_GELU:
        return 0.5f * (1 + erff(x * ROOT_HALF)) + x * DENSITY_SCALE * expf(-0.5f * x * x);
    case CN_MAP_GELU_TANH:
        return gelu_tanh_slope(x);
    case CN_MAP_SILU:
        s = sigmoid(x);
        return s * (1 + x * (1 - s));
    case CN_MAP_HARD_SIGMOID:
        s = op->alpha * x + op->beta;
        return s > 0 && s < 1 ? op->alpha : 0;
    case CN_MAP_HARD_SWISH:
        return x <= -3 ? 0 : x >= 3 ? 1 : x / 3 + 0.5f;
    case CN_MAP_MISH:
        return mish_slope(x);
    case CN_MAP_ERF:
        return ERF_SLOPE * expf(-x * x);
    case CN_MAP_LOG:
        return 1 / x;
    case CN_MAP_ABS:
        return x > 0 ? 1.0f : x < 0 ? -1.0f : 0.0f;
    case CN_MAP_POWER:
        return op->alpha == 0 ? 0 : op->alpha * powf(x, op->alpha - 1);
    case CN_MAP_SIN:
        return cosf(x);
    case CN_MAP_COS:
        return -sinf(x);
    default: // CN_MAP_CLAMP
        return op->alpha <= x && x <= op->beta ? 1 : 0;
    }
}

// Returns the derivative of a map. The argument is the map's result for kinds before
// CN_MAP_NEEDS_X, else x.
DEVICE float map_slope(const struct cn_map *op, float y)
{
    switch (op->kind) {
    case CN_MAP_RELU:
        return y > 0 ? 1 : 0;
    case CN_MAP_LEAKY_RELU:
        return y > 0 ? 1 : op->alpha;
    case CN_MAP_SIGMOID:
        return y * (1 - y);
    case CN_MAP_TANH:
        return 1 - y * y;
    case CN_MAP_SCALE:
        return op->alpha;
    case CN_MAP_ELU:
        return y > 0 ? 1 : y + op->alpha;
    case CN_MAP_SELU:
        return y > 0 ? op->beta : y + op->alpha * op->beta;
    case CN_MAP_EXP:
        return y;
    case CN_MAP_SQRT:
        return 0.5f / y;
    case CN_MAP_RECIPROCAL:
        return -y * y;
    case CN_MAP_SOFTPLUS: // sigmoid(x)
        return -expm1f(-y);
    case CN_MAP_CLIP:
        return op->alpha < y && y < op->beta ? 1 : 0;
    default:
        return op->kind < CN_MAP_NEEDS_X ? 0 : slope_of_x(op, y);
    }
}

KERNEL(map_grad)
{
    const struct cn_map *op = &a.call.map;
    uint32_t count = (uint32_t)op->count, total = count * output_samples(&a);
    bool add = adds(&a);

    for (uint32_t i = first_index(); i < total; i += index_step()) {
        float dy = a.in[0][word_of(i, count, a.call.in[0].stride)];
        float slope = map_slope(op, a.in[1][word_of(i, count, a.call.in[1].stride)]);

        put(&a.out[0][word_of(i, count, a.call.out[0].stride)], dy * slope, add);
    }
}

DEVICE float combine_value(enum cn_combine_kind kind, float a, float b)
{
    switch (kind) {
    case CN_COMBINE_ADD:
        return a + b;
    case CN_COMBINE_SUB:
        return a - b;
    case CN_COMBINE_MUL:
        return a * b;
    case CN_COMBINE_DIV:
        return a / b;
    case CN_COMBINE_MIN: // a NaN wins, as in PyTorch
        return a != a || a < b ? a : b;
    case CN_COMBINE_MAX:
        return a != a || a > b ? a : b;
    case CN_COMBINE_POWER:
        return powf(a, b);
    case CN_COMBINE_PRELU:
        return a > 0 ? a : a * b;
    case CN_COMBINE_EQUAL:
        return a == b ? 1.0f : 0.0f;
    case CN_COMBINE_LESS:
        return a < b ? 1.0f : 0.0f;
    case CN_COMBINE_LESS_EQUAL:
        return a <= b ? 1.0f : 0.0f;
    case CN_COMBINE_AND:
        return a != 0 && b != 0 ? 1.0f : 0.0f;
    default: // CN_COMBINE_OR
        return a != 0 || b != 0 ? 1.0f : 0.0f;
    }
}

DEVICE uint32_t combine_count(const struct cn_combine *op)
{
    uint32_t count = 1;

    for (uint32_t d = 0; d < op->rank; d++)
        count *= (uint32_t)op->dims[d];
    return count;
}

// The words of an element in the three operands.
struct places {
    size_t a, b, condition;
};

DEVICE struct places places_of(const struct cn_combine *op, uint32_t i)
{
    struct places at = {0, 0, 0};

    if (op->rank == 1) {
        at.a = i * op->a[0];
        at.b = i * op->b[0];
        at.condition = i * op->condition[0];
        return at;
    }
    for (uint32_t d = op->rank; d-- > 0;) {
        uint32_t index = i % (uint32_t)op->dims[d];

        i /= (uint32_t)op->dims[d];
        at.a += index * op->a[d];
        at.b += index * op->b[d];
        at.condition += index * op->condition[d];
    }
    return at;
}

// Does COMBINE and WHERE.
KERNEL(combine)
{
    const struct cn_combine *op = &a.call.combine;
    uint32_t count = combine_count(op), total = count * output_samples(&a);
    bool add = adds(&a);

    for (uint32_t i = first_index(); i < total; i += index_step()) {
        uint32_t n = i / count;
        struct places at = places_of(op, i % count);
        float left = a.in[0][n * a.call.in[0].stride + at.a];
        float right = a.in[1][n * a.call.in[1].stride + at.b];
        float value;

        if (a.call.op == CN_OP_WHERE)
            value = a.in[2][n * a.call.in[2].stride + at.condition] != 0 ? left : right;
        else
            value = combine_value(op->kind, left, right);
        put(&a.out[0][n * a.call.out[0].stride + i % count], value, add);
    }
}

// Returns d (a op b) / d a for side 0, d (a op b) / d b for side 1.
DEVICE float combine_slope(enum cn_combine_kind kind, int side, float a, float b)
{
    switch (kind) {
    case CN_COMBINE_ADD:
        return 1;
    case CN_COMBINE_SUB:
        return side ? -1.0f : 1.0f;
    case CN_COMBINE_MUL:
        return side ? a : b;
    case CN_COMBINE_DIV:
        return side ? -a / (b * b) : 1 / b;
    case CN_COMBINE_MIN: // as in PyTorch: half for each where they are equal
        return a == b ? 0.5f : (a < b) == !side ? 1.0f : 0.0f;
    case CN_COMBINE_MAX:
        return a == b ? 0.5f : (a > b) == !side ? 1.0f : 0.0f;
    case CN_COMBINE_POWER:
        if (side)
            return a == 0 && b >= 0 ? 0 : powf(a, b) * logf(a);
        return b == 0 ? 0 : b * powf(a, b - 1);
    case CN_COMBINE_PRELU:
        if (side)
            return a > 0 ? 0 : a;
        return a > 0 ? 1 : b;
    default:
        return 0;
    }
}

// Returns dc times the derivative at element i of sample n.
DEVICE float combine_share(const struct cuda_args *a, uint32_t n, uint32_t i)
{
    const struct cn_combine *op = &a->call.combine;
    struct places at = places_of(op, i);
    float dc = a->in[0][n * a->call.in[0].stride + i];
    float left, right;

    if (op->where) {
        bool chosen = a->in[1][n * a->call.in[1].stride + at.condition] != 0;

        return chosen == !op->side ? dc : 0;
    }
    left = a->in[1] ? a->in[1][n * a->call.in[1].stride + at.a] : 0;
    right = a->in[2] ? a->in[2][n * a->call.in[2].stride + at.b] : 0;
    return dc * combine_slope(op->kind, op->side, left, right);
}

// Returns the number of an element in a sample. kept counts over the dimensions that the result
// keeps (stride not 0), summed over those that it sums. *place is the word in the result.
DEVICE uint32_t combine_element(const struct cn_combine *op, uint32_t kept, uint32_t summed,
                                size_t *place)
{
    uint32_t element = 0, size = 1;

    *place = 0;
    for (uint32_t d = op->rank; d-- > 0;) {
        uint32_t dim = (uint32_t)op->dims[d];
        size_t stride = op->side ? op->b[d] : op->a[d];
        uint32_t index;

        if (stride) {
            index = kept % dim;
            kept /= dim;
        } else {
            index = summed % dim;
            summed /= dim;
        }
        element += index * size;
        size *= dim;
        *place += index * stride;
    }
    return element;
}

// Returns the number of elements of the result.
DEVICE uint32_t kept_count(const struct cn_combine *op)
{
    uint32_t count = 1;

    for (uint32_t d = 0; d < op->rank; d++)
        if (op->side ? op->b[d] : op->a[d])
            count *= (uint32_t)op->dims[d];
    return count;
}

// An output is the sum over the elements that its operand repeats. It is the work of a thread, or
// with wide of a block.
KERNEL(combine_grad)
{
    const struct cn_combine *op = &a.call.combine;
    uint32_t kept = kept_count(op), summed = combine_count(op) / kept;
    bool shared = !a.call.out[0].stride, add = adds(&a);
    uint32_t samples = shared && a.call.in[0].stride ? run_samples(&a) : 1;
    uint32_t total = kept * (shared ? 1 : a.samples);
    uint32_t lane = a.wide ? thread_index() : 0, width = a.wide ? block_size() : 1;

    for (uint32_t i = a.wide ? block_index() : first_index(); i < total;
         i += a.wide ? grid_size() : index_step()) {
        uint32_t n = i / kept;
        size_t place;
        float sum = 0;

        for (uint32_t j = lane; j < summed * samples; j += width) {
            uint32_t element = combine_element(op, i % kept, j % summed, &place);

            sum += combine_share(&a, n + j / summed, element);
        }
        if (a.wide)
            sum = block_sum(sum);
        combine_element(op, i % kept, 0, &place);
        if (lane == 0)
            put(&a.out[0][n * a.call.out[0].stride + place], sum * op->scale, add);
    }
}

// A result that all samples share is the sum over the samples of the run.
KERNEL(copy)
{
    const struct cn_copy *op = &a.call.copy;
    bool shared = !a.call.out[0].stride, add = adds(&a);
    uint32_t samples = shared && a.call.in[0].stride ? run_samples(&a) : 1;
    uint32_t count = 1, total;

    for (uint32_t d = 0; d < op->rank; d++)
        count *= (uint32_t)op->dims[d];
    total = count * output_samples(&a);
    for (uint32_t i = first_index(); i < total; i += index_step()) {
        uint32_t n = i / count, rest = i % count;
        ptrdiff_t x = (ptrdiff_t)op->x_offset, y = (ptrdiff_t)op->y_offset;
        float sum = 0;

        for (uint32_t d = op->rank; d-- > 0;) {
            ptrdiff_t index = (ptrdiff_t)(rest % (uint32_t)op->dims[d]);

            rest /= (uint32_t)op->dims[d];
            x += index * op->x[d];
            y += index * op->y[d];
        }
        for (uint32_t s = 0; s < samples; s++)
            sum += op->scale * a.in[0][(n + s) * a.call.in[0].stride + (size_t)x];
        // A copy that is not scaled keeps the bits, because they may be integers.
        if (samples == 1 && op->scale == 1 && !add)
            sum = a.in[0][n * a.call.in[0].stride + (size_t)x];
        put(&a.out[0][n * a.call.out[0].stride + (size_t)y], sum, add);
    }
}

KERNEL(fill)
{
    const struct cn_fill *op = &a.call.fill;
    uint32_t count = (uint32_t)op->count, total = count * output_samples(&a);
    bool add = adds(&a);

    for (uint32_t i = first_index(); i < total; i += index_step())
        put(&a.out[0][word_of(i, count, a.call.out[0].stride)], op->value, add);
}

// Does one round of Philox4x32 (Salmon et al., SC 2011).
DEVICE void philox_round(uint32_t counter[4], uint32_t key0, uint32_t key1)
{
    uint64_t first = (uint64_t)0xd2511f53u * counter[0];
    uint64_t second = (uint64_t)0xcd9e8d57u * counter[2];

    counter[0] = (uint32_t)(second >> 32) ^ counter[1] ^ key0;
    counter[1] = (uint32_t)second;
    counter[2] = (uint32_t)(first >> 32) ^ counter[3] ^ key1;
    counter[3] = (uint32_t)first;
}

// Does the ten rounds; the counter becomes four random words.
DEVICE void philox(uint32_t counter[4], uint64_t seed)
{
    uint32_t key0 = (uint32_t)seed, key1 = (uint32_t)(seed >> 32);

    for (int i = 0; i < 10; i++) {
        philox_round(counter, key0, key1);
        key0 += 0x9e3779b9u;
        key1 += 0xbb67ae85u;
    }
}

// A thread draws four words and decides about four elements.
KERNEL(dropout)
{
    const struct cn_dropout *op = &a.call.dropout;
    uint32_t count = (uint32_t)op->count, draws = (count + 3) / 4;
    uint32_t total = draws * output_samples(&a);
    uint64_t limit = (uint64_t)ceil((double)op->rate * 4294967296.0);
    float scale = 1 / (1 - op->rate);
    bool add = adds(&a);

    for (uint32_t i = first_index(); i < total; i += index_step()) {
        uint32_t n = i / draws, draw = i % draws;
        uint64_t sample = a.hyper->first_sample + n;
        uint32_t words[4] = {draw, op->node, (uint32_t)sample, (uint32_t)(sample >> 32)};

        philox(words, a.hyper->seed);
        for (uint32_t j = 0; j < 4 && draw * 4 + j < count; j++) {
            uint32_t e = draw * 4 + j;
            float x = a.in[0][n * a.call.in[0].stride + e];

            put(&a.out[0][n * a.call.out[0].stride + e], words[j] >= limit ? x * scale : 0, add);
        }
    }
}

// A thread finds one output. Dimensions with stride 0 in y are searched.
KERNEL(extreme)
{
    const struct cn_extreme *op = &a.call.extreme;
    uint32_t kept = 1, count = 1, total;

    for (uint32_t d = 0; d < op->rank; d++) {
        count *= (uint32_t)op->dims[d];
        kept *= op->y[d] ? (uint32_t)op->dims[d] : 1;
    }
    total = kept * output_samples(&a);
    for (uint32_t i = first_index(); i < total; i += index_step()) {
        uint32_t n = i / kept, best = 0;
        const float *x = a.in[0] + n * a.call.in[0].stride;
        size_t place = 0;

        for (uint32_t j = 0; j < count / kept; j++) {
            uint32_t element = 0, size = 1, left = i % kept, searched = j;

            place = 0;
            for (uint32_t d = op->rank; d-- > 0;) {
                uint32_t dim = (uint32_t)op->dims[d];
                uint32_t index = (op->y[d] ? left : searched) % dim;

                if (op->y[d])
                    left /= dim;
                else
                    searched /= dim;
                element += index * size;
                size *= dim;
                place += index * op->y[d];
            }
            if (j == 0 ||
                (op->kind == CN_EXTREME_MAX ? x[element] > x[best] : x[element] < x[best]) ||
                (x[element] != x[element] && x[best] == x[best])) // the first NaN
                best = element;
        }
        a.out[0][n * a.call.out[0].stride + place] = x[best];
        a.out[1][n * a.call.out[1].stride + place] = bits_float(best);
    }
}

// A thread finds one input's gradient: dy of its output if the output came from this element.
KERNEL(extreme_grad)
{
    const struct cn_extreme *op = &a.call.extreme;
    bool add = adds(&a);
    uint32_t count = 1, total;

    for (uint32_t d = 0; d < op->rank; d++)
        count *= (uint32_t)op->dims[d];
    total = count * output_samples(&a);
    for (uint32_t i = first_index(); i < total; i += index_step()) {
        uint32_t n = i / count, element = i % count, rest = element;
        size_t place = 0;
        bool chosen;

        for (uint32_t d = op->rank; d-- > 0;) {
            place += rest % (uint32_t)op->dims[d] * op->y[d];
            rest /= (uint32_t)op->dims[d];
        }
        chosen = float_bits(a.in[1][n * a.call.in[1].stride + place]) == element;
        put(&a.out[0][n * a.call.out[0].stride + element],
            chosen ? a.in[0][n * a.call.in[0].stride + place] : 0, add);
    }
}
