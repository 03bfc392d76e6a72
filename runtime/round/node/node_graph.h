// node_graph.h - the graph of a run: stored as it was received, used as an ONNX file.
//
// Threading: the owner thread of a node.
#pragma once

#include "runtime/base/bytes.h"
#include "runtime/port/platform.h"
#include "runtime/port/store.h"

#define CN_NODE_GRAPH_MAX (256u << 20) // largest graph without weights, in bytes

// Both functions replace the mapping model; on an error they leave it unchanged. The weights in
// model are zeros that take no memory.

// Makes model from the stored graph. Returns CN_ENOTFOUND if the store has no graph with this
// digest.
cn_err cn_node_graph_load(struct cn_store *store, const uint8_t digest[CN_DIGEST_SIZE],
                          struct cn_mapping *model);

// Makes model from a graph that was fetched, and stores the graph. Logs a warning if storing fails.
cn_err cn_node_graph_take(struct cn_store *store, const uint8_t *graph, size_t size,
                          struct cn_mapping *model);
