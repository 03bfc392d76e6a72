#include "runtime/engine/onnx/onnx_decode.h"

#include <string.h>

#define BRANCHES_MAX 8 // nesting of branches

static cn_err decode_branch(struct cn_onnx_decoder *decoder, struct cn_wire message,
                            struct cn_onnx_branch **branch);

// AttributeProto

static cn_err add_floats(struct cn_onnx_decoder *decoder, const struct cn_wire_field *field,
                         struct cn_onnx_attribute *attribute)
{
    cn_err err = cn_onnx_walk_packed(decoder, field, sizeof(float));

    if (err)
        return err;
    if (field->type == CN_WIRE_FIXED32) {
        attribute->floats[attribute->count++] = cn_onnx_walk_float(field);
        return CN_OK;
    }
    for (const uint8_t *at = field->bytes.at; at < field->bytes.end; at += sizeof(float))
        attribute->floats[attribute->count++] = cn_get_f32(at);
    return CN_OK;
}

static cn_err add_ints(struct cn_onnx_decoder *decoder, const struct cn_wire_field *field,
                       struct cn_onnx_attribute *attribute)
{
    struct cn_wire rest = field->bytes;
    uint64_t value;
    cn_err err = cn_onnx_walk_packed(decoder, field, 0);

    if (err)
        return err;
    if (field->type == CN_WIRE_VARINT) {
        attribute->ints[attribute->count++] = (int64_t)field->value;
        return CN_OK;
    }
    while (!cn_wire_varint(&rest, &value))
        attribute->ints[attribute->count++] = (int64_t)value;
    return CN_OK;
}

static cn_err attribute_take(struct cn_onnx_decoder *decoder, const struct cn_wire_field *field,
                             void *object)
{
    struct cn_onnx_attribute *attribute = object;

    switch (field->number) {
    case 1:
        return cn_onnx_walk_name(decoder, field, &attribute->name);
    case 2:
        attribute->f = cn_onnx_walk_float(field);
        return CN_OK;
    case 3:
        attribute->i = (int64_t)field->value;
        return CN_OK;
    case 4:
        attribute->s = cn_onnx_walk_text(field);
        return CN_OK;
    case 5:
        return cn_onnx_decode_tensor(decoder, field->bytes, &attribute->tensor);
    case 6:
        return decode_branch(decoder, field->bytes, &attribute->branch);
    case 7:
        return add_floats(decoder, field, attribute);
    case 8:
        return add_ints(decoder, field, attribute);
    case 9:
        attribute->texts[attribute->text_count++] = cn_onnx_walk_text(field);
        return CN_OK;
    case 20:
        attribute->type = cn_onnx_walk_int32(field);
        return CN_OK;
    default: // lists of graphs and tensors are not read; the type shows that they are there
        return CN_OK;
    }
}

static const struct cn_onnx_rule attribute_rules[] = {
    {1, CN_ONNX_BYTES, true},
    {2, CN_ONNX_FIXED32, true},
    {3, CN_ONNX_VARINT, true},
    {4, CN_ONNX_BYTES, true},
    {5, CN_ONNX_BYTES, true},
    {6, CN_ONNX_BYTES, true},
    {7, CN_ONNX_FIXED32 | CN_ONNX_BYTES, false},
    {8, CN_ONNX_VARINT | CN_ONNX_BYTES, false},
    {9, CN_ONNX_BYTES, false},
    {20, CN_ONNX_VARINT, true},
};
static const struct cn_onnx_kind attribute_kind =
    CN_ONNX_KIND("attribute", attribute_rules, attribute_take);

static cn_err decode_attribute(struct cn_onnx_decoder *decoder, struct cn_wire message,
                               struct cn_onnx_attribute *attribute)
{
    size_t float_count = cn_wire_values(message, 7, sizeof(float));
    size_t int_count = cn_wire_values(message, 8, 0);
    cn_err err;

