// Recurrent cells. A block takes a sample through all steps; each thread computes some units of the
// hidden state. The state lies in y and in saved, which the whole block sees after block_sync.
#include "ports/cuda/kernels/kernel_common.h"

DEVICE uint32_t gates_of(enum cn_recurrent_kind kind)
{
    return kind == CN_RECURRENT_LSTM ? 4 : kind == CN_RECURRENT_GRU ? 3 : 1;
}

DEVICE float cell_sigmoid(float x)
{
    return 1 / (1 + expf(-x));
}

// Transposes the recurrent weight, so that threads read neighbouring words: workspace[k][g] =
// weight[g][k].
KERNEL(transpose_weight)
{
    const struct cn_recurrent *op = &a.call.recurrent;
    uint32_t hidden = (uint32_t)op->hidden, rows = gates_of(op->kind) * hidden;

    for (uint32_t i = first_index(); i < rows * hidden; i += index_step())
        a.workspace[i] = a.in[1][(size_t)(i % rows) * hidden + i / rows];
}

// Adds to the sums of a unit's first `count` gates, which do not wait for each other: to dot[g] all
// weight[g * between + k * along] * state[g * apart + k]. count is a constant, so that the loads of
// several k are on their way together.
DEVICE void add_dots(const float *weight, size_t between, size_t along, const float *state,
                     size_t apart, uint32_t hidden, const uint32_t count, float dot[4])
{
    for (uint32_t k = 0; k < hidden; k++) {
        UNROLL
        for (uint32_t g = 0; g < count; g++)
            dot[g] += weight[g * between + k * along] * state[g * apart + k];
    }
}

DEVICE void add_gates(const float *weight, size_t between, size_t along, const float *state,
                      size_t apart, uint32_t hidden, uint32_t count, float dot[4])
{
    if (count == 4)
        add_dots(weight, between, along, state, apart, hidden, 4, dot);
    else if (count == 3)
        add_dots(weight, between, along, state, apart, hidden, 3, dot);
    else if (count == 2)
        add_dots(weight, between, along, state, apart, hidden, 2, dot);
    else
        add_dots(weight, between, along, state, apart, hidden, 1, dot);
}

// The operands of one step of a sample.
struct recurrent_step {
    // Gates of the input; h(t - 1); c(t - 1); NULL: zeros.
    const float *gates, *before, *cell_before;
    float *y, *saved;
    float *scratch; // hidden words of this sample: r * h(t - 1)
};

// Returns the operands of step `number`, counted in the direction of the pass.
DEVICE struct recurrent_step step_of(const struct cuda_args *a, uint32_t n, uint32_t number)
{
    const struct cn_recurrent *op = &a->call.recurrent;
    size_t hidden = op->hidden, gates = gates_of(op->kind);
    size_t t = op->reverse ? op->steps - 1 - number : number;
    size_t previous = op->reverse ? t + 1 : t - 1;
    float *saved = a->out[1] + n * a->call.out[1].stride;
    float *y = a->out[0] + n * a->call.out[0].stride;
    struct recurrent_step step;

    step.gates = a->in[0] + n * a->call.in[0].stride + t * gates * hidden;
    step.y = y + t * hidden;
    step.saved = saved + t * (gates + 1) * hidden;
    step.scratch = a->workspace + gates * hidden * hidden + n * hidden;
    if (number) {
        step.before = y + previous * hidden;
        step.cell_before = saved + previous * (gates + 1) * hidden + gates * hidden;
    } else {
        step.before = a->in[3] ? a->in[3] + n * a->call.in[3].stride : 0;
        step.cell_before = a->in[4] ? a->in[4] + n * a->call.in[4].stride : 0;
    }
    return step;
}

DEVICE void lstm_unit(const struct recurrent_step *s, const float *dot, uint32_t j, uint32_t hidden)
{
    float in = cell_sigmoid(s->gates[j] + dot[0]);
    float out = cell_sigmoid(s->gates[hidden + j] + dot[1]);
    float forget = cell_sigmoid(s->gates[2 * hidden + j] + dot[2]);
    float value = tanhf(s->gates[3 * hidden + j] + dot[3]);
    float cell = forget * (s->cell_before ? s->cell_before[j] : 0) + in * value;

    s->saved[j] = in;
    s->saved[hidden + j] = out;
    s->saved[2 * hidden + j] = forget;
    s->saved[3 * hidden + j] = value;
    s->saved[4 * hidden + j] = cell;
    s->y[j] = out * tanhf(cell);
}

