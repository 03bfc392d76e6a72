// compute.h - what the engine needs from a device that trains: a CPU, a GPU.
//
// The engine plans memory into arenas and turns a model into programs: flat lists of calls whose
// operands are places in arenas. A port prepares a program once (it may compile it, choose kernels
// or capture a graph) and then runs it any number of times. Everything that changes between runs is
// in struct cn_hyper, so nothing is ever prepared again. Only open, reserve and prepare take
// memory.
//
// Lanes. A batch program is the same work for every sample. A device splits the samples of a batch
// over its lanes, a contiguous share each; a lane has its own activations and its own gradient, so
// lanes never wait for each other. A GPU has one lane, a CPU one for each thread. CN_OP_SUM_LANES
// adds up the gradients.
//
// Promises of every port: work is done in call order; with the same inputs, lanes and device the
// bits are the same; from CN_OP_CLIP on, flat calls are exact IEEE 754 arithmetic in the order
// given below, without contraction, so that all boards of a group, of whatever kind, keep identical
// weights.
// Sizes: operands are arrays of 4-byte words (float32, or int32 where said), counted in words.
// Threading: one thread at a time per device.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "runtime/base/error.h"
#include "runtime/base/number.h"

enum cn_arena {
    CN_ARENA_NONE,        // an operand that is left out
    CN_ARENA_WEIGHTS,     // all parameters, layout order
    CN_ARENA_OPTIMIZER,   // momentum, same order; perhaps of a part of them only
    CN_ARENA_CONSTANTS,   // numbers of the model that are not trained
    CN_ARENA_BATCH,       // one batch as it comes from the data set
    CN_ARENA_GRADIENTS,   // of the weights, in an order of their own; one for each lane, the first
                          // is what map shows
    CN_ARENA_ACTIVATIONS, // what lives within a run, workspaces too; one for each lane
    CN_ARENA_OUTPUTS,     // what an evaluation leaves for the host, one batch
    CN_ARENA_SECOND,      // the optimizer's second moment, same order as the weights
    CN_ARENA_BASE,        // the weights that a proximal term pulls to, same order
    CN_ARENA_SHARE,       // the gradient of a share of the weights, once for all lanes
    CN_ARENA_OWN,         // those weights, where the others are not here
    CN_ARENA_COUNT,
};

// Any operand may lie in any arena, workspaces in CN_ARENA_ACTIVATIONS only.
struct cn_operand {
    enum cn_arena arena;
    size_t offset; // words, a multiple of 16 in CN_ARENA_ACTIVATIONS and CN_ARENA_BATCH
    size_t stride; // words from one sample to the next; 0 when all samples share it
};

