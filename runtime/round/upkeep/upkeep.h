// upkeep.h - the node's side of living on a board: sensors, pauses, energy, wear, power mode,
// hooks; of "cairn-node run" and "cairn-node train" alike. Threading: one thread for each object.
#pragma once

#include "runtime/port/power_mode.h"
#include "runtime/port/store.h"
#include "runtime/profile/profile.h"
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
    uint64_t first_ms, read_ms;    // sensors: read first and last
    enum cn_pause link_then;       // care.link at the last reading
    uint64_t counted_ms;           // energy: counted up to here
    struct cn_pause_memory memory; // what is stored
    uint32_t round;                // that energy is counted for
    double round_j, last_j; // energy of this round so far, and of the one before; with a sensor
    bool measured;          // power was read since the round began
    bool warned, doubted; // what the log said: a sensor of the profile is missing, or not believed
    char power_mode[CN_NAME_SIZE]; // that holds, as far as it is known; ""
    struct cn_hooks hooks;
};

// Sets the power mode, if the profile names one and that may be done, and takes up the day of wear.
// sysroot is "" on a board, else a folder with sys/, proc/, etc/ and var/ of another. settings and
// store are borrowed.
cn_err cn_upkeep_init(struct cn_upkeep *care, const struct cn_settings *settings,
                      struct cn_store *store, const char *sysroot);
void cn_upkeep_deinit(struct cn_upkeep *care);

// Tells the hooks what is new, reads and decides once a second. True when a pause began, ended or
// has another reason; the log and the hook were told.
bool cn_upkeep_poll(struct cn_upkeep *care, const struct cn_progress *progress, uint64_t now_ms);

// Since 1970, and since local midnight; 0 and CN_PAUSE_NO_CLOCK while the clock was never set.
uint64_t cn_upkeep_clock_s(void);
uint64_t cn_upkeep_day_ms(void);
