// Files of a profile: reading them, and finding the files of board types.
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "runtime/profile/profile_private.h"

// Opens regular files only. A device or a pipe could block or never end.
static const char *open_regular(const char *path, FILE **file)
{
    struct stat status;

    if (stat(path, &status) != 0)
        return strerror(errno);
    if (!S_ISREG(status.st_mode))
        return "it is not a file";
    *file = fopen(path, "rb");
    return *file ? NULL : strerror(errno);
}

char *cn_profile_read_file(const char *path, struct cn_mark mark, struct cn_diagnostics *report,
                           size_t *size)
{
    char quoted[CN_QUOTE_SIZE];
    FILE *file = NULL;
    const char *problem = open_regular(path, &file);
    char *text = NULL;

    if (!problem) {
        text = malloc(CN_YAML_SIZE_MAX + 1);
        *size = text ? fread(text, 1, CN_YAML_SIZE_MAX + 1, file) : 0;
        if (!text)
            problem = cn_err_text(CN_ENOMEM);
        else if (ferror(file))
            problem = "reading it failed";
        else if (*size > CN_YAML_SIZE_MAX)
            problem = "it has more than 1 MiB";
        fclose(file);
    }
    if (!problem)
        return text;
    free(text);
    cn_diagnostics_error(report, mark, "%s cannot be used: %s; expected a profile",
                         cn_quote(quoted, path), problem);
    return NULL;
}

static bool is_board(const char *directory, const char *name, char path[CN_PATH_SIZE])
{
    struct stat status;

    return snprintf(path, CN_PATH_SIZE, "%s/boards/%s/board.yaml", directory, name) <
               CN_PATH_SIZE &&
           stat(path, &status) == 0 && S_ISREG(status.st_mode);
}

bool cn_profile_find_board(const char *name, const struct cn_profile_file *from,
                           struct cn_mark mark, struct cn_diagnostics *report,
                           char path[CN_PATH_SIZE])
{
    char *directory = realpath(from->directory, NULL);
    char *end = directory ? directory + strlen(directory) : NULL;
    bool found = false;

    while (!found && end) {
        *end = '\0';
        found = is_board(directory, name, path);
        end = strrchr(directory, '/');
    }
    free(directory);
    if (!found)
        found = is_board(CAIRN_DATA_DIR, name, path);
    if (!found)
        cn_diagnostics_error(
            report, mark,
            "extends: '%s' is not known; expected a path or a type of board, found as "
            "boards/%s/board.yaml above this file or among the installed boards",
            name, name);
    return found;
}
