// graph.h - a model as flat lists of values and nodes, the engine's intermediate form.
//
// Values and nodes are named by index, not by pointer. Nodes are in an order in which they can run:
// forward, then the loss, then backward. A node is one call of the compute port without its
// operands.
//
// Shapes are those of the file. Memory is counted for one sample, in words of 4 bytes, so the graph
// does not depend on the batch that it will run with. In memory the samples are outermost, whatever
// dimension of a shape the batch is in (cn_graph_sample_dims):
//
//   shape                     memory of one sample
//   [steps, batch, width]     [steps, 1, width]
//   [batch * heads, width]    [heads, width]
//   [steps * batch, width]    [steps, width]
//
// A value that depends on no sample, such as a slice of a weight, is an activation that is not
// batched: each lane computes it once. Functions that add to a graph return CN_ENOMEM, or CN_ERANGE
// when it would become too large. Threading: none.
#pragma once

#include "runtime/engine/layout.h"
#include "runtime/port/compute.h"
#include "runtime/profile/job.h"

#define CN_GRAPH_NONE UINT32_MAX
#define CN_GRAPH_RANK_MAX 8
#define CN_GRAPH_NODES_MAX (1u << 20)

// Stands for the batch while shapes are computed, when the file leaves it open. It is a prime, so
// that no other dimension is taken for the batch.
#define CN_GRAPH_BATCH 1000003u

enum cn_value_kind {
    CN_VALUE_UNKNOWN,    // made by a node that was refused
    CN_VALUE_INPUT,      // samples
    CN_VALUE_LABELS,     // class numbers or targets
    CN_VALUE_PARAM,      // a tensor of the layout
    CN_VALUE_CONST,      // float32 that is not trained
    CN_VALUE_SHAPE,      // integers or booleans known at load, no memory at run time
    CN_VALUE_UNIFORM,    // during import only: random numbers in [low, low + 1)
    CN_VALUE_NUMBERED,   // during import only: base + step * number of the sample
    CN_VALUE_ACTIVATION, // made by a node; gradients of activations too
    CN_VALUE_GRADIENT,   // the gradient of a parameter
    CN_VALUE_BOUNDARY,   // in a part of a graph: an activation that another part writes or reads
};

// Marks a value of the whole batch in the file. The graph keeps it as one number for each sample,
// and the file's value is the mean or the sum of these.
enum cn_over_batch {
    CN_OVER_BATCH_NONE, // an ordinary value
    CN_OVER_BATCH_MEAN,
    CN_OVER_BATCH_SUM,
};

struct cn_value {
    enum cn_value_kind kind;
    uint32_t rank;
    uint64_t dims[CN_GRAPH_RANK_MAX];
    size_t words;           // words of one sample when batched, else of the whole value
    bool batched;           // dims[batch_axis] is the batch, or a multiple of it
    uint32_t batch_axis;    // dimension of the batch; 0 when not batched
    uint64_t batch_repeats; // times that dimension runs through the batch; 0 counts as 1
    bool shared;            // batched, but the same for all samples: only once in memory
    bool integers;          // int32 at run time, else float32; booleans are 0 and 1 as float32
    bool transposed;        // a matrix that is read with rows and columns exchanged
    uint32_t root; // the value whose memory it shares; its own index when it has memory itself
    bool padded;   // the planes count as surrounded by zeros, which are not in memory yet
    uint32_t pad_before[2], pad_after[2]; // padded: rows and columns of zeros on each side
    size_t offset;    // parameter, gradient: words in its row; constant, shape: index in its pool;
                      // input: see cn_graph.inputs and cn_fact.value; boundary: words of a sample
                      // before it, a multiple of 16
    bool frozen;      // parameter: a statistic, or not trained by the user's choice; activation: no
                      // gradient goes through it
    size_t parameter; // gradient: the offset of its parameter
    float momentum;   // running statistic and its gradient: momentum of CN_OP_STATISTIC; else 0
    float low;        // CN_VALUE_UNIFORM: the lowest number
    uint32_t base;    // CN_VALUE_NUMBERED: a value of integers; CN_VALUE_UNIFORM: the value of the
                      // node that draws the numbers; other values may be these numbers, shifted
    int64_t step;     // CN_VALUE_NUMBERED: difference from one sample to the next
    bool chosen;      // base of a CN_VALUE_UNIFORM: a choice was made from its numbers already
    bool choice;      // during import only: a random 1 or 0, its mean in an evaluation
    bool is_sum;      // during import only: a sum or a mean of elements, or a multiple of one
    bool of_batch;    // during import only: floats computed from the size of an open batch
    enum cn_over_batch over_batch; // during import only
    const char *name; // name of a node's output in the file, borrowed from it; NULL: none
    size_t name_size; // bytes of name, which has no terminating 0
};

struct cn_node {
    struct cn_call call;           // op, write and numbers, without operands
    uint32_t in[CN_CALL_INPUTS];   // values read; CN_GRAPH_NONE when left out
    uint32_t out[CN_CALL_OUTPUTS]; // values written; CN_GRAPH_NONE when left out
    uint32_t origin; // node of the forward pass: its own index; node of the backward pass: index of
                     // the forward node for whose gradient it was made. Set by autodiff
};

#define CN_GRAPH_INPUT_MAX 8
#define CN_GRAPH_FACT_MAX 8

