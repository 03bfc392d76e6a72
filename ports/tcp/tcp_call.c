#include "ports/tcp/tcp_call.h"

#include "ports/tcp/parting.h"
#include "runtime/base/bytes.h"
#include "runtime/base/log.h"

static uint32_t member_of(const struct cn_tcp *tcp, uint32_t rank)
{
    return tcp->view.ranks[rank];
}

// Remembers the members to whom large packets are lost. Connections with them in later epochs have
// smaller segments.
static void note_lossy_paths(struct cn_tcp *tcp)
{
    for (uint32_t r = 0; r < tcp->view.size; r++) {
        const struct cn_pair *pair = tcp->mesh.pairs[r];
        uint32_t member = member_of(tcp, r);

        if (!tcp->lossy_paths || !pair || *tcp->lossy_paths >> member & 1 ||
            !cn_pair_loses_large(pair))
            continue;
        *tcp->lossy_paths |= 1u << member;
        cn_log(CN_LOG_WARN, "pair",
               "large packets to %s (%s) are lost on the way: smaller segments from now on",
               tcp->pairs.members[member].name, tcp->pairs.members[member].address);
    }
}

cn_err cn_tcp_call_fail(struct cn_tcp *tcp, uint32_t lost, cn_err err)
{
    note_lossy_paths(tcp);
    // A board that is stopped gives no notice: it does not end because of another member.
    if (err != CN_ECANCELED || atomic_load(&tcp->gives_up)) {
        uint32_t cut =
            cn_parting_run(&tcp->mesh, &tcp->view, lost, err == CN_EPEER ? CN_PARTING_FIND_MS : 0);

        lost = err == CN_EPEER ? cut : lost;
    }
    tcp->dead = true;
    tcp->lost = lost;
    cn_mesh_close(&tcp->mesh);
    return err;
}

uint32_t cn_tcp_call_others(const struct cn_tcp_job *job)
{
    return ~(1u << job->place);
}

uint32_t cn_tcp_call_place_after(const struct cn_tcp_job *job, uint32_t steps)
{
    return (job->place + steps) % job->set->size;
}

void cn_tcp_call_begin(struct cn_tcp *tcp, const struct cn_tcp_job *job)
{
    struct cn_stream_exchange *exchange = &tcp->exchange;

    exchange->count = 0;
    exchange->type = job->call->type;
    exchange->how = job->call->how;
    exchange->members = job->set->size;
    exchange->names = tcp->pairs.members;
    exchange->doing = job->doing;
    exchange->timeout_ms = job->timeout_ms;
    exchange->stop_fds[0] = tcp->cancel_fd;
    exchange->stop_fds[1] = tcp->stop_fd;
    exchange->canceled = &tcp->canceled;
    exchange->expected = tcp->ours;
}

struct cn_stream *cn_tcp_call_stream(struct cn_tcp *tcp, const struct cn_tcp_job *job,
                                     uint32_t place)
{
    uint32_t rank = job->set->ranks[place % job->set->size];

    return cn_stream_exchange_stream(&tcp->exchange, tcp->mesh.pairs[rank], member_of(tcp, rank));
}

static void write_header(const struct cn_tcp_job *job, uint8_t header[CN_CALL_HEADER_SIZE])
{
    const struct cn_collective_call *call = job->call;
    bool directed = call->kind == CN_COLLECTIVE_SEND || call->kind == CN_COLLECTIVE_RECEIVE;

    // The headers of both ends of a message are the same.
    header[0] = (uint8_t)(directed ? CN_COLLECTIVE_SEND : call->kind);
    header[1] = (uint8_t)call->how;
    header[2] = (uint8_t)(call->type | call->wire << 4);
    header[3] = (uint8_t)(call->kind == CN_COLLECTIVE_BROADCAST ? call->peer : 0);
    cn_put_u32(header + 4, directed ? 0 : job->number);
    cn_put_u64(header + 8, call->count);
    cn_put_u32(header + 16, job->set->id);
    cn_put_u32(header + 20, call->fingerprint);
}

void cn_tcp_call_describe(struct cn_tcp_job *job)
{
    uint8_t header[CN_CALL_HEADER_SIZE];

    write_header(job, header);
    cn_call_header_describe(header, job->doing);
}

// Logs the call of this board and the different one of another member.
static void tell_difference(const struct cn_tcp *tcp, uint32_t member)
{
    char mine[CN_CALL_DESCRIPTION_SIZE], other[CN_CALL_DESCRIPTION_SIZE];

    cn_call_header_describe(tcp->ours, mine);
    cn_call_header_describe(tcp->theirs[member], other);
    cn_log(CN_LOG_ERROR, "collective", "%s is at %s; %s (this board) is at %s",
           tcp->pairs.members[member].name, other, tcp->pairs.members[tcp->pairs.self].name, mine);
}

cn_err cn_tcp_call_finish(struct cn_tcp *tcp)
{
    cn_err err = cn_stream_exchange_run(&tcp->exchange);

    if (err == CN_ECONFLICT)
        tell_difference(tcp, tcp->exchange.lost);
    return err ? cn_tcp_call_fail(tcp, tcp->exchange.lost, err) : CN_OK;
}

void cn_tcp_call_add_headers(struct cn_tcp *tcp, const struct cn_tcp_job *job, uint32_t receives,
                             uint32_t sends)
{
    write_header(job, tcp->ours);
    for (uint32_t p = 0; p < job->set->size; p++) {
        uint8_t *theirs = tcp->theirs[member_of(tcp, job->set->ranks[p])];

        if (sends >> p & 1)
            cn_flow_add(&cn_tcp_call_stream(tcp, job, p)->out, tcp->ours, CN_CALL_HEADER_SIZE,
                        CN_ARRIVAL_COPY);
        if (receives >> p & 1)
            cn_flow_add(&cn_tcp_call_stream(tcp, job, p)->in, theirs, CN_CALL_HEADER_SIZE,
                        CN_ARRIVAL_MATCH);
    }
}

cn_err cn_tcp_call_exchange_headers(struct cn_tcp *tcp, const struct cn_tcp_job *job,
                                    uint32_t receives, uint32_t sends)
{
    cn_tcp_call_begin(tcp, job);
    cn_tcp_call_add_headers(tcp, job, receives, sends);
    return cn_tcp_call_finish(tcp);
}
