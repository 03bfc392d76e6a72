#include "runtime/round/traffic.h"

#include <stdlib.h>
#include <string.h>

#include "runtime/base/bytes.h"
#include "runtime/base/log.h"
#include "runtime/port/crypto.h"

#define FILE_NAME "traffic"
#define MAGIC "CNTRAF1\n"
#define BODY_SIZE 32
#define FILE_SIZE (BODY_SIZE + 4)
#define DAY_MS UINT64_C(86400000)
#define PARTS 100

void cn_traffic_count(struct cn_traffic *traffic, uint64_t bytes, uint64_t now_ms)
{
    if (traffic->begun && traffic->counting)
        traffic->elapsed_ms += now_ms - traffic->seen_ms;
    if (traffic->elapsed_ms >= DAY_MS) {
        traffic->used = traffic->stored = traffic->elapsed_ms = 0;
        traffic->begun = false;
    }
    traffic->used += bytes - traffic->seen_bytes;
    traffic->begun = traffic->used > 0;
    traffic->seen_bytes = bytes;
    traffic->seen_ms = now_ms;
    traffic->counting = true;
}

static bool is_metered(const struct cn_traffic_rules *rules, uint64_t day_ms)
{
    uint64_t from = rules->metered_from_ms, to = rules->metered_to_ms;

    if (from == to)
        return false;
    if (day_ms == CN_CARE_NO_CLOCK)
        return true;
    return from < to ? day_ms >= from && day_ms < to : day_ms >= from || day_ms < to;
}

enum cn_pause cn_traffic_decide(const struct cn_traffic *traffic,
                                const struct cn_traffic_rules *rules, uint64_t day_ms)
{
    if (rules->day_bytes && traffic->used >= rules->day_bytes)
        return CN_PAUSE_BYTES;
    return is_metered(rules, day_ms) && !rules->metered_bytes ? CN_PAUSE_METERED : CN_PAUSE_NONE;
}

uint64_t cn_traffic_update_max(const struct cn_traffic *traffic,
                               const struct cn_traffic_rules *rules, uint64_t day_ms)
{
    uint64_t most = is_metered(rules, day_ms) ? rules->metered_bytes : 0;
    uint64_t left = rules->day_bytes > traffic->used ? rules->day_bytes - traffic->used : 0;

    if (rules->day_bytes && (!most || left / 2 < most))
        most = left < 2 ? 1 : left / 2;
    return most;
}

void cn_traffic_load(struct cn_store *store, uint64_t clock_s, struct cn_traffic *traffic)
{
    uint8_t *bytes = NULL;
    size_t size = 0;
    cn_err err = store->ops->load(store, FILE_NAME, FILE_SIZE, &bytes, &size);

    *traffic = (struct cn_traffic){0};
    if (err == CN_ENOTFOUND)
        return;
    if (!err && size == FILE_SIZE && memcmp(bytes, MAGIC, 8) == 0 &&
        cn_get_u32(bytes + BODY_SIZE) == cn_crc32c(0, bytes, BODY_SIZE) &&
        cn_get_u64(bytes + 8) <= DAY_MS) {
        uint64_t stored_s = cn_get_u64(bytes + 24);

        traffic->elapsed_ms = cn_get_u64(bytes + 8);
        traffic->used = traffic->stored = cn_get_u64(bytes + 16);
        traffic->begun = traffic->used > 0;
        if (clock_s && stored_s && clock_s > stored_s)
            traffic->elapsed_ms += (clock_s - stored_s) * 1000;
    } else {
        cn_log(CN_LOG_WARN, "traffic",
               "the file '%s' cannot be used (%s); the bytes of today begin anew", FILE_NAME,
               cn_err_text(err ? err : CN_EFORMAT));
    }
    free(bytes);
}

void cn_traffic_save(struct cn_store *store, const struct cn_traffic_rules *rules, uint64_t clock_s,
                     bool now, struct cn_traffic *traffic)
{
    uint8_t bytes[FILE_SIZE];
    cn_err err;

    if (!rules->day_bytes || traffic->used == traffic->stored ||
        (!now && traffic->used - traffic->stored < rules->day_bytes / PARTS))
        return;
    memcpy(bytes, MAGIC, 8);
    cn_put_u64(bytes + 8, traffic->elapsed_ms < DAY_MS ? traffic->elapsed_ms : DAY_MS);
    cn_put_u64(bytes + 16, traffic->used);
    cn_put_u64(bytes + 24, clock_s);
    cn_put_u32(bytes + BODY_SIZE, cn_crc32c(0, bytes, BODY_SIZE));
    err = cn_store_replace(store, FILE_NAME, bytes, sizeof(bytes));
    if (err)
        cn_log(CN_LOG_WARN, "traffic", "the bytes of today are not stored: %s", cn_err_text(err));
    else
        traffic->stored = traffic->used;
}
