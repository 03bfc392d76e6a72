// onnx_walk.h - walks over the fields of a message, and checks them against a table of rules.
//
// A message type is a struct cn_onnx_kind: the fields that it may have, their wire types, the
// fields that may occur only once, and a function that takes each field. Malformed bytes end the
// walk with CN_EFORMAT and a line in diag that names the byte.
#pragma once

#include "runtime/engine/onnx/onnx.h"
#include "runtime/engine/onnx/onnx_wire.h"

// Wire types that a field may have, as a set of bits.
#define CN_ONNX_VARINT (1u << CN_WIRE_VARINT)
#define CN_ONNX_BYTES (1u << CN_WIRE_BYTES)
#define CN_ONNX_FIXED32 (1u << CN_WIRE_FIXED32)

struct cn_onnx_decoder {
    struct cn_onnx *onnx;
    struct cn_diag *diag;
    size_t tables;    // bytes allocated for tables so far
    int branches;     // depth of the branches around the node
    bool unsupported; // something well-formed was found that is not supported
};

// A rule for one field of a message. Fields without a rule are not checked.
struct cn_onnx_rule {
    uint32_t number;
    unsigned types;
    bool once; // protobuf would merge repetitions; no exporter writes them
};

struct cn_onnx_kind {
    const char *name;
    const struct cn_onnx_rule *rules;
    size_t rule_count; // at most 32
    cn_err (*take)(struct cn_onnx_decoder *decoder, const struct cn_wire_field *field,
                   void *object);
};

#define CN_ONNX_KIND(name, rules, take)                                                            \
    {                                                                                              \
        name, rules, sizeof(rules) / sizeof((rules)[0]), take                                      \
    }

// Walks over message, and calls kind->take with object for each field.
cn_err cn_onnx_walk(struct cn_onnx_decoder *decoder, struct cn_wire message,
                    const struct cn_onnx_kind *kind, void *object);

// Adds a line about the byte at `at` to diag, and returns CN_EFORMAT.
cn_err cn_onnx_walk_malformed(struct cn_onnx_decoder *decoder, const uint8_t *at, const char *kind,
                              const char *problem);

// Sets *table, a pointer of any type, to a zeroed table of count elements of size bytes, or NULL
// when count is 0. CN_ENOMEM; CN_ERANGE with a line in diag when all tables together grow too
// large.
cn_err cn_onnx_walk_table(struct cn_onnx_decoder *decoder, size_t count, size_t size, void *table);

// Checks the numbers of a packed list. element_size is 0 for varints.
cn_err cn_onnx_walk_packed(struct cn_onnx_decoder *decoder, const struct cn_wire_field *field,
                           size_t element_size);

// Returns the bytes of a field as a text.
struct cn_text cn_onnx_walk_text(const struct cn_wire_field *field);

// Reads a text that goes into messages and JSON. CN_EFORMAT unless it is printable UTF-8.
cn_err cn_onnx_walk_name(struct cn_onnx_decoder *decoder, const struct cn_wire_field *field,
                         struct cn_text *name);

// Return the number of a varint field or of a fixed 32-bit field.
int32_t cn_onnx_walk_int32(const struct cn_wire_field *field);
float cn_onnx_walk_float(const struct cn_wire_field *field);
