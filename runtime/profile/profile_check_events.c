// Checks which events a gateway's hook is told.
#include "runtime/profile/event_kinds.h"
#include "runtime/profile/profile_private.h"

void cn_profile_check_events(const struct cn_profile *profile, struct cn_diagnostics *report)
{
    char item[CN_WORDS_SIZE];

    if (cn_event_kind_unknown(profile->settings.event_hook.events, item, sizeof(item)))
        cn_diagnostics_error(
            report, cn_profile_place(profile, "hooks.events", report),
            "hooks.events: '%s' is no kind of event; docs/events.md has the list, such as "
            "board_failed",
            item);
}
