// chain.h - a model cut into parts that train in one process, messages copied from part to part.
#pragma once

#include "runtime/engine/trainer/trainer_parts.h"

enum chain_order {
    CHAIN_GPIPE, // all micro-batches forward, then all backward
    CHAIN_1F1B,  // one forward, one backward: part p of P has at most P - p micro-batches
};

struct chain {
    uint32_t parts;
    struct cn_trainer *trainers[CN_CUT_PARTS_MAX];
    uint32_t slots[CN_CUT_PARTS_MAX];
    uint32_t most_in_flight; // in any part so far
    size_t tensor_count;     // of the whole model
    bool tied;               // several parts hold a tensor that is trained
};

// Opens all parts. config is that of the whole model; slots are for steps of at most `batches`
// micro-batches. On an error nothing stays open.
cn_err chain_open(struct chain *chain, const struct cn_onnx *onnx,
                  const struct cn_trainer_config *config, const struct cn_cut *cut,
                  enum chain_order order, uint32_t batches, struct cn_diag *diag);
void chain_close(struct chain *chain);

// Runs one step of count micro-batches, whose samples have numbers from `sample` on. Clips where
// the rules say so. CN_EDIVERGED without a change of any weight if a loss or a gradient is not
// finite.
cn_err chain_step(struct chain *chain, enum chain_order order, const struct cn_batch *batches,
                  uint32_t count, uint64_t sample, bool clip, struct cn_metrics *metrics);

// Evaluates a batch, part after part.
cn_err chain_evaluate(struct chain *chain, const struct cn_batch *batch,
                      struct cn_metrics *metrics);

// Fills in the weights of the whole model, whose layout this is. Returns false if two holders of a
// tensor differ.
bool chain_weights(struct chain *chain, const struct cn_layout *whole, float *weights);
