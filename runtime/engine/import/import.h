// import.h - turns the nodes of an ONNX file into a graph.
//
// Shapes are inferred and integer arithmetic on shapes is done at once. What cannot be trained here
// is refused with a line for each node, never only the first. The import_*.c files hold a function
// for each ONNX op; import_ops.c has the table.
#pragma once

#include "runtime/engine/graph/graph.h"
#include "runtime/engine/onnx/onnx.h"

// Builds the forward part of graph, which the caller has initialised. CN_ENOTSUP or CN_EFORMAT with
// lines in diag.
cn_err cn_import(const struct cn_onnx *onnx, const struct cn_layout *layout, struct cn_diag *diag,
                 struct cn_graph *graph);

// The name of ONNX op number i that can be imported, in the order of the alphabet; NULL behind the
// last.
const char *cn_import_op_name(size_t i);

// For the import_*.c files.

struct cn_importer;

#define CN_IMPORT_INPUTS 64
#define CN_IMPORT_OUTPUTS 32

// One node on its way in. Omitted inputs are CN_GRAPH_NONE; none is CN_VALUE_UNKNOWN.
struct cn_import_node {
    struct cn_importer *importer;
    struct cn_graph *graph;
    const struct cn_onnx *onnx;
    const struct cn_onnx_node *node;
    uint32_t in[CN_IMPORT_INPUTS];
    size_t in_count;
    uint32_t out;                         // result: the value of the node's first output
    uint32_t more[CN_IMPORT_OUTPUTS - 1]; // and of the others, CN_GRAPH_NONE for unknown ones
};

// Adds a line that names the node, or its output if it has no name, and returns CN_ENOTSUP.
cn_err cn_import_refuse(const struct cn_import_node *node, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

const struct cn_value *cn_import_value(const struct cn_import_node *node, size_t input);
bool cn_import_has(const struct cn_import_node *node, size_t input);

// Attributes with their default.
int64_t cn_import_int(const struct cn_import_node *node, const char *name, int64_t otherwise);
float cn_import_float(const struct cn_import_node *node, const char *name, float otherwise);

// The integers of an input or of an attribute, whichever the opset uses. CN_ENOTSUP when they are
// not known at load or more than room; *count is 0 when they are missing.
cn_err cn_import_numbers(const struct cn_import_node *node, size_t input, const char *attribute,
                         int64_t *numbers, size_t room, size_t *count);

// An activation with these dims as the node's output, the batch first.
cn_err cn_import_output(struct cn_import_node *node, uint32_t rank, const uint64_t *dims);

// The node's output is input 0 under other dims; the samples must stay apart.
cn_err cn_import_view(struct cn_import_node *node, uint32_t rank, const uint64_t *dims);

// Integers as the node's output; rank 0 or 1.
cn_err cn_import_shape(struct cn_import_node *node, const int64_t *numbers, size_t count,
                       uint32_t rank);

// Gives input i memory of its own in the order of its dims: where it is a transposed view, or
// where zeros are still to be put around it.
cn_err cn_import_materialise(struct cn_import_node *node, size_t input);
cn_err cn_import_make_pads(struct cn_import_node *node, size_t input);

// Takes the nodes of the branch that a known condition chooses.
cn_err cn_import_if(struct cn_import_node *node);

// A function for each ONNX op, in the files named for them.
typedef cn_err cn_import_fn(struct cn_import_node *node);

// What the import of an op copes with by itself.
enum {
    CN_TAKES_PADDED = 1,     // cn_value.padded
    CN_TAKES_TRANSPOSED = 2, // cn_value.transposed
    CN_TAKES_ANY_BATCH = 4,  // a batch that is not dimension 0, or only a factor of it
    CN_WANTS_SAMPLES = 8,    // input 0 in memory for each sample, though it be the same for all
};

struct cn_import_op {
    const char *name;
    size_t inputs_min, inputs_max;
    cn_import_fn *import;
    unsigned takes;
};

// The op of a node, or NULL.
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

// Imports a node that reads a random choice, by import where it may be its mean as well.
cn_err cn_import_of_choice(struct cn_import_node *node, cn_import_fn *import);

// Import nodes that read random numbers, and numbers of the samples.
cn_err cn_import_of_random(struct cn_import_node *node);
cn_err cn_import_of_numbered(struct cn_import_node *node);

// 0, 1, 2 ... along the batch, as the node's output.
cn_err cn_import_number_samples(struct cn_import_node *node);

// Gather where the samples' rows, so many of each, lie behind each other, by an index within each.
cn_err cn_import_gather_rows(struct cn_import_node *node, int64_t rows);

// GatherND in each sample: the indices lack its number, which comes before them.
cn_err cn_import_gather_places(struct cn_import_node *node);

// Imports a node of a model that computes its loss itself, where the node makes something of the
// whole batch or reads what was made so; any other by import.
cn_err cn_import_whole_batch(struct cn_import_node *node, cn_import_fn *import);
