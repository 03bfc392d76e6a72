#include "ports/tcp/mesh.h"

#include <inttypes.h>
#include <poll.h>
#include <stdbool.h>
#include <string.h>
#include <unistd.h>

#include "ports/tcp/candidates.h"
#include "ports/tcp/parting.h"
#include "ports/tcp/socket.h"
#include "runtime/base/log.h"
#include "runtime/base/log_limit.h"
#include "runtime/port/platform.h"

#define RETRY_MS 20      // time between two attempts to connect, doubled each time
#define RETRY_MAX_MS 320 // upper limit of that time
#define FINISH_MS 100    // longest wait for handshakes of an opening that was canceled

// The connection to a rank below this one, while it is being made.
struct call {
    struct cn_pair *pair; // NULL while waiting for the next attempt
    uint64_t at_ms;       // time of the next attempt
    uint32_t retry_ms;    // time from this attempt to the next
    bool reached;         // the member has listened in this epoch
};

// The state of cn_mesh_open while the members connect.
struct meeting {
    const struct cn_pair_config *config;
    const struct cn_view *view;
    struct cn_mesh *mesh;
    int listener, cancel_fd;
    uint64_t deadline_ms;
    struct call calls[CN_GROUP_MAX]; // by rank
    cn_err errors[CN_GROUP_MAX];     // by rank: a refusal, else the last failed attempt
    // By rank: a connection named the member and proved no key. Anybody may have made it.
    bool doubted[CN_GROUP_MAX];
    uint32_t gone; // rank that has listened and died, or UINT32_MAX
    struct cn_candidates candidates;
    struct cn_log_limit refused; // limits the log of refused connections
};

// Returns whether two members cannot work together. Another attempt does not change that.
static bool is_refusal(cn_err err)
{
    return err == CN_EAUTH || err == CN_ENOTSUP;
}

// Notes why an attempt to connect failed. A refusal stays: a member that gives up then closes its
// port, and the attempts that follow know only that nobody listens.
static void note_failure(struct meeting *meeting, uint32_t rank, cn_err err)
{
    if (!is_refusal(meeting->errors[rank]))
        meeting->errors[rank] = err;
}

// Returns whether the peer is in a later epoch, so that this view is outdated. A peer in an earlier
// epoch will catch up.
static bool is_stale(const struct meeting *meeting, const struct cn_pair *pair, cn_err err)
{
    return err == CN_ESTALE && cn_pair_peer_epoch(pair) > meeting->config->epoch;
}

// Returns whether the member has gone. A member listens until all are connected, so one that
// refuses after it has listened is gone, unless it listened in an earlier epoch.
static bool is_gone(struct call *call, cn_err err)
{
    bool reached = call->pair && cn_pair_reached(call->pair);
    bool refuses = err == CN_EPEER && !reached;

    if (refuses)
        return call->reached;
    call->reached = err != CN_ESTALE && (call->reached || reached);
    return false;
}

// Advances the connection to a lower rank. Returns CN_OK also while it is not connected yet.
static cn_err call_rank(struct meeting *meeting, uint32_t rank, uint64_t now_ms)
{
    struct call *call = &meeting->calls[rank];
    cn_err err = CN_OK;
    bool stale, gone;

    if (meeting->mesh->pairs[rank] || (!call->pair && now_ms < call->at_ms))
        return CN_OK;
    if (!call->pair)
        err = cn_pair_connect(meeting->config, meeting->view->ranks[rank], &call->pair);
    if (!err)
        err = cn_pair_handshake(call->pair);
    if (!err) {
        meeting->mesh->pairs[rank] = call->pair;
        call->pair = NULL;
    }
    if (!err || err == CN_EAGAIN)
        return CN_OK;
    stale = call->pair && is_stale(meeting, call->pair, err);
    gone = is_gone(call, err);
    if (gone)
        meeting->gone = rank;
    cn_pair_close(call->pair);
    call->pair = NULL;
    note_failure(meeting, rank, err);
    call->at_ms = now_ms + call->retry_ms;
    if (call->retry_ms < RETRY_MAX_MS)
        call->retry_ms *= 2;
    if (err == CN_ENOMEM)
        return err;
    return stale ? CN_ESTALE : gone ? CN_EPEER : CN_OK;
}

