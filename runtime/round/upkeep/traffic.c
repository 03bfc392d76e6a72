#include "runtime/round/upkeep/traffic.h"

#include "runtime/base/bytes.h"
#include "runtime/base/log.h"
#include "runtime/round/upkeep/small_file.h"

#define FILE_NAME "traffic"
#define BODY_SIZE 24
#define DAY_MS UINT64_C(86400000)
#define PARTS 100

static const char magic[] = "cairntr1"; // the digit is the version

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
    if (day_ms == CN_PAUSE_NO_CLOCK)
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

bool cn_traffic_is_scarce(const struct cn_traffic *traffic, const struct cn_traffic_rules *rules,
                          uint64_t day_ms)
{
    return is_metered(rules, day_ms) ||
           (rules->day_bytes && traffic->used >= rules->day_bytes - rules->day_bytes / 10);
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
    uint8_t body[BODY_SIZE];
    uint64_t stored_s;

    *traffic = (struct cn_traffic){0};
    if (!cn_small_file_load(store, FILE_NAME, magic, "the bytes of today start from zero", body,
                            sizeof(body)))
        return;
    traffic->elapsed_ms = cn_get_u64(body) < DAY_MS ? cn_get_u64(body) : DAY_MS;
    traffic->used = traffic->stored = cn_get_u64(body + 8);
    traffic->begun = traffic->used > 0;
    stored_s = cn_get_u64(body + 16);
    if (clock_s && stored_s && clock_s > stored_s)
        traffic->elapsed_ms += (clock_s - stored_s) * 1000;
}

void cn_traffic_save(struct cn_store *store, const struct cn_traffic_rules *rules, uint64_t clock_s,
                     bool now, struct cn_traffic *traffic)
{
    uint8_t body[BODY_SIZE];
    cn_err err;

    if (!rules->day_bytes || traffic->used == traffic->stored ||
        (!now && traffic->used - traffic->stored < rules->day_bytes / PARTS))
        return;
    cn_put_u64(body, traffic->elapsed_ms < DAY_MS ? traffic->elapsed_ms : DAY_MS);
    cn_put_u64(body + 8, traffic->used);
    cn_put_u64(body + 16, clock_s);
    err = cn_small_file_save(store, FILE_NAME, magic, body, sizeof(body));
    if (err)
        cn_log(CN_LOG_WARN, "traffic", "today's count of bytes cannot be stored: %s",
               cn_err_text(err));
    else
        traffic->stored = traffic->used;
}
