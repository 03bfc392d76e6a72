// message_private.h - messages as tables, shared by message.c and message_codec.c.
#pragma once

#include "transport/message/message.h"

#define CN_MESSAGE_ANY_ORDER 1 // as min of RANGES: ranges in any order, touching or repeated

// How a field of a struct is encoded. A table describes a message, with one row for each key. The
// rows are in the order of the keys, which makes the encoding deterministic (RFC 8949, 4.2.1).
enum cn_message_kind {
    U32, // uint32_t or an enum
    U64,
    BOOL,
    F64,
    NAME,
    NAME_OR_EMPTY,
    TEXT, // max: size of the array
    // As TEXT, left out when empty.
    TEXT_OR_NONE,
    BYTES,       // max: size of the array
    PAIR,        // struct cn_version_range as [min, max]
    MAP,         // struct described by schema
    RULES,       // as MAP, but left out when cn_message_is_plain
    U64_OR_ZERO, // uint64_t, left out when it is 0
    // An array of struct cn_chunk_range as [first, count, first, count...]; its length is at
    // count_offset.
    RANGES,
    // An array of struct cn_member_sign as [id, seconds, id, seconds...] in any order, left out
    // when empty; its length is at count_offset.
    SIGNS,
};

struct cn_message_field {
    uint8_t key;
    enum cn_message_kind kind;
    size_t offset;                          // of the field in its struct
    uint64_t min, max;                      // limits of a number; otherwise as the kind says
    double low, high;                       // limits of F64
    const struct cn_message_schema *schema; // of MAP and RULES
    size_t count_offset;                    // of RANGES and SIGNS
};

struct cn_message_schema {
    const struct cn_message_field *fields;
    size_t count;
};

// Encodes object. bytes has room for CN_MESSAGE_MAX. Returns CN_ERANGE when the message is longer.
cn_err cn_message_put(const struct cn_message_schema *schema, const void *object, uint8_t *bytes,
                      size_t *size);

// Returns whether object encodes like a struct of zeros, so that RULES leaves it out.
bool cn_message_is_plain(const struct cn_message_schema *schema, const void *object);

// Decodes any bytes into object. Returns CN_EFORMAT as message.h says; object is zero then.
cn_err cn_message_get(const struct cn_message_schema *schema, const uint8_t *bytes, size_t size,
                      void *object, size_t object_size);
