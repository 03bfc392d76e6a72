// Recurrent layers: one direction over all steps. All samples of the lane go through a step
// together, so that the product with the recurrent weight is a product of matrices.
#include <string.h>
#if defined(__AVX2__)
#include <immintrin.h>
#endif

#include "ports/cpu/curves.h"
#include "ports/cpu/kernel.h"
#include "ports/cpu/plane.h"

struct layer {
    const struct cpu_task *task;
    const struct cn_recurrent *op;
    size_t hidden, gates, width; // hidden: words of a state; width: words of all gates together
    // Words of the gates whose product sees h(t - 1): all gates, except a late hidden gate.
    size_t early;
    bool late;              // the product of GRU's hidden gate sees r * h(t - 1) instead
    size_t hidden_row, row; // hidden and early, rounded up to whole tiles: words of a row
};

static size_t gates_of(enum cn_recurrent_kind kind)
{
    return kind == CN_RECURRENT_LSTM ? 4 : kind == CN_RECURRENT_GRU ? 3 : 1;
}

static struct layer layer_of(const struct cpu_task *task, const struct cn_recurrent *op)
{
    struct layer layer = {
        .task = task, .op = op, .hidden = op->hidden, .gates = gates_of(op->kind)};

    layer.width = layer.gates * op->hidden;
    layer.late = op->kind == CN_RECURRENT_GRU && !op->reset_after;
    layer.early = layer.late ? 2 * op->hidden : layer.width;
    layer.hidden_row = round_up(op->hidden, TILE_COLS);
    layer.row = round_up(layer.early, TILE_COLS);
    return layer;
}

// Returns the ith step in the direction of the layer.
static size_t step_of(const struct cn_recurrent *op, size_t i)
{
    return op->reverse ? op->steps - 1 - i : i;
}

// Returns where sample n's row of an operand begins at a step, with width words for each step.
static size_t at_of(const struct layer *layer, size_t n, size_t step, size_t width)
{
    return (n * layer->op->steps + step) * width;
}

static const vector none;

// load and store touch only the first `left` words of a vector, or all of them if left is larger. A
// row may end inside a vector, and the words after it may belong to another lane.
#if defined(__AVX512F__)
static __mmask16 first_words(size_t left)
{
    return (__mmask16)(left < VECTOR ? (1u << left) - 1 : 0xffffu);
}

static vector load(const float *from, size_t left)
{
    return (vector)_mm512_maskz_loadu_ps(first_words(left), from);
}

