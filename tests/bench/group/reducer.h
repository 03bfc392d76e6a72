// reducer.h - what the bench of all-reduces compares, one implementation in a program.
#pragma once

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

extern const char *const reducer_name;

// Addresses are numeric, one for each rank; store is a directory that all ranks see. 0: done.
int reducer_open(uint32_t rank, uint32_t ranks, char *const *addresses, const char *store);
int reducer_sum(float *data, size_t count);
void reducer_close(void);

#ifdef __cplusplus
}
#endif
