// compute.h - what the engine needs from a device that trains: a CPU, a GPU.
//
// The engine plans memory into arenas and turns a model into programs: flat lists of calls whose
// operands are places in arenas. A port prepares a program once (it may compile it, choose kernels
// or capture a graph) and then runs it any number of times. Everything that changes between runs is
// in struct cn_hyper, so no program is prepared twice. Only open, reserve and prepare allocate
// memory.
//
// Lanes. A batch program does the same work for every sample. A device divides the samples of a
// batch among its lanes, one contiguous share each. A lane has its own activations and its own
// gradient, so lanes do not wait for each other. A GPU has one lane, a CPU one for each thread.
// CN_OP_SUM_LANES adds up the gradients.
//
// Promises of every port: Calls run in order. The same inputs, lanes and device give the same bits.
// From CN_OP_CLIP on, flat calls are exact IEEE 754 arithmetic in the order given below, without
// contraction, so that boards of all kinds in a group keep identical weights.
//
// Sizes: operands are arrays of 4-byte words, counted in words. A word is a float32, or an int32
// where noted.
// Threading: one thread at a time per device.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "runtime/base/error.h"
#include "runtime/base/number.h"

enum cn_arena {
    CN_ARENA_NONE,        // marks an operand that is left out
    CN_ARENA_WEIGHTS,     // all parameters, in layout order
    CN_ARENA_OPTIMIZER,   // momentum (Adam: first moment) of all or some weights, in layout order
    CN_ARENA_CONSTANTS,   // numbers of the model that are not trained
    CN_ARENA_BATCH,       // one batch as it comes from the data set
    CN_ARENA_GRADIENTS,   // gradients of the weights, in an order of their own; one arena for each
                          // lane, of which map shows the first
    CN_ARENA_ACTIVATIONS, // values of runs, which later runs may read, and workspaces; one arena
                          // for each lane
    CN_ARENA_OUTPUTS,     // outputs of an evaluation for the host, one batch
    CN_ARENA_SECOND,      // the optimizer's second moment, same order as CN_ARENA_OPTIMIZER
    CN_ARENA_BASE,        // weights towards which the proximal term pulls, in layout order
    CN_ARENA_SHARE,       // gradient of this board's share of the weights, once for all lanes
    CN_ARENA_OWN,         // this board's share of the weights, when it does not hold all of them
    CN_ARENA_BOUNDARY,    // what a part of a model receives and sends, samples as in CN_ARENA_BATCH
    CN_ARENA_COUNT,
};

// Words. Operands in CN_ARENA_ACTIVATIONS, _BATCH and _BOUNDARY begin at a multiple of this number.
#define CN_ARENA_ALIGNMENT 16

// Any operand may lie in any arena. Workspaces lie in CN_ARENA_ACTIVATIONS only.
struct cn_operand {
    enum cn_arena arena;
    size_t offset; // words; CN_ARENA_ALIGNMENT applies
    size_t stride; // words from one sample to the next; 0 when all samples share it
};

