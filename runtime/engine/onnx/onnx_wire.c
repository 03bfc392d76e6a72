#include "runtime/engine/onnx/onnx_wire.h"

size_t cn_wire_size(struct cn_wire wire)
{
    return (size_t)(wire.end - wire.at);
}

cn_err cn_wire_varint(struct cn_wire *wire, uint64_t *value)
{
    uint64_t result = 0;

    for (unsigned shift = 0; shift < 64 && wire->at < wire->end; shift += 7) {
        uint8_t byte = *wire->at++;

        if (shift == 63 && byte > 1)
            return CN_EFORMAT;
        result |= (uint64_t)(byte & 0x7f) << shift;
        if (!(byte & 0x80)) {
            *value = result;
            return CN_OK;
        }
    }
    return CN_EFORMAT;
}

static cn_err read_fixed(struct cn_wire *wire, size_t size, uint64_t *value)
{
    if (cn_wire_size(*wire) < size)
        return CN_EFORMAT;
    *value = size == 4 ? cn_get_u32(wire->at) : cn_get_u64(wire->at);
    wire->at += size;
    return CN_OK;
}

static cn_err read_bytes(struct cn_wire *wire, struct cn_wire *bytes)
{
    uint64_t size;
    cn_err err = cn_wire_varint(wire, &size);

    if (err)
        return err;
    if (size > cn_wire_size(*wire))
        return CN_EFORMAT;
    bytes->at = wire->at;
    bytes->end = wire->at + size;
    wire->at += size;
    return CN_OK;
}

static cn_err read_field(struct cn_wire *wire, struct cn_wire_field *field)
{
    uint64_t tag;
    cn_err err = cn_wire_varint(wire, &tag);

    if (err)
        return err;
    // Field numbers have 29 bits; 0 is reserved.
    if (tag >> 32 || tag >> 3 == 0)
        return CN_EFORMAT;
    field->number = (uint32_t)(tag >> 3);
    field->type = (enum cn_wire_type)(tag & 7);
    switch (field->type) {
    case CN_WIRE_VARINT:
        return cn_wire_varint(wire, &field->value);
    case CN_WIRE_FIXED64:
        return read_fixed(wire, 8, &field->value);
    case CN_WIRE_BYTES:
        return read_bytes(wire, &field->bytes);
    case CN_WIRE_FIXED32:
        return read_fixed(wire, 4, &field->value);
    default:
        return CN_EFORMAT;
    }
}

cn_err cn_wire_next(struct cn_wire *wire, struct cn_wire_field *field)
{
    struct cn_wire rest = *wire;
    cn_err err;

    *field = (struct cn_wire_field){0};
    if (rest.at == rest.end)
        return CN_OK;
    err = read_field(&rest, field);
    if (err)
        return err;
    *wire = rest;
    return CN_OK;
}

size_t cn_wire_count(struct cn_wire message, uint32_t number)
{
    struct cn_wire_field field;
    size_t count = 0;

    while (!cn_wire_next(&message, &field) && field.number)
        count += field.number == number;
    return count;
}

size_t cn_wire_field_values(const struct cn_wire_field *field, size_t element_size)
{
    size_t count = 0;

    if (field->type != CN_WIRE_BYTES)
        return 1;
    if (element_size)
        return cn_wire_size(field->bytes) / element_size;
    // The last byte of each varint has its top bit clear.
    for (const uint8_t *at = field->bytes.at; at < field->bytes.end; at++)
        count += *at < 0x80;
    return count;
}

size_t cn_wire_values(struct cn_wire message, uint32_t number, size_t element_size)
{
    struct cn_wire_field field;
    size_t count = 0;

    while (!cn_wire_next(&message, &field) && field.number) {
        if (field.number == number)
            count += cn_wire_field_values(&field, element_size);
    }
    return count;
}

static size_t varint_size(uint64_t value)
{
    size_t size = 1;

    while (value >>= 7)
        size++;
    return size;
}

static cn_err append_varint(struct cn_buffer *out, uint64_t value)
{
    uint8_t bytes[10];
    size_t size = 0;

    do {
        bytes[size] = (uint8_t)((value & 0x7f) | (value > 0x7f ? 0x80 : 0));
        size++;
    } while (value >>= 7);
    return cn_buffer_append(out, bytes, size);
}

cn_err cn_wire_append_header(struct cn_buffer *out, uint32_t number, size_t size)
{
    cn_err err = append_varint(out, (uint64_t)number << 3 | CN_WIRE_BYTES);

    return err ? err : append_varint(out, size);
}

cn_err cn_wire_append_number(struct cn_buffer *out, uint32_t number, uint64_t value)
{
    cn_err err = append_varint(out, (uint64_t)number << 3 | CN_WIRE_VARINT);

    return err ? err : append_varint(out, value);
}

size_t cn_wire_field_size(uint32_t number, size_t size)
{
    return varint_size((uint64_t)number << 3) + varint_size(size) + size;
}
