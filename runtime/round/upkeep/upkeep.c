#include "runtime/round/upkeep/upkeep.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#include "runtime/base/clock.h"
#include "runtime/base/log.h"
#include "runtime/base/words.h"

#define READ_MS 1000
#define WARN_MS 10000 // a sensor that is still missing then is reported
#define DAY_MS UINT64_C(86400000)
#define WEAR_PARTS 256 // the count of wear is stored after each 1/256 of the budget

// Returns the date in seconds, or 0.
uint64_t cn_upkeep_clock_s(void)
{
    time_t now = time(NULL);

    return now < CN_CLOCK_SET_S ? 0 : (uint64_t)now;
}

uint64_t cn_upkeep_day_ms(void)
{
    time_t now = (time_t)cn_upkeep_clock_s();
    struct tm local;

    if (!now || !localtime_r(&now, &local))
        return CN_PAUSE_NO_CLOCK;
    return ((uint64_t)local.tm_hour * 3600 + (uint64_t)local.tm_min * 60 + (uint64_t)local.tm_sec) *
           1000;
}

static void say_mode(const struct cn_power_modes *modes, const char *wanted, cn_err err,
                     const struct cn_power_mode *mode)
{
    const char *current = modes->current ? modes->current->name : "another";
    char known[CN_POWER_MODES * 12] = "";
    size_t used = 0;

    if (mode && err == CN_EAUTH)
        cn_log(CN_LOG_WARN, "care",
               "power.mode: %s holds, %s is wanted; setting it needs root: sudo nvpmodel -m %d",
               current, mode->name, mode->id);
    else if (mode)
        cn_log(CN_LOG_WARN, "care",
               "power.mode: %s could not be set (%s); %s holds. By hand: sudo nvpmodel -m %d",
               mode->name, cn_err_text(err), current, mode->id);
    if (mode)
        return;
    for (size_t i = 0; i < modes->count && used < sizeof(known); i++)
        used += (size_t)snprintf(known + used, sizeof(known) - used, "%s%s", i ? ", " : "",
                                 modes->modes[i].name);
    cn_log(CN_LOG_WARN, "care", "power.mode: this board has no mode '%s'; it has %s", wanted,
           known);
}

// Returns the first of the profile's modes that the board has.
static const struct cn_power_mode *choose_mode(const struct cn_power_modes *modes,
                                               const char *wanted)
{
    char name[CN_NAME_SIZE];

    for (const char *at = wanted; cn_words_next(&at, name, sizeof(name));) {
        const struct cn_power_mode *mode = cn_power_modes_find(modes, name);

        if (mode)
            return mode;
    }
    return NULL;
}

static void set_mode(struct cn_upkeep *care, const char *sysroot)
{
    const char *wanted = care->settings->care.power_mode;
    struct cn_power_modes modes;
    const struct cn_power_mode *mode;
    cn_err err = cn_power_modes_read(sysroot, &modes);

    if (err && wanted[0])
        cn_log(CN_LOG_WARN, "care",
               "power.mode: '%s' is wanted, but this board has no such modes: %s", wanted,
               err == CN_ENOTFOUND ? "there is no /etc/nvpmodel.conf" : cn_err_text(err));
    if (err)
        return;
    mode = choose_mode(&modes, wanted);
    if (mode && mode != modes.current) {
        err = cn_power_mode_set(sysroot, mode);
        if (!err)
            cn_log(CN_LOG_INFO, "care", "power.mode: %s is set", mode->name);
    }
    if (wanted[0] && (!mode || err))
        say_mode(&modes, wanted, err, mode);
    else if (mode)
        modes.current = mode;
    if (modes.current)
        memcpy(care->power_mode, modes.current->name, sizeof(care->power_mode));
}

cn_err cn_upkeep_init(struct cn_upkeep *care, const struct cn_settings *settings,
                      struct cn_store *store, const char *sysroot)
{
    const struct cn_upkeep_settings *from = &settings->care;

