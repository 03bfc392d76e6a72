// cut_check.h - trains a model whole and cut into parts, and compares.
//
// Losses and weights must agree to the bit. Where several parts hold a trained tensor, or gradients
// are clipped, sums are made in another order: then weights must agree within 1e-6 of the largest
// one of their tensor for each step, and all holders of a tensor to the bit.
#pragma once

#include "tests/support/chain.h"

#define CUT_CHECK_STEPS 3
#define CUT_CHECK_BATCHES 5 // micro-batches of a step
#define CUT_CHECK_SAMPLES 5 // of the largest micro-batch; the others have fewer

struct cut_check {
    char name[128];                  // of the model, for messages
    struct cn_trainer_config config; // of the whole model; its rules are borrowed
    const struct cn_onnx *onnx;      // borrowed
    struct cn_graph graph;           // with the backward pass
    struct cn_layout layout;
    struct cn_cut_place *places; // owned
    size_t place_count;
    float *inputs, *targets; // owned; of all samples
    int32_t *labels;         // owned
    struct cn_batch batches[CUT_CHECK_BATCHES];
    double losses[CUT_CHECK_STEPS], evaluation; // of the whole model
    cn_err evaluated;                           // how its evaluation ended
    cn_err ended[CUT_CHECK_STEPS];              // how its steps ended
    float *weights;                             // owned; of the whole model after the steps
    uint32_t cuts, tied;                        // cuts tried; those with tied tensors
    char failed[320];                           // the first difference
};

// Trains the whole model on made-up samples. config->batch is set. CN_ENOTSUP with a line in diag
// when the model cannot be trained with config->loss.
cn_err cut_check_open(struct cut_check *check, const char *name, const struct cn_onnx *onnx,
                      const struct cn_trainer_config *config, struct cn_diag *diag);
void cut_check_close(struct cut_check *check);

// Tries one cut in one order. Returns false when it differs from the whole model.
bool cut_check_try(struct cut_check *check, const struct cn_cut *cut, enum chain_order order);

// Tries every legal cut into two parts, or every `step`th, in both orders.
bool cut_check_halves(struct cut_check *check, size_t step);

// Tries some cuts into three and four parts, in both orders.
bool cut_check_parts(struct cut_check *check, uint32_t count);
