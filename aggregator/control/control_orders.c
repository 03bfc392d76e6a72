// Commands that ask something of a board: logs, and answer, which shows what came.
#include <string.h>
#include <time.h>

#include "aggregator/control/control_private.h"
#include "aggregator/show/json_text.h"
#include "runtime/port/crypto.h"

#define LINES 100 // unless the request says another number
#define LINES_MOST 1000

cn_err cn_control_apply_logs(struct cn_control *control, const struct cn_control_request *request,
                             struct cn_control_answer *answer)
{
    const struct cn_order order = {
        .kind = CN_ORDER_LOG,
        .lines = request->members & CN_CONTROL_LINES
                     ? (uint32_t)(request->lines < LINES_MOST ? request->lines : LINES_MOST)
                     : LINES,
    };
    struct cn_ledger_board board;
    cn_err err = cn_ledger_find_board(control->ledger, request->board, &board);
    bool enrolled = !err && !board.revoked;
    cn_crypto_wipe(&board, sizeof(board));
    if (!enrolled) {
        cn_control_refuse(answer, "%s is not enrolled", request->board);
        return err == CN_ENOTFOUND ? CN_OK : err;
    }
    err = cn_orders_ask(control->config.orders, request->board, &order, control->now_ms,
                        (uint32_t)time(NULL));
    if (err == CN_EBUSY)
        cn_control_refuse(answer,
                          "%s was asked a moment ago, or %d boards have not answered yet: try "
                          "again in a minute",
                          request->board, CN_ORDERS_MAX);
    else if (!err)
        cn_control_done(answer, "%s is asked for %u lines of its log", request->board, order.lines);
    return err == CN_EBUSY ? CN_OK : err;
}

cn_err cn_control_read_answer(struct cn_control *control, const struct cn_control_request *request,
                              struct cn_control_answer *answer, struct cn_buffer *out)
{
    const struct cn_board_order *order =
        cn_orders_find(control->config.orders, request->board, control->now_ms);
    struct cn_json_text json;
    if (!order) {
        cn_control_refuse(answer, "nothing was asked of %s within 10 minutes", request->board);
        return CN_OK;
    }
    answer->ok = true;
    cn_json_text_init(&json, out);
    cn_json_open(&json, NULL, '{');
    cn_json_count(&json, "seconds", (control->now_ms - order->asked_ms) / 1000);
    cn_json_bool(&json, "done", order->done);
    if (order->done)
        cn_json_string(&json, "text", order->text);
    cn_json_close(&json, '}');
    return json.err;
}
