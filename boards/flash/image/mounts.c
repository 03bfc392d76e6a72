#include "boards/flash/image/mounts.h"

#include <stdio.h>
#include <string.h>

// Returns the field of the line after the one at `at`. Its length is 0 at the end of the line.
static const char *next_field(const char *at, size_t *length)
{
    at += *length;
    at += strspn(at, " \t");
    *length = strcspn(at, " \t\n");
    return at;
}

static bool read_line(const char *line, struct cn_mount *mount)
{
    size_t length = 0, point_length;
    const char *point = next_field(line, &length), *type;

    if (length == 0 || *point == '#')
        return false;
    point = next_field(point, &length);
    point_length = length;
    type = next_field(point, &length);
    while (point_length > 1 && point[point_length - 1] == '/')
        point_length--;
    if (point_length < 2 || point[0] != '/' || point_length >= sizeof(mount->point) ||
        length == 0 || length >= sizeof(mount->type))
        return false;
    snprintf(mount->point, sizeof(mount->point), "%.*s", (int)point_length, point);
    snprintf(mount->type, sizeof(mount->type), "%.*s", (int)length, type);
    return true;
}

bool cn_mounts_find(const char *fstab, const char *path, struct cn_mount *mount)
{
    size_t longest = 0;

    for (const char *line = fstab; *line; line += strcspn(line, "\n"), line += *line == '\n') {
        struct cn_mount found;
        size_t length;

        if (!read_line(line, &found))
            continue;
        length = strlen(found.point);
        if (length >= longest && strncmp(path, found.point, length) == 0 && path[length] == '/') {
            *mount = found;
            longest = length;
        }
    }
    return longest > 0;
}
