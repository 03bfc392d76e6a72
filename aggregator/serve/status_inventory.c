#include "aggregator/serve/status_inventory.h"

#include <stddef.h>
#include <stdio.h>

// The texts of a board with two systems.
static const struct {
    const char *key;
    size_t at, size;
} systems[] = {
#define TEXT(member)                                                                               \
    {                                                                                              \
#member, offsetof(struct cn_inventory, member), sizeof(((struct cn_inventory *)0)->member) \
    }
    TEXT(slot),
    TEXT(slot_version),
    TEXT(update),
    TEXT(update_version),
#undef TEXT
};

void cn_status_inventory_add(cJSON *board, const struct cn_inventory *inventory)
{
    if (inventory->build[0])
        cJSON_AddStringToObject(board, "build", inventory->build);
    if (inventory->system[0])
        cJSON_AddStringToObject(board, "system", inventory->system);
    if (inventory->disk_size) {
        cJSON_AddNumberToObject(board, "disk_size", (double)inventory->disk_size);
        cJSON_AddNumberToObject(board, "disk_free", (double)inventory->disk_free);
    }
    for (size_t i = 0; i < sizeof(systems) / sizeof(systems[0]); i++) {
        const char *text = (const char *)inventory + systems[i].at;

        if (text[0])
            cJSON_AddStringToObject(board, systems[i].key, text);
    }
}

static void read_text(const cJSON *board, const char *key, char *text, size_t size)
{
    const char *value = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(board, key));
    snprintf(text, size, "%s", value ? value : "");
}

static uint64_t read_bytes(const cJSON *board, const char *key)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(board, key);
    return cJSON_IsNumber(item) && item->valuedouble >= 0 && item->valuedouble < 0x1p63
               ? (uint64_t)item->valuedouble
               : 0;
}

void cn_status_inventory_read(const cJSON *board, struct cn_inventory *inventory)
{
    read_text(board, "build", inventory->build, sizeof(inventory->build));
    read_text(board, "system", inventory->system, sizeof(inventory->system));
    inventory->disk_size = read_bytes(board, "disk_size");
    inventory->disk_free = read_bytes(board, "disk_free");
    for (size_t i = 0; i < sizeof(systems) / sizeof(systems[0]); i++)
        read_text(board, systems[i].key, (char *)inventory + systems[i].at, systems[i].size);
}

void cn_status_inventory_text(const struct cn_inventory *inventory, char text[CN_SYSTEMS_TEXT_SIZE])
{
    int length;

    text[0] = '\0';
    if (!inventory->slot[0])
        return;
    length = snprintf(text, CN_SYSTEMS_TEXT_SIZE, "slot %s, version %s", inventory->slot,
                      inventory->slot_version[0] ? inventory->slot_version : "unknown");
    if (inventory->update[0] && length > 0)
        snprintf(text + length, CN_SYSTEMS_TEXT_SIZE - (size_t)length, "; update to %s: %s",
                 inventory->update_version[0] ? inventory->update_version : "unknown",
                 inventory->update);
}
