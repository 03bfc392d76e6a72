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
// bits are the same; CN_OP_SGD is exact IEEE 754 arithmetic in the order given below, without
// contraction, so that all boards of a group, of whatever kind, keep identical weights.
// Sizes: operands are arrays of 4-byte words (float32, or int32 where said), counted in words.
// Threading: one thread at a time per device.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "runtime/base/error.h"

enum cn_arena {
    CN_ARENA_NONE,        // an operand that is left out
    CN_ARENA_WEIGHTS,     // all parameters, layout order
    CN_ARENA_OPTIMIZER,   // momentum, same order
    CN_ARENA_CONSTANTS,   // numbers of the model that are not trained
    CN_ARENA_BATCH,       // one batch as it comes from the data set
    CN_ARENA_GRADIENTS,   // as the weights; one for each lane, the first is what map shows
    CN_ARENA_ACTIVATIONS, // what lives within a run, workspaces too; one for each lane
    CN_ARENA_COUNT,
};

// Any operand may lie in any arena, workspaces in CN_ARENA_ACTIVATIONS only.
struct cn_operand {
    enum cn_arena arena;
    size_t offset; // words, a multiple of 16 in CN_ARENA_ACTIVATIONS and CN_ARENA_BATCH
    size_t stride; // words from one sample to the next; 0 when all samples share it
};

// The ops of a call and its operands; [x] may be left out.
enum cn_op {
    //                       in                    out
    CN_OP_MATMUL,            // a, b, [bias]       c         struct cn_matmul
    CN_OP_CONV,              // x, weight, [bias]  y         struct cn_window
    CN_OP_CONV_GRAD_INPUT,   // dy, weight         dx
    CN_OP_CONV_GRAD_WEIGHT,  // dy, x              dweight
    CN_OP_BIAS_GRAD,         // dy                 dbias     struct cn_bias
    CN_OP_MAX_POOL,          // x                  y, place  place: int32 for each y, index in plane
    CN_OP_MAX_POOL_GRAD,     // dy, place          dx
    CN_OP_AVERAGE_POOL,      // x                  y
    CN_OP_AVERAGE_POOL_GRAD, // dy                 dx
    CN_OP_MAP,               // x                  y         struct cn_map
    CN_OP_MAP_GRAD,          // dy, y              dx
    CN_OP_COMBINE,           // a, b               c         struct cn_combine
    CN_OP_COMBINE_GRAD,      // dc, [b]            da        da = sum of dc * b over what a repeats
    CN_OP_CROSS_ENTROPY,     // logits, labels     [dlogits] labels: int32, one for each sample
    CN_OP_MSE,               // y, targets         [dy]
    CN_OP_BATCH_COUNT,       // the ops above make up batch programs, those below flat programs

    CN_OP_SUM_LANES =
        CN_OP_BATCH_COUNT, // adds the gradients of all lanes into the first, clears the rest
    CN_OP_SGD, // with gradients, weights, optimizer; changes nothing if a gradient is not finite
    CN_OP_COUNT,
};

// How a call writes its first output.
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

enum cn_map_kind {
    CN_MAP_RELU,
    CN_MAP_LEAKY_RELU, // alpha * x for x < 0, alpha > 0
    CN_MAP_SIGMOID,
    CN_MAP_TANH,
    CN_MAP_SCALE, // alpha * x
};

struct cn_map {
    enum cn_map_kind kind;
    float alpha;
    size_t count; // elements of a sample
};

enum cn_combine_kind {
    CN_COMBINE_ADD,
    CN_COMBINE_SUB,
    CN_COMBINE_MUL,
};

#define CN_COMBINE_RANK_MAX 8

// c[i..] = a[i..] op b[i..] for one sample; an operand repeats along a dim where its stride is 0.
// For the gradient, dc has the dims, da the strides a, b the strides b, and scale is 1 or -1.
struct cn_combine {
    enum cn_combine_kind kind;
    uint32_t rank;
    size_t dims[CN_COMBINE_RANK_MAX];
    size_t a[CN_COMBINE_RANK_MAX], b[CN_COMBINE_RANK_MAX]; // words
    float scale;
};

// Both losses add the loss summed over samples to the result, and write its gradient.
// Cross-entropy: of softmax over outputs. MSE: mean over outputs of the squared difference.
struct cn_loss_call {
    size_t outputs;
};

#define CN_CALL_INPUTS 3
#define CN_CALL_OUTPUTS 2

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
        struct cn_map map;
        struct cn_combine combine;
        struct cn_loss_call loss;
    };
};

// What changes from run to run.
struct cn_hyper {
    uint32_t samples; // of this batch, at most what reserve was told
    bool first;       // see CN_WRITE_STEP

    // g = gradient * gradient_scale; v = momentum * v + (g + weight_decay * w); w = w -
    // learning_rate * v Each operation is rounded to float32.
    float gradient_scale, learning_rate, momentum, weight_decay;
};

// Sums over all runs since the last wait.
struct cn_compute_result {
    double loss;
    uint64_t correct; // cross-entropy: samples whose first largest output is the label
    bool finite;      // false when an SGD call found a gradient that is not
};

struct cn_compute_config {
    uint32_t threads; // for a device that has them, at least 1
};

// Sizes in words. The port allocates sizes[a] for each arena, lanes times where each lane has its
// own.
struct cn_compute_sizes {
    size_t words[CN_ARENA_COUNT];
};

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
};

struct cn_compute {
    const struct cn_compute_ops *ops;
};
