#include "runtime/group/backend.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>

#define FORM_MS 5000 // longest time for the fast port to open

// The encrypted collective and, if wanted, the fast one.
struct backend {
    struct cn_collective base;
    struct cn_collective *secure;
    struct cn_collective *fast; // NULL: not open
    const char *why;            // why fast is not open
    char text[CN_NAME_SIZE + 64];
};

static struct cn_collective *used(const struct cn_collective *collective)
{
    const struct backend *backend = (const struct backend *)collective;

    return backend->fast ? backend->fast : backend->secure;
}

static void backend_close(struct cn_collective *collective)
{
    struct backend *backend = (struct backend *)collective;

    if (!backend)
        return;
    if (backend->fast)
        backend->fast->ops->close(backend->fast);
    backend->secure->ops->close(backend->secure);
    free(backend);
}

static cn_err backend_prepare(struct cn_collective *collective, const struct cn_set *sets,
                              uint32_t count)
{
    return used(collective)->ops->prepare(used(collective), sets, count);
}

static cn_err backend_run(struct cn_collective *collective, const struct cn_collective_call *call)
{
    return used(collective)->ops->run(used(collective), call);
}

static void backend_cancel(struct cn_collective *collective, bool gives_up)
{
    used(collective)->ops->cancel(used(collective), gives_up);
}

static cn_err backend_check(struct cn_collective *collective)
{
    return used(collective)->ops->check(used(collective));
}

static uint32_t backend_lost(const struct cn_collective *collective)
{
    return used(collective)->ops->lost(used(collective));
}

static const struct cn_collective_ops backend_ops = {
    .name = "backend",
    .close = backend_close,
    .prepare = backend_prepare,
    .run = backend_run,
    .cancel = backend_cancel,
    .check = backend_check,
    .lost = backend_lost,
};

static cn_err open_fast(struct backend *backend, const struct cn_collective_ops *fast,
                        const struct cn_collective_config *config, uint32_t *lost)
{
    struct cn_collective_config with = *config;
    cn_err err;

    assert(fast);
    with.control = backend->secure;
    with.open_timeout_ms = FORM_MS;
    err = fast->open(&with, &backend->fast, lost);
    if (err != CN_ENOTSUP)
        return err;
    backend->fast = NULL;
    backend->why = "it did not come about on all members, see the log";
    return CN_OK;
}

// Asks all members; the fast port opens only if all want it.
static cn_err agree(struct backend *backend, const struct cn_backend_ports *ports,
                    const struct cn_collective_config *config, uint32_t *lost)
{
    struct cn_collective *secure = backend->secure;
    float wanted[CN_GROUP_MAX] = {0};
    uint32_t first = 0;
    cn_err err;

    if (config->view.size == 1)
        return CN_OK;
    wanted[config->view.rank] = ports->fast ? 1 : 0;
    err = cn_all_reduce(secure, CN_REDUCE_SUM, wanted, config->view.size);
    if (err) {
        *lost = secure->ops->lost(secure);
        return err;
    }
    while (first < config->view.size && wanted[first] == 1)
        first++;
    if (first == config->view.size)
        return open_fast(backend, ports->fast, config, lost);
    snprintf(backend->text, sizeof(backend->text), "%s does not have it or does not trust the LAN",
             config->members[config->view.ranks[first]].name);
    backend->why = backend->text;
    return CN_OK;
}

cn_err cn_backend_open(const struct cn_backend_ports *ports,
                       const struct cn_collective_config *config, struct cn_collective **collective,
                       uint32_t *lost)
{
    struct backend *backend = calloc(1, sizeof(*backend));
    cn_err err = backend ? ports->secure->open(config, &backend->secure, lost) : CN_ENOMEM;

    if (err) {
        free(backend);
        return err;
    }
    backend->base.ops = &backend_ops;
    err = agree(backend, ports, config, lost);
    if (err) {
        backend_close(&backend->base);
        return err;
    }
    if (!ports->fast)
        backend->why = NULL; // this board does not want it
    *collective = &backend->base;
    return CN_OK;
}

const char *cn_backend_name(const struct cn_collective *collective, const char **why)
{
    const struct backend *backend = (const struct backend *)collective;

    *why = NULL;
    if (collective->ops != &backend_ops)
        return collective->ops->name;
    *why = backend->fast ? backend->fast->gave_up : backend->why;
    return *why || !backend->fast ? backend->secure->ops->name : backend->fast->ops->name;
}
