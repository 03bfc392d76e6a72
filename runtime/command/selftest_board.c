// selftest_board.c - what this board is: system, firmware, GPU, clock, sensors.
#include <glob.h>
#include <gnu/libc-version.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/timex.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

#include "runtime/base/text_file.h"
#include "runtime/command/board_find.h"
#include "runtime/command/selftest.h"
#include "runtime/port/platform.h"
#include "runtime/port/power_mode.h"
#include "runtime/port/sensors.h"

#define GIB (1024.0 * 1024 * 1024)
#define PATH_SIZE 1024

// Adds the name of the processor on x86. Adds nothing on ARM, whose kernel gives numbers only.
static void add_processor(const char *sysroot, cJSON *system)
{
    char path[PATH_SIZE], line[256];
    const char *value;
    FILE *file;

    snprintf(path, sizeof(path), "%s/proc/cpuinfo", sysroot);
    file = fopen(path, "re");
    while (file && fgets(line, sizeof(line), file)) {
        if (strncmp(line, "model name", 10) != 0 || !(value = strchr(line, ':')))
            continue;
        line[strcspn(line, "\n")] = '\0';
        cJSON_AddStringToObject(system, "processor", value + 1 + strspn(value + 1, " "));
        break;
    }
    if (file)
        fclose(file);
}

static void add_board(const struct cn_selftest *test, cJSON *report)
{
    static struct cn_board_identity identity;
    char directory[512], board[CN_NAME_SIZE];
    cJSON *object = cJSON_AddObjectToObject(report, "board");
    cJSON *names = cJSON_CreateArray();

    cn_board_find_identity(test->sysroot, &identity);
    if (!cn_board_find_directory(test->boards, directory, sizeof(directory)))
        cJSON_AddStringToObject(object, "type", "no folder of boards is there");
    else if (cn_board_find(directory, &identity, board))
        cJSON_AddStringToObject(object, "type", board);
    else
        cJSON_AddStringToObject(object, "type", "not known");
    for (size_t i = 0; i < identity.count; i++)
        cJSON_AddItemToArray(names, cJSON_CreateString(identity.names[i]));
    cJSON_AddItemToObject(object, "firmware", names);
}

void cn_selftest_system(const struct cn_selftest *test, cJSON *report)
{
    cJSON *system = cJSON_AddObjectToObject(report, "system");
    struct utsname name;
    char text[256];

    if (uname(&name) == 0) {
        snprintf(text, sizeof(text), "%.60s %.100s", name.sysname, name.release);
        cJSON_AddStringToObject(system, "kernel", text);
        cJSON_AddStringToObject(system, "machine", name.machine);
    }
    cJSON_AddStringToObject(system, "glibc", gnu_get_libc_version());
    add_processor(test->sysroot, system);
    cJSON_AddNumberToObject(system, "processors_usable", cn_platform_cpu_count());
    cJSON_AddNumberToObject(system, "processors", (double)sysconf(_SC_NPROCESSORS_CONF));
    snprintf(text, sizeof(text), "%.2f",
             (double)sysconf(_SC_PHYS_PAGES) * (double)sysconf(_SC_PAGESIZE) / GIB);
    cJSON_AddRawToObject(system, "memory_gib", text);
    add_board(test, report);
}

// Adds the path of the file to which the link `name` of a GPU library leads. That file's name
// contains the version of the library.
static void add_library(cJSON *object, const char *sysroot, const char *key, const char *name)
{
    static const char *const folders[] = {
        "/usr/lib/aarch64-linux-gnu",
        "/usr/lib/aarch64-linux-gnu/tegra",
        "/usr/lib/aarch64-linux-gnu/nvidia",
        "/usr/lib/x86_64-linux-gnu",
        "/usr/local/cuda/lib64",
        "/usr/local/cuda*/targets/*/lib",
        "/usr/lib64",
    };

    for (size_t i = 0; i < sizeof(folders) / sizeof(folders[0]); i++) {
        char pattern[PATH_SIZE], real[PATH_MAX];
        glob_t found;

        snprintf(pattern, sizeof(pattern), "%s%s/%s", sysroot, folders[i], name);
        if (glob(pattern, 0, NULL, &found) != 0)
            continue;
        cJSON_AddStringToObject(object, key,
                                realpath(found.gl_pathv[0], real) ? real : found.gl_pathv[0]);
        globfree(&found);
        return;
    }
    cJSON_AddStringToObject(object, key, "not there");
}

