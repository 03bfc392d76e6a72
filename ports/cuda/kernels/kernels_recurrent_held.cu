// Recurrent cells that are small enough for a block to hold their weight in registers. A block
// takes a sample through all steps, as in kernels_recurrent.cu. Each thread owns a row of the
// weight, which is that of one gate of one unit; the gradient's threads own a column of one gate.
// The state lies in shared memory. What a step reads from elsewhere is on its way since the step
// before.
#include "ports/cuda/kernels/kernel_common.h"

// What the threads of a block leave for each other. Words beyond the units are 0.
struct held {
    ALIGNED(16) float state[CUDA_HELD];     // h(t - 1)
    ALIGNED(16) float scratch[CUDA_HELD];   // GRU without reset_after: r * h(t - 1)
    ALIGNED(16) float gate[4 * CUDA_HELD];  // of the forward pass, by row; see held_gates
    ALIGNED(16) float dgate[4 * CUDA_HELD]; // gradients: CUDA_HELD words for each gate
    ALIGNED(16) float part[4 * CUDA_HELD];  // products of the gradient, by row
};

// A thread's row: unit j of gate g.
struct held_row {
    uint32_t row, g, j;
    bool inside; // there is such a row
    bool unit;   // the thread also computes unit j; it is that of gate 0
};

DEVICE struct held_row held_row_of(const struct cn_recurrent *op)
{
    uint32_t hidden = (uint32_t)op->hidden;
    struct held_row own;

    own.row = thread_index();
    own.g = own.row / hidden;
    own.j = own.row % hidden;
    own.inside = own.g < gates_of(op->kind);
    own.unit = own.g == 0;
    return own;
}

// Adds up weight[k] * x[k]. There are four sums, which do not wait for each other, and 32 words of
// x are on their way together.
DEVICE float held_dot(const float weight[CUDA_HELD], const float *x, uint32_t hidden)
{
    float sum[4] = {0, 0, 0, 0};

    UNROLL
    for (uint32_t first = 0; first < CUDA_HELD; first += 32)
        if (first < hidden) {
            UNROLL
            for (uint32_t k = first; k < first + 32; k += 4) {
                struct four four = load_four(x + k);

                UNROLL
                for (uint32_t i = 0; i < 4; i++)
                    sum[i] += weight[k + i] * four.at[i];
            }
        }
    return sum[0] + sum[1] + (sum[2] + sum[3]);
}

// Returns the place of step `number`, counted in the direction of the forward pass.
DEVICE uint32_t held_time(const struct cn_recurrent *op, uint32_t number)
{
    return op->reverse ? (uint32_t)op->steps - 1 - number : number;
}

// Computes a row: x is the gate's input. gate[] gets the gate after its function. For the hidden
// gate of GRU with reset_after it gets the product, and x behind the gates.
DEVICE void held_gates(const struct cuda_args *a, struct held *h, const struct held_row *own,
                       const float weight[CUDA_HELD], float x, float *saved)
{
    const struct cn_recurrent *op = &a->call.recurrent;
    uint32_t hidden = (uint32_t)op->hidden;
    bool gru = op->kind == CN_RECURRENT_GRU, lstm = op->kind == CN_RECURRENT_LSTM;
    float dot, value;

    if (!own->inside || (gru && own->g == 2 && !op->reset_after))
        return;
    dot = held_dot(weight, h->state, hidden);
    if (gru && own->g == 2) {
        h->gate[own->row] = dot + (a->in[2] ? a->in[2][own->row] : 0);
        h->gate[own->row + hidden] = x;
        return;
    }
    if (op->kind == CN_RECURRENT_RELU)
        value = x + dot < 0 ? 0 : x + dot;
    else
        value = op->kind == CN_RECURRENT_TANH || (lstm && own->g == 3) ? tanhf(x + dot)
                                                                       : cell_sigmoid(x + dot);
    h->gate[own->row] = saved[own->row] = value;
    if (gru && own->g == 1 && !op->reset_after)
        h->scratch[own->j] = saved[2 * hidden + own->row] = value * h->state[own->j];
}

