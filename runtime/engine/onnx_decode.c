#include "runtime/engine/onnx_decode.h"

#include <stdlib.h>
#include <string.h>

#include "runtime/engine/onnx_tensor.h"
#include "runtime/engine/onnx_wire.h"

// All tables of one model together, in bytes. A hostile file can ask for about 100 times its size.
#define TABLES_MAX (64u << 20)

#define VARINT (1u << CN_WIRE_VARINT)
#define BYTES (1u << CN_WIRE_BYTES)
#define FIXED32 (1u << CN_WIRE_FIXED32)

struct decoder {
    struct cn_onnx *onnx;
    struct cn_diag *diag;
    size_t tables;    // bytes taken so far
    bool unsupported; // something well-formed was found that is not supported
};

// What is known about a field of a message. Fields without a rule are skipped.
struct rule {
    uint32_t number;
    unsigned types; // the wire types it may have
    bool once;      // protobuf would merge repetitions; no exporter writes them
};

struct kind {
    const char *name;
    const struct rule *rules;
    size_t rule_count; // at most 32
    cn_err (*take)(struct decoder *decoder, const struct cn_wire_field *field, void *object);
};

#define KIND(name, rules, take)                                                                    \
    {                                                                                              \
        name, rules, sizeof(rules) / sizeof((rules)[0]), take                                      \
    }

static cn_err malformed(struct decoder *decoder, const uint8_t *at, const char *kind,
                        const char *problem)
{
    cn_diag_add(decoder->diag, "byte %zu: %s: %s", (size_t)(at - decoder->onnx->file), kind,
                problem);
    return CN_EFORMAT;
}

static cn_err check_rule(struct decoder *decoder, const struct kind *kind, const uint8_t *at,
                         const struct cn_wire_field *field, uint32_t *seen)
{
    for (size_t i = 0; i < kind->rule_count; i++) {
        const struct rule *rule = &kind->rules[i];

        if (rule->number != field->number)
            continue;
        if (!(rule->types >> field->type & 1))
            return malformed(decoder, at, kind->name, "a field has the wrong wire type");
        if (rule->once && *seen >> i & 1)
            return malformed(decoder, at, kind->name, "a field occurs twice");
        *seen |= 1u << i;
    }
    return CN_OK;
}

static cn_err walk(struct decoder *decoder, struct cn_wire message, const struct kind *kind,
                   void *object)
{
    struct cn_wire_field field;
    uint32_t seen = 0;

    for (;;) {
        const uint8_t *at = message.at;
        cn_err err = cn_wire_next(&message, &field);

        if (err)
            return malformed(decoder, at, kind->name, "the bytes are not a protobuf field");
        if (!field.number)
            return CN_OK;
        err = check_rule(decoder, kind, at, &field, &seen);
        if (!err)
            err = kind->take(decoder, &field, object);
        if (err)
            return err;
    }
}

// A zeroed table of count elements, NULL when count is 0.
static cn_err take_table(struct decoder *decoder, size_t count, size_t size, void *table)
{
    void *data = NULL;
    size_t bytes;

    if (cn_size_multiply(count, size, &bytes) || bytes > TABLES_MAX - decoder->tables) {
        cn_diag_add(decoder->diag, "the tables of the model need more than %u MiB",
                    TABLES_MAX >> 20);
        return CN_ERANGE;
    }
    decoder->tables += bytes;
    if (count) {
        data = calloc(count, size);
        if (!data)
            return CN_ENOMEM;
    }
    memcpy(table, &data, sizeof(data));
    return CN_OK;
}

static struct cn_text text_of(const struct cn_wire_field *field)
{
    return (struct cn_text){(const char *)field->bytes.at, cn_wire_size(field->bytes)};
}

static int32_t int32_of(const struct cn_wire_field *field)
{
    return (int32_t)(uint32_t)field->value;
}

static float float_of(const struct cn_wire_field *field)
{
    uint32_t bits = (uint32_t)field->value;
    float value;

    memcpy(&value, &bits, sizeof(value));
    return value;
}

static int shown_size(struct cn_text text)
{
    return text.size < 100 ? (int)text.size : 100;
}

// TensorProto

struct tensor_scan {
    struct cn_onnx_tensor *tensor;
    struct cn_wire message;
    struct cn_wire raw;
    struct cn_wire typed;  // of the last typed field
    uint32_t typed_number; // 0 while there was none
    size_t typed_pieces, typed_values;
    bool other_data; // in a typed field that no supported element type uses
    bool external;
};

