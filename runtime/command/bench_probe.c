#include "runtime/command/bench_probe.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/random.h"
#include "runtime/command/link_pump.h"
#include "runtime/engine/onnx/export.h"
#include "runtime/engine/onnx/onnx.h"
#include "runtime/port/crypto.h"
#include "runtime/port/platform.h"
#include "runtime/round/node/node_link.h"

#define LIMIT_MS 60000
#define POLL_MS 20
#define GRAPH_MAX (256u << 20)
#define FETCH_MAX (4u << 20)  // bytes; a larger version would take long and show no more
#define SEND_MAX (256u << 10) // bytes of the update that is sent

enum step { STEP_REGISTER, STEP_GRAPH, STEP_ROUND, STEP_VERSION, STEP_SEND, STEP_DONE };

struct trial {
    struct cn_link *link;
    struct cn_probe *probe;
    struct cn_diag *diag;
    enum step step;
    uint8_t *content; // the bytes that are sent; owned
    char why[160];    // the last error that the link reported
};

static cn_err take_manifest(struct trial *trial, const struct cn_manifest *manifest)
{
    if (trial->step != STEP_REGISTER)
        return CN_OK;
    trial->probe->job = manifest->job;
    trial->step = STEP_GRAPH;
    return trial->link->ops->fetch(trial->link, manifest->graph, manifest->graph_size, GRAPH_MAX);
}

// Sends an update of run 0, which the aggregator takes for a measurement. It is no larger than the
// model, because the aggregator refuses larger ones.
static cn_err send_content(struct trial *trial, uint64_t version_size)
{
    size_t size = version_size < SEND_MAX ? (size_t)version_size : SEND_MAX;
    struct cn_link_upload upload = {.run = CN_RUN_MEASUREMENT, .round = 1, .size = size};

    trial->step = STEP_SEND;
    trial->content = calloc(size ? size : 1, 1);
    if (!trial->content)
        return CN_ENOMEM;
    for (size_t i = 0; i + 16 <= size; i += 16) {
        uint32_t numbers[4];

        cn_random_block(cn_platform_now_us(), 0, i, numbers);
        memcpy(trial->content + i, numbers, sizeof(numbers));
    }
    upload.frame = trial->content;
    cn_crypto_digest(trial->content, size, upload.digest);
    return trial->link->ops->upload(trial->link, &upload);
}

static cn_err take_round(struct trial *trial, const struct cn_round_info *round)
{
    if (trial->step != STEP_ROUND)
        return CN_OK;
    if (round->version_size > FETCH_MAX)
        return send_content(trial, round->version_size);
    trial->step = STEP_VERSION;
    return trial->link->ops->fetch(trial->link, round->version_digest, round->version_size,
                                   FETCH_MAX);
}

static cn_err take_fetched(struct trial *trial, const struct cn_link_event *event)
{
    cn_err err;

    if (trial->step == STEP_VERSION)
        return send_content(trial, event->size);
    if (trial->step != STEP_GRAPH)
        return CN_OK;
    trial->step = STEP_ROUND;
    err = cn_export_restore(event->data, event->size, trial->diag, &trial->probe->onnx);
    return err ? err : trial->link->ops->watch(trial->link, true);
}

static cn_err take_event(void *context, const struct cn_link_event *event)
{
    struct trial *trial = context;

    switch (event->type) {
    case CN_LINK_REGISTERED:
        return take_manifest(trial, event->manifest);
    case CN_LINK_ROUND:
        return take_round(trial, event->round);
    case CN_LINK_FETCHED:
        return take_fetched(trial, event);
    case CN_LINK_GONE: // a newer version replaced the one to fetch: what was measured must suffice
    case CN_LINK_RECEIPT:
        trial->step = STEP_DONE;
        return CN_OK;
    case CN_LINK_REFUSED:
        snprintf(trial->why, sizeof(trial->why), "%s", event->text);
        return CN_EAUTH;
    case CN_LINK_DOWN:
        snprintf(trial->why, sizeof(trial->why), "%s", event->text);
        return CN_OK;
    default:
        return CN_OK;
    }
}

static cn_err wait_for_end(struct trial *trial)
{
    uint64_t until_ms = cn_platform_now_ms() + LIMIT_MS;
    cn_err err = CN_OK;

    // Once the model is here, the time limit ends the measurement without an error.
    while (!err && trial->step != STEP_DONE) {
        if (cn_platform_now_ms() >= until_ms)
            return trial->step > STEP_GRAPH ? CN_OK : CN_ETIMEOUT;
        err = cn_link_pump(trial->link, POLL_MS, take_event, trial);
    }
    return err;
}

cn_err cn_probe_run(const struct cn_ports *ports, const struct cn_settings *settings,
                    const uint8_t key[CN_KEY_SIZE], struct cn_diag *diag, struct cn_probe *probe)
{
    struct trial trial = {.probe = probe, .diag = diag};
    cn_err err;

    cn_buffer_init(&probe->onnx, CN_ONNX_FILE_MAX);
    err = cn_node_link_open(ports->link, settings, key, NULL, &trial.link);
    if (err)
        return err;
    err = cn_node_link_register(trial.link, settings, NULL);
    if (!err)
        err = wait_for_end(&trial);
    if (err)
        cn_diag_add(diag, "the aggregator: %s", trial.why[0] ? trial.why : cn_err_text(err));
    trial.link->ops->measure(trial.link, &probe->measure);
    trial.link->ops->close(trial.link);
    free(trial.content);
    return err;
}

void cn_probe_deinit(struct cn_probe *probe)
{
    cn_buffer_deinit(&probe->onnx);
}
