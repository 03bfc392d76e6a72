#include "transport/transfer/path_mtu.h"

#include <string.h>

#include "runtime/base/log.h"
#include "transport/coap/coap.h"

#define TRIES 3               // probes of each size (RFC 8899, 5.1.2: MAX_PROBES)
#define RAISE_US 600000000ull // time until a larger size is tried again (PMTU_RAISE_TIMER)
#define AGAIN_US 5000000u     // pause after a search without any answer
#define TIMEOUT_MIN_US 250000u
#define UNCONNECTED_US 100000u
#define ANSWER_AROUND 80 // bytes around a probe's body: DTLS, CoAP header, token, path

// Largest message bodies in datagrams of 548 (an MTU of 576), 804, 1060, 1232 (the base), 1296,
// 1360 and 1424 bytes (coap.h).
static const uint32_t bodies[CN_PATH_MTU_SIZES] = {404, 660, 916, 1088, 1152, 1216, 1280};
#define BASE 3 // index of the base

void cn_path_mtu_init(struct cn_path_mtu *search, struct cn_exchange *exchange,
                      const struct cn_rtt *rtt, uint8_t kind)
{
    *search = (struct cn_path_mtu){.exchange = exchange, .rtt = rtt, .kind = kind};
    cn_path_mtu_restart(search);
}

static void begin(struct cn_path_mtu *search, int assumed)
{
    search->best = -1;
    search->worst = CN_PATH_MTU_SIZES;
    search->assumed = assumed;
    search->probed = -1;
    search->due_us = 0;
}

void cn_path_mtu_restart(struct cn_path_mtu *search)
{
    search->stopped = false;
    begin(search, BASE);
}

void cn_path_mtu_doubt(struct cn_path_mtu *search)
{
    if (search->probed < 0 && !search->stopped)
        begin(search, search->assumed < BASE ? 0 : BASE);
}

// Returns the size to probe next, or -1 when the search is over. Until a probe is answered it tries
// the largest size, the base and the smallest: most paths take the largest, almost all the base.
static int next_size(const struct cn_path_mtu *search)
{
    if (search->best < 0 && search->worst == CN_PATH_MTU_SIZES)
        return CN_PATH_MTU_SIZES - 1;
    if (search->best < 0 && search->worst > BASE)
        return BASE;
    if (search->best < 0)
        return search->worst ? 0 : -1;
    if (search->worst - search->best <= 1)
        return -1;
    return (search->best + search->worst) / 2;
}

static void assume(struct cn_path_mtu *search, int size)
{
    if (size != search->assumed)
        cn_log(CN_LOG_DEBUG, "link", "the path takes messages of %u bytes, not %u", bodies[size],
               bodies[search->assumed]);
    search->assumed = size;
}

static void settle(struct cn_path_mtu *search, uint64_t now_us)
{
    assume(search, search->best < 0 ? 0 : search->best);
    // Without any answer the search found nothing, as the aggregator is not reachable: search
    // again.
    search->due_us = now_us + (search->best < 0 ? AGAIN_US : RAISE_US);
}

static void send_probe(struct cn_path_mtu *search, uint64_t now_us)
{
    static const uint8_t zeros[1424];
    const struct cn_rtt rtt = {search->rtt->srtt_us, search->rtt->variation_us, 0};
    uint64_t timeout_us = 2 * cn_rtt_timeout_us(&rtt); // without the back-off of transfers
    struct cn_exchange_request request = {
        .method = CN_COAP_POST,
        .path = "p",
        .body = zeros,
        .size = bodies[search->probed] + CN_COAP_AROUND - ANSWER_AROUND,
        .probe = true,
    };

    request.tag = (uint64_t)search->kind << 56 | ++search->number;
    if (search->exchange->ops->send(search->exchange, &request)) {
        search->due_us = now_us + UNCONNECTED_US;
        return;
    }
    search->tries++;
    search->due_us = now_us + (timeout_us > TIMEOUT_MIN_US ? timeout_us : TIMEOUT_MIN_US);
}

// Goes to the next size, after TRIES unanswered probes of one size or when no probe is under way.
static void move_on(struct cn_path_mtu *search, uint64_t now_us)
{
    if (search->probed >= 0)
        search->worst = search->probed;
    else // time to try a larger size
        search->worst = CN_PATH_MTU_SIZES;
    if (search->best < 0 && search->worst <= BASE)
        assume(search, 0);
    search->tries = 0;
    search->probed = next_size(search);
    if (search->probed < 0)
        settle(search, now_us);
}

void cn_path_mtu_step(struct cn_path_mtu *search, uint64_t now_us, uint64_t *wake_us)
{
    if (search->stopped || !search->exchange->searches_mtu ||
        search->exchange->state != CN_EXCHANGE_UP)
        return;
    if (now_us >= search->due_us) {
        if (search->probed < 0 || search->tries == TRIES)
            move_on(search, now_us);
        if (search->probed >= 0)
            send_probe(search, now_us);
    }
    if (search->due_us < *wake_us)
        *wake_us = search->due_us;
}

bool cn_path_mtu_reply(struct cn_path_mtu *search, const struct cn_exchange_reply *reply,
                       uint64_t now_us)
{
    // An answer to an earlier probe of this size is only late, so it counts as well.
    uint32_t age = search->number - (uint32_t)reply->tag;

    if (reply->tag >> 56 != search->kind || search->probed < 0 || age >= search->tries)
        return reply->tag >> 56 == search->kind;
    if (reply->code == CN_COAP_NOT_FOUND || reply->code == CN_COAP_METHOD_NOT_ALLOWED) {
        search->stopped = true; // an older aggregator has no resource p
        search->probed = -1;
        return true;
    }
    if (reply->code != CN_COAP_CHANGED)
        return true;
    search->best = search->probed;
    if (search->worst <= search->best)
        search->worst = search->best + 1;
    search->tries = 0;
    search->probed = next_size(search);
    if (search->best > search->assumed)
        assume(search, search->best);
    if (search->probed < 0)
        settle(search, now_us);
    else
        search->due_us = now_us;
    return true;
}

uint32_t cn_path_mtu_body(const struct cn_path_mtu *search)
{
    if (search->exchange->searches_mtu)
        return bodies[search->assumed];
    return search->exchange->body_max;
}
