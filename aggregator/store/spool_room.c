#include "aggregator/store/spool_room.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "aggregator/store/spool_private.h"
#include "runtime/base/log.h"
#include "runtime/port/link.h"
#include "runtime/port/platform.h"

// An upload without a new chunk for this time is dropped if another one needs room.
#define STOPPED_MS 10000
#define PATIENCE_MS 10000 // after this wait a group gets its share from those that have more
#define GONE_MS 30000     // who asks no more for this time does not wait any more

// Returns the bytes that all uploads together may have. Bytes of uploads that are already written
// count twice against the disk, which errs on the safe side.
static uint64_t room_of(const struct cn_spool *spool)
{
    const struct cn_spool_config *config = &spool->config;
    uint64_t room = config->limit ? config->limit : UINT64_MAX, available;
    if (!config->disk || !config->reserve || cn_platform_disk_free(config->disk, &available))
        return room;
    available = available > config->reserve ? available - config->reserve : 0;
    return available < room ? available : room;
}

static bool fits(const struct cn_spool *spool, uint64_t size)
{
    uint64_t room = room_of(spool);
    return spool->used <= room && size <= room - spool->used;
}

static bool exceeds_limit(const struct cn_spool *spool, uint64_t size)
{
    return spool->config.limit && spool->used + size > spool->config.limit;
}

static void tell_disk(struct cn_spool *spool, bool full)
{
    uint64_t available;
    if (full && !spool->full_told && !cn_platform_disk_free(spool->config.disk, &available))
        cn_log_within(&spool->full, cn_platform_now_ms(), CN_LOG_ERROR, "spool",
                      "%s has %" PRIu64 " MiB left and storage.reserve is %" PRIu64
                      " MiB: updates are refused until there is more",
                      spool->config.disk, available >> 20, spool->config.reserve >> 20);
    spool->full_told = full;
}

// Returns the bytes of a group's uploads.
static uint64_t used_by(const struct cn_spool *spool, const char *group)
{
    uint64_t used = 0;
    for (const struct cn_spooled *upload = spool->uploads; upload; upload = upload->next)
        used += strcmp(upload->group, group) == 0 ? upload->declared.size : 0;
    return used;
}

static bool waits(const struct cn_spool_wait *wait, uint64_t now_ms)
{
    return wait->group[0] && now_ms - wait->asked_ms < GONE_MS;
}

static struct cn_spool_wait *find_wait(struct cn_spool *spool, const char *group, uint64_t now_ms)
{
    for (size_t i = 0; i < CN_SPOOL_WAITS; i++)
        if (waits(&spool->queue[i], now_ms) && strcmp(spool->queue[i].group, group) == 0)
            return &spool->queue[i];
    return NULL;
}

// Notes that a group waits, from its first refusal on.
static void begin_wait(struct cn_spool *spool, const char *group, uint64_t size, uint64_t now_ms)
{
    struct cn_spool_wait *wait = find_wait(spool, group, now_ms), *oldest = spool->queue;
    for (size_t i = 0; !wait && i < CN_SPOOL_WAITS; i++)
        if (!spool->queue[i].group[0] || spool->queue[i].asked_ms < oldest->asked_ms)
            oldest = &spool->queue[i];
    if (!wait) {
        wait = oldest;
        wait->since_ms = now_ms;
        snprintf(wait->group, sizeof(wait->group), "%s", group);
    }
    wait->size = size;
    wait->asked_ms = now_ms;
}

static bool uploads(const struct cn_spool *spool, const char *group)
{
    for (const struct cn_spooled *upload = spool->uploads; upload; upload = upload->next)
        if (strcmp(upload->group, group) == 0)
            return true;
    return false;
}