// The ops of a call and its operands; [x] may be left out. An output that all samples share
// (stride 0) is a sum over the samples of the lane. A call none of whose operands has a stride is
// done once, also by a lane without samples.
enum cn_op {
    //                       in                    out
    CN_OP_MATMUL,            // a, b, [bias]       c         struct cn_matmul
    CN_OP_PRODUCTS,          // a, b               c         struct cn_products
    CN_OP_CONV,              // x, weight, [bias]  y         struct cn_window
    CN_OP_CONV_GRAD_INPUT,   // dy, weight         dx
    CN_OP_CONV_GRAD_WEIGHT,  // dy, x              dweight
    CN_OP_BIAS_GRAD,         // dy                 dbias     struct cn_bias
    CN_OP_MAX_POOL,          // x                  y, place  place: int32 for each y, index in plane
    CN_OP_MAX_POOL_GRAD,     // dy, place          dx
    CN_OP_AVERAGE_POOL,      // x                  y
    CN_OP_AVERAGE_POOL_GRAD, // dy                 dx
    CN_OP_MAP,               // x                  y         struct cn_map
    CN_OP_MAP_GRAD,          // dy, y or x         dx        x from CN_MAP_NEEDS_X on
    CN_OP_COMBINE,           // a, b               c         struct cn_combine
    CN_OP_COMBINE_GRAD,      // dc, [a], [b]        da        see struct cn_combine
    CN_OP_WHERE,            // a, b, condition    c         struct cn_combine; c = condition ? a : b
    CN_OP_COPY,             // x                  y         struct cn_copy
    CN_OP_FILL,             //                    y         struct cn_fill
    CN_OP_EXTREME,          // x                  y, place  struct cn_extreme; place: int32
    CN_OP_EXTREME_GRAD,     // dy, place          dx
    CN_OP_SOFTMAX,          // x                  y         struct cn_softmax
    CN_OP_SOFTMAX_GRAD,     // dy, y              dx
    CN_OP_NORM,             // x, [gamma, beta]   y, saved  struct cn_norm; saved: mean and 1 /
                            //                              deviation of each row
    CN_OP_NORM_GRAD,        // dy, x, saved, [gamma]  dx
    CN_OP_NORM_GRAD_AFFINE, // dy, x, saved       [dgamma], [dbeta]
    CN_OP_BATCH_NORM,       // x, gamma, beta, mean, variance, [residual]
                            //                    y, saved, [dmean, dvariance]
                            //                              struct cn_batch_norm
    CN_OP_BATCH_NORM_GRAD,  // dy, x, gamma, saved, [y]
                            //                    [dx], [dgamma], [dbeta], [dresidual]
    CN_OP_DROPOUT,          // x                  y         struct cn_dropout; its own gradient
    CN_OP_GATHER,           // x, index           y         struct cn_gather; index: int32
    CN_OP_GATHER_GRAD,      // dy, index          dx
    CN_OP_RESIZE,           // x                  y         struct cn_resize
    CN_OP_RESIZE_GRAD,      // dy                 dx
    CN_OP_RECURRENT,        // gates, weight, [bias], [first, first_cell]
                            //                    y, saved, [last_cell]  struct cn_recurrent
    CN_OP_RECURRENT_GRAD,   // dy, y, saved, weight, [bias], [first, first_cell], [dlast_cell]
                            //                    dgates, [dhidden], [dfirst, dfirst_cell]
    CN_OP_ATTENTION,        // q, k, v, [mask]    y, saved  struct cn_attention
    CN_OP_ATTENTION_GRAD,   // dy, q, k, v, y, saved, [mask]
                            //                    dq, dk, dv
    CN_OP_CROSS_ENTROPY,    // logits, labels, [class weights]  [dlogits]  struct cn_loss_call
    CN_OP_BINARY_ENTROPY,   // logits, targets    [dlogits]
    CN_OP_MSE,              // y, targets         [dy]
    CN_OP_HUBER,            // y, targets         [dy]
    CN_OP_MEAN_LOSS,        // y                  [dy]      the model computes its loss itself
    CN_OP_BATCH_COUNT,      // the ops above make up batch programs, those below flat programs

    CN_OP_SUM_LANES =
        CN_OP_BATCH_COUNT, // adds the gradients of all lanes into the first, clears the rest; in a
                           // range with a count only those, which is the same sum
    CN_OP_CHECK,     // all gradients must be finite, else the calls after it in the run do nothing
    CN_OP_CLIP,      // struct cn_range, as the rest; see cn_hyper.clip
    CN_OP_SGD,       // with gradients, weights, optimizer
    CN_OP_ADAM,      // with the second moment too
    CN_OP_STATISTIC, // running statistics of batch normalization; only weights and gradients
    CN_OP_COUNT,
};

// How a call writes: its first output or, where it has several, those that all samples share, but
// for what is saved for the gradient. Everything else is set.
enum cn_write {
    CN_WRITE_SET,
    CN_WRITE_ADD,
    CN_WRITE_STEP, // set on the first batch of a step, add on the next: cn_hyper.first says which
};

