// batch_facts.h - computes the facts of a batch (struct cn_fact) before any part of it runs.
//
// A batch is run in parts: by lanes, and in pieces that fit into memory. Its facts count the whole
// batch, so a sum or a weighted mean over the batch does not depend on how it is cut.
// Threading: none. Only init allocates memory.
#pragma once

#include "runtime/engine/data/dataset.h"
#include "runtime/engine/graph/graph.h"

// A fact, its row, and the place in a sample of the labels that it counts.
struct cn_batch_fact {
    struct cn_fact fact;
    size_t first, labels; // words of a sample before its labels; number of its labels
    size_t words;         // length of row
    size_t place;         // words before the row in the batch arena
    float *row;           // owned
    uint64_t *counts;     // owned; CN_FACT_CLASSES: by class, the number of labels
};

struct cn_batch_facts {
    struct cn_batch_fact facts[CN_GRAPH_FACT_MAX];
    uint32_t count;      // number of facts
    size_t sample_words; // of all inputs of a sample
};

// Allocates the rows of the graph's facts. places holds, for each fact, the words before its row in
// the batch arena. CN_ENOMEM; deinit is not needed then.
cn_err cn_batch_facts_init(const struct cn_graph *graph, const size_t *places,
                           struct cn_batch_facts *facts);
void cn_batch_facts_deinit(struct cn_batch_facts *facts);

// Computes all rows. CN_ERANGE for a label that is neither a class nor the ignored label.
cn_err cn_batch_facts_find(struct cn_batch_facts *facts, const struct cn_batch *batch);

// Copies the rows to their places in the batch arena, which begins at arena.
void cn_batch_facts_write(const struct cn_batch_facts *facts, float *arena);
