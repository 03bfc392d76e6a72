#include "boards/flash/image/system.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "boards/flash/tool/console.h"
#include "runtime/command/command.h"

#define LIBC_MINOR 34             // the packages need glibc 2.34
#define SPARE ((uint64_t)8 << 20) // bytes left for files that the first boot writes

// Reads a "Field: value" line from one paragraph of the package database.
static void read_field(const char *text, const char *field, char *value, size_t size)
{
    const char *end = strstr(text, "\n\n"), *at = strstr(text, field);

    value[0] = '\0';
    if (at && (!end || at < end))
        snprintf(value, size, "%.*s", (int)strcspn(at + strlen(field), "\n"), at + strlen(field));
}

void cn_system_read(const char *status, struct cn_system *system)
{
    const char *libc = strstr(status, "Package: libc6\n");

    *system = (struct cn_system){0};
    if (!libc)
        return;
    read_field(libc, "\nArchitecture: ", system->architecture, sizeof(system->architecture));
    read_field(libc, "\nVersion: ", system->libc, sizeof(system->libc));
}

int cn_system_check(const struct cn_system *system, const char *architecture, const char *what)
{
    unsigned major = 0, minor = 0;

    if (strcmp(architecture, "all") != 0 && strcmp(architecture, system->architecture) != 0) {
        cn_console_error("take the packages or the image of the other architecture",
                         "%s holds a system for %s, the packages are for %s", what,
                         system->architecture, architecture);
        return CN_EXIT_FAILED;
    }
    if (sscanf(system->libc, "%u.%u", &major, &minor) == 2 && major == 2 && minor < LIBC_MINOR) {
        cn_console_error("JetPack 6, Debian 12, Ubuntu 22.04 or later have it",
                         "%s has glibc %s; the packages need 2.%d", what, system->libc, LIBC_MINOR);
        return CN_EXIT_FAILED;
    }
    return CN_EXIT_DONE;
}

void cn_system_note_wizard(const char *target, const char *what)
{
    if (strstr(target, "nv-oem-config.target"))
        cn_console_step("note",
                        "%s boots to JetPack's wizard, for which a board without a screen waits: "
                        "Linux_for_Tegra/tools/l4t_create_default_user.sh makes the user instead",
                        what);
}

int cn_system_check_free(uint64_t free_size, const struct cn_payload *payload, const char *what)
{
    uint64_t needed = cn_payload_size(payload) + SPARE;

    if (needed <= free_size)
        return CN_EXIT_DONE;
    cn_console_error("grow the partition and its file system first, or make room",
                     "%s: its root has %" PRIu64 " MiB free, %" PRIu64 " MiB are needed", what,
                     free_size >> 20, needed >> 20);
    return CN_EXIT_FAILED;
}