// c = alpha * op(a) op(b) + bias_scale * bias, row-major; op(a) is rows x inner, op(b) inner x
// cols, bias has cols elements. One of rows and inner counts for a single sample and is multiplied
// by the number of samples.
struct cn_matmul {
    size_t rows, inner, cols;
    bool transpose_a, transpose_b;
    bool inner_batched; // else rows are
    float alpha, bias_scale;
    bool relu; // c = max(c, 0); with CN_WRITE_SET only
};

// A window that slides over planes; index 0 is y, 1 is x (a 1-D window has extent 1 in y). The pad
// at the end follows from out: what lies outside in counts as zero, or is left out by pooling.
struct cn_window {
    uint32_t channels_in, channels_out, groups; // pooling: equal, equal, unused
    uint32_t in[2], out[2], kernel[2], stride[2], pad[2], dilation[2];
    bool count_pads; // average: divide by the kernel's elements also at the border
    bool relu;       // convolution: y = max(y, 0)
};

// dbias[c] = scale * sum over samples, r and i of dy[r][c][i].
struct cn_bias {
    size_t rows, channels, inner;
    float scale;
};

// Independent products of matrices: count for each sample. Matrix number i starts i * stride words
// after the first; rows follow at leading words. A stride of 0 repeats an operand; stride_c = 0
// adds the products up.
struct cn_products {
    size_t count, rows, inner, cols;
    bool transpose_a, transpose_b;
    float alpha;
    size_t stride_a, stride_b, stride_c;
    size_t leading_a, leading_b, leading_c;
};

enum cn_map_kind {
    // The gradient needs y.
    CN_MAP_RELU,
    CN_MAP_LEAKY_RELU, // alpha * x for x < 0, alpha > 0
    CN_MAP_SIGMOID,
    CN_MAP_TANH,
    CN_MAP_SCALE, // alpha * x + beta
    CN_MAP_ELU,   // alpha * (exp(x) - 1) for x < 0, alpha > 0
    CN_MAP_SELU,  // beta * ELU
    CN_MAP_EXP,
    CN_MAP_SQRT,
    CN_MAP_RECIPROCAL,
    CN_MAP_SOFTPLUS, // log(1 + exp(x))
    CN_MAP_CLIP,     // to [alpha, beta]; the gradient is 1 where alpha < y < beta, as it is
                     // for ReLU6
    CN_MAP_SIGN,     // no gradient, as the next ones
    CN_MAP_NOT,      // x == 0
    CN_MAP_FLOOR,
    CN_MAP_CEIL,
    CN_MAP_ROUND,    // half to even
    CN_MAP_FROM_INT, // float of an int32
    CN_MAP_TO_INT,   // int32 of a float, towards zero

    CN_MAP_NEEDS_X,
    CN_MAP_GELU = CN_MAP_NEEDS_X, // x / 2 * (1 + erf(x / sqrt(2)))
    CN_MAP_GELU_TANH,             // its approximation by tanh
    CN_MAP_SILU,                  // x * sigmoid(x)
    CN_MAP_HARD_SIGMOID,          // max(0, min(1, alpha * x + beta))
    CN_MAP_HARD_SWISH,            // x * max(0, min(1, x / 6 + 1 / 2))
    CN_MAP_MISH,                  // x * tanh(softplus(x))
    CN_MAP_ERF,
    CN_MAP_LOG,
    CN_MAP_ABS,
    CN_MAP_POWER, // x ^ alpha
    CN_MAP_SIN,
    CN_MAP_COS,
};

struct cn_map {
    enum cn_map_kind kind;
    float alpha, beta;
    size_t count; // elements of a sample
};

enum cn_combine_kind {
    CN_COMBINE_ADD,
    CN_COMBINE_SUB,
    CN_COMBINE_MUL,
    CN_COMBINE_DIV,
    CN_COMBINE_MIN,
    CN_COMBINE_MAX,
    CN_COMBINE_POWER,
    CN_COMBINE_PRELU, // a for a > 0, else a * b
    CN_COMBINE_EQUAL, // 1 or 0; no gradient, as the next ones
    CN_COMBINE_LESS,
    CN_COMBINE_LESS_EQUAL,
    CN_COMBINE_AND,
    CN_COMBINE_OR,
};

