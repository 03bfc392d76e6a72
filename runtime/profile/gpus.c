#include "runtime/profile/gpus.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/words.h"

uint32_t cn_gpus_list(const struct cn_settings *settings, uint32_t gpus[CN_GROUP_MAX])
{
    const char *rest = settings->gpus;
    char word[CN_WORDS_SIZE];
    uint32_t count = 0;

    while (count < CN_GROUP_MAX && cn_words_next(&rest, word, sizeof(word)))
        gpus[count++] = (uint32_t)strtoul(word, NULL, 10);
    return count;
}

uint32_t cn_gpus_first(const struct cn_settings *settings)
{
    uint32_t gpus[CN_GROUP_MAX] = {0};

    (void)cn_gpus_list(settings, gpus);
    return gpus[0];
}

void cn_gpus_name(const struct cn_settings *settings, uint32_t gpu, char name[2 * CN_NAME_SIZE])
{
    snprintf(name, 2 * CN_NAME_SIZE, "%s.%u", settings->name, gpu);
}

// Derives the key file of a GPU: "keys/board-1.key" becomes "keys/board-1.0.key".
static cn_err derive_key(char key[CN_PATH_SIZE], uint32_t gpu)
{
    char path[CN_PATH_SIZE + 16];
    size_t length = strlen(key);
    bool ends = length > 4 && strcmp(key + length - 4, ".key") == 0;
    int size = snprintf(path, sizeof(path), "%.*s.%u%s", (int)(ends ? length - 4 : length), key,
                        gpu, ends ? ".key" : "");

    if (size >= CN_PATH_SIZE)
        return CN_ERANGE;
    memcpy(key, path, (size_t)size + 1);
    return CN_OK;
}

// Joins the host of group.listen with the port under which the others know this member.
static cn_err derive_listen(struct cn_group_settings *group, const char *name)
{
    char *colon = strrchr(group->listen, ':');

    for (uint32_t i = 0; colon && i < group->member_count; i++) {
        const char *port = strrchr(group->members[i].address, ':');

        if (strcmp(group->members[i].name, name) != 0 || !port)
            continue;
        if ((size_t)(colon - group->listen) + strlen(port) >= CN_ADDRESS_SIZE)
            return CN_ERANGE;
        memcpy(colon, port, strlen(port) + 1);
    }
    return CN_OK;
}

cn_err cn_gpus_narrow(struct cn_settings *settings, uint32_t place)
{
    uint32_t gpus[CN_GROUP_MAX], count = cn_gpus_list(settings, gpus);
    char name[2 * CN_NAME_SIZE], state[CN_PATH_SIZE + 16];
    cn_err err;

    if (place >= count)
        return CN_EINVAL;
    cn_gpus_name(settings, gpus[place], name);
    if (strlen(name) >= CN_NAME_SIZE ||
        snprintf(state, sizeof(state), "%s/gpu-%u", settings->state, gpus[place]) >= CN_PATH_SIZE)
        return CN_ERANGE;
    memcpy(settings->name, name, CN_NAME_SIZE);
    memcpy(settings->state, state, strlen(state) + 1);
    snprintf(settings->gpus, sizeof(settings->gpus), "%u", gpus[place]);
    settings->gpu_place = place;
    settings->gpu_count = count;
    err = derive_key(settings->key, gpus[place]);
    return err ? err : derive_listen(&settings->group, name);
}