// The ops and their operands; an operand in [] may be left out. An output that all samples share
// (stride 0) is a sum over the samples of the lane. A call without any stride runs once on each
// lane, also on a lane without samples.
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
    CN_OP_COMBINE_GRAD,      // dc, [a], [b]       da        see struct cn_combine
    CN_OP_WHERE,             // a, b, condition    c         struct cn_combine
                             //                              c = condition ? a : b
    CN_OP_COPY,              // x                  y         struct cn_copy
    CN_OP_FILL,              //                    y         struct cn_fill
    CN_OP_EXTREME,           // x                  y, place  struct cn_extreme; place: int32
    CN_OP_EXTREME_GRAD,      // dy, place          dx
    CN_OP_SOFTMAX,           // x                  y         struct cn_softmax
    CN_OP_SOFTMAX_GRAD,      // dy, y              dx
    CN_OP_NORM,              // x, [gamma, beta]   y, saved  struct cn_norm; saved: mean and 1 /
                             //                              deviation of each row
    CN_OP_NORM_GRAD,         // dy, x, saved, [gamma]  dx
    CN_OP_NORM_GRAD_AFFINE,  // dy, x, saved       [dgamma], [dbeta]
    CN_OP_BATCH_NORM,        // x, gamma, beta, mean, variance, [residual]
                             //                    y, saved, [dmean, dvariance]
                             //                              struct cn_batch_norm
    CN_OP_BATCH_NORM_GRAD,   // dy, x, gamma, saved, [y]
                             //                    [dx], [dgamma], [dbeta], [dresidual]
    CN_OP_DROPOUT,           // x                  y         struct cn_dropout; on dy it gives dx
    CN_OP_GATHER,            // x, index           y         struct cn_gather; index: int32
    CN_OP_GATHER_GRAD,       // dy, index          dx
    CN_OP_RESIZE,            // x                  y         struct cn_resize
    CN_OP_RESIZE_GRAD,       // dy                 dx
    CN_OP_RECURRENT,         // gates, weight, [bias], [first, first_cell]
                             //                    y, saved, [last_cell]  struct cn_recurrent
    CN_OP_RECURRENT_GRAD,    // dy, y, saved, weight, [bias], [first, first_cell], [dlast_cell]
                             //                    dgates, [dhidden], [dfirst, dfirst_cell]
    CN_OP_ATTENTION,         // q, k, v, [mask]    y, saved  struct cn_attention
    CN_OP_ATTENTION_GRAD,    // dy, q, k, v, y, saved, [mask]
                             //                    dq, dk, dv
    CN_OP_CROSS_ENTROPY,     // logits, labels, [class weights]  [dlogits]  struct cn_loss_call
    CN_OP_BINARY_ENTROPY,    // logits, targets    [dlogits]
    CN_OP_MSE,               // y, targets         [dy]
    CN_OP_HUBER,             // y, targets         [dy]
    CN_OP_MEAN_LOSS,         // y                  [dy]      the model computes its loss itself
    CN_OP_BATCH_COUNT,       // the ops above make up batch programs, those below flat programs

    // Adds the gradients of all lanes into those of the first lane and clears the others. With a
    // struct cn_range whose count is not 0, does so for that range only; the sums are the same.
    CN_OP_SUM_LANES = CN_OP_BATCH_COUNT,
    CN_OP_CHECK,     // skips the later calls of the run unless all gradients are finite
    CN_OP_CLIP,      // this op and those below take struct cn_range; see cn_hyper.clip
    CN_OP_SGD,       // uses gradients, weights and optimizer
    CN_OP_ADAM,      // uses gradients, weights, optimizer and second moment
    CN_OP_STATISTIC, // running statistics of batch normalization; uses weights and gradients
    CN_OP_COUNT,
};

// How a call writes its only output. Of several outputs it applies to those that all samples share,
// except values saved for the gradient. All other outputs are set.
enum cn_write {
    CN_WRITE_SET,
    CN_WRITE_ADD,
    CN_WRITE_STEP, // sets in the first batch of a step (cn_hyper.first), adds in the later ones
};

// c = alpha * op(a) op(b) + bias_scale * bias, row-major; op(a) is rows x inner, op(b) inner x
// cols, bias has cols elements. Either rows or inner is given for a single sample and is multiplied
// by the number of samples.
struct cn_matmul {
    size_t rows, inner, cols;
    bool transpose_a, transpose_b;
    bool inner_batched; // inner is multiplied by the number of samples; false: rows is
    float alpha, bias_scale;
    bool relu; // c = max(c, 0); with CN_WRITE_SET only
};

// A window that slides over planes; index 0 is y, 1 is x (a 1-D window has extent 1 in y). pad is
// the padding at the start; the padding at the end follows from out. Elements outside of the input
// count as zero in a convolution and are left out by pooling.
struct cn_window {
    uint32_t channels_in, channels_out, groups; // pooling: both channels equal, groups unused
    uint32_t in[2], out[2], kernel[2], stride[2], pad[2], dilation[2];
    bool count_pads; // average: divides by the size of the kernel at the border, too
    bool relu;       // convolution: y = max(y, 0)
};

// dbias[c] = scale * sum over samples, r and i of dy[r][c][i].
struct cn_bias {
    size_t rows, channels, inner;
    float scale;
};

// Independent matrix products c = alpha * op(a) op(b), count of them for each sample. Matrix i of
// an operand starts i * stride words after its first matrix. Rows of a matrix lie leading words
// apart. A stride of 0 repeats an operand; stride_c = 0 adds the products up.
struct cn_products {
    size_t count, rows, inner, cols;
    bool transpose_a, transpose_b;
    float alpha;
    size_t stride_a, stride_b, stride_c;
    size_t leading_a, leading_b, leading_c;
};

