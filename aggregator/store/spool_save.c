#include "aggregator/store/spool_save.h"

#include "aggregator/store/spool_parts.h"
#include "runtime/base/log.h"

#define WAIT_MS 2000                   // how long a chunk may wait to become durable
#define EARNED_BY_CHUNK 8              // chunks written for each that came, at most
#define EARNED_IN_MS 1000              // time in which an upload earns one part
#define CREDIT_MAX (4 * CN_SPOOL_PART) // in chunks

static void earn(struct cn_spooled *upload, uint64_t count)
{
    uint64_t credit = upload->credit + count;

    upload->credit = credit < CREDIT_MAX ? (uint32_t)credit : CREDIT_MAX;
}

void cn_spool_save_earn(struct cn_spooled *upload, uint32_t count)
{
    earn(upload, (uint64_t)count * EARNED_BY_CHUNK);
}

static void earn_by_time(struct cn_spooled *upload, uint64_t now_ms)
{
    uint64_t past_ms = now_ms > upload->earned_ms ? now_ms - upload->earned_ms : 0;

    if (past_ms > CREDIT_MAX)
        past_ms = CREDIT_MAX;
    earn(upload, past_ms * CN_SPOOL_PART / EARNED_IN_MS);
    upload->earned_ms = now_ms;
}

static void save(const struct cn_spool_config *config, struct cn_spooled *upload, uint32_t part)
{
    cn_err err = cn_spool_part_save(config, upload, part);

    if (err)
        cn_log(CN_LOG_DEBUG, "spool", "a part of %s is not saved: %s", upload->group,
               cn_err_text(err));
}

static bool has_new(const struct cn_spooled *upload, uint32_t part)
{
    return upload->parts[part].saved != upload->parts[part].received;
}

void cn_spool_save_due(const struct cn_spool_config *config, struct cn_spooled *upload,
                       uint64_t now_ms)
{
    uint32_t count = cn_spool_part_count(upload);

    earn_by_time(upload, now_ms);
    for (uint32_t i = 0; i < count && upload->credit >= CN_SPOOL_PART; i++) {
        if (!has_new(upload, i) || now_ms - upload->parts[i].since_ms < WAIT_MS)
            continue;
        upload->credit -= CN_SPOOL_PART;
        save(config, upload, i);
        upload->parts[i].since_ms = now_ms; // also after an error: it is not tried at every call
    }
}

void cn_spool_save_all(const struct cn_spool_config *config, struct cn_spooled *upload)
{
    for (uint32_t i = 0; i < cn_spool_part_count(upload); i++)
        if (has_new(upload, i))
            save(config, upload, i);
}
