// onnx_names.h - what the names of a model stand for where a node stands.
//
// Names that a branch defines are seen in it and in the branches inside it, and nowhere else: two
// branches may define the same ones (ONNX, docs/IR.md, "Graphs"). So a reader of nodes notes how
// many names there are before a branch, and forgets the others behind it.
#pragma once

#include "runtime/engine/onnx/onnx.h"

struct cn_onnx_name {
    struct cn_text text;
    uint32_t value;
};

struct cn_onnx_names {
    struct cn_onnx_name *slots; // owned; open addressing
    size_t *order;              // owned; the slots as they were taken
    size_t mask, count;
};

// No names yet; at most room can be added. CN_ENOMEM.
cn_err cn_onnx_names_init(size_t room, struct cn_onnx_names *names);
void cn_onnx_names_deinit(struct cn_onnx_names *names);

// False when the name is taken.
bool cn_onnx_names_add(struct cn_onnx_names *names, struct cn_text text, uint32_t value);
bool cn_onnx_names_find(const struct cn_onnx_names *names, struct cn_text text, uint32_t *value);

// Forgets all but the first count names.
void cn_onnx_names_forget(struct cn_onnx_names *names, size_t count);