    if (float_count && int_count)
        return cn_onnx_walk_malformed(decoder, message.at, "attribute",
                                      "it has both floats and ints");
    err = cn_onnx_walk_table(decoder, float_count, sizeof(float), &attribute->floats);
    if (!err)
        err = cn_onnx_walk_table(decoder, int_count, sizeof(int64_t), &attribute->ints);
    if (!err)
        err = cn_onnx_walk_table(decoder, cn_wire_count(message, 9), sizeof(*attribute->texts),
                                 &attribute->texts);
    if (err)
        return err;
    return cn_onnx_walk(decoder, message, &attribute_kind, attribute);
}

// NodeProto

static cn_err node_take(struct cn_onnx_decoder *decoder, const struct cn_wire_field *field,
                        void *object)
{
    struct cn_onnx_node *node = object;

    switch (field->number) {
    case 1:
        return cn_onnx_walk_name(decoder, field, &node->inputs[node->input_count++]);
    case 2:
        return cn_onnx_walk_name(decoder, field, &node->outputs[node->output_count++]);
    case 3:
        return cn_onnx_walk_name(decoder, field, &node->name);
    case 4:
        return cn_onnx_walk_name(decoder, field, &node->op);
    case 5:
        return decode_attribute(decoder, field->bytes, &node->attributes[node->attribute_count++]);
    case 7:
        return cn_onnx_walk_name(decoder, field, &node->domain);
    default:
        return CN_OK;
    }
}

static const struct cn_onnx_rule node_rules[] = {
    {1, CN_ONNX_BYTES, false}, {2, CN_ONNX_BYTES, false}, {3, CN_ONNX_BYTES, true},
    {4, CN_ONNX_BYTES, true},  {5, CN_ONNX_BYTES, false}, {7, CN_ONNX_BYTES, true},
};
static const struct cn_onnx_kind node_kind = CN_ONNX_KIND("node", node_rules, node_take);

static cn_err decode_node(struct cn_onnx_decoder *decoder, struct cn_wire message,
                          struct cn_onnx_node *node)
{
    cn_err err;

    err = cn_onnx_walk_table(decoder, cn_wire_count(message, 1), sizeof(*node->inputs),
                             &node->inputs);
    if (!err)
        err = cn_onnx_walk_table(decoder, cn_wire_count(message, 2), sizeof(*node->outputs),
                                 &node->outputs);
    if (!err)
        err = cn_onnx_walk_table(decoder, cn_wire_count(message, 5), sizeof(*node->attributes),
                                 &node->attributes);
    if (err)
        return err;
    return cn_onnx_walk(decoder, message, &node_kind, node);
}

// ValueInfoProto: name, and inside type the Tensor with its element type and its shape

static cn_err dim_take(struct cn_onnx_decoder *decoder, const struct cn_wire_field *field,
                       void *object)
{
    int64_t *dim = object;

    (void)decoder;
    if (field->number == 1 && (int64_t)field->value > 0)
        *dim = (int64_t)field->value;
    return CN_OK;
}

static const struct cn_onnx_rule dim_rules[] = {{1, CN_ONNX_VARINT, true},
                                                {2, CN_ONNX_BYTES, true}};
static const struct cn_onnx_kind dim_kind = CN_ONNX_KIND("dimension", dim_rules, dim_take);

static cn_err shape_take(struct cn_onnx_decoder *decoder, const struct cn_wire_field *field,
                         void *object)
{
    struct cn_onnx_value *value = object;

    if (field->number != 1)
        return CN_OK;
    if (value->rank == CN_ONNX_RANK_MAX)
        return cn_onnx_walk_malformed(decoder, field->bytes.at, "shape",
                                      "it has more than 8 dimensions");
    value->dims[value->rank] = -1;
    return cn_onnx_walk(decoder, field->bytes, &dim_kind, &value->dims[value->rank++]);
}

static const struct cn_onnx_rule shape_rules[] = {{1, CN_ONNX_BYTES, false}};
static const struct cn_onnx_kind shape_kind = CN_ONNX_KIND("shape", shape_rules, shape_take);

