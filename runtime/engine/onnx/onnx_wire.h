// onnx_wire.h - reads the fields of a protobuf message in place, and writes field headers.
//
// https://protobuf.dev/programming-guides/encoding/. Groups (wire types 3 and 4) do not occur in
// ONNX and are refused. Nothing is read outside [at, end), whatever the bytes are.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "runtime/base/bytes.h"
#include "runtime/base/error.h"

enum cn_wire_type {
    CN_WIRE_VARINT = 0,
    CN_WIRE_FIXED64 = 1,
    CN_WIRE_BYTES = 2,
    CN_WIRE_FIXED32 = 5,
};

// The part of a message that is still to be read.
struct cn_wire {
    const uint8_t *at, *end;
};

struct cn_wire_field {
    uint32_t number; // 0 at the end of the message
    enum cn_wire_type type;
    uint64_t value;       // the number, of a varint or fixed field
    struct cn_wire bytes; // the content, of CN_WIRE_BYTES
};

// Reads one varint. CN_EFORMAT when it is cut off or longer than 64 bits.
cn_err cn_wire_varint(struct cn_wire *wire, uint64_t *value);

// Reads one field. On CN_EFORMAT wire->at is left at the malformed field.
cn_err cn_wire_next(struct cn_wire *wire, struct cn_wire_field *field);

// Returns the number of bytes left.
size_t cn_wire_size(struct cn_wire wire);

// Returns how often a field occurs, up to the first malformed field.
size_t cn_wire_count(struct cn_wire message, uint32_t number);

// Returns the number of numbers in a field: one, or more in a packed list. element_size is 0 for
// varints.
size_t cn_wire_field_values(const struct cn_wire_field *field, size_t element_size);

// Returns the number of numbers in all occurrences of a repeated field in a message.
size_t cn_wire_values(struct cn_wire message, uint32_t number, size_t element_size);

// Appends the tag and length that stand before a field of size bytes.
cn_err cn_wire_append_header(struct cn_buffer *out, uint32_t number, size_t size);

// Appends a field that is a number (CN_WIRE_VARINT).
cn_err cn_wire_append_number(struct cn_buffer *out, uint32_t number, uint64_t value);

// Returns the bytes that a field of size bytes takes, with tag and length.
size_t cn_wire_field_size(uint32_t number, size_t size);