#define CN_COMBINE_RANK_MAX 8

// c[i..] = a[i..] op b[i..] for one sample; an operand repeats along a dim where its stride is 0.
//
// The gradient of side 0 (a) or 1 (b): dc has the dims; the result is the sum of dc * (dc/da or
// dc/db) over what the operand repeats, times scale. in[1] and in[2] are a and b where the
// derivative needs them: the other side for MUL, both for DIV, MIN, MAX, POWER and PRELU; of WHERE
// the condition is in[1].
struct cn_combine {
    enum cn_combine_kind kind;
    uint32_t rank;
    size_t dims[CN_COMBINE_RANK_MAX];
    size_t a[CN_COMBINE_RANK_MAX], b[CN_COMBINE_RANK_MAX]; // words
    size_t condition[CN_COMBINE_RANK_MAX];
    int side;
    bool where; // the gradient is that of WHERE
    float scale;
};

// y[y_offset + sum i * y] = scale * x[x_offset + sum i * x]; the rest of y stays as it is. Strides
// may be 0 in x, and negative.
struct cn_copy {
    uint32_t rank;
    size_t dims[CN_COMBINE_RANK_MAX];
    ptrdiff_t x[CN_COMBINE_RANK_MAX], y[CN_COMBINE_RANK_MAX]; // words
    size_t x_offset, y_offset;
    float scale;
};

struct cn_fill {
    float value;
    size_t count; // words of a sample
};

enum cn_extreme_kind {
    CN_EXTREME_MAX, // the first largest; place is its index in x's sample
    CN_EXTREME_MIN,
};

// x is dense with the dims; y has stride 0 along the dims that are reduced. Sums are COMBINE_GRAD.
struct cn_extreme {
    enum cn_extreme_kind kind;
    uint32_t rank;
    size_t dims[CN_COMBINE_RANK_MAX];
    size_t y[CN_COMBINE_RANK_MAX];
};

// Over cols; element (o, c, i) is at (o * cols + c) * inner + i.
struct cn_softmax {
    size_t outer, cols, inner;
    bool log;
};

// Each of a sample's rows is brought to mean 0 and variance 1 (of the population, plus epsilon).
// Element c of row r has the affine number (r % groups) * (cols / inner) + c / inner:
// layer normalization has groups = inner = 1, instance normalization groups = channels and
// inner = cols, group normalization inner = the size of a plane.
struct cn_norm {
    size_t rows, cols, groups, inner;
    float epsilon;
};

// Over the whole batch, all lanes together. x is channels x inner for a sample. saved holds the
// means of all channels, then all 1 / sqrt(variance + epsilon) that were used, where a variance
// below 0 counts as 0; it belongs to the lane, not to a sample. dmean and dvariance (unbiased) are
// in the gradients: each lane adds its share, so that over all lanes they sum to samples times the
// statistic of the batch; CN_OP_STATISTIC uses them.
struct cn_batch_norm {
    size_t channels, inner;
    float epsilon;
    bool frozen; // the running mean and variance are used, not the batch's
    bool relu;   // y = max(y, 0), after the residual is added; the gradient then needs y
};

// y = x * (keep ? 1 / (1 - rate) : 0). Element e of a sample is kept when word e % 4 of
// Philox4x32-10 (Salmon et al., SC 2011) is at least rate * 2^32; its key is cn_hyper.seed, its
// counter e / 4, node, and the low and high half of cn_hyper.first_sample + the sample's index.
struct cn_dropout {
    float rate; // [0, 1)
    uint32_t node;
    size_t count; // elements of a sample
};

