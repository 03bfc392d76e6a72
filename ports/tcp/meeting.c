#include "ports/tcp/meeting.h"

#include <poll.h>
#include <stdbool.h>
#include <unistd.h>

#include "runtime/port/platform.h"

#define RETRY_MS 20      // between attempts to connect, doubled up to
#define RETRY_MAX_MS 320 // this
#define CANDIDATES 4     // accepted connections that have not said who they are

struct meeting {
    const struct cn_pair_config *pairs;
    uint32_t next_member, prev_member;
    struct cn_pair *next, *prev; // connected
    int listener;
    struct cn_pair *calling; // to the next rank
    uint64_t call_at_ms;
    uint32_t retry_ms;
    struct cn_pair *candidates[CANDIDATES]; // NULL: free; overwritten in turn
    uint32_t next_candidate;
    cn_err call_err, answer_err; // why the last attempt of a neighbour failed
    uint64_t deadline_ms;
    int cancel_fd;
};

// A neighbour in a later epoch means that this view is history; one in an earlier epoch will
// follow.
static bool is_stale(const struct meeting *meeting, const struct cn_pair *pair, cn_err err)
{
    return err == CN_ESTALE && cn_pair_peer_epoch(pair) > meeting->pairs->epoch;
}

static cn_err call_next(struct meeting *meeting, uint64_t now_ms)
{
    cn_err err = CN_OK;
    bool stale;

    if (meeting->next || (!meeting->calling && now_ms < meeting->call_at_ms))
        return CN_OK;
    if (!meeting->calling)
        err = cn_pair_connect(meeting->pairs, meeting->next_member, &meeting->calling);
    if (!err)
        err = cn_pair_handshake(meeting->calling);
    if (!err) {
        meeting->next = meeting->calling;
        meeting->calling = NULL;
    }
    if (!err || err == CN_EAGAIN)
        return CN_OK;
    stale = meeting->calling && is_stale(meeting, meeting->calling, err);
    cn_pair_close(meeting->calling);
    meeting->calling = NULL;
    meeting->call_err = err;
    meeting->call_at_ms = now_ms + meeting->retry_ms;
    if (meeting->retry_ms < RETRY_MAX_MS)
        meeting->retry_ms *= 2;
    if (err == CN_ENOMEM)
        return err;
    return stale ? CN_ESTALE : CN_OK;
}

static void admit(struct meeting *meeting)
{
    struct cn_pair *pair;
    struct cn_pair **slot;

    // At most one turn of the slots for each call, so that a flood cannot hold up the loop.
    for (int i = 0; i < CANDIDATES; i++) {
        if (cn_pair_accept(meeting->pairs, meeting->listener, &pair))
            return;
        slot = &meeting->candidates[meeting->next_candidate++ % CANDIDATES];
        cn_pair_close(*slot); // the oldest: an idle stranger cannot keep members out
        *slot = pair;
    }
}

static cn_err answer(struct meeting *meeting, struct cn_pair **candidate)
{
    cn_err err = cn_pair_handshake(*candidate);
    bool is_prev = cn_pair_member(*candidate) == meeting->prev_member;
    bool stale;

    if (err == CN_EAGAIN)
        return CN_OK;
    if (!err && is_prev) {
        cn_pair_close(meeting->prev); // the previous rank began again
        meeting->prev = *candidate;
        *candidate = NULL;
        return CN_OK;
    }
    stale = is_stale(meeting, *candidate, err);
    if (is_prev)
        meeting->answer_err = err;
    cn_pair_close(*candidate);
    *candidate = NULL;
    return stale ? CN_ESTALE : CN_OK;
}

static cn_err wait_for_meeting(const struct meeting *meeting, uint64_t now_ms)
{
    struct pollfd fds[CANDIDATES + 3] = {{.fd = meeting->cancel_fd, .events = POLLIN},
                                         {.fd = meeting->listener, .events = POLLIN}};
    uint64_t until_ms = now_ms + RETRY_MAX_MS;
    nfds_t count = 2;

    for (int i = 0; i < CANDIDATES; i++)
        if (meeting->candidates[i])
            fds[count++] = (struct pollfd){.fd = cn_pair_descriptor(meeting->candidates[i]),
                                           .events = cn_pair_events(meeting->candidates[i])};
    if (meeting->calling)
        fds[count++] = (struct pollfd){.fd = cn_pair_descriptor(meeting->calling),
                                       .events = cn_pair_events(meeting->calling)};
    else if (!meeting->next && meeting->call_at_ms < until_ms)
        until_ms = meeting->call_at_ms;
    if (meeting->deadline_ms < until_ms)
        until_ms = meeting->deadline_ms;
    (void)poll(fds, count, until_ms > now_ms ? (int)(until_ms - now_ms) : 0);
    return fds[0].revents ? CN_ECANCELED : CN_OK;
}

// A refusal says more than that the time is over.
static cn_err why_missing(const struct meeting *meeting)
{
    cn_err err = meeting->prev ? CN_OK : meeting->answer_err;

    if (err != CN_EAUTH && err != CN_ENOTSUP && !meeting->next)
        err = meeting->call_err;
    return err == CN_EAUTH || err == CN_ENOTSUP ? err : CN_ETIMEOUT;
}

// Until both neighbours are there.
static cn_err meet(struct meeting *meeting)
{
    cn_err err;

    while (!meeting->next || !meeting->prev) {
        uint64_t now_ms = cn_platform_now_ms();

        err = call_next(meeting, now_ms);
        if (err)
            return err;
        admit(meeting);
        for (int i = 0; i < CANDIDATES; i++) {
            err = meeting->candidates[i] ? answer(meeting, &meeting->candidates[i]) : CN_OK;
            if (err)
                return err;
        }
        if (meeting->next && meeting->prev)
            break;
        if (now_ms >= meeting->deadline_ms)
            return why_missing(meeting);
        err = wait_for_meeting(meeting, now_ms);
        if (err)
            return err;
    }
    return CN_OK;
}

cn_err cn_meeting_hold(const struct cn_pair_config *pairs, uint32_t next_member,
                       uint32_t prev_member, uint64_t deadline_ms, int cancel_fd,
                       struct cn_neighbours *neighbours)
{
    struct meeting meeting = {.pairs = pairs,
                              .next_member = next_member,
                              .prev_member = prev_member,
                              .retry_ms = RETRY_MS,
                              .deadline_ms = deadline_ms,
                              .cancel_fd = cancel_fd};
    cn_err err;

    *neighbours = (struct cn_neighbours){.lost = UINT32_MAX};
    err =
        cn_pair_listen(pairs->members[pairs->self].address, pairs->port_offset, &meeting.listener);
    if (err)
        return err;
    err = meet(&meeting);
    cn_pair_close(meeting.calling);
    for (int i = 0; i < CANDIDATES; i++)
        cn_pair_close(meeting.candidates[i]);
    close(meeting.listener);
    if (err) {
        if (err != CN_ECANCELED && err != CN_ENOMEM)
            neighbours->lost = meeting.prev ? next_member : prev_member;
        cn_pair_close(meeting.next);
        cn_pair_close(meeting.prev);
        return err;
    }
    neighbours->next = meeting.next;
    neighbours->prev = meeting.prev;
    return CN_OK;
}
