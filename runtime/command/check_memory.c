#include "runtime/command/check_memory.h"

#include <inttypes.h>
#include <stdio.h>

#define GIB (1024.0 * 1024 * 1024)

// Returns the bytes of memory that the kernel has, from "MemTotal: 64302412 kB"; 0: not known.
// Firmware and GPU keep some, so it is less than the board is sold with.
static uint64_t read_total(const char *sysroot)
{
    char path[1024], line[128];
    uint64_t kib = 0;
    FILE *file;

    snprintf(path, sizeof(path), "%s/proc/meminfo", sysroot);
    file = fopen(path, "re");
    while (file && kib == 0 && fgets(line, sizeof(line), file))
        if (sscanf(line, "MemTotal: %" SCNu64 " kB", &kib) != 1)
            kib = 0;
    if (file)
        fclose(file);
    return kib * 1024;
}

bool cn_check_memory(const char *what, const struct cn_settings *settings, const char *sysroot)
{
    uint64_t total = read_total(sysroot);

    if (total == 0 || settings->memory_limit <= total)
        return true;
    fprintf(stderr,
            "%s: error: memory.train_max: %.1f GiB, but this machine has %.1f GiB; set "
            "memory.size and memory.train_max in the site's profile\n",
            what, (double)settings->memory_limit / GIB, (double)total / GIB);
    return false;
}
