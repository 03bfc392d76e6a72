#include "runtime/engine/onnx/onnx_widen.h"

#include <float.h>
#include <math.h>
#include <string.h>

#include "runtime/engine/onnx/onnx.h"
#include "runtime/engine/onnx/onnx_tensor.h"
#include "runtime/engine/onnx/onnx_wire.h"

enum { // TensorProto.DataType
    FLOAT16 = 10,
    DOUBLE = 11,
    BFLOAT16 = 16,
};

// Fields of TensorProto, AttributeProto and TypeProto.Tensor.
enum {
    TENSOR_TYPE = 2,
    TENSOR_DOUBLE_DATA = 10,
    ATTRIBUTE_NAME = 1,
    ATTRIBUTE_INT = 3,
    ELEMENT_TYPE = 1,
};

enum kind {
    COPIED, // a field that has nothing to widen
    MODEL,
    GRAPH,
    NODE,
    ATTRIBUTE,
    TENSOR,
    VALUE_INFO,
    TYPE,
    TYPE_TENSOR,
};

// The fields of each kind of message that may have something to widen in them.
static const struct inside {
    enum kind kind;
    uint32_t number;
    enum kind field;
} insides[] = {
    {MODEL, 7, GRAPH},       {GRAPH, 1, NODE},        {GRAPH, 5, TENSOR},   {GRAPH, 11, VALUE_INFO},
    {GRAPH, 12, VALUE_INFO}, {GRAPH, 13, VALUE_INFO}, {NODE, 5, ATTRIBUTE}, {ATTRIBUTE, 5, TENSOR},
    {VALUE_INFO, 2, TYPE},   {TYPE, 1, TYPE_TENSOR},
};

// Writes to out, or only counts the bytes while out is NULL.
struct widener {
    struct cn_buffer *out;
    size_t size; // bytes that were written or counted
    bool found;  // the model has something to widen
};

size_t cn_onnx_widen_element_size(int32_t type)
{
    if (type == DOUBLE)
        return 8;
    return type == FLOAT16 || type == BFLOAT16 ? 2 : 0;
}

static cn_err put(struct widener *widener, const void *bytes, size_t size)
{
    widener->size += size;
    return widener->out ? cn_buffer_append(widener->out, bytes, size) : CN_OK;
}

static cn_err put_header(struct widener *widener, uint32_t number, size_t size)
{
    widener->size += cn_wire_field_size(number, size) - size;
    return widener->out ? cn_wire_append_header(widener->out, number, size) : CN_OK;
}

// Writes a field whose tag and value are one byte each.
static cn_err put_small(struct widener *widener, uint32_t number, uint8_t value)
{
    const uint8_t bytes[] = {(uint8_t)(number << 3 | CN_WIRE_VARINT), value};

    return put(widener, bytes, sizeof(bytes));
}

// IEEE 754 binary16: sign, 5 bits of exponent, 10 of fraction.
static float from_half(uint16_t half)
{
    int exponent = half >> 10 & 31, fraction = half & 1023;
    float value;

    if (exponent == 31)
        value = fraction ? NAN : INFINITY;
    else
        value =
            ldexpf((float)(exponent ? fraction + 1024 : fraction), (exponent ? exponent : 1) - 25);
    return half >> 15 ? -value : value;
}

static float from_bits(int32_t type, uint64_t bits)
{
    uint32_t word = (uint32_t)bits << 16;
    double number;
    float value;

    if (type == FLOAT16)
        return from_half((uint16_t)bits);
    if (type == BFLOAT16) {
        memcpy(&value, &word, sizeof(value));
        return value;
    }
    memcpy(&number, &bits, sizeof(number));
    return fabs(number) > (double)FLT_MAX ? copysignf(INFINITY, (float)(number > 0) - 0.5f)
                                          : (float)number;
}

// Floats that are collected before they are written to the file.
struct floats {
    struct widener *widener;
    int32_t type;
    float values[256];
    size_t count, flushed;
};

static cn_err flush(struct floats *floats)
{
    size_t size = floats->count * sizeof(float);

    floats->flushed += floats->count;
    floats->count = 0;
    return put(floats->widener, floats->values, size);
}

static cn_err add(struct floats *floats, uint64_t bits)
{
    floats->values[floats->count++] = from_bits(floats->type, bits);
    return floats->count == sizeof(floats->values) / sizeof(float) ? flush(floats) : CN_OK;
}

static cn_err add_raw(struct floats *floats, struct cn_wire raw, size_t element_size)
{
    cn_err err = CN_OK;

    for (; !err && cn_wire_size(raw) >= element_size; raw.at += element_size)
        err = add(floats, element_size == 2 ? cn_get_u16(raw.at) : cn_get_u64(raw.at));
    return err;
}

// float16 and bfloat16 are varints in int32_data, float64 has a list of its own.
static uint32_t typed_field_of(int32_t type)
{
    return type == DOUBLE ? TENSOR_DOUBLE_DATA : CN_ONNX_INT32_DATA;
}

static size_t typed_size(int32_t type)
{
    return type == DOUBLE ? 8 : 0;
}

static cn_err add_typed(struct floats *floats, const struct cn_wire_field *field)
{
    struct cn_wire rest = field->bytes;
    uint64_t bits;
    cn_err err = CN_OK;

    if (field->type != CN_WIRE_BYTES)
        return add(floats, field->value);
    if (floats->type == DOUBLE)
        return add_raw(floats, rest, sizeof(double));
    while (!err && !cn_wire_varint(&rest, &bits))
        err = add(floats, bits);
    return err;
}

