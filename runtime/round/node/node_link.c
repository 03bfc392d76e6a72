#include "runtime/round/node/node_link.h"

#include <stdio.h>
#include <string.h>

#include "runtime/port/crypto.h"
#include "runtime/port/platform.h"

cn_err cn_node_link_open(const struct cn_link_ops *ops, const struct cn_settings *settings,
                         const uint8_t key[CN_KEY_SIZE], struct cn_store *store,
                         struct cn_link **link)
{
    struct cn_link_config config = {
        .board = settings->name,
        .address_count = settings->address_count,
        .uplink_bps = settings->uplink_bps,
        .transport = settings->transport,
        .store = store,
    };
    cn_err err;

    memcpy(config.key, key, CN_KEY_SIZE);
    for (uint32_t i = 0; i < settings->address_count; i++)
        config.addresses[i] = settings->addresses[i];
    err = ops->open(&config, link);
    cn_crypto_wipe(config.key, sizeof(config.key));
    return err;
}

// Writes the names of the data sets of the profile; "" when they do not fit.
static void name_data_sets(const struct cn_settings *settings, char names[CN_DATA_SETS_SIZE])
{
    size_t used = 0;

    for (uint32_t i = 0; i < settings->data_count && used < CN_DATA_SETS_SIZE; i++)
        used += (size_t)snprintf(names + used, CN_DATA_SETS_SIZE - used, "%s%s", i ? " " : "",
                                 settings->data[i].name);
    if (used >= CN_DATA_SETS_SIZE)
        names[0] = '\0';
}

// Returns the bytes that are there for training: all of the board's without a limit.
static uint64_t memory_of(const struct cn_settings *settings)
{
    if (settings->memory_limit)
        return settings->memory_limit;
    return settings->memory_size ? settings->memory_size : cn_platform_memory_size();
}

cn_err cn_node_link_register(struct cn_link *link, const struct cn_settings *settings,
                             const struct cn_node_facts *facts)
{
    const struct cn_node_ahead *ahead = facts ? facts->ahead : NULL;
    struct cn_registration registration = {
        .cpu_count = cn_platform_cpu_count(),
        .memory = memory_of(settings),
        .power_mw = settings->power_mw,
        .member_count = settings->group.member_count,
        .ahead_lineage = ahead ? ahead->lineage : 0,
        .ahead_version = ahead ? ahead->version : 0,
        .instance = facts ? facts->instance : 0,
    };

    if (facts) {
        snprintf(registration.fault, sizeof(registration.fault), "%s", facts->fault);
        registration.fault_code = facts->fault_code;
        registration.fault_run = facts->fault_run;
        registration.gpu = facts->gpu;
        registration.inventory = *facts->inventory;
    }
    name_data_sets(settings, registration.data_sets);
    memcpy(registration.board_type, settings->board_type, CN_NAME_SIZE);
    for (uint32_t i = 0; i < settings->group.member_count; i++)
        memcpy(registration.members[i], settings->group.members[i].name, CN_NAME_SIZE);
    return link->ops->register_board(link, &registration);
}