// y[o][n][i] = x[o][index[n]][i]; x is outer x rows x inner, index has count numbers, each in
// [-rows, rows); others are an error of the run. elements: index is outer x count x inner and
// y[o][n][i] = x[o][index[o][n][i]][i].
struct cn_gather {
    size_t outer, rows, inner, count;
    bool elements;
};

enum cn_resize_kind {
    CN_RESIZE_NEAREST,
    CN_RESIZE_LINEAR,
};

enum cn_resize_place {       // in float32: rounding decides on the border between two elements
    CN_RESIZE_ASYMMETRIC,    // in = out / scale
    CN_RESIZE_HALF_PIXEL,    // in = (out + 1/2) / scale - 1/2
    CN_RESIZE_ALIGN_CORNERS, // in = out * (in_extent - 1) / (out_extent - 1)
};

struct cn_resize {
    enum cn_resize_kind kind;
    enum cn_resize_place place;
    bool round; // nearest: round half down, else floor
    uint32_t channels, in[2], out[2];
    float scale[2];
};

enum cn_recurrent_kind {
    CN_RECURRENT_TANH, // plain cells: 1 gate
    CN_RECURRENT_RELU,
    CN_RECURRENT_LSTM, // 4 gates, in ONNX's order: input, output, forget, cell
    CN_RECURRENT_GRU,  // 3 gates: update, reset, hidden
};

// One direction of one layer. gates is steps x (gates * hidden) for a sample: the input's part
// (weights and both biases) is in it already, but for GRU's hidden gate with reset_after, whose
// recurrent bias is the input bias (3 * hidden words, of which the last hidden are used). weight is
// (gates * hidden) x hidden. y is steps x hidden. saved is steps x (gates + 1) * hidden: the gates
// after their functions; then the cell (LSTM), the hidden gate's recurrent part before reset (GRU
// with reset_after) or what that gate's product sees, r * h(t - 1) (GRU without). The gradient
// gives dgates, before the functions, and for GRU with reset_after dhidden: the same, but as the
// product with the recurrent weight sees them, so that dweight = sum dhidden' h(t - 1) and dbias =
// sum dhidden are plain products. The others have no dhidden: it is dgates. dfirst, dfirst_cell,
// last_cell (the cell after the last step, hidden words) and dlast_cell are of each sample; the
// last two are LSTM's.
struct cn_recurrent {
    enum cn_recurrent_kind kind;
    size_t steps, hidden;
    bool reverse;     // from the last step to the first
    bool reset_after; // GRU: linear_before_reset, as PyTorch has it
};

// Where the matrices of a sample's heads lie in an operand: row r of head h starts at offset + h *
// head + r * row; its elements are neighbours.
struct cn_heads {
    size_t offset, head, row; // words
};

#define CN_ATTENTION_WIDTH_MAX 256

// y = softmax(scale * q k' + mask) v for each head. q is q_rows x width, k is k_rows x width, v is
// k_rows x v_width. mask is q_rows x k_rows, the same for all heads of all samples; causal is a
// mask that leaves row i the columns up to i. saved has log(sum exp(score)) of each head's rows.
// dq, dk and dv lie as q, k and v do; they, like q, k and v, may be parts of one operand.
struct cn_attention {
    size_t heads, q_rows, k_rows;
    size_t width, v_width; // at most CN_ATTENTION_WIDTH_MAX
    struct cn_heads q, k, v, y;
    float scale;
    bool causal;
};

// A loss adds to the result the sum over samples of weight * loss, and the weights; it writes the
// gradient of that sum. Cross-entropy: a sample has rows labels (int32) and rows x outputs logits,
// element (r, c) at r + c * rows when classes_first, else r * outputs + c. A row's weight is that
// of its label's class, 0 for the label ignore; weight * loss = -sum_c w_c t_c log softmax_c, where
// the target t is 1 - smoothing at the label plus smoothing / outputs everywhere (as PyTorch has
// it); labels are within [0, outputs) or ignore. The others: the mean over outputs, weight 1.
// Binary entropy: targets in [0, 1]. Huber: quadratic up to delta, as PyTorch's HuberLoss; delta 0
// is L1. MEAN_LOSS: the loss is the mean of y.
struct cn_loss_call {
    size_t outputs, rows; // rows is at least 1, and 1 for all but cross-entropy
    bool classes_first;
    int32_t ignore; // INT32_MIN for none
    float smoothing, delta;
};

