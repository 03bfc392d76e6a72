// node_graph.h - the graph of a run: stored as it came, used as an ONNX file.
//
// Threading: the owner thread of a node.
#pragma once

#include "runtime/base/bytes.h"
#include "runtime/port/platform.h"
#include "runtime/port/store.h"

#define CN_NODE_GRAPH_MAX (256u << 20) // bytes of a graph without weights

// Both replace the mapping model, and leave it as it was on errors. The weights in it are zeros
// that take no memory.

// From the stored graph, if it is the one with this digest: else CN_ENOTFOUND.
cn_err cn_node_graph_load(struct cn_store *store, const uint8_t digest[CN_DIGEST_SIZE],
                          struct cn_mapping *model);

// From a graph that was fetched, which is then stored. A disk that does not take it is a warning.
cn_err cn_node_graph_take(struct cn_store *store, const uint8_t *graph, size_t size,
                          struct cn_mapping *model);
