#include "transport/transfer/in_flight.h"

#include <stdlib.h>

#define MARGIN_MAX 16   // quarters of the smallest round trip
#define CALM 256        // correct losses in a row after which the margin shrinks
#define PROBES_MAX 2    // repetitions of the end of the transfer
#define PROBED_MAX 8    // up to this many parcels in flight are repeated at the end, else only one
#define PROBE_US 10000  // least pause before repeating the end; else a quarter of the round trip
#define SILENCES_MAX 3  // time-outs that repeat a single parcel before the link counts as gone
#define ANSWER_US 20000 // longest time between a parcel and the next one that asks for the status

enum state {
    UNSENT,
    SENT,
    LOST,
    DONE,
};

static void append(struct cn_in_flight *flight, struct cn_in_flight_list *list, uint32_t parcel)
{
    struct cn_in_flight_parcel *entry = &flight->parcels[parcel];

    entry->previous = list->last;
    entry->next = CN_IN_FLIGHT_NONE;
    if (list->last == CN_IN_FLIGHT_NONE)
        list->first = parcel;
    else
        flight->parcels[list->last].next = parcel;
    list->last = parcel;
}

static void detach(struct cn_in_flight *flight, struct cn_in_flight_list *list, uint32_t parcel)
{
    struct cn_in_flight_parcel *entry = &flight->parcels[parcel];

    if (entry->previous == CN_IN_FLIGHT_NONE)
        list->first = entry->next;
    else
        flight->parcels[entry->previous].next = entry->next;
    if (entry->next == CN_IN_FLIGHT_NONE)
        list->last = entry->previous;
    else
        flight->parcels[entry->next].previous = entry->previous;
}

// Removes the parcel from the list or the count of its state.
static void leave(struct cn_in_flight *flight, uint32_t parcel)
{
    switch ((enum state)flight->parcels[parcel].state) {
    case SENT:
        detach(flight, &flight->sent, parcel);
        flight->in_flight -= flight->parcels[parcel].size;
        break;
    case LOST:
        detach(flight, &flight->lost, parcel);
        break;
    case DONE:
        flight->done--;
        if (parcel < flight->base)
            flight->base = parcel;
        break;
    case UNSENT:
        break;
    }
}

void cn_in_flight_restart(struct cn_in_flight *flight)
{
    for (uint32_t i = 0; i < flight->count; i++) {
        flight->parcels[i].state = UNSENT;
        flight->parcels[i].order = 0;
    }
    flight->base = 0;
    flight->fresh = 0;
    flight->done = 0;
    flight->in_flight = 0;
    flight->newest_order = 0;
    flight->silences = 0;
    flight->sent = (struct cn_in_flight_list){CN_IN_FLIGHT_NONE, CN_IN_FLIGHT_NONE};
    flight->lost = flight->sent;
}

cn_err cn_in_flight_init(struct cn_in_flight *flight, struct cn_controller *controller,
                         uint32_t count)
{
    *flight = (struct cn_in_flight){
        .controller = controller, .count = count, .next_order = 1, .margin = 1};
    flight->parcels = calloc(count, sizeof(*flight->parcels));
    if (!flight->parcels)
        return CN_ENOMEM;
    cn_in_flight_restart(flight);
    return CN_OK;
}

void cn_in_flight_deinit(struct cn_in_flight *flight)
{
    free(flight->parcels);
    flight->parcels = NULL;
}

uint32_t cn_in_flight_next(struct cn_in_flight *flight)
{
    if (flight->lost.first != CN_IN_FLIGHT_NONE)
        return flight->lost.first;
    while (flight->fresh < flight->count && flight->parcels[flight->fresh].state != UNSENT)
        flight->fresh++;
    return flight->fresh < flight->count ? flight->fresh : CN_IN_FLIGHT_NONE;
}

bool cn_in_flight_may_send(const struct cn_in_flight *flight, uint64_t now_us, uint64_t *wake_us)
{
    return flight->urgent ||
           cn_controller_may_send(flight->controller, flight->in_flight, now_us, wake_us);
}

void cn_in_flight_sent(struct cn_in_flight *flight, uint32_t parcel, uint32_t size, uint64_t now_us)
{
    struct cn_in_flight_parcel *entry = &flight->parcels[parcel];
    uint64_t gap_us = now_us - entry->mark.sent_us;

    leave(flight, parcel);
    if (!flight->in_flight)
        flight->heard_us = now_us;
    cn_controller_sent(flight->controller, size, flight->in_flight, now_us, &entry->mark);
    entry->earlier_order = entry->order;
    entry->earlier_us = gap_us < UINT32_MAX ? (uint32_t)gap_us : UINT32_MAX;
    entry->state = SENT;
    entry->size = size;
    entry->probe = entry->order == 0 && entry->tries > 0;
    entry->order = flight->next_order++;
    flight->sent_us = now_us;
    flight->urgent = false;
    flight->retransmissions += entry->tries > 0;
    entry->tries++;
    append(flight, &flight->sent, parcel);
    flight->in_flight += size;
    if (cn_in_flight_next(flight) == CN_IN_FLIGHT_NONE)
        cn_controller_limited(flight->controller, flight->in_flight);
}

