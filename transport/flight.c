#include "transport/flight.h"

#include <stdlib.h>

#define REORDERING 8 // transmissions that may overtake one before it counts as lost

enum state {
    UNSENT,
    SENT,
    LOST,
    DONE,
};

static void append(struct cn_flight *flight, struct cn_flight_list *list, uint32_t chunk)
{
    struct cn_flight_chunk *entry = &flight->chunks[chunk];

    entry->previous = list->last;
    entry->next = CN_FLIGHT_NONE;
    if (list->last == CN_FLIGHT_NONE)
        list->first = chunk;
    else
        flight->chunks[list->last].next = chunk;
    list->last = chunk;
}

static void detach(struct cn_flight *flight, struct cn_flight_list *list, uint32_t chunk)
{
    struct cn_flight_chunk *entry = &flight->chunks[chunk];

    if (entry->previous == CN_FLIGHT_NONE)
        list->first = entry->next;
    else
        flight->chunks[entry->previous].next = entry->next;
    if (entry->next == CN_FLIGHT_NONE)
        list->last = entry->previous;
    else
        flight->chunks[entry->next].previous = entry->previous;
}

// Takes the chunk out of the list or the count that its state puts it in.
static void leave(struct cn_flight *flight, uint32_t chunk)
{
    switch ((enum state)flight->chunks[chunk].state) {
    case SENT:
        detach(flight, &flight->sent, chunk);
        flight->in_flight--;
        break;
    case LOST:
        detach(flight, &flight->lost, chunk);
        break;
    case DONE:
        flight->done--;
        break;
    case UNSENT:
        break;
    }
}

void cn_flight_restart(struct cn_flight *flight)
{
    for (uint32_t i = 0; i < flight->count; i++) {
        flight->chunks[i].state = UNSENT;
        flight->chunks[i].order = 0;
    }
    flight->fresh = 0;
    flight->done = 0;
    flight->in_flight = 0;
    flight->sent = (struct cn_flight_list){CN_FLIGHT_NONE, CN_FLIGHT_NONE};
    flight->lost = flight->sent;
}

cn_err cn_flight_init(struct cn_flight *flight, uint32_t count)
{
    *flight = (struct cn_flight){.count = count, .next_order = 1};
    flight->chunks = calloc(count, sizeof(*flight->chunks));
    if (!flight->chunks)
        return CN_ENOMEM;
    cn_flight_restart(flight);
    return CN_OK;
}

void cn_flight_deinit(struct cn_flight *flight)
{
    free(flight->chunks);
    flight->chunks = NULL;
}

uint32_t cn_flight_next(struct cn_flight *flight)
{
    if (flight->lost.first != CN_FLIGHT_NONE)
        return flight->lost.first;
    while (flight->fresh < flight->count && flight->chunks[flight->fresh].state != UNSENT)
        flight->fresh++;
    return flight->fresh < flight->count ? flight->fresh : CN_FLIGHT_NONE;
}

void cn_flight_sent(struct cn_flight *flight, uint32_t chunk, uint64_t now_us)
{
    struct cn_flight_chunk *entry = &flight->chunks[chunk];

    leave(flight, chunk);
    entry->state = SENT;
    entry->sent_us = now_us;
    entry->order = flight->next_order++;
    entry->tries++;
    append(flight, &flight->sent, chunk);
    flight->in_flight++;
}

bool cn_flight_arrived(struct cn_flight *flight, uint32_t chunk)
{
    if (flight->chunks[chunk].state == DONE)
        return false;
    leave(flight, chunk);
    flight->chunks[chunk].state = DONE;
    flight->done++;
    return true;
}

bool cn_flight_is_done(const struct cn_flight *flight, uint32_t chunk)
{
    return flight->chunks[chunk].state == DONE;
}

void cn_flight_lose(struct cn_flight *flight, uint32_t chunk)
{
    if (flight->chunks[chunk].state == LOST)
        return;
    leave(flight, chunk);
    flight->chunks[chunk].state = LOST;
    append(flight, &flight->lost, chunk);
}

void cn_flight_lose_all(struct cn_flight *flight)
{
    while (flight->sent.first != CN_FLIGHT_NONE)
        cn_flight_lose(flight, flight->sent.first);
}

void cn_flight_detect(struct cn_flight *flight, uint32_t before, uint32_t horizon,
                      const struct cn_rtt *rtt, struct cn_pacer *pacer, uint64_t now_us)
{
    uint64_t patience_us = rtt->srtt_us + rtt->srtt_us / 4;
    uint32_t next;

    for (uint32_t chunk = flight->sent.first; chunk != CN_FLIGHT_NONE; chunk = next) {
        const struct cn_flight_chunk *entry = &flight->chunks[chunk];

        next = entry->next;
        if (entry->order >= before)
            return;
        if (chunk >= horizon ||
            (entry->order + REORDERING >= before && now_us - entry->sent_us <= patience_us))
            continue;
        cn_pacer_lost(pacer, entry->order, flight->next_order);
        cn_flight_lose(flight, chunk);
    }
}

void cn_flight_expire(struct cn_flight *flight, struct cn_rtt *rtt, struct cn_pacer *pacer,
                      uint64_t now_us, uint64_t *wake_us)
{
    uint64_t due_us;

    if (flight->sent.first == CN_FLIGHT_NONE)
        return;
    due_us = flight->chunks[flight->sent.first].sent_us + cn_rtt_timeout_us(rtt);
    if (now_us < due_us) {
        if (due_us < *wake_us)
            *wake_us = due_us;
        return;
    }
    cn_flight_lose_all(flight);
    cn_rtt_back_off(rtt);
    cn_pacer_timed_out(pacer, flight->next_order);
}

uint64_t cn_transfer_tag(const struct cn_transfer *transfer, uint8_t tries, uint32_t chunk)
{
    return (uint64_t)transfer->kind << 56 | (uint64_t)transfer->generation << 40 |
           (uint64_t)tries << 32 | chunk;
}

bool cn_transfer_read_tag(const struct cn_transfer *transfer, uint64_t tag, uint8_t *tries,
                          uint32_t *chunk)
{
    *tries = (uint8_t)(tag >> 32);
    *chunk = (uint32_t)tag;
    return tag >> 40 == cn_transfer_tag(transfer, 0, 0) >> 40;
}
