#include "runtime/profile/event_kinds.h"

#include <string.h>

#include "runtime/base/words.h"

static const struct {
    const char *word;
    bool alarm;
} kinds[CN_EVENT_KINDS] = {
    [CN_EVENT_GATEWAY_STARTED] = {"gateway_started", false},
    [CN_EVENT_ROUND_OPENED] = {"round_opened", false},
    [CN_EVENT_ROUND_EXTENDED] = {"round_extended", false},
    [CN_EVENT_VERSION_MADE] = {"version_made", false},
    [CN_EVENT_VERSION_MEASURED] = {"version_measured", false},
    [CN_EVENT_VERSION_BEST] = {"version_best", false},
    [CN_EVENT_VERSION_REFUSED] = {"version_refused", true},
    [CN_EVENT_ROLLED_BACK] = {"rolled_back", false},
    [CN_EVENT_TARGET_REACHED] = {"target_reached", true},
    [CN_EVENT_RUN_ENDED] = {"run_ended", true},
    [CN_EVENT_JOB_ENDED] = {"job_ended", true},
    [CN_EVENT_BOARD_JOINED] = {"board_joined", false},
    [CN_EVENT_BOARD_SILENT] = {"board_silent", true},
    [CN_EVENT_BOARD_FAILED] = {"board_failed", true},
    [CN_EVENT_BOARD_BACK] = {"board_back", true},
    [CN_EVENT_BOARD_PAUSED] = {"board_paused", false},
    [CN_EVENT_BOARD_RESUMED] = {"board_resumed", false},
    [CN_EVENT_BOARD_REVOKED] = {"board_revoked", false},
    [CN_EVENT_BOARD_TWICE] = {"board_twice", true},
    [CN_EVENT_UPDATE_REJECTED] = {"update_rejected", false},
    [CN_EVENT_UPDATE_CUT] = {"update_cut", false},
    [CN_EVENT_DISK_LOW] = {"disk_low", true},
    [CN_EVENT_DISK_FREE] = {"disk_free", true},
    [CN_EVENT_STORE_DOWN] = {"store_down", true},
    [CN_EVENT_STORE_UP] = {"store_up", true},
    [CN_EVENT_SETTINGS_CHANGED] = {"settings_changed", false},
    [CN_EVENT_COMMAND] = {"command", false},
};

const char *cn_event_kind_word(enum cn_event_kind kind)
{
    return kinds[kind].word;
}

enum cn_event_kind cn_event_kind_find(const char *word)
{
    enum cn_event_kind kind = 0;

    while (kind < CN_EVENT_KINDS && strcmp(kinds[kind].word, word) != 0)
        kind++;
    return kind;
}

bool cn_event_kind_is_alarm(enum cn_event_kind kind)
{
    return kinds[kind].alarm;
}

bool cn_event_kind_is_wanted(const char *words, enum cn_event_kind kind)
{
    return words[0] ? cn_words_match(words, kinds[kind].word) : kinds[kind].alarm;
}

bool cn_event_kind_unknown(const char *words, char *item, size_t size)
{
    for (const char *rest = words; cn_words_next(&rest, item, size);) {
        enum cn_event_kind kind = 0;

        while (kind < CN_EVENT_KINDS && !cn_words_match(item, kinds[kind].word))
            kind++;
        if (kind == CN_EVENT_KINDS)
            return true;
    }
    return false;
}
