// onnx.h - reads an ONNX file where it lies in memory.
//
// A walker over the protobuf wire format (https://protobuf.dev/programming-guides/encoding/) of the
// messages in onnx.proto. Nothing is copied: names and raw data point into the mapping, and for
// each initializer the place of its bytes in the file is known, so weights can be written back.
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

#define CN_ONNX_FILE_MAX (1ull << 31) // bytes; protobuf's own limit
#define CN_ONNX_RANK_MAX 8

struct cn_text { // borrowed from the mapping, no terminating 0
    const char *data;
    size_t size;
};

enum cn_onnx_type { // TensorProto.DataType; from 2 to 7 integers
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
    // raw: little-endian elements, not aligned (raw_data, or float_data in one piece). Otherwise
    // the TensorProto message itself: its numbers lie in typed fields, one by one or as varints.
    // cn_onnx_tensor_floats and cn_onnx_tensor_ints read both kinds.
    const uint8_t *data;
    size_t size; // bytes of data
    bool raw;
    bool constant;        // a float32 initializer that the exporter says is no weight (GRAPH.md)
    uint64_t file_offset; // of data in the file
};

// What an exporter says that an initializer was in the module.
struct cn_onnx_role {
    struct cn_text name;
    bool known, parameter; // known: it says so
    struct cn_text folded; // names that an optimizer worked it out from
};

struct cn_onnx_node;

// What a node runs under a condition.
struct cn_onnx_branch {
    struct cn_onnx_node *nodes; // owned
    size_t node_count;
    struct cn_text *outputs; // owned; names that nodes give
    size_t output_count;
    size_t initializer_count; // they are not read
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
    size_t count;          // of ints or floats
    struct cn_text *texts; // owned; of a list of strings, any bytes
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
    uint32_t *by_name;          // owned; initializers in the order of their names, which are unique
    struct cn_onnx_role *roles; // owned; of the values that the file describes
    size_t role_count;
    struct cn_text signature; // of the module, empty where the file has none (onnx_signature.h)
    struct cn_onnx_value *inputs, *outputs; // inputs that are initializers too are left out
    size_t input_count, output_count;
};

// Decodes the whole file into tables. CN_EFORMAT or CN_ENOTSUP with a line in diag for each thing
// found. Refused for now: external data, sparse initializers, element types other than the above.
cn_err cn_onnx_open(const uint8_t *file, size_t size, struct cn_diag *diag, struct cn_onnx **onnx);
void cn_onnx_close(struct cn_onnx *onnx);

// Whether a node, in a branch too, reads the value of that name, or a branch or the file gives it.
bool cn_onnx_is_read(const struct cn_onnx *onnx, struct cn_text name);

const struct cn_onnx_attribute *cn_onnx_attribute_find(const struct cn_onnx_node *node,
                                                       const char *name);
bool cn_text_equal(struct cn_text text, const char *string);
bool cn_text_same(struct cn_text a, struct cn_text b);

// The initializer of that name, or NULL.
const struct cn_onnx_tensor *cn_onnx_initializer_find(const struct cn_onnx *onnx,
                                                      struct cn_text name);

// Whether a tensor of float32 has a number that no weight has, as the masks of attention do.
bool cn_onnx_tensor_is_extreme(const struct cn_onnx_tensor *tensor);

// All elements of a tensor, tensor->count of them. CN_EINVAL for an element type that is not
// float32, respectively not an integer or a boolean.
cn_err cn_onnx_tensor_floats(const struct cn_onnx_tensor *tensor, float *values);
cn_err cn_onnx_tensor_ints(const struct cn_onnx_tensor *tensor, int64_t *values);

// Which initializers are the model's tensors, in file order. float32 initializers are parameters,
// except the mean and variance of BatchNormalization, which are statistics; empty ones and
// constants are left out.
cn_err cn_onnx_layout(const struct cn_onnx *onnx, struct cn_diag *diag, struct cn_layout *layout);

// The weights as stored in the file, layout order, total floats. CN_EINVAL when the layout is not
// of this file.
cn_err cn_onnx_weights(const struct cn_onnx *onnx, const struct cn_layout *layout, float *weights);
