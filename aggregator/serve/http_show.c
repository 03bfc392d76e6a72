#include "aggregator/serve/http_show.h"

#include "aggregator/serve/status.h"
#include "runtime/port/platform.h"
#include "runtime/profile/profile.h"

cn_err cn_http_show_source(const struct cn_show_source *source, const struct cn_http_wish *wish,
                           struct cn_buffer *out)
{
    switch (wish->view) {
    case CN_HTTP_STATE:
        return cn_show_state(source, wish->tracker, wish->number, out);
    case CN_HTTP_VERSIONS:
        return wish->number > UINT32_MAX ? CN_ENOTFOUND
                                         : cn_show_versions(source, (uint32_t)wish->number, out);
    case CN_HTTP_BOARD:
        return cn_show_board(source, wish->name, out);
    }
    return CN_EINVAL;
}

cn_err cn_http_show(const struct cn_http_run *from, const struct cn_http_wish *wish,
                    struct cn_buffer *out)
{
    uint64_t now_ms = cn_platform_now_ms();
    struct cn_run_state state;
    struct cn_live_state live = {0};
    cn_run_get_state(from->run, now_ms, &state);
    cn_err err = cn_status_gather(from->roster, &state, &live);
    const struct cn_show_source source = {
        .ledger = from->ledger,
        .job = from->job,
        .live = &live,
        .progress = &state.progress,
        .now_ms = now_ms,
        .date_ms = cn_show_date_ms(),
        .parameters = from->parameters,
        .disk_free = cn_show_disk_free(from->settings->state),
        .disk_reserve = from->settings->reserve,
        .events = from->events,
        .jobs = from->jobs,
        .curve = from->curves && wish->view == CN_HTTP_BOARD
                     ? cn_sensor_curves_find(from->curves, wish->name)
                     : NULL,
    };
    if (!err)
        err = cn_http_show_source(&source, wish, out);
    cn_status_deinit(&live);
    return err;
}
