#include "runtime/round/epoch/epoch_end.h"

#include "runtime/port/platform.h"

#define HEAR_MS 2000 // time for the gateway to say that the run goes on after all

static bool heard_of_end(struct cn_epoch *epoch)
{
    const struct cn_checkpoint *held = cn_session_held(epoch->session);
    struct cn_round_info news;

    return cn_mailbox_news(epoch->box, &news) && news.run == held->run &&
           news.lineage == held->lineage && news.state == CN_ROUND_ENDED;
}

cn_err cn_epoch_share_end(struct cn_epoch *epoch)
{
    float known = epoch->over || heard_of_end(epoch) ? 1 : 0;
    cn_err err = CN_OK;

    if (epoch->view.view.size > 1)
        err = cn_all_reduce(epoch->collective, CN_REDUCE_SUM, &known, 1);
    epoch->over = known > 0;
    epoch->end_at_ms = cn_platform_now_ms() + HEAR_MS;
    return err;
}

bool cn_epoch_is_over(const struct cn_epoch *epoch)
{
    return epoch->over && cn_platform_now_ms() >= epoch->end_at_ms &&
           cn_session_held(epoch->session)->phase == CN_PHASE_BASE;
}
