#include "aggregator/daemon/job_bytes.h"

static uint64_t add_share(uint64_t *sum, uint64_t now, uint64_t before, double part)
{
    uint64_t share = (uint64_t)((double)(now - before) * part);
    *sum += share;
    return share;
}

static void add_shares(struct cn_link_bytes *sum, struct cn_link_bytes *all,
                       const struct cn_link_bytes *now, const struct cn_link_bytes *before,
                       double part)
{
    all->payload += add_share(&sum->payload, now->payload, before->payload, part);
    all->messages += add_share(&sum->messages, now->messages, before->messages, part);
    all->wire += add_share(&sum->wire, now->wire, before->wire, part);
}

void cn_job_bytes_divide(struct cn_job_set *set, const struct cn_coap_server *server)
{
    struct cn_coap_server_stats now = {0};
    uint64_t requests = 0;
    cn_coap_server_stats(server, &now);
    for (size_t i = 0; i < set->count; i++)
        requests += set->slots[i].requests;
    for (size_t i = 0; i < set->count && requests; i++) {
        struct cn_job_slot *slot = &set->slots[i];
        double part = i ? (double)slot->requests / (double)requests : 0;
        add_shares(&slot->traffic.in, &set->others.in, &now.in, &set->counted.in, part);
        add_shares(&slot->traffic.out, &set->others.out, &now.out, &set->counted.out, part);
        slot->requests = 0;
    }
    set->counted = (struct cn_run_traffic){now.in, now.out};
}

static void take_off(struct cn_link_bytes *sum, const struct cn_link_bytes *part)
{
    sum->payload -= part->payload;
    sum->messages -= part->messages;
    sum->wire -= part->wire;
}

void cn_job_bytes_take_off(const struct cn_job_set *set, struct cn_run_traffic *traffic)
{
    take_off(&traffic->in, &set->others.in);
    take_off(&traffic->out, &set->others.out);
}
