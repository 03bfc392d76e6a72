// selftest_model.c - writes a small network as an ONNX file (onnx.proto3; protobuf's encoding).
#include <string.h>

#include "runtime/command/selftest.h"
#include "runtime/engine/onnx/onnx.h"

#define LIST_MAX 4

struct writer {
    struct cn_buffer *to;
    cn_err err; // the first error; nothing is written after it
};

static void put_bytes(struct writer *writer, const void *bytes, size_t size)
{
    if (!writer->err)
        writer->err = cn_buffer_append(writer->to, bytes, size);
}

static void put_varint(struct writer *writer, uint64_t value)
{
    do {
        uint8_t byte = (uint8_t)((value & 127) | (value > 127 ? 128 : 0));

        put_bytes(writer, &byte, 1);
        value >>= 7;
    } while (value);
}

static void put_number(struct writer *writer, uint32_t field, uint64_t value)
{
    put_varint(writer, field << 3);
    put_varint(writer, value);
}

static void put_field(struct writer *writer, uint32_t field, const void *bytes, size_t size)
{
    put_varint(writer, (field << 3) | 2);
    put_varint(writer, size);
    put_bytes(writer, bytes, size);
}

static void put_text(struct writer *writer, uint32_t field, const char *text)
{
    put_field(writer, field, text, strlen(text));
}

// A message inside another one. What is written between begin and end becomes a field of the outer
// message.
struct inner {
    struct cn_buffer buffer, *outer;
};

static void begin(struct writer *writer, struct inner *inner)
{
    cn_buffer_init(&inner->buffer, CN_ONNX_FILE_MAX);
    inner->outer = writer->to;
    writer->to = &inner->buffer;
}

static void end(struct writer *writer, struct inner *inner, uint32_t field)
{
    writer->to = inner->outer;
    put_field(writer, field, inner->buffer.data, inner->buffer.size);
    cn_buffer_deinit(&inner->buffer);
}

// Writes GraphProto.input (field 11) or .output (field 12). The first dimension is the batch.
static void put_value(struct writer *writer, uint32_t field, const char *name, const uint64_t *dims,
                      size_t rank)
{
    struct inner value, type, tensor, shape, dim;

    begin(writer, &value);
    put_text(writer, 1, name);
    begin(writer, &type);
    begin(writer, &tensor);
    put_number(writer, 1, 1); // float
    begin(writer, &shape);
    begin(writer, &dim);
    put_text(writer, 2, "batch");
    end(writer, &dim, 1);
    for (size_t i = 0; i < rank; i++) {
        begin(writer, &dim);
        put_number(writer, 1, dims[i]);
        end(writer, &dim, 1);
    }
    end(writer, &shape, 2);
    end(writer, &tensor, 1);
    end(writer, &type, 2);
    end(writer, &value, field);
}

// Writes GraphProto.initializer, with small values of both signs.
static void put_tensor(struct writer *writer, const char *name, const uint64_t *dims, size_t rank)
{
    struct inner tensor, data;
    size_t count = 1;

    begin(writer, &tensor);
    for (size_t i = 0; i < rank; i++) {
        put_number(writer, 1, dims[i]);
        count *= dims[i];
    }
    put_number(writer, 2, 1); // float
    put_text(writer, 8, name);
    begin(writer, &data);
    for (size_t i = 0; i < count; i++) {
        float value = ((float)(i * 2654435761u % 1000) / 1000 - 0.5f) * 0.2f;

        put_bytes(writer, &value, sizeof(value)); // little-endian, like all Cairn runs on
    }
    end(writer, &data, 9);
    end(writer, &tensor, 5);
}

struct attribute {
    const char *name; // NULL ends a list
    uint64_t values[LIST_MAX];
    size_t count; // number of values of a list; 0: one number, not a list
};

static void put_node(struct writer *writer, const char *op, const char *const *inputs,
                     const char *output, const struct attribute *attributes)
{
    struct inner node, attribute;

    begin(writer, &node);
    for (; *inputs; inputs++)
        put_text(writer, 1, *inputs);
    put_text(writer, 2, output);
    put_text(writer, 4, op);
    for (; attributes && attributes->name; attributes++) {
        begin(writer, &attribute);
        put_text(writer, 1, attributes->name);
        if (!attributes->count)
            put_number(writer, 3, attributes->values[0]);
        for (size_t i = 0; i < attributes->count; i++)
            put_number(writer, 8, attributes->values[i]);
        put_number(writer, 20, attributes->count ? 7 : 2); // INTS, INT
        end(writer, &attribute, 5);
    }
    end(writer, &node, 1);
}

#define INPUTS(...) ((const char *const[]){__VA_ARGS__, NULL})
#define DIMS(...) ((const uint64_t[]){__VA_ARGS__})

static void put_graph(struct writer *writer)
{
    static const struct attribute plain[] = {
        {"kernel_shape", {3, 3}, 2}, {"pads", {1, 1, 1, 1}, 4}, {NULL}};
    static const struct attribute halving[] = {
        {"kernel_shape", {3, 3}, 2}, {"pads", {1, 1, 1, 1}, 4}, {"strides", {2, 2}, 2}, {NULL}};
    static const struct attribute transposed[] = {{"transB", {1}, 0}, {NULL}};
    struct inner graph;

    begin(writer, &graph);
    put_node(writer, "Conv", INPUTS("images", "w1", "b1"), "c1", plain);
    put_node(writer, "Relu", INPUTS("c1"), "r1", NULL);
    put_node(writer, "Conv", INPUTS("r1", "w2", "b2"), "c2", halving);
    put_node(writer, "Relu", INPUTS("c2"), "r2", NULL);
    put_node(writer, "GlobalAveragePool", INPUTS("r2"), "p", NULL);
    put_node(writer, "Flatten", INPUTS("p"), "f", NULL);
    put_node(writer, "Gemm", INPUTS("f", "w3", "b3"), "classes", transposed);
    put_text(writer, 2, "selftest");
    put_tensor(writer, "w1", DIMS(16, 3, 3, 3), 4);
    put_tensor(writer, "b1", DIMS(16), 1);
    put_tensor(writer, "w2", DIMS(32, 16, 3, 3), 4);
    put_tensor(writer, "b2", DIMS(32), 1);
    put_tensor(writer, "w3", DIMS(10, 32), 2);
    put_tensor(writer, "b3", DIMS(10), 1);
    put_value(writer, 11, "images", DIMS(3, 32, 32), 3);
    put_value(writer, 12, "classes", DIMS(10), 1);
    end(writer, &graph, 7);
}

cn_err cn_selftest_model(struct cn_buffer *file)
{
    struct writer writer = {.to = file};
    struct inner opset;

    put_number(&writer, 1, 8); // version of the file format
    begin(&writer, &opset);
    put_number(&writer, 2, 17); // version of the operators
    end(&writer, &opset, 8);
    put_graph(&writer);
    return writer.err;
}
