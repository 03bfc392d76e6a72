// onnx_edit.h - changes to a file of protobuf messages, kept as a list and made while it is
// written.
//
// An edit takes bytes of the file away and puts others in their place. What is inside a message
// changes its length, which stands before it: a message is opened, its inside is edited, and at its
// close the new length is an edit too. Edits are made in the order of the file.
#pragma once

#include "runtime/base/bytes.h"
#include "runtime/engine/onnx/onnx_wire.h"

struct cn_onnx_edit {
    const uint8_t *at; // in the file
    size_t removed;
    size_t from, size; // what comes instead, in inserted
};

struct cn_onnx_edits {
    struct cn_onnx_edit *list; // owned
    size_t count, capacity;
    struct cn_buffer inserted;
};

void cn_onnx_edits_init(struct cn_onnx_edits *edits);
void cn_onnx_edits_deinit(struct cn_onnx_edits *edits);

// Takes bytes away that start at at, or none, and puts size others there. CN_ENOMEM, or CN_ERANGE
// for more than a file may have.
cn_err cn_onnx_edits_add(struct cn_onnx_edits *edits, const uint8_t *at, size_t removed,
                         const void *bytes, size_t size);

// A field of bytes that starts at start: *opened is for its close. A message in which nothing was
// edited stays as it is.
cn_err cn_onnx_edits_open(struct cn_onnx_edits *edits, const uint8_t *start,
                          const struct cn_wire_field *field, size_t *opened);
cn_err cn_onnx_edits_close(struct cn_onnx_edits *edits, const struct cn_wire_field *field,
                           size_t opened);

// Writes the file's bytes from at to end with the edits among them. *next is the first edit that
// was not made: 0 for the start of the file.
typedef cn_err cn_onnx_write(void *context, const void *piece, size_t size);
cn_err cn_onnx_edits_write(const struct cn_onnx_edits *edits, size_t *next, const uint8_t *at,
                           const uint8_t *end, cn_onnx_write *write, void *context);
