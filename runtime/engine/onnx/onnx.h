// onnx.h - reads an ONNX file where it lies in memory.
//
// Walks over the protobuf wire format (https://protobuf.dev/programming-guides/encoding/) of the
// messages in onnx.proto. Nothing is copied: names and raw data point into the file in memory. The
// place of each initializer's bytes in the file is kept, so weights can be written back.
// Every input is hostile until checked: lengths, counts, nesting and sizes are bounded, and names
// are printable UTF-8, so that they can go into messages. String attributes may be any bytes.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "runtime/base/bytes.h"
#include "runtime/base/diag.h"
#include "runtime/base/error.h"
#include "runtime/engine/layout.h"

#define CN_ONNX_FILE_MAX (UINT64_C(1) << 31) // bytes; protobuf's own limit
#define CN_ONNX_RANK_MAX 8

struct cn_text { // borrowed from the file, without a terminating 0
    const char *data;
    size_t size;
};

enum cn_onnx_type { // TensorProto.DataType; 2 to 7 are integers
    CN_ONNX_FLOAT = 1,
    CN_ONNX_UINT8 = 2,
    CN_ONNX_INT32 = 6,
    CN_ONNX_INT64 = 7,
    CN_ONNX_BOOL = 9,
};

struct cn_onnx_tensor {
    struct cn_text name;
    int32_t type;
    uint32_t rank;
    uint64_t dims[CN_ONNX_RANK_MAX];
    size_t count; // product of dims, checked
    // With raw, data holds little-endian elements, not aligned (raw_data, or float_data in one
    // piece). Otherwise data is the TensorProto message itself: its numbers lie in typed fields,
    // one by one or as varints. cn_onnx_tensor_floats and cn_onnx_tensor_ints read both kinds.
    const uint8_t *data;
    size_t size; // bytes of data
    bool raw;
    bool constant;        // a float32 initializer that is no weight (GRAPH.md)
    uint64_t file_offset; // place of data in the file
};

// What the exporter wrote into the file about a value: what it was in the PyTorch module.
struct cn_onnx_role {
    struct cn_text name;
    bool known, parameter; // known: the exporter says whether it was a parameter
    struct cn_text folded; // list of the names that the exporter computed it from; may be empty
};

struct cn_onnx_node;

// A branch of an If node: the nodes that run under a condition.
struct cn_onnx_branch {
    struct cn_onnx_node *nodes; // owned
    size_t node_count;
    struct cn_text *outputs; // owned; names of the values that the branch returns
    size_t output_count;
    size_t initializer_count; // the initializers themselves are not read
};

struct cn_onnx_attribute {
    struct cn_text name;
    int32_t
        type; // AttributeProto.AttributeType: 1 float, 2 int, 3 string, 4 tensor, 6 floats, 7 ints
    float f;
    int64_t i;
    struct cn_text s;
    int64_t *ints;         // owned
    float *floats;         // owned
    size_t count;          // length of ints or floats
    struct cn_text *texts; // owned; a list of strings, any bytes
    size_t text_count;
    struct cn_onnx_tensor tensor;
    struct cn_onnx_branch *branch; // owned, NULL for none
};

struct cn_onnx_node {
    struct cn_text name, op, domain;
    struct cn_text *inputs, *outputs; // owned arrays; an omitted optional input has size 0
    size_t input_count, output_count;
    struct cn_onnx_attribute *attributes; // owned
    size_t attribute_count;
};

struct cn_onnx_value { // a graph input or output
    struct cn_text name;
    int32_t type;
    uint32_t rank;
    int64_t dims[CN_ONNX_RANK_MAX]; // -1 where symbolic
};

struct cn_onnx {
    const uint8_t *file; // borrowed; must outlive this object
    size_t file_size;
    int64_t ir_version;
    int64_t opset; // of the default domain
    struct cn_onnx_node *nodes;
    size_t node_count;
    struct cn_onnx_tensor *initializers;
    size_t initializer_count;
    uint32_t *by_name; // owned; indices of initializers, sorted by their names, which are unique
    struct cn_onnx_role *roles; // owned; one for each value that the file describes
    size_t role_count;
    struct cn_text
        signature; // the module's signature; empty if the file has none (onnx_signature.h)
    struct cn_onnx_value *inputs, *outputs; // owned; inputs that are initializers too are left out
    size_t input_count, output_count;
};

// Decodes the whole file into tables. CN_EFORMAT or CN_ENOTSUP with a line in diag for each problem
// found; CN_ERANGE with a line when the tables would grow too large; CN_ENOMEM. Refused: external
// data (onnx_file.h joins it first), sparse initializers, and element types other than enum
// cn_onnx_type.
cn_err cn_onnx_open(const uint8_t *file, size_t size, struct cn_diag *diag, struct cn_onnx **onnx);
void cn_onnx_close(struct cn_onnx *onnx);

// Returns whether the value of this name is read: by a node, also in a branch, or as an output of a
// branch or of the file.
bool cn_onnx_is_read(const struct cn_onnx *onnx, struct cn_text name);

// Returns the attribute of this name, or NULL.
const struct cn_onnx_attribute *cn_onnx_attribute_find(const struct cn_onnx_node *node,
                                                       const char *name);

bool cn_text_equal(struct cn_text text, const char *string);
bool cn_text_same(struct cn_text a, struct cn_text b);

// Returns the initializer of this name, or NULL.
const struct cn_onnx_tensor *cn_onnx_initializer_find(const struct cn_onnx *onnx,
                                                      struct cn_text name);

// Returns whether a tensor of float32 has a number too large for a weight, as attention masks have.
bool cn_onnx_tensor_is_extreme(const struct cn_onnx_tensor *tensor);

// Copy all elements of a tensor, tensor->count of them. CN_EINVAL when the element type is not
// float32 (floats), or neither an integer nor a boolean (ints).
cn_err cn_onnx_tensor_floats(const struct cn_onnx_tensor *tensor, float *values);
cn_err cn_onnx_tensor_ints(const struct cn_onnx_tensor *tensor, int64_t *values);

// Lists the initializers that are the model's tensors, in file order. float32 initializers are
// parameters, except the mean and variance of BatchNormalization, which are statistics. Empty ones
// and constants are left out. The caller deinits layout. CN_EFORMAT with a line in diag when no
// tensor is left, or when a name is empty or too long; CN_ENOMEM.
cn_err cn_onnx_layout(const struct cn_onnx *onnx, struct cn_diag *diag, struct cn_layout *layout);

// Copies the weights as stored in the file, in layout order, layout->total floats. CN_EINVAL when
// the layout is not of this file.
cn_err cn_onnx_weights(const struct cn_onnx *onnx, const struct cn_layout *layout, float *weights);