static cn_err tensor_type_take(struct cn_onnx_decoder *decoder, const struct cn_wire_field *field,
                               void *object)
{
    struct cn_onnx_value *value = object;

    if (field->number == 1)
        value->type = cn_onnx_walk_int32(field);
    if (field->number == 2)
        return cn_onnx_walk(decoder, field->bytes, &shape_kind, value);
    return CN_OK;
}

static const struct cn_onnx_rule tensor_type_rules[] = {{1, CN_ONNX_VARINT, true},
                                                        {2, CN_ONNX_BYTES, true}};
static const struct cn_onnx_kind tensor_type_kind =
    CN_ONNX_KIND("type", tensor_type_rules, tensor_type_take);

static cn_err type_take(struct cn_onnx_decoder *decoder, const struct cn_wire_field *field,
                        void *object)
{
    return field->number == 1 ? cn_onnx_walk(decoder, field->bytes, &tensor_type_kind, object)
                              : CN_OK;
}

static const struct cn_onnx_rule type_rules[] = {{1, CN_ONNX_BYTES, true}};
static const struct cn_onnx_kind type_kind = CN_ONNX_KIND("type", type_rules, type_take);

static cn_err value_take(struct cn_onnx_decoder *decoder, const struct cn_wire_field *field,
                         void *object)
{
    struct cn_onnx_value *value = object;

    if (field->number == 1)
        return cn_onnx_walk_name(decoder, field, &value->name);
    if (field->number == 2)
        return cn_onnx_walk(decoder, field->bytes, &type_kind, value);
    return CN_OK;
}

static const struct cn_onnx_rule value_rules[] = {{1, CN_ONNX_BYTES, true},
                                                  {2, CN_ONNX_BYTES, true}};
static const struct cn_onnx_kind value_kind = CN_ONNX_KIND("value", value_rules, value_take);

// GraphProto inside an attribute

static cn_err branch_take(struct cn_onnx_decoder *decoder, const struct cn_wire_field *field,
                          void *object)
{
    struct cn_onnx_branch *branch = object;
    struct cn_onnx_value output = {.type = 0};
    cn_err err = CN_OK;

    if (field->number == 1)
        return decode_node(decoder, field->bytes, &branch->nodes[branch->node_count++]);
    branch->initializer_count += field->number == 5;
    if (field->number == 12) {
        err = cn_onnx_walk(decoder, field->bytes, &value_kind, &output);
        branch->outputs[branch->output_count++] = output.name;
    }
    return err;
}

static const struct cn_onnx_rule branch_rules[] = {
    {1, CN_ONNX_BYTES, false}, {5, CN_ONNX_BYTES, false}, {12, CN_ONNX_BYTES, false}};
static const struct cn_onnx_kind branch_kind = CN_ONNX_KIND("branch", branch_rules, branch_take);

static cn_err decode_branch(struct cn_onnx_decoder *decoder, struct cn_wire message,
                            struct cn_onnx_branch **branch)
{
    cn_err err;

    if (decoder->branches == BRANCHES_MAX)
        return cn_onnx_walk_malformed(decoder, message.at, "branch", "it is in too many others");
    err = cn_onnx_walk_table(decoder, 1, sizeof(**branch), branch);
    if (!err)
        err = cn_onnx_walk_table(decoder, cn_wire_count(message, 1), sizeof(*(*branch)->nodes),
                                 &(*branch)->nodes);
    if (!err)
        err = cn_onnx_walk_table(decoder, cn_wire_count(message, 12), sizeof(*(*branch)->outputs),
                                 &(*branch)->outputs);
    if (err)
        return err;
    decoder->branches++;
    err = cn_onnx_walk(decoder, message, &branch_kind, *branch);
    decoder->branches--;
    return err;
}

// Notes of PyTorch's newer exporter about a value: metadata_props of its ValueInfoProto.

