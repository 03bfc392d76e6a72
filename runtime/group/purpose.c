#include "runtime/group/purpose.h"

uint32_t cn_purpose_at(enum cn_purpose purpose, uint32_t index)
{
#define CASE(name, first, count, step)                                                             \
    case CN_PURPOSE_##name:                                                                        \
        return (first) + index % (count) * (step);
    switch (purpose) {
        CN_PURPOSES(CASE)
    }
#undef CASE
    return purpose;
}
