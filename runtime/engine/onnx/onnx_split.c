#include "runtime/engine/onnx/onnx_split.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/engine/onnx/onnx.h"
#include "runtime/engine/onnx/onnx_edit.h"

// Fields of ModelProto, GraphProto, NodeProto and TensorProto.
enum {
    MODEL_GRAPH = 7,
    GRAPH_NODE = 1,
    GRAPH_INITIALIZER = 5,
    NODE_INPUT = 1,
    NODE_OP = 4,
    TENSOR_NAME = 8,
};

#define NAME_SIZE 512

// The roles in which a BatchNormalization reads its inputs, from input 1 on.
enum role { SCALE, SHIFT, MEAN, VARIANCE, ROLE_COUNT };

static const char *const role_names[ROLE_COUNT] = {"weight", "bias", "running_mean", "running_var"};

struct splitter {
    const struct cn_onnx *onnx;
    bool (*copies)[ROLE_COUNT]; // by initializer and role: it gets a copy
    struct cn_onnx_edits edits;
};

// Returns the initializer that a name stands for, also through Identity nodes. The nodes are in an
// order in which they can run.
static const struct cn_onnx_tensor *stands_for(const struct cn_onnx *onnx, struct cn_text name)
{
    const struct cn_onnx_tensor *tensor = cn_onnx_initializer_find(onnx, name);

    if (tensor)
        return tensor;
    for (size_t i = onnx->node_count; i-- > 0;) {
        const struct cn_onnx_node *node = &onnx->nodes[i];

        if (cn_text_equal(node->op, "Identity") && node->output_count && node->input_count &&
            cn_text_same(node->outputs[0], name))
            name = node->inputs[0];
    }
    return cn_onnx_initializer_find(onnx, name);
}

// Returns the initializer that a node has in a role, or NULL.
static const struct cn_onnx_tensor *tensor_in(const struct splitter *splitter,
                                              const struct cn_onnx_node *node, enum role role)
{
    const size_t input = (size_t)role + 1;

    if (!cn_text_equal(node->op, "BatchNormalization") || node->input_count <= input)
        return NULL;
    return stands_for(splitter->onnx, node->inputs[input]);
}

static bool is_weight(const struct cn_onnx_tensor *tensor)
{
    return tensor && tensor->type == CN_ONNX_FLOAT && tensor->count && !tensor->constant;
}

// "bn.bias" as a mean is "bn.running_mean", "bn.weight" as a variance "bn.running_var", and
// anything else gets the role behind its name. False when the name is taken or too long.
static bool name_copy(const struct splitter *splitter, const struct cn_onnx_tensor *tensor,
                      enum role role, char name[NAME_SIZE])
{
    const char *end = role == MEAN ? ".bias" : ".weight";
    size_t size = tensor->name.size, cut = strlen(end);
    int length;

    if (role != SHIFT && size > cut && !memcmp(tensor->name.data + size - cut, end, cut))
        size -= cut;
    if (size >= NAME_SIZE)
        return false;
    length = snprintf(name, NAME_SIZE, "%.*s.%s", (int)size, size ? tensor->name.data : "",
                      role_names[role]);
    return length < NAME_SIZE &&
           !cn_onnx_initializer_find(splitter->onnx, (struct cn_text){name, (size_t)length});
}

// Marks the initializers that are more than a statistic: another node reads them by name, or a
// BatchNormalization reads them as scale or shift.
static void mark_weights(const struct splitter *splitter, bool *weights)
{
    const struct cn_onnx *onnx = splitter->onnx;

    for (size_t i = 0; i < onnx->node_count; i++) {
        const struct cn_onnx_node *node = &onnx->nodes[i];
        bool norm = cn_text_equal(node->op, "BatchNormalization");

        for (size_t j = 0; j < node->input_count && !cn_text_equal(node->op, "Identity"); j++) {
            const struct cn_onnx_tensor *tensor =
                norm && j ? tensor_in(splitter, node, (enum role)(j - 1))
                          : cn_onnx_initializer_find(onnx, node->inputs[j]);

            if (tensor && !(norm && j > 2))
                weights[tensor - onnx->initializers] = true;
        }
    }
}

