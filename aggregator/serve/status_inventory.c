#include "aggregator/serve/status_inventory.h"

#include <stdio.h>

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
}