    *care = (struct cn_upkeep){.settings = settings, .store = store, .sysroot = sysroot};
    care->rules = (struct cn_pause_rules){
        .pause_above_mc = from->pause_above_mc,
        .resume_below_mc = from->resume_below_mc         ? from->resume_below_mc
                           : from->pause_above_mc > 8000 ? from->pause_above_mc - 8000
                                                         : 0,
        .budget_mw = from->enforce_power ? settings->power_mw : 0,
        .window_from_ms = from->window_from_ms,
        .window_to_ms = from->window_to_ms,
        .others_max = from->others_max,
        .wear_bytes = from->wear_bytes,
    };
    cn_hooks_init(&care->hooks, settings);
    cn_pause_file_load(store, &care->memory);
    set_mode(care, sysroot);
    if (!cn_upkeep_clock_s())
        cn_log(
            CN_LOG_WARN, "care",
            "%s%sthe clock was never set; training does not need it, limits by the hour or day do",
            settings->name, settings->name[0] ? ": " : "");
    return cn_sensors_open(sysroot, from->zones, from->power_sensors, &care->sensors);
}

// Stores the bytes written and the last events told to hooks.
static void save(struct cn_upkeep *care, uint64_t now_ms)
{
    struct cn_pause_memory *memory = &care->memory;
    struct cn_pause_memory before = *memory;
    cn_err err;

    if (care->care.has_day) {
        memory->elapsed_ms = now_ms - care->care.day_ms;
        memory->elapsed_ms = memory->elapsed_ms < DAY_MS ? memory->elapsed_ms : DAY_MS;
        memory->worn = cn_pause_worn(&care->care, &care->reading);
        memory->clock_s = cn_upkeep_clock_s();
    }
    if (memcmp(&before, memory, sizeof(before)) == 0)
        return;
    err = cn_pause_file_save(care->store, memory);
    if (err)
        cn_log(CN_LOG_WARN, "care", "today's count of written bytes cannot be stored: %s",
               cn_err_text(err));
}

void cn_upkeep_forget_run(struct cn_upkeep *care)
{
    care->memory.round = care->memory.version = 0;
}

void cn_upkeep_deinit(struct cn_upkeep *care)
{
    if (care->sensors && care->read_ms)
        save(care, care->read_ms);
    cn_hooks_deinit(&care->hooks);
    cn_sensors_close(care->sensors);
    care->sensors = NULL;
}

// --- Wear ---

// Continues the stored day of wear. Time that the board was off counts only if the date was known
// before and after. Otherwise the day continues where it was, which pauses too long rather than too
// short.
static void resume_day(struct cn_upkeep *care, uint64_t now_ms)
{
    const struct cn_pause_memory *memory = &care->memory;
    uint64_t now_s = cn_upkeep_clock_s(), elapsed_ms = memory->elapsed_ms;

    if (!care->rules.wear_bytes || !care->reading.has_written || care->care.has_day)
        return;
    if (now_s && memory->clock_s && now_s > memory->clock_s)
        elapsed_ms += (now_s - memory->clock_s) * 1000;
    if (elapsed_ms < DAY_MS)
        cn_pause_resume_day(&care->care, &care->reading, now_ms, elapsed_ms, memory->worn);
}

// Stores the count of wear from time to time. A kill or a power cut loses less than one part of the
// budget.
static void keep_wear(struct cn_upkeep *care, uint64_t now_ms)
{
    uint64_t worn = cn_pause_worn(&care->care, &care->reading);

    if (care->rules.wear_bytes && care->care.has_day &&
        (worn < care->memory.worn ||
         worn - care->memory.worn >= care->rules.wear_bytes / WEAR_PARTS))
        save(care, now_ms);
}

// --- Hooks ---

