// recompute.h - trades time for memory: computes activations again in the backward pass instead of
// keeping them.
#pragma once

#include "runtime/engine/graph/graph.h"

enum cn_recompute {
    CN_RECOMPUTE_NONE,
    CN_RECOMPUTE_CHEAP,    // repeats maps, arithmetic, normalization, Dropout and copies
    CN_RECOMPUTE_SEGMENTS, // repeats everything except about sqrt(N) results that are kept
    CN_RECOMPUTE_COUNT,
};

// Returns the level in words, for a person: "cheap activations are computed again".
const char *cn_recompute_text(enum cn_recompute level);

// Adds repeated forward nodes to the backward pass of a graph. The gradients stay the same to the
// bit, because the same calls see the same numbers. The origins of backward nodes are lost, so a
// graph must be cut before. CN_ENOMEM, or CN_ERANGE (graph.h).
cn_err cn_recompute(struct cn_graph *graph, enum cn_recompute level);
