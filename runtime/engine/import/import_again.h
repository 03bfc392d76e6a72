// import_again.h - nodes that compute known values again, for import.c.
//
// Exporters write the same computation of a mask into each layer of a Transformer. A later node
// with the same operation, attributes and inputs as an earlier one gets its result without work.
#pragma once

#include "runtime/engine/import/import.h"

#define CN_IMPORT_AGAIN_MAX 256 // nodes that are remembered

struct cn_import_made {
    const struct cn_onnx_node *node;
    uint32_t in[CN_IMPORT_INPUTS]; // values, as prepared for the node
    size_t in_count;
    uint32_t out;
};

// Zeroed at first.
struct cn_import_again {
    struct cn_import_made *made; // owned
    size_t count;
};

void cn_import_again_deinit(struct cn_import_again *again);

// Sets node->out to a value that shares the memory of an earlier node's result, and *found to true,
// if that node computed the same. Otherwise sets *found to false.
cn_err cn_import_again_find(const struct cn_import_again *again, struct cn_import_node *node,
                            bool *found);

// Remembers a node whose only result is known, and that has a large value. Does nothing for other
// nodes.
cn_err cn_import_again_keep(struct cn_import_again *again, const struct cn_import_node *node);