// Words of the flat arenas: [weights, weights + count) of weights and base, as many from weights -
// state_from on of optimizer and second moment; [gradients, gradients + count) of gradients.
struct cn_range {
    size_t weights, gradients, count;
    size_t state_from;           // words of the model before those that the optimizer's arenas hold
    bool nesterov;               // SGD
    bool decoupled;              // ADAM: weight decay as in AdamW
    float beta1, beta2, epsilon; // ADAM
    float momentum;              // STATISTIC
    bool proximal;               // g + cn_hyper.proximal * (w - base)
    // SGD, ADAM, STATISTIC: the gradients are words of CN_ARENA_SHARE; the weights are words of
    // CN_ARENA_OWN, and base has the same places.
    bool share, own;
};

#define CN_CALL_INPUTS 8
#define CN_CALL_OUTPUTS 4

struct cn_call {
    enum cn_op op;
    enum cn_write write;
    struct cn_operand in[CN_CALL_INPUTS];
    struct cn_operand out[CN_CALL_OUTPUTS]; // MAP, MAP_GRAD: may be in[0]; COMBINE: may be in[0] if
                                            // that does not repeat; else apart from every input
    struct cn_operand workspace;            // of a lane, as large as query said
    union {
        struct cn_matmul matmul;
        struct cn_window window;
        struct cn_bias bias;
        struct cn_products products;
        struct cn_map map;
        struct cn_combine combine;
        struct cn_copy copy;
        struct cn_fill fill;
        struct cn_extreme extreme;
        struct cn_softmax softmax;
        struct cn_norm norm;
        struct cn_batch_norm batch_norm;
        struct cn_dropout dropout;
        struct cn_gather gather;
        struct cn_resize resize;
        struct cn_recurrent recurrent;
        struct cn_attention attention;
        struct cn_loss_call loss;
        struct cn_range range;
    };
};

// How float16's losses are scaled: by a power of 2, and so many steps ago it was last changed.
// Zeros where they are not.
struct cn_loss_scale {
    float factor;
    uint32_t steps;
};

// What changes from run to run.
struct cn_hyper {
    uint32_t samples; // of this batch, at most what reserve was told
    bool first;       // see CN_WRITE_STEP

    uint64_t seed;         // of dropout
    uint64_t first_sample; // its number in the run; every sample of every batch has its own

    // Each operation below is rounded to float32, in the order written; nothing is contracted.
    // g = gradient * gradient_scale; with CLIP before it, g = g * c. proximal: g = g + proximal *
    // (w - base).
    // SGD: d = g + weight_decay * w; v = momentum * v + d; d = nesterov ? d + momentum * v : v;
    // w = w - learning_rate * d.
    // ADAM: without decoupled g = g + weight_decay * w, with it w = w - (learning_rate *
    // weight_decay) * w; m = beta1 * m + (1 - beta1) * g; v = beta2 * v + (1 - beta2) * (g * g);
    // w = w - (learning_rate / correction1) * m / (sqrt(v) / correction2 + epsilon), where
    // correction1 = 1 - beta1^t and correction2 = sqrt(1 - beta2^t) are given.
    // STATISTIC: s = gradient * statistic_scale; w = w + momentum * (s - w), with its range's
    // momentum.
    float gradient_scale, learning_rate, momentum, weight_decay;
    float proximal, correction1, correction2;
    float statistic_scale; // 1 / samples; the gradient's may be 1 / weight

