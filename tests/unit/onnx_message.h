// onnx_message.h - writes small protobuf messages, so that a test can make any ONNX file.
#pragma once

#include <assert.h>
#include <stdint.h>
#include <string.h>

#ifndef MESSAGE_SIZE
#define MESSAGE_SIZE 8192
#endif

struct message {
    uint8_t bytes[MESSAGE_SIZE];
    size_t size;
};

static inline void put_varint(struct message *message, uint64_t value)
{
    assert(message->size + 10 <= sizeof(message->bytes));
    while (value >= 0x80) {
        message->bytes[message->size++] = (uint8_t)(value | 0x80);
        value >>= 7;
    }
    message->bytes[message->size++] = (uint8_t)value;
}

static inline void put_int(struct message *message, uint32_t number, int64_t value)
{
    put_varint(message, (uint64_t)number << 3);
    put_varint(message, (uint64_t)value);
}

static inline void put_float(struct message *message, uint32_t number, float value)
{
    put_varint(message, (uint64_t)number << 3 | 5);
    assert(message->size + 4 <= sizeof(message->bytes));
    memcpy(message->bytes + message->size, &value, 4);
    message->size += 4;
}

static inline void put_bytes(struct message *message, uint32_t number, const void *data,
                             size_t size)
{
    put_varint(message, (uint64_t)number << 3 | 2);
    put_varint(message, size);
    assert(message->size + size <= sizeof(message->bytes));
    memcpy(message->bytes + message->size, data, size);
    message->size += size;
}

static inline void put_text(struct message *message, uint32_t number, const char *text)
{
    put_bytes(message, number, text, strlen(text));
}

static inline void put_message(struct message *message, uint32_t number, const struct message *part)
{
    put_bytes(message, number, part->bytes, part->size);
}

// A tensor with name, type and one dimension; its data is still to be added.
static inline struct message tensor_message(const char *name, int type, int64_t count)
{
    struct message tensor = {.size = 0};

    put_int(&tensor, 1, count);
    put_int(&tensor, 2, type);
    put_text(&tensor, 8, name);
    return tensor;
}

// A model of that graph, operator set 17.
static inline struct message model_message(const struct message *graph)
{
    struct message model = {.size = 0};
    struct message opset = {.size = 0};

    put_int(&model, 1, 8);
    put_message(&model, 7, graph);
    put_int(&opset, 2, 17);
    put_message(&model, 8, &opset);
    return model;
}
