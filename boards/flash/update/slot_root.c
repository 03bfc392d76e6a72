#include "boards/flash/update/slot_root.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "boards/flash/tool/console.h"

#define EXTLINUX "/boot/extlinux/extlinux.conf"
#define FSTAB "/etc/fstab"

// Copies the line at text, without its newline. Returns the start of the next line, or NULL.
static const char *take_line(const char *text, char *line, size_t size)
{
    size_t length = strcspn(text, "\n");

    snprintf(line, size, "%.*s", (int)length, text);
    return text[length] ? text + length + 1 : NULL;
}

bool cn_slot_root_in_extlinux(const char *text)
{
    char line[2048], word[16];

    while (text) {
        text = take_line(text, line, sizeof(line));
        if (sscanf(line, "%15s", word) != 1 || word[0] == '#')
            continue;
        if (strcasecmp(word, "APPEND") == 0 && strstr(line, " root="))
            return true;
    }
    return false;
}

bool cn_slot_root_in_fstab(const char *text)
{
    char line[2048], device[256], point[256];

    while (text) {
        text = take_line(text, line, sizeof(line));
        if (sscanf(line, "%255s %255s", device, point) == 2 && strcmp(point, "/") == 0 &&
            (strncmp(device, "UUID=", 5) == 0 || strncmp(device, "PARTUUID=", 9) == 0))
            return true;
    }
    return false;
}

// Reads a small file of the image's root; "" without one.
static void read_text(const struct cn_image_file *image, const char *path, char *text, size_t size)
{
    struct cn_process_result result;

    text[0] = '\0';
    if (cn_image_file_cat(image, path, &result) == CN_OK && result.out.size)
        snprintf(text, size, "%.*s", (int)result.out.size, (const char *)result.out.data);
    cn_process_deinit(&result);
}

void cn_slot_root_warn(const struct cn_image_file *image, const char *what)
{
    bool extlinux, fstab;
    char text[8192];

    read_text(image, EXTLINUX, text, sizeof(text));
    extlinux = cn_slot_root_in_extlinux(text);
    read_text(image, FSTAB, text, sizeof(text));
    fstab = cn_slot_root_in_fstab(text);
    if (extlinux || fstab)
        cn_console_step("warning",
                        "warning: %s%s%s of %s names its root, which only one slot has; "
                        "cairn-update mends that in extlinux.conf of a Jetson only; "
                        "boards/update/README.md says more",
                        extlinux ? EXTLINUX : "", extlinux && fstab ? " and " : "",
                        fstab ? FSTAB : "", what);
}