static void add_facts(const struct cn_upkeep *care, struct cn_hook_facts *facts)
{
    const struct cn_reading *reading = &care->reading;

    cn_hook_facts_add(facts, "CAIRN_REASON=%s", cn_pause_text(care->care.pause));
    if (reading->has_temperature)
        cn_hook_facts_add(facts, "CAIRN_TEMPERATURE_C=%.1f", reading->temperature_mc / 1000.0);
    if (reading->has_power)
        cn_hook_facts_add(facts, "CAIRN_POWER_W=%.1f", (double)reading->power_mw / 1000);
    if (care->last_j > 0)
        cn_hook_facts_add(facts, "CAIRN_LAST_ROUND_J=%.1f", care->last_j);
}

static void tell(struct cn_upkeep *care, enum cn_hook_kind kind, const char *event,
                 const struct cn_progress *progress)
{
    static _Thread_local struct cn_hook_facts facts; // static because it is large

    if (!cn_hooks_wanted(&care->hooks, kind))
        return;
    cn_hook_facts_init(&facts, care->settings, event, progress);
    add_facts(care, &facts);
    cn_hooks_tell(&care->hooks, kind, &facts);
}

// Tells the hooks of a new round or version and remembers it, so that a restart does not repeat it.
static void tell_progress(struct cn_upkeep *care, const struct cn_progress *progress)
{
    bool round = progress->round && progress->round != care->memory.round;
    bool version = progress->version && progress->version != care->memory.version;

    if (round)
        tell(care, CN_HOOK_ROUND, "round", progress);
    if (version)
        tell(care, CN_HOOK_VERSION, "version", progress);
    if (!round && !version)
        return;
    care->memory.round = round ? progress->round : care->memory.round;
    care->memory.version = version ? progress->version : care->memory.version;
    if (cn_hooks_wanted(&care->hooks, CN_HOOK_ROUND) ||
        cn_hooks_wanted(&care->hooks, CN_HOOK_VERSION)) {
        cn_err err = cn_pause_file_save(care->store, &care->memory);

        if (err)
            cn_log(CN_LOG_DEBUG, "care", "the record of the hooks' events cannot be stored: %s",
                   cn_err_text(err));
    }
}

// --- Energy ---

static void count_energy(struct cn_upkeep *care, const struct cn_progress *progress,
                         uint64_t now_ms)
{
    if (care->reading.has_power && care->counted_ms) {
        // mW x ms are microjoules.
        double energy_j =
            (double)care->reading.power_mw * (double)(now_ms - care->counted_ms) / 1e6;

        care->measured = true;
        care->round_j += energy_j;
        care->total_j += energy_j;
    }
    care->counted_ms = now_ms;
    if (progress->round == care->round)
        return;
    if (care->round && care->measured) {
        care->last_j = care->round_j;
        cn_log(CN_LOG_INFO, "care", "round %u took %.1f J", care->round, care->last_j);
    }
    care->round = progress->round;
    care->round_j = 0;
    care->measured = false;
}

// --- The log ---

static const char *missing_sensor(const struct cn_upkeep *care)
{
    const struct cn_reading *reading = &care->reading;

    if (care->rules.pause_above_mc && !reading->has_temperature)
        return "thermal.pause_above is not kept: no temperature can be read (thermal.zone)";
    if (care->rules.budget_mw && !reading->has_power)
        return "power.enforce is not kept: no power can be read (power.sensor)";
    if (care->rules.others_max > 0 && !reading->has_others)
        return "idle.others_max is not kept: the load of other programs cannot be read";
    if (care->rules.wear_bytes && !reading->has_written)
        return "storage.wear_budget is not kept: the kernel does not count what is written";
    return NULL;
}

