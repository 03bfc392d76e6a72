// patience.h - how long a member waits for others of an epoch that answer.
//
// While a member computes it sends nothing, and the others cannot tell that from a member that
// hangs. So an epoch in which nothing moved for group.timeout ends. If all members are there in the
// next one, none of them hung: the time was shorter than a micro-batch takes. Then the members wait
// four times as long. Threading: none.
#pragma once

#include <stdint.h>

#define CN_PATIENCE_MOST_MS 600000 // longest time that is reached by waiting longer

// All zero: nothing was waited for in vain.
struct cn_patience {
    uint32_t ms;      // time that the members wait; 0: group.timeout
    uint32_t members; // members of the epoch that ended so: bit i for members[i]
};

// Returns the time to wait in an epoch of these members. timeout_ms is group.timeout, which counts
// again as soon as the members are other ones.
uint32_t cn_patience_begin(struct cn_patience *patience, uint32_t timeout_ms, uint32_t members);

// Notes that an epoch of these members ended because nothing moved for `waited_ms`.
void cn_patience_ran_out(struct cn_patience *patience, uint32_t waited_ms, uint32_t members);
