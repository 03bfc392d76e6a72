#include "runtime/group/patience.h"

#define LONGER 4 // so many times as long is waited after a wait in vain

uint32_t cn_patience_begin(struct cn_patience *patience, uint32_t timeout_ms, uint32_t members)
{
    if (patience->members != members)
        *patience = (struct cn_patience){0};
    return patience->ms > timeout_ms ? patience->ms : timeout_ms;
}

void cn_patience_ran_out(struct cn_patience *patience, uint32_t waited_ms, uint32_t members)
{
    uint32_t longer =
        waited_ms > CN_PATIENCE_MOST_MS / LONGER ? CN_PATIENCE_MOST_MS : waited_ms * LONGER;

    patience->ms = longer > waited_ms ? longer : waited_ms;
    patience->members = members;
}
