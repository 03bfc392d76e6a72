// cut_private.h - what the cut*.c files share.
#pragma once

#include "runtime/engine/graph/cut.h"

// The nodes that use the memory of an activation, by their origins. A gradient is used by backward
// nodes only, except that the loss node writes the first one.
struct cn_cut_span {
    bool used, gradient;
    uint32_t first, last; // least and greatest origin of a node that uses it
    uint32_t written;     // no gradient: the last forward node that writes it
    uint32_t read_back;   // no gradient: least origin of a backward node that reads it, or
                          // CN_GRAPH_NONE
    uint32_t gates;       // the last recurrent node that reads it as its gates; 0: none
};

// Fills in spans, by root. The span of a value that is no activation has used = false.
void cn_cut_spans(const struct cn_graph *graph, struct cn_cut_span *spans);

// Returns the tensor whose words in the row include this one.
uint32_t cn_cut_tensor_at(const struct cn_layout *layout, size_t word);

// Returns whether the value of a span must be sent where `nodes` forward nodes are before the cut.
static inline bool cn_cut_crosses(const struct cn_cut_span *span, size_t nodes)
{
    return span->used && span->first < nodes && nodes <= span->last;
}
