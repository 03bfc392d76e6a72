// session_links.c - measures the links of the members when an epoch begins: by echoes between the
// leader and each other one, and by a sum of all.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/bytes.h"
#include "runtime/base/log.h"
#include "runtime/group/link_probe.h"
#include "runtime/group/purpose.h"
#include "runtime/port/platform.h"
#include "runtime/round/session/session_private.h"

#define SUMS 5   // sums, of which the quickest counts
#define PROBES 2 // messages of many bytes there and back, of which the quickest counts
#define PINGS 3  // small messages there and back, of which the quickest counts
#define SLOWED 3 // a link with this fraction of its rate before is told

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
        .fingerprint = CN_PURPOSE_PROBE,
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

// Returns the quickest of several echoes; 0 after an error.
static uint64_t time_echoes(struct cn_collective *collective, bool leads, uint32_t member,
                            uint8_t *bytes, uint32_t size, int count, cn_err *err)
{
    uint64_t least_us = UINT64_MAX;

    *err = CN_OK;
    for (int i = 0; !*err && i < count; i++) {
        uint64_t elapsed_us = time_echo(collective, leads, member, bytes, size, err);

        least_us = elapsed_us < least_us ? elapsed_us : least_us;
    }
    return least_us;
}

// Measures the rate of the link between the leader and another member, and the time of a message
// without bytes. The leader says in these messages how large the next probe is. The first probe is
// slow: the connection learns what it may send.
static cn_err measure_link(struct cn_collective *collective, bool leads, uint32_t member,
                           uint8_t *bytes, int64_t *kbps, uint64_t *call_us)
{
    uint32_t larger;
    cn_err err;
    uint64_t least_us = time_echoes(collective, leads, member, bytes, CN_PROBE_SIZE, PROBES, &err);

    if (err)
        return err;
    *kbps = cn_probe_kbps(CN_PROBE_SIZE, least_us);
    larger = cn_probe_larger(least_us);
    cn_put_u32(bytes, larger);
    *call_us = time_echoes(collective, leads, member, bytes, sizeof(larger), PINGS, &err) / 2;
    if (!leads)
        larger = cn_get_u32(bytes);
    if (err || larger < CN_PROBE_SIZE || larger > CN_PROBE_MOST)
        return err;
    least_us = time_echoes(collective, leads, member, bytes, larger, PROBES, &err);
    *kbps = cn_probe_kbps(larger, least_us);
    return err;
}

// Measures how much of the links' rate a sum of all members reaches, where bytes travel on all
// links and in both directions at once: less where these share a medium, or a processor.
static cn_err measure_sum(struct cn_session_sets *sets, struct cn_collective *collective,
                          uint32_t size, const int64_t *kbps)
{
    float *zeros = calloc(1, size);
    struct cn_collective_call call = {.kind = CN_COLLECTIVE_ALL_REDUCE,
                                      .data = zeros,
                                      .count = size / sizeof(*zeros),
                                      .fingerprint = CN_PURPOSE_PROBE};
    int sums = size > CN_PROBE_SUM_LEAST ? SUMS : 1; // a thin link takes long
    double least_us = HUGE_VAL;
    cn_err err = zeros ? CN_OK : CN_ENOMEM;

    for (int i = 0; !err && i < sums; i++) {
        uint64_t begun_us = cn_platform_now_us();

        err = collective->ops->run(collective, &call);
        least_us = fmin(least_us, (double)(cn_platform_now_us() - begun_us));
    }
    free(zeros);
    if (!err && sets->view.rank == 0)
        sets->sum_share = cn_probe_sum_share(kbps, sets->view.size, size, least_us, sets->call_us);
    return err;
}

// Measures the links: the leader sends each member some bytes and receives them back. The leader's
// own link counts as the best. The time of a message without bytes is the mean over the members.
static cn_err measure_links(struct cn_session_sets *sets, struct cn_collective *collective,
                            int64_t *kbps)
{
    uint8_t *bytes = calloc(1, CN_PROBE_MOST);
    uint32_t own = sets->view.rank;
    cn_err err = bytes ? CN_OK : CN_ENOMEM;

    for (uint32_t r = 1; !err && r < sets->view.size; r++) {
        uint64_t call_us;

        if (own != 0 && own != r)
            continue;
        err = measure_link(collective, own == 0, r, bytes, &kbps[r], &call_us);
        kbps[0] = kbps[r] > kbps[0] ? kbps[r] : kbps[0];
        if (!err)
            sets->call_us += (double)call_us / (sets->view.size - 1);
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
    int64_t told[CN_GROUP_MAX + 1] = {0}; // rates by rank, and bytes of a sum
    uint32_t size = sets->view.size;
    cn_err err;

    if ((!speaks_of_links(sets) && !cn_session_is_automatic(session)) || size == 1)
        return CN_OK;
    err = measure_links(sets, collective, told);
    if (!err) {
        told[CN_GROUP_MAX] = cn_probe_sum_size(told, size);
        err = cn_broadcast(collective, 0, told, sizeof(told));
    }
    for (uint32_t r = 0; !err && r < size; r++)
        sets->facts[r].link_kbps = told[r] < UINT32_MAX ? (uint32_t)told[r] : UINT32_MAX;
    if (!err && (told[CN_GROUP_MAX] < CN_PROBE_SUM_LEAST || told[CN_GROUP_MAX] > CN_PROBE_MOST))
        err = CN_EFORMAT;
    if (!err)
        err = measure_sum(sets, collective, (uint32_t)told[CN_GROUP_MAX], told);
    if (!err)
        compare_links(session);
    return err;
}
