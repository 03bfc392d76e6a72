#include "runtime/engine/program/call_cost.h"

#include "runtime/engine/program/describe.h"

// Words of each operand for one sample, or in all where samples share it. An operand without a
// number here is not touched.
struct words {
    double in[CN_CALL_INPUTS], out[CN_CALL_OUTPUTS];
};

// Returns the elements of dims along which an operand does not repeat; stride may be NULL for one
// that is dense.
static double strided(uint32_t rank, const size_t *dims, const size_t *stride)
{
    double count = 1;

    for (uint32_t i = 0; i < rank; i++)
        if (!stride || stride[i])
            count *= (double)dims[i];
    return count;
}

static double copied(const struct cn_copy *c)
{
    double count = 1;

    for (uint32_t i = 0; i < c->rank; i++)
        if (c->x[i])
            count *= (double)c->dims[i];
    return count;
}

// Sets the first numbers of inputs and outputs.
#define SET(list, ...)                                                                             \
    do {                                                                                           \
        const double given[] = {__VA_ARGS__};                                                      \
        for (size_t at = 0; at < sizeof(given) / sizeof(given[0]); at++)                           \
            (list)[at] = given[at];                                                                \
    } while (0)

static void matmul(const struct cn_matmul *m, struct words *w)
{
    SET(w->in, (double)m->rows * (double)m->inner, (double)m->inner * (double)m->cols,
        (double)m->cols);
    SET(w->out, (double)m->rows * (double)m->cols);
}

static void products(const struct cn_products *p, struct words *w)
{
    double count = (double)p->count;

    SET(w->in, (p->stride_a ? count : 1) * (double)p->rows * (double)p->inner,
        (p->stride_b ? count : 1) * (double)p->inner * (double)p->cols);
    SET(w->out, (p->stride_c ? count : 1) * (double)p->rows * (double)p->cols);
}

static void window(enum cn_op op, const struct cn_window *v, struct words *w)
{
    double x = (double)v->channels_in * v->in[0] * v->in[1];
    double y = (double)v->channels_out * v->out[0] * v->out[1];
    double weight = v->groups ? (double)v->channels_out * v->channels_in / v->groups *
                                    v->kernel[0] * v->kernel[1]
                              : 0;

    switch (op) {
    case CN_OP_CONV:
        SET(w->in, x, weight, v->channels_out);
        SET(w->out, y);
        break;
    case CN_OP_CONV_GRAD_INPUT:
        SET(w->in, y, weight);
        SET(w->out, x);
        break;
    case CN_OP_CONV_GRAD_WEIGHT:
        SET(w->in, y, x);
        SET(w->out, weight);
        break;
    case CN_OP_MAX_POOL:
    case CN_OP_AVERAGE_POOL:
        SET(w->in, x);
        SET(w->out, y, y);
        break;
    default: // gradients of pools
        SET(w->in, y, y);
        SET(w->out, x);
    }
}

static void combine(enum cn_op op, const struct cn_combine *c, struct words *w)
{
    double all = strided(c->rank, c->dims, NULL), a = strided(c->rank, c->dims, c->a),
           b = strided(c->rank, c->dims, c->b);

    if (op == CN_OP_COMBINE_GRAD) {
        SET(w->in, all, c->where ? strided(c->rank, c->dims, c->condition) : a, b);
        SET(w->out, c->side ? b : a);
        return;
    }
    SET(w->in, a, b, op == CN_OP_WHERE ? strided(c->rank, c->dims, c->condition) : 0);
    SET(w->out, all);
}

static void extreme(enum cn_op op, const struct cn_extreme *e, struct words *w)
{
    double x = strided(e->rank, e->dims, NULL), y = strided(e->rank, e->dims, e->y);

    if (op == CN_OP_EXTREME) {
        SET(w->in, x);
        SET(w->out, y, y);
        return;
    }
    SET(w->in, y, y);
    SET(w->out, x);
}

static void norm(enum cn_op op, const struct cn_norm *n, struct words *w)
{
    double x = (double)n->rows * (double)n->cols, saved = 2 * (double)n->rows;
    double affine = n->inner ? (double)n->groups * ((double)n->cols / (double)n->inner) : 0;

    if (op == CN_OP_NORM) {
        SET(w->in, x, affine, affine);
        SET(w->out, x, saved);
        return;
    }
    SET(w->in, x, x, saved, affine);
    if (op == CN_OP_NORM_GRAD)
        SET(w->out, x);
    else
        SET(w->out, affine, affine);
}

