// layer_entry.h - one entry of a job's lists about single tensors: "head.*=20%", "conv1.weight=4".
#pragma once

#include <stdbool.h>

#include "runtime/profile/job.h"

#define CN_LAYER_PRIORITY_MAX 6 // powers of two

// NAME=SHARE%, the share in (0, 100]. name is set to the pattern. False for anything else.
bool cn_layer_entry_density(const char *entry, char name[CN_WORDS_SIZE], double *density);

// NAME=FACTOR, a power of two from 1/64 to 64, of which priority is the exponent.
bool cn_layer_entry_priority(const char *entry, char name[CN_WORDS_SIZE], int *priority);
