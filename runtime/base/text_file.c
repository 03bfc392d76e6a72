#include "runtime/base/text_file.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#define PATH_SIZE 4352 // bytes: PATH_MAX (4096) and a file name

bool cn_text_file_line(const char *folder, const char *name, char *line, size_t size)
{
    char path[PATH_SIZE];
    FILE *file = NULL;
    bool got;

    if ((size_t)snprintf(path, sizeof(path), "%s/%s", folder, name) < sizeof(path))
        file = fopen(path, "re");
    got = file && fgets(line, (int)size, file);
    if (file)
        fclose(file);
    if (!got)
        line[0] = '\0';
    for (size_t i = strlen(line); i > 0 && isspace((unsigned char)line[i - 1]); i--)
        line[i - 1] = '\0';
    return got;
}