static cn_err add_dim(struct decoder *decoder, struct tensor_scan *scan, uint64_t dim)
{
    struct cn_onnx_tensor *tensor = scan->tensor;

    if (dim > INT64_MAX)
        return malformed(decoder, scan->message.at, "tensor", "a dimension is negative");
    if (tensor->rank == CN_ONNX_RANK_MAX)
        return malformed(decoder, scan->message.at, "tensor", "it has more than 8 dimensions");
    tensor->dims[tensor->rank++] = dim;
    return CN_OK;
}

static cn_err add_dims(struct decoder *decoder, struct tensor_scan *scan,
                       const struct cn_wire_field *field)
{
    struct cn_wire rest = field->bytes;

    if (field->type == CN_WIRE_VARINT)
        return add_dim(decoder, scan, field->value);
    while (rest.at < rest.end) {
        uint64_t dim;
        cn_err err = cn_wire_varint(&rest, &dim);

        if (err)
            return malformed(decoder, field->bytes.at, "tensor", "its dimensions are cut off");
        err = add_dim(decoder, scan, dim);
        if (err)
            return err;
    }
    return CN_OK;
}

static cn_err check_packed(struct decoder *decoder, const struct cn_wire_field *field,
                           size_t element_size)
{
    struct cn_wire rest = field->bytes;
    uint64_t value;

    if (field->type != CN_WIRE_BYTES)
        return CN_OK;
    if (element_size && cn_wire_size(rest) % element_size)
        return malformed(decoder, rest.at, "packed list", "its last number is cut off");
    while (!element_size && rest.at < rest.end) {
        if (cn_wire_varint(&rest, &value))
            return malformed(decoder, rest.at, "packed list", "a number is malformed");
    }
    return CN_OK;
}

static cn_err add_typed(struct decoder *decoder, struct tensor_scan *scan,
                        const struct cn_wire_field *field)
{
    size_t element_size = field->number == CN_ONNX_FLOAT_DATA ? sizeof(float) : 0;
    cn_err err = check_packed(decoder, field, element_size);

    if (err)
        return err;
    if (scan->typed_number && scan->typed_number != field->number)
        return malformed(decoder, scan->message.at, "tensor", "it has numbers of two types");
    scan->typed_number = field->number;
    scan->typed_pieces += field->type == CN_WIRE_BYTES ? 1 : 2;
    scan->typed_values += cn_wire_field_values(field, element_size);
    scan->typed = field->bytes;
    return CN_OK;
}

static cn_err tensor_take(struct decoder *decoder, const struct cn_wire_field *field, void *object)
{
    struct tensor_scan *scan = object;

    switch (field->number) {
    case 1:
        return add_dims(decoder, scan, field);
    case 2:
        scan->tensor->type = int32_of(field);
        return CN_OK;
    case CN_ONNX_FLOAT_DATA:
    case CN_ONNX_INT32_DATA:
    case CN_ONNX_INT64_DATA:
        return add_typed(decoder, scan, field);
    case 6:
    case 10:
    case 11:
        scan->other_data = true;
        return CN_OK;
    case 8:
        scan->tensor->name = text_of(field);
        return CN_OK;
    case CN_ONNX_RAW_DATA:
        scan->raw = field->bytes;
        return CN_OK;
    case 14:
        scan->external = field->value == 1;
        return CN_OK;
    default:
        return CN_OK;
    }
}

static const struct rule tensor_rules[] = {
    {1, VARINT | BYTES, false},
    {2, VARINT, true},
    {CN_ONNX_FLOAT_DATA, FIXED32 | BYTES, false},
    {CN_ONNX_INT32_DATA, VARINT | BYTES, false},
    {CN_ONNX_INT64_DATA, VARINT | BYTES, false},
    {8, BYTES, true},
    {CN_ONNX_RAW_DATA, BYTES, true},
    {14, VARINT, true},
};
static const struct kind tensor_kind = KIND("tensor", tensor_rules, tensor_take);

static cn_err count_elements(struct decoder *decoder, struct tensor_scan *scan)
{
    struct cn_onnx_tensor *tensor = scan->tensor;

    // A product that overflows is refused even when a later dimension is 0.
    tensor->count = 1;
    for (uint32_t i = 0; i < tensor->rank; i++) {
        if (cn_size_multiply(tensor->count, tensor->dims[i], &tensor->count))
            return malformed(decoder, scan->message.at, "tensor", "its size overflows");
    }
    return CN_OK;
}

