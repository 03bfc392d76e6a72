// graph.h - a model as flat lists of values and nodes, the engine's intermediate form.
//
// Indices, no pointers. Nodes are in an order in which they can run: forward, then the loss, then
// backward. A node is one call of the compute port without its operands. Shapes are those of the
// file; memory is counted for one sample, so the graph does not depend on the batch that it will
// run with. Whatever dimension of a shape the batch is in, memory has the samples outermost: a
// sample of [steps, batch, width] is [steps, 1, width], one of [batch * heads, width] is [heads,
// width], one of [steps * batch, width] is [steps, width] (cn_graph_sample_dims). What depends on
// no sample, such as a slice of a weight, is an activation that is not batched: each lane computes
// it once.
#pragma once

#include "runtime/engine/layout.h"
#include "runtime/port/compute.h"
#include "runtime/profile/job.h"

#define CN_GRAPH_NONE UINT32_MAX
#define CN_GRAPH_RANK_MAX 8
#define CN_GRAPH_NODES_MAX (1u << 20)

// The batch while shapes are worked out, when the file leaves it open: a prime, so that no other
// dimension is taken for it.
#define CN_GRAPH_BATCH 1000003u

enum cn_value_kind {
    CN_VALUE_UNKNOWN,    // made by a node that was refused
    CN_VALUE_INPUT,      // samples
    CN_VALUE_LABELS,     // class numbers or targets
    CN_VALUE_PARAM,      // a tensor of the layout
    CN_VALUE_CONST,      // float32 that is not trained
    CN_VALUE_SHAPE,      // integers or booleans known at load, no memory at run time
    CN_VALUE_UNIFORM,    // while a file is imported: random numbers in [low, low + 1)
    CN_VALUE_NUMBERED,   // while a file is imported: base + step * number of the sample
    CN_VALUE_ACTIVATION, // made by a node, gradients of activations too
    CN_VALUE_GRADIENT,   // of a parameter, at the parameter's offset
};

// A number of the whole batch is kept as one for each sample; the file means this of them.
enum cn_over_batch {
    CN_OVER_BATCH_NONE,
    CN_OVER_BATCH_MEAN,
    CN_OVER_BATCH_SUM,
};

struct cn_value {
    enum cn_value_kind kind;
    uint32_t rank;
    uint64_t dims[CN_GRAPH_RANK_MAX];
    size_t words;           // of one sample when batched, else of all
    bool batched;           // dims[batch_axis] is the batch, or a multiple of it
    uint32_t batch_axis;    // 0 when not batched
    uint64_t batch_repeats; // times that dimension runs through the batch; 0 counts as 1
    bool shared;            // batched, but the same for all samples: only once in memory
    bool integers;          // int32 at run time, else float32; booleans are 0 and 1 as float32
    bool transposed;        // a matrix that is read with rows and columns exchanged
    uint32_t root; // the value whose memory it shares; its own index when it has memory itself
    bool padded;   // zeros are still to be thought around its planes, as many as:
    uint32_t pad_before[2], pad_after[2];
    size_t offset;    // parameter, gradient: words in the row; constant, shape: first of its pool
    bool frozen;      // parameter: not trained, a statistic or by the user's wish; activation: no
                      // gradient goes through it
    size_t parameter; // gradient: the offset of its parameter
    float momentum;   // a running statistic and its gradient: that of CN_OP_STATISTIC; else 0
    float low;        // CN_VALUE_UNIFORM
    uint32_t base;    // CN_VALUE_NUMBERED: a value of integers; CN_VALUE_UNIFORM: as it was drawn
    int64_t step;     // CN_VALUE_NUMBERED
    bool chosen;      // CN_VALUE_UNIFORM, as it was drawn: a choice was made of it
    bool choice;      // while a file is imported: a random 1 or 0, its mean in an evaluation
    bool is_sum;      // while a file is imported: a sum or a mean of elements, or a multiple of one
    bool of_batch;    // while a file is imported: floats worked out from the size of an open batch
    enum cn_over_batch over_batch; // while a file is imported
};

struct cn_node {
    struct cn_call call;         // op, write and numbers; the operands are in the next two
    uint32_t in[CN_CALL_INPUTS]; // values, CN_GRAPH_NONE when left out
    uint32_t out[CN_CALL_OUTPUTS];
};