enum cn_map_kind {
    // The gradients of the kinds below need y.
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
    CN_MAP_CLIP,     // to [alpha, beta]; the gradient is 1 where alpha < y < beta, as PyTorch has
                     // it for ReLU6
    CN_MAP_SIGN,     // this kind and the next ones have no gradient
    CN_MAP_NOT,      // x == 0
    CN_MAP_FLOOR,
    CN_MAP_CEIL,
    CN_MAP_ROUND,    // half to even
    CN_MAP_FROM_INT, // float of an int32
    CN_MAP_TO_INT,   // int32 of a float, towards zero; INT32_MIN for NaN and when out of range

    CN_MAP_NEEDS_X,               // the gradients of the kinds below need x
    CN_MAP_GELU = CN_MAP_NEEDS_X, // x / 2 * (1 + erf(x / sqrt(2)))
    CN_MAP_GELU_TANH,             // the approximation of GELU by tanh
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
    CN_MAP_CLAMP, // min(max(x, alpha), beta); the gradient is 1 where alpha <= x <= beta, as
                  // PyTorch has it for clamp
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
    CN_COMBINE_EQUAL, // this kind and the next ones give 1 or 0 and have no gradient
    CN_COMBINE_LESS,
    CN_COMBINE_LESS_EQUAL,
    CN_COMBINE_AND,
    CN_COMBINE_OR,
};

#define CN_COMBINE_RANK_MAX 8

// c[i..] = a[i..] op b[i..] for one sample; an operand repeats along a dim where its stride is 0.
//
// CN_OP_COMBINE_GRAD gives the gradient of a (side 0) or b (side 1). Its input dc has the shape
// dims. The result is scale times the sum of dc * (dc/da or dc/db) over the dims along which the
// operand repeats. in[1] and in[2] are a and b where the derivative needs them: the other side for
// MUL, both for DIV, MIN, MAX, POWER and PRELU. For WHERE in[1] is the condition.
struct cn_combine {
    enum cn_combine_kind kind;
    uint32_t rank;
    size_t dims[CN_COMBINE_RANK_MAX];
    size_t a[CN_COMBINE_RANK_MAX], b[CN_COMBINE_RANK_MAX]; // words
    size_t condition[CN_COMBINE_RANK_MAX];
    int side;
    bool where; // COMBINE_GRAD belongs to a WHERE; kind is unused
    float scale;
};

// y[y_offset + sum i * y] = scale * x[x_offset + sum i * x]; the rest of y stays as it is. The
// strides x and y may be negative; those of x may also be 0.
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
    CN_EXTREME_MAX, // the first largest element, or the first NaN; place is its index in x's sample
    CN_EXTREME_MIN,
};

// The largest or smallest element along some dims. x is dense and has the shape dims; y has stride
// 0 along the dims that are reduced. Sums over dims are COMBINE_GRAD calls.
//
// CN_OP_EXTREME_GRAD gives dy to the element at place. With even, elements that are equal to the
// extreme share dy evenly, and the graph has other calls instead of CN_OP_EXTREME_GRAD.
struct cn_extreme {
    enum cn_extreme_kind kind;
    bool even;
    uint32_t rank;
    size_t dims[CN_COMBINE_RANK_MAX];
    size_t y[CN_COMBINE_RANK_MAX];
};

// Softmax over cols, or its logarithm. Element (o, c, i) of x is at (o * cols + c) * inner + i.
struct cn_softmax {
    size_t outer, cols, inner;
    bool log;
};

// Brings each row of a sample to mean 0 and variance 1 (population variance plus epsilon). Element
// c of row r uses number (r % groups) * (cols / inner) + c / inner of gamma and beta. Layer
// normalization has groups = inner = 1. Instance normalization has groups = channels and
// inner = cols. Group normalization has inner = the size of a plane.
struct cn_norm {
    size_t rows, cols, groups, inner;
    float epsilon;
};

// Normalizes over the whole batch, all lanes together. x is channels x inner for a sample. saved
// holds the means of all channels, then 1 / sqrt(variance + epsilon) as used, where a variance
// below 0 counts as 0. saved belongs to the lane, not to a sample. dmean and dvariance (unbiased)
// lie in the gradients. Each lane adds its share, so that their sum over all lanes is samples times
// the statistic of the batch. CN_OP_STATISTIC uses them.
struct cn_batch_norm {
    size_t channels, inner;
    float epsilon;
    bool frozen; // uses the running mean and variance, not the batch's
    bool relu;   // y = max(y, 0), after the residual is added; the gradient then needs y
};

