// hooks.h - runs the site's programs when a round begins, a version arrives, or a pause begins or
// ends.
//
// A hook gets the facts in its environment (PROFILES.md lists them) and may run for hooks.limit.
// Only one hook of each kind runs at a time. While it runs, newer events of its kind replace older
// ones, so a slow hook cannot build up a queue. Training neither waits for hooks nor depends on
// them. The log reports hooks that failed or were ended. Threading: one thread for each object.
#pragma once

#include "runtime/profile/profile.h"
#include "runtime/round/upkeep/progress.h"

enum cn_hook_kind {
    CN_HOOK_ROUND,
    CN_HOOK_VERSION,
    CN_HOOK_PAUSE,
    CN_HOOK_KINDS,
};

#define CN_HOOK_FACTS 24
#define CN_HOOK_FACT_SIZE (CN_PATH_SIZE + 64)

// The environment of a hook beside PATH: lines "NAME=value".
struct cn_hook_facts {
    char lines[CN_HOOK_FACTS][CN_HOOK_FACT_SIZE];
    size_t count;
};

struct cn_hooks {
    const struct cn_settings *settings;
    struct cn_hook_slot {
        bool running, waiting;
        int64_t process;
        struct cn_hook_facts next; // facts of the event that waits
    } slots[CN_HOOK_KINDS];
};

// Initialises hooks; settings is borrowed.
void cn_hooks_init(struct cn_hooks *hooks, const struct cn_settings *settings);

// Starts the events that still wait, so that the last version is reported. Running hooks go on;
// their time limit is enforced without this process.
void cn_hooks_deinit(struct cn_hooks *hooks);

// Fills in the facts that every hook gets. event is "round", "version", "pause" or "resume".
void cn_hook_facts_init(struct cn_hook_facts *facts, const struct cn_settings *settings,
                        const char *event, const struct cn_progress *progress);
void cn_hook_facts_add(struct cn_hook_facts *facts, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

// Returns whether the profile has a hook of this kind.
bool cn_hooks_wanted(const struct cn_hooks *hooks, enum cn_hook_kind kind);

// Runs the hook of this kind with these facts, or lets them wait while one runs. Copies facts. Does
// nothing without a hook.
void cn_hooks_tell(struct cn_hooks *hooks, enum cn_hook_kind kind,
                   const struct cn_hook_facts *facts);

// Logs how hooks ended, and starts those that wait. Call it now and then.
void cn_hooks_poll(struct cn_hooks *hooks);