// Marks the copies to make. Returns false when there are none.
static bool mark_copies(struct splitter *splitter, const bool *weights)
{
    char name[NAME_SIZE];
    bool any = false;

    for (size_t i = 0; i < splitter->onnx->node_count; i++) {
        const struct cn_onnx_node *node = &splitter->onnx->nodes[i];

        for (enum role role = SHIFT; role < ROLE_COUNT; role++) {
            const struct cn_onnx_tensor *tensor = tensor_in(splitter, node, role);
            size_t place = tensor ? (size_t)(tensor - splitter->onnx->initializers) : 0;
            bool shared = role == SHIFT ? tensor == tensor_in(splitter, node, SCALE)
                                        : tensor && weights[place];

            if (is_weight(tensor) && shared && name_copy(splitter, tensor, role, name))
                any = splitter->copies[place][role] = true;
        }
    }
    return any;
}

static cn_err add_text(struct cn_onnx_edits *edits, const uint8_t *at, size_t removed,
                       uint32_t number, const char *text)
{
    struct cn_buffer field;
    cn_err err;

    cn_buffer_init(&field, NAME_SIZE + 16);
    err = cn_wire_append_header(&field, number, strlen(text));
    if (!err)
        err = cn_buffer_append(&field, text, strlen(text));
    if (!err)
        err = cn_onnx_edits_add(edits, at, removed, field.data, field.size);
    cn_buffer_deinit(&field);
    return err;
}

// Writes the names of the copies into the node, in place of the originals.
static cn_err edit_node(struct splitter *splitter, const struct cn_onnx_node *node,
                        struct cn_wire message)
{
    struct cn_wire_field field;
    size_t input = 0;
    char name[NAME_SIZE];
    cn_err err = CN_OK;

    for (const uint8_t *start = message.at; !err; start = message.at) {
        enum role role = (enum role)(input - 1);
        const struct cn_onnx_tensor *tensor;

        err = cn_wire_next(&message, &field);
        if (err || !field.number)
            break;
        if (field.number != NODE_INPUT || input++ == 0 || role >= ROLE_COUNT)
            continue;
        tensor = tensor_in(splitter, node, role);
        if (tensor && splitter->copies[tensor - splitter->onnx->initializers][role] &&
            (role != SHIFT || tensor == tensor_in(splitter, node, SCALE)) &&
            name_copy(splitter, tensor, role, name))
            err = add_text(&splitter->edits, start, (size_t)(message.at - start), NODE_INPUT, name);
    }
    return err;
}

// Writes a copy of the message after it, with another name.
static cn_err add_copy(struct splitter *splitter, const struct cn_onnx_tensor *tensor,
                       enum role role, struct cn_wire message)
{
    const uint8_t *end = message.end;
    struct cn_wire_field field;
    struct cn_buffer copy, whole;
    char name[NAME_SIZE];
    cn_err err = CN_OK;

    if (!name_copy(splitter, tensor, role, name))
        return CN_OK;
    cn_buffer_init(&copy, CN_ONNX_FILE_MAX);
    cn_buffer_init(&whole, CN_ONNX_FILE_MAX);
    for (const uint8_t *start = message.at; !err; start = message.at) {
        err = cn_wire_next(&message, &field);
        if (err || !field.number)
            break;
        if (field.number != TENSOR_NAME)
            err = cn_buffer_append(&copy, start, (size_t)(message.at - start));
    }
    if (!err)
        err = cn_wire_append_header(&copy, TENSOR_NAME, strlen(name));
    if (!err)
        err = cn_buffer_append(&copy, name, strlen(name));
    if (!err)
        err = cn_wire_append_header(&whole, GRAPH_INITIALIZER, copy.size);
    if (!err)
        err = cn_buffer_append(&whole, copy.data, copy.size);
    if (!err)
        err = cn_onnx_edits_add(&splitter->edits, end, 0, whole.data, whole.size);
    cn_buffer_deinit(&whole);
    cn_buffer_deinit(&copy);
    return err;
}

