// random.h - counter-based random numbers: the same (key, counter) gives the same bits everywhere.
//
// Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011). Nothing is
// stored between calls, so a restarted step draws what it drew before.
#pragma once

#include <stdint.h>

// Four independent 32-bit numbers for one counter value.
void cn_random_block(uint64_t key, uint64_t counter_high, uint64_t counter_low, uint32_t out[4]);

// A pseudo-random permutation of [0, count): returns the position of index under key. It is its own
// object for each key; all indices together hit each position once. count is at least 1.
uint64_t cn_random_permute(uint64_t key, uint64_t count, uint64_t index);