// Computes the state of a unit from the gates.
DEVICE void held_unit(const struct cuda_args *a, struct held *h, const struct held_row *own,
                      float *cell, float *saved, float *y)
{
    const struct cn_recurrent *op = &a->call.recurrent;
    uint32_t hidden = (uint32_t)op->hidden, j = own->j;
    const float *gate = h->gate;
    float out = gate[j];

    if (op->kind == CN_RECURRENT_LSTM) {
        *cell = gate[2 * hidden + j] * *cell + gate[j] * gate[3 * hidden + j];
        saved[4 * hidden + j] = *cell;
        out = gate[hidden + j] * tanhf(*cell);
    } else if (op->kind == CN_RECURRENT_GRU) {
        float part = gate[2 * hidden + j];
        float value = tanhf(gate[3 * hidden + j] + gate[hidden + j] * part);

        saved[2 * hidden + j] = value;
        saved[3 * hidden + j] = part;
        out = (1 - gate[j]) * value + gate[j] * h->state[j];
    } else {
        saved[hidden + j] = 0;
    }
    h->state[j] = y[j] = out;
}

// GRU without reset_after: computes the hidden gate of a unit, and its state.
DEVICE void held_late(const struct cuda_args *a, struct held *h, const struct held_row *own,
                      const float weight[CUDA_HELD], float x, float *saved, float *y)
{
    uint32_t hidden = (uint32_t)a->call.recurrent.hidden;
    float value = tanhf(x + held_dot(weight, h->scratch, hidden)), update = h->gate[own->j];

    saved[own->row] = value;
    h->state[own->j] = y[own->j] = (1 - update) * value + update * h->state[own->j];
}

// Takes sample n through all steps.
DEVICE void held_sample(const struct cuda_args *a, struct held *h, const struct held_row *own,
                        const float weight[CUDA_HELD], uint32_t n)
{
    const struct cn_recurrent *op = &a->call.recurrent;
    uint32_t hidden = (uint32_t)op->hidden, rows = gates_of(op->kind) * hidden;
    bool late = op->kind == CN_RECURRENT_GRU && !op->reset_after;
    const float *gates = a->in[0] + n * a->call.in[0].stride + own->row;
    float cell = own->unit && a->in[4] ? a->in[4][n * a->call.in[4].stride + own->j] : 0;
    float x = own->inside ? gates[(size_t)held_time(op, 0) * rows] : 0;

    for (uint32_t i = thread_index(); i < CUDA_HELD; i += block_size())
        h->state[i] = i < hidden && a->in[3] ? a->in[3][n * a->call.in[3].stride + i] : 0;
    block_sync();
    for (uint32_t number = 0; number < op->steps; number++) {
        uint32_t t = held_time(op, number);
        float *saved = a->out[1] + n * a->call.out[1].stride + (size_t)t * (rows + hidden);
        float *y = a->out[0] + n * a->call.out[0].stride + (size_t)t * hidden;
        float next = 0;

        if (own->inside && number + 1 < op->steps)
            next = gates[(size_t)held_time(op, number + 1) * rows];
        held_gates(a, h, own, weight, x, saved);
        block_sync();
        if (late && own->g == 2)
            held_late(a, h, own, weight, x, saved, y);
        else if (!late && own->unit)
            held_unit(a, h, own, &cell, saved, y);
        block_sync();
        x = next;
    }
    if (own->unit && a->out[2])
        a->out[2][n * a->call.out[2].stride + own->j] = cell;
}

KERNEL(recurrent_held)
{
    const struct cn_recurrent *op = &a.call.recurrent;
    uint32_t hidden = (uint32_t)op->hidden, rows = gates_of(op->kind) * hidden;
    struct held_row own = held_row_of(op);
    float weight[CUDA_HELD];
    SHARED struct held h;

    for (uint32_t i = thread_index(); i < CUDA_HELD; i += block_size())
        h.scratch[i] = 0;
    UNROLL
    for (uint32_t k = 0; k < CUDA_HELD; k++)
        weight[k] = own.inside && k < hidden ? a.workspace[(size_t)k * rows + own.row] : 0;
    for (uint32_t n = block_index(); n < a.samples; n += grid_size())
        held_sample(&a, &h, &own, weight, n);
}

