#include "ports/tcp/narrow.h"

#include <stdlib.h>

#include "runtime/group/reduce.h"

#define AHEAD 32768 // bytes, to all others together, that need not wait for a turn

// Makes room for count bfloat16 numbers. An error ends the collective.
static cn_err reserve_halves(struct cn_tcp *tcp, size_t count)
{
    uint16_t *halves;

    if (count <= tcp->half_count)
        return CN_OK;
    halves = realloc(tcp->halves, count * sizeof(*halves));
    if (!halves)
        return cn_tcp_call_fail(tcp, UINT32_MAX, CN_ENOMEM);
    tcp->halves = halves;
    tcp->half_count = count;
    return CN_OK;
}

// Makes the stream to place p + k follow, byte for byte, what arrived from place p - k + 1, where p
// is this board's place. So the members take turns, and no link must carry what all send at the
// same time.
static void take_turns(struct cn_tcp *tcp, const struct cn_tcp_job *job)
{
    uint32_t size = job->set->size;

    for (uint32_t k = 2; k < size; k++) {
        struct cn_stream *stream = cn_tcp_call_stream(tcp, job, cn_tcp_call_place_after(job, k));

        stream->after =
            &cn_tcp_call_stream(tcp, job, cn_tcp_call_place_after(job, size - k + 1))->in;
        stream->credit = AHEAD / size;
    }
}

// Prepares an exchange of rounded numbers. With parts, each place sends every other one its share,
// and receives its own share from all others into parts, one after the other. With NULL, each place
// sends its share of sums to all.
static void swap_halves(struct cn_tcp *tcp, const struct cn_tcp_job *job, uint16_t *sums,
                        uint16_t *parts)
{
    size_t own_first, count = job->call->count;
    size_t own = cn_reduce_share(count, job->set->size, job->place, &own_first);

    cn_tcp_call_begin(tcp, job);
    for (uint32_t p = 0, k = 0; p < job->set->size; p++) {
        size_t first, share = cn_reduce_share(count, job->set->size, p, &first);
        struct cn_stream *stream;

        if (p == job->place)
            continue;
        stream = cn_tcp_call_stream(tcp, job, p);
        if (parts) {
            cn_flow_add(&stream->out, sums + first, 2 * share, CN_ARRIVAL_COPY);
            cn_flow_add(&stream->in, parts + k++ * own, 2 * own, CN_ARRIVAL_COPY);
        } else {
            cn_flow_add(&stream->out, sums + own_first, 2 * own, CN_ARRIVAL_COPY);
            cn_flow_add(&stream->in, sums + first, 2 * share, CN_ARRIVAL_COPY);
        }
    }
    take_turns(tcp, job);
}

cn_err cn_narrow_run(struct cn_tcp *tcp, const struct cn_tcp_job *job)
{
    uint32_t size = job->set->size;
    size_t first, own = cn_reduce_share(job->call->count, size, job->place, &first);
    float *data = job->call->data;
    uint16_t *sums, *parts;
    cn_err err = reserve_halves(tcp, job->call->count + (size - 1) * own);

    if (!err)
        err = cn_tcp_call_exchange_headers(tcp, job, cn_tcp_call_others(job),
                                           cn_tcp_call_others(job));
    if (err)
        return err;
    sums = tcp->halves;
    parts = sums + job->call->count;
    cn_reduce_narrow(sums, data, job->call->count);
    swap_halves(tcp, job, sums, parts);
    err = cn_tcp_call_finish(tcp);
    if (err)
        return err;
    cn_reduce_narrow_sum(data + first, own, parts, size - 1, sums + first);
    if (job->call->kind == CN_COLLECTIVE_REDUCE_SCATTER) {
        cn_reduce_widen(data + first, sums + first, own);
        return CN_OK;
    }
    swap_halves(tcp, job, sums, NULL);
    err = cn_tcp_call_finish(tcp);
    if (!err)
        cn_reduce_widen(data, sums, job->call->count);
    return err;
}
