#include "aggregator/serve/status_health.h"

#include <stddef.h>
#include <stdio.h>

// The members of the file that are numbers; u32 and u64 fields of struct cn_health.
static const struct {
    const char *key;
    size_t offset;
    bool wide;
} members[] = {
    {"state", offsetof(struct cn_health, state), false},
    {"round", offsetof(struct cn_health, round), false},
    {"step", offsetof(struct cn_health, step), false},
    {"steps", offsetof(struct cn_health, steps), false},
    {"temperature_mk", offsetof(struct cn_health, temperature_mk), true},
    {"power_mw", offsetof(struct cn_health, power_mw), true},
    {"centisamples", offsetof(struct cn_health, centisamples), true},
    {"flags", offsetof(struct cn_health, flags), true},
    {"error_code", offsetof(struct cn_health, error_code), true},
    {"seq", offsetof(struct cn_health, seq), true},
    {"resident_mib", offsetof(struct cn_health, resident_mib), true},
    {"samples", offsetof(struct cn_health, samples), true},
};

void cn_status_health_add(cJSON *board, const struct cn_board_health *health)
{
    if (!health->told_ms)
        return;
    cJSON *object = cJSON_AddObjectToObject(board, "health");
    cJSON_AddNumberToObject(object, "told_ms", (double)health->told_ms);
    for (size_t i = 0; i < sizeof(members) / sizeof(members[0]); i++) {
        const char *from = (const char *)&health->said + members[i].offset;
        const void *place = from;
        cJSON_AddNumberToObject(object, members[i].key,
                                members[i].wide ? (double)*(const uint64_t *)place
                                                : (double)*(const uint32_t *)place);
    }
    if (health->said.error[0])
        cJSON_AddStringToObject(object, "error", health->said.error);
    if (health->said.rest[0])
        cJSON_AddStringToObject(object, "rest", health->said.rest);
}

static uint64_t read_number(const cJSON *object, const char *key, double limit)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(object, key);
    return cJSON_IsNumber(item) && item->valuedouble >= 0 && item->valuedouble < limit
               ? (uint64_t)item->valuedouble
               : 0;
}

static void read_text(const cJSON *object, const char *key, size_t size, char *text)
{
    const char *found = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(object, key));
    char cleaned[CN_FAULT_SIZE];
    cn_fault_clean(cleaned, found ? found : "");
    snprintf(text, size, "%.*s", (int)size - 1, cleaned);
}

void cn_status_health_read(const cJSON *board, struct cn_board_health *health)
{
    const cJSON *object = cJSON_GetObjectItemCaseSensitive(board, "health");
    *health = (struct cn_board_health){.told_ms = read_number(object, "told_ms", 1e15)};
    for (size_t i = 0; i < sizeof(members) / sizeof(members[0]); i++) {
        char *to = (char *)&health->said + members[i].offset;
        void *place = to;
        uint64_t value = read_number(object, members[i].key, 4294967296.0);
        if (members[i].wide)
            *(uint64_t *)place = value;
        else
            *(uint32_t *)place = (uint32_t)value;
    }
    read_text(object, "error", CN_HEALTH_ERROR_SIZE, health->said.error);
    read_text(object, "rest", CN_HEALTH_REST_SIZE, health->said.rest);
}