// Computes the update and reset gates. With reset_after it computes the hidden gate too; otherwise
// that needs r * h of all units first (gru_hidden).
DEVICE void gru_gates(const struct cuda_args *a, const struct recurrent_step *s, const float *dot,
                      uint32_t j)
{
    uint32_t hidden = (uint32_t)a->call.recurrent.hidden;
    float update = cell_sigmoid(s->gates[j] + dot[0]);
    float reset = cell_sigmoid(s->gates[hidden + j] + dot[1]);
    float before = s->before ? s->before[j] : 0;

    s->saved[j] = update;
    s->saved[hidden + j] = reset;
    if (a->call.recurrent.reset_after) {
        float part = dot[2] + (a->in[2] ? a->in[2][2 * hidden + j] : 0);
        float value = tanhf(s->gates[2 * hidden + j] + reset * part);

        s->saved[2 * hidden + j] = value;
        s->saved[3 * hidden + j] = part;
        s->y[j] = (1 - update) * value + update * before;
    } else {
        s->scratch[j] = s->saved[3 * hidden + j] = reset * before;
    }
}

DEVICE void gru_hidden(const struct cuda_args *a, const struct recurrent_step *s, uint32_t j)
{
    uint32_t hidden = (uint32_t)a->call.recurrent.hidden;
    float update = s->saved[j], dot[4] = {0, 0, 0, 0}, value;

    add_dots(a->workspace + 2 * hidden + j, 0, (size_t)3 * hidden, s->scratch, 0, hidden, 1, dot);
    value = tanhf(s->gates[2 * hidden + j] + dot[0]);
    s->saved[2 * hidden + j] = value;
    s->y[j] = (1 - update) * value + update * (s->before ? s->before[j] : 0);
}

DEVICE void plain_unit(const struct cuda_args *a, const struct recurrent_step *s, float dot,
                       uint32_t j)
{
    float x = s->gates[j] + dot;
    float y = a->call.recurrent.kind == CN_RECURRENT_TANH ? tanhf(x) : x < 0 ? 0 : x;

    s->saved[j] = y;
    s->saved[a->call.recurrent.hidden + j] = 0;
    s->y[j] = y;
}

// Computes unit j of a step.
DEVICE void recurrent_unit(const struct cuda_args *a, const struct recurrent_step *s, uint32_t j)
{
    const struct cn_recurrent *op = &a->call.recurrent;
    uint32_t hidden = (uint32_t)op->hidden, gates = gates_of(op->kind);
    bool late = op->kind == CN_RECURRENT_GRU && !op->reset_after; // the last gate has another state
    float dot[4] = {0, 0, 0, 0};

    if (s->before)
        add_gates(a->workspace + j, hidden, (size_t)gates * hidden, s->before, 0, hidden,
                  late ? 2 : gates, dot);
    if (op->kind == CN_RECURRENT_LSTM)
        lstm_unit(s, dot, j, hidden);
    else if (op->kind == CN_RECURRENT_GRU)
        gru_gates(a, s, dot, j);
    else
        plain_unit(a, s, dot[0], j);
}

// Writes the cell state after the last step. Each thread writes the units that it computed.
DEVICE void put_last(const struct cuda_args *a)
{
    const struct cn_recurrent *op = &a->call.recurrent;
    size_t hidden = op->hidden, gates = gates_of(op->kind), last = op->reverse ? 0 : op->steps - 1;

    for (uint32_t n = block_index(); a->out[2] && n < a->samples; n += grid_size()) {
        const float *saved = a->out[1] + n * a->call.out[1].stride + last * (gates + 1) * hidden;

        for (uint32_t j = thread_index(); j < hidden; j += block_size())
            a->out[2][n * a->call.out[2].stride + j] = saved[gates * hidden + j];
    }
}