static void store(float *to, vector value, size_t left)
{
    _mm512_mask_storeu_ps(to, first_words(left), (__m512)value);
}
#elif defined(__AVX2__)
static __m256i first_words(size_t left)
{
    return _mm256_cmpgt_epi32(_mm256_set1_epi32((int)left),
                              _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}

static vector load(const float *from, size_t left)
{
    return left < VECTOR ? (vector)_mm256_maskload_ps(from, first_words(left))
                         : *(const vector *)from;
}

static void store(float *to, vector value, size_t left)
{
    if (left < VECTOR)
        _mm256_maskstore_ps(to, first_words(left), (__m256)value);
    else
        *(vector *)to = value;
}
#else // vectors of four
static vector load(const float *from, size_t left)
{
    vector value = none;

    if (left >= VECTOR)
        return *(const vector *)from;
    value[0] = from[0];
    if (left > 1)
        value[1] = from[1];
    if (left > 2)
        value[2] = from[2];
    return value;
}

static void store(float *to, vector value, size_t left)
{
    if (left >= VECTOR) {
        *(vector *)to = value;
        return;
    }
    to[0] = value[0];
    if (left > 1)
        to[1] = value[1];
    if (left > 2)
        to[2] = value[2];
}
#endif

// Computes c = a b for the lane's samples. Rows of b and c are padded to whole tiles.
static void multiply(size_t samples, size_t inner, const float *a, size_t a_row, const float *b,
                     size_t b_row, size_t cols, float *c)
{
    size_t height;

    for (size_t n = 0; n < samples; n += height) {
        height = tile_height(samples - n);
        for (size_t j = 0; j < cols; j += TILE_COLS) {
            struct tile tile = {.inner = inner,
                                .a = a + n * a_row,
                                .a_row = a_row,
                                .a_col = 1,
                                .b = b + j,
                                .b_row = b_row,
                                .c = c + n * cols + j,
                                .c_row = cols};

            tile_multiply(&tile, height);
        }
    }
}

// Transposes count rows of the weight, so that the product of a step reads contiguous rows.
static void pack_weight(const struct layer *layer, const float *weight, size_t count, size_t row,
                        float *packed)
{
    for (size_t k = 0; k < layer->hidden; k++) {
        for (size_t j = 0; j < count; j++)
            packed[k * row + j] = weight[j * layer->hidden + k];
        memset(packed + k * row + count, 0, (row - count) * sizeof(*packed));
    }
}

// Returns sample n's state before the first step, which may be the same for all samples; NULL for
// zeros.
static const float *first_of(const struct cpu_task *task, int input, size_t n)
{
    return task->in[input] ? task->in[input] + n * task->call->in[input].stride : NULL;
}

// LSTM: i, o, f = sigmoid; g = tanh; c = f c' + i g; h = o tanh(c).
static void lstm_step(const struct layer *layer, const float *x, const float *product,
                      const float *before, float *saved, float *y)
{
    size_t h = layer->hidden;

    for (size_t j = 0, left = h; j < h; j += VECTOR, left -= VECTOR) {
        vector i = curve_sigmoid(load(x + j, left) + load(product + j, left));
        vector o = curve_sigmoid(load(x + h + j, left) + load(product + h + j, left));
        vector f = curve_sigmoid(load(x + 2 * h + j, left) + load(product + 2 * h + j, left));
        vector g = curve_tanh(load(x + 3 * h + j, left) + load(product + 3 * h + j, left));
        vector c = i * g;

        if (before)
            c += f * load(before + j, left);
        store(saved + j, i, left);
        store(saved + h + j, o, left);
        store(saved + 2 * h + j, f, left);
        store(saved + 3 * h + j, g, left);
        store(saved + 4 * h + j, c, left);
        store(y + j, o * curve_tanh(c), left);
    }
}

// GRU with reset_after: z, r = sigmoid; q = h' R + b; n = tanh(x + r q); h = (1 - z) n + z h'.
static void gru_step(const struct layer *layer, const float *x, const float *product,
                     const float *before, float *saved, float *y)
{
    const float *bias = layer->task->in[2];
    size_t h = layer->hidden;

    for (size_t j = 0, left = h; j < h; j += VECTOR, left -= VECTOR) {
        vector z = curve_sigmoid(load(x + j, left) + load(product + j, left));
        vector r = curve_sigmoid(load(x + h + j, left) + load(product + h + j, left));
        vector q = load(product + 2 * h + j, left), n;

        if (bias)
            q += load(bias + 2 * h + j, left);
        n = curve_tanh(load(x + 2 * h + j, left) + r * q);
        store(saved + j, z, left);
        store(saved + h + j, r, left);
        store(saved + 2 * h + j, n, left);
        store(saved + 3 * h + j, q, left);
        n = n - z * n;
        if (before)
            n += z * load(before + j, left);
        store(y + j, n, left);
    }
}

// GRU without reset_after, before the hidden gate's product: z, r = sigmoid. Saves r h', the
// operand of that product.
static void gru_reset(const struct layer *layer, const float *x, const float *product,
                      const float *before, float *saved)
{
    size_t h = layer->hidden;

    for (size_t j = 0, left = h; j < h; j += VECTOR, left -= VECTOR) {
        vector z = curve_sigmoid(load(x + j, left) + load(product + j, left));
        vector r = curve_sigmoid(load(x + h + j, left) + load(product + h + j, left));
        vector past = before ? load(before + j, left) : none;

        store(saved + j, z, left);
        store(saved + h + j, r, left);
        store(saved + 3 * h + j, r * past, left);
    }
}

// GRU without reset_after, after that product: n = tanh(x + (r h') R); h = (1 - z) n + z h'.
static void gru_late(const struct layer *layer, const float *x, const float *product,
                     const float *before, float *saved, float *y)
{
    size_t h = layer->hidden;

    for (size_t j = 0, left = h; j < h; j += VECTOR, left -= VECTOR) {
        vector z = load(saved + j, left);
        vector n = curve_tanh(load(x + 2 * h + j, left) + load(product + j, left));

        store(saved + 2 * h + j, n, left);
        n = n - z * n;
        if (before)
            n += z * load(before + j, left);
        store(y + j, n, left);
    }
}

static void plain_step(const struct layer *layer, const float *x, const float *product,
                       float *saved, float *y)
{
    bool relu = layer->op->kind == CN_RECURRENT_RELU;

    for (size_t j = 0, left = layer->hidden; j < layer->hidden; j += VECTOR, left -= VECTOR) {
        vector sum = load(x + j, left) + load(product + j, left);
        vector value = relu ? curve_choose(sum < 0, none, sum) : curve_tanh(sum);

        store(saved + j, value, left);
        store(y + j, value, left);
    }
}

// Runs one sample at step t. *before is the step before it, NULL for the first step. With a late
// hidden gate, hidden_forward finishes the step.
static void cell_forward(const struct layer *layer, size_t n, size_t t, const size_t *before,
                         const float *product)
{
    const struct cpu_task *task = layer->task;
    size_t saved_row = layer->width + layer->hidden;
    const float *x = task->in[0] + at_of(layer, n, t, layer->width);
    float *y = task->out[0] + at_of(layer, n, t, layer->hidden);
    float *saved = task->out[1] + at_of(layer, n, t, saved_row);
    const float *state;

    switch (layer->op->kind) {
    case CN_RECURRENT_LSTM:
        state = before ? task->out[1] + at_of(layer, n, *before, saved_row) + layer->width
                       : first_of(task, 4, n);
        lstm_step(layer, x, product, state, saved, y);
        break;
    case CN_RECURRENT_GRU:
        state =
            before ? task->out[0] + at_of(layer, n, *before, layer->hidden) : first_of(task, 3, n);
        if (layer->late)
            gru_reset(layer, x, product, state, saved);
        else
            gru_step(layer, x, product, state, saved, y);
        break;
    case CN_RECURRENT_TANH:
    case CN_RECURRENT_RELU:
        plain_step(layer, x, product, saved, y);
        break;
    }
}

// Finishes step t for all samples where the hidden gate sees the state after reset.
static void hidden_forward(const struct layer *layer, size_t t, const size_t *before,
                           const float *packed, float *product)
{
    const struct cpu_task *task = layer->task;
    size_t h = layer->hidden, saved_row = layer->width + h;
    float *saved = task->out[1] + at_of(layer, 0, t, saved_row);

    multiply(task->samples, h, saved + 3 * h, layer->op->steps * saved_row, packed,
             layer->hidden_row, layer->hidden_row, product);
    for (size_t n = 0; n < task->samples; n++)
        gru_late(
            layer, task->in[0] + at_of(layer, n, t, layer->width), product + n * layer->hidden_row,
            before ? task->out[0] + at_of(layer, n, *before, h) : first_of(task, 3, n),
            task->out[1] + at_of(layer, n, t, saved_row), task->out[0] + at_of(layer, n, t, h));
}

// Copies the cell after step t, the last step, to the output.
static void put_last(const struct layer *layer, size_t t)
{
    const struct cpu_task *task = layer->task;
    size_t row = layer->width + layer->hidden;

    for (size_t n = 0; n < task->samples; n++)
        memcpy(task->out[2] + n * task->call->out[2].stride,
               task->out[1] + at_of(layer, n, t, row) + layer->width,
               layer->hidden * sizeof(float));
}

void cpu_recurrent(const struct cpu_task *task)
{
    struct layer layer = layer_of(task, &task->call->recurrent);
    const float *weight = task->in[1];
    float *packed = task->workspace, *late = packed + layer.hidden * layer.row;
    float *product = late + (layer.late ? layer.hidden * layer.hidden_row : 0);
    size_t before = 0;

    pack_weight(&layer, weight, layer.early, layer.row, packed);
    if (layer.late)
        pack_weight(&layer, weight + layer.early * layer.hidden, layer.hidden, layer.hidden_row,
                    late);
    for (size_t i = 0; i < layer.op->steps; i++) {
        size_t t = step_of(layer.op, i);

        if (i)
            multiply(task->samples, layer.hidden, task->out[0] + before * layer.hidden,
                     layer.op->steps * layer.hidden, packed, layer.row, layer.row, product);
        else if (task->in[3])
            multiply(task->samples, layer.hidden, task->in[3], task->call->in[3].stride, packed,
                     layer.row, layer.row, product);
        else
            memset(product, 0, task->samples * layer.row * sizeof(*product));
        for (size_t n = 0; n < task->samples; n++)
            cell_forward(&layer, n, t, i ? &before : NULL, product + n * layer.row);
        if (layer.late)
            hidden_forward(&layer, t, i ? &before : NULL, late, product);
        before = t;
    }
    if (task->out[2])
        put_last(&layer, before);
}

size_t cpu_recurrent_workspace(const struct cn_call *call, size_t samples)
{
    struct layer layer = layer_of(NULL, &call->recurrent);

    return layer.hidden * (layer.row + (layer.late ? layer.hidden_row : 0)) + samples * layer.row;
}

static vector sigmoid_slope(vector y)
{
    return y - y * y;
}

// carry holds the part of dL/dc that comes from the next step. It is replaced by the part for the
// step before.
static void lstm_back(const struct layer *layer, const float *saved, const float *before, vector dh,
                      size_t j, float *carry, float *dgates)
{
    size_t h = layer->hidden, left = h - j;
    vector i = load(saved + j, left), o = load(saved + h + j, left),
           f = load(saved + 2 * h + j, left);
    vector g = load(saved + 3 * h + j, left), bent = curve_tanh(load(saved + 4 * h + j, left));
    vector dc = load(carry + j, left) + dh * o * (1 - bent * bent);
    vector past = before ? load(before + j, left) : none;

    store(dgates + j, dc * g * sigmoid_slope(i), left);
    store(dgates + h + j, dh * bent * sigmoid_slope(o), left);
    store(dgates + 2 * h + j, dc * past * sigmoid_slope(f), left);
    store(dgates + 3 * h + j, dc * i * (1 - g * g), left);
    store(carry + j, dc * f, left);
}

// carry becomes the part of dL/dh' that does not go through the product.
static void gru_back(const struct layer *layer, const float *saved, const float *before, vector dh,
                     size_t j, float *carry, float *dgates, float *dhidden)
{
    size_t h = layer->hidden, left = h - j;
    vector z = load(saved + j, left), r = load(saved + h + j, left),
           n = load(saved + 2 * h + j, left);
    vector q = load(saved + 3 * h + j, left);
    vector dn = dh * (1 - z) * (1 - n * n);
    vector dr = dn * q * sigmoid_slope(r);
    vector past = before ? load(before + j, left) : none;
    vector dz = dh * (past - n) * sigmoid_slope(z);

    store(dgates + j, dz, left);
    store(dgates + h + j, dr, left);
    store(dgates + 2 * h + j, dn, left);
    store(dhidden + j, dz, left);
    store(dhidden + h + j, dr, left);
    store(dhidden + 2 * h + j, dn * r, left);
    store(carry + j, dh * z, left);
}

// Does gru_back's work without reset_after, up to the product with the hidden gate's weight.
static void gru_late_back(const struct layer *layer, const float *saved, const float *before,
                          vector dh, size_t j, float *carry, float *dgates)
{
    size_t h = layer->hidden, left = h - j;
    vector z = load(saved + j, left), n = load(saved + 2 * h + j, left);
    vector past = before ? load(before + j, left) : none;

    store(dgates + j, dh * (past - n) * sigmoid_slope(z), left);
    store(dgates + 2 * h + j, dh * (1 - z) * (1 - n * n), left);
    store(carry + j, dh * z, left);
}

// Does the rest after that product. seen is the gradient of r h'.
static void gru_reset_back(const struct layer *layer, const float *saved, const float *before,
                           const float *seen, float *carry, float *dgates)
{
    size_t h = layer->hidden;

    for (size_t j = 0, left = h; j < h; j += VECTOR, left -= VECTOR) {
        vector r = load(saved + h + j, left), d = load(seen + j, left);
        vector past = before ? load(before + j, left) : none;

        store(dgates + h + j, d * past * sigmoid_slope(r), left);
        store(carry + j, load(carry + j, left) + d * r, left);
    }
}

// Values that the backward pass carries from step to step, with a row of hidden_row words for each
// sample. through is dL/dh through the product; carry is the gradient that the cell itself passes
// on; seen is the gradient of GRU's state after reset.
struct carried {
    float *through, *carry, *seen;
};

// Returns the words of the weight's copy with padded rows; 0 if its own rows are whole tiles.
static size_t padded_weight_size(const struct layer *layer)
{
    return layer->hidden == layer->hidden_row ? 0 : layer->width * layer->hidden_row;
}

// Returns the weight with rows of hidden_row words. copy has padded_weight_size words. Without it,
// the last tile would read words after the weight, which another lane may write.
static const float *pad_weight(const struct layer *layer, const float *weight, float *copy)
{
    size_t h = layer->hidden, row = layer->hidden_row;

    if (!padded_weight_size(layer))
        return weight;
    for (size_t j = 0; j < layer->width; j++) {
        memcpy(copy + j * row, weight + j * h, h * sizeof(*copy));
        memset(copy + j * row + h, 0, (row - h) * sizeof(*copy));
    }
    return copy;
}

// Returns the state before step t: h, or the cell for LSTM. *before is the step before t, NULL for
// the first.
static const float *state_before(const struct layer *layer, size_t n, const size_t *before)
{
    const struct cpu_task *task = layer->task;
    bool lstm = layer->op->kind == CN_RECURRENT_LSTM;

    if (!before)
        return first_of(task, lstm ? 6 : 5, n);
    if (lstm)
        return task->in[2] + at_of(layer, n, *before, layer->width + layer->hidden) + layer->width;
    return task->in[1] + at_of(layer, n, *before, layer->hidden);
}

static void cell_back(const struct layer *layer, size_t n, size_t t, const size_t *before,
                      const struct carried *carried)
{
    const struct cpu_task *task = layer->task;
    size_t saved_row = layer->width + layer->hidden, h = layer->hidden;
    const float *dy = task->in[0] + at_of(layer, n, t, h);
    const float *saved = task->in[2] + at_of(layer, n, t, saved_row);
    const float *state = state_before(layer, n, before);
    size_t gates = at_of(layer, n, t, layer->width);
    float *through = carried->through + n * layer->hidden_row;
    float *carry = carried->carry + n * layer->hidden_row;

    for (size_t j = 0, left = h; j < h; j += VECTOR, left -= VECTOR) {
        vector dh = load(dy + j, left) + load(through + j, left);
        vector value = load(saved + j, left);

        switch (layer->op->kind) {
        case CN_RECURRENT_LSTM:
            lstm_back(layer, saved, state, dh, j, carry, task->out[0] + gates);
            break;
        case CN_RECURRENT_GRU:
            dh += load(carry + j, left);
            if (layer->late)
                gru_late_back(layer, saved, state, dh, j, carry, task->out[0] + gates);
            else
                gru_back(layer, saved, state, dh, j, carry, task->out[0] + gates,
                         task->out[1] + gates);
            break;
        case CN_RECURRENT_TANH:
            store(task->out[0] + gates + j, dh * (1 - value * value), left);
            break;
        case CN_RECURRENT_RELU:
            store(task->out[0] + gates + j, curve_choose(value > 0, dh, none), left);
            break;
        }
    }
}

// Takes the gradient through the hidden gate's product to the reset gate, for all samples.
static void hidden_back(const struct layer *layer, const float *weight, size_t t,
                        const size_t *before, const struct carried *carried)
{
    const struct cpu_task *task = layer->task;
    size_t h = layer->hidden;

    multiply(task->samples, h, task->out[0] + at_of(layer, 0, t, layer->width) + layer->early,
             layer->op->steps * layer->width, weight + layer->early * layer->hidden_row,
             layer->hidden_row, layer->hidden_row, carried->seen);
    for (size_t n = 0; n < task->samples; n++)
        gru_reset_back(layer, task->in[2] + at_of(layer, n, t, layer->width + h),
                       state_before(layer, n, before), carried->seen + n * layer->hidden_row,
                       carried->carry + n * layer->hidden_row,
                       task->out[0] + at_of(layer, n, t, layer->width));
}

// Starts the carried gradient with that of the cell after the last step.
static void take_last(const struct layer *layer, const struct carried *carried)
{
    const struct cpu_task *task = layer->task;

    for (size_t n = 0; n < task->samples; n++)
        memcpy(carried->carry + n * layer->hidden_row, task->in[7] + n * task->call->in[7].stride,
               layer->hidden * sizeof(float));
}

// Writes the gradients of the states before the first step.
static void put_first(const struct layer *layer, const struct carried *carried)
{
    const struct cpu_task *task = layer->task;
    bool gru = layer->op->kind == CN_RECURRENT_GRU;

    for (size_t n = 0; n < task->samples; n++) {
        const float *through = carried->through + n * layer->hidden_row;
        const float *carry = carried->carry + n * layer->hidden_row;
        float *first = task->out[2] ? task->out[2] + n * task->call->out[2].stride : NULL;
        float *cell = task->out[3] ? task->out[3] + n * task->call->out[3].stride : NULL;

        for (size_t j = 0; first && j < layer->hidden; j++)
            first[j] = through[j] + (gru ? carry[j] : 0);
        for (size_t j = 0; cell && j < layer->hidden; j++)
            cell[j] = carry[j];
    }
}

void cpu_recurrent_grad(const struct cpu_task *task)
{
    struct layer layer = layer_of(task, &task->call->recurrent);
    size_t words = task->samples * layer.hidden_row;
    struct carried carried = {task->workspace, task->workspace + words,
                              task->workspace + 2 * words};
    const float *weight = pad_weight(&layer, task->in[3], carried.seen + (layer.late ? words : 0));
    const float *seen = task->out[layer.op->kind == CN_RECURRENT_GRU && !layer.late ? 1 : 0];

    memset(task->workspace, 0, 2 * words * sizeof(float));
    if (task->in[7])
        take_last(&layer, &carried);
    for (size_t i = layer.op->steps; i-- > 0;) {
        size_t t = step_of(layer.op, i), before = i ? step_of(layer.op, i - 1) : 0;

        for (size_t n = 0; n < task->samples; n++)
            cell_back(&layer, n, t, i ? &before : NULL, &carried);
        if (layer.late)
            hidden_back(&layer, weight, t, i ? &before : NULL, &carried);
        if (i || task->out[2])
            multiply(task->samples, layer.early, seen + t * layer.width,
                     layer.op->steps * layer.width, weight, layer.hidden_row, layer.hidden_row,
                     carried.through);
    }
    put_first(&layer, &carried);
}

size_t cpu_recurrent_grad_workspace(const struct cn_call *call, size_t samples)
{
    struct layer layer = layer_of(NULL, &call->recurrent);

    return (layer.late ? 3 : 2) * samples * layer.hidden_row + padded_weight_size(&layer);
}
