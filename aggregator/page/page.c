#include "aggregator/page/page.h"

#include <string.h>

const struct cn_page_file *cn_page_find(const char *path)
{
    size_t count;
    const struct cn_page_file *files = cn_page_files(&count);
    for (size_t i = 0; i < count; i++)
        if (strcmp(files[i].path, path) == 0)
            return &files[i];
    return NULL;
}