struct entry {
    struct cn_text key, value;
};

static cn_err entry_take(struct cn_onnx_decoder *decoder, const struct cn_wire_field *field,
                         void *object)
{
    struct entry *entry = object;

    (void)decoder;
    if (field->number == 1)
        entry->key = cn_onnx_walk_text(field);
    if (field->number == 2)
        entry->value = cn_onnx_walk_text(field);
    return CN_OK;
}

static const struct cn_onnx_rule entry_rules[] = {{1, CN_ONNX_BYTES, true},
                                                  {2, CN_ONNX_BYTES, true}};
static const struct cn_onnx_kind entry_kind = CN_ONNX_KIND("metadata", entry_rules, entry_take);

static cn_err role_take(struct cn_onnx_decoder *decoder, const struct cn_wire_field *field,
                        void *object)
{
    struct cn_onnx_role *role = object;
    struct entry entry = {0};
    cn_err err;

    if (field->number == 1)
        return cn_onnx_walk_name(decoder, field, &role->name);
    if (field->number != 4)
        return CN_OK;
    err = cn_onnx_walk(decoder, field->bytes, &entry_kind, &entry);
    if (!err && cn_text_equal(entry.key, "pkg.torch.export.graph_signature.InputSpec.kind")) {
        role->known = true;
        role->parameter = cn_text_equal(entry.value, "PARAMETER");
    }
    if (!err && cn_text_equal(entry.key, "pkg.onnxscript.optimizer.folded_from"))
        role->folded = entry.value;
    return err;
}

static const struct cn_onnx_rule role_rules[] = {{1, CN_ONNX_BYTES, true},
                                                 {4, CN_ONNX_BYTES, false}};
static const struct cn_onnx_kind role_kind = CN_ONNX_KIND("value", role_rules, role_take);

// GraphProto and ModelProto

static cn_err decode_graph_entry(struct cn_onnx_decoder *decoder, struct cn_wire message)
{
    struct entry entry = {0};
    cn_err err = cn_onnx_walk(decoder, message, &entry_kind, &entry);

    if (!err && cn_text_equal(entry.key, "pkg.torch.export.ExportedProgram.graph_signature"))
        decoder->onnx->signature = entry.value;
    return err;
}

static cn_err graph_take(struct cn_onnx_decoder *decoder, const struct cn_wire_field *field,
                         void *object)
{
    struct cn_onnx *onnx = object;

    switch (field->number) {
    case 1:
        return decode_node(decoder, field->bytes, &onnx->nodes[onnx->node_count++]);
    case 5:
        return cn_onnx_decode_tensor(decoder, field->bytes,
                                     &onnx->initializers[onnx->initializer_count++]);
    case 11:
        return cn_onnx_walk(decoder, field->bytes, &value_kind, &onnx->inputs[onnx->input_count++]);
    case 12:
        return cn_onnx_walk(decoder, field->bytes, &value_kind,
                            &onnx->outputs[onnx->output_count++]);
    case 13:
        return cn_onnx_walk(decoder, field->bytes, &role_kind, &onnx->roles[onnx->role_count++]);
    case 15:
        cn_diag_add(decoder->diag, "sparse initializers are not supported");
        decoder->unsupported = true;
        return CN_OK;
    case 16:
        return decode_graph_entry(decoder, field->bytes);
    default:
        return CN_OK;
    }
}

static const struct cn_onnx_rule graph_rules[] = {
    {1, CN_ONNX_BYTES, false},  {5, CN_ONNX_BYTES, false},  {11, CN_ONNX_BYTES, false},
    {12, CN_ONNX_BYTES, false}, {13, CN_ONNX_BYTES, false}, {15, CN_ONNX_BYTES, false},
    {16, CN_ONNX_BYTES, false},
};
static const struct cn_onnx_kind graph_kind = CN_ONNX_KIND("graph", graph_rules, graph_take);

