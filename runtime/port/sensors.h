// sensors.h - what the board measures of itself: heat, power, load, wear. One implementation per
// program, linked in.
//
// Sensors are found by their labels at each reading, since numbers change from boot to boot and
// sensors come and go. A value that no board can have is no value. Nothing here needs root.
// Threading: one thread for each object.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "runtime/base/error.h"

struct cn_sensors;

struct cn_reading {
    bool has_temperature;
    int32_t temperature_mc; // the hottest of the chosen zones, in thousandths of a degree Celsius
    char zone[32];          // which that is
    bool has_power;
    uint64_t power_mw;
    bool throttled; // the system slows itself down for heat or power
    bool has_clock;
    double clock; // what the processors may run at, as a share of what they could
    bool on_battery;
    double battery; // share that is left
    bool has_others;
    double others; // share of all processors that other programs used since the last reading
    bool has_written;
    uint64_t written; // bytes this process has written to disks
};

// zones and powers are labels with blanks between them. zones "": all; powers "": none, else the
// first that is there counts; "A+B" is the sum of two rails, for boards that have no sensor of all
// power. root is "" on a board; tests give a recorded
// tree with sys/ and proc/.
cn_err cn_sensors_open(const char *root, const char *zones, const char *powers,
                       struct cn_sensors **sensors);
void cn_sensors_close(struct cn_sensors *sensors);

void cn_sensors_read(struct cn_sensors *sensors, struct cn_reading *reading);
