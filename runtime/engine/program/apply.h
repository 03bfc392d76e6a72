// apply.h - the flat calls that end a step: what each tensor's gradient does to it.
#pragma once

#include <stdbool.h>

#include "runtime/engine/graph/graph.h"

// Everything here is fixed for a run; what changes from step to step is in struct cn_hyper.
struct cn_apply_rule {
    enum cn_op op;           // CN_OP_SGD or CN_OP_ADAM
    struct cn_range numbers; // those of op: the places are filled in
    bool clip;
};

// The calls for every gradient of the graph: a check, clipping, the optimizer for what is trained,
// CN_OP_STATISTIC for what is not. Neighbours share a call; the order is that of the weights, so it
// follows from the model alone. calls is allocated.
cn_err cn_apply_build(const struct cn_graph *graph, const struct cn_apply_rule *rule,
                      struct cn_call **calls, size_t *count);
