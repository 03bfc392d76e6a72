#include "aggregator/serve/listening.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "runtime/port/platform.h"

#define FILE_NAME "listening"

cn_err cn_listening_write(const struct cn_settings *settings)
{
    const struct cn_gateway_settings *gateway = &settings->gateway;
    char path[PATH_MAX], text[CN_LINK_ADDRESSES * CN_ADDRESS_SIZE + CN_PATH_SIZE + 2];
    size_t size = 0;
    int length = snprintf(path, sizeof(path), "%s/" FILE_NAME, settings->state);
    if (length < 0 || (size_t)length >= sizeof(path))
        return CN_EINVAL;
    text[0] = '\0';
    for (uint32_t i = 0; i < gateway->listen_count; i++)
        size += (size_t)snprintf(text + size, sizeof(text) - size, "%s\n", gateway->listen[i]);
    if (settings->http.listen[0])
        snprintf(text + size, sizeof(text) - size, "%s\n", settings->http.listen);
    return cn_platform_replace_note(path, text);
}

bool cn_listening_has(const char *directory, const char *address)
{
    char path[PATH_MAX], line[CN_PATH_SIZE + 1];
    bool found = false;
    snprintf(path, sizeof(path), "%s/" FILE_NAME, directory);
    FILE *file = fopen(path, "r");
    if (!file)
        return true;
    while (!found && fgets(line, sizeof(line), file)) {
        line[strcspn(line, "\n")] = '\0';
        found = strcmp(line, address) == 0;
    }
    fclose(file);
    return found;
}