static uint32_t typed_field_of(int32_t type)
{
    if (type == CN_ONNX_FLOAT)
        return CN_ONNX_FLOAT_DATA;
    return type == CN_ONNX_INT64 ? CN_ONNX_INT64_DATA : CN_ONNX_INT32_DATA;
}

// Sets data to the numbers that the scan found and checks how many there are.
static cn_err find_data(struct decoder *decoder, const struct tensor_scan *scan)
{
    struct cn_onnx_tensor *tensor = scan->tensor;
    struct cn_wire data = scan->message;
    size_t element_size = cn_onnx_tensor_element_size(tensor->type);
    bool fits;

    tensor->raw = !scan->typed_number;
    if (tensor->raw) {
        data = scan->raw;
        fits = tensor->count == cn_wire_size(data) / element_size &&
               cn_wire_size(data) % element_size == 0;
    } else {
        fits = scan->typed_number == typed_field_of(tensor->type) && !cn_wire_size(scan->raw) &&
               tensor->count == scan->typed_values;
        if (tensor->type == CN_ONNX_FLOAT && scan->typed_pieces == 1) {
            data = scan->typed;
            tensor->raw = true;
        }
    }
    if (!fits || scan->other_data)
        return malformed(decoder, scan->message.at, "tensor", "its data does not fit its shape");
    if (!tensor->count)
        return CN_OK;
    tensor->data = data.at;
    tensor->size = cn_wire_size(data);
    tensor->file_offset = (uint64_t)(data.at - decoder->onnx->file);
    return CN_OK;
}

static void unsupported_tensor(struct decoder *decoder, const struct cn_onnx_tensor *tensor,
                               bool external)
{
    decoder->unsupported = true;
    if (external)
        cn_diag_add(decoder->diag,
                    "tensor %.*s: its data is in another file; export the model with its data in "
                    "one .onnx file",
                    shown_size(tensor->name), tensor->name.data);
    else
        cn_diag_add(decoder->diag,
                    "tensor %.*s: element type %d is not supported; wanted float32 (1), uint8 (2), "
                    "int32 (6), int64 (7) or bool (9)",
                    shown_size(tensor->name), tensor->name.data, (int)tensor->type);
}

static cn_err decode_tensor(struct decoder *decoder, struct cn_wire message,
                            struct cn_onnx_tensor *tensor)
{
    struct tensor_scan scan = {.tensor = tensor, .message = message};
    cn_err err;

    *tensor = (struct cn_onnx_tensor){0};
    err = walk(decoder, message, &tensor_kind, &scan);
    if (err)
        return err;
    if (scan.external || !cn_onnx_tensor_element_size(tensor->type)) {
        unsupported_tensor(decoder, tensor, scan.external);
        return CN_OK;
    }
    err = count_elements(decoder, &scan);
    return err ? err : find_data(decoder, &scan);
}

// AttributeProto

static cn_err add_floats(struct decoder *decoder, const struct cn_wire_field *field,
                         struct cn_onnx_attribute *attribute)
{
    cn_err err = check_packed(decoder, field, sizeof(float));

    if (err)
        return err;
    if (field->type == CN_WIRE_FIXED32) {
        attribute->floats[attribute->count++] = float_of(field);
        return CN_OK;
    }
    for (const uint8_t *at = field->bytes.at; at < field->bytes.end; at += sizeof(float))
        attribute->floats[attribute->count++] = cn_get_f32(at);
    return CN_OK;
}

static cn_err add_ints(struct decoder *decoder, const struct cn_wire_field *field,
                       struct cn_onnx_attribute *attribute)
{
    struct cn_wire rest = field->bytes;
    uint64_t value;
    cn_err err = check_packed(decoder, field, 0);

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

static cn_err attribute_take(struct decoder *decoder, const struct cn_wire_field *field,
                             void *object)
{
    struct cn_onnx_attribute *attribute = object;

    switch (field->number) {
    case 1:
        attribute->name = text_of(field);
        return CN_OK;
    case 2:
        attribute->f = float_of(field);
        return CN_OK;
    case 3:
        attribute->i = (int64_t)field->value;
        return CN_OK;
    case 4:
        attribute->s = text_of(field);
        return CN_OK;
    case 5:
        return decode_tensor(decoder, field->bytes, &attribute->tensor);
    case 7:
        return add_floats(decoder, field, attribute);
    case 8:
        return add_ints(decoder, field, attribute);
    case 20:
        attribute->type = int32_of(field);
        return CN_OK;
    default: // subgraphs and lists of strings or tensors: the type tells that they are there
        return CN_OK;
    }
}

static const struct rule attribute_rules[] = {
    {1, BYTES, true}, {2, FIXED32, true},          {3, VARINT, true},          {4, BYTES, true},
    {5, BYTES, true}, {7, FIXED32 | BYTES, false}, {8, VARINT | BYTES, false}, {20, VARINT, true},
};
static const struct kind attribute_kind = KIND("attribute", attribute_rules, attribute_take);

static cn_err decode_attribute(struct decoder *decoder, struct cn_wire message,
                               struct cn_onnx_attribute *attribute)
{
    size_t float_count = cn_wire_values(message, 7, sizeof(float));
    size_t int_count = cn_wire_values(message, 8, 0);
    cn_err err;

