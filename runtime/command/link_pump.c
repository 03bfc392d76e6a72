#include "runtime/command/link_pump.h"

#include <poll.h>

cn_err cn_link_pump(struct cn_link *link, uint32_t wait_ms, cn_link_take_fn take, void *context)
{
    struct pollfd ready = {.fd = link->ops->descriptor(link), .events = POLLIN};
    struct cn_link_event event;
    cn_err err;

    poll(&ready, 1, (int)wait_ms);
    while (!(err = link->ops->poll(link, &event)))
        if ((err = take(context, &event)))
            return err;
    return err == CN_EAGAIN ? CN_OK : err;
}
