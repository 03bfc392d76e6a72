#include "runtime/engine/onnx/onnx_normalize.h"

#include <stdio.h>
#include <string.h>

#include "runtime/engine/onnx/onnx_edit.h"

// Fields of ModelProto, GraphProto, NodeProto, AttributeProto and TensorProto.
enum {
    MODEL_GRAPH = 7,
    GRAPH_NODE = 1,
    NODE_INPUT = 1,
    NODE_OUTPUT = 2,
    NODE_OP = 4,
    NODE_ATTRIBUTE = 5,
    ATTRIBUTE_NAME = 1,
    ATTRIBUTE_TENSOR = 5,
    ATTRIBUTE_GRAPH = 6,
    ATTRIBUTE_TYPE = 20,
    TENSOR_DIMS = 1,
    TENSOR_TYPE = 2,
    TENSOR_RAW = 9,
};

#define ATTRIBUTE_IS_TENSOR 4 // AttributeProto.AttributeType
#define NAME_SIZE 256

// The values of the new nodes.
enum value { MEAN, FACTOR, CENTERED, NORMALIZED, VALUE_COUNT };

static const char *const endings[VALUE_COUNT] = {"mean", "factor", "centered", "normalized"};

struct normalizer {
    const struct cn_onnx *onnx;
    const struct cn_normalization *what;
    struct cn_text input;
    char names[VALUE_COUNT][NAME_SIZE];
    struct cn_onnx_edits edits;
    bool inserted;
};

static bool is_taken(const struct cn_onnx *onnx, struct cn_text name)
{
    if (cn_onnx_initializer_find(onnx, name) || cn_onnx_is_read(onnx, name))
        return true;
    for (size_t i = 0; i < onnx->input_count; i++)
        if (cn_text_same(onnx->inputs[i].name, name))
            return true;
    for (size_t i = 0; i < onnx->node_count; i++)
        for (size_t j = 0; j < onnx->nodes[i].output_count; j++)
            if (cn_text_same(onnx->nodes[i].outputs[j], name))
                return true;
    return false;
}

// Returns whether the nodes are there that this file inserts: the first of its values comes from a
// Constant, and is subtracted from the input.
static bool is_normalized(const struct cn_onnx *onnx, struct cn_text input, const char *mean)
{
    for (size_t i = 0; i < onnx->node_count; i++) {
        const struct cn_onnx_node *node = &onnx->nodes[i];

        if (cn_text_equal(node->op, "Sub") && node->input_count == 2 &&
            cn_text_same(node->inputs[0], input) && cn_text_equal(node->inputs[1], mean))
            return true;
    }
    return false;
}

static cn_err refuse(struct cn_diag *diag, struct cn_text input, const char *why)
{
    cn_diag_add(diag, "input '%.*s': %s", (int)input.size, input.data, why);
    return CN_ENOTSUP;
}

// Names the new values after the input, and checks that it can be normalized.
static cn_err prepare(struct normalizer *normalizer, struct cn_diag *diag)
{
    const struct cn_onnx *onnx = normalizer->onnx;
    const struct cn_onnx_value *input = onnx->inputs;

    if (!onnx->input_count) {
        cn_diag_add(diag, "the model has no input");
        return CN_ENOTSUP;
    }
    normalizer->input = input->name;
    if (input->type != CN_ONNX_FLOAT)
        return refuse(diag, input->name, "its type is not float32, so it cannot be normalized");
    if (input->rank < normalizer->what->rank + 1)
        return refuse(diag, input->name, "it has fewer dimensions than what was measured");
    if (!cn_onnx_is_read(onnx, input->name))
        return refuse(diag, input->name, "no node reads it");
    for (int i = 0; i < VALUE_COUNT; i++) {
        const char *name = normalizer->names[i];
        int length = snprintf(normalizer->names[i], NAME_SIZE, "%.*s.%s", (int)input->name.size,
                              input->name.data, endings[i]);

        if (length >= NAME_SIZE)
            return refuse(diag, input->name, "its name is too long");
        if (is_taken(onnx, (struct cn_text){name, (size_t)length}))
            return refuse(diag, input->name,
                          is_normalized(onnx, input->name, name)
                              ? "it is normalized in the model already"
                              : "the names of its mean and factor are taken by other values");
    }
    return CN_OK;
}

// --- the new nodes ---