#define CN_GRAPH_INPUT_MAX 8
#define CN_GRAPH_FACT_MAX 8

// What the trainer works out of a whole batch before it runs any part of it: one row for all of its
// samples, read as an input. So a call that sees one sample can divide by what the batch holds.
enum cn_fact_kind {
    CN_FACT_SIZE,    // the number of samples
    CN_FACT_COUNTED, // all labels over those that count: 1 where all do, 0 where none does
    CN_FACT_CLASSES, // for each class the labels that are of it and count, over all labels
};

struct cn_fact {
    enum cn_fact_kind kind;
    uint32_t value;  // CN_VALUE_INPUT, its offset CN_GRAPH_INPUT_MAX + the fact's index
    uint32_t labels; // the index of the input that has them; not of CN_FACT_SIZE
    size_t classes;  // labels are below this
    int64_t ignore;  // the label that does not count; INT64_MIN for none
};

// How a model that computes its loss itself ends.
enum cn_graph_head {
    CN_HEAD_NONE,    // with a number for each sample, the mean of which is the loss
    CN_HEAD_ENTROPY, // with cross-entropy, its labels an input; that node is left out
};

struct cn_graph {
    struct cn_value *values; // owned, as the rest
    size_t value_count, value_capacity;
    struct cn_node *nodes;
    size_t node_count, node_capacity;
    int64_t *numbers; // of CN_VALUE_SHAPE
    size_t number_count, number_capacity;
    float *constants; // of CN_VALUE_CONST
    size_t constant_count, constant_capacity;
    uint64_t batch;                      // as it stands in dims; 0 before the input is known
    uint32_t inputs[CN_GRAPH_INPUT_MAX]; // a value's offset is its index here
    uint32_t input_count;
    struct cn_fact facts[CN_GRAPH_FACT_MAX];
    uint32_t fact_count;
    const char *loss_output; // before import: the output that is the loss, NULL for none
    enum cn_graph_head head;
    uint32_t head_labels;  // CN_HEAD_ENTROPY: an input
    uint32_t head_weights; // of the classes, CN_GRAPH_NONE for none
    int64_t head_ignore;
    uint32_t output, labels;           // labels: CN_GRAPH_NONE when the model computes its loss
    enum cn_batch_norm_use batch_norm; // set before the import
    size_t loss;                       // index of the loss node, once cn_loss_add was called
};

void cn_graph_init(struct cn_graph *graph);
void cn_graph_deinit(struct cn_graph *graph);

// Initialises copy as a copy.
cn_err cn_graph_copy(const struct cn_graph *graph, struct cn_graph *copy);

// Adds a copy; words, root and dims are checked or filled in: root when it is CN_GRAPH_NONE.
// CN_ERANGE when the size overflows or the graph has too many values.
cn_err cn_graph_add_value(struct cn_graph *graph, const struct cn_value *value, uint32_t *index);

cn_err cn_graph_add_node(struct cn_graph *graph, const struct cn_node *node);

// A node of that op without operands.
struct cn_node cn_graph_node(enum cn_op op);

// Room in a pool; zeros when the elements are NULL.
cn_err cn_graph_add_numbers(struct cn_graph *graph, const int64_t *numbers, size_t count,
                            size_t *first);
cn_err cn_graph_add_constants(struct cn_graph *graph, const float *constants, size_t count,
                              size_t *first);

// Leaves in the pool of constants only what nodes, and the loss that is still to come, read.
cn_err cn_graph_drop_constants(struct cn_graph *graph);

// The dims that one sample has in memory: those of the value, the batch divided out.
void cn_graph_sample_dims(const struct cn_graph *graph, const struct cn_value *value,
                          uint64_t *dims);

// True when all samples read the same words.
static inline bool cn_graph_is_shared(const struct cn_value *value)
{
    return !value->batched || value->shared;
}

// Elements in front of the batch in its dimension: [repeats, batch, the rest].
static inline uint64_t cn_graph_batch_repeats(const struct cn_value *value)
{
    return value->batch_repeats ? value->batch_repeats : 1;
}

static inline uint32_t cn_graph_root(const struct cn_graph *graph, uint32_t value)
{
    return graph->values[value].root;
}
