// hooks.h - programs of the site's that are told of rounds, versions and pauses.
//
// A hook gets the facts in its environment (PROFILES.md lists them) and hooks.limit seconds. Of
// each kind one runs at a time: what happens meanwhile waits, and only the newest of it is told, so
// a slow hook cannot pile up. Nothing waits for a hook and nothing depends on it; the log says when
// one failed or was ended. Threading: one thread for each object.
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

struct cn_hook_facts { // "NAME=value"
    char lines[CN_HOOK_FACTS][CN_HOOK_FACT_SIZE];
    size_t count;
};

struct cn_hooks {
    const struct cn_settings *settings;
    struct cn_hook_slot {
        bool running, waiting;
        int64_t process;
        struct cn_hook_facts next; // of what waits
    } slots[CN_HOOK_KINDS];
};

// settings is borrowed.
void cn_hooks_init(struct cn_hooks *hooks, const struct cn_settings *settings);

// Starts what still waits, so that the last version is told; hooks that run are left alone, their
// time limit holds without us.
void cn_hooks_deinit(struct cn_hooks *hooks);

// What every hook is told. event: "round", "version", "pause" or "resume".
void cn_hook_facts_init(struct cn_hook_facts *facts, const struct cn_settings *settings,
                        const char *event, const struct cn_progress *progress);
void cn_hook_facts_add(struct cn_hook_facts *facts, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

// Whether the profile has a hook of this kind.
bool cn_hooks_wanted(const struct cn_hooks *hooks, enum cn_hook_kind kind);

void cn_hooks_tell(struct cn_hooks *hooks, enum cn_hook_kind kind,
                   const struct cn_hook_facts *facts);

// Says how hooks ended and starts those that waited. Call it now and then.
void cn_hooks_poll(struct cn_hooks *hooks);
