#include "runtime/group/membership_private.h"

static uint32_t missing_s(const struct other *other, uint64_t now_ms)
{
    uint64_t silent_s = (now_ms - other->present_ms) / 1000;

    return silent_s == 0 ? 1 : silent_s > UINT32_MAX ? UINT32_MAX : (uint32_t)silent_s;
}

void cn_membership_silence(const struct cn_membership *membership, uint64_t now_ms,
                           uint32_t silent_s[CN_GROUP_MAX])
{
    uint32_t present = membership->member ? membership->commit.members : 0;

    for (uint32_t i = 0; i < membership->config.count; i++) {
        bool here = i == membership->config.self || (present & cn_membership_bit(i));

        silent_s[i] = here ? 0 : missing_s(&membership->others[i], now_ms);
    }
}
