#include "runtime/round/epoch/epoch_limits.h"

#include <string.h>

#include "runtime/base/log_limit.h"
#include "runtime/port/platform.h"

uint32_t cn_epoch_newest_round(struct cn_epoch *epoch)
{
    struct cn_round_info news;
    uint64_t age_ms, most;

    if (!cn_mailbox_news_age(epoch->box, &news, &age_ms) || age_ms > CN_EPOCH_NEWS_MS ||
        news.run != cn_session_held(epoch->session)->run)
        return UINT32_MAX;
    most = (uint64_t)news.round + CN_EPOCH_AHEAD_MAX + age_ms * CN_EPOCH_AHEAD_PER_S / 1000;
    return most < UINT32_MAX ? (uint32_t)most : UINT32_MAX;
}

void cn_epoch_disbelieve(const struct cn_epoch *epoch, uint32_t rank, uint32_t most)
{
    const struct cn_settings *settings = cn_session_get_config(epoch->session)->settings;
    const char *member = settings->group.members[epoch->view.view.ranks[rank]].name;

    cn_log_within(cn_log_quota_of(epoch->lines, member), cn_platform_now_ms(), CN_LOG_ERROR,
                  "epoch",
                  "%s names a round or a version above %u, to which the aggregator cannot have "
                  "come: not believed",
                  member, most);
}

static bool is_near(struct cn_epoch *epoch, uint32_t round)
{
    uint32_t most = cn_epoch_newest_round(epoch);

    if (round > most)
        cn_epoch_disbelieve(epoch, 0, most);
    return round <= most;
}

// Returns whether the group holds the version already. A leader could send it for ever.
static bool is_held(const struct cn_epoch *epoch, const struct cn_epoch_command *command)
{
    const struct cn_checkpoint *held = cn_session_held(epoch->session);

    return held->phase == CN_PHASE_BASE &&
           memcmp(held->base_digest, command->base.digest, CN_DIGEST_SIZE) == 0;
}

bool cn_epoch_may_obey(struct cn_epoch *epoch, const struct cn_epoch_command *command)
{
    bool waits = cn_session_waits(epoch->session); // a leader that waits sends none of these

    if (epoch->view.view.rank == 0)
        return true;
    switch (command->kind) {
    case CN_EPOCH_BASE:
        return !waits && !is_held(epoch, command) && is_near(epoch, command->base.number);
    case CN_EPOCH_BEGIN:
        return !waits && is_near(epoch, command->begin.round);
    case CN_EPOCH_STEPS:
        return !waits;
    case CN_EPOCH_ABANDON:
        return !(waits && cn_session_held(epoch->session)->waiting.set) &&
               is_near(epoch, command->decision.round);
    case CN_EPOCH_DECIDE:
        return is_near(epoch, command->decision.round);
    default:
        return true;
    }
}
