#include "runtime/group/backend.h"

#include <assert.h>
#include <stdlib.h>

#include "runtime/base/log.h"

#define FORM_MS 5000 // for the fast one to open

// Both, while the fast one works.
struct backend {
    struct cn_collective base;
    struct cn_collective *secure, *fast;
};

static void backend_close(struct cn_collective *collective)
{
    struct backend *backend = (struct backend *)collective;

    if (!backend)
        return;
    backend->fast->ops->close(backend->fast);
    backend->secure->ops->close(backend->secure);
    free(backend);
}

static cn_err backend_prepare(struct cn_collective *collective, const struct cn_set *sets,
                              uint32_t count)
{
    struct backend *backend = (struct backend *)collective;

    return backend->fast->ops->prepare(backend->fast, sets, count);
}

static cn_err backend_run(struct cn_collective *collective, const struct cn_collective_call *call)
{
    struct backend *backend = (struct backend *)collective;

    return backend->fast->ops->run(backend->fast, call);
}

static void backend_cancel(struct cn_collective *collective)
{
    struct backend *backend = (struct backend *)collective;

    backend->fast->ops->cancel(backend->fast);
}

static cn_err backend_check(struct cn_collective *collective)
{
    struct backend *backend = (struct backend *)collective;

    return backend->fast->ops->check(backend->fast);
}

static uint32_t backend_lost(const struct cn_collective *collective)
{
    const struct backend *backend = (const struct backend *)collective;

    return backend->fast->ops->lost(backend->fast);
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

// Takes secure: it is the result's, or closed.
static cn_err add_fast(const struct cn_collective_ops *fast,
                       const struct cn_collective_config *config, struct cn_collective *secure,
                       struct cn_collective **collective, uint32_t *lost)
{
    struct cn_collective_config with = *config;
    struct backend *backend = calloc(1, sizeof(*backend));
    cn_err err;

    assert(fast);
    with.control = secure;
    with.open_timeout_ms = FORM_MS;
    *collective = secure;
    if (!backend)
        err = CN_ENOMEM;
    else
        err = fast->open(&with, &backend->fast, lost);
    if (!err) {
        backend->base.ops = &backend_ops;
        backend->secure = secure;
        *collective = &backend->base;
        return CN_OK;
    }
    free(backend);
    if (err == CN_ENOTSUP)
        return CN_OK;
    secure->ops->close(secure);
    return err;
}

cn_err cn_backend_open(const struct cn_backend_ports *ports,
                       const struct cn_collective_config *config, struct cn_collective **collective,
                       uint32_t *lost)
{
    float wanted = ports->fast ? 1 : 0;
    struct cn_collective *secure;
    cn_err err = ports->secure->open(config, &secure, lost);

    if (err)
        return err;
    if (config->view.size > 1) {
        err = cn_all_reduce(secure, CN_REDUCE_MIN, &wanted, 1);
        if (err) {
            *lost = secure->ops->lost(secure);
            secure->ops->close(secure);
            return err;
        }
    }
    *collective = secure;
    if (wanted < 1 || config->view.size == 1)
        return CN_OK;
    return add_fast(ports->fast, config, secure, collective, lost);
}

const char *cn_backend_name(const struct cn_collective *collective)
{
    if (collective->ops != &backend_ops)
        return collective->ops->name;
    return ((const struct backend *)collective)->fast->ops->name;
}