// Accepts waiting connections as candidates.
static void admit(struct meeting *meeting)
{
    struct cn_pair *pair;

    // Accepts a limited number of connections a call, so that a flood cannot hold up the loop.
    for (int i = 0; i < CN_CANDIDATES; i++) {
        if (cn_pair_accept(meeting->config, meeting->listener, &pair))
            return;
        cn_candidates_add(&meeting->candidates, pair);
    }
}

// Returns the rank of a member if it is above this board's, else UINT32_MAX.
static uint32_t caller_rank(const struct meeting *meeting, uint32_t member)
{
    for (uint32_t r = meeting->view->rank + 1; r < meeting->view->size; r++)
        if (meeting->view->ranks[r] == member)
            return r;
    return UINT32_MAX;
}

// Logs a refused connection, at a limited rate: it came from a stranger or replays a recorded
// handshake.
static void note_refused(struct meeting *meeting, const struct cn_pair *pair)
{
    char from[CN_SOCKET_TEXT];
    uint64_t count;

    if (!cn_log_limit_due(&meeting->refused, cn_platform_now_ms(), &count))
        return;
    cn_socket_peer(cn_pair_descriptor(pair), from);
    cn_log(CN_LOG_WARN, "pair",
           "%" PRIu64 " connection%s without a proof of a key refused, the last one from %s", count,
           count == 1 ? "" : "s", from);
}

// Advances the handshake of a candidate and admits it as a pair when it is done.
static cn_err answer(struct meeting *meeting, struct cn_pair **candidate)
{
    cn_err err = cn_pair_handshake(*candidate);
    uint32_t rank = caller_rank(meeting, cn_pair_member(*candidate));
    bool stale;

    if (err == CN_EAGAIN)
        return CN_OK;
    if (!err && rank != UINT32_MAX) {
        cn_pair_close(meeting->mesh->pairs[rank]); // the member connected again
        meeting->mesh->pairs[rank] = *candidate;
        *candidate = NULL;
        return CN_OK;
    }
    stale = is_stale(meeting, *candidate, err);
    if (err == CN_EAUTH)
        note_refused(meeting, *candidate);
    if (rank != UINT32_MAX && cn_pair_is_proven(*candidate))
        note_failure(meeting, rank, err);
    else if (rank != UINT32_MAX)
        meeting->doubted[rank] |= err == CN_EAUTH;
    cn_pair_close(*candidate);
    *candidate = NULL;
    return stale ? CN_ESTALE : CN_OK;
}

// Fills fds, by rank, so that poll reports only the end of a connected pair. Its data is left for
// the calls that follow.
static size_t watch_connected(const struct meeting *meeting, struct pollfd fds[CN_GROUP_MAX])
{
    for (uint32_t r = 0; r < meeting->view->size; r++) {
        const struct cn_pair *pair = meeting->mesh->pairs[r];

        fds[r] = (struct pollfd){.fd = pair ? cn_pair_descriptor(pair) : -1, .events = POLLRDHUP};
    }
    return meeting->view->size;
}

// Waits until a connection needs attention. Returns CN_EPEER when a connected member has closed: it
// died, or another member did. This mesh cannot be completed then.
static cn_err wait_for_meeting(const struct meeting *meeting, uint64_t now_ms)
{
    struct pollfd fds[CN_CANDIDATES + 2 * CN_GROUP_MAX + 2];
    uint64_t until_ms = now_ms + RETRY_MAX_MS;
    size_t connected = watch_connected(meeting, fds), count = connected;

    fds[count++] = (struct pollfd){.fd = meeting->cancel_fd, .events = POLLIN};
    fds[count++] = (struct pollfd){.fd = meeting->listener, .events = POLLIN};
    for (int i = 0; i < CN_CANDIDATES; i++)
        if (meeting->candidates.pairs[i])
            fds[count++] = (struct pollfd){.fd = cn_pair_descriptor(meeting->candidates.pairs[i]),
                                           .events = cn_pair_events(meeting->candidates.pairs[i])};
    for (uint32_t r = 0; r < meeting->view->rank; r++) {
        const struct call *call = &meeting->calls[r];

        if (call->pair)
            fds[count++] = (struct pollfd){.fd = cn_pair_descriptor(call->pair),
                                           .events = cn_pair_events(call->pair)};
        else if (!meeting->mesh->pairs[r] && call->at_ms < until_ms)
            until_ms = call->at_ms;
    }
    if (meeting->deadline_ms < until_ms)
        until_ms = meeting->deadline_ms;
    if (poll(fds, count, until_ms > now_ms ? (int)(until_ms - now_ms) : 0) <= 0)
        return CN_OK;
    if (fds[connected].revents)
        return CN_ECANCELED;
    while (connected && !fds[connected - 1].revents)
        connected--;
    return connected ? CN_EPEER : CN_OK;
}