    if (float_count && int_count)
        return malformed(decoder, message.at, "attribute", "it has both floats and ints");
    err = take_table(decoder, float_count, sizeof(float), &attribute->floats);
    if (!err)
        err = take_table(decoder, int_count, sizeof(int64_t), &attribute->ints);
    if (err)
        return err;
    return walk(decoder, message, &attribute_kind, attribute);
}

// NodeProto

static cn_err node_take(struct decoder *decoder, const struct cn_wire_field *field, void *object)
{
    struct cn_onnx_node *node = object;

    switch (field->number) {
    case 1:
        node->inputs[node->input_count++] = text_of(field);
        return CN_OK;
    case 2:
        node->outputs[node->output_count++] = text_of(field);
        return CN_OK;
    case 3:
        node->name = text_of(field);
        return CN_OK;
    case 4:
        node->op = text_of(field);
        return CN_OK;
    case 5:
        return decode_attribute(decoder, field->bytes, &node->attributes[node->attribute_count++]);
    case 7:
        node->domain = text_of(field);
        return CN_OK;
    default:
        return CN_OK;
    }
}

static const struct rule node_rules[] = {
    {1, BYTES, false}, {2, BYTES, false}, {3, BYTES, true},
    {4, BYTES, true},  {5, BYTES, false}, {7, BYTES, true},
};
static const struct kind node_kind = KIND("node", node_rules, node_take);

static cn_err decode_node(struct decoder *decoder, struct cn_wire message,
                          struct cn_onnx_node *node)
{
    cn_err err;