// What the gradient of a unit reads in a step.
struct held_read {
    float dy, before;     // before: c(t - 1) for LSTM, else h(t - 1)
    float gate[4], state; // what the forward pass saved: the gates, and behind them the rest
};

DEVICE struct held_read held_read_of(const struct cuda_args *a, uint32_t n, uint32_t number,
                                     uint32_t j)
{
    const struct cn_recurrent *op = &a->call.recurrent;
    uint32_t hidden = (uint32_t)op->hidden, gates = gates_of(op->kind);
    size_t step = (size_t)(gates + 1) * hidden;
    bool lstm = op->kind == CN_RECURRENT_LSTM;
    uint32_t t = held_time(op, number), previous = number ? held_time(op, number - 1) : 0;
    const float *saved = a->in[2] + n * a->call.in[2].stride + j;
    const float *first = lstm ? a->in[6] : a->in[5];
    struct held_read read = {0, 0, {0, 0, 0, 0}, 0};

    read.dy = a->in[0][n * a->call.in[0].stride + (size_t)t * hidden + j];
    UNROLL
    for (uint32_t g = 0; g < 4; g++)
        if (g < gates)
            read.gate[g] = saved[t * step + (size_t)g * hidden];
    read.state = saved[t * step + (size_t)gates * hidden];
    if (number)
        read.before = lstm ? saved[previous * step + (size_t)4 * hidden]
                           : a->in[1][n * a->call.in[1].stride + (size_t)previous * hidden + j];
    else if (first)
        read.before = first[n * a->call.in[lstm ? 6 : 5].stride + j];
    return read;
}

// The gradients that a step passes on to the step before it, of one unit. carry: dh(t - 1) without
// the products.
struct held_carry {
    float carry, cell;
};

// Computes the gates' gradients of a unit: dgate as the inputs see them, and dhidden as the product
// does. Only GRU with reset_after has different ones.
DEVICE void held_unit_back(const struct cn_recurrent *op, const struct held_read *read,
                           struct held_carry *c, float dgate[4], float dhidden[4])
{
    const float *gate = read->gate;
    float dh = read->dy + c->carry;

    c->carry = 0;
    if (op->kind == CN_RECURRENT_LSTM) {
        float squashed = tanhf(read->state);
        float dc = c->cell + dh * gate[1] * (1 - squashed * squashed);

        dgate[0] = dc * gate[3] * gate[0] * (1 - gate[0]);
        dgate[1] = dh * squashed * gate[1] * (1 - gate[1]);
        dgate[2] = dc * read->before * gate[2] * (1 - gate[2]);
        dgate[3] = dc * gate[0] * (1 - gate[3] * gate[3]);
        c->cell = dc * gate[2];
    } else if (op->kind == CN_RECURRENT_GRU) {
        float dvalue = dh * (1 - gate[0]) * (1 - gate[2] * gate[2]);

        dgate[0] = dh * (read->before - gate[2]) * gate[0] * (1 - gate[0]);
        dgate[1] = dvalue * read->state * gate[1] * (1 - gate[1]); // without reset_after: later
        dgate[2] = dvalue;
        c->carry = dh * gate[0];
    } else {
        dgate[0] = op->kind == CN_RECURRENT_TANH ? dh * (1 - gate[0] * gate[0])
                   : gate[0] > 0                 ? dh
                                                 : 0;
    }
    UNROLL
    for (uint32_t g = 0; g < 4; g++)
        dhidden[g] = dgate[g];
    if (op->kind == CN_RECURRENT_GRU && op->reset_after)
        dhidden[2] = dgate[2] * gate[1];
}

// A step of a sample, by its place in memory.
struct held_place {
    uint32_t n, t;
};

// Writes a gate's gradient of a unit, for the block and for the calls that follow.
DEVICE void held_put(const struct cuda_args *a, struct held *h, struct held_place at, uint32_t g,
                     uint32_t j, float dgate, float dhidden)
{
    uint32_t hidden = (uint32_t)a->call.recurrent.hidden;
    uint32_t rows = gates_of(a->call.recurrent.kind) * hidden;
    size_t word = (size_t)at.t * rows + g * hidden + j;

    h->dgate[g * CUDA_HELD + j] = dhidden;
    a->out[0][at.n * a->call.out[0].stride + word] = dgate;
    if (a->out[1])
        a->out[1][at.n * a->call.out[1].stride + word] = dhidden;
}