static cn_err edit_field(struct splitter *splitter, const uint8_t *start,
                         const struct cn_wire_field *field, size_t counts[GRAPH_INITIALIZER + 1])
{
    size_t opened, place;
    cn_err err = CN_OK;

    if (field->number == GRAPH_NODE) {
        err = cn_onnx_edits_open(&splitter->edits, start, field, &opened);
        if (!err)
            err = edit_node(splitter, &splitter->onnx->nodes[counts[GRAPH_NODE]++], field->bytes);
        return err ? err : cn_onnx_edits_close(&splitter->edits, field, opened);
    }
    if (field->number != GRAPH_INITIALIZER)
        return CN_OK;
    place = counts[GRAPH_INITIALIZER]++;
    for (enum role role = SHIFT; role < ROLE_COUNT && !err; role++)
        if (splitter->copies[place][role])
            err = add_copy(splitter, &splitter->onnx->initializers[place], role, field->bytes);
    return err;
}

// Adds the edits of the model. The decoder's tables list nodes and initializers in the order of the
// file, so counting them gives their indices.
static cn_err edit_model(struct splitter *splitter, struct cn_wire model)
{
    struct cn_wire_field graph, field;
    size_t counts[GRAPH_INITIALIZER + 1] = {0}, opened;
    const uint8_t *start;
    struct cn_wire rest;
    cn_err err;

    do {
        start = model.at;
        err = cn_wire_next(&model, &graph);
    } while (!err && graph.number && graph.number != MODEL_GRAPH);
    if (err || !graph.number)
        return err;
    err = cn_onnx_edits_open(&splitter->edits, start, &graph, &opened);
    rest = graph.bytes;
    for (start = rest.at; !err; start = rest.at) {
        err = cn_wire_next(&rest, &field);
        if (err || !field.number)
            break;
        err = edit_field(splitter, start, &field, counts);
    }
    return err ? err : cn_onnx_edits_close(&splitter->edits, &graph, opened);
}

static cn_err append(void *context, const void *piece, size_t size)
{
    return cn_buffer_append(context, piece, size);
}

static cn_err split(struct splitter *splitter, struct cn_buffer *out)
{
    const struct cn_onnx *onnx = splitter->onnx;
    const uint8_t *end = onnx->file + onnx->file_size;
    bool *weights = calloc(onnx->initializer_count + 1, sizeof(*weights));
    size_t next = 0;
    cn_err err = CN_OK;

    splitter->copies = calloc(onnx->initializer_count + 1, sizeof(*splitter->copies));
    if (!weights || !splitter->copies)
        err = CN_ENOMEM;
    if (!err) {
        mark_weights(splitter, weights);
        if (mark_copies(splitter, weights)) {
            err = edit_model(splitter, (struct cn_wire){onnx->file, end});
            if (!err)
                err = cn_onnx_edits_write(&splitter->edits, &next, onnx->file, end, append, out);
        }
    }
    free(splitter->copies);
    free(weights);
    return err;
}

// Returns whether the model has a BatchNormalization; without one the file need not be decoded.
static bool has_batch_norm(struct cn_wire model)
{
    struct cn_wire_field graph, node, field;

    while (!cn_wire_next(&model, &graph) && graph.number)
        while (graph.number == MODEL_GRAPH && !cn_wire_next(&graph.bytes, &node) && node.number)
            while (node.number == GRAPH_NODE && !cn_wire_next(&node.bytes, &field) && field.number)
                if (field.number == NODE_OP &&
                    cn_text_equal(
                        (struct cn_text){(const char *)field.bytes.at, cn_wire_size(field.bytes)},
                        "BatchNormalization"))
                    return true;
    return false;
}

cn_err cn_onnx_split(const uint8_t *file, size_t size, struct cn_buffer *out)
{
    struct splitter splitter = {.onnx = NULL};
    struct cn_onnx *onnx;
    cn_err err;

    if (!has_batch_norm((struct cn_wire){file, file + size}))
        return CN_OK;
    err = cn_onnx_open(file, size, NULL, &onnx);
    if (err)
        return err == CN_ENOMEM ? err : CN_OK;
    splitter.onnx = onnx;
    cn_onnx_edits_init(&splitter.edits);
    err = split(&splitter, out);
    cn_onnx_edits_deinit(&splitter.edits);
    cn_onnx_close(onnx);
    return err;
}