    err = take_table(decoder, cn_wire_count(message, 1), sizeof(*node->inputs), &node->inputs);
    if (!err)
        err =
            take_table(decoder, cn_wire_count(message, 2), sizeof(*node->outputs), &node->outputs);
    if (!err)
        err = take_table(decoder, cn_wire_count(message, 5), sizeof(*node->attributes),
                         &node->attributes);
    if (err)
        return err;
    return walk(decoder, message, &node_kind, node);
}

// ValueInfoProto: name, and inside type the Tensor with its element type and its shape

static cn_err dim_take(struct decoder *decoder, const struct cn_wire_field *field, void *object)
{
    int64_t *dim = object;

    (void)decoder;
    if (field->number == 1 && (int64_t)field->value > 0)
        *dim = (int64_t)field->value;
    return CN_OK;
}

static const struct rule dim_rules[] = {{1, VARINT, true}, {2, BYTES, true}};
static const struct kind dim_kind = KIND("dimension", dim_rules, dim_take);

static cn_err shape_take(struct decoder *decoder, const struct cn_wire_field *field, void *object)
{
    struct cn_onnx_value *value = object;

    if (field->number != 1)
        return CN_OK;
    if (value->rank == CN_ONNX_RANK_MAX)
        return malformed(decoder, field->bytes.at, "shape", "it has more than 8 dimensions");
    value->dims[value->rank] = -1;
    return walk(decoder, field->bytes, &dim_kind, &value->dims[value->rank++]);
}

static const struct rule shape_rules[] = {{1, BYTES, false}};
static const struct kind shape_kind = KIND("shape", shape_rules, shape_take);

static cn_err tensor_type_take(struct decoder *decoder, const struct cn_wire_field *field,
                               void *object)
{
    struct cn_onnx_value *value = object;

    if (field->number == 1)
        value->type = int32_of(field);
    if (field->number == 2)
        return walk(decoder, field->bytes, &shape_kind, value);
    return CN_OK;
}

static const struct rule tensor_type_rules[] = {{1, VARINT, true}, {2, BYTES, true}};
static const struct kind tensor_type_kind = KIND("type", tensor_type_rules, tensor_type_take);

static cn_err type_take(struct decoder *decoder, const struct cn_wire_field *field, void *object)
{
    return field->number == 1 ? walk(decoder, field->bytes, &tensor_type_kind, object) : CN_OK;
}

static const struct rule type_rules[] = {{1, BYTES, true}};
static const struct kind type_kind = KIND("type", type_rules, type_take);

static cn_err value_take(struct decoder *decoder, const struct cn_wire_field *field, void *object)
{
    struct cn_onnx_value *value = object;

    if (field->number == 1)
        value->name = text_of(field);
    if (field->number == 2)
        return walk(decoder, field->bytes, &type_kind, value);
    return CN_OK;
}

static const struct rule value_rules[] = {{1, BYTES, true}, {2, BYTES, true}};
static const struct kind value_kind = KIND("value", value_rules, value_take);

// GraphProto and ModelProto

static cn_err graph_take(struct decoder *decoder, const struct cn_wire_field *field, void *object)
{
    struct cn_onnx *onnx = object;

    switch (field->number) {
    case 1:
        return decode_node(decoder, field->bytes, &onnx->nodes[onnx->node_count++]);
    case 5:
        return decode_tensor(decoder, field->bytes, &onnx->initializers[onnx->initializer_count++]);
    case 11:
        return walk(decoder, field->bytes, &value_kind, &onnx->inputs[onnx->input_count++]);
    case 12:
        return walk(decoder, field->bytes, &value_kind, &onnx->outputs[onnx->output_count++]);
    case 15:
        cn_diag_add(decoder->diag, "sparse initializers are not supported");
        decoder->unsupported = true;
        return CN_OK;
    default:
        return CN_OK;
    }
}

static const struct rule graph_rules[] = {
    {1, BYTES, false},  {5, BYTES, false},  {11, BYTES, false},
    {12, BYTES, false}, {15, BYTES, false},
};
static const struct kind graph_kind = KIND("graph", graph_rules, graph_take);

static cn_err decode_graph(struct decoder *decoder, struct cn_wire message)
{
    struct cn_onnx *onnx = decoder->onnx;
    cn_err err;

    err = take_table(decoder, cn_wire_count(message, 1), sizeof(*onnx->nodes), &onnx->nodes);
    if (!err)
        err = take_table(decoder, cn_wire_count(message, 5), sizeof(*onnx->initializers),
                         &onnx->initializers);
    if (!err)
        err = take_table(decoder, cn_wire_count(message, 11), sizeof(*onnx->inputs), &onnx->inputs);
    if (!err)
        err =
            take_table(decoder, cn_wire_count(message, 12), sizeof(*onnx->outputs), &onnx->outputs);
    if (!err)
        err =
            take_table(decoder, cn_wire_count(message, 5), sizeof(*onnx->by_name), &onnx->by_name);
    if (err)
        return err;
    return walk(decoder, message, &graph_kind, onnx);
}

struct opset {
    struct cn_text domain;
    int64_t version;
};

static cn_err opset_take(struct decoder *decoder, const struct cn_wire_field *field, void *object)
{
    struct opset *opset = object;

    (void)decoder;
    if (field->number == 1)
        opset->domain = text_of(field);
    if (field->number == 2)
        opset->version = (int64_t)field->value;
    return CN_OK;
}

static const struct rule opset_rules[] = {{1, BYTES, true}, {2, VARINT, true}};
static const struct kind opset_kind = KIND("operator set", opset_rules, opset_take);

static cn_err decode_opset(struct decoder *decoder, struct cn_wire message)
{
    struct opset opset = {0};
    cn_err err = walk(decoder, message, &opset_kind, &opset);

    if (err)
        return err;
    if (opset.domain.size == 0 || cn_text_equal(opset.domain, "ai.onnx"))
        decoder->onnx->opset = opset.version;
    return CN_OK;
}

static cn_err model_take(struct decoder *decoder, const struct cn_wire_field *field, void *object)
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

static const struct rule model_rules[] = {{1, VARINT, true}, {7, BYTES, true}, {8, BYTES, false}};
static const struct kind model_kind = KIND("model", model_rules, model_take);

cn_err cn_onnx_decode(struct cn_onnx *onnx, struct cn_diag *diag)
{
    struct decoder decoder = {.onnx = onnx, .diag = diag};
    struct cn_wire file = {onnx->file, onnx->file + onnx->file_size};
    struct cn_wire graph = {0};
    cn_err err = walk(&decoder, file, &model_kind, &graph);

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
