// batch_facts.h - what a trainer works out of a whole batch before it runs it (struct cn_fact).
//
// A batch is run in parts: by lanes, and in pieces that fit into memory. The facts are those of the
// whole, so that a sum or a weighted mean over the batch does not depend on how it is cut.
#pragma once

#include "runtime/engine/data/dataset.h"
#include "runtime/engine/graph/graph.h"

// A fact and where the labels that it counts are in a sample.
struct cn_batch_fact {
    struct cn_fact fact;
    size_t first, labels; // words of the sample before the labels; their number
    size_t words;         // of the fact's row
    size_t place;         // words before the row in the batch arena
    float *row;           // owned
    uint64_t *counts;     // of the labels of each class, where the row is made of them; owned
};

struct cn_batch_facts {
    struct cn_batch_fact facts[CN_GRAPH_FACT_MAX];
    uint32_t count;
    size_t sample_words; // of all inputs of a sample
};

// places: words before each fact's row in the batch arena. CN_ENOMEM.
cn_err cn_batch_facts_init(const struct cn_graph *graph, const size_t *places,
                           struct cn_batch_facts *facts);
void cn_batch_facts_deinit(struct cn_batch_facts *facts);

// Works out all rows. CN_ERANGE for a label that is neither a class nor the one to ignore.
cn_err cn_batch_facts_find(struct cn_batch_facts *facts, const struct cn_batch *batch);

// Copies the rows to their places.
void cn_batch_facts_write(const struct cn_batch_facts *facts, float *arena);
