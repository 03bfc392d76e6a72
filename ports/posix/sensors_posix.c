// sensors_posix.c - sensors of Linux: /sys/class/{thermal,hwmon,power_supply}, cpufreq, /proc.
//
// Sources: Documentation/ABI/testing/sysfs-class-{thermal,power},
// Documentation/admin-guide/pm/cpufreq.rst and Documentation/hwmon/{sysfs-interface,ina3221}.rst of
// Linux; proc(5). In get_throttled of the Raspberry Pi, bits 0 to 3 are the present state, higher
// bits the past.
#include <dirent.h>
#include <errno.h>
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "runtime/base/text_file.h"
#include "runtime/base/words.h"
#include "runtime/port/sensors.h"

#define LABELS_SIZE 128
#define PATH_SIZE 1024
#define CHANNELS 8

// Readings beyond these limits are wrong: cut wires read as -273 or 0xffff.
#define TEMPERATURE_MIN_MC (-45000)
#define TEMPERATURE_MAX_MC 150000
#define POWER_MAX_UW INT64_C(2000000000)

struct cn_sensors {
    char root[PATH_SIZE / 2];
    char zones[LABELS_SIZE], powers[LABELS_SIZE];
    uint64_t busy, total, own; // clock ticks at the last reading: all busy, all, this process
    bool has_ticks;
};

// Reads one integer from folder/name. Returns false if the driver fails, as some do while the
// device sleeps, or gives no number.
static bool read_number(const char *folder, const char *name, int64_t *value)
{
    char text[64], *end;

    if (!cn_text_file_line(folder, name, text, sizeof(text)))
        return false;
    *value = strtoll(text, &end, 10);
    return end != text && *end == '\0';
}

// Returns whether the space-separated list contains word. An empty list contains every word.
static bool is_listed(const char *list, const char *word)
{
    size_t length = strlen(word);

    if (!list[0])
        return true;
    for (const char *at = list; length && (at = strstr(at, word)); at += length)
        if ((at == list || at[-1] == ' ') && (at[length] == ' ' || at[length] == '\0'))
            return true;
    return false;
}

// Calls visit for each folder of /sys/class/CLASS whose name starts with prefix.
static void each(const struct cn_sensors *sensors, const char *class, const char *prefix,
                 void (*visit)(const struct cn_sensors *sensors, const char *folder, void *context),
                 void *context)
{
    char folder[PATH_SIZE / 2 + 64], path[PATH_SIZE];
    const struct dirent *entry;
    DIR *list;

    snprintf(folder, sizeof(folder), "%s/sys/class/%s", sensors->root, class);
    list = opendir(folder);
    while (list && (entry = readdir(list))) {
        if (strncmp(entry->d_name, prefix, strlen(prefix)) != 0)
            continue;
        snprintf(path, sizeof(path), "%s/%.100s", folder, entry->d_name);
        visit(sensors, path, context);
    }
    if (list)
        closedir(list);
}

// Keeps the temperature of this thermal zone in the reading if it is listed, plausible and the
// hottest so far.
static void read_zone(const struct cn_sensors *sensors, const char *folder, void *context)
{
    struct cn_reading *reading = context;
    char type[sizeof(reading->zone)];
    int64_t value;

    if (!cn_text_file_line(folder, "type", type, sizeof(type)) ||
        !is_listed(sensors->zones, type) || !read_number(folder, "temp", &value) ||
        value < TEMPERATURE_MIN_MC || value > TEMPERATURE_MAX_MC)
        return;
    if (reading->has_temperature && value <= reading->temperature_mc)
        return;
    reading->has_temperature = true;
    reading->temperature_mc = (int32_t)value;
    memcpy(reading->zone, type, sizeof(type));
}

// Notes throttling if a cooling device is active. Fans do not slow the board down, and "TCC Offset"
// is a setting of the limit rather than cooling.
static void read_cooling(const struct cn_sensors *sensors, const char *folder, void *context)
{
    struct cn_reading *reading = context;
    char type[64];
    int64_t state;

    (void)sensors;
    if (cn_text_file_line(folder, "type", type, sizeof(type)) && !strcasestr(type, "fan") &&
        strcmp(type, "TCC Offset") != 0 && read_number(folder, "cur_state", &state) && state > 0)
        reading->throttled = true;
}

// Reads the power of a hwmon channel in microwatts: measured directly, or volts times amperes.
static bool read_channel(const char *folder, unsigned channel, int64_t *power_uw)
{
    char name[32];
    int64_t millivolts, milliamperes;

    snprintf(name, sizeof(name), "power%u_input", channel);
    if (read_number(folder, name, power_uw))
        return *power_uw >= 0 && *power_uw <= POWER_MAX_UW;
    snprintf(name, sizeof(name), "in%u_input", channel);
    if (!read_number(folder, name, &millivolts) || millivolts < 0 || millivolts > 100000)
        return false;
    snprintf(name, sizeof(name), "curr%u_input", channel);
    if (!read_number(folder, name, &milliamperes) || milliamperes < 0 || milliamperes > 100000)
        return false;
    *power_uw = millivolts * milliamperes;
    return *power_uw <= POWER_MAX_UW;
}