KERNEL(recurrent)
{
    const struct cn_recurrent *op = &a.call.recurrent;
    bool late = op->kind == CN_RECURRENT_GRU && !op->reset_after;

    for (uint32_t n = block_index(); n < a.samples; n += grid_size())
        for (uint32_t number = 0; number < op->steps; number++) {
            struct recurrent_step s = step_of(&a, n, number);

            for (uint32_t j = thread_index(); j < op->hidden; j += block_size())
                recurrent_unit(&a, &s, j);
            block_sync();
            if (!late)
                continue;
            for (uint32_t j = thread_index(); j < op->hidden; j += block_size())
                gru_hidden(&a, &s, j);
            block_sync();
        }
    put_last(&a);
}

// The operands of one step of the gradient.
struct recurrent_back {
    const float *dy, *before, *cell_before, *saved;
    float *dgates, *dhidden;   // the same memory, except for GRU with reset_after
    float *carry, *cell_carry; // dh(t - 1), dc(t - 1)
    float *scratch;            // d (r * h(t - 1))
};

// Returns the operands of step `number`, counted in the direction of the forward pass.
DEVICE struct recurrent_back back_of(const struct cuda_args *a, uint32_t n, uint32_t number)
{
    const struct cn_recurrent *op = &a->call.recurrent;
    size_t hidden = op->hidden, gates = gates_of(op->kind);
    size_t t = op->reverse ? op->steps - 1 - number : number;
    size_t previous = op->reverse ? t + 1 : t - 1;
    const float *saved = a->in[2] + n * a->call.in[2].stride;
    struct recurrent_back back;

    back.dy = a->in[0] + n * a->call.in[0].stride + t * hidden;
    back.saved = saved + t * (gates + 1) * hidden;
    back.dgates = a->out[0] + n * a->call.out[0].stride + t * gates * hidden;
    back.dhidden =
        a->out[1] ? a->out[1] + n * a->call.out[1].stride + t * gates * hidden : back.dgates;
    back.carry = a->workspace + 3 * n * hidden;
    back.cell_carry = back.carry + hidden;
    back.scratch = back.carry + 2 * hidden;
    if (number) {
        back.before = a->in[1] + n * a->call.in[1].stride + previous * hidden;
        back.cell_before = saved + previous * (gates + 1) * hidden + gates * hidden;
    } else {
        back.before = a->in[5] ? a->in[5] + n * a->call.in[5].stride : 0;
        back.cell_before = a->in[6] ? a->in[6] + n * a->call.in[6].stride : 0;
    }
    return back;
}

DEVICE void lstm_back(const struct recurrent_back *b, uint32_t j, uint32_t hidden)
{
    float in = b->saved[j], out = b->saved[hidden + j];
    float forget = b->saved[2 * hidden + j], value = b->saved[3 * hidden + j];
    float squashed = tanhf(b->saved[4 * hidden + j]);
    float dh = b->dy[j] + b->carry[j];
    float dc = b->cell_carry[j] + dh * out * (1 - squashed * squashed);

    b->dgates[j] = dc * value * in * (1 - in);
    b->dgates[hidden + j] = dh * squashed * out * (1 - out);
    b->dgates[2 * hidden + j] =
        dc * (b->cell_before ? b->cell_before[j] : 0) * forget * (1 - forget);
    b->dgates[3 * hidden + j] = dc * in * (1 - value * value);
    b->cell_carry[j] = dc * forget;
    b->carry[j] = 0;
}

DEVICE void gru_back(const struct recurrent_back *b, uint32_t j, uint32_t hidden, bool reset_after)
{
    float update = b->saved[j], reset = b->saved[hidden + j], value = b->saved[2 * hidden + j];
    float before = b->before ? b->before[j] : 0;
    float dh = b->dy[j] + b->carry[j];
    float dvalue = dh * (1 - update) * (1 - value * value);

    b->dgates[j] = dh * (before - value) * update * (1 - update);
    b->dgates[2 * hidden + j] = dvalue;
    b->dhidden[j] = b->dgates[j];
    b->dhidden[2 * hidden + j] = reset_after ? dvalue * reset : dvalue;
    if (reset_after) {
        b->dgates[hidden + j] = dvalue * b->saved[3 * hidden + j] * reset * (1 - reset);
        b->dhidden[hidden + j] = b->dgates[hidden + j];
    }
    b->carry[j] = dh * update;
}

