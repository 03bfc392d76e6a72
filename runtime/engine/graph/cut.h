// cut.h - cuts a training graph into parts, so that several members can each hold a part of a
// model.
//
// A cut divides the list of forward nodes at some places. A backward node belongs to the part of
// its origin (struct cn_node). So sums of gradients that pass a cut are made in the order of the
// whole graph, and each part is an ordinary graph with an ordinary layout. A value that is read
// several parts later is passed on by the parts between. Functions return CN_ENOMEM too. Threading:
// none.
#pragma once

#include "runtime/base/diag.h"
#include "runtime/engine/graph/graph.h"

#define CN_CUT_PARTS_MAX 16

struct cn_cut {
    uint32_t parts;                      // 1 is the whole graph
    size_t places[CN_CUT_PARTS_MAX - 1]; // forward nodes before each part except the first
};

// A place where a graph may be cut, and what one sample sends across it.
struct cn_cut_place {
    size_t nodes;          // forward nodes before the place
    size_t values;         // values that the forward pass sends on
    size_t words;          // words of these values
    size_t gradient_words; // words that the backward pass sends back
    const char *name; // value that is complete at the place, borrowed from the file; NULL: none
    size_t name_size; // bytes of name
};

// Lists all places where a graph with its backward pass may be cut, in order. The caller frees
// *places.
cn_err cn_cut_places(const struct cn_graph *graph, struct cn_cut_place **places, size_t *count);

// Reads a list of names, separated by spaces, one for each part except the first. A part begins at
// the first node that reads a tensor of this name, in which * is any text. If no tensor fits, the
// name is that of a value, and the part begins where the value is complete. CN_EINVAL with a line
// in diag for a name that is neither, for names out of order, and for what cn_cut_check refuses.
cn_err cn_cut_read(const struct cn_graph *graph, const struct cn_layout *layout, const char *names,
                   struct cn_diag *diag, struct cn_cut *cut);

// Checks a cut. CN_EINVAL with a line in diag for each part without nodes and each place where the
// graph may not be cut: inside of a recurrent layer, or across a value that is the same for all
// samples.
cn_err cn_cut_check(const struct cn_graph *graph, const struct cn_cut *cut, struct cn_diag *diag);

// Returns the part of a forward node, or of the backward nodes that have it as their origin.
uint32_t cn_cut_part_of(const struct cn_cut *cut, size_t node);

// Fills in, by tensor of the layout, the parts that hold it: bit p for part p. CN_ENOMEM.
cn_err cn_cut_holders(const struct cn_graph *graph, const struct cn_layout *layout,
                      const struct cn_cut *cut, uint32_t *holders);

// Fills in, by input of the model, the parts that read it: bit p for part p. The labels of a loss
// that Cairn adds are not an input; the last part reads them.
void cn_cut_inputs(const struct cn_graph *graph, const struct cn_cut *cut,
                   uint32_t readers[CN_GRAPH_INPUT_MAX]);

// What the parts before a place hold. A tensor counts for the first node that reads it.
struct cn_cut_sums {
    size_t parameters; // words of tensors
    size_t trained;    // words of gradients
    size_t kept;       // words of a sample that a forward pass makes and the backward pass reads
};

// Fills in what lies before each place, by number of forward nodes: the last entry, at the number
// of all forward nodes, is the whole graph's. The caller frees *sums.
cn_err cn_cut_sum(const struct cn_graph *graph, const struct cn_layout *layout,
                  struct cn_cut_sums **sums);

// What a part exchanges with its neighbours.
enum cn_boundary {
    CN_BOUNDARY_INPUTS,           // activations, received from the part before
    CN_BOUNDARY_OUTPUTS,          // activations, sent to the part behind
    CN_BOUNDARY_OUTPUT_GRADIENTS, // received from the part behind
    CN_BOUNDARY_INPUT_GRADIENTS,  // sent to the part before
    CN_BOUNDARY_COUNT,
};

// Two neighbours list the values of a message in the same order. A value may be in several messages
// of a part: in each it is sent as the part's nodes left it.
struct cn_cut_message {
    uint32_t *values; // owned; CN_VALUE_BOUNDARY of the part's graph
    size_t count;     // number of values
    size_t words;     // words of one sample
};

struct cn_cut_part {
    // Nodes of the part, with all inputs and facts of the model. The output and the labels are
    // CN_GRAPH_NONE where the part does not use them. Only the last part has a loss node.
    struct cn_graph graph;
    struct cn_layout layout; // tensors of the part, packed, in the order of the whole layout
    size_t *tensors;         // owned; by tensor of layout: its index in the whole layout
    uint32_t *holders;       // owned; by tensor of layout: parts that hold it, bit p for part p
    struct cn_cut_message messages[CN_BOUNDARY_COUNT];
};

// Makes one part of a graph that has its backward pass, for a cut that cn_cut_check accepts. A
// tensor that several parts read is held by each of them, and its gradient is the sum of theirs; a
// tensor that none reads is held by the first part. The caller deinits part.
cn_err cn_cut_part_make(const struct cn_graph *graph, const struct cn_layout *layout,
                        const struct cn_cut *cut, uint32_t index, struct cn_cut_part *part);
void cn_cut_part_deinit(struct cn_cut_part *part);
