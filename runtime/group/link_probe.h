// link_probe.h - how many bytes to send to measure a link, and what the times say.
//
// Times are microseconds, sizes are bytes, rates are kbit/s. Threading: none; pure.
#pragma once

#include <stdint.h>

#define CN_PROBE_SIZE (64u << 10)      // first probe of a link
#define CN_PROBE_MOST (1u << 20)       // largest probe
#define CN_PROBE_SUM_LEAST (16u << 10) // smallest sum that is measured

// Returns the rate at which bytes went there and back.
int64_t cn_probe_kbps(uint32_t size, uint64_t elapsed_us);

// Returns the size of a second probe, of about 40 ms; 0 when the first one took long enough. On a
// quick link a small probe says too much: a device on the way may send its first bytes at once.
uint32_t cn_probe_larger(uint64_t elapsed_us);

// Returns the bytes of a sum of all members that takes about 40 ms, from their rates by rank.
uint32_t cn_probe_sum_size(const int64_t *kbps, uint32_t count);

// Returns the share of the slowest link's rate that a sum of this size reached; at most 1. call_us
// is the time of a message without bytes.
double cn_probe_sum_share(const int64_t *kbps, uint32_t count, uint32_t size, double elapsed_us,
                          double call_us);