// Returns whether the parcel was declared lost although its earlier transmission has arrived.
static bool is_spurious(const struct cn_in_flight *flight, const struct cn_in_flight_parcel *entry,
                        uint8_t behind, uint64_t now_us)
{
    if (entry->state == LOST)
        return entry->order != 0;
    if (entry->state != SENT || entry->probe || entry->tries == 1)
        return false;
    return behind == 1 || now_us - entry->mark.sent_us < flight->controller->min_rtt_us;
}

// Notes the newest transmission that arrived: earlier ones are late (RACK, RFC 8985). For a parcel
// that was sent more than once it must be certain which transmission arrived. If an early one
// counted as the newest, as after a spike of delay, all other parcels would look lost.
static void renew_newest(struct cn_in_flight *flight, const struct cn_in_flight_parcel *entry,
                         uint8_t behind, uint64_t now_us)
{
    uint32_t order = entry->order;
    uint64_t sent_us = entry->mark.sent_us;

    if (behind == 1 && entry->earlier_order) {
        order = entry->earlier_order;
        sent_us -= entry->earlier_us;
    } else if (behind && entry->tries != 1) {
        return;
    }
    if (order > flight->newest_order) {
        flight->newest_order = order;
        flight->newest_rtt_us = now_us - sent_us;
    }
}

bool cn_in_flight_arrived(struct cn_in_flight *flight, uint32_t parcel, uint8_t behind,
                          uint64_t now_us)
{
    struct cn_in_flight_parcel *entry = &flight->parcels[parcel];
    bool sent = entry->state == SENT;
    bool certain = behind == 0 || entry->tries == 1; // the newest transmission arrived

    if (entry->state == DONE)
        return false;
    flight->silences = 0;
    flight->probes = 0;
    flight->heard_us = now_us;
    if (is_spurious(flight, entry, behind, now_us)) {
        cn_controller_undo_loss(flight->controller, entry->size);
        flight->spurious++;
        flight->calm = 0;
        if (flight->margin < MARGIN_MAX)
            flight->margin++;
    } else if (sent) {
        renew_newest(flight, entry, behind, now_us);
    }
    if (sent)
        cn_controller_arrived(flight->controller, certain ? &entry->mark : NULL, entry->size,
                              now_us);
    leave(flight, parcel);
    entry->state = DONE;
    flight->done++;
    while (flight->base < flight->count && flight->parcels[flight->base].state == DONE)
        flight->base++;
    return true;
}

void cn_in_flight_settle(struct cn_in_flight *flight, uint32_t parcel)
{
    if (flight->parcels[parcel].state == DONE)
        return;
    leave(flight, parcel);
    flight->parcels[parcel].state = DONE;
    flight->done++;
    while (flight->base < flight->count && flight->parcels[flight->base].state == DONE)
        flight->base++;
}

bool cn_in_flight_is_done(const struct cn_in_flight *flight, uint32_t parcel)
{
    return flight->parcels[parcel].state == DONE;
}

void cn_in_flight_lose(struct cn_in_flight *flight, uint32_t parcel)
{
    if (flight->parcels[parcel].state == LOST)
        return;
    leave(flight, parcel);
    flight->parcels[parcel].state = LOST;
    append(flight, &flight->lost, parcel);
}

// Queues a parcel to be sent again without a sign that it was lost. If it did arrive, that does not
// count as a mistake of the loss detection.
static void give_up(struct cn_in_flight *flight, uint32_t parcel)
{
    cn_in_flight_lose(flight, parcel);
    flight->parcels[parcel].order = 0;
}

void cn_in_flight_again(struct cn_in_flight *flight, uint32_t parcel, uint64_t now_us)
{
    if (flight->parcels[parcel].state != SENT)
        return;
    flight->silences = 0;
    flight->heard_us = now_us;
    give_up(flight, parcel);
}

void cn_in_flight_lose_all(struct cn_in_flight *flight)
{
    while (flight->sent.first != CN_IN_FLIGHT_NONE)
        give_up(flight, flight->sent.first);
}