// Returns the first rank that is not connected, or the size of the view.
static uint32_t first_missing(const struct meeting *meeting)
{
    uint32_t r = 0;

    while (r < meeting->view->size && (r == meeting->view->rank || meeting->mesh->pairs[r]))
        r++;
    return r;
}

// Returns why the mesh is not complete and sets the rank to blame: that of a refusal if there was
// one, since it says more than that a member did not come or has closed. Else it returns err, with
// the first missing rank after a time-out; or CN_EAUTH if somebody without the key has connected in
// the name of that member, which has another key, or is not the one who connected. After a loss the
// rank is that of a member that is gone,
// or UINT32_MAX: one that is only missing may live and have given up.
static cn_err why_missing(const struct meeting *meeting, cn_err err, uint32_t *rank)
{
    for (uint32_t r = 0; r < meeting->view->size; r++)
        if (!meeting->mesh->pairs[r] && is_refusal(meeting->errors[r])) {
            *rank = r;
            return meeting->errors[r];
        }
    *rank = err == CN_ETIMEOUT ? first_missing(meeting) : meeting->gone;
    return *rank < meeting->view->size && meeting->doubted[*rank] ? CN_EAUTH : err;
}

// Does one turn: advances the calls, accepts connections, advances the candidates.
static cn_err take_turn(struct meeting *meeting, uint64_t now_ms)
{
    cn_err err = CN_OK;

    for (uint32_t r = 0; !err && r < meeting->view->rank; r++)
        err = call_rank(meeting, r, now_ms);
    if (err)
        return err;
    admit(meeting);
    for (int i = 0; !err && i < CN_CANDIDATES; i++)
        if (meeting->candidates.pairs[i])
            err = answer(meeting, &meeting->candidates.pairs[i]);
    return err;
}

// Repeats turns until all are connected or one must give up. rank names the member to blame, or
// UINT32_MAX.
static cn_err meet(struct meeting *meeting, uint32_t *rank)
{
    *rank = UINT32_MAX;
    for (;;) {
        uint64_t now_ms = cn_platform_now_ms();
        cn_err err = take_turn(meeting, now_ms);

        if (!err && first_missing(meeting) == meeting->view->size)
            return CN_OK;
        if (!err && now_ms >= meeting->deadline_ms)
            err = CN_ETIMEOUT;
        if (!err)
            err = wait_for_meeting(meeting, now_ms);
        if (err == CN_ETIMEOUT || err == CN_EPEER)
            return why_missing(meeting, err, rank);
        if (err == CN_ESTALE)
            *rank = first_missing(meeting);
        if (err)
            return err;
    }
}

// Notes CN_EAUTH for each member that this board has no key for: no handshake with it can succeed.
static void note_missing_keys(struct meeting *meeting)
{
    static const uint8_t none[CN_KEY_SIZE];

    for (uint32_t r = 0; r < meeting->view->size; r++)
        if (r != meeting->view->rank &&
            !memcmp(meeting->config->members[meeting->view->ranks[r]].pair_key, none, sizeof(none)))
            meeting->errors[r] = CN_EAUTH;
}

// Waits until a handshake can go on, at most until_ms. Returns false when there is none left.
static bool wait_for_handshakes(const struct meeting *meeting, uint64_t now_ms, uint64_t until_ms)
{
    struct pollfd fds[CN_CANDIDATES + CN_GROUP_MAX];
    nfds_t count = 0;

    for (int i = 0; i < CN_CANDIDATES + CN_GROUP_MAX; i++) {
        const struct cn_pair *pair = i < CN_CANDIDATES ? meeting->candidates.pairs[i]
                                                       : meeting->calls[i - CN_CANDIDATES].pair;

        if (pair)
            fds[count++] =
                (struct pollfd){.fd = cn_pair_descriptor(pair), .events = cn_pair_events(pair)};
    }
    if (!count || now_ms >= until_ms)
        return false;
    (void)poll(fds, count, (int)(until_ms - now_ms));
    return true;
}

