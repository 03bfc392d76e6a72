// train_speed.h - measures how fast a device trains a model, on made-up samples.
#pragma once

#include "runtime/engine/onnx/onnx_file.h"
#include "runtime/engine/trainer/trainer.h"

struct cn_train_speed {
    double open_ms, median_ms, best_ms; // times: of opening the model; of a step
    double samples_per_s;               // from median_ms
    uint64_t planned;                   // bytes that training takes
    size_t parameters;
};

// Opens the model and times up to 200 steps. Begins no step after limit_us. If the model cannot be
// trained, diag has the reasons.
cn_err cn_train_speed(const struct cn_trainer_config *config, const struct cn_onnx_file *model,
                      uint64_t limit_us, struct cn_diag *diag, struct cn_train_speed *speed);

// Fills count samples: every input, float32 with values of [0, 1), integers with 0 to tokens - 1,
// and the labels or targets of the loss.
void cn_train_speed_fill(const struct cn_sample_shape *shape, uint32_t count, uint64_t tokens,
                         struct cn_batch *batch);
