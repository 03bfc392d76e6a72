#include "boards/flash/board/target_path.h"

#include <stdbool.h>
#include <string.h>

#include "boards/flash/board/payload.h"

// The files and folders that cairn-flash itself makes on a board.
static const char *const own[] = {CN_PAYLOAD_ETC "/node.yaml",
                                  CN_PAYLOAD_ETC "/node.yaml.old",
                                  CN_PAYLOAD_ETC "/node.yaml.trying",
                                  CN_PAYLOAD_ETC "/node.key",
                                  CN_PAYLOAD_SEED,
                                  CN_PAYLOAD_UNIT,
                                  CN_PAYLOAD_UNIT_LINK};

// Tells whether path is folder or lies below it.
static bool is_below(const char *path, const char *folder)
{
    size_t length = strlen(folder);

    return strncmp(path, folder, length) == 0 && (path[length] == '\0' || path[length] == '/');
}

// Tells whether a name of the path is "." or "..", or empty, as in "//" and at the end of "/data/".
static bool has_odd_name(const char *path)
{
    while (*path == '/') {
        size_t length = strcspn(++path, "/");

        if (length == 0 || (length == 1 && path[0] == '.') ||
            (length == 2 && path[0] == '.' && path[1] == '.'))
            return true;
        path += length;
    }
    return false;
}

const char *cn_target_path_clash(const char *path, const char *other)
{
    size_t length = strlen(other);

    if (strcmp(path, other) == 0)
        return "is the place of another file, too";
    if (is_below(path, other))
        return "lies below another file";
    if (is_below(other, path))
        return "is the folder of another file";
    // rootfs and ssh write a file beside its place first, as NAME.new.
    if ((strncmp(path, other, length) == 0 && strcmp(path + length, ".new") == 0) ||
        (strncmp(path, other, strlen(path)) == 0 && strcmp(other + strlen(path), ".new") == 0))
        return "is where another file is written before it gets its name";
    return NULL;
}

const char *cn_target_path_fault(const char *path)
{
    if (path[0] != '/')
        return "is not absolute";
    if (strspn(path, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789/._+~-") !=
        strlen(path))
        return "has other characters than letters, digits and / . _ + ~ -";
    if (has_odd_name(path))
        return "has a part that is empty, '.' or '..'";
    for (size_t i = 0; i < sizeof(own) / sizeof(own[0]); i++)
        if (is_below(path, own[i]) || cn_target_path_clash(path, own[i]))
            return "is in the way of the files that cairn-flash makes";
    return NULL;
}
