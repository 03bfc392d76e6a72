// onnx_names.h - a table from names to values, with the scopes of branches.
//
// Names that a branch defines are visible in it and in the branches inside it, and nowhere else:
// two branches may define the same ones (ONNX, docs/IR.md, "Graphs"). So a reader of nodes keeps
// names->count before a branch, and forgets all later names after it.
#pragma once

#include "runtime/engine/onnx/onnx.h"

struct cn_onnx_name {
    struct cn_text text;
    uint32_t value;
};

struct cn_onnx_names {
    struct cn_onnx_name *slots; // owned; hash table with open addressing
    size_t *order;              // owned; slots in the order in which names were added
    size_t mask, count;         // number of slots - 1; number of names
};

// Allocates an empty table; at most room names can be added. CN_ENOMEM.
cn_err cn_onnx_names_init(size_t room, struct cn_onnx_names *names);
void cn_onnx_names_deinit(struct cn_onnx_names *names);

// Adds a name with its value. Returns false when the name is already there.
bool cn_onnx_names_add(struct cn_onnx_names *names, struct cn_text text, uint32_t value);

// Finds the value of a name. Returns false when the name is not there.
bool cn_onnx_names_find(const struct cn_onnx_names *names, struct cn_text text, uint32_t *value);

// Forgets all but the first count names.
void cn_onnx_names_forget(struct cn_onnx_names *names, size_t count);