static cn_err put_field(struct cn_buffer *out, uint32_t number, const void *bytes, size_t size)
{
    cn_err err = cn_wire_append_header(out, number, size);

    return err || !size ? err : cn_buffer_append(out, bytes, size);
}

static cn_err put_text(struct cn_buffer *out, uint32_t number, const char *text)
{
    return put_field(out, number, text, strlen(text));
}

// Puts a message as a field of out, and empties it.
static cn_err put_message(struct cn_buffer *out, uint32_t number, struct cn_buffer *message)
{
    cn_err err = put_field(out, number, message->data, message->size);

    cn_buffer_deinit(message);
    cn_buffer_init(message, CN_ONNX_FILE_MAX);
    return err;
}

// Puts a Constant whose value is an array with the dims of the normalization.
static cn_err put_constant(const struct normalizer *normalizer, enum value value,
                           const float *numbers, struct cn_buffer *out)
{
    const struct cn_normalization *what = normalizer->what;
    struct cn_buffer tensor, attribute, node;
    size_t count = 1;
    cn_err err = CN_OK;

    cn_buffer_init(&tensor, CN_ONNX_FILE_MAX);
    cn_buffer_init(&attribute, CN_ONNX_FILE_MAX);
    cn_buffer_init(&node, CN_ONNX_FILE_MAX);
    for (uint32_t d = 0; d < what->rank && !err; d++) {
        count *= what->dims[d];
        err = cn_wire_append_number(&tensor, TENSOR_DIMS, what->dims[d]);
    }
    if (!err)
        err = cn_wire_append_number(&tensor, TENSOR_TYPE, CN_ONNX_FLOAT);
    if (!err)
        err = put_field(&tensor, TENSOR_RAW, numbers, count * sizeof(*numbers));
    if (!err)
        err = put_text(&attribute, ATTRIBUTE_NAME, "value");
    if (!err)
        err = put_message(&attribute, ATTRIBUTE_TENSOR, &tensor);
    if (!err)
        err = cn_wire_append_number(&attribute, ATTRIBUTE_TYPE, ATTRIBUTE_IS_TENSOR);
    if (!err)
        err = put_text(&node, NODE_OUTPUT, normalizer->names[value]);
    if (!err)
        err = put_text(&node, NODE_OP, "Constant");
    if (!err)
        err = put_message(&node, NODE_ATTRIBUTE, &attribute);
    if (!err)
        err = put_message(out, GRAPH_NODE, &node);
    cn_buffer_deinit(&tensor);
    cn_buffer_deinit(&attribute);
    cn_buffer_deinit(&node);
    return err;
}

// Puts a node with two inputs.
static cn_err put_arithmetic(const char *op, struct cn_text a, const char *b, const char *result,
                             struct cn_buffer *out)
{
    struct cn_buffer node;
    cn_err err;

    cn_buffer_init(&node, CN_ONNX_FILE_MAX);
    err = put_field(&node, NODE_INPUT, a.data, a.size);
    if (!err)
        err = put_text(&node, NODE_INPUT, b);
    if (!err)
        err = put_text(&node, NODE_OUTPUT, result);
    if (!err)
        err = put_text(&node, NODE_OP, op);
    if (!err)
        err = put_message(out, GRAPH_NODE, &node);
    cn_buffer_deinit(&node);
    return err;
}

// Inserts the nodes at a place in the file, before all others.
static cn_err insert_nodes(struct normalizer *normalizer, const uint8_t *at)
{
    const char(*names)[NAME_SIZE] = normalizer->names;
    struct cn_text centered = {names[CENTERED], strlen(names[CENTERED])};
    struct cn_buffer nodes;
    cn_err err;

    cn_buffer_init(&nodes, CN_ONNX_FILE_MAX);
    err = put_constant(normalizer, MEAN, normalizer->what->mean, &nodes);
    if (!err)
        err = put_constant(normalizer, FACTOR, normalizer->what->factor, &nodes);
    if (!err)
        err = put_arithmetic("Sub", normalizer->input, names[MEAN], names[CENTERED], &nodes);
    if (!err)
        err = put_arithmetic("Mul", centered, names[FACTOR], names[NORMALIZED], &nodes);
    if (!err)
        err = cn_onnx_edits_add(&normalizer->edits, at, 0, nodes.data, nodes.size);
    cn_buffer_deinit(&nodes);
    normalizer->inserted = true;
    return err;
}

