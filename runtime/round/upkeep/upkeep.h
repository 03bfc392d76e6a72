// upkeep.h - what a node does besides training: sensors, pauses, energy, wear, power mode and
// hooks. Both "cairn-node run" and "cairn-node train" use it. Threading: one thread for each
// object.
#pragma once

#include "runtime/port/power_mode.h"
#include "runtime/port/store.h"
#include "runtime/profile/profile.h"
#include "runtime/round/upkeep/hold.h"
#include "runtime/round/upkeep/hooks.h"
#include "runtime/round/upkeep/pause_file.h"
#include "runtime/round/upkeep/pause_rules.h"

struct cn_upkeep {
    const struct cn_settings *settings;
    struct cn_store *store;
    struct cn_sensors *sensors;
    struct cn_pause_rules rules;
    struct cn_pause_state care;
    struct cn_reading reading;
    uint64_t first_ms, read_ms;    // times of the first and the last reading of the sensors
    enum cn_pause link_then;       // care.link at the last reading
    uint64_t counted_ms;           // time up to which energy is counted
    struct cn_pause_memory memory; // copy of the stored file
    uint32_t round;                // round that round_j belongs to
    // Energy in joules of this round so far and of the round before; needs a power sensor.
    double round_j, last_j;
    double total_j; // energy in joules since the start
    bool measured;  // power was read in this round
    // Already logged: a sensor of the profile is missing; a temperature is ignored.
    bool warned, doubted;
    char power_mode[CN_NAME_SIZE]; // current power mode; "": not known
    struct cn_hooks hooks;
    const char *sysroot;
    struct cn_hold hold;
    uint64_t hold_ms; // time of the last look for CN_HOLD_FILE
};

// Sets the power mode if the profile names one and this process may, and continues the day of wear.
// sysroot is "" on a board, else a folder with the sys/, proc/, etc/ and var/ of another board.
// settings, store and sysroot are borrowed.
cn_err cn_upkeep_init(struct cn_upkeep *care, const struct cn_settings *settings,
                      struct cn_store *store, const char *sysroot);
void cn_upkeep_deinit(struct cn_upkeep *care);

// Forgets the round and the version that hooks were told of: another run counts from the start.
void cn_upkeep_forget_run(struct cn_upkeep *care);

// Reports news to the hooks. Once a second reads the sensors and decides whether to pause. Returns
// true when a pause began, ended or changed its reason, after logging it and telling the hook.
bool cn_upkeep_poll(struct cn_upkeep *care, const struct cn_progress *progress, uint64_t now_ms);

// Return the seconds since 1970 and the milliseconds since local midnight. They return 0 and
// CN_PAUSE_NO_CLOCK while the clock was never set.
uint64_t cn_upkeep_clock_s(void);
uint64_t cn_upkeep_day_ms(void);