// Both need two passes over x: the sums over the batch come first.
static void batch_norm(enum cn_op op, const struct cn_batch_norm *n, struct words *w)
{
    double channels = (double)n->channels, x = channels * (double)n->inner;
    double passes = n->frozen ? 1 : 2;

    if (op == CN_OP_BATCH_NORM) {
        SET(w->in, passes * x, channels, channels, channels, channels, x);
        SET(w->out, x, 2 * channels, channels, channels);
        return;
    }
    SET(w->in, passes * x, passes * x, channels, 2 * channels, passes * x);
    SET(w->out, x, channels, channels, x);
}

static void gather(enum cn_op op, const struct cn_gather *g, struct words *w)
{
    double taken = (double)g->outer * (double)g->count * (double)g->inner;

    SET(w->in, taken, g->elements ? taken : (double)g->count);
    SET(w->out, taken);
    if (op == CN_OP_GATHER_GRAD)
        w->out[0] = 2 * taken; // adds to the rows
}

static void resize(enum cn_op op, const struct cn_resize *r, struct words *w)
{
    double x = (double)r->channels * r->in[0] * r->in[1];
    double y = (double)r->channels * r->out[0] * r->out[1];

    SET(w->in, op == CN_OP_RESIZE ? x : y);
    SET(w->out, op == CN_OP_RESIZE ? y : x);
}

static void recurrent(enum cn_op op, const struct cn_recurrent *r, struct words *w)
{
    static const double gate_counts[] = {[CN_RECURRENT_TANH] = 1,
                                         [CN_RECURRENT_RELU] = 1,
                                         [CN_RECURRENT_LSTM] = 4,
                                         [CN_RECURRENT_GRU] = 3};
    double hidden = (double)r->hidden, y = (double)r->steps * hidden;
    double gates = gate_counts[r->kind];

    if (op == CN_OP_RECURRENT) {
        SET(w->in, gates * y, gates * hidden * hidden, 3 * hidden, hidden, hidden);
        SET(w->out, y, (gates + 1) * y, hidden);
        return;
    }
    SET(w->in, y, y, (gates + 1) * y, gates * hidden * hidden, 3 * hidden, hidden, hidden, hidden);
    SET(w->out, gates * y, gates * y, hidden, hidden);
}

static void attention(enum cn_op op, const struct cn_attention *a, struct words *w)
{
    double heads = (double)a->heads;
    double q = heads * (double)a->q_rows * (double)a->width;
    double k = heads * (double)a->k_rows * (double)a->width;
    double v = heads * (double)a->k_rows * (double)a->v_width;
    double y = heads * (double)a->q_rows * (double)a->v_width;
    double saved = heads * (double)a->q_rows, mask = (double)a->q_rows * (double)a->k_rows;

    if (op == CN_OP_ATTENTION) {
        SET(w->in, q, k, v, mask);
        SET(w->out, y, saved);
        return;
    }
    SET(w->in, y, q, k, v, y, saved, mask);
    SET(w->out, q, k, v);
}

static void elementwise(double in, double out, struct words *w)
{
    SET(w->in, in, in);
    SET(w->out, out);
}

// Counts the words of calls that take each value on its own, or move values.
static void value_words(const struct cn_call *call, struct words *w)
{
    switch (call->op) {
    case CN_OP_MAP:
    case CN_OP_MAP_GRAD:
        elementwise((double)call->map.count, (double)call->map.count, w);
        break;
    case CN_OP_COPY:
        elementwise(copied(&call->copy), strided(call->copy.rank, call->copy.dims, NULL), w);
        break;
    case CN_OP_FILL:
        w->out[0] = (double)call->fill.count;
        break;
    case CN_OP_DROPOUT:
        elementwise((double)call->dropout.count, (double)call->dropout.count, w);
        break;
    case CN_OP_GATHER:
    case CN_OP_GATHER_GRAD:
        gather(call->op, &call->gather, w);
        break;
    case CN_OP_RESIZE:
    case CN_OP_RESIZE_GRAD:
        resize(call->op, &call->resize, w);
        break;
    default: // CN_OP_COMBINE, CN_OP_COMBINE_GRAD, CN_OP_WHERE
        combine(call->op, &call->combine, w);
    }
}

static void softmax(const struct cn_softmax *s, struct words *w)
{
    double values = (double)s->outer * (double)s->cols * (double)s->inner;

    elementwise(values, values, w);
}

