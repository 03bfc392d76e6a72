// random.h - counter-based random numbers: the same (key, counter) gives the same bits everywhere.
//
// Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011). Nothing is
// stored between calls, so a restarted step draws the same numbers. Threading: no shared state.
#pragma once

#include <stdint.h>

// Writes four independent 32-bit numbers for one counter value to out.
void cn_random_block(uint64_t key, uint64_t counter_high, uint64_t counter_low, uint32_t out[4]);

// Returns the position of index in a pseudo-random permutation of [0, count). Each key gives a
// permutation of its own. index is below count; count is at least 1.
uint64_t cn_random_permute(uint64_t key, uint64_t count, uint64_t index);