// A fact is a row of numbers that the trainer computes from a whole batch before it runs any part
// of it. Calls read the row as an input that all samples share, so a call that sees one sample can
// divide by what the batch holds.
enum cn_fact_kind {
    CN_FACT_SIZE,    // [1]: the number of samples
    CN_FACT_COUNTED, // [1]: all labels / labels that count; 0 when none counts
    CN_FACT_CLASSES, // [classes]: labels of this class that count / all labels
};

struct cn_fact {
    enum cn_fact_kind kind;
    uint32_t value;  // CN_VALUE_INPUT, its offset CN_GRAPH_INPUT_MAX + the fact's index
    uint32_t labels; // index of the input that has the labels; unused by CN_FACT_SIZE
    size_t classes;  // labels are below this
    int64_t ignore;  // the label that does not count; INT64_MIN for none
};

// What an input holds from which the model takes class numbers.
struct cn_input_classes {
    size_t count;   // class numbers are below this; 0: the input has none
    int64_t ignore; // the number that does not count; INT64_MIN for none
};

// How a model that computes its loss itself ends.
enum cn_graph_head {
    CN_HEAD_NONE, // the model ends with one number for each sample; the loss is their mean
    // The model ends with cross-entropy of an input's labels; the file's loss node is left out.
    CN_HEAD_ENTROPY,
};

struct cn_graph {
    struct cn_value *values; // owned
    size_t value_count, value_capacity;
    struct cn_node *nodes; // owned
    size_t node_count, node_capacity;
    int64_t *numbers; // owned; pool of the elements of CN_VALUE_SHAPE
    size_t number_count, number_capacity;
    float *constants; // owned; pool of the elements of CN_VALUE_CONST
    size_t constant_count, constant_capacity;
    uint64_t batch;                      // the batch in dims; 0 before the input is known
    uint32_t inputs[CN_GRAPH_INPUT_MAX]; // values; the offset of each is its index here
    uint32_t input_count;
    uint32_t unread_inputs; // in a part of a graph: inputs that it does not read, bit i for input i
    struct cn_input_classes classes[CN_GRAPH_INPUT_MAX]; // by input
    struct cn_fact facts[CN_GRAPH_FACT_MAX];
    uint32_t fact_count;
    const char *loss_output; // set before import: name of the output that is the loss; NULL: none
    enum cn_graph_head head;
    uint32_t head_labels;    // CN_HEAD_ENTROPY: the input that has the labels
    uint32_t head_weights;   // CN_HEAD_ENTROPY: weights of the classes, or CN_GRAPH_NONE
    int64_t head_ignore;     // CN_HEAD_ENTROPY: the label that does not count
    uint32_t output, labels; // labels: CN_GRAPH_NONE when the model computes its loss itself
    enum cn_batch_norm_use batch_norm; // set before import
    size_t loss;                       // index of the loss node, once cn_loss_add was called; in a
                                       // part of a graph: index of the last forward node
    uint32_t origin;                   // while autodiff runs: origin of the nodes that are added
    size_t boundary_words; // in a part of a graph: words of a sample of all boundary values
};

void cn_graph_init(struct cn_graph *graph);
void cn_graph_deinit(struct cn_graph *graph);

// Initialises copy with a copy of graph; the caller deinits it.
cn_err cn_graph_copy(const struct cn_graph *graph, struct cn_graph *copy);

// Adds a copy of value without its name, and returns its index. Checks dims and computes words; a
// root of CN_GRAPH_NONE becomes the value itself. CN_ERANGE when the size overflows or there are
// too many values; CN_ENOMEM.
cn_err cn_graph_add_value(struct cn_graph *graph, const struct cn_value *value, uint32_t *index);

// Adds a copy of node, with the graph's origin, at the end of the list. Pointers to nodes are
// invalid afterwards.
cn_err cn_graph_add_node(struct cn_graph *graph, const struct cn_node *node);

// Returns a node of this op without operands.
struct cn_node cn_graph_node(enum cn_op op);

// Copy elements to a pool, zeros when the elements are NULL. *first is the index of the first.
cn_err cn_graph_add_numbers(struct cn_graph *graph, const int64_t *numbers, size_t count,
                            size_t *first);
cn_err cn_graph_add_constants(struct cn_graph *graph, const float *constants, size_t count,
                              size_t *first);

// Removes from the pool all constants that neither a node nor the loss, which is added later,
// reads. Removes all known integers: only the import reads them.
cn_err cn_graph_drop_constants(struct cn_graph *graph);

// Fills in the dims of one sample in memory: the value's dims, with the batch divided out.
void cn_graph_sample_dims(const struct cn_graph *graph, const struct cn_value *value,
                          uint64_t *dims);

// Returns whether all samples read the same words.
static inline bool cn_graph_is_shared(const struct cn_value *value)
{
    return !value->batched || value->shared;
}

// Returns how many times the batch's dimension runs through the batch: it is [repeats, batch,
// rest].
static inline uint64_t cn_graph_batch_repeats(const struct cn_value *value)
{
    return value->batch_repeats ? value->batch_repeats : 1;
}

// Returns the value whose memory this one shares.
static inline uint32_t cn_graph_root(const struct cn_graph *graph, uint32_t value)
{
    return graph->values[value].root;
}