// y = x * (keep ? 1 / (1 - rate) : 0). Element e of a sample is kept when word e % 4 of
// Philox4x32-10 (Salmon et al., SC 2011) is at least rate * 2^32. The key is cn_hyper.seed. The
// counter is e / 4, node, and the low and high half of cn_hyper.first_sample + the sample's index.
struct cn_dropout {
    float rate; // [0, 1)
    uint32_t node;
    size_t count; // elements of a sample
};

// y[o][n][i] = x[o][index[n]][i]; x is outer x rows x inner. index has count numbers, each in
// [-rows, rows); any other number is an error of the run. With elements, index is outer x count x
// inner and y[o][n][i] = x[o][index[o][n][i]][i].
struct cn_gather {
    size_t outer, rows, inner, count;
    bool elements;
};

enum cn_resize_kind {
    CN_RESIZE_NEAREST,
    CN_RESIZE_LINEAR,
};

// The place `in` of the input for a place `out` of the output. It is computed in float32, because
// the rounding decides which element is taken on the border between two.
enum cn_resize_place {
    CN_RESIZE_ASYMMETRIC,    // in = out / scale
    CN_RESIZE_HALF_PIXEL,    // in = (out + 1/2) / scale - 1/2
    CN_RESIZE_ALIGN_CORNERS, // in = out * (in_extent - 1) / (out_extent - 1)
};

struct cn_resize {
    enum cn_resize_kind kind;
    enum cn_resize_place place;
    bool round; // nearest: true rounds half down, false takes the floor
    uint32_t channels, in[2], out[2];
    float scale[2];
};

enum cn_recurrent_kind {
    CN_RECURRENT_TANH, // plain cells: 1 gate
    CN_RECURRENT_RELU,
    CN_RECURRENT_LSTM, // 4 gates, in ONNX's order: input, output, forget, cell
    CN_RECURRENT_GRU,  // 3 gates: update, reset, hidden
};

// One direction of one recurrent layer. Shapes are for one sample.
// - gates: steps x (gates * hidden). It already has the input's product and both biases, with one
//   exception: the recurrent bias of GRU's hidden gate with reset_after is the operand bias
//   (3 * hidden words, only the last hidden are used).
// - weight: (gates * hidden) x hidden. y: steps x hidden.
// - saved: steps x (gates + 1) * hidden. The gates after their functions; then the cell (LSTM), the
//   hidden gate's recurrent part before reset (GRU with reset_after), or the factor r * h(t - 1) of
//   that gate's product (GRU without).
// - first, first_cell, last_cell and their gradients: hidden words. last_cell is the cell after the
//   last step; last_cell and dlast_cell exist for LSTM only.
// The gradient gives dgates, the gradient before the functions. GRU with reset_after also has
// dhidden: dgates as seen by the product with the recurrent weight, so that dweight =
// sum dhidden' h(t - 1) and dbias = sum dhidden are plain products. The other kinds use dgates
// there.
struct cn_recurrent {
    enum cn_recurrent_kind kind;
    size_t steps, hidden;
    bool reverse;     // from the last step to the first
    bool reset_after; // GRU: linear_before_reset, as PyTorch has it
};

// Where the matrices of a sample's heads lie in an operand: row r of head h starts at word offset +
// h * head + r * row; the elements of a row are neighbours.
struct cn_heads {
    size_t offset, head, row; // words
};

#define CN_ATTENTION_WIDTH_MAX 256

// y = softmax(scale * q k' + mask) v for each head. q is q_rows x width, k is k_rows x width, v is
// k_rows x v_width. mask is q_rows x k_rows, the same for all heads of all samples. causal adds a
// mask that leaves row i the columns 0 to i. saved has log(sum exp(score)) of each head's rows.
// dq, dk and dv are laid out as q, k and v; these three may be parts of one operand, as may q, k
// and v.
struct cn_attention {
    size_t heads, q_rows, k_rows;
    size_t width, v_width; // at most CN_ATTENTION_WIDTH_MAX
    struct cn_heads q, k, v, y;
    float scale;
    bool causal;
};

