#include "runtime/round/node/inventory.h"

#include <stdio.h>
#include <string.h>

#include "runtime/base/build_version.h"
#include "runtime/base/text_file.h"
#include "runtime/port/platform.h"
#include "runtime/round/node/update_report.h"

// JetPack releases by the release of Jetson Linux (L4T) in them, the newest first. A release of L4T
// belongs to the newest JetPack of its major number that is not newer. Source: NVIDIA's JetPack
// archive (developer.nvidia.com/embedded/jetpack-archive).
static const struct {
    unsigned major, minor, patch;
    const char *jetpack;
} jetpacks[] = {
    {39, 2, 0, "7.2"}, {38, 4, 0, "7.1"}, {38, 2, 0, "7.0"}, {36, 4, 4, "6.2.1"},
    {36, 4, 3, "6.2"}, {36, 4, 0, "6.1"}, {36, 3, 0, "6.0"}, {35, 1, 0, "5"},
};

static unsigned rank(unsigned minor, unsigned patch)
{
    return minor << 8 | patch;
}

// Reads "# R36 (release), REVISION: 4.3, GCID: 38968081, BOARD: generic, ...".
static bool name_jetpack(const char *line, char text[CN_SYSTEM_TEXT_SIZE])
{
    unsigned major, minor, patch = 0;

    if (sscanf(line, "# R%3u (release), REVISION: %3u.%3u", &major, &minor, &patch) < 2 ||
        minor > 255 || patch > 255)
        return false;
    snprintf(text, CN_SYSTEM_TEXT_SIZE, "L4T %u.%u.%u", major, minor, patch);
    for (size_t i = 0; i < sizeof(jetpacks) / sizeof(jetpacks[0]); i++) {
        if (jetpacks[i].major != major ||
            rank(jetpacks[i].minor, jetpacks[i].patch) > rank(minor, patch))
            continue;
        snprintf(text, CN_SYSTEM_TEXT_SIZE, "JetPack %s (L4T %u.%u.%u)", jetpacks[i].jetpack, major,
                 minor, patch);
        break;
    }
    return true;
}

// The value of PRETTY_NAME, without its quotes.
static void name_distribution(const char *sysroot, char text[CN_SYSTEM_TEXT_SIZE])
{
    static const char key[] = "PRETTY_NAME=";
    char path[1024], line[256];
    FILE *file;

    snprintf(path, sizeof(path), "%s/etc/os-release", sysroot);
    file = fopen(path, "re");
    while (file && fgets(line, sizeof(line), file)) {
        char *value = line + sizeof(key) - 1;

        if (strncmp(line, key, sizeof(key) - 1) != 0)
            continue;
        value += strspn(value, "\"'");
        value[strcspn(value, "\"'\n")] = '\0';
        snprintf(text, CN_SYSTEM_TEXT_SIZE, "%.*s", CN_SYSTEM_TEXT_SIZE - 1, value);
        break;
    }
    if (file)
        fclose(file);
}

void cn_inventory_system(const char *sysroot, char text[CN_SYSTEM_TEXT_SIZE])
{
    char line[256];

    text[0] = '\0';
    if (!cn_text_file_line(sysroot, "/etc/nv_tegra_release", line, sizeof(line)) ||
        !name_jetpack(line, text))
        name_distribution(sysroot, text);
    // A message with a control character is malformed; only ASCII is shown.
    for (char *c = text; *c; c++)
        if (*c < ' ' || *c > '~')
            *c = '?';
}

void cn_inventory_take(const char *sysroot, const char *state, struct cn_inventory *inventory)
{
    char report[CN_UPDATE_REPORT_SIZE];

    *inventory = (struct cn_inventory){0};
    cn_update_report_read(sysroot, report);
    cn_update_report_decode(report, inventory);
    snprintf(inventory->build, sizeof(inventory->build), "%s", cn_build_version);
    cn_inventory_system(sysroot, inventory->system);
    if (cn_platform_disk_size(state, &inventory->disk_size) != CN_OK ||
        cn_platform_disk_free(state, &inventory->disk_free) != CN_OK)
        inventory->disk_size = inventory->disk_free = 0;
}
