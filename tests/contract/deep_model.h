// deep_model.h - a perceptron made in memory, with what is hard to share out: batch normalization,
// and a weight that two layers use.
#pragma once

#include <stddef.h>
#include <stdint.h>

#define DEEP_INPUTS 64 // words of a sample
#define DEEP_CLASSES 10

// An ONNX file of 60298 parameters, the same each time; valid until the program ends.
const uint8_t *deep_model(size_t *size);