static void warn(struct cn_upkeep *care, uint64_t now_ms)
{
    const char *missing = missing_sensor(care);

    if (!care->warned && missing && now_ms - care->first_ms >= WARN_MS) {
        care->warned = true;
        cn_log(CN_LOG_WARN, "care", "%s", missing);
    }
    if (!missing && care->warned) {
        care->warned = false;
        cn_log(CN_LOG_INFO, "care", "all limits of the profile apply again");
    }
    if (care->care.doubted && !care->doubted)
        cn_log(CN_LOG_WARN, "care",
               "the temperature sensor is gone or does not change; thermal.pause_above does not "
               "apply");
    care->doubted = care->doubted || care->care.doubted;
    if (care->care.hot)
        care->doubted = false;
}

static void tell_pause(struct cn_upkeep *care, const struct cn_progress *progress)
{
    const struct cn_reading *reading = &care->reading;
    char facts[128] = "";

    switch (care->care.pause) {
    case CN_PAUSE_POWER:
        snprintf(facts, sizeof(facts), " (%.1f W of %.1f W)", (double)reading->power_mw / 1000,
                 (double)care->rules.budget_mw / 1000);
        break;
    case CN_PAUSE_BUSY:
        snprintf(facts, sizeof(facts), " (%.0f %%)", reading->others * 100);
        break;
    case CN_PAUSE_WEAR:
        snprintf(facts, sizeof(facts), " (%.1f MiB of %.1f MiB)",
                 (double)cn_pause_worn(&care->care, reading) / 1048576,
                 (double)care->rules.wear_bytes / 1048576);
        break;
    default:
        if (reading->has_temperature)
            snprintf(facts, sizeof(facts), " (%s at %.1f C%s)", reading->zone,
                     reading->temperature_mc / 1000.0, reading->throttled ? ", throttled" : "");
    }
    if (care->care.pause)
        cn_log(CN_LOG_INFO, "care", "training pauses: %s%s", cn_pause_text(care->care.pause),
               facts);
    else
        cn_log(CN_LOG_INFO, "care", "training goes on%s", facts);
    tell(care, CN_HOOK_PAUSE, care->care.pause ? "pause" : "resume", progress);
}

// Looks for the file of an update once a second, but decides at each call: the time between two
// rounds may be short. Returns whether the board begins or stops to rest.
static bool poll_hold(struct cn_upkeep *care, const struct cn_progress *progress, uint64_t now_ms)
{
    bool wanted = care->hold.wanted, tired = care->hold.tired, held = care->care.held;

    if (!care->hold_ms || now_ms - care->hold_ms >= READ_MS) {
        care->hold_ms = now_ms;
        wanted = cn_hold_is_wanted(care->sysroot);
        if (wanted && !care->hold.wanted)
            cn_log(CN_LOG_INFO, "care", "an update of the system waits for the end of the round");
    }
    care->care.held = cn_hold_decide(&care->hold, wanted, progress, now_ms);
    if (care->hold.tired && !tired)
        cn_log(CN_LOG_WARN, "care", "%s%s is older than two hours: training goes on", care->sysroot,
               CN_HOLD_FILE);
    return care->care.held != held;
}

bool cn_upkeep_poll(struct cn_upkeep *care, const struct cn_progress *progress, uint64_t now_ms)
{
    enum cn_pause before = care->care.pause;

    cn_hooks_poll(&care->hooks);
    count_energy(care, progress, now_ms); // uses the power of the last reading
    tell_progress(care, progress);
    // A link limit can be reached between two readings, and then each further byte is too many.
    if (!poll_hold(care, progress, now_ms) && care->read_ms && now_ms - care->read_ms < READ_MS &&
        care->care.link == care->link_then)
        return false;
    care->link_then = care->care.link;
    if (!care->read_ms)
        care->first_ms = now_ms;
    care->read_ms = now_ms;
    cn_sensors_read(care->sensors, &care->reading);
    resume_day(care, now_ms);
    cn_pause_decide(&care->care, &care->rules, &care->reading, now_ms, cn_upkeep_day_ms());
    keep_wear(care, now_ms);
    warn(care, now_ms);
    if (care->care.pause == before)
        return false;
    tell_pause(care, progress);
    return true;
}
