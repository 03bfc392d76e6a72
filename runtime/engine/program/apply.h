// apply.h - the flat calls that end a step: check, clip and optimizer.
#pragma once

#include <stdbool.h>

#include "runtime/engine/graph/graph.h"

// What is fixed for a run. Numbers that change from step to step are in struct cn_hyper.
struct cn_apply_rule {
    enum cn_op op;           // CN_OP_SGD or CN_OP_ADAM
    struct cn_range numbers; // numbers of op; cn_apply_build fills in the places
    bool clip;
    const struct cn_layout *layout; // has the tensors without weight decay
};

// Builds the calls for every gradient of the graph: a check, clipping, the optimizer for trained
// tensors, CN_OP_STATISTIC for statistics. Neighbours share a call. The order is that of the
// weights, so it follows from the model alone. The caller frees *calls. CN_ENOMEM.
cn_err cn_apply_build(const struct cn_graph *graph, const struct cn_apply_rule *rule,
                      struct cn_call **calls, size_t *count);
