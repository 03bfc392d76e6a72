#include "runtime/round/upkeep/hooks.h"

#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "runtime/base/log.h"
#include "runtime/port/platform.h"

static const char *const names[] = {
    [CN_HOOK_ROUND] = "hooks.on_round",
    [CN_HOOK_VERSION] = "hooks.on_version",
    [CN_HOOK_PAUSE] = "hooks.on_pause",
};

static const char *path_of(const struct cn_hooks *hooks, enum cn_hook_kind kind)
{
    const struct cn_upkeep_settings *care = &hooks->settings->care;

    return kind == CN_HOOK_ROUND     ? care->on_round
           : kind == CN_HOOK_VERSION ? care->on_version
                                     : care->on_pause;
}

void cn_hook_facts_add(struct cn_hook_facts *facts, const char *format, ...)
{
    va_list arguments;

    if (facts->count == CN_HOOK_FACTS)
        return;
    va_start(arguments, format);
    vsnprintf(facts->lines[facts->count++], CN_HOOK_FACT_SIZE, format, arguments);
    va_end(arguments);
}

static void add_score(struct cn_hook_facts *facts, const char *name, double value)
{
    if (isfinite(value))
        cn_hook_facts_add(facts, "CAIRN_%s=%.6g", name, value);
}

void cn_hook_facts_init(struct cn_hook_facts *facts, const struct cn_settings *settings,
                        const char *event, const struct cn_progress *progress)
{
    const struct cn_scores *scores = &progress->scores;
    const char *state;
    char resolved[PATH_MAX];

    facts->count = 0;
    cn_hook_facts_add(facts, "CAIRN_EVENT=%s", event);
    cn_hook_facts_add(facts, "CAIRN_BOARD=%s", settings->name);
    // A hook may change its directory. If the folder cannot be resolved, its path stays as it is.
    state = realpath(settings->state, resolved) ? resolved : settings->state;
    cn_hook_facts_add(facts, "CAIRN_STATE=%s", state);
    cn_hook_facts_add(facts, "CAIRN_MODEL=%s/model.current.onnx", state);
    cn_hook_facts_add(facts, "CAIRN_ROUND=%u", progress->round);
    cn_hook_facts_add(facts, "CAIRN_VERSION=%u", progress->version);
    if (!scores->rows)
        return;
    add_score(facts, "LOSS", scores->loss);
    add_score(facts, "ACCURACY", scores->accuracy);
    add_score(facts, "TOP5", scores->top5);
    add_score(facts, "F1", scores->f1);
    add_score(facts, "MAE", scores->mae);
    add_score(facts, "PERPLEXITY", scores->perplexity);
}

static void start(struct cn_hooks *hooks, enum cn_hook_kind kind)
{
    struct cn_hook_slot *slot = &hooks->slots[kind];
    char *environment[CN_HOOK_FACTS + 2] = {cn_platform_path_line()};
    cn_err err;

    slot->waiting = false;
    for (size_t i = 0; i < slot->next.count; i++)
        environment[1 + i] = slot->next.lines[i];
    err = cn_platform_start_hook(path_of(hooks, kind), environment,
                                 (unsigned)((hooks->settings->care.hook_limit_ms + 999) / 1000),
                                 &slot->process);
    slot->running = err == CN_OK;
    if (err)
        cn_log(CN_LOG_WARN, "hook", "%s: %s cannot be run: %s", names[kind], path_of(hooks, kind),
               err == CN_ENOTFOUND ? "it is not there or not executable" : cn_err_text(err));
}

void cn_hooks_init(struct cn_hooks *hooks, const struct cn_settings *settings)
{
    for (int kind = 0; kind < CN_HOOK_KINDS; kind++)
        hooks->slots[kind].running = hooks->slots[kind].waiting = false;
    hooks->settings = settings;
}

bool cn_hooks_wanted(const struct cn_hooks *hooks, enum cn_hook_kind kind)
{
    return path_of(hooks, kind)[0] != '\0';
}

void cn_hooks_tell(struct cn_hooks *hooks, enum cn_hook_kind kind,
                   const struct cn_hook_facts *facts)
{
    struct cn_hook_slot *slot = &hooks->slots[kind];

    if (!cn_hooks_wanted(hooks, kind))
        return;
    slot->next = *facts;
    slot->waiting = true;
    cn_hooks_poll(hooks);
}

// Returns false while the hook runs; logs a failure when it has ended.
static bool has_ended(const struct cn_hooks *hooks, enum cn_hook_kind kind)
{
    int code = 0;
    enum cn_hook_state state = cn_platform_poll_hook(hooks->slots[kind].process, &code);

    if (state == CN_HOOK_LATE)
        cn_log(CN_LOG_WARN, "hook", "%s: %s was ended after %" PRIu64 " s", names[kind],
               path_of(hooks, kind), (hooks->settings->care.hook_limit_ms + 999) / 1000);
    else if (state == CN_HOOK_FAILED)
        cn_log(CN_LOG_WARN, "hook", "%s: %s failed with %d", names[kind], path_of(hooks, kind),
               code);
    return state != CN_HOOK_RUNNING;
}

void cn_hooks_poll(struct cn_hooks *hooks)
{
    for (enum cn_hook_kind kind = 0; kind < CN_HOOK_KINDS; kind++) {
        struct cn_hook_slot *slot = &hooks->slots[kind];

        if (slot->running && has_ended(hooks, kind))
            slot->running = false;
        if (slot->waiting && !slot->running)
            start(hooks, kind);
    }
}

void cn_hooks_deinit(struct cn_hooks *hooks)
{
    if (!hooks->settings)
        return;
    cn_hooks_poll(hooks);
    for (enum cn_hook_kind kind = 0; kind < CN_HOOK_KINDS; kind++)
        if (hooks->slots[kind].waiting)
            start(hooks, kind);
}