    // c = min(1, clip / (norm + 1e-6)), in float32; norm = |gradient * gradient_scale| over all
    // ranges of CLIP, which come before those of the optimizer. The squares of float32 numbers are
    // added as float64: from 0, 256 neighbours in order, then 256 neighbours of these sums, until
    // one is left for each range; those are added in call order. norm is the root, rounded.
    float clip;

    struct cn_loss_scale loss_scale; // to go on with, from this run on; zeros: with what there is
};

// Sums over all runs since the last wait.
struct cn_compute_result {
    double loss;
    double weight;    // of all rows or samples that the loss counted
    uint64_t correct; // cross-entropy: rows with a weight whose first largest output is the label
    bool finite;      // false when a gradient was found that is not
    double norm;      // of the gradient, before the last CLIP
    bool overflow;    // not finite because of float16's scale, now halved: drop the step and go on
    struct cn_loss_scale loss_scale;
};

struct cn_compute_config {
    uint32_t threads;            // for a device that has them, at least 1
    enum cn_precision precision; // open returns CN_ENOTSUP for one that the device lacks
    uint32_t number;             // of the device, where a machine may have several
    bool wanted;                 // by its name: that it is not there is a warning
};

// Sizes in words. The port allocates sizes[a] for each arena, lanes times where each lane has its
// own.
struct cn_compute_sizes {
    size_t words[CN_ARENA_COUNT];
};

#define CN_COMPUTE_SHOWS 64

struct cn_compute; // a port embeds it as its first member
struct cn_compute_program;

struct cn_compute_ops {
    const char *name; // as in a profile: "cpu", "cuda"

    // CN_ENOTSUP when the device is not there.
    cn_err (*open)(const struct cn_compute_config *config, struct cn_compute **device);
    void (*close)(struct cn_compute *device);

    // Constant from open to close.
    uint32_t (*lanes)(const struct cn_compute *device);

    // The workspace, in words, that one lane needs for the call with at most samples samples.
    // Operands need only say whether they are left out. CN_ENOTSUP when the device cannot do it.
    cn_err (*query)(const struct cn_compute *device, const struct cn_call *call, size_t samples,
                    size_t *workspace);

    // Takes all memory, zeroed. Once, before prepare. samples is the largest batch of all lanes.
    cn_err (*reserve)(struct cn_compute *device, const struct cn_compute_sizes *sizes,
                      uint32_t samples);

    // Either batch calls or flat calls. The calls are copied.
    cn_err (*prepare)(struct cn_compute *device, const struct cn_call *calls, size_t count,
                      struct cn_compute_program **program);
    void (*release)(struct cn_compute *device, struct cn_compute_program *program);

    // Queues a run; hyper is copied. Errors of queued work come from wait.
    cn_err (*run)(struct cn_compute *device, struct cn_compute_program *program,
                  const struct cn_hyper *hyper);

    // Waits for everything queued.
    cn_err (*wait)(struct cn_compute *device, struct cn_compute_result *result);

    // Waits and shows an arena to the host, which may change it until unmap; no run in between. For
    // memory that the host cannot reach the port keeps a copy. Not for activations.
    cn_err (*map)(struct cn_compute *device, enum cn_arena arena, void **host);
    cn_err (*unmap)(struct cn_compute *device, enum cn_arena arena);

    // As map, of a part of the arena, queued: the host sees it, and may change it until unmap of
    // the arena, once shown says so. Runs that follow leave the part alone. At most
    // CN_COMPUTE_SHOWS parts between two unmaps, one behind the other from the first word on.
    cn_err (*show)(struct cn_compute *device, enum cn_arena arena, size_t first, size_t count,
                   void **host);

    // Whether the next part, in the order of show, is there: CN_EAGAIN when not, or waits for it.
    cn_err (*shown)(struct cn_compute *device, bool wait);
};

struct cn_compute {
    const struct cn_compute_ops *ops;
    uint32_t capability; // of a CUDA device, times 10; else 0
    bool host_memory;    // what map shows stays valid, and the host may read and change parts that
                         // no run uses at that time
};