// A loss adds to struct cn_compute_result the sum over samples of weight * loss, and the sum of the
// weights. Its output is the gradient of the first sum.
// - Cross-entropy: a sample has rows labels (int32, in [0, outputs) or ignore) and rows x outputs
//   logits. Element (r, c) is at r + c * rows with classes_first, else at r * outputs + c. A row's
//   weight is that of its label's class, 0 for the label ignore. weight * loss =
//   -sum_c w_c t_c log softmax_c, where the target t is 1 - smoothing at the label plus
//   smoothing / outputs everywhere, as in PyTorch.
// - The other losses are means over outputs, with weight 1. Binary entropy has targets in [0, 1].
//   Huber is quadratic up to delta, as PyTorch's HuberLoss; delta 0 is L1. MEAN_LOSS is the mean
//   of y.
struct cn_loss_call {
    size_t outputs, rows; // rows is at least 1, and 1 for all losses except cross-entropy
    bool classes_first;
    int32_t ignore; // INT32_MIN for none
    float smoothing, delta;
};

// A range of count words in the flat arenas. The range starts at word `weights` of CN_ARENA_WEIGHTS
// and _BASE, at word `weights - state_from` of _OPTIMIZER and _SECOND, and at word `gradients` of
// _GRADIENTS.
struct cn_range {
    size_t weights, gradients, count;
    size_t state_from;           // model word at the start of the optimizer's arenas; may wrap
    bool nesterov;               // SGD
    bool decoupled;              // ADAM: weight decay as in AdamW
    float beta1, beta2, epsilon; // ADAM
    float momentum;              // STATISTIC
    bool proximal;               // g + cn_hyper.proximal * (w - base)
    bool no_decay;               // SGD, ADAM: weight_decay counts as 0
    // SGD, ADAM, STATISTIC: share takes the gradients from CN_ARENA_SHARE; own takes the weights
    // from CN_ARENA_OWN, and base has the same places.
    bool share, own;
};

#define CN_CALL_INPUTS 8
#define CN_CALL_OUTPUTS 4

struct cn_call {
    enum cn_op op;
    enum cn_write write;
    struct cn_operand in[CN_CALL_INPUTS];
    // Outputs do not overlap inputs, with these exceptions: out[0] of MAP and MAP_GRAD may be
    // in[0]; out[0] of COMBINE may be in[0] if in[0] does not repeat.
    struct cn_operand out[CN_CALL_OUTPUTS];
    struct cn_operand workspace; // one for each lane, as large as query returned
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

// The factor by which the loss is multiplied with float16. All zero without float16.
struct cn_loss_scale {
    float factor;   // a power of 2
    uint32_t steps; // steps since factor last changed
};

// What changes from run to run.
struct cn_hyper {
    uint32_t samples; // samples of this batch; at most the number given to reserve
    bool first;       // first batch of a step, see CN_WRITE_STEP

    uint64_t seed;         // seed of dropout
    uint64_t first_sample; // number of the batch's first sample; no two of a training share one

    // Each operation below is rounded to float32, in the order written; nothing is contracted.
    // - All optimizers: g = gradient * gradient_scale; after a CLIP in the run, g = g * c; with
    //   proximal, g = g + proximal * (w - base).
    // - SGD: d = g + weight_decay * w; v = momentum * v + d; d = nesterov ? d + momentum * v : v;
    //   w = w - learning_rate * d.
    // - ADAM: without decoupled g = g + weight_decay * w, with it w = w - (learning_rate *
    //   weight_decay) * w; m = beta1 * m + (1 - beta1) * g; v = beta2 * v + (1 - beta2) * (g * g);
    //   w = w - (learning_rate / correction1) * m / (sqrt(v) / correction2 + epsilon). The caller
    //   gives correction1 = 1 - beta1^t and correction2 = sqrt(1 - beta2^t).
    // - STATISTIC: s = gradient * statistic_scale; w = w + momentum * (s - w), with the momentum of
    //   the range.
    float gradient_scale, learning_rate, momentum, weight_decay;
    float proximal, correction1, correction2;
    float statistic_scale; // 1 / samples; gradient_scale may be 1 / weight instead

    // c = min(1, clip / (norm + 1e-6)), in float32; norm = |gradient * gradient_scale| over all
    // ranges of CLIP, which come before those of the optimizer. The squares of float32 numbers are
    // added as float64: from 0, 256 neighbours in order, then 256 neighbours of these sums, until
    // one sum is left for each range. The sums of the ranges are added in call order. norm is the
    // square root, rounded.
    float clip;

