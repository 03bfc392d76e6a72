// ended_news.c - the worker of a node hears that the run has ended, once it has version 2.
//
// Linked with --wrap=cn_mailbox_news. So a leader tells its group an end that the gateway has not
// said.
#include "runtime/round/epoch/mailbox.h"

bool __real_cn_mailbox_news(struct cn_mailbox *box, struct cn_round_info *news);
bool __wrap_cn_mailbox_news(struct cn_mailbox *box, struct cn_round_info *news);

bool __wrap_cn_mailbox_news(struct cn_mailbox *box, struct cn_round_info *news)
{
    bool heard = __real_cn_mailbox_news(box, news);

    if (heard && news->version >= 2)
        news->state = CN_ROUND_ENDED;
    return heard;
}
