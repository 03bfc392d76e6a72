// Commands that ask something of a board: logs, selftest; and answer, which shows what came.
#include <string.h>
#include <time.h>

#include "aggregator/control/control_private.h"
#include "aggregator/show/json_text.h"
#include "runtime/port/crypto.h"

#define LINES 100 // lines of a board's log, unless the request says another number

static const char *const kinds[] = {[CN_ORDER_LOG] = "logs", [CN_ORDER_SELFTEST] = "selftest"};

// Says why a board cannot be asked.
static void refuse_busy(struct cn_control *control, const char *name,
                        struct cn_control_answer *answer)
{
    const struct cn_board_order *earlier =
        cn_orders_find(control->config.orders, name, control->now_ms);
    if (!earlier)
        cn_control_refuse(answer, "%d boards have not answered yet: try again in two minutes",
                          CN_ORDERS_MAX);
    else if (!earlier->done)
        cn_control_refuse(answer,
                          "%s has not answered to %s yet: its answer is awaited for %d minutes",
                          name, kinds[earlier->order.kind], CN_ORDERS_KEPT_MS / 60000);
    else
        cn_control_refuse(answer, "%s was asked for %s a moment ago: try again in %d seconds", name,
                          kinds[earlier->order.kind], CN_ORDERS_AGAIN_MS / 1000);
}

static cn_err ask(struct cn_control *control, const char *name, const struct cn_order *order,
                  const char *done, struct cn_control_answer *answer)
{
    struct cn_ledger_board board = {0};
    cn_err err = cn_ledger_find_board(control->ledger, name, &board);
    bool enrolled = !err && !board.revoked;
    cn_crypto_wipe(&board, sizeof(board));
    if (!enrolled) {
        cn_control_refuse(answer, "%s is not enrolled", name);
        return err == CN_ENOTFOUND ? CN_OK : err;
    }
    err = cn_orders_ask(control->config.orders, name, order, control->now_ms, (uint32_t)time(NULL));
    if (err == CN_EBUSY)
        refuse_busy(control, name, answer);
    else if (!err) // it may have been asked before, for another number of lines
        cn_control_done(answer, done, name,
                        cn_orders_find(control->config.orders, name, control->now_ms)->order.lines);
    return err == CN_EBUSY ? CN_OK : err;
}

cn_err cn_control_apply_logs(struct cn_control *control, const struct cn_control_request *request,
                             struct cn_control_answer *answer)
{
    uint64_t lines = request->members & CN_CONTROL_LINES ? request->lines : LINES;
    if (lines < 1 || lines > CN_ORDER_LINES_MAX) {
        cn_control_refuse(answer, "lines: expected 1 to %d", CN_ORDER_LINES_MAX);
        return CN_OK;
    }
    const struct cn_order order = {.kind = CN_ORDER_LOG, .lines = (uint32_t)lines};
    return ask(control, request->board, &order, "%s is asked for %u lines of its log", answer);
}

cn_err cn_control_apply_selftest(struct cn_control *control,
                                 const struct cn_control_request *request,
                                 struct cn_control_answer *answer)
{
    const struct cn_order order = {.kind = CN_ORDER_SELFTEST};
    return ask(control, request->board, &order, "%s is asked to test itself", answer);
}

cn_err cn_control_read_answer(struct cn_control *control, const struct cn_control_request *request,
                              struct cn_control_answer *answer, struct cn_buffer *out)
{
    struct cn_board_order *order =
        cn_orders_find(control->config.orders, request->board, control->now_ms);
    struct cn_json_text json;
    if (!order) {
        cn_control_refuse(answer,
                          "nothing was asked of %s within 10 minutes, or the aggregator was "
                          "started again since",
                          request->board);
        return CN_OK;
    }
    answer->ok = true;
    cn_json_text_init(&json, out);
    cn_json_open(&json, NULL, '{');
    cn_json_string(&json, "command", kinds[order->order.kind]);
    cn_json_count(&json, "seconds", (control->now_ms - order->asked_ms) / 1000);
    cn_json_count(&json, "parts", (uint64_t)__builtin_popcountll(order->have));
    cn_json_bool(&json, "done", order->done);
    if (order->done) {
        cn_json_bool(&json, "refused", order->refused);
        cn_json_string(&json, "text", order->text);
    }
    cn_json_close(&json, '}');
    order->shown |= order->done && !json.err;
    return json.err;
}
