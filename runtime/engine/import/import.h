// import.h - turns the nodes of an ONNX file into a graph.
//
// Shapes are inferred, and integer arithmetic on shapes is done at once. Nodes that cannot be
// trained here are refused with one line each, not only the first. The import_*.c files hold a
// function for each ONNX op; import_ops.c has the table.
//
// A value is "known" when it depends neither on the samples nor on a weight: it is computed while
// the model is read. Functions that return cn_err also return CN_ENOMEM.
#pragma once

#include "runtime/engine/graph/graph.h"
#include "runtime/engine/onnx/onnx.h"

// Builds the forward part of graph, which the caller has initialised and deinits. CN_ENOTSUP or
// CN_EFORMAT with lines in diag.
cn_err cn_import(const struct cn_onnx *onnx, const struct cn_layout *layout, struct cn_diag *diag,
                 struct cn_graph *graph);

// Checks the version of ONNX's operators. CN_ENOTSUP with a line in diag.
cn_err cn_import_check_opset(const struct cn_onnx *onnx, struct cn_diag *diag);

// The reason in the line about a node whose op cannot be imported.
#define CN_IMPORT_NO_OP "the op is not supported"

// Returns the name of the ith ONNX op that can be imported, in alphabetical order; NULL after the
// last.
const char *cn_import_op_name(size_t i);

// For the import_*.c files.

struct cn_importer;

#define CN_IMPORT_INPUTS 64
#define CN_IMPORT_OUTPUTS 32

// A node while it is imported. Omitted inputs are CN_GRAPH_NONE. No input is CN_VALUE_UNKNOWN.
struct cn_import_node {
    struct cn_importer *importer;
    struct cn_graph *graph;
    const struct cn_onnx *onnx;
    const struct cn_onnx_node *node;
    uint32_t in[CN_IMPORT_INPUTS];
    size_t in_count;
    uint32_t out;                         // result: the value of the node's first output
    uint32_t more[CN_IMPORT_OUTPUTS - 1]; // result: values of the others; CN_GRAPH_NONE: unknown
};