    struct cn_loss_scale loss_scale; // scale to use from this run on; zeros: keep the current one
};

// Results of all runs since the last wait. loss, weight and correct are sums.
struct cn_compute_result {
    double loss;      // sum of weight * loss
    double weight;    // sum of the weights
    uint64_t correct; // cross-entropy: rows with a weight whose first largest output is the label
    bool finite;      // false when a gradient is not finite
    double norm;      // norm of the gradient before the last CLIP
    bool overflow;    // float16's scale was too large and is now halved: drop the step, continue
    struct cn_loss_scale loss_scale; // present scale, for cn_hyper.loss_scale of a later process
};

struct cn_compute_config {
    uint32_t threads;            // for a device that has threads; at least 1
    enum cn_precision precision; // open returns CN_ENOTSUP when the device lacks it
    uint32_t number;             // number of the device on a machine with several
    bool wanted;                 // the user named this device: open warns if it is missing
};

// Sizes in words. The port allocates words[a] for each arena a, once per lane for the arenas that
// every lane has.
struct cn_compute_sizes {
    size_t words[CN_ARENA_COUNT];
};

#define CN_COMPUTE_SHOWS 64 // most calls of show between two unmaps

struct cn_compute; // a port embeds it as its first member
struct cn_compute_program;

struct cn_compute_ops {
    const char *name; // as in a profile: "cpu", "cuda"

    // Opens the device. Returns CN_ENOTSUP when there is no such device or it lacks the precision.
    cn_err (*open)(const struct cn_compute_config *config, struct cn_compute **device);
    void (*close)(struct cn_compute *device);

    // Returns the number of lanes, constant from open to close.
    uint32_t (*lanes)(const struct cn_compute *device);

    // Sets *workspace to the number of words that one lane needs for the call with at most
    // `samples` samples. Of an operand, only whether it is left out matters. Returns CN_ENOTSUP
    // when the device cannot run the call.
    cn_err (*query)(const struct cn_compute *device, const struct cn_call *call, size_t samples,
                    size_t *workspace);

    // Allocates all arenas, zeroed. Call it once, before prepare. samples is the largest batch, of
    // all lanes together.
    cn_err (*reserve)(struct cn_compute *device, const struct cn_compute_sizes *sizes,
                      uint32_t samples);

    // Makes a program of either batch calls or flat calls. The calls are copied.
    cn_err (*prepare)(struct cn_compute *device, const struct cn_call *calls, size_t count,
                      struct cn_compute_program **program);
    void (*release)(struct cn_compute *device, struct cn_compute_program *program);

    // Queues a run; hyper is copied. Errors of queued work come from wait.
    cn_err (*run)(struct cn_compute *device, struct cn_compute_program *program,
                  const struct cn_hyper *hyper);

    // Blocks until all queued runs have ended and returns their first error.
    cn_err (*wait)(struct cn_compute *device, struct cn_compute_result *result);

    // Blocks until all queued runs have ended and shows an arena to the host, which may change it
    // until unmap. No run may be queued in between. Where the host cannot reach the memory, the
    // port keeps a copy. Not for activations.
    cn_err (*map)(struct cn_compute *device, enum cn_arena arena, void **host);
    cn_err (*unmap)(struct cn_compute *device, enum cn_arena arena);

    // As map, but only queued, and for the count words from word first on. The host may read and
    // change this part once shown has returned CN_OK for it, until unmap of the arena. Runs queued
    // meanwhile do not use the part. At most CN_COMPUTE_SHOWS parts between two unmaps; each begins
    // where the part before ended, the first at word 0.
    cn_err (*show)(struct cn_compute *device, enum cn_arena arena, size_t first, size_t count,
                   void **host);

    // Returns CN_OK when the next part, in the order of show, is ready for the host. Before that it
    // blocks with wait, and returns CN_EAGAIN without.
    cn_err (*shown)(struct cn_compute *device, bool wait);
};

struct cn_compute {
    const struct cn_compute_ops *ops;
    uint32_t capability; // compute capability of a CUDA device, times 10; else 0
    // Pointers from map stay valid after unmap, and the host may read and change parts that no run
    // uses at that time.
    bool host_memory;
};