// Returns the time after which a transmission earlier than the newest arrived one counts as lost.
static uint64_t patience_us(const struct cn_in_flight *flight)
{
    uint64_t margin_us = flight->margin * (flight->controller->min_rtt_us / 4) + 1000;
    uint64_t rtt_us = flight->newest_rtt_us;

    return rtt_us + (margin_us < rtt_us ? margin_us : rtt_us);
}

// Finds lost parcels. Returns the time when the next one will count as lost, UINT64_MAX for none.
static uint64_t detect(struct cn_in_flight *flight, uint64_t now_us)
{
    uint32_t next;

    for (uint32_t parcel = flight->sent.first; parcel != CN_IN_FLIGHT_NONE; parcel = next) {
        const struct cn_in_flight_parcel *entry = &flight->parcels[parcel];
        uint64_t due_us = entry->mark.sent_us + patience_us(flight);

        next = entry->next;
        if (entry->order >= flight->newest_order)
            return UINT64_MAX;
        if (now_us < due_us)
            return due_us;
        cn_controller_lost(flight->controller, entry->size);
        cn_in_flight_lose(flight, parcel);
        if (++flight->calm >= CALM && flight->margin > 1) {
            flight->margin--;
            flight->calm = 0;
        }
    }
    return UINT64_MAX;
}

void cn_in_flight_acked(struct cn_in_flight *flight, uint64_t rtt_us, uint64_t now_us)
{
    flight->heard_us = now_us;
    if (!flight->controller->stream)
        detect(flight, now_us);
    cn_controller_acked(flight->controller, rtt_us, flight->in_flight, now_us);
}

// Repeats all parcels in flight when they are few, otherwise the newest. Waiting for a second loss
// at the end would cost more than these bytes.
static void repeat_end(struct cn_in_flight *flight)
{
    uint32_t parcel = flight->sent.first;
    unsigned count = 0;

    for (; parcel != CN_IN_FLIGHT_NONE && count <= PROBED_MAX; count++)
        parcel = flight->parcels[parcel].next;
    if (count > PROBED_MAX)
        give_up(flight, flight->sent.last);
    else
        cn_in_flight_lose_all(flight);
}

// Repeats the end of the transfer soon after everything was sent, as an answer reports all parcels.
// Returns whether it did.
static bool probe_end(struct cn_in_flight *flight, uint64_t now_us, uint64_t *wake_us)
{
    uint64_t pause_us = flight->controller->min_rtt_us / 4;
    uint64_t due_us = flight->sent_us + (pause_us > PROBE_US ? pause_us : PROBE_US);

    if (flight->probes == PROBES_MAX || cn_in_flight_next(flight) != CN_IN_FLIGHT_NONE)
        return false;
    if (now_us < due_us) {
        if (due_us < *wake_us)
            *wake_us = due_us;
        return false;
    }
    flight->probes++;
    repeat_end(flight);
    return true;
}

bool cn_in_flight_expire(struct cn_in_flight *flight, struct cn_rtt *rtt, uint64_t now_us,
                         uint64_t *wake_us)
{
    uint64_t due_us;

    if (flight->controller->stream)
        return false;
    due_us = detect(flight, now_us);
    if (due_us < *wake_us)
        *wake_us = due_us;
    if (flight->sent.first == CN_IN_FLIGHT_NONE)
        return false;
    if (probe_end(flight, now_us, wake_us))
        return true;
    due_us = flight->parcels[flight->sent.first].mark.sent_us;
    if (due_us < flight->heard_us)
        due_us = flight->heard_us;
    due_us += cn_rtt_timeout_us(rtt) + ANSWER_US;
    if (now_us < due_us) {
        if (due_us < *wake_us)
            *wake_us = due_us;
        return false;
    }
    cn_rtt_back_off(rtt);
    flight->heard_us = now_us;
    if (flight->silences++ < SILENCES_MAX) {
        give_up(flight, flight->sent.first);
        flight->urgent = true;
    } else {
        cn_in_flight_lose_all(flight);
        cn_controller_gone(flight->controller);
        flight->gone = true;
    }
    return true;
}

bool cn_in_flight_take_gone(struct cn_in_flight *flight)
{
    bool gone = flight->gone;

    flight->gone = false;
    return gone;
}

uint64_t cn_transfer_tag(const struct cn_transfer *transfer, uint8_t tries, uint32_t parcel)
{
    return (uint64_t)transfer->kind << 56 | (uint64_t)transfer->generation << 40 |
           (uint64_t)tries << 32 | parcel;
}

bool cn_transfer_read_tag(const struct cn_transfer *transfer, uint64_t tag, uint8_t *tries,
                          uint32_t *parcel)
{
    *tries = (uint8_t)(tag >> 32);
    *parcel = (uint32_t)tag;
    return tag >> 40 == cn_transfer_tag(transfer, 0, 0) >> 40;
}
