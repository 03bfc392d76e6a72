// clock.h - the earliest date that a clock which was ever set can show.
#pragma once

#include <stdint.h>

// 2026-01-01 in seconds since 1970. Boards without a battery for their clock begin with an earlier
// date, of 1970 or of their image.
#define CN_CLOCK_SET_S INT64_C(1767225600)
