#include "aggregator/store/spool_name.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SUFFIX ".part-"

void cn_spool_name(uint32_t round, const char *group, char name[CN_SPOOL_NAME_SIZE])
{
    snprintf(name, CN_SPOOL_NAME_SIZE, "round-%u-%s.update", round, group);
}

cn_err cn_spool_parse_name(const char *name, uint32_t *round, char group[CN_NAME_SIZE])
{
    static const char prefix[] = "round-", suffix[] = ".update";
    char again[CN_SPOOL_NAME_SIZE], *end;
    size_t length = strlen(name);
    if (strncmp(name, prefix, sizeof(prefix) - 1) != 0 || length >= sizeof(again))
        return CN_EFORMAT;
    unsigned long number = strtoul(name + sizeof(prefix) - 1, &end, 10);
    size_t taken = (size_t)(end - name) + 1 + sizeof(suffix) - 1; // all except the group
    if (*end != '-' || number > UINT32_MAX || length < taken || length - taken >= CN_NAME_SIZE)
        return CN_EFORMAT;
    memcpy(group, end + 1, length - taken);
    group[length - taken] = '\0';
    *round = (uint32_t)number;
    if (!cn_name_valid(group))
        return CN_EFORMAT;
    // Accepts only the spelling that cn_spool_name gives.
    cn_spool_name(*round, group, again);
    return strcmp(name, again) == 0 ? CN_OK : CN_EFORMAT;
}

void cn_spool_part_name(uint32_t round, const char *owner, uint32_t part,
                        char name[CN_SPOOL_NAME_SIZE])
{
    snprintf(name, CN_SPOOL_NAME_SIZE, "round-%u-%s" SUFFIX "%u", round, owner, part);
}

bool cn_spool_parse_part_name(const char *name, uint32_t *round, char owner[CN_NAME_SIZE],
                              uint32_t *part)
{
    char copy[CN_SPOOL_NAME_SIZE], again[CN_SPOOL_NAME_SIZE];
    size_t length = strlen(name);
    if (length >= sizeof(copy) || !strstr(name, SUFFIX))
        return false;
    memcpy(copy, name, length + 1);
    char *suffix = strstr(copy, SUFFIX);
    for (char *next = suffix; (next = strstr(next + 1, SUFFIX));)
        suffix = next; // the last one, because a board's name may contain SUFFIX too
    *part = (uint32_t)strtoul(suffix + sizeof(SUFFIX) - 1, NULL, 10);
    snprintf(suffix, sizeof(copy) - (size_t)(suffix - copy), ".update");
    if (cn_spool_parse_name(copy, round, owner) != CN_OK)
        return false;
    cn_spool_part_name(*round, owner, *part, again);
    return strcmp(name, again) == 0; // only the spelling that cn_spool_part_name gives
}
