#include "aggregator/store/spool_room.h"

#include <inttypes.h>
#include <string.h>

#include "aggregator/store/spool_private.h"
#include "runtime/base/log.h"
#include "runtime/port/platform.h"

// An upload without a new chunk for this time is dropped if another one needs room.
#define STOPPED_MS 10000

// Says whether the uploads under way and one more of size bytes leave the reserve free. Bytes of
// uploads that are already written count twice, which errs on the safe side.
static bool fits_disk(struct cn_spool *spool, uint64_t size)
{
    const struct cn_spool_config *config = &spool->config;
    uint64_t available;
    if (!config->disk || !config->reserve || cn_platform_disk_free(config->disk, &available))
        return true;
    bool fits = available >= config->reserve && available - config->reserve >= size + spool->used;
    if (!fits && !spool->full_told)
        cn_log_within(&spool->full, cn_platform_now_ms(), CN_LOG_ERROR, "spool",
                      "%s has %" PRIu64 " MiB left and storage.reserve is %" PRIu64
                      " MiB: updates are refused until there is more",
                      config->disk, available >> 20, config->reserve >> 20);
    spool->full_told = !fits;
    return fits;
}

static bool exceeds_limit(const struct cn_spool *spool, uint64_t size)
{
    return spool->config.limit && spool->used + size > spool->config.limit;
}

// Returns the bytes of a group's uploads.
static uint64_t used_by(const struct cn_spool *spool, const char *group)
{
    uint64_t used = 0;
    for (const struct cn_spooled *upload = spool->uploads; upload; upload = upload->next)
        used += strcmp(upload->group, group) == 0 ? upload->declared.size : 0;
    return used;
}

// Returns the number of groups with uploads, the given group included.
static uint32_t count_groups(const struct cn_spool *spool, const char *group)
{
    uint32_t count = 1;
    for (const struct cn_spooled *upload = spool->uploads; upload; upload = upload->next) {
        const struct cn_spooled *first = spool->uploads;
        while (strcmp(first->group, upload->group) != 0)
            first = first->next;
        count += first == upload && strcmp(upload->group, group) != 0;
    }
    return count;
}

static bool has_stopped(const struct cn_spooled *upload, uint64_t now_ms)
{
    return upload->put_ms && now_ms - upload->put_ms >= STOPPED_MS;
}

// Says whether an upload goes on too slowly to be complete in expiry_ms. One without a chunk does.
static bool falls_behind(const struct cn_spool *spool, const struct cn_spooled *upload,
                         uint64_t now_ms)
{
    uint64_t age_ms = now_ms - upload->begun_ms;
    return upload->begun_ms &&
           (!upload->received || (double)upload->received * (double)spool->config.expiry_ms <
                                     (double)upload->chunk_count * (double)age_ms);
}

static void give_way(struct cn_spool *spool, struct cn_spooled *upload, const char *group,
                     uint64_t now_ms)
{
    cn_log_within(cn_log_quota_of(&spool->dropped, upload->board), now_ms, CN_LOG_WARN, "spool",
                  "dropped an upload of %s, group %s: %u of %u chunks of %" PRIu64
                  " bytes came, and group %s needs the room",
                  upload->board, upload->group, upload->received, upload->chunk_count,
                  upload->declared.size, group);
    cn_spool_drop(spool, upload);
}

// Names the group that has most of the room.
static void tell_full(struct cn_spool *spool, const char *group, uint64_t size, uint64_t now_ms)
{
    const struct cn_spooled *holder = spool->uploads;
    uint64_t most = 0;
    for (const struct cn_spooled *upload = spool->uploads; upload; upload = upload->next) {
        uint64_t used = used_by(spool, upload->group);
        if (used > most)
            holder = upload;
        most = used > most ? used : most;
    }
    cn_log_within(cn_log_quota_of(&spool->waits, group), now_ms, CN_LOG_WARN, "spool",
                  "an update of group %s with %" PRIu64 " bytes waits for room: gateway.spool is "
                  "%" PRIu64 " bytes, of which group %s has %" PRIu64,
                  group, size, spool->config.limit, holder ? holder->group : "-", most);
}

// The uploads that make room, in this order.
enum kind { OWN, STOPPED, SLOW, KINDS };

// Says whether an upload makes room for one of a group, whose need is within its share or not.
static bool yields(const struct cn_spool *spool, const struct cn_spooled *upload, enum kind kind,
                   const char *group, uint64_t share, bool within, uint64_t now_ms)
{
    bool same = strcmp(upload->group, group) == 0;
    if (kind != SLOW)
        return same == (kind == OWN) && has_stopped(upload, now_ms);
    return !same && within && falls_behind(spool, upload, now_ms) &&
           used_by(spool, upload->group) > share;
}

cn_err cn_spool_make_room(struct cn_spool *spool, const char *group, uint64_t size, uint64_t now_ms)
{
    if (exceeds_limit(spool, size)) {
        uint64_t share = spool->config.limit / count_groups(spool, group);
        bool within = used_by(spool, group) + size <= share;
        struct cn_spooled *next;
        for (enum kind kind = OWN; kind < KINDS; kind++)
            for (struct cn_spooled *upload = spool->uploads; upload && exceeds_limit(spool, size);
                 upload = next) {
                next = upload->next;
                if (yields(spool, upload, kind, group, share, within, now_ms))
                    give_way(spool, upload, group, now_ms);
            }
    }
    if (exceeds_limit(spool, size)) {
        tell_full(spool, group, size, now_ms);
        return CN_EAGAIN;
    }
    return fits_disk(spool, size) ? CN_OK : CN_ENOSPC;
}
