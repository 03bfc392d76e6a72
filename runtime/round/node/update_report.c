#include "runtime/round/node/update_report.h"

#include <stdio.h>
#include <string.h>

#include "runtime/base/text_file.h"

static bool is_word(const char *text, size_t size)
{
    static const char allowed[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                  "0123456789+-._~";
    size_t length = strspn(text, allowed);

    return length > 0 && length < size && text[length] == '\0';
}

// Copies a word, which fits.
static void put(char *text, const char *value)
{
    text[0] = '\0';
    if (strcmp(value, "unknown") != 0)
        memcpy(text, value, strlen(value) + 1);
}

void cn_update_report_decode(const char *line, struct cn_inventory *inventory)
{
    char slot[16], version[80], result[128], *update_version, end;

    inventory->slot[0] = inventory->slot_version[0] = '\0';
    inventory->update[0] = inventory->update_version[0] = '\0';
    if (sscanf(line, "%15s %79s %127s %c", slot, version, result, &end) != 3)
        return;
    update_version = strchr(result, ':');
    if (update_version)
        *update_version++ = '\0';
    if (!is_word(slot, sizeof(inventory->slot)) ||
        !is_word(version, sizeof(inventory->slot_version)) ||
        !is_word(result, sizeof(inventory->update)) ||
        (update_version && !is_word(update_version, sizeof(inventory->update_version))))
        return;
    put(inventory->slot, slot);
    put(inventory->slot_version, version);
    if (!update_version)
        return; // there was no update yet
    put(inventory->update, result);
    put(inventory->update_version, update_version);
}

void cn_update_report_read(const char *sysroot, char line[CN_UPDATE_REPORT_SIZE])
{
    cn_text_file_line(sysroot, CN_UPDATE_REPORT_FILE, line, CN_UPDATE_REPORT_SIZE);
}
