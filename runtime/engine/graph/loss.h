// loss.h - adds a job's loss to a graph.
#pragma once

#include "runtime/base/diag.h"
#include "runtime/engine/graph/graph.h"
#include "runtime/profile/job.h"

// Adds the labels and the loss node, whose gradient output starts the backward pass. CN_ENOTSUP
// with a line in diag when the loss or its rules do not fit the model's output.
cn_err cn_loss_add(struct cn_graph *graph, enum cn_loss loss, const struct cn_rules *rules,
                   struct cn_diag *diag);