// --- those that read the input ---

// Writes the new name where a node reads the input.
static cn_err edit_input(struct normalizer *normalizer, const uint8_t *start,
                         const struct cn_wire_field *field)
{
    const char *name = normalizer->names[NORMALIZED];
    struct cn_text read = {(const char *)field->bytes.at, cn_wire_size(field->bytes)};
    struct cn_buffer renamed;
    cn_err err;

    if (!cn_text_same(read, normalizer->input))
        return CN_OK;
    cn_buffer_init(&renamed, NAME_SIZE + 16);
    err = put_text(&renamed, NODE_INPUT, name);
    if (!err)
        err = cn_onnx_edits_add(&normalizer->edits, start, (size_t)(field->bytes.end - start),
                                renamed.data, renamed.size);
    cn_buffer_deinit(&renamed);
    return err;
}

// What a message is, and so which of its fields are edited.
enum message { A_GRAPH, A_NODE, AN_ATTRIBUTE };

static bool is_inside(enum message message, uint32_t number)
{
    return number == (message == A_GRAPH  ? GRAPH_NODE
                      : message == A_NODE ? NODE_ATTRIBUTE
                                          : ATTRIBUTE_GRAPH);
}

// Edits a graph, a node of it, or an attribute, which may hold a graph: a branch. The file was
// decoded, so branches are not deeper than onnx_decode.c takes.
static cn_err edit_message(struct normalizer *normalizer, enum message message,
                           struct cn_wire content)
{
    struct cn_wire_field field;
    size_t opened;
    cn_err err = CN_OK;

    for (const uint8_t *start = content.at; !err; start = content.at) {
        err = cn_wire_next(&content, &field);
        if (err || !field.number)
            break;
        if (message == A_GRAPH && field.number == GRAPH_NODE && !normalizer->inserted)
            err = insert_nodes(normalizer, start);
        if (!err && message == A_NODE && field.number == NODE_INPUT)
            err = edit_input(normalizer, start, &field);
        if (err || !is_inside(message, field.number))
            continue;
        err = cn_onnx_edits_open(&normalizer->edits, start, &field, &opened);
        if (!err)
            err = edit_message(normalizer, (enum message)((message + 1) % 3), field.bytes);
        if (!err)
            err = cn_onnx_edits_close(&normalizer->edits, &field, opened);
    }
    return err;
}

static cn_err append(void *context, const void *piece, size_t size)
{
    return cn_buffer_append(context, piece, size);
}

static cn_err edit_model(struct normalizer *normalizer, struct cn_buffer *out)
{
    const uint8_t *end = normalizer->onnx->file + normalizer->onnx->file_size, *start;
    struct cn_wire model = {normalizer->onnx->file, end};
    struct cn_wire_field graph;
    size_t opened, next = 0;
    cn_err err;

    do {
        start = model.at;
        err = cn_wire_next(&model, &graph);
    } while (!err && graph.number && graph.number != MODEL_GRAPH);
    if (!err)
        err = cn_onnx_edits_open(&normalizer->edits, start, &graph, &opened);
    if (!err)
        err = edit_message(normalizer, A_GRAPH, graph.bytes);
    if (!err)
        err = cn_onnx_edits_close(&normalizer->edits, &graph, opened);
    return err ? err
               : cn_onnx_edits_write(&normalizer->edits, &next, normalizer->onnx->file, end, append,
                                     out);
}

cn_err cn_onnx_normalize(const struct cn_onnx *onnx, const struct cn_normalization *normalization,
                         struct cn_diag *diag, struct cn_buffer *out)
{
    struct normalizer normalizer = {.onnx = onnx, .what = normalization};
    cn_err err = prepare(&normalizer, diag);

    if (err)
        return err;
    cn_onnx_edits_init(&normalizer.edits);
    err = edit_model(&normalizer, out);
    cn_onnx_edits_deinit(&normalizer.edits);
    return err;
}

bool cn_onnx_is_normalized(const struct cn_onnx *onnx)
{
    struct cn_text input;
    char mean[NAME_SIZE];

    if (!onnx->input_count)
        return false;
    input = onnx->inputs[0].name;
    return snprintf(mean, sizeof(mean), "%.*s.%s", (int)input.size, input.data, endings[MEAN]) <
               NAME_SIZE &&
           is_normalized(onnx, input, mean);
}