// Finds the label of a channel. Channel 1 without a label gets the name of its chip.
static void label_of(const char *folder, unsigned channel, char label[64])
{
    char name[32];

    snprintf(name, sizeof(name), "power%u_label", channel);
    if (cn_text_file_line(folder, name, label, 64))
        return;
    snprintf(name, sizeof(name), "in%u_label", channel);
    if (!cn_text_file_line(folder, name, label, 64) && channel == 1)
        cn_text_file_line(folder, "name", label, 64);
}

struct rail {
    const char *label;
    bool found;
    int64_t power_uw;
};

static void read_rail(const struct cn_sensors *sensors, const char *folder, void *context)
{
    struct rail *rail = context;

    (void)sensors;
    for (unsigned channel = 1; channel <= CHANNELS && !rail->found; channel++) {
        char label[64];

        label_of(folder, channel, label);
        rail->found = label[0] && strcmp(label, rail->label) == 0 &&
                      read_channel(folder, channel, &rail->power_uw);
    }
}

// Adds up the rails in "A+B+C". Returns false if one of them is missing.
static bool add_rails(const struct cn_sensors *sensors, char *labels, int64_t *power_uw)
{
    char *state = NULL;

    *power_uw = 0;
    for (char *label = strtok_r(labels, "+", &state); label; label = strtok_r(NULL, "+", &state)) {
        struct rail rail = {.label = label};

        each(sensors, "hwmon", "hwmon", read_rail, &rail);
        if (!rail.found)
            return false;
        *power_uw += rail.power_uw;
    }
    return true;
}

// Reads the power of the first entry of sensors->powers whose rails are all found.
static void read_power(const struct cn_sensors *sensors, struct cn_reading *reading)
{
    char labels[LABELS_SIZE];
    int64_t power_uw;

    for (const char *at = sensors->powers; cn_words_next(&at, labels, sizeof(labels));) {
        if (!add_rails(sensors, labels, &power_uw))
            continue;
        reading->has_power = true;
        reading->power_mw = (uint64_t)power_uw / 1000;
        return;
    }
}

// Notes throttling that the Raspberry Pi's firmware reports. On some boards the folder's name
// contains a bus address, hence the pattern.
static void read_firmware(const struct cn_sensors *sensors, struct cn_reading *reading)
{
    char pattern[PATH_SIZE];
    glob_t found;

    snprintf(pattern, sizeof(pattern), "%s/sys/devices/platform/soc*/soc*:firmware", sensors->root);
    if (glob(pattern, 0, NULL, &found) == 0) {
        char text[32];

        if (cn_text_file_line(found.gl_pathv[0], "get_throttled", text, sizeof(text)) &&
            (strtoul(text, NULL, 16) & 15))
            reading->throttled = true;
        globfree(&found);
    }
}

// Reads the charge of a battery that powers the board now. Batteries of devices such as a mouse are
// skipped.
static void read_battery(const struct cn_sensors *sensors, const char *folder, void *context)
{
    struct cn_reading *reading = context;
    char text[64];
    int64_t percent;

    (void)sensors;
    if (!cn_text_file_line(folder, "type", text, sizeof(text)) || strcmp(text, "Battery") != 0 ||
        (cn_text_file_line(folder, "scope", text, sizeof(text)) && strcmp(text, "Device") == 0) ||
        !cn_text_file_line(folder, "status", text, sizeof(text)) ||
        strcmp(text, "Discharging") != 0)
        return;
    reading->on_battery = true;
    if (read_number(folder, "capacity", &percent) && percent >= 0 && percent <= 100)
        reading->battery = (double)percent / 100;
}

// Reads the mean, over the cpufreq policies, of allowed frequency / full frequency. A power mode, a
// governor and cooling can each lower it.
static void read_clock(const struct cn_sensors *sensors, struct cn_reading *reading)
{
    char pattern[PATH_SIZE];
    double shares = 0;
    size_t count = 0;
    glob_t found;

    snprintf(pattern, sizeof(pattern), "%s/sys/devices/system/cpu/cpufreq/policy*", sensors->root);
    if (glob(pattern, 0, NULL, &found) != 0)
        return;
    for (size_t i = 0; i < found.gl_pathc; i++) {
        int64_t now, full;

        if (!read_number(found.gl_pathv[i], "scaling_max_freq", &now) ||
            !read_number(found.gl_pathv[i], "cpuinfo_max_freq", &full) || now <= 0 || full < now)
            continue;
        shares += (double)now / (double)full;
        count++;
    }
    globfree(&found);
    reading->has_clock = count > 0;
    reading->clock = count ? shares / (double)count : 0;
}