static void bias_grad(const struct cn_bias *b, struct words *w)
{
    double rows = (double)b->rows * (double)b->inner;

    elementwise(rows * (double)b->channels, (double)b->channels, w);
}

static void loss(enum cn_op op, const struct cn_loss_call *l, struct words *w)
{
    double values = (double)l->outputs * (double)(l->rows ? l->rows : 1);

    elementwise(values, values, w);
    if (op == CN_OP_CROSS_ENTROPY) {
        w->in[1] = (double)l->rows;
        w->in[2] = (double)l->outputs;
    }
}

static void batch_words(const struct cn_call *call, struct words *w)
{
    switch (call->op) {
    case CN_OP_MATMUL:
        matmul(&call->matmul, w);
        break;
    case CN_OP_PRODUCTS:
        products(&call->products, w);
        break;
    case CN_OP_CONV:
    case CN_OP_CONV_GRAD_INPUT:
    case CN_OP_CONV_GRAD_WEIGHT:
    case CN_OP_MAX_POOL:
    case CN_OP_MAX_POOL_GRAD:
    case CN_OP_AVERAGE_POOL:
    case CN_OP_AVERAGE_POOL_GRAD:
        window(call->op, &call->window, w);
        break;
    case CN_OP_BIAS_GRAD:
        bias_grad(&call->bias, w);
        break;
    case CN_OP_EXTREME:
    case CN_OP_EXTREME_GRAD:
        extreme(call->op, &call->extreme, w);
        break;
    case CN_OP_SOFTMAX:
    case CN_OP_SOFTMAX_GRAD:
        softmax(&call->softmax, w);
        break;
    case CN_OP_NORM:
    case CN_OP_NORM_GRAD:
    case CN_OP_NORM_GRAD_AFFINE:
        norm(call->op, &call->norm, w);
        break;
    case CN_OP_BATCH_NORM:
    case CN_OP_BATCH_NORM_GRAD:
        batch_norm(call->op, &call->batch_norm, w);
        break;
    case CN_OP_RECURRENT:
    case CN_OP_RECURRENT_GRAD:
        recurrent(call->op, &call->recurrent, w);
        break;
    case CN_OP_ATTENTION:
    case CN_OP_ATTENTION_GRAD:
        attention(call->op, &call->attention, w);
        break;
    case CN_OP_MAP:
    case CN_OP_MAP_GRAD:
    case CN_OP_COMBINE:
    case CN_OP_COMBINE_GRAD:
    case CN_OP_WHERE:
    case CN_OP_COPY:
    case CN_OP_FILL:
    case CN_OP_DROPOUT:
    case CN_OP_GATHER:
    case CN_OP_GATHER_GRAD:
    case CN_OP_RESIZE:
    case CN_OP_RESIZE_GRAD:
        value_words(call, w);
        break;
    default: // losses
        loss(call->op, &call->loss, w);
    }
}

// Returns the words that a call of the end of a step touches for each word of its range.
static double flat_words(const struct cn_call *call)
{
    switch (call->op) {
    case CN_OP_SUM_LANES:
        return 2;
    case CN_OP_SGD: // gradient and weight; the momentum, which may be 0, is read and written, too
        return call->range.proximal ? 6 : 5;
    case CN_OP_ADAM:
        return call->range.proximal ? 8 : 7;
    case CN_OP_STATISTIC:
        return 3;
    default: // CHECK and CLIP read the gradient
        return 1;
    }
}

static double touched(const struct cn_operand *operand, double words, uint32_t samples)
{
    if (operand->arena == CN_ARENA_NONE)
        return 0;
    return operand->stride ? words * samples : words;
}

struct cn_call_cost cn_call_cost(const struct cn_call *call, uint32_t samples)
{
    struct words words = {0};
    double sum = 0;

    if (call->op >= CN_OP_BATCH_COUNT)
        return (struct cn_call_cost){.bytes = 4 * flat_words(call) * (double)call->range.count};
    batch_words(call, &words);
    for (int i = 0; i < CN_CALL_INPUTS; i++)
        sum += touched(&call->in[i], words.in[i], samples);
    for (int i = 0; i < CN_CALL_OUTPUTS; i++) {
        double out = touched(&call->out[i], words.out[i], samples);

        sum += call->write == CN_WRITE_ADD ? 2 * out : out;
    }
    return (struct cn_call_cost){cn_describe_flops(call) * samples, 4 * sum};
}
