// sensors.h - a board's measurements of itself: heat, power, load, wear. One implementation per
// program, linked in.
//
// Sensors are found by their labels at each reading, since their numbers change from boot to boot
// and sensors come and go. An impossible value counts as missing. Nothing here needs root.
// Threading: one thread for each object.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "runtime/base/error.h"

struct cn_sensors;

// A value is valid only when its has_ field is true; battery only when on_battery is.
struct cn_reading {
    bool has_temperature;
    int32_t temperature_mc; // hottest of the chosen zones, in thousandths of a degree Celsius
    char zone[32];          // label of that zone
    bool has_power;
    uint64_t power_mw;
    bool throttled; // the system slows itself down for heat or power
    bool has_clock;
    double clock; // processor clock limit now / highest possible clock, 0 to 1
    bool on_battery;
    double battery; // charge that is left, 0 to 1
    bool has_others;
    double others; // share of all processors that other programs used since the last reading
    bool has_written;
    uint64_t written; // bytes that this process has written to disks
};

// Opens the sensors. zones and powers are lists of labels, separated by blanks. Empty zones chooses
// all zones. Empty powers measures no power; else the first label that exists counts. A label "A+B"
// is the sum of the power rails A and B, for boards without a sensor of the total. root is "" on a
// board; tests give a recorded tree with sys/ and proc/. Returns CN_ENOMEM, or CN_ERANGE for a text
// that is too long.
cn_err cn_sensors_open(const char *root, const char *zones, const char *powers,
                       struct cn_sensors **sensors);
void cn_sensors_close(struct cn_sensors *sensors);

// Takes a reading. Missing values are marked in reading; there is no error.
void cn_sensors_read(struct cn_sensors *sensors, struct cn_reading *reading);