// Reads the busy and total ticks of all processors and the ticks of this process from /proc/stat
// and /proc/self/stat.
static bool read_ticks(const struct cn_sensors *sensors, uint64_t *busy, uint64_t *total,
                       uint64_t *own)
{
    char folder[PATH_SIZE / 2 + 16], text[1024];
    unsigned long long t[8] = {0}, user, system;
    const char *end;

    snprintf(folder, sizeof(folder), "%s/proc", sensors->root);
    if (!cn_text_file_line(folder, "stat", text, sizeof(text)) ||
        sscanf(text, "cpu %llu %llu %llu %llu %llu %llu %llu %llu", &t[0], &t[1], &t[2], &t[3],
               &t[4], &t[5], &t[6], &t[7]) < 4)
        return false;
    *busy = t[0] + t[1] + t[2] + t[5] + t[6] + t[7];
    *total = *busy + t[3] + t[4];
    if (!cn_text_file_line(folder, "self/stat", text, sizeof(text)))
        return false;
    end = strrchr(text, ')'); // skips the program's name in brackets, which may contain anything
    if (!end || sscanf(end + 1, " %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %llu %llu", &user,
                       &system) != 2)
        return false;
    *own = user + system;
    return true;
}

// Reads the share of processor time that other programs used since the previous reading.
static void read_load(struct cn_sensors *sensors, struct cn_reading *reading)
{
    uint64_t busy, total, own;

    if (!read_ticks(sensors, &busy, &total, &own)) {
        sensors->has_ticks = false;
        return;
    }
    if (sensors->has_ticks && total > sensors->total && busy >= sensors->busy) {
        double all = (double)(total - sensors->total);
        double others = (double)(busy - sensors->busy) - (double)(own - sensors->own);

        reading->has_others = true;
        reading->others = others > 0 ? others / all : 0;
    }
    sensors->busy = busy;
    sensors->total = total;
    sensors->own = own;
    sensors->has_ticks = true;
}

// Reads the bytes that this process has caused to be written to storage, from getrusage: it counts
// the same bytes in blocks of 512. After cn_platform_hide_memory only root may open /proc/self/io.
static void read_written_blocks(struct cn_reading *reading)
{
    struct rusage usage;

    if (getrusage(RUSAGE_SELF, &usage))
        return;
    reading->has_written = true;
    reading->written = (uint64_t)usage.ru_oublock * 512;
}

// Reads the bytes that this process has caused to be written to storage since it started.
static void read_written(const struct cn_sensors *sensors, struct cn_reading *reading)
{
    char path[PATH_SIZE / 2 + 32], line[128];
    unsigned long long bytes;
    FILE *file;

    snprintf(path, sizeof(path), "%s/proc/self/io", sensors->root);
    file = fopen(path, "re");
    if (!file && errno == EACCES)
        read_written_blocks(reading);
    while (file && !reading->has_written && fgets(line, sizeof(line), file)) {
        reading->has_written = sscanf(line, "write_bytes: %llu", &bytes) == 1;
        if (reading->has_written)
            reading->written = bytes;
    }
    if (file)
        fclose(file);
}

cn_err cn_sensors_open(const char *root, const char *zones, const char *powers,
                       struct cn_sensors **result)
{
    struct cn_sensors *sensors;

    if (strlen(root) >= sizeof(sensors->root) || strlen(zones) >= sizeof(sensors->zones) ||
        strlen(powers) >= sizeof(sensors->powers))
        return CN_ERANGE;
    sensors = calloc(1, sizeof(*sensors));
    if (!sensors)
        return CN_ENOMEM;
    memcpy(sensors->root, root, strlen(root));
    memcpy(sensors->zones, zones, strlen(zones));
    memcpy(sensors->powers, powers, strlen(powers));
    *result = sensors;
    return CN_OK;
}

void cn_sensors_close(struct cn_sensors *sensors)
{
    free(sensors);
}

void cn_sensors_read(struct cn_sensors *sensors, struct cn_reading *reading)
{
    *reading = (struct cn_reading){0};
    each(sensors, "thermal", "thermal_zone", read_zone, reading);
    each(sensors, "thermal", "cooling_device", read_cooling, reading);
    each(sensors, "power_supply", "", read_battery, reading);
    read_clock(sensors, reading);
    read_power(sensors, reading);
    read_firmware(sensors, reading);
    read_load(sensors, reading);
    read_written(sensors, reading);
}