static void add_line(cJSON *object, const char *sysroot, const char *key, const char *path)
{
    char line[256];

    cJSON_AddStringToObject(
        object, key, cn_text_file_line(sysroot, path, line, sizeof(line)) ? line : "not there");
}

void cn_selftest_gpu(const struct cn_selftest *test, cJSON *report)
{
    cJSON *gpu = cJSON_AddObjectToObject(report, "gpu");

    add_line(gpu, test->sysroot, "l4t", "/etc/nv_tegra_release");
    add_line(gpu, test->sysroot, "driver", "/proc/driver/nvidia/version");
    add_library(gpu, test->sysroot, "cuda_driver", "libcuda.so.1");
    add_library(gpu, test->sysroot, "cuda_runtime", "libcudart.so.[0-9]*");
    add_library(gpu, test->sysroot, "cublas", "libcublasLt.so.[0-9]*");
    add_library(gpu, test->sysroot, "cudnn", "libcudnn.so.[0-9]*");
    add_library(gpu, test->sysroot, "nccl", "libnccl.so.2");
}

// The kernel knows whether a program keeps the clock synchronised (adjtimex(2)).
void cn_selftest_clock(cJSON *report)
{
    cJSON *clock = cJSON_AddObjectToObject(report, "clock");
    struct timex state = {0};
    time_t now = time(NULL);
    struct tm parts;
    char text[64];

    if (gmtime_r(&now, &parts) && strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%SZ", &parts))
        cJSON_AddStringToObject(clock, "utc", text);
    cJSON_AddBoolToObject(clock, "synchronised", adjtimex(&state) != TIME_ERROR);
    snprintf(text, sizeof(text), "%.0f", (double)cn_platform_now_ms() / 1000);
    cJSON_AddRawToObject(clock, "since_boot_s", text);
}

static void add_power_modes(const char *sysroot, cJSON *sensors)
{
    struct cn_power_modes modes;
    cJSON *list;

    if (cn_power_modes_read(sysroot, &modes))
        return;
    list = cJSON_AddArrayToObject(sensors, "power_modes");
    for (size_t i = 0; i < modes.count; i++)
        cJSON_AddItemToArray(list, cJSON_CreateString(modes.modes[i].name));
    if (modes.current)
        cJSON_AddStringToObject(sensors, "power_mode", modes.current->name);
}

void cn_selftest_sensors(const struct cn_selftest *test, cJSON *report)
{
    static const char powers[] = "VDD_IN VDD_GPU_SOC+VDD_CPU_CV+VIN_SYS_5V0 ina238";
    cJSON *object = cJSON_AddObjectToObject(report, "sensors");
    struct cn_sensors *sensors;
    struct cn_reading reading;
    char text[32];

    if (cn_sensors_open(test->sysroot, "", powers, &sensors))
        return;
    cn_sensors_read(sensors, &reading);
    cn_sensors_close(sensors);
    if (reading.has_temperature) {
        snprintf(text, sizeof(text), "%.1f", reading.temperature_mc / 1000.0);
        cJSON_AddRawToObject(object, "temperature_c", text);
        cJSON_AddStringToObject(object, "hottest_zone", reading.zone);
    }
    if (reading.has_power) {
        snprintf(text, sizeof(text), "%.2f", (double)reading.power_mw / 1000);
        cJSON_AddRawToObject(object, "power_w", text);
    }
    cJSON_AddBoolToObject(object, "throttled", reading.throttled);
    cJSON_AddBoolToObject(object, "writes_counted", reading.has_written);
    add_power_modes(test->sysroot, object);
}
