// train_speed.h - measures how fast a device trains a model, on made-up samples.
#pragma once

#include "runtime/engine/onnx/onnx_file.h"
#include "runtime/engine/trainer/trainer.h"

struct cn_train_speed {
    double open_ms, median_ms, best_ms; // time to open the model; median and best time of a step
    double samples_per_s;               // by median_ms
    uint64_t planned;                   // bytes that training takes
    size_t parameters;                  // number of values in the model's tensors
};

// Opens the model, runs five steps to warm up and times 1 to 200 more. Begins no step once limit_us
// have passed since the first of all steps, except for the steps to warm up and the first that is
// timed. If the model cannot be trained, diag has the reasons.
cn_err cn_train_speed(const struct cn_trainer_config *config, const struct cn_onnx_file *model,
                      uint64_t limit_us, struct cn_diag *diag, struct cn_train_speed *speed);

// Fills a batch, which has room for count samples, with made-up samples: float32 inputs with values
// in [0, 1), integer inputs with 0 to tokens - 1, and the labels or targets of the loss.
void cn_train_speed_fill(const struct cn_sample_shape *shape, uint32_t count, uint64_t tokens,
                         struct cn_batch *batch);
