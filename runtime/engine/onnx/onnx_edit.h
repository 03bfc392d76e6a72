// onnx_edit.h - a list of edits to a file of protobuf messages, applied while the file is written.
//
// An edit removes bytes of the file and inserts others in their place. An edit inside a message
// changes the message's length, which stands before it. So a message is opened, its inside is
// edited, and its close adds an edit of the length. Edits are added in the order of the file.
#pragma once

#include "runtime/base/bytes.h"
#include "runtime/engine/onnx/onnx_wire.h"

struct cn_onnx_edit {
    const uint8_t *at; // place in the file
    size_t removed;    // bytes removed at that place
    size_t from, size; // inserted instead: size bytes of cn_onnx_edits.inserted, beginning at from
};

struct cn_onnx_edits {
    struct cn_onnx_edit *list; // owned
    size_t count, capacity;
    struct cn_buffer inserted;
};

void cn_onnx_edits_init(struct cn_onnx_edits *edits);
void cn_onnx_edits_deinit(struct cn_onnx_edits *edits);

// Adds an edit that replaces removed bytes at `at` by a copy of size others; either may be 0.
// CN_ENOMEM, or CN_ERANGE when all edits together insert more than CN_ONNX_FILE_MAX bytes.
cn_err cn_onnx_edits_add(struct cn_onnx_edits *edits, const uint8_t *at, size_t removed,
                         const void *bytes, size_t size);

// Open and close a message: field, whose tag starts at start. Call open before the edits inside it,
// and close after them, with the *opened of open. A message in which nothing was edited stays as it
// is.
cn_err cn_onnx_edits_open(struct cn_onnx_edits *edits, const uint8_t *start,
                          const struct cn_wire_field *field, size_t *opened);
cn_err cn_onnx_edits_close(struct cn_onnx_edits *edits, const struct cn_wire_field *field,
                           size_t opened);

// Writes the file's bytes from at to end, with the edits in that range applied. *next is the first
// edit that was not applied yet, 0 at the start of the file; it is advanced.
typedef cn_err cn_onnx_write(void *context, const void *piece, size_t size);
cn_err cn_onnx_edits_write(const struct cn_onnx_edits *edits, size_t *next, const uint8_t *at,
                           const uint8_t *end, cn_onnx_write *write, void *context);
