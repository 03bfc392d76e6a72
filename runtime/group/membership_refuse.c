#include <string.h>

#include "runtime/group/membership_private.h"

#define LATE_MS 2000   // no message travels longer than this
#define SPOKE_MS 1000  // a newer process has to announce itself for this time to count
#define RECENT_MS 5000 // the older process heard within this time is still there
#define TWINS_MS 30000 // time without a sign of a second board until the refusal ends
// Time for all members to hear of a job's new settings. Some members first have to notice that
// their session with the gateway has ended (transport/PROTOCOL.md, 5 s).
#define CHANGE_MS 10000

static void refuse(struct other *other, enum cn_refusal why)
{
    if (other->refused != why)
        other->refusal_told = false;
    other->refused = why;
}

// Notes that one of two messages came from another board of that name.
static void find_twins(struct other *other, uint64_t now_ms)
{
    other->twins_until_ms = now_ms + TWINS_MS;
    refuse(other, CN_REFUSAL_TWINS);
}

static struct boot *note_boot(struct other *other, struct cn_stay stay, uint64_t now_ms)
{
    struct boot *boot = &other->boots[0], *second = &other->boots[1];

    if (second->id == stay.boot_id || (boot->id != stay.boot_id && second->last_ms < boot->last_ms))
        boot = second;
    if (boot->id != stay.boot_id)
        *boot = (struct boot){.id = stay.boot_id, .first_ms = now_ms, .stay_ms = now_ms};
    if (boot->stay != stay.number) {
        boot->stay_ms = now_ms;
        boot->view_ms = 0;
    }
    boot->stay = stay.number;
    boot->last_ms = now_ms;
    return boot;
}

// A restart replaces the boot id for good. Two boards of one name both continue to send theirs.
static void watch_boots(struct other *other, struct cn_stay stay, uint64_t now_ms)
{
    const struct boot *speaks = note_boot(other, stay, now_ms);
    const struct boot *older = &other->boots[0], *newer = &other->boots[1];
    const struct boot *silent = speaks == older ? newer : older;

    if (older->first_ms > newer->first_ms) {
        older = newer;
        newer = &other->boots[0];
    }
    if (silent->id && now_ms - silent->last_ms < RECENT_MS &&
        older->last_ms >= newer->first_ms + LATE_MS && newer->last_ms >= newer->first_ms + SPOKE_MS)
        find_twins(other, now_ms);
}

// A board that sends JOIN has left its view. A view from before its stay therefore belongs to
// another board of that name. But if this board was not run for a while, a JOIN and the view that
// followed it arrive together. So only a board that continues to send JOIN counts as another one.
static void watch_view(struct other *other, uint32_t age_ms, uint64_t now_ms)
{
    struct boot *boots = other->boots;
    struct boot *last = boots[0].last_ms < boots[1].last_ms ? &boots[1] : &boots[0];

    if (!last->id || age_ms <= now_ms - last->stay_ms)
        return;
    if (!last->view_ms)
        last->view_ms = now_ms;
    if (now_ms - last->last_ms < RECENT_MS && last->last_ms >= last->view_ms + LATE_MS)
        find_twins(other, now_ms);
}

bool cn_membership_refuse(struct cn_membership *membership, uint32_t from,
                          const struct cn_membership_message *message, bool understood,
                          uint64_t now_ms)
{
    struct other *other = &membership->others[from];

    if (!understood || message->release != cn_membership_release()) {
        other->release = message->release;
        refuse(other, CN_REFUSAL_RELEASE);
        return true;
    }
    if (other->refused == CN_REFUSAL_RELEASE)
        refuse(other, CN_REFUSAL_NONE);
    if (message->type == CN_MEMBERSHIP_JOIN)
        watch_boots(other, message->stay, now_ms);
    if (message->type == CN_MEMBERSHIP_BUSY)
        watch_view(other, message->since_ms, now_ms);
    if (now_ms < other->twins_until_ms)
        return true;
    if (other->refused == CN_REFUSAL_TWINS)
        refuse(other, CN_REFUSAL_NONE);
    return false;
}

bool cn_membership_refuse_job(struct cn_membership *membership, uint32_t from,
                              const struct cn_membership_message *message, uint64_t now_ms)
{
    bool differs = memcmp(message->job, membership->config.job, CN_DIGEST_SIZE) != 0;
    struct other *other = &membership->others[from];

    if (differs && other->refused != CN_REFUSAL_JOB) {
        other->job_ms = now_ms;
        other->job_doubted = false;
    }
    refuse(other, differs ? CN_REFUSAL_JOB : CN_REFUSAL_NONE);
    return differs;
}

bool cn_membership_job_changes(const struct other *other, uint64_t now_ms)
{
    return other->refused == CN_REFUSAL_JOB && now_ms - other->job_ms < CHANGE_MS;
}

bool cn_membership_doubts_job(struct cn_membership *membership)
{
    bool doubts = false;

    for (uint32_t i = 0; i < membership->config.count; i++) {
        struct other *other = &membership->others[i];

        if (other->refused != CN_REFUSAL_JOB || other->job_doubted)
            continue;
        doubts = other->job_doubted = true;
    }
    return doubts;
}

bool cn_membership_refused(struct cn_membership *membership, uint64_t now_ms, uint32_t *member)
{
    for (uint32_t i = 0; i < membership->config.count; i++) {
        struct other *other = &membership->others[i];

        if (!other->refused || other->refusal_told ||
            (!membership->member && cn_membership_job_changes(other, now_ms)))
            continue;
        other->refusal_told = true;
        *member = i;
        return true;
    }
    return false;
}