// GRU without reset_after: takes the gradient through the product with r * h(t - 1) to the reset
// gate.
DEVICE void held_late_back(const struct cuda_args *a, struct held *h, const struct held_row *own,
                           const float weight[CUDA_HELD], const struct held_read *read,
                           struct held_place at, struct held_carry *c)
{
    uint32_t hidden = (uint32_t)a->call.recurrent.hidden;
    float reset = read->gate[1], sum;

    if (own->g == 2)
        h->part[own->row] = held_dot(weight, &h->dgate[2 * CUDA_HELD], hidden);
    block_sync();
    if (own->unit) {
        sum = h->part[2 * hidden + own->j];
        c->carry += sum * reset;
        sum *= read->before * reset * (1 - reset);
        held_put(a, h, at, 1, own->j, sum, sum);
    }
    block_sync();
}

// Takes a step back.
DEVICE void held_step_back(const struct cuda_args *a, struct held *h, const struct held_row *own,
                           const float weight[CUDA_HELD], const struct held_read *read,
                           struct held_place at, struct held_carry *c)
{
    const struct cn_recurrent *op = &a->call.recurrent;
    uint32_t hidden = (uint32_t)op->hidden, gates = gates_of(op->kind);
    bool late = op->kind == CN_RECURRENT_GRU && !op->reset_after;

    if (own->unit) {
        float dgate[4] = {0, 0, 0, 0}, dhidden[4];

        held_unit_back(op, read, c, dgate, dhidden);
        UNROLL
        for (uint32_t g = 0; g < 4; g++)
            if (g < gates && !(late && g == 1))
                held_put(a, h, at, g, own->j, dgate[g], dhidden[g]);
    }
    block_sync();
    if (late)
        held_late_back(a, h, own, weight, read, at, c);
    gates = late ? 2 : gates;
    if (own->g < gates)
        h->part[own->row] = held_dot(weight, &h->dgate[own->g * CUDA_HELD], hidden);
    block_sync();
    for (uint32_t g = 0; own->unit && g < gates; g++)
        c->carry += h->part[g * hidden + own->j];
}

KERNEL(recurrent_grad_held)
{
    const struct cn_recurrent *op = &a.call.recurrent;
    uint32_t hidden = (uint32_t)op->hidden;
    struct held_row own = held_row_of(op);
    float weight[CUDA_HELD];
    SHARED struct held h;

    for (uint32_t i = thread_index(); i < 4 * CUDA_HELD; i += block_size())
        h.dgate[i] = 0;
    UNROLL
    for (uint32_t k = 0; k < CUDA_HELD; k++)
        weight[k] =
            own.inside && k < hidden ? a.in[3][((size_t)own.g * hidden + k) * hidden + own.j] : 0;
    block_sync();
    for (uint32_t n = block_index(); n < a.samples; n += grid_size()) {
        struct held_place at = {n, 0};
        struct held_carry c = {0, 0};
        struct held_read read = {0, 0, {0, 0, 0, 0}, 0}, next = read;

        if (own.unit) {
            next = held_read_of(&a, n, (uint32_t)op->steps - 1, own.j);
            c.cell = a.in[7] ? a.in[7][n * a.call.in[7].stride + own.j] : 0;
        }
        for (uint32_t number = (uint32_t)op->steps; number-- > 0;) {
            read = next;
            if (own.unit && number)
                next = held_read_of(&a, n, number - 1, own.j);
            at.t = held_time(op, number);
            held_step_back(&a, &h, &own, weight, &read, at, &c);
        }
        if (own.unit && a.out[2])
            a.out[2][n * a.call.out[2].stride + own.j] = c.carry;
        if (own.unit && a.out[3])
            a.out[3][n * a.call.out[3].stride + own.j] = c.cell;
    }
}