// Adds a line to diag that names the node, or its output if it has no name. Returns CN_ENOTSUP.
cn_err cn_import_refuse(const struct cn_import_node *node, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

// Returns the value of an input that is not omitted. Valid until a value is added.
const struct cn_value *cn_import_value(const struct cn_import_node *node, size_t input);

// Returns whether the node has this input.
bool cn_import_has(const struct cn_import_node *node, size_t input);

// Refuses a node with an attribute that its op lacks, that has another type, is there twice, or has
// a value that no importer honours. Afterwards only a Constant has a list of floats.
cn_err cn_import_check_attributes(const struct cn_import_node *node);

// Return an attribute, or otherwise when the node lacks it.
int64_t cn_import_int(const struct cn_import_node *node, const char *name, int64_t otherwise);
float cn_import_float(const struct cn_import_node *node, const char *name, float otherwise);

// Copies the integers of an input or of an attribute, whichever the opset uses. CN_ENOTSUP when
// they are not known or more than room. *count is 0 when they are missing.
cn_err cn_import_numbers(const struct cn_import_node *node, size_t input, const char *attribute,
                         int64_t *numbers, size_t room, size_t *count);

// Makes a new activation with these dims the node's output; the batch is first.
cn_err cn_import_output(struct cn_import_node *node, uint32_t rank, const uint64_t *dims);

// Makes the node's output a view of input 0 under other dims. CN_ENOTSUP with a line when the new
// dims would mix elements of several samples.
cn_err cn_import_view(struct cn_import_node *node, uint32_t rank, const uint64_t *dims);

// Makes known integers the node's output; rank is 0 or 1.
cn_err cn_import_shape(struct cn_import_node *node, const int64_t *numbers, size_t count,
                       uint32_t rank);

// Gives an input memory of its own in the order of its dims. materialise does so for a transposed
// view, make_pads for planes that count as surrounded by zeros that are not in memory.
cn_err cn_import_materialise(struct cn_import_node *node, size_t input);
cn_err cn_import_make_pads(struct cn_import_node *node, size_t input);

// Imports the nodes of the branch that a known condition chooses.
cn_err cn_import_if(struct cn_import_node *node);

// Imports the nodes of one ONNX op.
typedef cn_err cn_import_fn(struct cn_import_node *node);

// The forms of inputs that the import of an op can take. Other inputs are converted before.
enum {
    CN_TAKES_PADDED = 1,     // cn_value.padded
    CN_TAKES_TRANSPOSED = 2, // cn_value.transposed
    CN_TAKES_ANY_BATCH = 4,  // the batch is another dimension, or only a factor of one
    CN_WANTS_SAMPLES = 8,    // not a form: input 0 must be in memory once for each sample
};

struct cn_import_op {
    const char *name;
    size_t inputs_min, inputs_max;
    cn_import_fn *import;
    unsigned takes; // set of the flags above
};

// Returns the op of a node, or NULL.
const struct cn_import_op *cn_import_op_find(const struct cn_onnx_node *node);

cn_import_fn cn_import_constant, cn_import_shape_of, cn_import_size_of; // _shapes
cn_import_fn cn_import_constant_of_shape, cn_import_range, cn_import_trilu, cn_import_mod;
cn_import_fn cn_import_gather, cn_import_gather_elements; // _gather
cn_import_fn cn_import_gather_nd, cn_import_scatter_nd;
cn_import_fn cn_import_transpose, cn_import_slice, cn_import_split; // _moves
cn_import_fn cn_import_concat, cn_import_expand, cn_import_tile;
cn_import_fn cn_import_pad;                                             // _pad
cn_import_fn cn_import_gemm, cn_import_matmul;                          // _products
cn_import_fn cn_import_einsum;                                          // _einsum
cn_import_fn cn_import_softmax, cn_import_layer_norm, cn_import_reduce; // _rows
cn_import_fn cn_import_sqrt, cn_import_pow, cn_import_reduce_norm;      // _roots
cn_import_fn cn_import_product;                                         // _known_reduce
cn_import_fn cn_import_is_nan, cn_import_xor, cn_import_tan;            // _composed
cn_import_fn cn_import_one_hot, cn_import_cumulative_sum, cn_import_log_sum_exp;
cn_import_fn cn_import_conv, cn_import_conv_transpose; // _layers
cn_import_fn cn_import_pool, cn_import_global_average_pool;
cn_import_fn cn_import_conv_volume, cn_import_pool_volume;         // _volumes
cn_import_fn cn_import_map, cn_import_arithmetic, cn_import_where; // _maps
cn_import_fn cn_import_clip, cn_import_celu, cn_import_softsign, cn_import_cast,
    cn_import_cast_like;
cn_import_fn cn_import_flatten, cn_import_reshape, cn_import_unsqueeze; // _views
cn_import_fn cn_import_squeeze, cn_import_identity;
cn_import_fn cn_import_batch_norm, cn_import_dropout;                        // _norm
cn_import_fn cn_import_resize, cn_import_extreme, cn_import_global_max_pool; // _planes
cn_import_fn cn_import_instance_norm, cn_import_group_norm, cn_import_depth_to_space;
cn_import_fn cn_import_random_uniform, cn_import_bernoulli; // _random
cn_import_fn cn_import_recurrent;                           // _recurrent
cn_import_fn cn_import_entropy;                             // _entropy

// Imports a node that reads a random choice (cn_value.choice). Refuses nodes whose result would be
// wrong in an evaluation, where the mean of the choice takes its place; others use import.
cn_err cn_import_of_choice(struct cn_import_node *node, cn_import_fn *import);

// Import a node that reads random numbers (CN_VALUE_UNIFORM), or numbers of the samples
// (CN_VALUE_NUMBERED).
cn_err cn_import_of_random(struct cn_import_node *node);
cn_err cn_import_of_numbered(struct cn_import_node *node);

// Makes 0, 1, 2 ... along the batch the node's output.
cn_err cn_import_number_samples(struct cn_import_node *node);

// Imports Gather where input 0 is the rows of all samples, `rows` of each, and the index counts
// within a sample.
cn_err cn_import_gather_rows(struct cn_import_node *node, int64_t rows);

// Imports GatherND within each sample. In the file each index begins with the sample's number; the
// node's indices lack this number.
cn_err cn_import_gather_places(struct cn_import_node *node);

// Imports a node of a model that computes its loss itself. Nodes that reduce over the batch, or
// read such a result, get a rule of their own (import_loss.c); others use import.
cn_err cn_import_whole_batch(struct cn_import_node *node, cn_import_fn *import);