// Returns the number of groups that upload or wait, the given group included.
static uint32_t count_groups(const struct cn_spool *spool, const char *group, uint64_t now_ms)
{
    uint32_t count = 1;
    for (const struct cn_spooled *upload = spool->uploads; upload; upload = upload->next) {
        const struct cn_spooled *first = spool->uploads;
        while (strcmp(first->group, upload->group) != 0)
            first = first->next;
        count += first == upload && strcmp(upload->group, group) != 0;
    }
    for (size_t i = 0; i < CN_SPOOL_WAITS; i++)
        count += waits(&spool->queue[i], now_ms) && !uploads(spool, spool->queue[i].group) &&
                 strcmp(spool->queue[i].group, group) != 0;
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

// One that needs room.
struct need {
    const char *group;
    uint64_t size, share;
    bool measures; // the upload only measures the link
    bool within;   // the group has no more than its share then
    bool waited;   // the group has waited for PATIENCE_MS
};

// The uploads that make room, in this order.
enum kind { MEASURING, OWN, STOPPED, SLOW, MORE, KINDS };

static bool yields(const struct cn_spool *spool, const struct cn_spooled *upload, enum kind kind,
                   const struct need *need, uint64_t now_ms)
{
    bool same = strcmp(upload->group, need->group) == 0;
    if (kind == OWN || kind == STOPPED)
        return same == (kind == OWN) && has_stopped(upload, now_ms);
    bool measures = upload->declared.run == CN_RUN_MEASUREMENT;
    if (kind == MEASURING)
        return measures && !need->measures;
    return !same && (measures || !need->measures) && need->within &&
           used_by(spool, upload->group) > need->share &&
           (kind == SLOW ? falls_behind(spool, upload, now_ms) : need->waited);
}

// Returns the bytes that other groups wait for, which have waited longer.
static uint64_t owed(struct cn_spool *spool, const char *group, uint64_t now_ms)
{
    const struct cn_spool_wait *own = find_wait(spool, group, now_ms);
    uint64_t since_ms = own ? own->since_ms : now_ms, bytes = 0;
    for (size_t i = 0; i < CN_SPOOL_WAITS; i++) {
        const struct cn_spool_wait *wait = &spool->queue[i];
        if (waits(wait, now_ms) && wait != own && wait->since_ms < since_ms)
            bytes += wait->size;
    }
    return bytes;
}

static void drop_for(struct cn_spool *spool, const struct need *need, uint64_t now_ms)
{
    struct cn_spooled *next;
    for (enum kind kind = 0; kind < KINDS; kind++)
        for (struct cn_spooled *upload = spool->uploads; upload && !fits(spool, need->size);
             upload = next) {
            next = upload->next;
            if (yields(spool, upload, kind, need, now_ms))
                give_way(spool, upload, need->group, now_ms);
        }
}

cn_err cn_spool_make_room(struct cn_spool *spool, const char *group,
                          const struct cn_declare_request *declared, uint64_t now_ms)
{
    struct cn_spool_wait *wait = find_wait(spool, group, now_ms);
    uint64_t room = room_of(spool);
    struct need need = {.group = group, .size = declared->size};
    need.share = room / count_groups(spool, group, now_ms);
    need.measures = declared->run == CN_RUN_MEASUREMENT;
    need.within = used_by(spool, group) + need.size <= need.share;
    need.waited = wait && now_ms - wait->since_ms >= PATIENCE_MS;
    if (need.size <= room)
        drop_for(spool, &need, now_ms);
    uint64_t ahead = need.within ? 0 : owed(spool, group, now_ms);
    if (fits(spool, need.size + ahead)) {
        if (wait)
            wait->group[0] = '\0';
        tell_disk(spool, false);
        return CN_OK;
    }
    if (need.size <= room)
        begin_wait(spool, group, need.measures ? 0 : need.size, now_ms);
    bool disk = !exceeds_limit(spool, need.size + ahead);
    tell_disk(spool, disk);
    if (!disk)
        tell_full(spool, group, need.size, now_ms);
    return disk ? CN_ENOSPC : CN_EAGAIN;
}
