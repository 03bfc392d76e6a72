// selftest_link.c - registers at the aggregator as a node does, and fetches the newest version.
//
// A board can have only one session. While its node runs, the test would end the node's session, so
// the link is not tested then.
#include <stdio.h>
#include <string.h>

#include "runtime/command/link_pump.h"
#include "runtime/command/selftest.h"
#include "runtime/port/crypto.h"
#include "runtime/port/platform.h"
#include "runtime/port/store.h"
#include "runtime/round/node/node_link.h"

#define LIMIT_MS 15000
#define POLL_MS 20
#define VERSION_MAX (1u << 30)

struct trial {
    struct cn_link *link;
    cJSON *object;
    // Clock at the start of the test; clock at the start of the fetch, and once fetched its
    // duration.
    uint64_t begun_us, fetch_us;
    uint64_t size; // bytes of the version that is fetched; 0: not known yet
    bool registered, fetched, refused;
    char why[160]; // the last error that the link reported
};

static void add(cJSON *object, const char *name, double value)
{
    char text[32];

    snprintf(text, sizeof(text), "%.5g", value);
    cJSON_AddRawToObject(object, name, text);
}

static cn_err fetch(struct trial *trial, const struct cn_round_info *round)
{
    if (trial->size || !round->version_size)
        return CN_OK;
    trial->size = round->version_size;
    trial->fetch_us = cn_platform_now_us();
    return trial->link->ops->fetch(trial->link, round->version_digest, trial->size, VERSION_MAX);
}

// Notes why there is no link, without the address before it: the report has none.
static void note_why(struct trial *trial, const char *text)
{
    const char *reason = strstr(text, ": ");

    snprintf(trial->why, sizeof(trial->why), "%s", reason ? reason + 2 : text);
}

static cn_err take_event(void *context, const struct cn_link_event *event)
{
    struct trial *trial = context;

    switch (event->type) {
    case CN_LINK_REGISTERED:
        trial->registered = true;
        add(trial->object, "register_ms", (double)(cn_platform_now_us() - trial->begun_us) / 1000);
        return trial->link->ops->watch(trial->link, true);
    case CN_LINK_ROUND:
        return fetch(trial, event->round);
    case CN_LINK_FETCHED:
        trial->fetched = true;
        trial->fetch_us = cn_platform_now_us() - trial->fetch_us;
        return CN_OK;
    case CN_LINK_REFUSED:
        trial->refused = true;
        note_why(trial, event->text);
        return CN_OK;
    case CN_LINK_DOWN:
        note_why(trial, event->text);
        return CN_OK;
    default:
        return CN_OK;
    }
}

static cn_err wait_for_answers(struct trial *trial)
{
    uint64_t until_ms = cn_platform_now_ms() + LIMIT_MS;
    cn_err err = CN_OK;

    while (!err && !trial->fetched && !trial->refused && cn_platform_now_ms() < until_ms)
        err = cn_link_pump(trial->link, POLL_MS, take_event, trial);
    return err ? err : trial->registered ? CN_OK : trial->refused ? CN_EAUTH : CN_ETIMEOUT;
}

static void add_measures(const struct trial *trial)
{
    struct cn_link_path_stats measure;

    trial->link->ops->measure(trial->link, &measure);
    if (measure.rtt_us)
        add(trial->object, "rtt_ms", (double)measure.rtt_us / 1000);
    if (measure.rtt_us)
        add(trial->object, "loss", measure.loss);
    if (trial->fetched) {
        add(trial->object, "fetched_bytes", (double)trial->size);
        add(trial->object, "down_mbit_s",
            (double)trial->size * 8 / (double)(trial->fetch_us ? trial->fetch_us : 1));
    } else if (measure.down_bps > 0) { // a large model over a thin link was fetched in part
        add(trial->object, "down_mbit_s", measure.down_bps / 1e6);
    }
}

static cn_err try_link(const struct cn_selftest *test, const uint8_t key[CN_KEY_SIZE],
                       cJSON *object)
{
    const struct cn_settings *settings = test->settings;
    struct trial trial = {.object = object, .begun_us = cn_platform_now_us()};
    cn_err err;

    err = cn_node_link_open(test->ports->link, settings, key, NULL, &trial.link);
    if (err)
        return err;
    err = cn_node_link_register(trial.link, settings, NULL);
    if (!err)
        err = wait_for_answers(&trial);
    cJSON_AddStringToObject(object, "state",
                            trial.registered ? "registered"
                            : trial.refused  ? "refused"
                                             : "no answer");
    if (err && trial.why[0])
        cJSON_AddStringToObject(object, "error", trial.why);
    add_measures(&trial);
    trial.link->ops->close(trial.link);
    return err;
}

cn_err cn_selftest_link(const struct cn_selftest *test, cJSON *report)
{
    uint8_t key[CN_KEY_SIZE];
    static struct cn_diag diag;
    struct cn_store *store = NULL;
    cJSON *object;
    cn_err err;

    if (!test->settings)
        return CN_OK;
    object = cJSON_AddObjectToObject(report, "link");
    err = cn_platform_open_store(test->settings->state, &store);
    if (err == CN_EEXIST) {
        cJSON_AddStringToObject(object, "state",
                                "not tried: a node is running; see cairn-node status");
        return CN_OK;
    }
    cn_diag_init(&diag);
    if (!err)
        err = test->ports->load_link_key(test->settings, &diag, key);
    cn_command_print_diag(&diag);
    if (!err)
        err = try_link(test, key, object);
    cn_crypto_wipe(key, sizeof(key));
    if (err && !cJSON_GetObjectItem(object, "error"))
        cJSON_AddStringToObject(object, "error", cn_err_text(err));
    if (store)
        store->ops->close(store);
    return err;
}
