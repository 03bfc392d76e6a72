// Any text is an fstab: what is found is a mount point above the path, or nothing.
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "boards/flash/image/mounts.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char path[] = "/boot/firmware/overlays/a.dtbo";
    char *text = malloc(size + 1);
    struct cn_mount mount;

    if (!text)
        return 0;
    if (size)
        memcpy(text, data, size);
    text[size] = '\0';
    if (cn_mounts_find(text, path, &mount) &&
        (strncmp(path, mount.point, strlen(mount.point)) != 0 || !mount.type[0] ||
         path[strlen(mount.point)] != '/'))
        abort();
    free(text);
    return 0;
}
