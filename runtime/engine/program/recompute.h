// recompute.h - memory for time: what the backward pass reads is computed again instead of kept.
#pragma once

#include "runtime/engine/graph/graph.h"

enum cn_recompute {
    CN_RECOMPUTE_NONE,
    CN_RECOMPUTE_CHEAP,    // maps, arithmetic, normalization, Dropout, copies
    CN_RECOMPUTE_SEGMENTS, // everything between about sqrt(N) results that are kept
    CN_RECOMPUTE_COUNT,
};

// In words, for a person: "cheap activations are computed again".
const char *cn_recompute_text(enum cn_recompute level);

// Changes a graph that has its backward pass. The gradients stay the same to the bit: the same
// calls see the same numbers.
cn_err cn_recompute(struct cn_graph *graph, enum cn_recompute level);
