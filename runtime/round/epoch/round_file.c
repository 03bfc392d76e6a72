#include "runtime/round/epoch/round_file.h"

#include <string.h>

#include "runtime/base/bytes.h"
#include "runtime/base/log.h"
#include "runtime/round/upkeep/small_file.h"

#define FILE_NAME "round"

static const char magic[] = "CNROUND1";

enum {
    RUN_AT = 0,
    LINEAGE_AT = 8,
    ROUND_AT = 12,
    STEPS_AT = 16,
    MODE_AT = 20,
    VALUE_BITS_AT = 24,
    NEWEST_AT = 28,
    DENSITY_AT = 32,
    NEWEST_DIGEST_AT = 40,
    BASE_AT = NEWEST_DIGEST_AT + CN_DIGEST_SIZE,
    BODY_SIZE = BASE_AT + CN_DIGEST_SIZE,
};

void cn_round_file_save(const struct cn_session *session, const struct cn_round_order *order)
{
    const struct cn_checkpoint *held = cn_session_held(session);
    uint8_t body[BODY_SIZE];
    cn_err err;

    cn_put_u64(body + RUN_AT, held->run);
    cn_put_u32(body + LINEAGE_AT, held->lineage);
    cn_put_u32(body + ROUND_AT, order->round);
    cn_put_u32(body + STEPS_AT, order->steps);
    cn_put_u32(body + MODE_AT, (uint32_t)order->rule.mode);
    cn_put_u32(body + VALUE_BITS_AT, order->rule.value_bits);
    cn_put_u32(body + NEWEST_AT, order->newest.round);
    memcpy(body + DENSITY_AT, &order->rule.density, 8);
    memcpy(body + NEWEST_DIGEST_AT, order->newest.digest, CN_DIGEST_SIZE);
    memcpy(body + BASE_AT, held->base_digest, CN_DIGEST_SIZE);
    err = cn_small_file_save(cn_session_get_config(session)->store, FILE_NAME, magic, body,
                             sizeof(body));
    if (err)
        cn_log(CN_LOG_WARN, "session", "the beginning of round %u is not stored: %s", order->round,
               cn_err_text(err));
}

static bool follows(const struct cn_checkpoint *held, const uint8_t *body)
{
    return held->phase == CN_PHASE_BASE && cn_get_u64(body + RUN_AT) == held->run &&
           cn_get_u32(body + LINEAGE_AT) == held->lineage &&
           cn_get_u32(body + ROUND_AT) > held->round &&
           memcmp(body + BASE_AT, held->base_digest, CN_DIGEST_SIZE) == 0;
}

cn_err cn_round_file_resume(struct cn_session *session)
{
    uint8_t body[BODY_SIZE];
    struct cn_round_order order = {0};
    cn_err err;

    if (!cn_small_file_load(cn_session_get_config(session)->store, FILE_NAME, magic,
                            "the round begins when the aggregator tells of it", body,
                            sizeof(body)) ||
        !follows(cn_session_held(session), body))
        return CN_OK;
    order.round = cn_get_u32(body + ROUND_AT);
    order.steps = cn_get_u32(body + STEPS_AT);
    order.rule.mode = (enum cn_update_mode)cn_get_u32(body + MODE_AT);
    order.rule.value_bits = cn_get_u32(body + VALUE_BITS_AT);
    order.newest.round = cn_get_u32(body + NEWEST_AT);
    memcpy(&order.rule.density, body + DENSITY_AT, 8);
    memcpy(order.newest.digest, body + NEWEST_DIGEST_AT, CN_DIGEST_SIZE);
    err = cn_session_begin(session, &order);
    if (err == CN_EFORMAT) // written by another release, or what waits has to be gathered before
        return CN_OK;
    if (!err)
        cn_log(CN_LOG_INFO, "session", "beginning round %u again", order.round);
    return err;
}
