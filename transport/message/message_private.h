// message_private.h - messages as tables; what message.c and message_codec.c share.
#pragma once

#include "transport/message/message.h"

#define CN_MESSAGE_ANY_ORDER 1 // min of RANGES that may come in any order, touch and repeat

// A message is described by a table: one row for each key, and what the struct's field is. The
// order of the rows is that of the keys, which makes the encoding deterministic (RFC 8949, 4.2.1).
enum cn_message_kind {
    U32, // enums too
    U64,
    BOOL,
    F64,
    NAME,
    NAME_OR_EMPTY,
    TEXT,         // max: size of the array
    TEXT_OR_NONE, // the same; left out when it is ""
    BYTES,        // max: size of the array
    PAIR,         // struct cn_version_range as [min, max]
    MAP,          // of schema
    RULES,        // the same; left out when it says what a struct of zeros says
    U64_OR_ZERO,  // left out when it is 0
    RANGES,       // struct cn_chunk_range[] as [first, count, first, count...]; the count is at
                  // count_offset
    SIGNS, // struct cn_member_sign[] as [id, seconds, id, seconds...], in any order; left out
           // when there are none; the count is at count_offset
};

struct cn_message_field {
    uint8_t key;
    enum cn_message_kind kind;
    size_t offset;
    uint64_t min, max;
    double low, high;
    const struct cn_message_schema *schema;
    size_t count_offset;
};

struct cn_message_schema {
    const struct cn_message_field *fields;
    size_t count;
};

// bytes has room for CN_MESSAGE_MAX. CN_ERANGE when the message is longer.
cn_err cn_message_put(const struct cn_message_schema *schema, const void *object, uint8_t *bytes,
                      size_t *size);

// What RULES leave out.
bool cn_message_is_plain(const struct cn_message_schema *schema, const void *object);

// Total. object is zero after an error.
cn_err cn_message_get(const struct cn_message_schema *schema, const uint8_t *bytes, size_t size,
                      void *object, size_t object_size);
