// layer_entry.h - one entry of a job's lists about single tensors: "head.*=20%", "conv1.weight=4".
#pragma once

#include <stdbool.h>

#include "runtime/profile/job.h"

#define CN_LAYER_PRIORITY_MAX 6 // largest exponent of a factor: 2^-6 to 2^6

// Reads NAME=SHARE% with a share in (0, 100], without blanks. Sets name to NAME, which is a
// pattern, and *density to SHARE / 100. Returns false for any other text.
bool cn_layer_entry_density(const char *entry, char name[CN_WORDS_SIZE], double *density);

// Reads NAME=FACTOR with a factor that is a power of two from 1/64 to 64. Sets name to NAME and
// *priority to the exponent. Returns false for any other text.
bool cn_layer_entry_priority(const char *entry, char name[CN_WORDS_SIZE], int *priority);