// Advances a connection that this board has begun, and begins no other.
static void finish_call(struct meeting *meeting, uint32_t rank)
{
    struct cn_pair **pair = &meeting->calls[rank].pair;
    cn_err err = cn_pair_handshake(*pair);

    if (err == CN_EAGAIN)
        return;
    if (err)
        cn_pair_close(*pair);
    else
        meeting->mesh->pairs[rank] = *pair;
    *pair = NULL;
}

// Completes the handshakes that have begun: only then can the other side be told that this member
// gives up. To a member that is not told, this one looks as if it had died.
static void finish_handshakes(struct meeting *meeting, uint32_t limit_ms)
{
    uint64_t now_ms = cn_platform_now_ms();
    uint64_t until_ms = now_ms + limit_ms;

    do {
        admit(meeting);
        for (int i = 0; i < CN_CANDIDATES; i++)
            if (meeting->candidates.pairs[i])
                (void)answer(meeting, &meeting->candidates.pairs[i]);
        for (uint32_t r = 0; r < meeting->view->rank; r++)
            if (meeting->calls[r].pair)
                finish_call(meeting, r);
        now_ms = cn_platform_now_ms();
    } while (wait_for_handshakes(meeting, now_ms, until_ms));
}

// Tells all members that this one gives up. Returns the index of the member to blame for err, or
// UINT32_MAX.
static uint32_t part(struct meeting *meeting, cn_err err, uint32_t rank)
{
    const struct cn_view *view = meeting->view;
    uint32_t lost = rank < view->size ? view->ranks[rank] : UINT32_MAX;
    uint32_t missing = first_missing(meeting), others = 0, cut;

    for (uint32_t r = 0; r < view->size; r++)
        others += r != view->rank && r != missing && !meeting->mesh->pairs[r];
    finish_handshakes(meeting, err == CN_ECANCELED ? FINISH_MS : CN_PARTING_FIND_MS);
    cut = cn_parting_run(meeting->mesh, view, lost,
                         err == CN_EPEER && lost == UINT32_MAX ? CN_PARTING_FIND_MS : 0);
    if (err == CN_EPEER && cut != UINT32_MAX)
        return cut;
    // The connected members live. If one other is missing, they gave up because of it.
    if (err == CN_EPEER && lost == UINT32_MAX && missing < view->size && !others &&
        !meeting->mesh->pairs[missing])
        return view->ranks[missing];
    return lost;
}

cn_err cn_mesh_open(const struct cn_pair_config *config, const struct cn_view *view,
                    uint64_t deadline_ms, int cancel_fd, struct cn_mesh *mesh, uint32_t *lost)
{
    struct meeting meeting = {.config = config,
                              .view = view,
                              .mesh = mesh,
                              .cancel_fd = cancel_fd,
                              .gone = UINT32_MAX,
                              .deadline_ms = deadline_ms};
    uint32_t rank;
    cn_err err;

    *mesh = (struct cn_mesh){0};
    *lost = UINT32_MAX;
    note_missing_keys(&meeting);
    for (uint32_t r = 0; r < view->rank; r++)
        meeting.calls[r].retry_ms = RETRY_MS;
    err = cn_pair_listen(config->listen ? config->listen : config->members[config->self].address,
                         &meeting.listener);
    if (err)
        return err;
    if (config->lossy_paths)
        cn_socket_use_small_segments(meeting.listener);
    err = meet(&meeting, &rank);
    if (err) // also when it was canceled, because another member gives no sign of life
        *lost = part(&meeting, err, rank);
    for (uint32_t r = 0; r < view->rank; r++)
        cn_pair_close(meeting.calls[r].pair);
    cn_candidates_close(&meeting.candidates);
    close(meeting.listener);
    if (err)
        cn_mesh_close(mesh);
    return err;
}

void cn_mesh_close(struct cn_mesh *mesh)
{
    for (int r = 0; r < CN_GROUP_MAX; r++)
        cn_pair_close(mesh->pairs[r]);
    *mesh = (struct cn_mesh){0};
}
