// session_links.c - measures the links of the members: by echoes between the leader and each other
// one, when an epoch begins.
#include <stdlib.h>
#include <string.h>

#include "runtime/base/log.h"
#include "runtime/port/platform.h"
#include "runtime/round/session/session_private.h"

#define PROBE_SIZE (64u << 10) // bytes sent there and back to measure a link
#define PINGS 3                // small messages there and back, of which the quickest counts
#define SLOWED 3               // a link with this fraction of its rate before is told

enum fingerprint { PROBE = 0x736c6901 };

// Sends bytes from the leader to a member and back, in a set of these two.
static cn_err echo(struct cn_collective *collective, bool leads, uint32_t member, void *data,
                   size_t size)
{
    const struct cn_set pair = cn_ranks_set(1u | 1u << member);
    struct cn_collective_call call = {
        .kind = leads ? CN_COLLECTIVE_SEND : CN_COLLECTIVE_RECEIVE,
        .set = &pair,
        .peer = leads ? member : 0,
        .data = data,
        .count = size,
        .fingerprint = PROBE,
    };
    cn_err err = collective->ops->run(collective, &call);

    call.kind = leads ? CN_COLLECTIVE_RECEIVE : CN_COLLECTIVE_SEND;
    return err ? err : collective->ops->run(collective, &call);
}

// Returns the time of an echo; 0 after an error.
static uint64_t time_echo(struct cn_collective *collective, bool leads, uint32_t member, void *data,
                          size_t size, cn_err *err)
{
    uint64_t begun_us = cn_platform_now_us(), elapsed_us;

    *err = echo(collective, leads, member, data, size);
    elapsed_us = cn_platform_now_us() - begun_us;
    return *err ? 0 : elapsed_us ? elapsed_us : 1;
}

// Measures the links: the leader sends each member some bytes and receives them back. The leader's
// own link counts as the best. The time of a message without bytes is the mean over the members.
static cn_err measure_links(struct cn_session_sets *sets, struct cn_collective *collective,
                            int64_t *kbps)
{
    uint8_t *bytes = calloc(1, PROBE_SIZE);
    uint32_t own = sets->view.rank;
    cn_err err = bytes ? CN_OK : CN_ENOMEM;

    for (uint32_t r = 1; !err && r < sets->view.size; r++) {
        uint64_t elapsed_us, least_us = UINT64_MAX;

        if (own != 0 && own != r)
            continue;
        // The first is slow: the connection learns what it may send.
        err = echo(collective, own == 0, r, bytes, PROBE_SIZE);
        if (!err) {
            elapsed_us = time_echo(collective, own == 0, r, bytes, PROBE_SIZE, &err);
            kbps[r] = (int64_t)(2ull * PROBE_SIZE * 8000 / (elapsed_us ? elapsed_us : 1));
            kbps[0] = kbps[r] > kbps[0] ? kbps[r] : kbps[0];
        }
        for (int i = 0; !err && i < PINGS; i++) {
            elapsed_us = time_echo(collective, own == 0, r, bytes, sizeof(uint32_t), &err);
            least_us = elapsed_us < least_us ? elapsed_us : least_us;
        }
        if (!err)
            sets->call_us += (double)least_us / 2 / (sets->view.size - 1);
    }
    free(bytes);
    return err;
}

static bool speaks_of_links(const struct cn_session_sets *sets)
{
    for (uint32_t i = 0; i < sets->rules.count; i++)
        if (cn_rule_needs_link(&sets->rules.rules[i].rule))
            return true;
    return false;
}

// Tells of members whose links have become much slower since they were measured last.
static void compare_links(struct cn_session *session)
{
    const struct cn_session_sets *sets = session->planning.sets;
    uint32_t *before = session->measured.link_kbps;
    uint32_t leader = sets->view.ranks[0];

    // The links are those between the leader and the others.
    if (session->measured.link_leader != leader)
        memset(before, 0, sizeof(session->measured.link_kbps));
    session->measured.link_leader = leader;
    for (uint32_t r = 1; r < sets->view.size; r++) { // that of rank 0 is the best of all
        uint32_t kbps = sets->facts[r].link_kbps, *known = &before[sets->view.ranks[r]];

        if (sets->view.rank == 0 && kbps && kbps < *known / SLOWED)
            cn_log(CN_LOG_WARN, "sets",
                   "the link of %s has %.3g Mbit/s; it had %.3g Mbit/s when it was measured before",
                   cn_session_member(session, r)->name, kbps / 1e3, *known / 1e3);
        *known = kbps;
    }
}

cn_err cn_session_find_links(struct cn_session *session, struct cn_collective *collective)
{
    struct cn_session_sets *sets = session->planning.sets;
    int64_t kbps[CN_GROUP_MAX] = {0};
    cn_err err;

    if ((!speaks_of_links(sets) && !cn_session_is_automatic(session)) || sets->view.size == 1)
        return CN_OK;
    err = measure_links(sets, collective, kbps);
    if (!err)
        err = cn_broadcast(collective, 0, kbps, sizeof(kbps));
    for (uint32_t r = 0; !err && r < sets->view.size; r++)
        sets->facts[r].link_kbps = kbps[r] < UINT32_MAX ? (uint32_t)kbps[r] : UINT32_MAX;
    if (!err)
        compare_links(session);
    return err;
}