static cn_err decode_graph(struct cn_onnx_decoder *decoder, struct cn_wire message)
{
    struct cn_onnx *onnx = decoder->onnx;
    cn_err err;

    err =
        cn_onnx_walk_table(decoder, cn_wire_count(message, 1), sizeof(*onnx->nodes), &onnx->nodes);
    if (!err)
        err = cn_onnx_walk_table(decoder, cn_wire_count(message, 5), sizeof(*onnx->initializers),
                                 &onnx->initializers);
    if (!err)
        err = cn_onnx_walk_table(decoder, cn_wire_count(message, 11), sizeof(*onnx->inputs),
                                 &onnx->inputs);
    if (!err)
        err = cn_onnx_walk_table(decoder, cn_wire_count(message, 12), sizeof(*onnx->outputs),
                                 &onnx->outputs);
    if (!err)
        err = cn_onnx_walk_table(decoder, cn_wire_count(message, 5), sizeof(*onnx->by_name),
                                 &onnx->by_name);
    if (!err)
        err = cn_onnx_walk_table(decoder, cn_wire_count(message, 13), sizeof(*onnx->roles),
                                 &onnx->roles);
    if (err)
        return err;
    return cn_onnx_walk(decoder, message, &graph_kind, onnx);
}

struct opset {
    struct cn_text domain;
    int64_t version;
};

static cn_err opset_take(struct cn_onnx_decoder *decoder, const struct cn_wire_field *field,
                         void *object)
{
    struct opset *opset = object;

    (void)decoder;
    if (field->number == 1)
        return cn_onnx_walk_name(decoder, field, &opset->domain);
    if (field->number == 2)
        opset->version = (int64_t)field->value;
    return CN_OK;
}

static const struct cn_onnx_rule opset_rules[] = {{1, CN_ONNX_BYTES, true},
                                                  {2, CN_ONNX_VARINT, true}};
static const struct cn_onnx_kind opset_kind = CN_ONNX_KIND("operator set", opset_rules, opset_take);

static cn_err decode_opset(struct cn_onnx_decoder *decoder, struct cn_wire message)
{
    struct opset opset = {0};
    cn_err err = cn_onnx_walk(decoder, message, &opset_kind, &opset);

    if (err)
        return err;
    if (opset.domain.size == 0 || cn_text_equal(opset.domain, "ai.onnx"))
        decoder->onnx->opset = opset.version;
    return CN_OK;
}

static cn_err model_take(struct cn_onnx_decoder *decoder, const struct cn_wire_field *field,
                         void *object)
{
    struct cn_wire *graph = object;

    switch (field->number) {
    case 1:
        decoder->onnx->ir_version = (int64_t)field->value;
        return CN_OK;
    case 7:
        *graph = field->bytes;
        return CN_OK;
    case 8:
        return decode_opset(decoder, field->bytes);
    default:
        return CN_OK;
    }
}

static const struct cn_onnx_rule model_rules[] = {
    {1, CN_ONNX_VARINT, true}, {7, CN_ONNX_BYTES, true}, {8, CN_ONNX_BYTES, false}};
static const struct cn_onnx_kind model_kind = CN_ONNX_KIND("model", model_rules, model_take);

cn_err cn_onnx_decode(struct cn_onnx *onnx, struct cn_diag *diag)
{
    struct cn_onnx_decoder decoder = {.onnx = onnx, .diag = diag};
    struct cn_wire file = {onnx->file, onnx->file + onnx->file_size};
    struct cn_wire graph = {0};
    cn_err err = cn_onnx_walk(&decoder, file, &model_kind, &graph);

    if (err)
        return err;
    if (!graph.at || onnx->opset < 1) {
        cn_diag_add(diag, "the file is not an ONNX model: it has no %s",
                    graph.at ? "version of the default operator set" : "graph");
        return CN_EFORMAT;
    }
    err = decode_graph(&decoder, graph);
    if (err)
        return err;
    return decoder.unsupported ? CN_ENOTSUP : CN_OK;
}
