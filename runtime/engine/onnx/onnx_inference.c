#include "runtime/engine/onnx/onnx_inference.h"

// Fields of ModelProto, GraphProto, NodeProto and AttributeProto.
enum {
    MODEL_GRAPH = 7,
    GRAPH_NODE = 1,
    NODE_INPUT = 1,
    NODE_OUTPUT = 2,
    NODE_OP = 4,
    NODE_ATTRIBUTE = 5,
    ATTRIBUTE_NAME = 1,
    ATTRIBUTE_GRAPH = 6,
};

struct maker {
    const struct cn_onnx *onnx;
    struct cn_onnx_edits *edits;
};

static struct cn_text text_of(struct cn_wire bytes)
{
    return (struct cn_text){(const char *)bytes.at, cn_wire_size(bytes)};
}

// Returns the first text of this field; empty when there is none.
static struct cn_text text_in(struct cn_wire message, uint32_t number)
{
    struct cn_wire_field field;

    while (!cn_wire_next(&message, &field) && field.number)
        if (field.number == number && field.type == CN_WIRE_BYTES)
            return text_of(field.bytes);
    return (struct cn_text){0};
}

// Returns whether a BatchNormalization's statistics, its outputs after the first, are read.
static bool has_readers(const struct cn_onnx *onnx, struct cn_wire node)
{
    struct cn_wire_field field;
    size_t outputs = 0;

    while (!cn_wire_next(&node, &field) && field.number)
        if (field.number == NODE_OUTPUT && outputs++ && cn_wire_size(field.bytes) &&
            cn_onnx_is_read(onnx, text_of(field.bytes)))
            return true;
    return false;
}

static cn_err edit_graph(const struct maker *maker, struct cn_wire graph);

// Edits the nodes of the branch that an attribute holds, if it holds one.
static cn_err edit_attribute(const struct maker *maker, const uint8_t *start,
                             const struct cn_wire_field *attribute)
{
    struct cn_wire rest = attribute->bytes;
    struct cn_wire_field field;
    size_t opened, inner;
    cn_err err = cn_onnx_edits_open(maker->edits, start, attribute, &opened);

    for (start = rest.at; !err; start = rest.at) {
        err = cn_wire_next(&rest, &field);
        if (err || !field.number)
            break;
        if (field.number != ATTRIBUTE_GRAPH)
            continue;
        err = cn_onnx_edits_open(maker->edits, start, &field, &inner);
        if (!err)
            err = edit_graph(maker, field.bytes);
        if (!err)
            err = cn_onnx_edits_close(maker->edits, &field, inner);
    }
    return err ? err : cn_onnx_edits_close(maker->edits, attribute, opened);
}

static cn_err edit_node(const struct maker *maker, struct cn_wire node)
{
    const struct cn_text op = text_in(node, NODE_OP);
    bool norm = cn_text_equal(op, "BatchNormalization") && !has_readers(maker->onnx, node);
    bool dropout = cn_text_equal(op, "Dropout");
    size_t inputs = 0, outputs = 0;
    struct cn_wire_field field;
    cn_err err = CN_OK;

    for (const uint8_t *start = node.at; !err; start = node.at) {
        bool remove;

        err = cn_wire_next(&node, &field);
        if (err || !field.number)
            break;
        remove = (dropout && field.number == NODE_INPUT && inputs++ >= 2) ||
                 (norm && field.number == NODE_OUTPUT && outputs++ >= 1) ||
                 (norm && field.number == NODE_ATTRIBUTE &&
                  cn_text_equal(text_in(field.bytes, ATTRIBUTE_NAME), "training_mode"));
        if (remove)
            err = cn_onnx_edits_add(maker->edits, start, (size_t)(node.at - start), NULL, 0);
        else if (field.number == NODE_ATTRIBUTE)
            err = edit_attribute(maker, start, &field);
    }
    return err;
}

static cn_err edit_graph(const struct maker *maker, struct cn_wire graph)
{
    struct cn_wire_field field;
    size_t opened;
    cn_err err = CN_OK;

    for (const uint8_t *start = graph.at; !err; start = graph.at) {
        err = cn_wire_next(&graph, &field);
        if (err || !field.number)
            break;
        if (field.number != GRAPH_NODE)
            continue;
        err = cn_onnx_edits_open(maker->edits, start, &field, &opened);
        if (!err)
            err = edit_node(maker, field.bytes);
        if (!err)
            err = cn_onnx_edits_close(maker->edits, &field, opened);
    }
    return err;
}

cn_err cn_onnx_inference(const struct cn_onnx *onnx, struct cn_onnx_edits *edits)
{
    const struct maker maker = {.onnx = onnx, .edits = edits};
    struct cn_wire model = {onnx->file, onnx->file + onnx->file_size};
    struct cn_wire_field field;
    size_t opened;
    cn_err err = CN_OK;

    for (const uint8_t *start = model.at; !err; start = model.at) {
        err = cn_wire_next(&model, &field);
        if (err || !field.number)
            break;
        if (field.number != MODEL_GRAPH)
            continue;
        err = cn_onnx_edits_open(edits, start, &field, &opened);
        if (!err)
            err = edit_graph(&maker, field.bytes);
        if (!err)
            err = cn_onnx_edits_close(edits, &field, opened);
    }
    return err;
}

const struct cn_onnx_node *cn_onnx_inference_random(const struct cn_onnx *onnx)
{
    static const char *const ops[] = {"Bernoulli",     "Multinomial",      "RandomNormal",
                                      "RandomUniform", "RandomNormalLike", "RandomUniformLike"};

    for (size_t i = 0; i < onnx->node_count; i++)
        for (size_t j = 0; j < sizeof(ops) / sizeof(ops[0]); j++)
            if (cn_text_equal(onnx->nodes[i].op, ops[j]))
                return &onnx->nodes[i];
    return NULL;
}