static size_t count_elements(struct cn_wire tensor, int32_t type)
{
    struct cn_wire_field field;
    size_t count = cn_wire_values(tensor, typed_field_of(type), typed_size(type));

    while (!cn_wire_next(&tensor, &field) && field.number)
        if (field.number == CN_ONNX_RAW_DATA && field.type == CN_WIRE_BYTES)
            count += cn_wire_field_values(&field, cn_onnx_widen_element_size(type));
    return count;
}

// Writes the numbers as raw data in float32.
static cn_err put_numbers(struct widener *widener, struct cn_wire tensor, int32_t type)
{
    struct floats floats = {.widener = widener, .type = type};
    size_t count = count_elements(tensor, type), size = count * sizeof(float);
    struct cn_wire_field field;
    cn_err err = put_header(widener, CN_ONNX_RAW_DATA, size);

    if (!widener->out) {
        widener->size += size;
        return err;
    }
    while (!err && !cn_wire_next(&tensor, &field) && field.number)
        if (field.number == CN_ONNX_RAW_DATA && field.type == CN_WIRE_BYTES)
            err = add_raw(&floats, field.bytes, cn_onnx_widen_element_size(type));
        else if (field.number == typed_field_of(type))
            err = add_typed(&floats, &field);
    if (!err)
        err = flush(&floats);
    return err || floats.flushed == count ? err : CN_EFORMAT;
}

static int32_t number_in(struct cn_wire message, uint32_t number)
{
    struct cn_wire_field field;

    while (!cn_wire_next(&message, &field) && field.number)
        if (field.number == number && field.type == CN_WIRE_VARINT)
            return field.value <= INT32_MAX ? (int32_t)field.value : 0;
    return 0;
}

static cn_err widen_tensor(struct widener *widener, struct cn_wire tensor)
{
    int32_t type = number_in(tensor, TENSOR_TYPE);
    bool found = cn_onnx_widen_element_size(type) != 0;
    struct cn_wire rest = tensor;
    struct cn_wire_field field;
    cn_err err = CN_OK;

    widener->found = widener->found || found;
    if (!found)
        return put(widener, tensor.at, cn_wire_size(tensor));
    for (const uint8_t *start = rest.at; !err; start = rest.at) {
        err = cn_wire_next(&rest, &field);
        if (err || !field.number)
            break;
        if (field.number == TENSOR_TYPE)
            err = put_small(widener, TENSOR_TYPE, CN_ONNX_FLOAT);
        else if (field.number != CN_ONNX_RAW_DATA && field.number != typed_field_of(type))
            err = put(widener, start, (size_t)(rest.at - start));
    }
    return err ? err : put_numbers(widener, tensor, type);
}

// Returns whether an attribute is the type that a Cast makes, or that a random number has.
static bool is_type_attribute(struct cn_wire attribute)
{
    struct cn_wire_field field;

    while (!cn_wire_next(&attribute, &field) && field.number)
        if (field.number == ATTRIBUTE_NAME && field.type == CN_WIRE_BYTES) {
            struct cn_text name = {(const char *)field.bytes.at, cn_wire_size(field.bytes)};

            return cn_text_equal(name, "to") || cn_text_equal(name, "dtype");
        }
    return false;
}

static enum kind kind_of(enum kind kind, uint32_t number)
{
    for (size_t i = 0; i < sizeof(insides) / sizeof(insides[0]); i++)
        if (insides[i].kind == kind && insides[i].number == number)
            return insides[i].field;
    return COPIED;
}

static cn_err widen(struct widener *widener, enum kind kind, struct cn_wire message);

static cn_err widen_field(struct widener *widener, enum kind kind,
                          const struct cn_wire_field *field, struct cn_wire all, bool is_type)
{
    enum kind inside = kind_of(kind, field->number);
    struct widener counted = {.out = NULL};
    cn_err err;

    if (is_type && field->type == CN_WIRE_VARINT && field->value <= INT32_MAX &&
        cn_onnx_widen_element_size((int32_t)field->value)) {
        widener->found = true;
        return put_small(widener, field->number, CN_ONNX_FLOAT);
    }
    if (inside == COPIED || field->type != CN_WIRE_BYTES)
        return put(widener, all.at, cn_wire_size(all));
    err = widen(&counted, inside, field->bytes);
    if (err)
        return err;
    widener->found = widener->found || counted.found;
    if (!counted.found)
        return put(widener, all.at, cn_wire_size(all));
    err = put_header(widener, field->number, counted.size);
    if (!widener->out) {
        widener->size += counted.size;
        return err;
    }
    return err ? err : widen(widener, inside, field->bytes);
}

// Writes a message with everything in it widened. Returns CN_EFORMAT for malformed bytes.
static cn_err widen(struct widener *widener, enum kind kind, struct cn_wire message)
{
    struct cn_wire rest = message;
    struct cn_wire_field field;
    bool is_cast = kind == ATTRIBUTE && is_type_attribute(message);
    cn_err err = CN_OK;

    if (kind == TENSOR)
        return widen_tensor(widener, message);
    for (const uint8_t *start = rest.at; !err; start = rest.at) {
        err = cn_wire_next(&rest, &field);
        if (err || !field.number)
            break;
        err = widen_field(widener, kind, &field, (struct cn_wire){start, rest.at},
                          (is_cast && field.number == ATTRIBUTE_INT) ||
                              (kind == TYPE_TENSOR && field.number == ELEMENT_TYPE));
    }
    return err;
}

cn_err cn_onnx_widen(const uint8_t *file, size_t size, struct cn_buffer *out)
{
    const struct cn_wire model = {file, file + size};
    struct widener widener = {.out = NULL};
    cn_err err = widen(&widener, MODEL, model);

    if (err || !widener.found)
        return CN_OK;
    widener.out = out;
    err = widen(&widener, MODEL, model);
    if (err == CN_EFORMAT) {
        cn_buffer_deinit(out);
        return CN_OK;
    }
    return err;
}
