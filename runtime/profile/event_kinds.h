// event_kinds.h - the kinds of events of a gateway, and their words in profiles and messages.
//
// docs/events.md says when each kind happens. Threading: none.
#pragma once

#include <stdbool.h>
#include <stddef.h>

enum cn_event_kind {
    CN_EVENT_GATEWAY_STARTED,
    CN_EVENT_ROUND_OPENED,
    CN_EVENT_ROUND_EXTENDED,
    CN_EVENT_VERSION_MADE,
    CN_EVENT_VERSION_MEASURED,
    CN_EVENT_VERSION_BEST,
    CN_EVENT_VERSION_REFUSED,
    CN_EVENT_ROLLED_BACK,
    CN_EVENT_TARGET_REACHED,
    CN_EVENT_RUN_ENDED,
    CN_EVENT_JOB_ENDED,
    CN_EVENT_BOARD_JOINED,
    CN_EVENT_BOARD_SILENT,
    CN_EVENT_BOARD_FAILED,
    CN_EVENT_BOARD_BACK,
    CN_EVENT_BOARD_PAUSED,
    CN_EVENT_BOARD_RESUMED,
    CN_EVENT_BOARD_REVOKED,
    CN_EVENT_BOARD_TWICE,
    CN_EVENT_UPDATE_REJECTED,
    CN_EVENT_UPDATE_CUT,
    CN_EVENT_DISK_LOW,
    CN_EVENT_DISK_FREE,
    CN_EVENT_STORE_DOWN,
    CN_EVENT_STORE_UP,
    CN_EVENT_SETTINGS_CHANGED,
    CN_EVENT_COMMAND,
    CN_EVENT_KINDS,
};

// Returns the word of a kind, such as "board_failed".
const char *cn_event_kind_word(enum cn_event_kind kind);

// Finds a kind by its word. Returns CN_EVENT_KINDS when there is none.
enum cn_event_kind cn_event_kind_find(const char *word);

// Returns whether a person should know of such an event at once. These kinds are the "alarms".
bool cn_event_kind_is_alarm(enum cn_event_kind kind);

// Returns whether the hook is told of events of this kind. words is hooks.events of the profile:
// words, and patterns such as "board_*"; "" means the alarms.
bool cn_event_kind_is_wanted(const char *words, enum cn_event_kind kind);

// Copies the first item of words that matches no kind, cut to size - 1 bytes. Returns false when
// each item matches one.
bool cn_event_kind_unknown(const char *words, char *item, size_t size);