// Without reset_after: takes the gradient through the product with r * h(t - 1) to the reset gate.
DEVICE void gru_back_reset(const struct cuda_args *a, const struct recurrent_back *b, uint32_t k)
{
    uint32_t hidden = (uint32_t)a->call.recurrent.hidden;
    float reset = b->saved[hidden + k], sum[4] = {0, 0, 0, 0};

    add_dots(a->in[3] + (size_t)2 * hidden * hidden + k, 0, hidden, b->dgates + 2 * hidden, 0,
             hidden, 1, sum);
    b->scratch[k] = sum[0] * reset;
    b->dgates[hidden + k] = sum[0] * (b->before ? b->before[k] : 0) * reset * (1 - reset);
    b->dhidden[hidden + k] = b->dgates[hidden + k];
}

DEVICE void plain_back(const struct cuda_args *a, const struct recurrent_back *b, uint32_t j)
{
    float y = b->saved[j], dh = b->dy[j] + b->carry[j];

    b->dgates[j] = a->call.recurrent.kind == CN_RECURRENT_TANH ? dh * (1 - y * y) : y > 0 ? dh : 0;
    b->carry[j] = 0;
}

// Computes dh(t - 1) of unit k: the part that the cell passed on, plus dhidden times the weight.
// The gates' sums do not wait for each other; they are added up in the order of the gates.
DEVICE void carry_back(const struct cuda_args *a, const struct recurrent_back *b, uint32_t k,
                       bool late)
{
    uint32_t hidden = (uint32_t)a->call.recurrent.hidden;
    uint32_t gates = late ? 2 : gates_of(a->call.recurrent.kind);
    float sum[4] = {b->carry[k] + (late ? b->scratch[k] : 0), 0, 0, 0};

    add_gates(a->in[3] + k, (size_t)hidden * hidden, hidden, b->dhidden, hidden, hidden, gates,
              sum);
    b->carry[k] = sum[0] + sum[1] + sum[2] + sum[3];
}

DEVICE void recurrent_back_step(const struct cuda_args *a, uint32_t n, uint32_t number)
{
    const struct cn_recurrent *op = &a->call.recurrent;
    uint32_t hidden = (uint32_t)op->hidden;
    bool late = op->kind == CN_RECURRENT_GRU && !op->reset_after;
    struct recurrent_back b = back_of(a, n, number);

    for (uint32_t j = thread_index(); j < hidden; j += block_size()) {
        if (op->kind == CN_RECURRENT_LSTM)
            lstm_back(&b, j, hidden);
        else if (op->kind == CN_RECURRENT_GRU)
            gru_back(&b, j, hidden, op->reset_after);
        else
            plain_back(a, &b, j);
    }
    block_sync();
    for (uint32_t k = thread_index(); late && k < hidden; k += block_size())
        gru_back_reset(a, &b, k);
    if (late)
        block_sync();
    for (uint32_t k = thread_index(); k < hidden; k += block_size())
        carry_back(a, &b, k, late);
    block_sync();
}

KERNEL(recurrent_grad)
{
    const struct cn_recurrent *op = &a.call.recurrent;
    uint32_t hidden = (uint32_t)op->hidden;

    for (uint32_t n = block_index(); n < a.samples; n += grid_size()) {
        float *carry = a.workspace + (size_t)3 * n * hidden;

        for (uint32_t j = thread_index(); j < 3 * hidden; j += block_size())
            carry[j] =
                a.in[7] && j / hidden == 1 ? a.in[7][n * a.call.in[7].stride + j - hidden] : 0;
        block_sync();
        for (uint32_t number = (uint32_t)op->steps; number-- > 0;)
            recurrent_back_step(&a, n, number);
        for (uint32_t j = thread_index(); j < hidden; j += block_size()) {
            if (a.out[2])
                a.out[2][n * a.call.out[2].stride + j] = carry[j];
            if (a.out[3])
                a.out[3][n * a.call.out[3].stride + j] = carry[hidden + j];
        }
    }
}
