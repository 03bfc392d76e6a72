// clock.h - the date from which on the clock of a board counts as set.
#pragma once

#include <stdint.h>

// 2026-01-01 in seconds since 1970. A board without a battery for its clock starts with an earlier
// date: one of 1970, or that of its system image.
#define CN_CLOCK_SET_S INT64_C(1767225600)
